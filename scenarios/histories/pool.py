"""What histories are made of: commits by what they are for, from the tables of edits.

The demonstration's and the articles' own commits are among them, so that no edit is written twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scenarios.articles.kernels import OWN_EDITS
from scenarios.demo.commits import EDITS as DEMO_EDITS
from scenarios.demo.commits import Entry, load_entries

EDITS = Path(__file__).parent / "edits"
CHANGES, HARMLESS, BROKEN = (EDITS / f"{name}.toml" for name in ("changes", "harmless", "broken"))
TABLES = (CHANGES, HARMLESS, BROKEN, DEMO_EDITS, OWN_EDITS)
# The keys of changes that the demonstration and the articles have.
_SHARED = ("spoil", "waits")
CODE, NONE, NO_BUILD, PANIC, MERGE = "code", "none", "no-build", "panic", "merge"


@dataclass(frozen=True, slots=True)
class Pool:
    """Commits without a place: changes by their keys, harmless ones that are built and that are not, broken ones."""

    changes: Mapping[str, Entry]
    code: tuple[Entry, ...]
    none: tuple[Entry, ...]
    broken: Mapping[str, tuple[Entry, ...]]

    @property
    def all(self) -> tuple[Entry, ...]:
        """Each of them."""
        broken = (entry for entries in self.broken.values() for entry in entries)
        return (*self.changes.values(), *self.code, *self.none, *broken)


def load() -> Pool:
    """The pool of the tables that are kept beside this file, and of the demonstration's and the articles'."""
    changes, harmless, broken, demo, articles = (_bare(path) for path in TABLES)
    shared = [entry for entry in (*demo, *articles) if entry.key in _SHARED]
    single = [*harmless, *(entry for entry in demo if entry not in shared)]
    return Pool(
        {entry.key: entry for entry in (*shared, *changes)},
        tuple(entry for entry in single if entry.effect == CODE),
        tuple(entry for entry in single if entry.effect == NONE),
        {effect: tuple(entry for entry in broken if entry.effect == effect) for effect in (NO_BUILD, PANIC)},
    )


def _bare(path: Path) -> tuple[Entry, ...]:
    """The commits of a table, each alone, without those that need another."""
    entries = load_entries(path.read_text(encoding="utf-8"))
    return tuple(entry.alone for entry in entries if not (entry.undo or entry.merge))
