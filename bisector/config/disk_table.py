"""The settings of disks: the rows of each, which disks a person's keys name, and the words of ``--disk``.

A disk is a table of the file, ``[storage.hdd2]``. Those of :data:`bisector.storage.disks.DISKS` are always there;
any other one is there as soon as one of its settings is.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from bisector.core import kinds
from bisector.core.errors import UserError
from bisector.core.kinds import AUTO, Kind, Option, Unfit
from bisector.storage.disks import DISKS, FURTHER, Bus, objection_to
from bisector.storage.layers import LAYERS
from bisector.storage.stack import Stack

_TABLE = "storage"
# What `--disk` calls the settings, beside their own names.
_SHORT = {"iops": "iops_limit", "bandwidth": "bandwidth_limit"}
# Settings of storage that are no layer's.
_OTHERS = frozenset(("stack", "overwrite", "fill_deadline", "fill_rounds", "fill"))
_FIRST = "size"  # what stands first without a name
_UNCHANGED = ("", "the kernel's default")
DISK_HELP = (
    "a disk by its name with its settings, such as hdd2=1GiB,iops=1000,bandwidth=100MiB,latency=5ms,path=/srv/hdd2; "
    "repeatable"
)


def _scheduler() -> Kind:
    """A word for the kernel, which alone knows its schedulers."""

    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or not re.fullmatch(r"[a-z][a-z0-9_-]{0,15}", raw):
            raise Unfit
        return raw

    return Kind("the name of an I/O scheduler such as none, mq-deadline, kyber or bfq", read, str)


@cache
def rows_of(name: str) -> tuple[Option, ...]:
    """The rows of a disk; those that are always there have a flag for their place."""
    disk = DISKS.get(name, FURTHER)
    key, field, title = f"{_TABLE}.{name}.", f"{_TABLE}.disks.{name}.", disk.title
    place = kinds.optional(kinds.disk(), "", "a file in the run directory")
    where = f"{title}: directory, or block device to be overwritten; a directory gets a sparse file"
    flag, metavar = (f"--{name}", "PATH") if name in DISKS else ("", "")
    number = kinds.optional(kinds.integer(0), *_UNCHANGED)
    guest, memory_ms = f"{field}guest.", disk.memory_latency_s * 1e3
    usual = f"0s, or {memory_ms:g}ms on null_blk and {round(memory_ms)}ms on brd"
    return (
        Option(key + "path", field + "path", place, "", where, flag=flag, metavar=metavar),
        Option(key + "size", field + "size_bytes", kinds.size(1 << 20), disk.quick_size,
               f"{title}: size of a file made for it, bytes", disk.article_size),
        Option(key + "iops_limit", field + "iops_limit", kinds.integer(0), disk.quick_iops_limit,
               f"{title}: limit in I/O operations/s, 0 for none", 0),
        Option(key + "bandwidth_limit", field + "bytes_per_s_limit", kinds.size(0, per_second=True), 0,
               f"{title}: limit in bytes/s, 0 for none"),
        Option(key + "latency", field + "latency_s", kinds.optional(kinds.duration(0), AUTO, usual), AUTO,
               f"{title}: time added to each read and write, whole milliseconds (on null_blk any), s", before="0s"),
        Option(key + "bus", guest + "bus", kinds.optional(kinds.choice(Bus), AUTO,
               "virtio; where instructions are counted null_blk, or brd if an end is older than v4.14"), AUTO,
               f"{title}: how the guest sees it; null_blk and brd are in its memory, with nothing on the host",
               before=Bus.VIRTIO),
        Option(key + "scheduler", guest + "scheduler", kinds.optional(_scheduler(), *_UNCHANGED), "",
               f"{title}: I/O scheduler in the guest"),
        Option(key + "read_ahead_kb", guest + "read_ahead_kb", number, "", f"{title}: read-ahead in the guest, KiB"),
        Option(key + "nr_requests", guest + "nr_requests", number, "",
               f"{title}: requests that the guest's queue holds"),
        Option(key + "wbt_lat_usec", guest + "wbt_lat_usec", number, "",
               f"{title}: read latency, us, from which on the guest throttles buffered writes, 0 for never"),
    )  # fmt: skip


_WORDS = tuple(row.key.rpartition(".")[2] for row in rows_of("hdd"))


def further(keys: Iterable[str]) -> tuple[str, ...]:
    """The disks that keys of settings are of, each once, without those that are always there.

    A key of a disk that cannot be is left out, and is unknown then; :func:`objection` has the reason.
    """
    names = dict.fromkeys(filter(None, map(_disk_of, keys)))
    return tuple(name for name in names if name not in DISKS and _objection_to(name) is None)


def unused(keys: Iterable[str], used: Collection[str]) -> tuple[str, ...]:
    """What the keys of further disks begin with that are not among those ``used``."""
    return tuple(f"{_TABLE}.{name}." for name in further(keys) if name not in used)


def objection(key: str) -> str | None:
    """Why there can be no disk that a key would be of, as a sentence; None for another key."""
    name = _disk_of(key)
    why = None if name is None else _objection_to(name)
    return None if why is None else f"{name} cannot be the name of a disk: {why}"


def refuse_unused(keys: Iterable[str], stacks: Sequence[Stack]) -> None:
    """Raise :class:`UserError` for a disk of the command line that no stack has, or the place of one.

    Those of a file are for the stacks of other days, too.
    """
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
    """The settings that ``NAME=SIZE,iops=N,…`` stands for, by their keys; raises :class:`UserError`."""
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
        key = f"{_TABLE}.{name}.{_word(text, word)}"
        if key in found:
            raise UserError(f"--disk {text}: {key} is given twice")
        found[key] = value
    return found


def _word(text: str, word: str) -> str:
    full = _SHORT.get(word, word)
    if full not in _WORDS:
        near = difflib.get_close_matches(word, (*_WORDS, *_SHORT), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(
            f"--disk {text}: a disk has no setting {word}",
            f"{hint}it has {', '.join((*_WORDS, *_SHORT))}; a path with a comma: --set {_TABLE}.NAME.path=PATH",
        )
    return full


def _disk_of(key: str) -> str | None:
    table, _, rest = key.partition(".")
    name, _, word = rest.rpartition(".")
    return name if table == _TABLE and name and word in _WORDS else None


def _objection_to(name: str) -> str | None:
    if name in LAYERS:
        return "there is a layer of that name"
    taken = {row.key.split(".")[1] for layer in LAYERS.values() for row in layer.options}
    return f"there is a setting {_TABLE}.{name}" if name in taken | _OTHERS else objection_to(name)
