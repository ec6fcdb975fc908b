"""The storage stacks by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias

from bisector.config import StorageSettings
from bisector.core.errors import UserError
from bisector.core.figures import CacheStatus
from bisector.core.model import Shell
from bisector.storage import lvmcache, plain


class Stack(Protocol):
    """A mounted storage stack; ``description`` holds the commands that made it."""

    @property
    def mountpoint(self) -> str:
        """Where the workload puts its files."""
        ...

    @property
    def description(self) -> tuple[str, ...]:
        """The commands that made it, in order."""
        ...

    def cache_status(self, shell: Shell) -> CacheStatus | None:
        """The cache's figures of this moment; None for a stack without one."""
        ...


Layout: TypeAlias = Callable[[Shell, StorageSettings, int, float], Stack]

STACKS: Mapping[str, Layout] = MappingProxyType(
    {
        "lvmcache": lvmcache.layout,
        "ssd": plain.layout_ssd,
        "hdd": plain.layout_hdd,
    }
)


def layout(shell: Shell, settings: StorageSettings, file_bytes: int, deadline_s: float) -> Stack:
    """Lay out the stack that ``storage.stack`` names, on the guest's empty disks.

    ``file_bytes`` is the size of one file of the workload. Raises :class:`UserError` for an
    unknown stack, missing tools or sizes that do not fit, :class:`KernelFault` for a failing
    command.
    """
    if settings.stack not in STACKS:
        raise UserError(f"storage.stack: {settings.stack!r} is unknown", f"one of: {', '.join(STACKS)}")
    return STACKS[settings.stack](shell, settings, file_bytes, deadline_s)
