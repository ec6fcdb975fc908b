"""What a page has of one trial beside its row: curves, console, configuration."""

from dataclasses import dataclass

from bisector.core.commit import Commit
from bisector.report.curves import Curves
from bisector.status.view import OptionChange


@dataclass(frozen=True, slots=True)
class Detail:
    """Of trial ``n``; whatever is not on record is empty.

    ``fault`` are the log lines that matter to a fault, ``console`` the guest's last ones, ``options`` what differs in
    the effective .config since that of ``against``; ``complaints`` name the files that could not be used.
    """

    n: int
    curves: Curves | None = None
    complaints: tuple[str, ...] = ()
    fault: tuple[str, ...] = ()
    console: tuple[str, ...] = ()
    against: Commit | None = None
    options: tuple[OptionChange, ...] = ()
