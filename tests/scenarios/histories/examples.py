"""Histories without a repository, and what bisector prints of them."""

from collections.abc import Iterable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from bisector.analysis.levels import EndsAreTheSame, MeasuredEnds, told_apart
from bisector.core.objective import Objective
from bisector.core.verdict import SideWords
from bisector.search.effect import PairsRule
from scenarios.histories.draw import Drawn, draw
from scenarios.histories.make import Histories, Made, Planted
from scenarios.histories.pool import load

SEED = 3
SAME, NOISY = (1000.0, 1001.0, 1002.0, 1000.0), (1000.0, 1100.0, 1150.0, 950.0)
DRAWN = draw(SEED, load())


def made(drawn: Drawn) -> Made:
    """A history whose planted commits have the hashes 111… and 222…."""
    planted = (
        Planted(str(place) * 40, entry.subject, change, place, entry.line)
        for place, (entry, change) in enumerate(zip(drawn.planted, drawn.changes, strict=True), start=1)
    )
    return Made(drawn, tuple(planted))


HISTORIES = Histories(Path("/linux"), tuple(map(made, DRAWN)))
SINGLE, TWO, NOTHING = (
    next(one for one in HISTORIES.made if len(one.planted) == count) for count in (1, 2, 0)
)  # fmt: skip


def status(state: str, candidates: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    """As much of what ``status --json`` prints as is read; of ``candidates`` the hashes."""
    return {
        "state": state, "message": "a sentence", "first_fixed": None,
        "candidates": [{"sha": sha} for sha in candidates], "one_change": True,
        "no_change": False, "other_steps": [], "probability": 0.997, "evaluations": 9, "skipped": 1, **more,
    }  # fmt: skip


def found(sha: str, **more: Any) -> dict[str, Any]:
    """A commit that was named."""
    return status("found", first_fixed={"sha": sha, "subject": "a subject"}, candidates=[sha], **more)


def ends(*values: float) -> dict[str, Any]:
    """Of ends that were read in turn, the old one first, and not told apart: what is said of them."""
    objective = Objective()
    scores = list(zip(chain.from_iterable(repeat((False, True))), map(objective.score, values), strict=False))
    both = MeasuredEnds(scores[0][1], scores[1][1], objective, None, SideWords())
    with pytest.raises(EndsAreTheSame) as told:
        told_apart(both, scores, PairsRule(0.05, len(values) // 2))
    return status("failed", message=str(told.value), probability=None)


def right(one: Made) -> dict[str, Any]:
    """What is printed of an answer that is right."""
    if not one.planted:
        return ends(*SAME)
    return found(one.planted[-1].sha, other_steps=[300.0] if len(one.planted) > 1 else [])
