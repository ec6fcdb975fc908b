"""The disks alone, in words."""

from collections.abc import Iterable, Sequence

from bisector.core import units
from bisector.core.figures import Run
from bisector.core.model import Trial, alone_name
from bisector.report.table import figures
from bisector.storage.disks import in_order


def facts(baselines: Sequence[Trial]) -> tuple[tuple[str, str], ...]:
    """``SSD alone`` and ``HDD alone`` with their figures; nothing of a disk that was not measured."""
    return tuple((alone_name(disk), sentence(of_disk)) for disk, of_disk in by_disk(baselines).items())


def by_disk(baselines: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The baselines of each disk, the disks in the order of the settings."""
    names = in_order(trial.alone for trial in baselines if trial.alone is not None)
    return {name: [trial for trial in baselines if trial.alone == name] for name in names}


def sentence(of_disk: Iterable[Trial]) -> str:
    """The figures of one disk and the kernel of each; there are several where others measured it under several."""
    return "; ".join(f"{_iops(trial.runs[-1])} on {trial.commit.short}" for trial in of_disk)


def _iops(run: Run) -> str:
    found = figures(run)
    what = "IOPS" if run.direction == "read" else f"{run.direction} IOPS"
    return f"{found.range_text if found is not None else units.UNKNOWN} {what}"
