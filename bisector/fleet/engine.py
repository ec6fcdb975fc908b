"""Where trials run, as the loop sees it."""

from typing import Protocol

from bisector.model import Trial
from bisector.trial import TrialRequest


class Engine(Protocol):
    """Measures commits; a fake and the real ones pass the same contract test."""

    def measure(self, request: TrialRequest) -> Trial:
        """The facts of one trial.

        A kernel that cannot be judged is a fact (``Trial.fault``). Raises ``AttemptFailed`` for a
        fault of ours or the host's, ``UserError`` for input that no commit can be measured with.
        """
        ...
