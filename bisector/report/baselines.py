"""The disks alone, in words."""

from collections.abc import Iterable, Sequence

from bisector.analysis.classify import judged_run
from bisector.core.objective import Objective
from bisector.core.trial import Trial, alone_name
from bisector.report.figures import values_text
from bisector.storage.disks import in_order


def facts(baselines: Sequence[Trial], objective: Objective) -> tuple[tuple[str, str], ...]:
    """``SSD alone`` and ``HDD alone`` with their figures; nothing of a disk that was not measured."""
    return tuple((alone_name(disk), sentence(of_disk, objective)) for disk, of_disk in by_disk(baselines).items())


def by_disk(baselines: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The baselines of each disk, the disks in the order of the settings."""
    names = in_order(trial.alone for trial in baselines if trial.alone is not None)
    return {name: [trial for trial in baselines if trial.alone == name] for name in names}


def sentence(of_disk: Iterable[Trial], objective: Objective) -> str:
    """The figures of one disk and the kernel of each; there are several where others measured it under several."""
    return "; ".join(f"{values_text(judged_run(trial), objective)} on {trial.commit.short}" for trial in of_disk)
