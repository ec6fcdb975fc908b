"""From all trials of one commit to what is believed of it, or to "measure again".

A fault of the kernel's own is believed at once where it cannot be chance (it does not compile, which the
builder has seen twice where the host may be to blame), and on the second time where it can (a build that
was not done in time, a hang, a panic, a command that failed): a loaded host can make a deadline expire.
It is believed at once, too, when a kernel known to be good was tried right after it and came further, and
not at all when that one failed (:mod:`bisector.analysis.controls`).
Weak evidence is measured again up to a limit, then the commit is skipped. A whole run counts before one
that was stopped early, whatever that said.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bisector.config import RetryPolicy
from bisector.core.trial import Trial


@dataclass(frozen=True, slots=True)
class Evidence:
    """A trial and its weaknesses; without any, and without a fault, it is a measurement.

    A weak one that is ``forgiven`` does not count among those after which a commit is given up.
    """

    trial: Trial
    weaknesses: tuple[str, ...] = ()
    forgiven: bool = False

    @property
    def sound(self) -> bool:
        """Whether its figures may decide."""
        return self.trial.fault is None and not self.weaknesses

    @property
    def weak(self) -> bool:
        """Whether it is one more measurement that came to nothing."""
        return self.trial.fault is None and bool(self.weaknesses) and not self.forgiven


@dataclass(frozen=True, slots=True)
class Measured:
    """The commit has figures that count: those of ``trial``."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class Untestable:
    """The commit is skipped; ``why`` is the sentence for the table.

    ``weak``: no fault of its own, but that no measurement of it was sound.
    """

    why: str
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing is certain yet; ``why`` it has to be measured (again)."""

    why: str


Settlement = Measured | Untestable | Again


def settle(evidence: Sequence[Evidence], policy: RetryPolicy) -> Settlement:
    """What all trials of one commit, in the order of measuring, amount to; those whose fault is doubted, to nothing."""
    doubted = [one.trial.fault for one in evidence if one.trial.doubted and one.trial.fault is not None]
    evidence = [one for one in evidence if not one.trial.doubted]
    for one in sorted(evidence, key=lambda one: one.trial.stopped_early is not None):
        if one.sound:
            return Measured(one.trial)
    faults = [one.trial.fault for one in evidence if one.trial.fault is not None]
    vouched_for = any(one.trial.vouched_for for one in evidence)
    if faults and (vouched_for or faults[-1].kind.of_compiling or len(faults) >= policy.faults_believed):
        return Untestable(faults[-1].sentence)
    weak = [one for one in evidence if one.weak]
    if len(weak) > policy.weak_repeats:
        return Untestable(f"no sound measurement in {len(weak)}: {weak[-1].weaknesses[0]}", weak=True)
    if not evidence:
        return Again(f"{doubted[-1].kind}, doubted since a sound end failed, too" if doubted else "not measured yet")
    last = evidence[-1]
    return Again(f"{last.trial.fault.kind}, once" if last.trial.fault else last.weaknesses[0])


def lacks_whole_run(evidence: Sequence[Evidence], policy: RetryPolicy) -> bool:
    """Whether what is known of a commit rests on a run that was stopped early, and a whole one is still to be tried.

    One that ends weak or with a fault is tried again as often as any.
    """
    counts = settle(evidence, policy)
    counted = (one for one in evidence if not (one.forgiven or one.trial.doubted))
    whole = sum(one.trial.stopped_early is None for one in counted)
    return isinstance(counts, Measured) and counts.trial.stopped_early is not None and whole <= policy.weak_repeats
