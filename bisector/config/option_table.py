"""The rows of all settings, from which files, flags, listings and the record are read.

A disk is a table of the file, such as ``[storage.hdd2]``. The disks of :data:`bisector.storage.disks.DISKS` always
exist; any other disk exists as soon as one of its settings does.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from bisector.config import (
    BisectSettings,
    ContentionSettings,
    DiskSettings,
    KernelSettings,
    MachineSettings,
    MailSettings,
    NotifySettings,
    Settings,
    StorageSettings,
    WorkloadSettings,
)
from bisector.core.errors import UserError
from bisector.core.setting import AUTO, Option, options_of
from bisector.storage.disks import DISKS, EXTRA_DISK, GuestDisk, objection_to
from bisector.storage.layer import LAYERS
from bisector.storage.stack import Stack
from bisector.workload.workloads import WORKLOADS

_TABLE = "storage"
# The short names of settings in `--disk`, beside their own names.
_SHORT = {"iops": "iops_limit", "bandwidth": "bandwidth_limit"}
# Settings of storage that belong to no layer.
_OTHERS = frozenset(("stack", "overwrite", "fill_deadline", "fill_rounds", "fill"))
_FIRST = "size"  # the setting that comes first and without a name
DISK_HELP = (
    "a disk by its name, and its settings: size, iops, bandwidth, latency, path; such as hdd2=1GiB,iops=1000 or "
    "nvme=path=/dev/nvme0n1p4; repeatable"
)


@cache
def rows_of(name: str) -> tuple[tuple[Option, ...], tuple[Option, ...]]:
    """The rows of a disk, and of how the guest sees it; disks that always exist have a flag for their path."""
    disk = DISKS.get(name, EXTRA_DISK)
    memory_ms = disk.memory_latency_s * 1e3
    usual = f"0s, or {memory_ms:g}ms on null_blk and {round(memory_ms)}ms on brd"
    own: Mapping[str, Mapping[str, Any]] = {
        "path": {"flag": f"--{name}", "metavar": "PATH"} if name in DISKS else {},
        "size": {"quick": disk.quick_size, "article": disk.article_size},
        "iops_limit": {"quick": disk.quick_iops_limit},
        "latency": {"absent": (AUTO, usual)},
    }

    def of(settings: type) -> tuple[Option, ...]:
        return tuple(
            replace(row, key=f"{_TABLE}.{name}.{row.key}", help=f"{disk.title}: {row.help}", **own.get(row.key, {}))
            for row in options_of(settings)
        )

    return of(DiskSettings), of(GuestDisk)


_WORDS = tuple(row.key for settings in (DiskSettings, GuestDisk) for row in options_of(settings))


def further(keys: Iterable[str]) -> tuple[str, ...]:
    """The disks that keys name, without the disks that always exist and without invalid names (:func:`objection`)."""
    names = dict.fromkeys(filter(None, map(_disk_of, keys)))
    return tuple(name for name in names if name not in DISKS and _objection_to(name) is None)


def are_among(keys: Iterable[str]) -> bool:
    """Whether any of the keys belongs to a disk."""
    return any(map(_disk_of, keys))


def unused(keys: Iterable[str], used: Collection[str]) -> tuple[str, ...]:
    """The key prefixes of those further disks that are not among ``used``."""
    return tuple(f"{_TABLE}.{name}." for name in further(keys) if name not in used)


def objection(key: str) -> str | None:
    """Why the disk that a key names cannot exist, as a sentence; None for any other key."""
    name = _disk_of(key)
    why = None if name is None else _objection_to(name)
    return None if why is None else f"{name} cannot be the name of a disk: {why}"


def refuse_unused(keys: Iterable[str], stacks: Sequence[Stack]) -> None:
    """Raise :class:`UserError` for a typed disk that no stack has; a file may have disks for other stacks."""
    used = {name for stack in stacks for name in stack.disks}
    keys = tuple(keys)
    placed = (name for name in DISKS if f"{_TABLE}.{name}.path" in keys)
    for name in (*further(keys), *placed):
        if name not in used:
            near = difflib.get_close_matches(name, used, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            flag = f"--{name}" if name in DISKS else f"--disk {name}"
            what = f"{flag}: the stack {' or '.join(dict.fromkeys(map(str, stacks)))} has no disk of that name"
            raise UserError(what, f"{meant}--stack {name}, or another stack that names it; or leave the disk out")


def from_words(text: str) -> Mapping[str, str]:
    """The settings that ``NAME=SIZE,iops=N,…`` stands for, by key; raises :class:`UserError`."""
    name, equals, rest = text.partition("=")
    if not equals or not name or not rest:
        raise UserError(f"--disk {text}: expected NAME=SIZE, NAME=SIZE,iops=N or NAME=path=PATH", DISK_HELP)
    if (why := _objection_to(name)) is not None:
        raise UserError(f"--disk {text}: {name} cannot be the name of a disk: {why}", DISK_HELP)
    found: dict[str, str] = {}
    for position, words in enumerate(rest.split(",")):
        word, equals, value = words.partition("=")
        if not equals and position == 0:
            word, value = _FIRST, words
        full = _SHORT.get(word, word)
        if full not in _WORDS:
            near = difflib.get_close_matches(word, (*_WORDS, *_SHORT), n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            has = ", ".join((*_WORDS, *_SHORT))
            raise UserError(
                f"--disk {text}: a disk has no setting {word}",
                f"{hint}it has {has}; a path with a comma: --set {_TABLE}.NAME.path=PATH",
            )
        key = f"{_TABLE}.{name}.{full}"
        if key in found:
            raise UserError(f"--disk {text}: {key} is given twice")
        found[key] = value
    return found


def _disk_of(key: str) -> str | None:
    table, _, rest = key.partition(".")
    name, _, word = rest.rpartition(".")
    return name if table == _TABLE and name and word in _WORDS else None


def _objection_to(name: str) -> str | None:
    if name in LAYERS:
        return "there is a layer of that name"
    taken = {row.key.split(".")[1] for layer in LAYERS.values() for row in options_of(layer)}
    return f"there is a setting {_TABLE}.{name}" if name in taken | _OTHERS else objection_to(name)


FRAGMENTS = "kernel.fragments"


def rows(further: Iterable[str] = ()) -> tuple[Option, ...]:
    """Every row, including those of registered layers and workloads, and of further disks."""
    of_disks = chain.from_iterable(map(rows_of, (*DISKS, *further)))
    above = (Settings, BisectSettings, KernelSettings, MachineSettings, StorageSettings)
    below = (
        *LAYERS.values(),
        *(WorkloadSettings, *WORKLOADS.values()),
        *(ContentionSettings, MailSettings, NotifySettings),
    )
    return tuple(chain.from_iterable((*map(options_of, above), *of_disks, *map(options_of, below))))


def by_key(keys: Iterable[str] = ()) -> Mapping[str, Option]:
    """Every row by the key of its setting, including the rows of the disks that ``keys`` name."""
    return {option.key: option for option in rows(further(keys))}
