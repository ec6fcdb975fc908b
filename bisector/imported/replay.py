"""What the verdicts on imported trials amount to, in the history of a repository."""

from bisector.analysis.judgement import Numbered
from bisector.analysis.verdicts import Judging
from bisector.core.errors import BisectorError
from bisector.core.subject import Commit
from bisector.core.verdict import State, Terms, Verdict
from bisector.git.repository import Repository
from bisector.store.rows import BisectionRow

_NO_HISTORY = "no repository says which of these commits came first: bisector import --repo DIRECTORY"


def ends(asked: BisectionRow, trials: tuple[Numbered, ...]) -> tuple[str, str]:
    """The hashes of the old and the new end: as they were given, else the first of each side by its people's words.

    One whose commit is known comes first; empty where nobody said anything.
    """
    found = []
    for given, side in ((asked.old_sha, Verdict.OLD), (asked.new_sha, Verdict.NEW)):
        said = [trial.commit for _, trial in trials if trial.origin is not None and trial.origin.verdict is side]
        first = sorted(said, key=lambda commit: not commit.tree)[:1] if asked.repository else said[:1]
        found.append(given or next((commit.sha for commit in first), ""))
    return found[0], found[1]


def outcome(asked: BisectionRow, judging: Judging) -> tuple[State, str, tuple[Commit, ...]]:
    """How it stands, a sentence, and what the first new commit can be by the verdicts that bisector derived."""
    terms = judging.terms
    if asked.repository is None:
        return State.IMPORTED, _NO_HISTORY, ()
    sides: dict[Verdict, list[str]] = {Verdict.OLD: [], Verdict.NEW: []}
    for commit in dict.fromkeys(trial.commit for _, trial in judging.trials if trial.commit.tree):
        judgement = judging.judge(commit.sha)
        if judgement is not None and judgement.verdict in sides:
            sides[judgement.verdict].append(commit.sha)
    missing = [terms.word(side) for side, shas in sides.items() if not shas]
    if missing:
        return State.IMPORTED, f"no commit of the repository is {' or '.join(missing)}", ()
    try:
        with Repository.open(asked.repository) as repository:
            left = repository.between(sides[Verdict.OLD], sides[Verdict.NEW])
    except BisectorError as error:
        return State.IMPORTED, f"the repository does not answer: {error}", ()
    return _narrowed(left, terms)


def _narrowed(left: tuple[Commit, ...], terms: Terms) -> tuple[State, str, tuple[Commit, ...]]:
    if not left:
        return State.IMPORTED, f"the verdicts contradict each other: no commit can be the first {terms.new} one", ()
    if len(left) == 1:
        return State.FOUND, f"{left[0].short} is the first {terms.new} commit: {left[0].subject}", left
    return State.NARROWED, f"one of {len(left)} commits, which nobody measured but for one", left
