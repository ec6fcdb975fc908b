"""The disks that a stack can be laid out on, and the checks that every stack makes before it touches them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bisector.core.errors import BisectorError, KernelFault, UserError
from bisector.core.shell import FailedStep, Step
from bisector.core.trial import FaultKind, Stage

_QUOTED = 200
_DEVICE = re.compile(r"[0-9a-f]{1,8}:[0-9a-f]{1,8}")


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk of the settings: its title in their help, and the default values of its rows in each profile."""

    title: str
    quick_size: str
    article_size: str
    quick_iops_limit: int = 0


# By the names that they have in a stack, in the settings, in the guest and on record.
DISKS: Mapping[str, Disk] = {
    "ssd": Disk("fast disk", "512MiB", "5GiB"),
    "hdd": Disk("slow disk", "1GiB", "50GiB", quick_iops_limit=1000),
}
# Each other one, which a person names.
FURTHER = Disk("further disk", "1GiB", "50GiB")
# In lower case, since file systems and people may not tell "hdd" from "HDD". virtio-blk has room for 20 bytes of a
# serial number (VIRTIO_BLK_ID_BYTES in include/uapi/linux/virtio_blk.h).
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,19}")
_OF_GUEST = ("root", "modules")  # the serial numbers of the guest's own disks (bisector.vm.definition)


def objection_to(name: str) -> str | None:
    """Why no disk can have a name; None where one can."""
    if not _NAME.fullmatch(name):
        return "it has lower-case letters, digits, - and _, a letter first, and at most 20 of them"
    return "the guest has a disk of that name itself" if name in _OF_GUEST else None


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, in the order of the table; those of disks that it does not have come last."""
    known = list(DISKS)
    return tuple(sorted(set(names), key=lambda name: (known.index(name) if name in DISKS else len(known), name)))


def path_of(disk: str) -> str:
    """A disk in the guest: udev makes this link from the virtio serial number (60-persistent-storage.rules)."""
    return f"/dev/disk/by-id/virtio-{disk}"


def kernel_fault(failed: FailedStep) -> BisectorError:
    """Tools and disks are the same for every commit: a command that fails is this kernel's fault."""
    return KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, failed.reason, failed.tail)


def not_an_answer(what: str, output: str) -> KernelFault:
    """The guest's own tools printed what they never print: by the kernel under test, whose figures they read."""
    return KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, f"{what} printed {output[:_QUOTED]!r}")


def tools_step(tools: Sequence[str]) -> Step:
    """All tools are installed in the guest; else :class:`UserError` with the missing ones."""
    words = " ".join(tools)
    return Step(
        f'missing=$(for tool in {words}; do command -v "$tool" >/dev/null || echo "$tool"; done); '
        'test -z "$missing" || { echo $missing; false; }',
        _tools_missing,
    )


def devices_step(paths: Sequence[str]) -> Step:
    """The block devices are there; the output has a line for each, for :func:`device_numbers`."""
    return Step(f"stat -L -c '%t:%T' {' '.join(paths)}", kernel_fault)


def device_numbers(stat_output: str, paths: Sequence[str]) -> Mapping[str, str]:
    """``major:minor`` of each device in decimal, from stat's hexadecimal; raises :class:`KernelFault`."""
    lines = stat_output.split()
    if len(lines) != len(paths) or not all(map(_DEVICE.fullmatch, lines)):
        raise not_an_answer("stat", stat_output)
    pairs = (line.split(":") for line in lines)
    return {path: f"{int(major, 16)}:{int(minor, 16)}" for path, (major, minor) in zip(paths, pairs, strict=True)}


def _tools_missing(failed: FailedStep) -> BisectorError:
    return UserError(
        f"the guest image lacks: {failed.stdout.strip()}",
        "install them in the image that machine.image names, or leave it unset for the built image",
    )
