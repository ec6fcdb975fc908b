"""What a host does next for a comparison: one pure function of its record, asked for each idle host after each fact.

Any host builds a kernel, and every kernel is there before anything is measured. A block is of one host, which is the
one that began it; so figures of two hosts are in no block. Blocks of several hosts go on at the same time. One whose
host is gone is left open, and another one takes its place.

Blocks are begun in rounds: the setup with the fewest blocks that count comes next; at the end of a budget the first one
whose block is short enough. A comparison ends after a number of blocks that was set before, or by the width of the
intervals, looked at after some numbers of blocks. It never ends by what the intervals say: that would find a difference
where there is none more often than the interval promises, while the width of an interval is nearly independent of where
it lies (the mean and the variance of normal data are independent).
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bisector.core import units
from bisector.core.errors import UserError
from bisector.core.subject import Compiler
from bisector.status.blocks import Blocks, BlockState, names
from bisector.status.durations import block_s
from bisector.status.progress import blocks_left, comparable, complete, effects
from bisector.store.comparison import Block, Budget, Place
from bisector.workload.base import MOST_SEED

_ONCE_MORE = "bisector status; logs of builds are in compilers/ of the run directory; resume tries each fault once more"


@dataclass(frozen=True, slots=True)
class Choose:
    """Put on record what every kernel is built with."""

    compilers: tuple[Compiler, ...]


@dataclass(frozen=True, slots=True)
class Build:
    """Build the kernel of an arm with a compiler; it is kept for all its trials."""

    arm: int
    compiler: Compiler


@dataclass(frozen=True, slots=True)
class Begin:
    """Put a new block on record."""

    block: Block


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure an arm of a block that was begun."""

    block: Block
    arm: int

    @property
    def place(self) -> Place:
        """Where the trial belongs."""
        return Place(self.block.n, self.arm)


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing for this host to do before another one is done with what it does."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to measure, and why; ``given_up`` says for which setups no block could be had, and why."""

    why: str
    given_up: tuple[str, ...] = ()


Step = Choose | Build | Begin | Measure | Wait | Done


@dataclass(frozen=True, slots=True)
class Facts:
    """What is on record, and what is known of the hosts.

    Of the record: the blocks, the seconds that were spent, and the last budget that was given, if any was.
    ``installed`` are the compilers of the settings, or those of the coordinator, the preferred one first. ``host`` is
    the one that is idle; ``under_way`` is all that is being done, None for work of which nothing is known but that;
    ``submitted`` has the hosts that are at work on blocks, or fell silent at it, by the numbers of these;
    ``there`` are all that can measure, also this one. Without a ``host`` everything is of one.
    """

    blocks: Blocks
    spent_s: float = 0.0
    installed: tuple[Compiler, ...] = ()
    given: Budget | None = None
    host: str = ""
    under_way: tuple[Build | Measure | None, ...] = ()
    submitted: Mapping[int, str] = field(default_factory=dict)
    there: frozenset[str] = frozenset()
    only_builds: bool = False

    @property
    def budget(self) -> Budget | None:
        """The one that holds."""
        return self.given or self.blocks.plan.extent.budget

    def is_own(self, block: Block) -> bool:
        """Whether a block is this host's, to go on with."""
        return not self.host or self.home(block) == self.host

    def goes_on_elsewhere(self, block: Block) -> bool:
        """Whether another host that is there has begun a block and is not done with it."""
        return not self.is_own(block) and self.home(block) in self.there

    def home(self, block: Block) -> str:
        """The host that a block is of; empty where nothing of it was measured or is under way."""
        return self.submitted.get(block.n) or self.blocks.host(block)


def step(facts: Facts) -> Step:
    """What the host does next: build a kernel, go on with a block that is open, begin another one, wait, or end.

    Raises :class:`UserError` when no compiler builds every kernel, and when no two kernels are left to compare.
    """
    recorded = facts.blocks.compilers
    if not recorded:
        if len(facts.installed) > 1:
            return _compiler(facts)
        facts = replace(facts, blocks=replace(facts.blocks, compilers=facts.installed))
    if (prepared := _build(facts)) is not None:
        return prepared
    if facts.only_builds:
        return Wait()
    if (going_on := _going_on(facts)) is not None:
        return going_on
    if not any(comparable(facts.blocks, setup) for setup in range(len(facts.blocks.plan.setups))):
        if facts.under_way:
            return Wait()
        raise UserError(f"nothing can be compared: {_why_nothing(facts.blocks)}", _ONCE_MORE)
    return _next(facts) if recorded else Choose(facts.installed)


def _build(facts: Facts) -> Build | Wait | None:
    """A kernel that nobody builds yet; a wait where others are about it; None when all are there."""
    blocks, being_built = facts.blocks, _being_built(facts)
    left = [(arm, compiler) for arm in wanted(blocks) if (compiler := blocks.builder(arm)) is not None]
    for arm, compiler in left:
        if blocks.plan.arms[arm].subject.built_of not in being_built:
            return Build(arm, compiler)
    return Wait() if left else None


def _being_built(facts: Facts) -> set[tuple[str, str]]:
    arms = facts.blocks.plan.arms
    return {arms[work.arm].subject.built_of for work in facts.under_way if isinstance(work, Build)}


def _going_on(facts: Facts) -> Measure | None:
    """The next trial of a block that this host has begun, or that nobody has begun to measure.

    A host that measures several at a time is not to be given the same twice.
    """
    blocks = facts.blocks
    places = {work.place for work in facts.under_way if isinstance(work, Measure)}
    for block in blocks.blocks:
        if blocks.state(block) is not BlockState.OPEN or not (facts.is_own(block) or not facts.home(block)):
            continue
        left = [arm for arm in blocks.left(block) if Place(block.n, arm) not in places]
        if left and _wanted_of(facts, block.setup, before=block):
            return Measure(block, left[0])
    return None


def _wanted_of(facts: Facts, setup: int, *, before: Block | None = None) -> int:
    """How many blocks a setup is to have beside those that are begun, or begun before one, and go on.

    Of two that are open the older one goes first, so that no two hosts wait for each other.
    """
    blocks = facts.blocks
    begun = (one for one in blocks.of_setup(setup) if blocks.state(one) is BlockState.OPEN)
    earlier = (one for one in begun if before is None or one.n < before.n)
    at_work = sum(not facts.home(one) or facts.is_own(one) or facts.goes_on_elsewhere(one) for one in earlier)
    return max(blocks_left(blocks, setup) - at_work, 0)


def _next(facts: Facts) -> Begin | Wait | Done:
    """Another block, where one is due and can end in time: of the setup that has the fewest, if that can."""
    blocks, setups = facts.blocks, range(len(facts.blocks.plan.setups))
    unfinished = [setup for setup in setups if blocks_left(blocks, setup)]
    in_vain = tuple(why for setup in unfinished if (why := given_up(facts, setup)))
    due = [setup for setup in unfinished if _wanted_of(facts, setup) and not given_up(facts, setup)]
    budget, fewest_first = facts.budget, sorted(due, key=lambda one: _begun(facts, one))
    in_time = [one for one in fewest_first if budget is None or facts.spent_s + block_s(blocks, one) <= budget.end_s]
    if in_time:
        return Begin(_next_block(blocks, in_time[0]))
    if facts.under_way or not all(_wanted_of(facts, setup) for setup in unfinished):  # a host may try again soon
        return Wait()
    if budget is not None and due:
        return Done(f"another block would end after the budget of {units.duration(budget.budget_s)}", in_vain)
    return Done(_reached(blocks), in_vain)


def _begun(facts: Facts, setup: int) -> int:
    """How many blocks of a setup count, or will."""
    return complete(facts.blocks, setup) + blocks_left(facts.blocks, setup) - _wanted_of(facts, setup)


def wanted(blocks: Blocks) -> tuple[int, ...]:
    """The arms that are measured on any setup on which anything is compared."""
    setups = [setup for setup in range(len(blocks.plan.setups)) if comparable(blocks, setup)]
    return tuple(arm for arm in range(len(blocks.plan.arms)) if any(not blocks.absent(setup, arm) for setup in setups))


def _compiler(facts: Facts) -> Build | Choose | Wait:
    """The first of several compilers that builds every arm, of those that the settings name or of all of this host.

    One makes all kernels of a comparison: another one makes other code of the same source. A single one is no choice:
    what it does not build is left out.
    """
    blocks, candidates, being_built = facts.blocks, facts.installed, _being_built(facts)
    failures = []
    for compiler in candidates:
        built = (arm for arm in wanted(blocks) if blocks.plan.arms[arm].subject.is_built)
        tried = [(arm, blocks.tried(arm).get(compiler)) for arm in built]
        failed = [f"{compiler.command} fails at {blocks.plan.arms[arm].name}: {why}" for arm, why in tried if why]
        untried = [arm for arm, why in tried if why is None]
        idle = [arm for arm in untried if blocks.plan.arms[arm].subject.built_of not in being_built]
        if not failed and untried:
            return Build(idle[0], compiler) if idle else Wait()
        if not failed:
            return Choose((compiler,))
        failures += failed
    named = blocks.plan.setups[0].settings.kernel.compilers
    other = "" if named else "install another compiler (apt-cache search '^gcc-[0-9]'), or "
    alone = f"begin anew with one alone: --compiler {candidates[0].command}; then what it does not build is left out"
    raise UserError(
        f"no compiler {'that is named' if named else 'of this host'} builds every kernel: {'; '.join(failures)}",
        f"{other}{alone}",
    )


def _why_nothing(blocks: Blocks) -> str:
    """Why each arm is absent: once where that is so on every setup, else with the setups."""
    said = []
    for arm, one in enumerate(blocks.plan.arms):
        reasons = {planned.setup: blocks.absent(n, arm) for n, planned in enumerate(blocks.plan.setups)}
        if len(set(reasons.values())) == 1:
            said += [f"{one.name}: {why}" for why in set(reasons.values()) if why]
        else:
            said += [f"{one.name} on {setup}: {why}" for setup, why in reasons.items() if why]
    return "; ".join(said)


def given_up(facts: Facts, setup: int) -> str:
    """Why this host could have no block of a setup, as often as this process tried it; empty while that is not so."""
    blocks, policy = facts.blocks, facts.blocks.plan.setups[setup].settings.retries
    own = (block for block in blocks.of_setup(setup) if facts.is_own(block))
    ended = [block for block in own if blocks.state(block) is not BlockState.OPEN]
    void = [block for block in _last_in_vain(blocks, ended) if block.n > blocks.earlier.blocks]
    weak = [block for block in void if blocks.state(block) is BlockState.WEAK]
    of_host = [block for block in void if blocks.works_elsewhere(block)]
    most = policy.weak_repeats + policy.faults_believed * len(blocks.plan.arms)
    setup_text = blocks.plan.setups[setup].setup
    if len(of_host) >= policy.faults_believed:
        return f"{setup_text}: {blocks.why(void[-1])}, which works on other hosts"
    if len(weak) <= policy.weak_repeats and len(void) <= most:
        return ""
    return f"{setup_text}: no sound block in {len(void)}: {blocks.why(void[-1])}"


def _last_in_vain(blocks: Blocks, ended: Sequence[Block]) -> Iterator[Block]:
    """The last blocks that do not count, oldest first."""
    done = [place for place, block in enumerate(ended, 1) if blocks.state(block) is BlockState.DONE]
    yield from ended[done[-1] if done else 0 :]


def tries_again(blocks: Blocks, block: Block, host: str = "") -> bool:
    """Whether a block comes after a weak one of its host, if one is named: then the host is to be quiet first."""
    before = [one for one in blocks.of_setup(block.setup) if one.n < block.n and host in ("", blocks.host(one))]
    return bool(before) and blocks.state(before[-1]) is BlockState.WEAK


def _next_block(blocks: Blocks, setup: int) -> Block:
    n = len(blocks.blocks) + 1
    arms, seed = drawn(blocks.plan.extent.seed, n, blocks.present(setup))
    # Of an open block that was left, the trials may be gone on with one day: its round stays its own.
    held = {one.round for one in blocks.of_setup(setup) if blocks.state(one) in (BlockState.DONE, BlockState.OPEN)}
    round_ = next(one for one in itertools.count(1) if one not in held)
    return Block(n, setup, round_, seed, arms)


def drawn(seed: int, n: int, arms: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The order in which the ``n``th block of all measures its arms, and the seed of its workload."""
    generator, order = random.Random(f"{seed}/{n}"), list(arms)  # noqa: S311 - an order, and no secret
    generator.shuffle(order)
    return tuple(order), generator.randint(1, MOST_SEED)


def _reached(blocks: Blocks) -> str:
    """Why a comparison is over."""
    until, setups = blocks.plan.extent.until, range(len(blocks.plan.setups))
    if until is None:
        return _measured(blocks)
    measured = (setup for setup in setups if comparable(blocks, setup))
    narrow = all(one.is_narrow(until) for setup in measured for one in effects(blocks, setup))
    return f"{'every' if narrow else 'not every'} interval is within ±{until * 100:g} %: {_measured(blocks)}"


def _measured(blocks: Blocks) -> str:
    """How many blocks that count each setup has, and on which of them nothing can be compared (any more)."""
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
