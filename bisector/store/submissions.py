"""What was given to an executor, and how it ended."""

from bisector.store.database import Database
from bisector.store.facts import Ending, InFlight, Submitted
from bisector.store.rows import build


def hosts(database: Database) -> frozenset[str]:
    """The names of the hosts that anything was submitted to; empty where the executor was to choose."""
    return frozenset(row["host"] for row in database.select("submitted")) if database.has("submitted") else frozenset()


def that_ended(database: Database, ending: Ending | None) -> tuple[InFlight, ...]:
    """Those that ended so, or that have not ended, oldest first."""
    if not database.has("submitted"):
        return ()
    with database.snapshot():
        ended = {row["submission"]: row["ending"] for row in database.select("ended")}
        rows = [row for row in database.select("submitted", "id") if ended.get(row["id"]) == ending]
    return tuple(InFlight(row["id"], build(Submitted, row)) for row in rows)


def processes(database: Database) -> dict[int, tuple[int, int]]:
    """By which process each trial was submitted, and by which its end was recorded, by the trial's number."""
    if not database.has("submitted"):
        return {}
    with database.snapshot():
        ended = {row["submission"]: row.get("process", 0) for row in database.select("ended")}
        rows = [row for row in database.select("submitted", "id") if row["id"] in ended and row["n"] is not None]
    return {row["n"]: (row.get("process", 0), ended[row["id"]]) for row in rows}


def silent(database: Database) -> tuple[InFlight, ...]:
    """Those of which nothing was heard in time, and of which no trial came since."""
    found = that_ended(database, Ending.SILENT)
    known = {row["n"] for row in database.select("trials")} if found else set()
    return tuple(one for one in found if one.submitted.n not in known)
