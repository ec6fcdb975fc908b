"""The step of a comparison: a pure function of its record, called for each idle host after each fact.

Any host may build a kernel, and all kernels are built before anything is measured. Each block belongs to the host that
began it, so no block has figures of two hosts. Several hosts measure blocks at the same time. If the host of a block is
gone, the block is left open, and another block takes its place.

Blocks are begun in rounds: the setup with the fewest blocks that count comes next; near the end of a budget, the first
setup whose block is short enough. A comparison ends after a preset number of blocks, or by the width of its intervals,
which is checked after certain numbers of blocks. It never ends by the position of an interval: that would report
differences that do not exist more often than the interval promises, while the width of an interval is nearly
independent of its position (the mean and the variance of normal data are independent).
"""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bisector.analysis.quality import thin_tail
from bisector.analysis.verdicts import Judging
from bisector.campaign.instructions import (
    Attempt,
    Crew,
    Done,
    ExcludeHost,
    Instruction,
    Notify,
    Pause,
    Record,
    Submit,
    Transient,
    Wait,
    back_off,
    last_failed,
    settled,
)
from bisector.core import units
from bisector.core.errors import BisectorError, UserError
from bisector.core.events import Event, Note, Planned, TrialJudged
from bisector.core.subject import Cell, Compiler
from bisector.core.trial import AttemptFailed, Fault, Stage, TrialRefused
from bisector.core.verdict import SideWords, State, Verdict
from bisector.executor.base import BuildRequest, Finished
from bisector.status.blocks import (
    BUILT_IN,
    Blocks,
    BlockState,
    block_s,
    blocks_left,
    comparable,
    complete,
    effects,
    judged,
    names,
)
from bisector.store.facts import Arm, Block, Budget, BuildTry, Compilers, Ended, Ending, Place, Placed
from bisector.store.rundir import TRIALS
from bisector.trial.runner import TrialRequest
from bisector.workload.base import MOST_SEED

_ONCE_MORE = "bisector status; logs of builds are in compilers/ of the run directory; resume tries each fault once more"


@dataclass(frozen=True, slots=True)
class CompareState:
    """The record of a comparison, and what is known of the hosts.

    ``given`` is the last budget that was given to a run after its start, None if there is none; ``spent_s`` are the
    seconds spent. ``installed`` are the compilers of the settings, or those of the coordinator, the preferred one
    first. ``host`` is the one that the next instruction is for.
    """

    blocks: Blocks
    transient: Transient = field(default_factory=Transient)
    run_dir: Path = Path()
    next_n: int = 1
    spent_s: float = 0.0
    installed: tuple[Compiler, ...] = ()
    given: Budget | None = None
    crew: Crew = field(default_factory=Crew)
    host: str = ""

    @property
    def budget(self) -> Budget | None:
        """The budget in force, if any."""
        return self.given or self.blocks.plan.extent.budget

    def is_own(self, block: Block) -> bool:
        """Whether this host may continue a block; without a host, any block."""
        return not self.host or self.home(block) == self.host

    def goes_on_elsewhere(self, block: Block) -> bool:
        """Whether a block belongs to another host that can still measure."""
        return not self.is_own(block) and self.home(block) in self.there

    def home(self, block: Block) -> str:
        """The host that a block belongs to; empty if none of its trials was measured or is under way."""
        at_work = {one.place.block: one.host for one in self.in_flight if one.place is not None}
        return at_work.get(block.n) or self.blocks.host(block)

    @property
    def in_flight(self) -> tuple[Submit, ...]:
        """The submissions that have not ended."""
        return tuple(self.transient.in_flight.values())

    @property
    def there(self) -> frozenset[str]:
        """The hosts that can measure: idle, in a pause or at work; not excluded, and not only building."""
        at_work = {one.host for one in self.in_flight}
        known = {*self.transient.idle, *self.transient.paused, *at_work}
        return frozenset(known - {*self.transient.excluded} - self.crew.builders)

    @property
    def ready(self) -> list[str]:
        """The hosts that can be given work, builders first; an idle host may have results that have not arrived yet."""
        at_work = Counter(one.host for one in self.in_flight)
        usable = (one for one in self.transient.idle if one not in self.transient.excluded)
        return sorted(
            (one for one in usable if at_work[one] < self.crew.guests), key=lambda one: one not in self.crew.builders
        )

    @property
    def being_built(self) -> set[tuple[str, str]]:
        """The builds in flight, each as in :attr:`bisector.core.subject.Subject.built_of`."""
        requests = (one.request for one in self.in_flight)
        return {(one.commit.sha, one.fragment) for one in requests if isinstance(one, BuildRequest)}


def step(facts: CompareState) -> Instruction:
    """Return the next instruction: first record and tell what has ended, then give work to each idle host.

    Raises :class:`UserError` if no compiler builds every kernel, or if no two kernels are left to compare, and the
    error of a failed attempt if no host is left for it.
    """
    for attempt in facts.transient.arrived:
        return _recorded(facts, attempt)
    for one in facts.blocks.placed:
        if (key := f"trial {one.n}") not in facts.transient.notified:
            return Notify(tuple(_told_of(facts, one)), (key,))
    ends = []
    for host in facts.ready:
        own = replace(facts, host=host)
        match _after_failure(own) or _of_host(own):
            case Done() as done:
                ends.append(done)
            case Wait():
                if (told := next(_given_up_here(own), None)) is not None:
                    return told
            case found:
                return found
    if not (ends or facts.in_flight or facts.transient.paused or facts.there) and facts.transient.excluded:
        raise tuple(facts.transient.excluded.values())[-1]
    return ends[-1] if ends else Wait()


def _of_host(facts: CompareState) -> Instruction:
    recorded = facts.blocks.compilers
    if not recorded:
        if len(facts.installed) > 1:
            return _compiler(facts)
        facts = replace(facts, blocks=replace(facts.blocks, compilers=facts.installed))
    if (prepared := _build(facts)) is not None:
        return prepared
    if facts.host in facts.crew.builders:
        return Wait()
    if (going_on := _going_on(facts)) is not None:
        return going_on
    if not any(comparable(facts.blocks, setup) for setup in range(len(facts.blocks.plan.setups))):
        if facts.in_flight:
            return Wait()
        raise UserError(f"nothing can be compared: {_why_nothing(facts.blocks)}", _ONCE_MORE)
    return _next(facts) if recorded else Record((Compilers(facts.installed),))


# Attempts that have ended


def _recorded(facts: CompareState, attempt: Attempt) -> Record:
    match attempt.submit.request, attempt.news:
        case BuildRequest(compiler=compiler) as request, Finished(result=Fault() | None as fault):
            reason, arm = "" if fault is None else fault.reason, _arm_of(facts, request)
            told = (Note(f"{compiler.command} does not build {_built(arm)}: {reason}"),) if reason else ()
            tried = BuildTry(compiler, request.commit.sha, reason, request.fragment)
            return Record((tried, Ended(attempt.id, Ending.DONE)), attempt, over=True, tell=told)
    return settled(attempt)


def _told_of(facts: CompareState, one: Placed) -> Iterator[Event]:
    """What people are told of a recorded trial; raises :class:`MetricAbsent` if its runs do not have the metric."""
    blocks, block = facts.blocks, next(block for block in facts.blocks.blocks if block.n == one.place.block)
    planned = blocks.plan.setups[block.setup]
    verdict, why = judged(blocks.plan, block, one)
    # A sound trial of a comparison is on no side of a threshold.
    told = "" if verdict is Verdict.MEASURED else why
    yield TrialJudged(one.n, one.trial, verdict, told, SideWords.usual(None), planned.bisect.objective)
    if block.round == 1 and one.place.arm == 0 and (said := thin_tail(planned.bisect.objective, one.trial.runs[-1:])):
        yield Note(f"{planned.setup}: {said}")
    if verdict is Verdict.WEAK:  # a value of zero or below counts as measured in a comparison
        Judging(planned, ((one.n, one.trial),)).check_metric(one.trial.commit.sha)
    if verdict is not Verdict.MEASURED:
        yield Note(f"block {block.n} does not count")
    elif blocks.state(block) is BlockState.INTERRUPTED:
        yield Note(f"block {block.n} does not count and is begun anew: {blocks.why(block)}")


def _after_failure(facts: CompareState) -> Pause | ExcludeHost | None:
    """What follows a failed attempt: a pause, each longer than the one before, and finally the host is excluded.

    Raises the attempt's error if this is the last host, or if other hosts would fail alike.
    """
    try:
        return back_off(facts.transient, facts.host, facts.blocks.plan.setups[0].retries)
    except BisectorError as raised:
        last = last_failed(facts.transient, facts.host)
        error = raised if last is None else _named(facts, last.submit, raised)
        if isinstance(error, TrialRefused) or facts.there <= {facts.host}:
            raise error from None
        return ExcludeHost(facts.host, error)


def _named(facts: CompareState, submit: Submit, error: BisectorError) -> BisectorError:
    """The error of an attempt, with the arm, the stage and the place of the logs added to its message."""
    if not isinstance(error, AttemptFailed | TrialRefused):
        return error
    request, plan, at_boot = submit.request, facts.blocks.plan, ""
    if isinstance(request, TrialRequest) and submit.place is not None:
        arm = plan.arms[submit.place.arm]
        what, files = f"{arm.name} on {request.cell.setup}, block {submit.place.block}", f"{TRIALS}/{request.n:04d}-*"
        at_boot = "" if arm.subject.is_built else BUILT_IN
    elif isinstance(request, BuildRequest):
        arm = _arm_of(facts, request)
        what = f"{arm.name}, build by {request.compiler.command}"
        files = f"compilers/*-{arm.subject.short}"
    stage = error.stage if isinstance(error, AttemptFailed) else error.trial.stage if error.trial is not None else None
    error.message = f"{what}{f', stage {stage}' if stage is not None else ''}: {error.message}"
    logs = (f"its logs are in {place}" for place in sorted(facts.run_dir.glob(files))[:1])
    error.hint = "\n  ".join(filter(None, (error.hint, at_boot if stage is Stage.BOOT else "", *logs)))
    return error


def _given_up_here(facts: CompareState) -> Iterator[Notify]:
    """Tell once that this host is no longer used for a setup, while others are."""
    for setup in range(len(facts.blocks.plan.setups)):
        key = f"{facts.host} is not used for setup {setup}"
        if key not in facts.transient.notified and (why := given_up(facts, setup)):
            yield Notify((Note(f"{facts.host} is excluded for {why}"),), (key,))


# Work for a host


def _submit_build(facts: CompareState, arm: int, compiler: Compiler) -> Submit:
    one, plan = facts.blocks.plan.arms[arm], facts.blocks.plan
    note = Note(f"the kernel of {_built(one)}, by {compiler.command} ({compiler.identity})")
    request = BuildRequest(one.commit, compiler, plan.settings(0, arm), one.subject.fragment)
    return Submit(request, f"build {one.subject.built_of} {compiler.command}", (note,), facts.host)


def _submit_trial(facts: CompareState, block: Block, arm: int) -> Submit:
    plan, n = facts.blocks.plan, facts.next_n
    one, planned, runs = plan.arms[arm], plan.setups[block.setup], plan.extent.runs
    of = "" if plan.extent.until is not None or block.round > runs else f" of {runs}"
    request = TrialRequest(
        n,
        Cell(one.subject, planned.setup),
        {},
        facts.blocks.compilers,
        again=tries_again(facts.blocks, block, facts.host),
        settings=plan.settings(block.setup, arm),
        seed=block.seed,
        guest_seed=block.seed if planned.machine.is_counted else 0,
        image=None if one.subject.is_built else one.file,
    )
    told = Planned(n, one.commit, f"{one.name}, {planned.setup}, block {block.round}{of}", 0, 0)
    return Submit(request, f"block {block.n} arm {arm}", (told,), facts.host, Place(block.n, arm))


def _built(arm: Arm) -> str:
    return arm.commit.short + (f" with {arm.file.name}" if arm.file is not None else "")


def _arm_of(facts: CompareState, request: BuildRequest) -> Arm:
    built = (request.commit.sha, request.fragment)
    return next(one for one in facts.blocks.plan.arms if one.subject.built_of == built)


def _build(facts: CompareState) -> Submit | Wait | None:
    """The build of a missing kernel; a wait if all missing ones are being built; None if none is missing."""
    blocks, being_built = facts.blocks, facts.being_built
    left = [(arm, compiler) for arm in wanted(blocks) if (compiler := blocks.builder(arm)) is not None]
    for arm, compiler in left:
        if blocks.plan.arms[arm].subject.built_of not in being_built:
            return _submit_build(facts, arm, compiler)
    return Wait() if left else None


def _going_on(facts: CompareState) -> Submit | None:
    """The next trial, not in flight, of an open block that belongs to this host or to none."""
    blocks = facts.blocks
    places = {one.place for one in facts.in_flight}
    for block in blocks.blocks:
        if blocks.state(block) is not BlockState.OPEN or not (facts.is_own(block) or not facts.home(block)):
            continue
        left = [arm for arm in blocks.left(block) if Place(block.n, arm) not in places]
        if left and _wanted_of(facts, block.setup, before=block):
            return _submit_trial(facts, block, left[0])
    return None


def _wanted_of(facts: CompareState, setup: int, *, before: Block | None = None) -> int:
    """The number of blocks that a setup needs beside its open blocks that go on, or beside those older than ``before``.

    Of two open blocks the older one goes first, so that no two hosts wait for each other.
    """
    blocks = facts.blocks
    begun = (one for one in blocks.of_setup(setup) if blocks.state(one) is BlockState.OPEN)
    earlier = (one for one in begun if before is None or one.n < before.n)
    at_work = sum(not facts.home(one) or facts.is_own(one) or facts.goes_on_elsewhere(one) for one in earlier)
    return max(blocks_left(blocks, setup) - at_work, 0)


def _next(facts: CompareState) -> Record | Wait | Done:
    """Begin another block if one is due and can end in time, of the setup with the fewest if possible; else end."""
    blocks, setups = facts.blocks, range(len(facts.blocks.plan.setups))
    unfinished = [setup for setup in setups if blocks_left(blocks, setup)]
    in_vain = tuple(why for setup in unfinished if (why := given_up(facts, setup)))
    due = [setup for setup in unfinished if _wanted_of(facts, setup) and not given_up(facts, setup)]
    # The number of blocks of each setup that count, or will.
    begun = {one: complete(blocks, one) + blocks_left(blocks, one) - _wanted_of(facts, one) for one in due}
    budget, fewest_first = facts.budget, sorted(due, key=begun.__getitem__)
    in_time = [one for one in fewest_first if budget is None or facts.spent_s + block_s(blocks, one) <= budget.end_s]
    if in_time:
        return Record((_next_block(blocks, in_time[0]),))
    if facts.in_flight or not all(_wanted_of(facts, setup) for setup in unfinished):  # a host may try again soon
        return Wait()
    if budget is not None and due:
        why = f"another block would end after the budget of {units.duration(budget.budget_s)}"
        return Done(State.MEASURED, why, given_up=in_vain)
    reached, until = _measured(blocks), blocks.plan.extent.until
    if until is not None:
        measured = (setup for setup in setups if comparable(blocks, setup))
        narrow = all(one.is_narrow(until) for setup in measured for one in effects(blocks, setup))
        reached = f"{'every' if narrow else 'not every'} interval is within ±{until * 100:g} %: {reached}"
    return Done(State.MEASURED, reached, given_up=in_vain)


def wanted(blocks: Blocks) -> tuple[int, ...]:
    """The arms that are measured on at least one setup with something to compare."""
    setups = [setup for setup in range(len(blocks.plan.setups)) if comparable(blocks, setup)]
    return tuple(arm for arm in range(len(blocks.plan.arms)) if any(not blocks.absent(setup, arm) for setup in setups))


def _compiler(facts: CompareState) -> Submit | Record | Wait:
    """Try or record the first compiler that builds every arm, of those that the settings name or that are installed.

    One compiler makes all kernels of a comparison, since another one makes different code of the same source. A single
    compiler is not tried first: arms that it does not build are left out.
    """
    blocks, candidates, being_built = facts.blocks, facts.installed, facts.being_built
    failures = []
    for compiler in candidates:
        built = (arm for arm in wanted(blocks) if blocks.plan.arms[arm].subject.is_built)
        tried = [(arm, blocks.tried(arm).get(compiler)) for arm in built]
        failed = [f"{compiler.command} fails at {blocks.plan.arms[arm].name}: {why}" for arm, why in tried if why]
        untried = [arm for arm, why in tried if why is None]
        idle = [arm for arm in untried if blocks.plan.arms[arm].subject.built_of not in being_built]
        if not failed and untried:
            return _submit_build(facts, idle[0], compiler) if idle else Wait()
        if not failed:
            return Record((Compilers((compiler,)),))
        failures += failed
    named = blocks.plan.setups[0].kernel.compilers
    other = "" if named else "install another compiler (apt-cache search '^gcc-[0-9]'), or "
    alone = f"begin anew with one alone: --compiler {candidates[0].command}; then what it does not build is left out"
    raise UserError(
        f"no compiler {'that is named' if named else 'of this host'} builds every kernel: {'; '.join(failures)}",
        f"{other}{alone}",
    )


def _why_nothing(blocks: Blocks) -> str:
    """Why each arm is absent; the setups are named unless the reason is the same on all of them."""
    said = []
    for arm, one in enumerate(blocks.plan.arms):
        reasons = {planned.setup: blocks.absent(n, arm) for n, planned in enumerate(blocks.plan.setups)}
        if len(set(reasons.values())) == 1:
            said += [f"{one.name}: {why}" for why in set(reasons.values()) if why]
        else:
            said += [f"{one.name} on {setup}: {why}" for setup, why in reasons.items() if why]
    return "; ".join(said)


def given_up(facts: CompareState, setup: int) -> str:
    """Why this host gives up a setup, after this process has tried blocks in vain; empty as long as it does not."""
    blocks, policy = facts.blocks, facts.blocks.plan.setups[setup].retries
    own = (block for block in blocks.of_setup(setup) if facts.is_own(block))
    ended = [block for block in own if blocks.state(block) is not BlockState.OPEN]
    done = [place for place, block in enumerate(ended, 1) if blocks.state(block) is BlockState.DONE]
    void = [block for block in ended[done[-1] if done else 0 :] if block.n > blocks.earlier.blocks]
    weak = [block for block in void if blocks.state(block) is BlockState.WEAK]
    of_host = [block for block in void if blocks.works_on_another_host(block)]
    most = policy.weak_repeats + policy.faults_believed * len(blocks.plan.arms)
    setup_text = blocks.plan.setups[setup].setup
    if len(of_host) >= policy.faults_believed:
        return f"{setup_text}: {blocks.why(void[-1])}, which works on other hosts"
    if len(weak) <= policy.weak_repeats and len(void) <= most:
        return ""
    return f"{setup_text}: no sound block in {len(void)}: {blocks.why(void[-1])}"


def tries_again(blocks: Blocks, block: Block, host: str = "") -> bool:
    """Whether a block follows a weak one (of ``host``, if given), so that the host has to be quiet first."""
    before = [one for one in blocks.of_setup(block.setup) if one.n < block.n and host in ("", blocks.host(one))]
    return bool(before) and blocks.state(before[-1]) is BlockState.WEAK


def _next_block(blocks: Blocks, setup: int) -> Block:
    n = len(blocks.blocks) + 1
    arms, seed = drawn(blocks.plan.extent.seed, n, blocks.present(setup))
    # An open block whose host is gone may be continued later, so it keeps its round.
    held = {one.round for one in blocks.of_setup(setup) if blocks.state(one) in (BlockState.DONE, BlockState.OPEN)}
    round_ = next(one for one in itertools.count(1) if one not in held)
    return Block(n, setup, round_, seed, arms)


def drawn(seed: int, n: int, arms: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Draw the order of arms in the ``n``th block of all, and the seed of its workload."""
    generator, order = random.Random(f"{seed}/{n}"), list(arms)  # noqa: S311 - an order, and no secret
    generator.shuffle(order)
    return tuple(order), generator.randint(1, MOST_SEED)


def _measured(blocks: Blocks) -> str:
    """How many blocks of each setup count, and on which setups nothing can be compared."""
    having: defaultdict[str, list[str]] = defaultdict(list)
    lost = []
    for setup, name in enumerate(names(blocks.plan)):
        count = len(blocks.counted(setup))
        said = units.plural(count, "block")
        if comparable(blocks, setup):
            having[said].append(name)
        else:
            lost.append(f"{name} (after {said})" if count else name)
    if len(having) == 1 and not lost:
        return f"{next(iter(having))} on each setup"
    parts = [f"{said} on {' and '.join(those)}" for said, those in having.items()]
    if lost:
        parts.append(f"n/a: {' and '.join(lost)}")
    return "; ".join(parts)
