"""git's bisect state as the mirror of what is believed: shown what is beyond doubt, and told anew what was not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bisector.core.model import Verdict
from bisector.git.bisect import Bisect


@dataclass(slots=True)
class Mirror:
    """A git bisection that follows a belief; ``skips`` are the hashes a person knows to be untestable.

    A belief puts sides on kernels without contradiction: what is new stays so in whatever has it.
    """

    bisect: Bisect
    skips: tuple[str, ...]
    _told: dict[str, Verdict] = field(default_factory=dict, init=False)
    _began: bool = field(default=False, init=False)

    def show(self, sides: Mapping[str, Verdict]) -> None:
        """Tell git of each commit, by hash, what it was not told yet; from the start, when something is taken back."""
        if not self._began or any(sides.get(sha) is not verdict for sha, verdict in self._told.items()):
            # An untestable commit may be known from what was measured around it; git takes no verdict on a skip.
            skips = [sha for sha in self.skips if sides.get(sha, Verdict.SKIP) is Verdict.SKIP]
            self.bisect.start(skips, sides.items())
        else:
            for sha, verdict in sides.items():
                if sha not in self._told:
                    self.bisect.tell(sha, verdict)
        self._began, self._told = True, dict(sides)
