"""The known workloads, by name."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bisector.core import metric
from bisector.core.errors import UserError
from bisector.core.setting import Form, Option, options_of
from bisector.workload.base import Workload
from bisector.workload.command import Command
from bisector.workload.fio.fio import Fio
from bisector.workload.gitgrep import GitGrep

_workloads: dict[str, type[Workload]] = {}
WORKLOADS: Mapping[str, type[Workload]] = MappingProxyType(_workloads)


def register(workload: type[Workload]) -> None:
    """Make a workload known. Another package calls this before the settings are read.

    Raises :class:`ValueError` if another workload has the name, a setting or a metric.
    """
    if workload.name in _workloads:
        raise ValueError(f"there is a workload called {workload.name} already")
    keys = {option.key for known in _workloads.values() for option in options_of(known)}
    if twice := sorted(keys & {option.key for option in options_of(workload)}):
        raise ValueError(f"{workload.name}: another workload has the setting {twice[0]}")
    for own in workload.metrics:
        metric.register(own)
    _workloads[workload.name] = workload


def forget(name: str) -> None:
    """Undo :func:`register`."""
    for own in _workloads.pop(name).metrics:
        metric.forget(own.name)


def chooser(workload: type[Workload]) -> Option | None:
    """The option row of the setting that chooses a workload; None if the workload has to be named."""
    return next((row for row in options_of(workload) if row.key == workload.chosen_by), None)


# Each workload of this room is registered here.
for _workload in (Fio, Command, GitGrep):
    register(_workload)


def _read_name(raw: object, _base: Path | None) -> object:
    if raw not in WORKLOADS:
        raise UserError(f"there is no workload {raw}: expected one of {', '.join(WORKLOADS)}")
    return raw


# The form of the setting.
NAME = Form(f"one of {', '.join(WORKLOADS)}", _read_name)
