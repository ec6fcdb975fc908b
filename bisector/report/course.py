"""The progress of a bisection: events folded into one frozen state, and that state as lines.

Pure: times are passed as arguments, so that a recorded list of events always gives the same picture.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from rich.text import Text

from bisector.analysis.judgement import judged_run
from bisector.core import units
from bisector.core.events import (
    BuildEnded,
    BuildStarted,
    Event,
    LiveSample,
    OnHost,
    Planned,
    StageStarted,
    TrialJudged,
)
from bisector.core.trial import Stage
from bisector.report.blocks import Column, Fact, FactList, Role, Row, Table, verdict_role
from bisector.report.figures import figures
from bisector.report.terminal import block_lines, styled

_INDENT = "  "
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR_WIDTH = 40
_VERDICTS_SHOWN = 8
_ENDLESS = 10_000


@dataclass(frozen=True, slots=True)
class CourseSoFar:
    """The state after the last event; all times are seconds of one monotonic clock.

    ``passed`` has the finished stages of the running trial, with their seconds. If several ``hosts`` share the search,
    each has a course of its own, which may be a build without a trial.
    """

    plan: Planned | None = None
    build: BuildStarted | None = None
    planned_at_s: float = 0.0
    stage: Stage | None = None
    detail: str = ""
    stage_at_s: float = 0.0
    passed: tuple[tuple[Stage, float], ...] = ()
    sample: LiveSample | None = None
    judged: tuple[TrialJudged, ...] = ()
    hosts: Mapping[str, "CourseSoFar"] = field(default_factory=dict)

    def after(self, event: Event, now_s: float) -> "CourseSoFar":
        """The course after one more event."""
        made = self
        match event:
            case Planned():
                made = CourseSoFar(event, None, now_s, judged=self.judged, hosts=self.hosts)
            case BuildStarted():
                made = CourseSoFar(None, event, now_s, judged=self.judged, hosts=self.hosts)
            case BuildEnded():
                made = CourseSoFar(judged=self.judged, hosts=self.hosts)
            case StageStarted(stage=stage) if stage is self.stage:
                # A new detail of the same stage (say, its second run) does not restart the stage's clock.
                made = replace(self, detail=event.detail, sample=None)
            case StageStarted(stage=stage):
                over = () if self.stage is None else ((self.stage, now_s - self.stage_at_s),)
                passed = (*self.passed, *over)
                made = replace(self, stage=stage, detail=event.detail, stage_at_s=now_s, passed=passed, sample=None)
            case LiveSample():
                made = replace(self, sample=event)
            case TrialJudged():
                made = self._judged(event)
            case OnHost(host=host, event=one):
                there = self.hosts.get(host, CourseSoFar()).after(one, now_s)
                made = replace(self, hosts={**self.hosts, host: there})
        return made

    def _judged(self, event: TrialJudged) -> "CourseSoFar":
        later = tuple(one for one in self.judged if one.n > event.n)
        judged = (*(one for one in self.judged if one.n < event.n), event, *later)
        if later and not self.hosts:  # an end, judged anew with the threshold while another trial runs
            return replace(self, judged=judged)
        hosts = {
            name: CourseSoFar() if one.plan is not None and one.plan.n == event.n else one
            for name, one in self.hosts.items()
        }
        return CourseSoFar(judged=judged, hosts=hosts)

    def remaining_s(self, now_s: float) -> float | None:
        """The expected seconds until the end: the mean of finished trials times the steps left; None if not known yet.

        The planned trial is one of the steps left; the time that it has used already is subtracted.
        """
        if self.plan is None or self.plan.steps_left < 1 or not self.judged:
            return None
        mean_s = math.fsum(event.trial.timings.total_s for event in self.judged) / len(self.judged)
        current_s = max(0.0, mean_s - (now_s - self.planned_at_s))
        return current_s + mean_s * (self.plan.steps_left - 1)


def plan_text(plan: Planned) -> str:
    """Why this commit is tried, and how much is left."""
    if plan.probability is None:
        left = units.plural(plan.candidates_left, "candidate") if plan.candidates_left else ""
    else:
        left = f"likeliest {units.share(plan.probability)}, 99 % in {units.plural(plan.candidates_left, 'commit')}"
    steps = f"about {units.plural(plan.steps_left, 'step')} left" if plan.steps_left else ""
    return ", ".join(filter(None, (plan.purpose, left, steps)))


def expectation(course: CourseSoFar, now_s: float, wall: datetime) -> str:
    """The expected end of the bisection, or that it is not known yet."""
    remaining = course.remaining_s(now_s)
    if remaining is None:
        return "not known before a trial is done" if not course.judged else "not known yet"
    remaining = max(60.0, round(remaining / 60) * 60)
    end = wall + timedelta(seconds=remaining)
    day = "" if end.date() == wall.date() else f"{end:%a} "
    return f"about {day}{end:%H:%M}, in {units.duration(remaining)}"


def live_lines(course: CourseSoFar, now_s: float, wall: datetime, width: int, height: int) -> list[Text]:
    """The live picture: the trial, its stage, the current run and the verdicts so far."""
    if course.hosts:
        does, n = Column("does", verdict=True), Column("n", figures=True)
        rows = (_host_row(name, one, now_s) for name, one in course.hosts.items())
        shown = block_lines(Table((Column("host"), does, n, Column("commit"), Column("why")), tuple(rows)))
    else:
        shown = _trial_lines(course, now_s, wall)
    if (verdicts := _verdict_table(course, height - len(shown) - 4)) is not None:
        shown += [Text(), *block_lines(verdicts, table_width=width - len(_INDENT))]
    lines = [Text.assemble(_INDENT, line) for line in shown]
    for line in lines:
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
    return [Text(), *lines]


def _trial_lines(course: CourseSoFar, now_s: float, wall: datetime) -> list[Text]:
    if (plan := course.plan) is None:  # a kernel may be built all the same
        lines = [styled("choosing the next commit" if course.judged else "preparing", Role.DIM), Text()]
    else:
        facts = (
            Fact(f"trial {plan.n}", (f"{plan.commit.short} {plan.commit.subject}",), Role.STRONG),
            Fact("aim", (plan_text(plan),), Role.DIM),
            Fact("end", (expectation(course, now_s, wall),), Role.DIM),
        )
        lines = [*block_lines(FactList(facts), _ENDLESS), Text()]
    if course.stage is None:
        return lines
    if course.passed:
        done = "  ".join(f"{stage} {units.duration(took_s)}" for stage, took_s in course.passed)
        lines.append(styled(done, Role.DIM))
    spinner = _SPINNER[int(now_s * 2) % len(_SPINNER)]
    stage, detail = styled(f"{spinner} {course.stage}  ", Role.ACTIVE), styled(f"  {course.detail}", Role.DIM)
    lines.append(Text.assemble(stage, units.clock(now_s - course.stage_at_s), detail))
    if course.sample is not None:
        share, rate = _progress(course.sample)
        filled = round(share * _BAR_WIDTH)
        bar = styled("━" * filled, Role.ACTIVE), styled("─" * (_BAR_WIDTH - filled), Role.DIM)
        lines.append(Text.assemble(*bar, styled(f" {share:4.0%}  {rate:>14}  {course.sample.run}")))
    return lines


def _host_row(name: str, course: CourseSoFar, now_s: float) -> Row:
    """The row of one of several hosts: its stage and clock, or its current run, with the trial and the commit."""
    if course.plan is not None:
        number, commit, purpose = str(course.plan.n), course.plan.commit, course.plan.purpose
    elif course.build is not None:
        number, commit, purpose = "-", course.build.commit, f"builds {course.build.purpose}"
    else:
        return Row((name, "idle", "", "", ""), role=Role.DIM)
    stage = f"{course.stage or 'waiting'} {units.clock(now_s - (course.stage_at_s or course.planned_at_s))}"
    if course.sample is not None:
        share, rate = _progress(course.sample)
        stage = f"{course.sample.run} {share:.0%}  {rate}"
    return Row((name, stage, number, commit.short, purpose or commit.subject), role=Role.ACTIVE)


def _progress(sample: LiveSample) -> tuple[float, str]:
    """The finished share of a run and its rate; for NaN, max() returns its first argument, 0.0."""
    rate = sample.unit.text(sample.rate) if math.isfinite(sample.rate) else f"{units.UNKNOWN} {sample.unit}"
    return min(1.0, max(0.0, sample.done_share)), rate


def _verdict_table(course: CourseSoFar, room: int) -> Table | None:
    """The last verdicts that fit in ``room`` lines below the heading, with a line for those left out."""
    count = min(room, _VERDICTS_SHOWN)
    if not course.judged or count < 1:
        return None
    left_out = len(course.judged) - count
    shown = course.judged if left_out <= 0 else course.judged[-count + 1 :] if count > 1 else ()
    rows = [Row(("…", units.plural(left_out + 1, "earlier trial"), "", "", "", ""))] if left_out > 0 else []
    for event in shown:
        trial = event.trial
        found = figures(judged_run(trial), event.objective) if trial.runs else None
        values, took = found.range_text if found else units.UNKNOWN, units.duration(trial.timings.total_s)
        cells = (str(event.n), trial.commit.short, event.word, values, took, trial.commit.subject)
        rows.append(Row(cells, role=verdict_role(event.verdict, event.direction)))
    what = Column(course.judged[-1].objective.heading, figures=True)
    first = (Column("n", figures=True), Column("commit"), Column("verdict", verdict=True))
    return Table((*first, what, Column("took", figures=True), Column("")), tuple(rows))
