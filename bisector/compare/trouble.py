"""Attempts of a comparison that fail by no fault of an arm: what is said of them, and what becomes of their hosts.

A host on which an attempt failed has a pause before its next one, each longer than the last. When it has failed as
often as the policy allows it is set aside, and the others go on; on the last host that ends the run, as on a single
one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bisector.config import RetryPolicy
from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptFailed, BisectorError, TrialRefused
from bisector.core.trial import Stage


@dataclass(slots=True)
class Standing:
    """How the hosts stand that had trouble: failures in a row, pauses, and those that are used no more."""

    policy: RetryPolicy
    set_aside: dict[str, BisectorError] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict, init=False)
    _paused: dict[str, Deadline] = field(default_factory=dict, init=False)

    def worked(self, host: str) -> None:
        """An attempt came to an end there."""
        self._failures.pop(host, None)

    def wait_s(self, host: str, error: BisectorError) -> float | None:
        """How long a host is to wait after one more failure; None when there is to be no other attempt."""
        self._failures[host] = self._failures.get(host, 0) + 1
        return self.policy.wait_s(self._failures[host]) if isinstance(error, AttemptFailed) else None

    def pause(self, host: str, wait_s: float) -> None:
        """Give a host nothing for so long."""
        self._paused[host] = Deadline("the next attempt", wait_s)

    def ready(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Those of some hosts that may be given work."""
        return tuple(one for one in hosts if one not in self.set_aside and one not in self.paused)

    @property
    def paused(self) -> tuple[str, ...]:
        """The hosts whose next attempt is not due."""
        self._paused = {host: one for host, one in self._paused.items() if not one.expired}
        return tuple(self._paused)

    @property
    def next_s(self) -> float | None:
        """In how many seconds the first of them may go on; None without one."""
        return min((one.remaining_s for one in self._paused.values()), default=None)


def named(error: BisectorError, what: str, files: Iterable[Path], at_boot: str = "") -> BisectorError:
    """The same error, saying what it befell, at which stage, and where the first of its ``files`` is.

    What ``at_boot`` says is a reason for trouble before a guest can be reached. Another error than that of an attempt
    stays as it is.
    """
    if not isinstance(error, AttemptFailed | TrialRefused):
        return error
    trial = error.trial
    stage = error.stage if isinstance(error, AttemptFailed) else trial.stage if trial is not None else None
    hint = at_boot if stage is Stage.BOOT else ""
    error.message = f"{what}{f', stage {stage}' if stage is not None else ''}: {error.message}"
    logs = (f"its logs are in {place}" for place in sorted(files)[:1])
    error.hint = "\n  ".join(filter(None, (error.hint, hint, *logs)))
    return error
