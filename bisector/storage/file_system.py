"""What all file systems have in common: made by the options of mkfs, mounted with options that are named and read back.

Defaults of mkfs and of mount change with the tools and with the kernel, so none is left to them: each that changed, and
each that shows in figures, is in the layer's settings. What the kernel mounted and what mkfs made is read afterwards
and held against them.
"""

import errno
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from bisector.core.errors import BisectorError, InfraError, KernelFault, UserError
from bisector.core.kinds import Problem
from bisector.core.shell import FailedStep, Step
from bisector.core.trial import FaultKind, Stage
from bisector.core.units import size_text
from bisector.storage.disks import kernel_fault, not_an_answer
from bisector.storage.layer import MOUNTPOINT, Extent, Feature, Files, Layer, Made, Own, Since, Site
from bisector.storage.mkfs import NOT_TAKEN, Syntax, words_of
from bisector.storage.mount import Shown, in_bytes, merged, mounted_with, not_mounted, objections, unread


class FileSystem(Layer):
    """A file system on one device. Derived classes say its options, and read what mkfs made.

    ``mkfs`` is the program with what it is always given: overwrite, and no discard, since dm-cache moves discarded
    blocks into the cache without reading them, so that whether the disk below can discard would show in the figures.
    ``syntax`` is how mkfs reads its options, ``defaults`` are the options of mount and ``display`` is what kernels show
    of them. ``least_bytes`` is the least size of which mkfs makes a file system. ``format_command`` prints what mkfs
    made, with ``{device}`` replaced; ``shown_command`` prints more options that the kernel mounted with, one a line,
    where the mount table does not have all of them. ``fragments_of_options`` are those that an option of mount needs
    beside the layer's. ``later`` has words of both kinds of options that came after the driver.
    """

    is_file_system = True
    mkfs: ClassVar[str]
    syntax: ClassVar[Syntax]
    defaults: ClassVar[str]
    display: ClassVar[Shown]
    least_bytes: ClassVar[int] = 0
    fragments_of_options: ClassVar[Mapping[str, str]] = {}
    later: ClassVar[Mapping[str, Since]] = {}
    format_command: ClassVar[str]
    shown_command: ClassVar[str] = ""

    @abstractmethod
    def other_format(self, asked: Mapping[str, str], printed: str) -> Iterator[str]:
        """What the printed format has otherwise than asked, by the letters of mkfs's options.

        Raises :class:`ValueError` for what is no answer.
        """

    def fragments_for(self, own: Own) -> tuple[str, ...]:
        """Some options of mount need kernel options that others can do without."""
        names = (option.partition("=")[0] for option in self.mounted(own))
        found = (self.fragments_of_options[name] for name in names if name in self.fragments_of_options)
        return tuple(dict.fromkeys((*self.fragments, *found)))

    def features(self, own: Own) -> Iterator[Feature]:
        """Features of the format, and options of mount, that are younger than the driver."""
        of_mkfs = ",".join(words_of(own["mkfs_options"]).values()).split(",")
        for name, words in (("mkfs_options", of_mkfs), ("mount_options", self.mounted(own))):
            for word in (one.partition(":")[0].removesuffix("=1") for one in words):
                if word in self.later:
                    yield Feature(f"{self.name} with {word}", self.later[word], (f"storage.{self.name}.{name}",))

    def problems(self, below: Sequence[Extent], own: Own, files: Files) -> Iterator[Problem]:
        """The device is large enough for mkfs, and the options are for a file system that can be mounted."""
        (device,) = below
        for sentence in self.syntax.objections(own["mkfs_options"]):
            yield Problem((f"storage.{self.name}.mkfs_options",), f"mkfs.{self.name} {sentence}", "leave it out")
        for sentence in objections(own["mount_options"]):
            yield Problem((f"storage.{self.name}.mount_options",), sentence, "leave it out")
        if device.size_bytes is not None and device.size_bytes < self.least_bytes:
            sentence = (
                f"{self.name} needs {size_text(self.least_bytes)}, and {device.what} has {size_text(device.size_bytes)}"
            )
            yield Problem(("storage.stack", *device.keys), sentence)

    def untold(self, own: Own) -> Iterator[str]:
        """Options of mount that no kernel shows."""
        for option in unread(own["mount_options"], self.display):
            yield f"storage.{self.name}.mount_options: kernels do not show {option}: it is asked for, and not read back"

    def mounted(self, own: Own) -> tuple[str, ...]:
        """The options that it is mounted with."""
        return merged(self.defaults, own["mount_options"], self.display)

    def make(self, site: Site) -> Made:
        """Make the file system, mount it, and read back both."""
        (device,) = site.below
        options = self.mounted(site.own)
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
        if any(word in line for line in said for word in NOT_TAKEN):
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
        if lost := list(not_mounted(options, shown, self.display)):
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


def _fault(reason: str, tail: tuple[str, ...] = ()) -> KernelFault:
    return KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, reason, tail)
