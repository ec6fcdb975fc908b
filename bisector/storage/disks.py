"""The guest's two disks and the checks that every stack makes before it touches them."""

import re
from collections.abc import Sequence

from bisector.core.errors import BisectorError, KernelFault, UserError
from bisector.core.guest_steps import FailedStep, Step
from bisector.core.model import FaultKind, Stage

# udev makes these links from the virtio serial number (udev: 60-persistent-storage.rules).
SSD = "/dev/disk/by-id/virtio-ssd"
HDD = "/dev/disk/by-id/virtio-hdd"
_QUOTED = 200
_DEVICE = re.compile(r"[0-9a-f]{1,8}:[0-9a-f]{1,8}")


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


def disks_step(*paths: str) -> Step:
    """The disks are there; the output has a line for each, for :func:`device_numbers`."""
    return Step(f"stat -L -c '%t:%T' {' '.join(paths)}", kernel_fault)


def device_numbers(stat_output: str, count: int) -> tuple[str, ...]:
    """``major:minor`` of each of ``count`` disks in decimal, from stat's hexadecimal; raises :class:`KernelFault`."""
    lines = stat_output.split()
    if len(lines) != count or not all(map(_DEVICE.fullmatch, lines)):
        raise not_an_answer("stat", stat_output)
    pairs = (line.split(":") for line in lines)
    return tuple(f"{int(major, 16)}:{int(minor, 16)}" for major, minor in pairs)


def _tools_missing(failed: FailedStep) -> BisectorError:
    return UserError(
        f"the guest image lacks: {failed.stdout.strip()}",
        "install them in the image that machine.image names, or leave it unset for the built image",
    )
