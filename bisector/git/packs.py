"""Packs of one commit each, for a mirror that has some others: what the coordinator sends (:mod:`bisector.git.mirror`).

They are made as git makes them for a shallow clone (git-pack-objects(1), ``--shallow``): each commit that is named is
told to have no parents, so that neither end's history is walked, and of the trees that the mirror has nothing is sent
but deltas against it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bisector.git.repository import Repository

_NEAREST = 8  # each tree is walked, and the next one has nearly the same files
_FARTHEST = 1 << 17  # mainline has 90,000 commits along first parents
_PACK_S = 3600.0


def pack(repository: Repository, sha: str, at_other_end: Sequence[str], file: Path) -> None:
    """Write what a mirror lacks of a commit, given commits that it has whole.

    Raises :class:`bisector.core.errors.InfraError` where git cannot.
    """
    words = ("pack-objects", "--revs", "--thin", "--shallow", "--stdout", "--delta-base-offset", "--quiet")
    lines = [*(f"--shallow {one}" for one in (sha, *at_other_end)), sha, *(f"^{one}" for one in at_other_end)]
    stdin = "".join(f"{line}\n" for line in lines)
    repository.git(*words, at=repository.top, stdin=stdin, deadline_s=_PACK_S, into=file)


def nearest(repository: Repository, sha: str, others: Iterable[str]) -> tuple[str, ...]:
    """Of some commits those that are in this repository, too, and were made nearest to that one in time."""
    asked = tuple(dict.fromkeys(others))
    answer = repository.ask("cat-file", "--batch-check", stdin="".join(f"{one}\n" for one in asked))
    here = [one for one, line in zip(asked, answer.lines, strict=True) if line.startswith(f"{one} commit ")]
    words = ("log", "--no-walk=unsorted", "--no-show-signature", "--format=%H %ct", "--stdin")
    lines = repository.ask(*words, stdin="".join(f"{one}\n" for one in (sha, *here))).lines
    # A commit may have no date that is a number, and is then as good as any.
    made_s = {one: int(at) if at.isdecimal() else 0 for one, _, at in (line.partition(" ") for line in lines)}
    return tuple(sorted(here, key=lambda one: abs(made_s[one] - made_s[sha]))[:_NEAREST])


def ancestors(repository: Repository, sha: str) -> tuple[str, ...]:
    """Some ancestors along first parents, ever farther apart: a clone somewhere has one of them, most likely."""
    line = repository.ask("rev-list", "--first-parent", f"--max-count={_FARTHEST}", sha).lines
    return tuple(line[1 << power] for power in range((len(line) - 1).bit_length()) if 1 << power < len(line))
