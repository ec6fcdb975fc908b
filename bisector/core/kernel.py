"""A built kernel, and what built it."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Compiler:
    """What is typed, and the versions of what shapes the code: the compiler's and the linker's."""

    command: str
    identity: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A built kernel image and what identifies it.

    ``key`` names what it was made from (configuration, toolchain, quirks, and last the tree), ``content_sha256``
    what it is (the loaded sections of vmlinux and of the code that boots it, without notes and the
    text of the version): equal content means equal kernels. ``unmet`` are the options asked for and
    not obtained, as ``CONFIG_X=y``. ``modules`` is a file system for /lib/modules, None of a kernel that has
    none; what is in them counts into ``content_sha256``.
    """

    image: Path
    config: Path
    release: str
    build_id: str
    content_sha256: str
    key: str
    toolchain: str
    quirks: tuple[str, ...]
    unmet: tuple[str, ...]
    cached: bool
    build_s: float
    modules: Path | None = None

    KEY_SEPARATOR: ClassVar[str] = "-"

    @property
    def tree(self) -> str:
        """The git tree that it was built from: another commit's, where that has the same sources."""
        return self.key.partition(self.KEY_SEPARATOR)[2]
