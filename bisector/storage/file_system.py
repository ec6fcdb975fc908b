"""What all file systems have in common: made by the options of mkfs, mounted with options that are named and read back.

Defaults of mkfs and of mount change with the tools and with the kernel, so none is left to them: each that changed, and
each that shows in figures, is in the layer's settings. What the kernel mounted and what mkfs made is read afterwards
and held against them.

Another value of the same option of mount(8), its opposite, or nothing where every kernel shows it, is the kernel's
fault. An option that no kernel shows cannot be told from one that was not taken, so it is not a fault, and
:meth:`FileSystem.untold` names it beforehand. What kernels show is in show_mnt_opts() and show_sb_opts() of
fs/proc_namespace.c for all file systems, and in a function of each, which its own module names: read in v6.1, and held
against mounts by v6.18.
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
from bisector.core.units import size_text
from bisector.storage.disks import fault, kernel_fault, not_an_answer, steps
from bisector.storage.layer import MOUNTPOINT, Capacity, Feature, Files, Layer, Made, Since, Site

# Words that name no file: a setting is text of a person, and is run by a shell in the guest.
_WORDS = r"^-[-A-Za-z0-9_.,:=^ ]*$"
# Why an option of mkfs is unfit.
NO_FILE_SYSTEM = "makes no file system"
A_FILE = "names a file, and the guest has none of yours"
# Of what mkfs prints when it is its options that it does not take, and not the disk that fails.
_NOT_TAKEN = ("usage:", "unknown", "unrecognized", "invalid", "illegal", "must be", "too small", "too large")


def words_of(options: str) -> Mapping[str, str]:
    """The options of mkfs by their letters: ``-b 4096`` is ``{"b": "4096"}``; repeated ones are joined by commas."""
    words: dict[str, str] = {}
    letter = ""
    for word in options.split():
        if word.startswith("-"):
            letter = word.lstrip("-")
            words.setdefault(letter, "")
        else:
            words[letter] = f"{words[letter]},{word}" if words[letter] else word
    return words


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
    {"rw", "noatime", "nodiratime", "relatime", "nosuid", "nodev", "noexec", "nosymfollow", "sync", "dirsync"}
    | {"lazytime"}
)
_BINARY_SIZE = re.compile(r"([0-9]{1,15})([kmg])", re.IGNORECASE)
_SHIFTS = {"k": 10, "m": 20, "g": 30}
# Only one option of each line holds at a time; the names of others tell their opposites by a "no" before them.
_EXCLUSIVE = (("relatime", "noatime", "strictatime"), ("rw", "ro"))
GROUP_OF_FILES = ("grpid", "nogrpid", "bsdgroups", "sysvgroups")  # of those file systems that have the choice
_FIELDS_BEFORE = 6  # of a line of mountinfo, up to the options of the mount (proc_pid_mountinfo(5))
_FIELDS_AFTER = 3  # the ` - `, file system, source and options of the superblock


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
    """The row of what mkfs is given."""
    return Option(f"storage.{name}.mkfs_options", default, f"options of mkfs.{name}, all of them")


def mount_row(name: str, default: str) -> Option:
    """The row of what mount is given."""
    return Option(f"storage.{name}.mount_options", default, f"options that {name} is mounted with, over its defaults")


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


@dataclass(frozen=True, slots=True)
class FileSystem(Layer):
    """A file system on one device. Derived classes say its options, and read what mkfs made.

    ``mkfs`` is the program with what it is always given: overwrite, and no discard, since dm-cache moves discarded
    blocks into the cache without reading them, so that whether the disk below can discard would show in the figures.
    ``letters`` and ``long_options`` are those of mkfs as getopt(3) reads them. ``unfit`` says with which of them
    nothing can be mounted afterwards, and why: by the option, or by it and the first letters of one word of its value.
    Of options of mount ``shown_always`` has the names that kernels show whenever they are in force, whatever the
    device, ``shown_as`` those that are shown by other words, of which some kernels have one and some another, or by
    none where they say what holds by default. Of the options of each line of ``exclusive`` only one holds at a time.
    ``least_bytes`` is the least size of which mkfs makes a file system. ``format_command`` prints what mkfs made, with
    ``{device}`` replaced; ``shown_command`` prints more options that the kernel mounted with, one a line, where the
    mount table does not have all of them. ``fragments_of_options`` are those that an option of mount needs beside the
    layer's. ``later`` has words of both kinds of options that came after the driver.
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
    # All options of mkfs, so that nothing is left to the image's tools. Of mount those that are given replace only what
    # they contradict of the default ones.
    mkfs_options: str
    mount_options: str

    @abstractmethod
    def other_format(self, asked: Mapping[str, str], printed: str) -> Iterator[str]:
        """What the printed format has otherwise than asked, by the letters of mkfs's options.

        Raises :class:`ValueError` for what is no answer.
        """

    def fragments_for(self) -> tuple[str, ...]:
        """Some options of mount need kernel options that others can do without."""
        names = (option.partition("=")[0] for option in self.mounted())
        found = (self.fragments_of_options[name] for name in names if name in self.fragments_of_options)
        return tuple(dict.fromkeys((*self.fragments, *found)))

    def features(self) -> Iterator[Feature]:
        """Features of the format, and options of mount, that are younger than the driver."""
        of_mkfs = ",".join(words_of(self.mkfs_options).values()).split(",")
        for name, words in (("mkfs_options", of_mkfs), ("mount_options", self.mounted())):
            for word in (one.partition(":")[0].removesuffix("=1") for one in words):
                if word in self.later:
                    yield Feature(f"{self.name} with {word}", self.later[word], (f"storage.{self.name}.{name}",))

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """The device is large enough for mkfs, and the options are for a file system that can be mounted."""
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
        if device.size_bytes is not None and device.size_bytes < self.least_bytes:
            sentence = (
                f"{self.name} needs {size_text(self.least_bytes)}, and {device.what} has {size_text(device.size_bytes)}"
            )
            yield Problem(("storage.stack", *device.keys), sentence)

    def untold(self) -> Iterator[str]:
        """Options of mount that no kernel shows."""
        for option in self.mount_options.split(","):
            if not self.can_be_told(option):
                said = f"kernels do not show {option}: it is asked for, and not read back"
                yield f"storage.{self.name}.mount_options: {said}"

    def unfit_for_mkfs(self, options: str) -> Iterator[str]:
        """Why mkfs could end well and the file system be missing; what mkfs itself refuses is left to it."""
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
        """Whether what is shown may come of the option: then it is in force, as far as anybody can tell."""
        words = self.shown_as.get(option, (option,))
        # A level or a version that goes without saying: ``compress=zstd`` is shown as ``compress=zstd:3``.
        if any(one == word or one.startswith(f"{word}:") for one in shown for word in map(in_bytes, words)):
            return True
        if option in _UNSHOWN:
            return shown.isdisjoint(_UNSHOWN[option])
        about, always = set(map(self.subject, words or (option,))), self.shown_always | _OF_EVERY_MOUNT
        return about.isdisjoint(map(self.subject, shown)) and always.isdisjoint(map(_name, words))

    def can_be_told(self, option: str) -> bool:
        """Whether a kernel that does not take the option can be told from one that does."""
        # The opposite of what begins with "no" would be shown.
        default = option in _UNSHOWN or option in self.shown_as or option.startswith("no")
        return default or _name(option) in self.shown_always | _OF_EVERY_MOUNT

    def merged(self, default: str, given: str) -> tuple[str, ...]:
        """Options of mount: the default ones, those that the given ones contradict replaced, and the rest of these."""
        options: dict[str, str] = {}
        for option in filter(None, (*default.split(","), *given.split(","))):
            options[self.subject(option)] = option
        return tuple(options.values())

    def lost(self, asked: Iterable[str], shown: Iterable[str]) -> list[str]:
        """The options that the kernel did not take, by what it shows."""
        found = frozenset(map(in_bytes, filter(None, shown)))
        return [option for option in asked if not self.takes(option, found)]

    def subject(self, option: str) -> str:
        """What two options that cannot both hold have in common."""
        name = _name(option)
        of_a_line = (" ".join(names) for names in (*_EXCLUSIVE, *self.exclusive) if name in names)
        return next(of_a_line, name.removeprefix("no"))

    def mounted(self) -> tuple[str, ...]:
        """The options that it is mounted with."""
        return self.merged(str(self.rows()["mount_options"].quick), self.mount_options)

    def make(self, site: Site) -> Made:
        """Make the file system, mount it, and read back both."""
        (device,) = site.below
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
            # What is on the disk was decided by mkfs and its options, never by the kernel under test.
            try:
                differences = list(self.other_format(asked, printed))
            except ValueError as error:
                raise not_an_answer(self.format_command.split()[0], printed) from error
            if differences:
                raise InfraError(f"mkfs.{self.name} made {', '.join(differences)[:400]}")

        checks = ["cat /proc/self/mountinfo", self.format_command.format(device=device.path)]
        return Made(MOUNTPOINT, made, steps(*checks, *filter(None, [self.shown_command])), verify)

    def _mkfs_fault(self, failed: CommandResult) -> BisectorError:
        """Options are a person's; that the disk cannot be written is the kernel's doing, EINVAL among it."""
        said = [line.lower() for line in failed.tail if not line.strip().endswith(os.strerror(errno.EINVAL))]
        if any(word in line for line in said for word in _NOT_TAKEN):
            return UserError(
                f"the guest's mkfs.{self.name} does not take its options: {failed.reason}",
                f"storage.{self.name}.mkfs_options has them",
            )
        return kernel_fault(failed)


def differing(asked: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    """What was found otherwise, or not at all."""
    for name, value in asked.items():
        if (other := found.get(name, "nothing")) != in_bytes(value):
            yield f"{name}={other} instead of {name}={value}"
