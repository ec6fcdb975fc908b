"""The common parts of all file systems, and the top of a stack without one.

Defaults of mkfs and of mount change with tools and kernels. So each default that has changed, or that shows in figures,
is set by the layer's settings, and read back; docs/stacks.md ("File systems") says what is whose fault. Options are
shown by show_mnt_opts() and show_sb_opts() of fs/proc_namespace.c for all file systems, and by one function of each,
which its own module names. These functions were read in v6.1 and compared with mounts by v6.18.
"""

import errno
import getopt
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.setting import Form, Meta, Option, Problem
from bisector.core.shell import CommandResult, Step
from bisector.storage.disks import fault, kernel_fault, not_an_answer, steps
from bisector.storage.layer import MOUNTPOINT, Capacity, Device, Feature, Files, Layer, LayerPlan, Since

# Words that name no file: a shell in the guest runs this text, which the user wrote.
_WORDS = r"^-[-A-Za-z0-9_.,:=^ ]*$"
# Why an option of mkfs is unfit.
NO_FILE_SYSTEM = "makes no file system"
A_FILE = "names a file, and the guest has none of yours"
# Parts of what mkfs prints if it refuses its options, as opposed to a disk that fails.
_NOT_TAKEN = ("usage:", "unknown", "unrecognized", "invalid", "illegal", "must be", "too small", "too large")
# An option of mount.
_OPTION = re.compile(r"(?:X-)?[a-z0-9_][a-z0-9_.-]*(?:=[A-Za-z0-9_.:-]+)?")
# The user's options must not mount another device, or nothing at all (mount(8)).
_NOT_OF_A_DISK = frozenset({"ro", "remount", "bind", "rbind", "move", "loop", "offset", "sizelimit"})
# Options for mount(8) and other readers of /etc/fstab, not the kernel (libmount/src/optmap.c, "userspace_opts_map").
_OF_USER_SPACE = frozenset(
    {"_netdev", "auto", "noauto", "nofail", "user", "nouser", "users", "nousers", "owner", "noowner", "group"}
    | {"nogroup", "comment", "helper", "uhelper", "encryption", "pri"}
)
_FOR_PROGRAMS = ("x-", "X-")  # for whatever program knows them (mount(8), "x-*")
# Options that need something that a new file system on one block device lacks, or that need a read-only mount.
_OF_OTHERS = frozenset(
    {"abort", "dax", "degraded", "device", "journal_dev", "logdev", "nologreplay", "noload", "norecovery", "recovery"}
    | {"rescue", "rtdev", "sb", "subvol", "subvolid", "usebackuproot"}
)
# Options that the kernel never shows, and what it shows if they do not hold (fs/proc_namespace.c, show_mnt_opts()).
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
    {"rw", "noatime", "nodiratime", "relatime", "nosuid", "nodev", "noexec", "nosymfollow", "sync", "dirsync"}
    | {"lazytime"}
)
_BINARY_SIZE = re.compile(r"([0-9]{1,15})([kmg])", re.IGNORECASE)
_SHIFTS = {"k": 10, "m": 20, "g": 30}
# Only one option of each line holds at a time. Other options exclude only the one with "no" before their name.
_EXCLUSIVE = (("relatime", "noatime", "strictatime"), ("rw", "ro"))
GROUP_OF_FILES = ("grpid", "nogrpid", "bsdgroups", "sysvgroups")  # for file systems that have the choice
_FIELDS_BEFORE = 6  # of a line of mountinfo, up to the options of the mount (proc_pid_mountinfo(5))
_FIELDS_AFTER = 3  # after the ` - `: file system, source and options of the superblock


def _read_mount(raw: object, _base: Path | None) -> str:
    words = raw.strip().split(",") if isinstance(raw, str) else []
    if not words or not all(map(_OPTION.fullmatch, words)) or not _NOT_OF_A_DISK.isdisjoint(map(_name, words)):
        raise ValueError(raw)
    return ",".join(words)


MkfsOptions: TypeAlias = Annotated[
    str, Meta(pattern=_WORDS, description="options of mkfs on one line, without names of files")
]
MountOptions: TypeAlias = Annotated[
    str,
    Form(
        "options of mount with commas between them such as noatime,commit=30, without ro, loop, bind and remount",
        _read_mount,
    ),
]


def mkfs_row(name: str, default: str) -> Option:
    """The option row for the options of mkfs."""
    return Option(f"storage.{name}.mkfs_options", default, f"options of mkfs.{name}, all of them")


def mount_row(name: str, default: str) -> Option:
    """The option row for the options of mount."""
    return Option(f"storage.{name}.mount_options", default, f"options that {name} is mounted with, over its defaults")


def words_of(options: str) -> Mapping[str, str]:
    """The options of mkfs by letter: ``-b 4096`` becomes ``{"b": "4096"}``; commas join the values of repeated ones."""
    words: dict[str, str] = {}
    letter = ""
    for word in options.split():
        if word.startswith("-"):
            letter = word.lstrip("-")
            words.setdefault(letter, "")
        else:
            words[letter] = f"{words[letter]},{word}" if words[letter] else word
    return words


def in_bytes(option: str) -> str:
    """An option, or a value, in the unit in which all are compared: ``logbsize=32k`` becomes ``logbsize=32768``."""
    name, equals, value = option.rpartition("=")
    if (found := _BINARY_SIZE.fullmatch(value)) is None:
        return option
    return f"{name}{equals}{int(found[1]) << _SHIFTS[found[2].lower()]}"


def mounted_with(mountinfo: str) -> tuple[str, tuple[str, ...]]:
    """Type and options of the file system at the mount point; raises :class:`KernelFault` if it has no line."""
    for line in reversed(mountinfo.splitlines()):
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if dash and len(fields) >= _FIELDS_BEFORE and fields[4] == MOUNTPOINT and len(rest) == _FIELDS_AFTER:
            return rest[0], tuple(dict.fromkeys((*fields[5].split(","), *rest[2].split(","))))
    raise not_an_answer("/proc/self/mountinfo", mountinfo)


def _name(option: str) -> str:
    return option.partition("=")[0]


@dataclass(frozen=True, slots=True)
class FileSystem(Layer):
    """A file system on one device. Derived classes define its options, and read what mkfs made.

    ``mkfs`` is the program with the options that it is always given: to overwrite, and not to discard. (dm-cache moves
    discarded blocks into the cache without reading them, so the figures would show whether the disk below can discard.)
    ``letters`` and ``long_options`` are the options of mkfs as getopt(3) takes them. ``unfit`` has the options after
    which nothing can be mounted, and why; a key is an option, or an option and the first letters of one word of its
    value. ``least_bytes`` is the smallest device on which mkfs makes a file system. ``format_command`` prints the
    format that mkfs made, with ``{device}`` replaced.

    ``shown_always`` has the names of mount options that kernels show whenever they are in force, whatever the device.
    ``shown_as`` has mount options that are shown by other words, each by those of one kernel or another; an option that
    states a default has none, since defaults are not shown. Only one option in each line of ``exclusive`` holds at a
    time. ``shown_command`` prints further mount options in force, one a line, if the mount table lacks some.
    ``fragments_of_options`` are the kernel configuration fragments that a mount option needs besides the layer's own.

    ``later`` has words of both kinds of options that are younger than the driver.
    """

    is_file_system = True
    mkfs: ClassVar[str]
    letters: ClassVar[str]
    long_options: ClassVar[tuple[str, ...]] = ()
    unfit: ClassVar[Mapping[str, str]] = {}
    shown_always: ClassVar[frozenset[str]]
    shown_as: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = ()
    least_bytes: ClassVar[int] = 0
    fragments_of_options: ClassVar[Mapping[str, str]] = {}
    later: ClassVar[Mapping[str, Since]] = {}
    format_command: ClassVar[str]
    shown_command: ClassVar[str] = ""
    # The options of mkfs are complete, so that nothing is left to the image's tools. The options of mount replace only
    # the default ones that they contradict.
    mkfs_options: str
    mount_options: str

    @abstractmethod
    def other_format(self, asked: Mapping[str, str], printed: str) -> Iterator[str]:
        """Yield how the printed format differs from the options of mkfs, which ``asked`` has by letter.

        Raises :class:`ValueError` if ``printed`` is not the output of ``format_command``.
        """

    def fragments_for(self) -> tuple[str, ...]:
        """The layer's fragments, and the fragments that its mount options need."""
        names = (option.partition("=")[0] for option in self.mounted())
        found = (self.fragments_of_options[name] for name in names if name in self.fragments_of_options)
        return tuple(dict.fromkeys((*self.fragments, *found)))

    def features(self) -> Iterator[Feature]:
        """Yield the features of the format, and the mount options, that are younger than the driver."""
        of_mkfs = ",".join(words_of(self.mkfs_options).values()).split(",")
        for name, words in (("mkfs_options", of_mkfs), ("mount_options", self.mounted())):
            for word in (one.partition(":")[0].removesuffix("=1") for one in words):
                if word in self.later:
                    yield Feature(f"{self.name} with {word}", self.later[word], (f"storage.{self.name}.{name}",))

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield a device that is too small for mkfs, and options that leave no file system to mount."""
        (device,) = below
        for why in self.unfit_for_mkfs(self.mkfs_options):
            yield Problem((f"storage.{self.name}.mkfs_options",), f"mkfs.{self.name} {why}", "leave it out")
        for option in self.mount_options.split(","):
            name = _name(option)
            if name in _OF_USER_SPACE or name.startswith(_FOR_PROGRAMS):
                sentence = f"{option} is for /etc/fstab: the kernel never gets it"
            elif name in _OF_OTHERS:
                sentence = f"{option} is for other file systems than a new one on one block device"
            else:
                continue
            yield Problem((f"storage.{self.name}.mount_options",), sentence, "leave it out")
        yield from device.lacks(self.least_bytes, f"{self.name} needs", "storage.stack")

    def unverifiable(self) -> Iterator[str]:
        """Yield a sentence for each mount option that no kernel shows."""
        for option in self.mount_options.split(","):
            # The opposite of an option that begins with "no" would be shown.
            is_default = option in _UNSHOWN or option in self.shown_as or option.startswith("no")
            if not is_default and _name(option) not in self.shown_always | _OF_EVERY_MOUNT:
                said = f"kernels do not show {option}: it is asked for, and not read back"
                yield f"storage.{self.name}.mount_options: {said}"

    def unfit_for_mkfs(self, options: str) -> Iterator[str]:
        """Yield why mkfs could succeed and leave no file system; options that mkfs itself refuses are left to it."""
        try:
            found, rest = getopt.gnu_getopt(options.split(), self.letters, list(self.long_options))
        except getopt.GetoptError:
            return
        for name, value in found:
            for one in (name, *(f"{name} {word}" for word in value.split(","))):
                for start, why in self.unfit.items():
                    if one == start or (" " in start and one.startswith(start)):
                        yield f"{one} {why}"
        yield from (f"{word} is a name, and the device is the stack's" for word in rest[:1])

    def takes(self, option: str, shown: frozenset[str]) -> bool:
        """Whether the options that the kernel shows agree with ``option``, so that it counts as in force."""
        words = self.shown_as.get(option, (option,))
        # The kernel adds a default level or version: ``compress=zstd`` is shown as ``compress=zstd:3``.
        if any(one == word or one.startswith(f"{word}:") for one in shown for word in map(in_bytes, words)):
            return True
        if option in _UNSHOWN:
            return shown.isdisjoint(_UNSHOWN[option])
        about, always = set(map(self.subject, words or (option,))), self.shown_always | _OF_EVERY_MOUNT
        return about.isdisjoint(map(self.subject, shown)) and always.isdisjoint(map(_name, words))

    def lost(self, asked: Iterable[str], shown: Iterable[str]) -> list[str]:
        """The options of ``asked`` that the kernel did not take, judging by those that it shows."""
        found = frozenset(map(in_bytes, filter(None, shown)))
        return [option for option in asked if not self.takes(option, found)]

    def subject(self, option: str) -> str:
        """The subject of a mount option: two options with the same subject exclude each other."""
        name = _name(option)
        of_a_line = (" ".join(names) for names in (*_EXCLUSIVE, *self.exclusive) if name in names)
        return next(of_a_line, name.removeprefix("no"))

    def mounted(self) -> tuple[str, ...]:
        """The default mount options, with each replaced that a given one contradicts, and the other given ones."""
        default = str(self.rows()["mount_options"].quick)
        both = (*default.split(","), *self.mount_options.split(","))
        return tuple({self.subject(option): option for option in both}.values())

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        """Make the file system and mount it; its format and its mount options are read back."""
        (device,) = below
        options, asked = self.mounted(), words_of(self.mkfs_options)
        made = (
            Step(f"{self.mkfs} {self.mkfs_options} {device.path}", self._mkfs_fault),
            Step(f"mount -t {self.name} -o {','.join(options)} {device.path} {MOUNTPOINT}", kernel_fault),
        )

        def verify(answers: Sequence[str], _numbers: Mapping[str, str]) -> None:
            mountinfo, printed, *more = answers
            kind, shown = mounted_with(mountinfo)
            if kind != self.name:
                raise fault(f"mount: {kind[:40]!r} is mounted instead of {self.name}")
            shown = (*shown, *(line.strip() for lines in more for line in lines.splitlines()))
            if lost := self.lost(options, shown):
                raise fault(f"mount: {self.name} is mounted without {','.join(lost)}", ",".join(shown)[:400])
            # mkfs and its options decide the format on the disk, never the kernel under test.
            try:
                differences = list(self.other_format(asked, printed))
            except ValueError as error:
                raise not_an_answer(self.format_command.split()[0], printed) from error
            if differences:
                raise InfraError(f"mkfs.{self.name} made {', '.join(differences)[:400]}")

        checks = ["cat /proc/self/mountinfo", self.format_command.format(device=device.path)]
        return LayerPlan(MOUNTPOINT, made, steps(*checks, *filter(None, [self.shown_command])), verify)

    def _mkfs_fault(self, failed: CommandResult) -> BisectorError:
        """Return :class:`UserError` if mkfs refuses its options. Failed I/O, also EINVAL, is the kernel's fault."""
        said = [line.lower() for line in failed.tail if not line.strip().endswith(os.strerror(errno.EINVAL))]
        if any(word in line for line in said for word in _NOT_TAKEN):
            return UserError(
                f"the guest's mkfs.{self.name} does not take its options: {failed.reason}",
                f"storage.{self.name}.mkfs_options has them",
            )
        return kernel_fault(failed)


def differing(asked: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    """Yield each value of ``asked`` that ``found`` has otherwise, or not at all."""
    for name, value in asked.items():
        if (other := found.get(name, "nothing")) != in_bytes(value):
            yield f"{name}={other} instead of {name}={value}"


class Raw(Layer):
    """The top of a stack whose workload reads and writes the block device below."""

    name = "raw"
    is_file_system = True
    has_files = False
    suspects = ("block", "drivers/block")
    tools = ("blockdev",)

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        """Return the device below; there is nothing to make."""
        (device,) = below
        return LayerPlan(device.path, ())
