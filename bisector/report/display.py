"""The displays of a running bisection: one interface, and an implementation for each kind of output.

A terminal gets a live picture, logs and pipes a line for each event, and a quiet run the answer alone. The live display
only folds an event into its state in the bisection's thread; a thread of rich paints that state twice a second. State
and picture are pure: times are passed as arguments, so that a recorded list of events always gives the same picture.
The picture has left the screen without a trace when the report is printed.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Self, TextIO, cast

from rich.live import Live
from rich.text import Text

from bisector.analysis.judgement import judged_run
from bisector.core import units
from bisector.core.events import (
    BuildEnded,
    BuildStarted,
    Event,
    LiveSample,
    Note,
    OnHost,
    Planned,
    StageStarted,
    TrialJudged,
)
from bisector.core.printable import LastingStream, clean, hangup_ignored
from bisector.core.trial import Stage
from bisector.report.blocks import Column, Fact, FactList, Role, Row, Table, verdict_role
from bisector.report.sections import answer, footer
from bisector.report.table import figures, run_blocks, values_text
from bisector.report.terminal import as_text, block_lines, console, lines_of, styled
from bisector.status.view import BisectionView

_INDENT = "  "
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR_WIDTH = 40
_VERDICTS_SHOWN = 8
_ENDLESS = 10_000
_PLAIN_WIDTH = 80
_REFRESHES_PER_SECOND = 2


# The progress, folded into one state, and its picture


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
    whole = len(course.judged)
    earlier = 0 if whole <= count else whole - count + 1
    rows = [Row(("…", units.plural(earlier, "earlier trial"), "", "", "", ""))] if earlier else []
    for event in course.judged[earlier:]:
        trial = event.trial
        values = figures(judged_run(trial), event.objective) if trial.runs else units.UNKNOWN
        took = units.duration(trial.timings.total_s)
        cells = (str(event.n), trial.commit.short, event.word, values, took, trial.commit.subject)
        rows.append(Row(cells, role=verdict_role(event.verdict, event.direction)))
    what = Column(course.judged[-1].objective.heading, figures=True)
    first = (Column("n", figures=True), Column("commit"), Column("verdict", verdict=True))
    return Table((*first, what, Column("took", figures=True), Column("")), tuple(rows))


# The displays


class Display:
    """A listener to events while it is entered; it returns nothing and never fails, even if its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = LastingStream(stream)
        self._screen: AbstractContextManager[object] = nullcontext()
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(hangup_ignored())
            stack.enter_context(self._screen)
            self._exits = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def __call__(self, event: Event, /) -> None:
        """Take one event."""

    def conclude(self, view: BisectionView) -> None:
        """Show the end: the table and the answer, or as much of them as this display shows."""
        self._stream.write(as_text([Text(), *report_lines(view, _width())]))


def display_for(stream: TextIO, *, quiet: bool = False) -> Display:
    """A live display on a terminal that can move its cursor, else plain lines; the answer alone if ``quiet``."""
    if quiet:
        return Quiet(stream)
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveProgress(stream)
    return PlainLines(stream)


def report_lines(view: BisectionView, width: int) -> list[Text]:
    """The table, the facts and the answer."""
    return lines_of((*run_blocks(view), *footer(view)), width)


class LiveProgress(Display):
    """The live display on a terminal."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._console = console(cast(TextIO, self._stream))  # rich's type asks for all of IO[str]
        self._course = CourseSoFar()
        self._clock = clock
        self._screen = self._live = Live(
            get_renderable=lambda: Text("\n").join(self._picture()),
            console=self._console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
        )

    def __call__(self, event: Event, /) -> None:
        """Fold one event into the state; a note is printed above the picture and stays."""
        self._course = self._course.after(event, self._clock())
        said = event.event if isinstance(event, OnHost) else event
        if isinstance(said, Note) and not self._stream.lost:
            self._console.print(styled(f"  {event_text(event)}"), soft_wrap=True)

    def conclude(self, view: BisectionView) -> None:
        """Remove the picture, then show the table and the facts in colours."""
        self._live.stop()
        lines = Text("\n").join(report_lines(view, self._console.width))
        self._console.print(Text("\n") + lines, soft_wrap=True)

    def _picture(self) -> list[Text]:
        width, height = self._console.size
        wall = datetime.now().astimezone()
        return [] if self._stream.lost else live_lines(self._course, self._clock(), wall, width, height)


class Quiet(Display):
    """A display that shows nothing but the answer at the end."""

    def conclude(self, view: BisectionView) -> None:
        """Show the answer."""
        self._stream.write(as_text(block_lines(answer(view), _width())))


class PlainLines(Display):
    """A line with the time of day for each event, flushed at once; live samples are left out."""

    def __init__(self, stream: TextIO, now: Callable[[], datetime] = lambda: datetime.now().astimezone()) -> None:
        super().__init__(stream)
        self._now = now

    def __call__(self, event: Event, /) -> None:
        """Write the line of one event."""
        if text := event_text(event):
            self._stream.write(f"{self._now():%H:%M:%S}  {clean(text)}\n")


def event_text(event: Event) -> str:
    """One event as a line; empty if a log does not need it."""
    text = ""
    match event:
        case Planned():
            why = plan_text(event)
            text = f"trial {event.n}: {event.commit.short} {event.commit.subject}" + (f" ({why})" if why else "")
        case BuildStarted():
            why = f" ({event.purpose})" if event.purpose else ""
            text = f"builds {event.commit.short} {event.commit.subject}{why}"
        case StageStarted():
            text = f"  {event.stage}" + (f": {event.detail}" if event.detail else "")
        case TrialJudged(trial=trial):
            measured = f" at {values_text(judged_run(trial), event.objective)}" if trial.runs else ""
            why = f": {event.why}" if event.why else ""
            took = units.duration(trial.timings.total_s)
            text = f"trial {event.n}: {trial.commit.short} {event.word}{measured} ({took}){why}"
        case Note():
            text = event.text
        case OnHost(host=host, event=one):
            text = event_text(one)
            text = f"{host}: {text}" if text else ""
    return text


def _width() -> int:
    """The width from ``COLUMNS``, as shells set it, else one that suits mails and logs."""
    columns = os.environ.get("COLUMNS", "")
    return max(40, int(columns)) if columns.isdecimal() else _PLAIN_WIDTH
