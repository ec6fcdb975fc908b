"""ext4 on one disk, without a cache: what the cached stack is compared with."""

from dataclasses import dataclass

from bisector.config import StorageSettings
from bisector.core.figures import CacheStatus
from bisector.core.guest_steps import Step, run_steps
from bisector.core.model import Shell
from bisector.storage import disks, ext4


@dataclass(frozen=True, slots=True)
class PlainStack:
    """One disk, formatted and mounted."""

    mountpoint: str
    description: tuple[str, ...]

    def cache_status(self, shell: Shell) -> CacheStatus | None:
        """There is no cache."""
        return None


def layout_ssd(shell: Shell, settings: StorageSettings, file_bytes: int, deadline_s: float) -> PlainStack:
    """The SSD alone: how fast it could be."""
    return _layout(shell, disks.SSD, file_bytes, deadline_s)


def layout_hdd(shell: Shell, settings: StorageSettings, file_bytes: int, deadline_s: float) -> PlainStack:
    """The HDD alone: how slow it is without a cache."""
    return _layout(shell, disks.HDD, file_bytes, deadline_s)


def _layout(shell: Shell, disk: str, file_bytes: int, deadline_s: float) -> PlainStack:
    made: tuple[Step, ...] = ext4.ext4_steps(disk)
    outputs = run_steps(shell, (disks.tools_step(ext4.TOOLS), disks.disks_step(disk), *made), deadline_s)
    ext4.check_room(outputs[-1], file_bytes)
    return PlainStack(ext4.MOUNTPOINT, tuple(step.command for step in made))
