"""How long the processes of a run were at it, by the times of what they put on record."""

import math
from collections.abc import Collection
from datetime import datetime

from bisector.core.verdict import State
from bisector.store.database import Database, Row
from bisector.store.facts import Ending, Work


def of_processes_s(database: Database) -> float:
    """Wall seconds of every process, from its beginning to the end that it recorded, else to its last fact.

    Pauses between processes are none of it; what a killed one did after its last fact is not known.
    """
    with database.snapshot():
        states = database.select("states", "id")
        facts = [row for name in ("submitted", "ended") if database.has(name) for row in database.select(name)]
    times = sorted(map(_at, facts))
    begun = [n for n, row in enumerate(states) if row["state"] == State.RUNNING]
    spans = []
    for n, after in zip(begun, (*begun, len(states))[1:], strict=True):
        start = _at(states[n])
        ends = [_at(row) for row in states[n + 1 : after] if row["pid"] == states[n]["pid"]]
        until = _at(states[after]) if after < len(states) else None
        known = [at for at in times if start <= at and (until is None or at < until)]
        spans.append(((ends or known or [start])[-1] - start).total_seconds())
    return math.fsum(spans)


def of_work_s(database: Database) -> float:
    """Wall seconds of the work that was submitted, of the host that had the most; of what was lost they are not known.

    Work of before hosts had names is everybody's.
    """
    seconds = _of_work_by_host_s(database, frozenset(Work))
    of_all = seconds.pop("", 0.0)
    return of_all + max(seconds.values(), default=0.0)


def of_builds_s(database: Database) -> float:
    """Wall seconds of the builds that were asked for alone, of all hosts together."""
    return math.fsum(_of_work_by_host_s(database, (Work.BUILD, Work.RECHECK)).values())


def _of_work_by_host_s(database: Database, kinds: Collection[Work]) -> dict[str, float]:
    if not database.has("submitted"):
        return {}
    with database.snapshot():
        ended = {row["submission"]: row for row in database.select("ended") if row["ending"] != Ending.LOST}
        work = [row for row in database.select("submitted") if row["work"] in kinds and row["id"] in ended]
    spent: dict[str, list[float]] = {}
    for row in work:
        spent.setdefault(row["host"], []).append((_at(ended[row["id"]]) - _at(row)).total_seconds())
    return {host: math.fsum(seconds) for host, seconds in spent.items()}


def _at(row: Row) -> datetime:
    return datetime.fromisoformat(row["at"])
