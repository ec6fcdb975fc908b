"""Whether a guest whose time is counted does the same again: the same kernel twice, with the same seed; pure.

It ought to, to the last bit (qemu(1), ``-icount``). It is shown all the same, once on each host in each run: every file
that came out of the guest has the same content, the console with its time stamps included. Where that is so, a second
trial tells nothing, and readings differ by what another seed makes of it: a little shift of its time and its pages.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bisector.analysis.judgement import Numbered
from bisector.core.trial import Trial

_OF_HOST = frozenset(("host.json", "build.log"))


@dataclass(frozen=True, slots=True)
class SameAgain:
    """Two trials, by their numbers, that should be the same; ``unlike`` are the files that differ."""

    first: int
    again: int
    unlike: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether they are."""
        return not self.unlike

    @property
    def sentence(self) -> str:
        """What was seen, for a person."""
        both = f"trials {self.first} and {self.again}, of one kernel with the same seed,"
        if self.is_exact:
            return f"{both} are the same to the last bit: counted time is exact here"
        return f"{both} differ in {', '.join(self.unlike)}: counted time is not exact here, and readings count as noisy"


def repeats(trials: Iterable[Numbered]) -> Iterator[SameAgain]:
    """Each whole trial in counted time, of those that are given, that an earlier one should be equal to."""
    seen: dict[tuple[object, ...], Numbered] = {}
    for n, trial in trials:
        if not trial.is_counted or not trial.is_whole or trial.kernel is None:
            continue
        key = (trial.kernel.content_sha256, trial.guest_seed, trial.setup, trial.era, trial.fill)
        if key not in seen:
            seen[key] = n, trial
            continue
        first_n, first = seen[key]
        yield SameAgain(first_n, n, _unlike(first, trial))


def _unlike(first: Trial, again: Trial) -> tuple[str, ...]:
    one, other = (
        {artifact.name: artifact.sha256 for artifact in trial.artifacts if artifact.name not in _OF_HOST}
        for trial in (first, again)
    )
    return tuple(name for name in one | other if one.get(name) != other.get(name))
