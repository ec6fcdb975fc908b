"""What a configuration fragment has to change when it is put on top of a configuration, to be compared with it.

Kconfig drops without a word what depends on something that is off, and the member of a choice of which another one is
set (Documentation/kbuild/kconfig-language.rst, "Menu dependencies"). A kernel that lacks what its fragment asks for, or
that is configured as without the fragment, would be measured for hours under a name that is not true.
"""

from collections.abc import Iterable
from pathlib import Path

from bisector.core.errors import UserError
from bisector.kernel import kconfig

_MOST_NAMED = 6


def check_changes(file: Path, unmet: Iterable[str], config: Path, without: Path | None) -> None:
    """Raise :class:`UserError` for a fragment that does not have its way, or changes nothing.

    ``unmet`` is what was asked for in all and not obtained in the effective configuration ``config``; ``without`` is
    that without the fragment, where there is one.
    """
    asked = kconfig.read_fragment(file).options
    if dropped := [line for line in unmet if line.partition("=")[0] in asked]:
        raise UserError(
            f"{file.name} asks for {_listed(dropped)}, which Kconfig does not set",
            f"`make menuconfig` shows with / what {dropped[0].partition('=')[0]} depends on, and what selects it;"
            " put that into the fragment, too, or leave the option out",
        )
    if without is not None and not kconfig.differences(*map(kconfig.read_effective, (without, config))):
        raise UserError(
            f"{file.name} changes nothing: without it {_listed(kconfig.lines(asked))} is so, too",
            "a comparison needs two different kernels",
        )


def _listed(lines: Iterable[str]) -> str:
    named = list(lines)
    return ", ".join(named[:_MOST_NAMED]) + (" …" if named[_MOST_NAMED:] else "")
