"""How long the processes of a run were at it, by the times of what they put on record.

Wall clocks are set: what lies between two facts is told by the clock that counts from the boot (clock_getres(2),
CLOCK_BOOTTIME), suspensions included. Wall clocks tell it of records from before that was recorded, and where the host
was booted in between.
"""

import math
from collections.abc import Collection
from datetime import datetime

from bisector.core.verdict import State
from bisector.store.database import Database, Row
from bisector.store.facts import Ending, Work


def of_processes_s(database: Database) -> float:
    """Seconds of every process, from its beginning to the end that it recorded, else to its last fact.

    Pauses between processes are none of it; what a killed one did after its last fact is not known.
    """
    with database.snapshot():
        states = database.select("states", "id")
        facts = [row for name in ("submitted", "ended") if database.has(name) for row in database.select(name)]
    begun = [n for n, row in enumerate(states) if row["state"] == State.RUNNING]
    spans = []
    for n, after in zip(begun, (*begun, len(states))[1:], strict=True):
        start, until = states[n], states[after : after + 1]
        ends = [row for row in states[n + 1 : after] if row["pid"] == start["pid"]]
        known = [row for row in facts if _between_s(start, row) >= 0 and all(_between_s(row, one) > 0 for one in until)]
        spans += [_spent_s(start, ends[-1])] if ends else [max((_spent_s(start, row) for row in known), default=0.0)]
    return math.fsum(spans)


def of_work_s(database: Database) -> float:
    """Seconds of the work that was submitted, of the host that had the most; of what was lost they are not known.

    Work of before hosts had names is everybody's.
    """
    seconds = _of_work_by_host_s(database, frozenset(Work))
    of_all = seconds.pop("", 0.0)
    return of_all + max(seconds.values(), default=0.0)


def of_builds_s(database: Database) -> float:
    """Seconds of the builds that were asked for alone, of all hosts together."""
    return math.fsum(_of_work_by_host_s(database, (Work.BUILD, Work.RECHECK)).values())


def _of_work_by_host_s(database: Database, kinds: Collection[Work]) -> dict[str, float]:
    if not database.has("submitted"):
        return {}
    with database.snapshot():
        ended = {row["submission"]: row for row in database.select("ended") if row["ending"] != Ending.LOST}
        work = [row for row in database.select("submitted") if row["work"] in kinds and row["id"] in ended]
    spent: dict[str, list[float]] = {}
    for row in work:
        spent.setdefault(row["host"], []).append(_spent_s(row, ended[row["id"]]))
    return {host: math.fsum(seconds) for host, seconds in spent.items()}


def _spent_s(begin: Row, end: Row) -> float:
    """What a wall clock that was set back tells is nothing."""
    return max(0.0, _between_s(begin, end))


def _between_s(first: Row, second: Row) -> float:
    """Negative when the second was recorded before the first."""
    boots = {row.get("boot_id") for row in (first, second)}
    if len(boots) == 1 and None not in boots:
        return float(second["since_boot_s"] - first["since_boot_s"])
    return (datetime.fromisoformat(second["at"]) - datetime.fromisoformat(first["at"])).total_seconds()
