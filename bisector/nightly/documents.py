"""The documents that ``bisector history`` and ``bisector nightly`` print with ``--json``."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from bisector.analysis.changes import ALPHA, LevelChange
from bisector.core.json_document import ABSENT, Absent, JsonObject
from bisector.core.json_keys import SCHEMA
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.nightly.job_history import JobNight, Reference, TipResult
from bisector.nightly.trend import Point, Trend
from bisector.store.nights import JobTrouble, Night, NightEnding

TEST = "circular binary segmentation on ranks; p from random orders"


class NightFigure(JsonObject, frozen=True, kw_only=True):
    """A value of the last trial of a night."""

    run: Annotated[str, "name of the run's phase"]
    name: Annotated[str | None, "job; `null` for what is of the run as a whole"]
    metric: Annotated[str, "the [metric](metrics.md)"]
    value: Annotated[float, "in the unit of the metric"]


class NightBisection(JsonObject, frozen=True, kw_only=True):
    """A bisection that a night began or continued."""

    run_dir: Annotated[Path, "run directory"]
    state: Annotated[State, "how it stands"]
    message: Annotated[str, "one sentence; empty until it ends"]
    first_new: Annotated[str | None, "hash of the first commit on the new side, if it was found"]


class ShownNight(JsonObject, frozen=True, kw_only=True, rename={"result": "class"}):
    """A job in a night."""

    name: Annotated[str | Absent, "name of the job; absent in `bisector history`, where the job has it"] = ABSENT
    night: Annotated[int, "number of the night, from 1"]
    started_at: Annotated[str, "time at which the night began"]
    tip: Annotated[Commit | None, "commit that the branch was at; `null` where it was not fetched"]
    objective: Annotated[Objective | None, "what decides; `null` where nothing was measured"]
    value: Annotated[float | None, "value of the last run by the `objective`, or `null`"]
    jobs: Annotated[tuple[NightFigure, ...], "all values that were measured"]
    host: Annotated[str | None, "host that measured"]
    era: Annotated[str | None, "digest of the era of that host; `null` where that is not known"]
    result: Annotated[TipResult | None, "how the tip compares with `compared_with`; `null` where nothing was measured"]
    compared_with: Annotated[Reference | None, "commit that the tip was compared with"]
    level_change: Annotated[LevelChange | None, "change of level that begins with this night"]
    bisection: Annotated[NightBisection | None, "bisection of the night, if there was one"]
    trouble: Annotated[JobTrouble | None, "why the job was not done, if it was not"]
    told: Annotated[tuple[str, ...], "outcomes of its letters"]
    done: Annotated[bool, "whether all that was to be done was done"]


class ChangeTest(JsonObject, frozen=True, kw_only=True):
    """The test that finds changes of level."""

    name: Annotated[str, "name of the test"] = TEST
    false_alarm_rate: Annotated[float, "probability of a change found in a history without one, at most"] = ALPHA


class JobNights(JsonObject, frozen=True, kw_only=True):
    """A job's nights."""

    name: Annotated[str, "name of the job"]
    nights: Annotated[tuple[ShownNight, ...], "oldest first"]


class History(JsonObject, frozen=True, kw_only=True):
    """The document that ``bisector history --json`` prints."""

    schema: Annotated[Literal[2], SCHEMA] = 2
    test: Annotated[ChangeTest, "how changes of level are found"] = ChangeTest()
    jobs: Annotated[tuple[JobNights, ...], "in the order of their names"]

    @classmethod
    def of(cls, shown: Iterable[Trend], nights: Sequence[Night]) -> "History":
        """The document for the trends of these nights."""
        by_n = {night.n: night for night in nights}
        jobs = (
            JobNights(name=trend.job, nights=tuple(_shown(point, by_n[point.night.night]) for point in trend.points))
            for trend in shown
        )
        return cls(jobs=tuple(jobs))


class OneNight(JsonObject, frozen=True, kw_only=True):
    """The document that ``bisector nightly --json`` prints."""

    schema: Annotated[Literal[2], SCHEMA] = 2
    night: Annotated[int, "number of the night, from 1"]
    started_at: Annotated[str, "time"]
    ended_at: Annotated[str | None, "time"]
    ending: Annotated[NightEnding | None, "how it ended"]
    budget_s: Annotated[float, "seconds that the night has"]
    jobs: Annotated[tuple[ShownNight, ...], "in the order of their names"]

    @classmethod
    def of(cls, shown: Iterable[Trend], night: Night) -> "OneNight":
        """The document for this night, with what became of each job."""
        jobs = (
            _shown(point, night, trend.job) for trend in shown for point in trend.points if point.night.night == night.n
        )
        return cls(
            night=night.n,
            started_at=night.started_at,
            ended_at=night.ended_at,
            ending=night.ending,
            budget_s=night.budget_s,
            jobs=tuple(jobs),
        )


def _shown(point: Point, night: Night, name: str | Absent = ABSENT) -> ShownNight:
    one, measured, tip = point.night, point.night.measured, point.night.tip
    return ShownNight(
        name=name,
        night=night.n,
        started_at=night.started_at,
        tip=Commit(tip.sha, "", clean(tip.subject), tip.committed_at) if tip else None,
        objective=measured.objective if measured else None,
        value=measured.value if measured else None,
        jobs=tuple(_figures(one.trial, measured.objective)) if measured and one.trial else (),
        host=measured.host if measured else None,
        era=(measured.era or None) if measured else None,
        result=one.result,
        compared_with=one.reference,
        level_change=point.change,
        bisection=_bisection(one),
        trouble=one.trouble,
        told=tuple(letter.outcome for letter in one.letters),
        done=one.done,
    )


def _figures(trial: Trial, objective: Objective) -> Iterator[NightFigure]:
    for run in trial.runs:
        for one in objective.of_jobs(run):
            yield NightFigure(run=run.name, name=one.job or None, metric=one.name, value=one.value)


def _bisection(one: JobNight) -> NightBisection | None:
    if one.concluded:
        last = one.concluded[-1]
        return NightBisection(
            run_dir=last.run_dir, state=last.state, message=last.message, first_new=last.first_sha or None
        )
    if one.begun:
        return NightBisection(run_dir=one.begun.run_dir, state=State.STOPPED, message="", first_new=None)
    return None
