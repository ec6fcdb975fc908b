"""The drawn histories as one repository, which borrows the distribution's source of the demonstration's.

Each begins at the source as the package has it. The same source and the same seed give the same hashes.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bisector.core.errors import UserError
from scenarios.demo import history
from scenarios.demo.commits import MAIN, digest
from scenarios.demo.fast_import import on_top
from scenarios.demo.repository import Repository, borrowing
from scenarios.demo.run import SOURCES, history_of, number, tarballs
from scenarios.histories import draw
from scenarios.histories.draw import Drawn
from scenarios.histories.pool import TABLES, load

# The edits stand once in this version.
KNOWN = "6.1"
# What each history is made to end with; people may read it, too.
_RECORD = "bisector-histories.json"
_PLANTED = "planted"
_CODE = (*history.MAKERS, *(Path(__file__).with_name(f"{name}.py") for name in ("draw", "make", "pool", "setups")))


@dataclass(frozen=True, slots=True)
class Planted:
    """A commit that makes the change that is looked for, or one of two: which change, and where it stands.

    ``place`` counts the commits between the ends in the order of their making, from 1 on; ``line`` is their branch.
    """

    sha: str
    subject: str
    change: str
    place: int
    line: str


@dataclass(frozen=True, slots=True)
class Made:
    """A history that is there: how it was drawn, and what is planted between its ends, in its order."""

    drawn: Drawn
    planted: tuple[Planted, ...]


@dataclass(frozen=True, slots=True)
class Histories:
    """All of them, in one repository."""

    repo: Path
    made: tuple[Made, ...]


def make(home: Path, seed: int, sources: Path = SOURCES) -> Histories:
    """Make the histories of a seed below ``home``, or find them there.

    Raises :class:`UserError` without a tarball of the version that the edits are for, or when it has not the texts that
    they replace, and :class:`bisector.core.errors.InfraError` when git fails.
    """
    drawn = draw.draw(seed, load())
    tarball = next((one for one in tarballs(sources) if number(one) == KNOWN), None)
    if tarball is None:
        raise UserError(f"no linux-source-{KNOWN}.tar.xz in {sources}", f"apt-get install linux-source-{KNOWN}")
    lender = Path(history.make(tarball, history_of(tarball, home)).repo)
    root = Repository(lender).root(history.NEW_TAG)
    texts = (path.read_bytes() for path in (*_CODE, *TABLES))
    path = home / f"histories-{seed}-{digest(root.encode(), *texts)}"
    repo = borrowing(path, [lender], lambda repository: _fill(repository, root, drawn))
    record = json.loads((repo.path / ".git" / _RECORD).read_text(encoding="utf-8"))
    planted = {name: tuple(Planted(**row) for row in found[_PLANTED]) for name, found in record.items()}
    return Histories(repo.path, tuple(Made(one, planted[one.name]) for one in drawn))


def _fill(repo: Repository, root: str, drawn: Sequence[Drawn]) -> None:
    record = {one.name: _record(one, on_top(repo, root, one.entries, one.name)) for one in drawn}
    repo.git("update-ref", f"refs/heads/{MAIN}", root)
    (repo.path / ".git" / _RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def _record(drawn: Drawn, shas: Sequence[str]) -> dict[str, Any]:
    """The answer of a history: what is planted, where, and on what it shows."""
    sha_of = dict(zip(drawn.entries, shas, strict=True))
    places = {entry: place for place, entry in enumerate(drawn.in_range, start=1)}
    planted = [
        asdict(Planted(sha_of[entry], entry.subject, change, places[entry], entry.line))
        for entry, change in zip(drawn.planted, drawn.changes, strict=True)
    ]
    ends = {"old": sha_of[drawn.entries[-len(places) - 1]], "new": shas[-1], "commits": len(places)}
    return {"setup": drawn.setup.name, "direction": drawn.direction, **ends, _PLANTED: planted}
