"""How a bisection is going: events folded into one frozen state, and that state as lines.

Pure: the clock's readings come in as arguments, so that a recorded list of events always gives
the same picture.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

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
from bisector.report.figures import figures
from bisector.report.terminal import Line, Role, Span, cells, cut, left, right, shorten, verdict_role

_INDENT = "  "
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR_WIDTH = 40
_RATE_WIDTH = 14
_LABEL_WIDTH = 10
_VALUES_WIDTH = 15
_VERDICTS_SHOWN = 8
_HOST_WIDTH = 12
_STAGE_WIDTH = 28


@dataclass(frozen=True, slots=True)
class Passed:
    """A stage of the running trial that is over."""

    stage: Stage
    took_s: float


@dataclass(frozen=True, slots=True)
class CourseSoFar:
    """What is happening, as of the last event; all times are readings of one monotonic clock.

    Where several ``hosts`` share the search, each has a course of its own; one may have no trial, and build.
    """

    plan: Planned | None = None
    build: BuildStarted | None = None
    planned_at_s: float = 0.0
    stage: Stage | None = None
    detail: str = ""
    stage_at_s: float = 0.0
    passed: tuple[Passed, ...] = ()
    sample: LiveSample | None = None
    judged: tuple[TrialJudged, ...] = ()
    hosts: Mapping[str, "CourseSoFar"] = field(default_factory=dict)

    def after(self, event: Event, now_s: float) -> "CourseSoFar":
        """The course with one more event."""
        match event:
            case Planned() | BuildStarted() | BuildEnded():
                return self._next(event, now_s)
            case StageStarted():
                return self._next_stage(event, now_s)
            case LiveSample():
                return replace(self, sample=event)
            case TrialJudged():
                return self._judged(event)
            case OnHost(host=host, event=one):
                there = self.hosts.get(host, CourseSoFar()).after(one, now_s)
                return replace(self, hosts={**self.hosts, host: there})
        return self

    def _next(self, event: Planned | BuildStarted | BuildEnded, now_s: float) -> "CourseSoFar":
        plan = event if isinstance(event, Planned) else None
        build = event if isinstance(event, BuildStarted) else None
        return CourseSoFar(plan, build, now_s, judged=self.judged, hosts=self.hosts)

    def _judged(self, event: TrialJudged) -> "CourseSoFar":
        earlier = tuple(one for one in self.judged if one.n < event.n)
        later = tuple(one for one in self.judged if one.n > event.n)
        if later and not self.hosts:  # an end, judged anew with the threshold, while another trial goes on
            return replace(self, judged=(*earlier, event, *later))
        return CourseSoFar(judged=(*earlier, event, *later), hosts=self._without(event.n))

    def _without(self, n: int) -> Mapping[str, "CourseSoFar"]:
        return {
            name: CourseSoFar() if one.plan is not None and one.plan.n == n else one for name, one in self.hosts.items()
        }

    def _next_stage(self, event: StageStarted, now_s: float) -> "CourseSoFar":
        passed = self.passed
        if self.stage is not None and self.stage is not event.stage:
            passed = (*passed, Passed(self.stage, now_s - self.stage_at_s))
        # A new detail of the same stage (the second run) goes on with the stage's clock.
        since = self.stage_at_s if self.stage is event.stage else now_s
        return replace(self, stage=event.stage, detail=event.detail, stage_at_s=since, passed=passed, sample=None)

    def remaining_s(self, now_s: float) -> float | None:
        """Mean seconds of a finished trial times the steps left; None while there is no ground for it.

        The planned trial counts among the steps left; what it has used already is taken off.
        """
        if self.plan is None or self.plan.steps_left < 1 or not self.judged:
            return None
        mean_s = math.fsum(event.trial.timings.total_s for event in self.judged) / len(self.judged)
        current_s = max(0.0, mean_s - (now_s - self.planned_at_s))
        return current_s + mean_s * (self.plan.steps_left - 1)


def plan_text(plan: Planned) -> str:
    """Why this commit, and how much is left."""
    if plan.probability is None:
        left = units.plural(plan.candidates_left, "candidate") if plan.candidates_left else ""
    else:
        left = f"likeliest {units.share(plan.probability)}, 99 % in {units.plural(plan.candidates_left, 'commit')}"
    parts = [
        plan.purpose,
        left,
        f"about {units.plural(plan.steps_left, 'step')} left" if plan.steps_left else "",
    ]
    return ", ".join(part for part in parts if part)


def expectation(course: CourseSoFar, now_s: float, wall: datetime) -> str:
    """When it should be over, or honestly that nobody knows yet."""
    remaining = course.remaining_s(now_s)
    if remaining is None:
        return "not known before a trial is done" if not course.judged else "not known yet"
    remaining = _coarse(remaining)
    end = wall + timedelta(seconds=remaining)
    day = "" if end.date() == wall.date() else f"{end:%a} "
    return f"about {day}{end:%H:%M}, in {units.duration(remaining)}"


def _coarse(seconds: float) -> float:
    return max(60.0, round(seconds / 60) * 60)


def live_lines(course: CourseSoFar, now_s: float, wall: datetime, width: int, height: int) -> list[Line]:
    """The live picture: the trial, its stage, the run in progress, the verdicts so far."""
    if course.hosts:
        trial = [_host_line(name, one, now_s, width) for name, one in course.hosts.items()]
    else:
        trial = [*_trial_lines(course, now_s, wall, width), (), *_stage_lines(course, now_s, width)]
    lines = [(), *trial, *_verdict_lines(course, width, height - len(trial) - 3)]
    return [cut(line, width) for line in lines]


def _trial_lines(course: CourseSoFar, now_s: float, wall: datetime, width: int) -> list[Line]:
    plan = course.plan
    if plan is None:
        return [(Span(f"{_INDENT}choosing the next commit" if course.judged else f"{_INDENT}preparing", Role.DIM),)]
    label = left(f"trial {plan.n}", _LABEL_WIDTH)
    room = width - len(_INDENT) - cells(label)
    subject = shorten(plan.commit.subject, room - len(plan.commit.short) - 2)
    lines: list[Line] = [(Span(_INDENT + label, Role.HEAD), Span(f"{plan.commit.short}  ", Role.STRONG), Span(subject))]
    aim = plan_text(plan)
    lines += [_labelled("aim", aim, room)] if aim else []
    lines.append(_labelled("end", expectation(course, now_s, wall), room))
    return lines


def _labelled(label: str, text: str, room: int) -> Line:
    return (Span(_INDENT + left(label, _LABEL_WIDTH), Role.HEAD), Span(shorten(text, room), Role.DIM))


def _stage_lines(course: CourseSoFar, now_s: float, width: int) -> list[Line]:
    if course.stage is None:
        return []
    spinner = _SPINNER[int(now_s * 2) % len(_SPINNER)]
    room = width - len(_INDENT)
    lines: list[Line] = []
    if course.passed:
        done = "  ".join(f"{passed.stage} {units.duration(passed.took_s)}" for passed in course.passed)
        lines.append((Span(_INDENT + shorten(done, room), Role.DIM),))
    name = f"{spinner} {course.stage}"
    elapsed = units.clock(now_s - course.stage_at_s)
    detail = shorten(course.detail, room - len(name) - len(elapsed) - 4)
    lines.append((Span(f"{_INDENT}{name}  ", Role.ACTIVE), Span(elapsed), Span(f"  {detail}", Role.DIM)))
    if course.sample is not None:
        lines.append(_bar(course.sample, width))
    return lines


def _host_line(name: str, course: CourseSoFar, now_s: float, width: int) -> Line:
    """What one of several hosts is at: the stage and its clock, the run in progress, the trial and its commit."""
    label = left(shorten(name, _HOST_WIDTH), _HOST_WIDTH)
    if course.plan is not None:
        number, commit, purpose = f"{course.plan.n:>3}", course.plan.commit, course.plan.purpose
    elif course.build is not None:
        number, commit, purpose = "  -", course.build.commit, f"builds {course.build.purpose}"
    else:
        return (Span(f"{_INDENT}{label}  ", Role.HEAD), Span("idle", Role.DIM))
    stage = f"{course.stage or 'waiting'} {units.clock(now_s - (course.stage_at_s or course.planned_at_s))}"
    if course.sample is not None:
        stage = f"{course.sample.run} {_share(course.sample):.0%}  {_rate(course.sample)}"
    trial = f"{number}  {commit.short}  "
    room = width - len(_INDENT) - _HOST_WIDTH - _STAGE_WIDTH - cells(trial) - 4
    return (
        Span(f"{_INDENT}{label}  ", Role.HEAD),
        Span(f"{left(shorten(stage, _STAGE_WIDTH), _STAGE_WIDTH)}  ", Role.ACTIVE),
        Span(trial, Role.STRONG),
        Span(shorten(purpose or commit.subject, room), Role.DIM),
    )


def _share(sample: LiveSample) -> float:
    return min(1.0, max(0.0, sample.done_share))  # of 0.0 and NaN, max() keeps the first


def _rate(sample: LiveSample) -> str:
    return sample.unit.text(sample.rate) if math.isfinite(sample.rate) else f"{units.UNKNOWN} {sample.unit}"


def _bar(sample: LiveSample, width: int) -> Line:
    share, rate = _share(sample), _rate(sample)
    figures_text = f" {share:4.0%}  {rate:>{_RATE_WIDTH}}  {sample.run}"
    length = max(4, min(_BAR_WIDTH, width - len(_INDENT) - cells(figures_text)))
    filled = round(share * length)
    return (
        Span(_INDENT + "━" * filled, Role.ACTIVE),
        Span("─" * (length - filled), Role.DIM),
        Span(shorten(figures_text, width - len(_INDENT) - length)),
    )


def _verdict_lines(course: CourseSoFar, width: int, room: int) -> list[Line]:
    """The last verdicts that fit in ``room`` lines, the heading and what is left out among them."""
    if not course.judged or room < 2:  # noqa: PLR2004 - a heading and one row
        return []
    shown = course.judged[-min(room - 1, _VERDICTS_SHOWN) :]
    if len(shown) < len(course.judged):
        shown = shown[1:]
    words = max(len("verdict"), *(cells(shorten(event.word, 12)) for event in course.judged))
    what = course.judged[-1].objective.heading
    values = max(_VALUES_WIDTH, cells(what), *(cells(_values(event)) for event in shown))
    heading = (
        f"{_INDENT}{'n':>3}  {left('commit', 12)}  {left('verdict', words)}  {right(what, values)}  {right('took', 10)}"
    )
    lines: list[Line] = [(), (Span(heading, Role.HEAD),)]
    if len(shown) < len(course.judged):
        earlier = units.plural(len(course.judged) - len(shown), "earlier trial")
        lines.append((Span(f"{_INDENT}  …  {earlier}", Role.DIM),))
    lines += [_verdict_line(event, words, values, width) for event in shown]
    return lines


def _verdict_line(event: TrialJudged, words: int, values: int, width: int) -> Line:
    trial = event.trial
    before = f"{_INDENT}{event.n:>3}  {left(trial.commit.short, 12)}  "
    verdict = left(event.word, words)
    after = f"  {right(_values(event), values)}  {right(units.duration(trial.timings.total_s), 10)}  "
    room = width - len(before) - words - len(after)
    return (
        Span(before),
        Span(verdict, verdict_role(event.verdict, event.direction)),
        Span(after),
        Span(shorten(trial.commit.subject, room), Role.DIM),
    )


def _values(event: TrialJudged) -> str:
    """The worst and the best of the jobs of the run that decides."""
    found = figures(judged_run(event.trial), event.objective) if event.trial.runs else None
    return found.range_text if found is not None else units.UNKNOWN
