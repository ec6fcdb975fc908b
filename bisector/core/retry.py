"""How often something is tried before it is believed or given up."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The whole policy of a bisection; :attr:`bisector.config.Settings.retries` is the one in force.

    ``waits_s`` are the seconds after each attempt that failed by no fault of its commit; after one more it is given
    up. A daemon that restarts is back within seconds. A disk that somebody has to clear, or a host that suspends or
    upgrades itself, takes minutes.

    ``before_control`` attempts at a commit fail before a sound end is tried: while that works, waiting longer is of no
    use. ``faults_believed`` is how often a fault that can be chance (a panic, a hang) has to be seen.
    ``weak_repeats`` is how often a measurement that was no sound evidence is repeated. After faults of ``like_faults``
    commits at one stage a sound end is tried again.
    """

    waits_s: tuple[float, ...] = (5.0, 60.0, 300.0)
    before_control: int = 2
    faults_believed: int = 2
    weak_repeats: int = 3
    like_faults: int = 3

    @property
    def attempts(self) -> int:
        """How many attempts there are in all."""
        return len(self.waits_s) + 1

    def wait_s(self, failed: int) -> float | None:
        """The seconds to wait after so many attempts that failed in a row; None when there is to be no other."""
        return self.waits_s[failed - 1] if failed < self.attempts else None
