"""Where trials run, as the loop sees it."""

from typing import Protocol

from bisector.core.model import Commit, Compiler, Fault, Stage, Trial
from bisector.trial.runner import TrialRequest


class Engine(Protocol):
    """Measures commits; a fake and the real ones pass the same contract test."""

    def measure(self, request: TrialRequest) -> Trial:
        """The facts of one trial.

        A kernel that cannot be judged is a fact (``Trial.fault``). Raises ``AttemptFailed`` for a
        fault of ours or the host's, ``UserError`` for input that no commit can be measured with.
        """
        ...

    def control(self, commit: Commit, compilers: tuple[Compiler, ...], through: Stage) -> Fault | None:
        """Whether a commit that was measured before comes through a stage now, or why not. Raises as :meth:`measure`.

        Through :attr:`Stage.BUILD` its kernel is built anew; further on it is the one that is kept.
        """
        ...

    def compilers(self) -> tuple[Compiler, ...]:
        """What kernels can be built with here, as the settings wish, the preferred one first.

        Raises ``UserError`` for a wish that cannot be met.
        """
        ...

    def try_build(self, commit: Commit, compiler: Compiler) -> Fault | None:
        """Whether this compiler builds this commit, or why not; what it built is kept. Raises as :meth:`measure`."""
        ...
