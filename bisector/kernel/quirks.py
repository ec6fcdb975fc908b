"""What old trees need to be built with new tools: a table, decided by the source, not its version.

A bisection meets trees between releases, with backports and reverts, where a version says nothing.
"""

import hashlib
from dataclasses import astuple, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Quirk:
    """A tree whose ``file`` exists and does not contain ``cured_by_text`` is built with ``variables``.

    ``cure`` is the mainline commit that made it unnecessary; ``symptom`` what happens without.
    """

    name: str
    file: str
    cured_by_text: str
    variables: tuple[tuple[str, str], ...]
    cure: str
    symptom: str

    def applies(self, source: Path) -> bool:
        """Whether this source tree needs it."""
        path = source / self.file
        return path.is_file() and self.cured_by_text not in path.read_text(encoding="utf-8", errors="replace")


QUIRKS = (
    Quirk(
        name="max-page-size",
        file="arch/x86/Makefile",
        cured_by_text="max-page-size",
        variables=(("LD", "ld -z max-page-size=0x200000"),),
        cure='e3d03598e8ae ("x86/build/64: Force the linker to use 2MB page size") (in v4.16)',
        symptom=(
            "binutils 2.31 made 4 KiB the default maximum page size of x86_64: the load segments are no longer"
            " 2 MiB-aligned and the kernel dies in early boot, before it can print"
        ),
    ),
)


def applying(source: Path, table: tuple[Quirk, ...] = QUIRKS) -> tuple[Quirk, ...]:
    """The quirks this source tree needs, in the table's order."""
    return tuple(quirk for quirk in table if quirk.applies(source))


def digest(table: tuple[Quirk, ...] = QUIRKS) -> str:
    """Names this table: with the tree it settles which quirks apply, so a kernel's key needs no checkout."""
    return hashlib.sha256(repr([astuple(quirk) for quirk in table]).encode()).hexdigest()
