"""What all file systems have in common: made by the options of mkfs, mounted with options that are named and read back.

Defaults of mkfs and of mount change with the tools and with the kernel, so none is left to them: each that changed, and
each that shows in figures, is in the layer's settings. What the kernel mounted and what mkfs made is read afterwards
and held against them.
"""

import errno
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bisector.core.errors import BisectorError, InfraError, KernelFault, UserError
from bisector.core.kinds import Kind, Option, Problem, Unfit
from bisector.core.shell import FailedStep, Step
from bisector.core.trial import FaultKind, Stage
from bisector.core.units import size_text
from bisector.storage.disks import kernel_fault, not_an_answer
from bisector.storage.layer import MOUNTPOINT, Extent, Files, Layer, Made, Own, Site

# Words of mkfs that name no file: a setting is text of a person, and is run by a shell in the guest.
_MKFS = re.compile(r"-[-A-Za-z0-9_.,:=^ ]*")
_MOUNT = re.compile(r"[a-z0-9_]+(?:=[A-Za-z0-9_.:-]+)?")
# Nothing of a person's may mount another device, or nothing at all (mount(8)).
_NOT_OF_A_DISK = frozenset({"ro", "remount", "bind", "rbind", "move", "loop", "offset", "sizelimit"})
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
_BINARY_SIZE = re.compile(r"([0-9]{1,15})([kmg])", re.IGNORECASE)
_SHIFTS = {"k": 10, "m": 20, "g": 30}
# Only one option of each line holds at a time; their names tell the others by a "no" before them.
_EXCLUSIVE = {
    "access time": ("relatime", "noatime", "strictatime"),
    "inode numbers": ("inode32", "inode64"),
    "ssd": ("ssd", "nossd", "ssd_spread"),
}
_FIELDS_BEFORE = 6  # of a line of mountinfo, up to the options of the mount (proc_pid_mountinfo(5))
_FIELDS_AFTER = 3  # the ` - `, file system, source and options of the superblock

# Of what mkfs prints when it is its options that it does not take, and not the disk that fails.
_NOT_TAKEN = ("usage:", "unknown", "unrecognized", "invalid", "illegal", "must be", "too small", "too large")


def mkfs_options(name: str, default: str, before: str | None = None) -> Option:
    """The row of what mkfs is given: all of it, so that nothing is left to the image's tools."""

    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or not _MKFS.fullmatch(raw.strip()):
            raise Unfit
        return raw.strip()

    kind = Kind("options of mkfs on one line, without names of files", read, str)
    return Option(
        f"storage.{name}.mkfs_options",
        "mkfs_options",
        kind,
        default,
        f"options of mkfs.{name}, all of them",
        before=before,
    )


def mount_options(name: str, default: str) -> Option:
    """The row of the options of mount; those that are given replace only what they contradict."""

    def read(raw: object, _base: Path | None) -> str:
        words = raw.strip().split(",") if isinstance(raw, str) else []
        if not words or not all(map(_MOUNT.fullmatch, words)):
            raise Unfit
        if not _NOT_OF_A_DISK.isdisjoint(word.partition("=")[0] for word in words):
            raise Unfit
        return ",".join(words)

    expected = "options of mount with commas between them such as noatime,commit=30, without ro, loop, bind and remount"
    kind = Kind(expected, read, str)
    help_line = f"options that {name} is mounted with, over its defaults"
    return Option(f"storage.{name}.mount_options", "mount_options", kind, default, help_line)


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


def merged(default: str, given: str) -> tuple[str, ...]:
    """Options of mount: the default ones, those that the given ones contradict replaced, and the rest of these."""
    options: dict[str, str] = {}
    for option in filter(None, (*default.split(","), *given.split(","))):
        options[_subject(option)] = option
    return tuple(options.values())


def not_mounted(asked: Iterable[str], shown: Iterable[str]) -> Iterator[str]:
    """The options that the kernel does not show although they were asked for.

    A kernel leaves out most options that begin with "no"; the option that they switch off is missing then.
    """
    shown = frozenset(map(in_bytes, shown))
    names = {option.partition("=")[0] for option in shown}
    for option in asked:
        off = option.startswith("no") and option.removeprefix("no") not in names
        # A level or a version that goes without saying: ``compress=zstd`` is shown as ``compress=zstd:3``.
        longer = any(one.startswith(f"{option}:") for one in shown)
        unshown = option in _UNSHOWN and shown.isdisjoint(_UNSHOWN[option])
        if in_bytes(option) not in shown and not (off or longer or unshown):
            yield option


def in_bytes(option: str) -> str:
    """An option or its value with a size in bytes: ``4k`` is ``4096``, ``logbsize=32k`` is ``logbsize=32768``.

    Kernels show, and tools print, one size in other units than it was written in.
    """
    name, equals, value = option.rpartition("=")
    if (found := _BINARY_SIZE.fullmatch(value)) is None:
        return option
    return f"{name}{equals}{int(found[1]) << _SHIFTS[found[2].lower()]}"


def mounted_with(mountinfo: str) -> tuple[str, tuple[str, ...]]:
    """File system and options of the mount point, from ``/proc/self/mountinfo``; raises :class:`KernelFault`."""
    for line in reversed(mountinfo.splitlines()):
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if dash and len(fields) >= _FIELDS_BEFORE and fields[4] == MOUNTPOINT and len(rest) == _FIELDS_AFTER:
            return rest[0], tuple(dict.fromkeys((*fields[5].split(","), *rest[2].split(","))))
    raise not_an_answer("/proc/self/mountinfo", mountinfo)


class FileSystem(Layer):
    """A file system on one device. Derived classes say its options, and read what mkfs made.

    ``mkfs`` is the program with what it is always given: overwrite, and no discard, since dm-cache moves discarded
    blocks into the cache without reading them, so that whether the disk below can discard would show in the figures.
    ``defaults`` are the options of mount, ``least_bytes`` is the least size of which mkfs makes a file system.
    ``format_command`` prints what mkfs made, with ``{device}`` replaced; ``shown_command`` prints more options that the
    kernel mounted with, one a line, where the mount table does not have all of them.
    """

    is_file_system = True
    mkfs: ClassVar[str]
    defaults: ClassVar[str]
    least_bytes: ClassVar[int] = 0
    format_command: ClassVar[str]
    shown_command: ClassVar[str] = ""

    @abstractmethod
    def other_format(self, asked: Mapping[str, str], printed: str) -> Iterator[str]:
        """What the printed format has otherwise than asked, by the letters of mkfs's options.

        Raises :class:`ValueError` for what is no answer.
        """

    def problems(self, below: Sequence[Extent], own: Own, files: Files) -> Iterator[Problem]:
        """The device is large enough for mkfs."""
        (device,) = below
        if device.size_bytes is not None and device.size_bytes < self.least_bytes:
            sentence = (
                f"{self.name} needs {size_text(self.least_bytes)}, and {device.what} has {size_text(device.size_bytes)}"
            )
            yield Problem(("storage.stack", *device.keys), sentence)

    def make(self, site: Site) -> Made:
        """Make the file system, mount it, and read back both."""
        (device,) = site.below
        options = merged(self.defaults, site.own["mount_options"])
        steps = (
            Step(f"{self.mkfs} {site.own['mkfs_options']} {device.path}", self._mkfs_fault),
            Step(f"mount -t {self.name} -o {','.join(options)} {device.path} {MOUNTPOINT}", kernel_fault),
        )
        asked = words_of(site.own["mkfs_options"])

        def verify(answers: Sequence[str], _numbers: Mapping[str, str]) -> None:
            mountinfo, printed, *more = answers
            self._check_mount(options, mountinfo, more)
            self._check_format(asked, printed)

        checks = ["cat /proc/self/mountinfo", self.format_command.format(device=device.path)]
        checks += filter(None, [self.shown_command])
        return Made(MOUNTPOINT, steps, tuple(Step(check, kernel_fault) for check in checks), verify)

    def _mkfs_fault(self, failed: FailedStep) -> BisectorError:
        """Options are a person's; that the disk cannot be written is the kernel's doing, EINVAL among it."""
        said = [line.lower() for line in failed.tail if not line.strip().endswith(os.strerror(errno.EINVAL))]
        if any(word in line for line in said for word in _NOT_TAKEN):
            return UserError(
                f"the guest's mkfs.{self.name} does not take its options: {failed.reason}",
                f"storage.{self.name}.mkfs_options has them",
            )
        return kernel_fault(failed)

    def _check_mount(self, options: Sequence[str], mountinfo: str, more: Sequence[str]) -> None:
        """The kernel was asked for each option by name."""
        kind, shown = mounted_with(mountinfo)
        if kind != self.name:
            raise _fault(f"mount: {kind[:40]!r} is mounted instead of {self.name}")
        shown = (*shown, *(line.strip() for lines in more for line in lines.splitlines()))
        if lost := list(not_mounted(options, shown)):
            raise _fault(f"mount: {self.name} is mounted without {','.join(lost)}", (",".join(shown)[:400],))

    def _check_format(self, asked: Mapping[str, str], printed: str) -> None:
        """What is on the disk was decided by mkfs and its options, never by the kernel under test."""
        try:
            differences = list(self.other_format(asked, printed))
        except ValueError as error:
            raise not_an_answer(self.format_command.split()[0], printed) from error
        if differences:
            raise InfraError(f"mkfs.{self.name} made {', '.join(differences)[:400]}")


def differing(asked: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    """What was found otherwise, or not at all."""
    for name, value in asked.items():
        if (other := found.get(name, "nothing")) != in_bytes(value):
            yield f"{name}={other} instead of {name}={value}"


def _subject(option: str) -> str:
    """What two options that cannot both hold have in common."""
    name = option.partition("=")[0]
    for subject, names in _EXCLUSIVE.items():
        if name in names:
            return subject
    return name.removeprefix("no")


def _fault(reason: str, tail: tuple[str, ...] = ()) -> KernelFault:
    return KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, reason, tail)
