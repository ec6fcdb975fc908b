"""Options of mount(8): which of them mean something here, and what kernels show of those that are in force.

An option is held against what the kernel shows: another value of the same option, its opposite, or nothing where every
kernel shows it, is the kernel's fault. What no kernel shows cannot be told from what was not taken, so it is no fault;
:func:`unread` names it beforehand.

What is shown is in show_mnt_opts() and show_sb_opts() of the kernel's fs/proc_namespace.c for all file systems, and in
a function of each, which its own module names: read in v6.1, and held against mounts by v6.18.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.kinds import Kind, Option, Unfit
from bisector.storage.disks import not_an_answer
from bisector.storage.layer import MOUNTPOINT

_OPTION = re.compile(r"(?:X-)?[a-z0-9_][a-z0-9_.-]*(?:=[A-Za-z0-9_.:-]+)?")
# Nothing of a person's may mount another device, or nothing at all (mount(8)).
_NOT_OF_A_DISK = frozenset({"ro", "remount", "bind", "rbind", "move", "loop", "offset", "sizelimit"})
# What mount(8) and /etc/fstab's other readers keep for themselves (libmount/src/optmap.c, "userspace_opts_map").
_OF_USER_SPACE = frozenset(
    {"_netdev", "auto", "noauto", "nofail", "user", "nouser", "users", "nousers", "owner", "noowner", "group"}
    | {"nogroup", "comment", "helper", "uhelper", "encryption", "pri"}
)
_FOR_PROGRAMS = ("x-", "X-")  # of whatever program knows them (mount(8), "x-*")
# What a new file system on one block device does not have, or is mounted read-only for.
_OF_OTHERS = frozenset(
    {"abort", "dax", "degraded", "device", "journal_dev", "logdev", "nologreplay", "noload", "norecovery", "recovery"}
    | {"rescue", "rtdev", "sb", "subvol", "subvolid", "usebackuproot"}
)
# What the kernel never shows, and what it shows where that does not hold (fs/proc_namespace.c, show_mnt_opts()).
_UNSHOWN: Mapping[str, tuple[str, ...]] = {
    "defaults": (),
    "strictatime": ("relatime", "noatime"),
    "atime": ("noatime",),
    "diratime": ("nodiratime",),
    "async": ("sync",),
    "suid": ("nosuid",),
    "dev": ("nodev",),
    "exec": ("noexec",),
}
_OF_EVERY_MOUNT = frozenset(
    {
        "rw",
        "noatime",
        "nodiratime",
        "relatime",
        "nosuid",
        "nodev",
        "noexec",
        "nosymfollow",
        "sync",
        "dirsync",
        "lazytime",
    }
)
_BINARY_SIZE = re.compile(r"([0-9]{1,15})([kmg])", re.IGNORECASE)
_SHIFTS = {"k": 10, "m": 20, "g": 30}
# Only one option of each line holds at a time; the names of others tell their opposites by a "no" before them.
_EXCLUSIVE = (("relatime", "noatime", "strictatime"), ("rw", "ro"))
GROUP_OF_FILES = ("grpid", "nogrpid", "bsdgroups", "sysvgroups")  # of those file systems that have the choice
_FIELDS_BEFORE = 6  # of a line of mountinfo, up to the options of the mount (proc_pid_mountinfo(5))
_FIELDS_AFTER = 3  # the ` - `, file system, source and options of the superblock


@dataclass(frozen=True, slots=True)
class Shown:
    """How kernels show the options of one file system.

    ``always`` are the names of those that are shown whenever they are in force, whatever the device. ``spelled`` has
    options that are shown by other words, of which some kernels have one and some another, or by none where they say
    what holds by default. Of the options of each line of ``exclusive`` only one holds at a time.
    """

    always: frozenset[str]
    spelled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclusive: tuple[tuple[str, ...], ...] = ()

    def takes(self, option: str, shown: frozenset[str]) -> bool:
        """Whether what is shown may come of the option: then it is in force, as far as anybody can tell."""
        words = self.spelled.get(option, (option,))
        # A level or a version that goes without saying: ``compress=zstd`` is shown as ``compress=zstd:3``.
        if any(one == word or one.startswith(f"{word}:") for one in shown for word in map(in_bytes, words)):
            return True
        if option in _UNSHOWN:
            return shown.isdisjoint(_UNSHOWN[option])
        about, always = set(map(self.subject, words or (option,))), self.always | _OF_EVERY_MOUNT
        return about.isdisjoint(map(self.subject, shown)) and always.isdisjoint(map(_name, words))

    def can_be_told(self, option: str) -> bool:
        """Whether a kernel that does not take the option can be told from one that does."""
        # The opposite of what begins with "no" would be shown.
        default = option in _UNSHOWN or option in self.spelled or option.startswith("no")
        return default or _name(option) in self.always | _OF_EVERY_MOUNT

    def subject(self, option: str) -> str:
        """What two options that cannot both hold have in common."""
        name = _name(option)
        of_a_line = (" ".join(names) for names in (*_EXCLUSIVE, *self.exclusive) if name in names)
        return next(of_a_line, name.removeprefix("no"))


def mount_options(name: str, default: str) -> Option:
    """The row of the options of mount; those that are given replace only what they contradict."""

    def read(raw: object, _base: Path | None) -> str:
        words = raw.strip().split(",") if isinstance(raw, str) else []
        if not words or not all(map(_OPTION.fullmatch, words)):
            raise Unfit
        if not _NOT_OF_A_DISK.isdisjoint(map(_name, words)):
            raise Unfit
        return ",".join(words)

    expected = "options of mount with commas between them such as noatime,commit=30, without ro, loop, bind and remount"
    kind = Kind(expected, read, str)
    help_line = f"options that {name} is mounted with, over its defaults"
    return Option(f"storage.{name}.mount_options", "mount_options", kind, default, help_line)


def objections(given: str) -> Iterator[str]:
    """Why options of mount cannot be meant here, in sentences."""
    for option in given.split(","):
        name = _name(option)
        if name in _OF_USER_SPACE or name.startswith(_FOR_PROGRAMS):
            yield f"{option} is for /etc/fstab: the kernel never gets it"
        elif name in _OF_OTHERS:
            yield f"{option} is for other file systems than a new one on one block device"


def unread(given: str, display: Shown) -> tuple[str, ...]:
    """The options of which no kernel shows whether it took them."""
    return tuple(option for option in given.split(",") if not display.can_be_told(option))


def merged(default: str, given: str, display: Shown) -> tuple[str, ...]:
    """Options of mount: the default ones, those that the given ones contradict replaced, and the rest of these."""
    options: dict[str, str] = {}
    for option in filter(None, (*default.split(","), *given.split(","))):
        options[display.subject(option)] = option
    return tuple(options.values())


def not_mounted(asked: Iterable[str], shown: Iterable[str], display: Shown) -> Iterator[str]:
    """The options that the kernel did not take, by what it shows."""
    found = frozenset(map(in_bytes, filter(None, shown)))
    return (option for option in asked if not display.takes(option, found))


def in_bytes(option: str) -> str:
    """An option or its value with a size in bytes: ``4k`` is ``4096``, ``logbsize=32k`` is ``logbsize=32768``.

    Kernels show, and tools print, one size in other units than it was written in.
    """
    name, equals, value = option.rpartition("=")
    if (found := _BINARY_SIZE.fullmatch(value)) is None:
        return option
    return f"{name}{equals}{int(found[1]) << _SHIFTS[found[2].lower()]}"


def mounted_with(mountinfo: str) -> tuple[str, tuple[str, ...]]:
    """File system and options of the mount point, from ``/proc/self/mountinfo``.

    Raises :class:`bisector.core.errors.KernelFault` where there is no such line.
    """
    for line in reversed(mountinfo.splitlines()):
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if dash and len(fields) >= _FIELDS_BEFORE and fields[4] == MOUNTPOINT and len(rest) == _FIELDS_AFTER:
            return rest[0], tuple(dict.fromkeys((*fields[5].split(","), *rest[2].split(","))))
    raise not_an_answer("/proc/self/mountinfo", mountinfo)


def _name(option: str) -> str:
    return option.partition("=")[0]
