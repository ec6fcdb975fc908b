"""Invented bisections for the tests of what people read."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bisector.analysis.comparison import Outcome
from bisector.core.deadline import GuestTime
from bisector.core.events import Event, LiveSample, Note, Planned, StageStarted, TrialJudged
from bisector.core.metric import Unit
from bisector.core.objective import Factor, Objective
from bisector.core.subject import Commit, Kind
from bisector.core.trial import Control, Fault, FaultKind, Stage, Timings
from bisector.core.verdict import Direction, SideWords, State, Strategy, Verdict
from bisector.report.blocks import Block
from bisector.report.sections import answer, footer
from bisector.report.terminal import as_text, lines_of
from bisector.status.view import (
    BeliefView,
    BisectionView,
    ConfigChanges,
    EffectView,
    HostClock,
    HostThreshold,
    Likely,
    OptionChange,
    TrialView,
)
from bisector.store.facts import InfraFault
from tests.examples import STARTED_AT, cache, cell, run, trial

SUBJECTS = (
    "Linux 5.0",
    "dm cache: add support for a block size that is not a power of two on small devices",
    "dm cache policy smq: make the cleaner gentle",
    "dm cache policy smq: demote when the cache is full",
    "dm cache: rename a variable",
    "Linux 5.1-rc1",
)
COMMITS = tuple(
    Commit(f"{n:x}a5b3c7d9e1f" * 3 + "0000"[: 40 - 36], f"{n:040x}", subject, f"2026-01-{n + 10:02}T12:00:00+01:00")
    for n, subject in enumerate(SUBJECTS)
)


def judged(n: int, commit: Commit, verdict: Verdict, empty: tuple[float, ...], full: tuple[float, ...]) -> TrialView:
    return TrialView(
        n,
        trial(commit, run("empty", *empty, after=cache()), run("full", *full, after=cache())),
        verdict,
        "by the least of its jobs",
        value=min(full),
    )


def with_trial(shown: TrialView, **changes: Any) -> TrialView:
    """A trial of which other things are on record."""
    return replace(shown, trial=replace(shown.trial, **changes))


def build_fault(n: int, commit: Commit) -> TrialView:
    reason = "drivers/md/dm-cache-policy-smq.c:1201:2: error: 'nr_free' undeclared"
    tail = (
        "  CC      drivers/md/dm-cache-policy-smq.o",
        "drivers/md/dm-cache-policy-smq.c: In function 'queue_promotion':",
        reason,
        "make[3]: *** [scripts/Makefile.build:250: drivers/md/dm-cache-policy-smq.o] Error 1",
    )
    fault = Fault(Stage.BUILD, FaultKind.BUILD_ERROR, reason, tail)
    failed = trial(commit, fault=fault, timings=Timings(build_s=12.1, total_s=12.9))
    return TrialView(n, failed, Verdict.SKIP, f"does not build: {reason}")


BROKEN = judged(1, COMMITS[0], Verdict.OLD, (1002.3, 8046.0), (1001.6, 9104.4))
FIXED = judged(2, COMMITS[5], Verdict.NEW, (3818.0, 6057.2), (4006.0, 7363.0))
MIDDLE = judged(3, COMMITS[2], Verdict.OLD, (1002.0, 7701.0), (1002.0, 12701.0))
CULPRIT = judged(4, COMMITS[3], Verdict.NEW, (3980.0, 6941.0), (4011.5, 7363.0))
SKIPPED = build_fault(3, COMMITS[2])
REUSED = TrialView(
    5,
    trial(COMMITS[4], timings=Timings(build_s=16.6, total_s=17.0), same_kernel_as=COMMITS[3].sha),
    Verdict.NEW,
    "equal kernels",
)
WEAK = TrialView(3, MIDDLE.trial, Verdict.WEAK, "another process used 1.4 cores during run full")


def view(*trials: TrialView, state: State = State.FOUND) -> BisectionView:
    return BisectionView(
        state=state,
        message="",
        repository="/src/linux",
        terms=SideWords(),
        direction=Direction.IMPROVEMENT,
        objective=Objective(),
        threshold=2003.1,
        old=COMMITS[0],
        new=COMMITS[5],
        first_fixed=COMMITS[3] if state is State.FOUND else None,
        candidates=(COMMITS[3],) if state is State.FOUND else (),
        skips_in_the_way=(),
        trials=trials,
        infra_faults=(),
        started_at=STARTED_AT,
        ended_at="2026-03-01T10:20:00+00:00",
        run_dir="/var/runs/r1",
        resume_command="bisector resume --run-dir /var/runs/r1",
        threshold_origin="the geometric mean of the least jobs of both ends",
    )


CHANGES = ConfigChanges(
    COMMITS[2], (OptionChange("CONFIG_DM_CACHE_SMQ", "n", "y"), OptionChange("CONFIG_HZ", "250", "1000"))
)


def found() -> BisectionView:
    return replace(view(BROKEN, FIXED, MIDDLE, CULPRIT), config_changes=(CHANGES,))


def by_both_clocks() -> BisectionView:
    """Four times as fast by instructions; by the host's clock one of six pairs is measured."""
    counted, host = Factor(4.0, None), Factor(3.2, (3.0, 3.4))
    clock = HostClock(COMMITS[3], Objective().label, "/var/runs/r1/confirmed", COMMITS[2], counted, host, pairs=1)
    clock = replace(clock, outcome=Outcome.UNCLEAR, state=State.STOPPED)
    return replace(found(), clock=GuestTime(kind="instructions", instruction_ns=8), host_clock=clock)


_MADE = Commit("e" * 40, "f" * 40, 'Revert "dm cache policy smq: demote"', STARTED_AT)
REVERTED = with_trial(
    judged(5, _MADE, Verdict.OLD, (998.0, 7000.0), (1001.0, 8000.0)), cell=cell(_MADE, Kind.REVERTED, COMMITS[3].sha)
)
BELIEF = BeliefView(
    likely=(Likely(COMMITS[3], 0.9941),),
    contradictions=1,
    expected_contradictions=0.62,
    one_change=True,
    confirmed=(Kind.REVERTED,),
    without_suspects=Likely(COMMITS[3], 0.981),
    suspects=("drivers/md",),
    trials_left=0,
    effect=EffectView(f"its parent {COMMITS[2].short}", Factor(1.98, (1.9, 2.06)), (998.0, 1002.0), (1975.0, 1990.0)),
)


def believed() -> BisectionView:
    whole = view(BROKEN, FIXED, MIDDLE, CULPRIT, REVERTED)
    return replace(whole, strategy=Strategy.BAYES, belief=BELIEF)


def no_change() -> BisectionView:
    whole = view(BROKEN, FIXED, MIDDLE, CULPRIT, state=State.NARROWED)
    belief = replace(BELIEF, no_change=True, nothing=0.993, confirmed=())
    message = "nothing in this range changed read.iops of the worst job: the new end's was 1.10 times the old end's"
    return replace(whole, strategy=Strategy.BAYES, belief=belief, candidates=(), message=message)


def two_changes() -> BisectionView:
    likely = (Likely(COMMITS[3], 0.6), Likely(COMMITS[1], 0.395))
    belief = replace(BELIEF, likely=likely, one_change=False, contradictions=5, confirmed=())
    whole = view(BROKEN, FIXED, MIDDLE, CULPRIT, state=State.NARROWED)
    return replace(whole, strategy=Strategy.BAYES, belief=belief, candidates=tuple(one.commit for one in likely))


def narrowed() -> BisectionView:
    whole = view(BROKEN, FIXED, SKIPPED, CULPRIT, REUSED, state=State.NARROWED)
    fault = InfraFault(STARTED_AT, COMMITS[3].sha, Stage.BOOT, "box", "the guest's SSH connection was lost")
    failed = Control(STARTED_AT, "box", COMMITS[5].sha, Stage.BUILD, (3,), "build error: gelf.h: No such file")
    return replace(
        whole,
        candidates=(COMMITS[2], COMMITS[3]),
        skips_in_the_way=(COMMITS[2],),
        infra_faults=(fault,),
        controls=(failed, replace(failed, failed="")),
    )


def regression() -> BisectionView:
    fast = judged(1, COMMITS[0], Verdict.OLD, (3818.0, 6057.2), (4006.0, 7363.0))
    slow = judged(2, COMMITS[5], Verdict.NEW, (1002.3, 8046.0), (1001.6, 9104.4))
    first = judged(3, COMMITS[3], Verdict.NEW, (1002.0, 7701.0), (1002.0, 12701.0))
    return replace(view(fast, slow, first), terms=SideWords("fast", "slow"), direction=Direction.REGRESSION)


def on_two_hosts() -> BisectionView:
    """The figures of the second host are four times as large."""
    slow, fast = (with_trial(one, host="bench1") for one in (BROKEN, FIXED))
    other = with_trial(judged(3, COMMITS[3], Verdict.OLD, (9_000.0, 9_100.0), (4_004.0, 4_100.0)), host="bench2")
    lines = (HostThreshold("bench1", 2_003.1), HostThreshold("bench2", 8_012.4))
    return replace(view(slow, fast, other), host_thresholds=lines)


def empty() -> BisectionView:
    return replace(
        view(state=State.RUNNING), threshold=None, threshold_origin="", ended_at=None, candidates=COMMITS[1:]
    )


def event_of(shown: TrialView) -> TrialJudged:
    return TrialJudged(shown.n, shown.trial, shown.verdict, shown.why, SideWords())


def recorded() -> tuple[Event, ...]:
    """What a bisection says, from the first end to a skip."""
    events: list[Event] = [Note("the accelerator is tcg: kvm did not boot")]
    for shown, purpose, left, steps in (
        (BROKEN, "the old end", 0, 0),
        (FIXED, "the new end", 0, 0),
        (SKIPPED, "halves the candidates", 4, 2),
    ):
        commit = shown.trial.commit
        events.append(Planned(shown.n, commit, purpose, left, steps))
        events += [StageStarted(commit, stage) for stage in (Stage.CHECKOUT, Stage.CONFIG, Stage.BUILD)]
        if shown.trial.runs:
            events += [StageStarted(commit, stage) for stage in (Stage.BOOT, Stage.STORAGE)]
            events.append(StageStarted(commit, Stage.WORKLOAD, "run full"))
            events += [LiveSample("full", 5000.0 + n, Unit.IOPS, n / 80) for n in range(80)]
        events.append(event_of(shown))
    return tuple(events)


def shown(blocks: Iterable[Block], width: int = 80) -> str:
    """What a terminal of so many columns shows of blocks."""
    return as_text(lines_of(blocks, width))


def footer_text(view: BisectionView, width: int = 80) -> str:
    return shown(footer(view), width)


def answer_text(view: BisectionView, width: int = 80) -> str:
    return shown([answer(view)], width)
