"""Histories without a repository, and what bisector prints of them."""

from pathlib import Path
from typing import Any

from tests.histories.draw import Drawn, draw
from tests.histories.make import Histories, Made, Planted
from tests.histories.pool import load

SEED = 3
OLD, NEW = "0" * 40, "f" * 40
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


def status(state: str, **more: Any) -> dict[str, Any]:
    """As much of what ``status --json`` prints as is read, of ends that are a factor of 10 apart."""
    trials = [{"sha": OLD, "value": 1000.0}, {"sha": NEW, "value": 100.0}, {"sha": "1" * 40, "value": None}]
    return {
        "state": state, "message": "a sentence", "first_fixed": None, "candidates": [], "one_change": True,
        "other_steps": [], "old": {"sha": OLD}, "new": {"sha": NEW}, "trials": trials, "probability": 0.997,
        "evaluations": 9, "skipped": 1, **more,
    }  # fmt: skip


def found(sha: str, **more: Any) -> dict[str, Any]:
    """A commit that was named."""
    return status("found", first_fixed={"sha": sha, "subject": "a subject"}, candidates=[sha], **more)


def right(one: Made) -> dict[str, Any]:
    """What is printed of an answer that is right."""
    if not one.planted:
        return status("failed", trials=[{"sha": OLD, "value": 1000.0}, {"sha": NEW, "value": 950.0}], probability=None)
    return found(one.planted[-1].sha, other_steps=[300.0] if len(one.planted) > 1 else [])
