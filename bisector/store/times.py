"""How long the processes of a run were at it, by the times of what they put on record.

Wall clocks are set: what lies between two facts is told by the clock that counts from the boot (clock_getres(2),
CLOCK_BOOTTIME), suspensions included. Wall clocks tell it of records from before that was recorded, and where the host
was booted in between.
"""

import math
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TypeAlias

from bisector.core.verdict import State
from bisector.store.database import Database, Row
from bisector.store.facts import Ending, Work

_Span: TypeAlias = tuple[Row, Row]


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

    Seconds in which a host had several jobs count once. Work of before hosts had names is everybody's.
    """
    spans = _work_by_host(database, frozenset(Work))
    seconds = {host: _of_any_s(sorted(of_host, key=lambda span: span[0]["id"])) for host, of_host in spans.items()}
    of_all = seconds.pop("", 0.0)
    return of_all + max(seconds.values(), default=0.0)


def of_builds_s(database: Database) -> float:
    """Seconds of the builds that were asked for alone, of all hosts together."""
    spans = _work_by_host(database, (Work.BUILD, Work.RECHECK)).values()
    return math.fsum(_spent_s(*span) for of_host in spans for span in of_host)


def _work_by_host(database: Database, kinds: Collection[Work]) -> dict[str, list[_Span]]:
    """When each work began and ended, by host."""
    if not database.has("submitted"):
        return {}
    with database.snapshot():
        ended = {row["submission"]: row for row in database.select("ended") if row["ending"] != Ending.LOST}
        work = [row for row in database.select("submitted") if row["work"] in kinds and row["id"] in ended]
    found: dict[str, list[_Span]] = {}
    for row in work:
        found.setdefault(row["host"], []).append((row, ended[row["id"]]))
    return found


def _of_any_s(spans: Sequence[_Span]) -> float:
    """Seconds of all spans, in the order in which they began; those in which there are several once."""
    total_s, last = 0.0, None
    for begin, end in spans:
        before_s = 0.0 if last is None else max(0.0, _between_s(begin, last))  # until the latest end so far
        total_s += max(0.0, _spent_s(begin, end) - before_s)
        last = end if last is None or _between_s(last, end) > 0 else last
    return total_s


def _spent_s(begin: Row, end: Row) -> float:
    """What a wall clock that was set back tells is nothing."""
    return max(0.0, _between_s(begin, end))


def _between_s(first: Row, second: Row) -> float:
    """Negative when the second was recorded before the first."""
    boots = {row.get("boot_id") for row in (first, second)}
    if len(boots) == 1 and None not in boots:
        return float(second["since_boot_s"] - first["since_boot_s"])
    return (datetime.fromisoformat(second["at"]) - datetime.fromisoformat(first["at"])).total_seconds()
