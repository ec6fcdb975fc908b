"""Whether a kernel that is built once more is the one that was measured, and what has changed where it is not.

A comparison lasts for nights. Meanwhile the kernels that it measures may go from the cache, and what builds them may be
upgraded: bisector with its quirks, or a tool that no version tells of. Figures of two kernels under one name would be
taken for those of one.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from bisector.core.errors import UserError
from bisector.core.subject import Kernel
from bisector.kernel import kconfig

_MOST_NAMED = 6
_TOLD: tuple[tuple[str, Callable[[Kernel], str]], ...] = (
    ("its compiler and linker", lambda kernel: kernel.toolchain),
    ("its quirks", lambda kernel: ", ".join(kernel.quirks) or "none"),
    ("its release", lambda kernel: kernel.release),
)


def as_measured(measured: Kernel | None, built: Kernel) -> Kernel:
    """The kernel that was built; :class:`UserError` where it is another one than was measured, and what has changed.

    ``config`` of the measured one may be gone; then no option of it is named.
    """
    if measured is not None and built.content_sha256 != measured.content_sha256:
        raise UserError(
            "the kernel that was measured is kept no more, and built once more it is another one:"
            f" {'; '.join(_changes(measured, built))}",
            "bring that back, or begin anew: `bisector report` ends with the command",
        )
    return built


def _changes(measured: Kernel, built: Kernel) -> Iterator[str]:
    told = [(what, of(measured), of(built)) for what, of in _TOLD]
    told += _options(measured, built)
    found = [f"{what} changed from {old} to {new}" for what, old, new in told if old != new]
    yield from found[:_MOST_NAMED]
    if found[_MOST_NAMED:]:
        yield "and more"
    if not found and measured.family != built.family:
        yield "this bisector builds kernels, or tells them apart, in another way"
    elif not found:
        yield "though of the same sources, configuration, compiler and quirks, so another tool of the build has changed"


def _options(measured: Kernel, built: Kernel) -> list[tuple[str, str, str]]:
    with suppress(OSError):
        return list(kconfig.differences(*(kconfig.read_effective(one.config) for one in (measured, built))))
    return []
