"""The disks alone, in words."""

from collections.abc import Iterable, Sequence

from bisector.core import units
from bisector.core.figures import Run
from bisector.core.model import Disk, Trial
from bisector.report.table import figures


def facts(baselines: Sequence[Trial]) -> tuple[tuple[str, str], ...]:
    """``SSD alone`` and ``HDD alone`` with their figures; nothing of a disk that was not measured."""
    by_disk = ((disk, [trial for trial in baselines if trial.alone is disk]) for disk in Disk)
    return tuple((disk.alone, sentence(of_disk)) for disk, of_disk in by_disk if of_disk)


def sentence(of_disk: Iterable[Trial]) -> str:
    """The figures of one disk and the kernel of each; there are several where others measured it under several."""
    return "; ".join(f"{_iops(trial.runs[-1])} on {trial.commit.short}" for trial in of_disk)


def _iops(run: Run) -> str:
    found = figures(run)
    what = "IOPS" if run.direction == "read" else f"{run.direction} IOPS"
    return f"{found.range_text if found is not None else units.UNKNOWN} {what}"
