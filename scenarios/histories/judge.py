"""What bisector said of a history, held against what was planted in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from scenarios.histories.make import Made, Planted

# In the sentence of bisector.analysis.levels.EndsAreTheSame for ends that are, in none for ends too noisy to tell.
_SAME = "the same within"
_SHORT = 12

Status = Mapping[str, Any]


class Word(StrEnum):
    """How an answer is.

    Narrowed is a set of commits that has the right one. A run without an answer ended and said that it cannot tell; a
    missing one has not ended.
    """

    RIGHT = "right"
    NARROWED = "narrowed"
    WRONG = "wrong"
    WITHOUT = "without an answer"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Judged:
    """A word, what was answered, and why the word is not "right"; empty where it is."""

    word: Word
    answer: str
    why: str = ""


def judged(made: Made, status: Status | None) -> Judged:
    """The judgement of what ``status --json`` printed; None is a history that was not begun."""
    if status is None:
        return Judged(Word.MISSING, "", "it was not run")
    state = str(status["state"])
    judge = _BY_STATE.get(state)
    if judge is None:
        return Judged(Word.MISSING, state, str(status["message"]))
    return judge(made, status)


def _found(made: Made, status: Status) -> Judged:
    found = status["first_fixed"]
    answer = _named(found["sha"], found["subject"])
    if not made.planted:
        return Judged(Word.WRONG, answer, "nothing is planted between the ends")
    *others, wanted = made.planted
    if found["sha"] != wanted.sha:
        return Judged(Word.WRONG, answer, f"it is {_named(wanted.sha, wanted.subject)}{_of_two(others)}")
    if others and not status["other_steps"]:
        return Judged(Word.WRONG, answer, "there is another change, and nothing was said of it")
    hint = ", and a hint of the other change" if others else ""
    return Judged(Word.RIGHT, f"{answer}{hint}")


def _narrowed(made: Made, status: Status) -> Judged:
    candidates: Sequence[str] = [one["sha"] for one in status["candidates"]]
    if status["no_change"]:
        return _unchanged(made, status, "nothing changed")
    if status["one_change"] is False:
        word = Word.RIGHT if len(made.planted) > 1 else Word.WRONG
        return Judged(word, "not one change", "" if word is Word.RIGHT else f"planted: {len(made.planted)}")
    answer = f"one of {len(candidates)} commits"
    if not made.planted:
        return Judged(Word.WRONG, answer, "nothing is planted between the ends")
    wanted = made.planted[-1]
    if wanted.sha in candidates:
        return Judged(Word.NARROWED, answer, str(status["message"]))
    return Judged(Word.WRONG, answer, f"{_named(wanted.sha, wanted.subject)} is not among them")


def _failed(made: Made, status: Status) -> Judged:
    """The ends were not told apart; right where they are known to be the same, and nothing is planted."""
    if _SAME in status["message"]:
        return _unchanged(made, status, "the ends do not differ")
    return Judged(Word.WITHOUT, "", str(status["message"]))


def _unchanged(made: Made, status: Status, answer: str) -> Judged:
    return Judged(Word.WRONG, answer, str(status["message"])) if made.planted else Judged(Word.RIGHT, answer)


def _of_two(others: Sequence[Planted]) -> str:
    return ", the change beside the new end's level" if others else ""


def _named(sha: str, subject: str) -> str:
    return f'{sha[:_SHORT]} ("{subject}")'


_BY_STATE: Mapping[str, Callable[[Made, Status], Judged]] = {
    "found": _found, "narrowed": _narrowed, "failed": _failed,
}  # fmt: skip
