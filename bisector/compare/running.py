"""A comparison in progress: what the schedule says goes to the hosts that are idle, and what comes of it on record.

One thread owns the state, and the state is the store's facts. Killed at any moment, the next process does the same with
the same facts. What was in flight is heard by that one where the hosts are others, and else lost, and measured again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from bisector.analysis.quality import thin_tail
from bisector.analysis.verdicts import Judging
from bisector.bisect.equipment import Equipment, Places
from bisector.bisect.failures import again_in, fault_row
from bisector.compare import schedule
from bisector.compare.earlier import given_up_before, usable_compilers
from bisector.compare.schedule import Begin, Build, Choose, Done, Facts, Measure, Wait
from bisector.compare.trouble import Standing, named
from bisector.core.errors import AttemptFailed, AttemptLost, BisectorError, TrialRefused
from bisector.core.events import Event, Listener, Note, OnHost, Planned, TrialJudged
from bisector.core.subject import Cell, Compiler, Kernel
from bisector.core.trial import Fault, Trial
from bisector.core.verdict import Terms, Verdict
from bisector.executor.base import BuildRequest, Failed, Finished, Job, News, Progress, Request, of_its_job
from bisector.host.files import inside
from bisector.status import kernels
from bisector.status.blocks import BUILT_IN, Blocks, BlockState, Earlier, judged
from bisector.status.conclusion import CONFIG_ARTIFACT
from bisector.status.progress import left_s
from bisector.store.comparison import Placed, Plan
from bisector.store.facts import BuildTry, Compilers, Ended, Ending, InfraFault, NumberedTrial, Submitted, Work
from bisector.store.run_files import TRIALS
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

_TERMS = Terms.usual(None)


@dataclass(frozen=True, slots=True)
class _Given:
    """What a host was given; ``work`` is None of a build that an earlier process has submitted."""

    submitted: Submitted
    work: Build | Measure | None


@dataclass(slots=True)
class Comparison:
    """A comparison in progress."""

    plan: Plan
    store: Store
    equipment: Equipment
    tell: Listener
    _given: dict[int, _Given] = field(default_factory=dict, init=False)
    _earlier: Earlier = field(default_factory=Earlier, init=False)
    _installed: tuple[Compiler, ...] = field(default=(), init=False)
    _standing: Standing = field(init=False)
    _told: set[tuple[str, int]] = field(default_factory=set, init=False)
    _seen: set[str] = field(default_factory=set, init=False)
    _places: Places = field(init=False)

    def __post_init__(self) -> None:
        crew = self.equipment.crew
        self._places = Places(crew.guests, named=crew.builds_here)
        self._standing = Standing(self.plan.setups[0].settings.retries)

    def run(self) -> Done:
        """Go on until there is nothing left to measure.

        Raises :class:`InfraError` when the tool or the last host keeps failing, :class:`UserError` for what no arm can
        be measured with, and for a compiler that has changed. Everything measured is in the store either way.
        """
        self._take_over()
        self._installed = usable_compilers(self.store, self.equipment.executor, self.tell)
        self._earlier = given_up_before(self.plan, self.store, self.tell)
        while (done := self._give()) is None:
            self._listen()
        if not done.given_up and not left_s(self._blocks()):  # with more time it would go on
            self.equipment.executor.over()
        return done

    # What an earlier process has left

    def _take_over(self) -> None:
        """Submissions that no host is heard of end here; of the others comes what comes of this process's own."""
        lost = []
        for one in self.store.in_flight():
            if one.id in self.equipment.adopted:
                self._given[one.id] = _Given(one.submitted, self._measure_of(one.submitted))
            else:
                lost.append(one)
        if lost:
            self.store.add(*(Ended(one.id, Ending.LOST) for one in lost))
        for one in lost:
            what = f"trial {one.submitted.n}" if one.submitted.n is not None else "the build"
            self.tell(
                Note(f"{what}, of {one.submitted.sha[:12]}, was under way when this run was stopped, and is lost")
            )

    # What the hosts are given

    def _give(self) -> Done | None:
        """Give each host that is idle what it is to do; how it ended once there is nothing."""
        while True:
            ends, facts = [], self._facts()
            for host in self._ready():
                match schedule.step(asked := self._asked(facts, host)):
                    case Done() as done:
                        ends.append(done)
                    case Wait():
                        self._tell_given_up(asked)
                    case found:
                        self._do(found, host, facts.blocks)
                        break
            else:
                return ends[-1] if ends else None

    def _ready(self) -> list[str]:
        """The hosts that can be given work, those that only build before the others."""
        builders = self.equipment.crew.builders
        return sorted(self._standing.ready(self._idle()), key=lambda one: one not in builders)

    def _idle(self) -> list[str]:
        """The hosts that have nothing to do; what one of them has done may not be heard yet."""
        at_work = Counter(one.submitted.host for one in self._given.values())
        return [host for host in self.equipment.executor.idle if at_work[host] < self.equipment.crew.guests]

    def _tell_given_up(self, asked: Facts) -> None:
        """Of a host that could go on and is not used for a setup any more, it is told once; the others go on."""
        for setup in range(len(self.plan.setups)):
            if (why := schedule.given_up(asked, setup)) and (asked.host, setup) not in self._told:
                self._told.add((asked.host, setup))
                self.tell(Note(f"{asked.host} is used no more for {why}"))

    def _do(self, found: Choose | Build | Begin | Measure, host: str, blocks: Blocks) -> None:
        match found:
            case Choose(compilers=compilers):
                self.store.add(Compilers(compilers))
            case Begin(block=block):
                self.store.add(block)
            case Build() as build:
                self._build(build, host)
            case Measure() as measure:
                self._measure(measure, host, blocks)

    def _blocks(self) -> Blocks:
        return Blocks.of(self.plan, self.store, self._earlier)

    def _facts(self) -> Facts:
        given = next(iter(self.store.budgets()[-1:]), None)
        at_work = [one.submitted for one in (*self.store.silent(), *self.store.in_flight())]
        return Facts(
            self._blocks(),
            self.store.spent_s(),
            self._installed,
            given,
            submitted={one.block: one.host for one in at_work if one.block is not None},
            there=frozenset(self._there()),
        )

    def _asked(self, facts: Facts, host: str) -> Facts:
        under_way = tuple(one.work for one in self._given.values())
        return replace(facts, host=host, under_way=under_way, only_builds=host in self.equipment.crew.builders)

    def _there(self) -> Iterator[str]:
        """The hosts that can measure, now or soon."""
        known = {*self.equipment.executor.idle, *(one.submitted.host for one in self._given.values())}
        self._seen |= known
        for host in {*known, *self._standing.paused}:
            if host not in self._standing.set_aside and host not in self.equipment.crew.builders:
                yield host

    def _build(self, build: Build, host: str) -> None:
        arm, one, own = build.arm, self.plan.arms[build.arm], self.plan.arms[build.arm].subject.fragment
        self._say(
            host, Note(f"the kernel of {self._built(arm)}, by {build.compiler.command} ({build.compiler.identity})")
        )
        # A kernel is the same on all setups.
        request = BuildRequest(one.commit, build.compiler, self.plan.settings(0, arm), own)
        self._submit(Submitted(Work.BUILD, one.commit.sha, host=host), build, request)

    def _measure(self, measure: Measure, host: str, blocks: Blocks) -> None:
        block, n = measure.block, self.store.next_n
        arm, planned = self.plan.arms[measure.arm], self.plan.setups[block.setup]
        runs = self.plan.extent.runs
        of = "" if self.plan.extent.until is not None or block.round > runs else f" of {runs}"
        purpose = f"{arm.name}, {planned.setup}, block {block.round}{of}"
        self._say(self._places.free or host, Planned(n, arm.commit, purpose, 0, 0))
        request = TrialRequest(
            n,
            Cell(arm.subject, planned.setup),
            {},
            self.store.compilers(),
            again=schedule.tries_again(blocks, block, host),
            settings=self.plan.settings(block.setup, measure.arm),
            seed=block.seed,
            guest_seed=block.seed if planned.settings.machine.is_counted else 0,
            image=None if arm.subject.is_built else arm.file,
            kernel=self._kernel(blocks, measure.arm),
        )
        self._submit(Submitted(Work.TRIAL, arm.commit.sha, n, host, block.n, measure.arm), measure, request)

    def _submit(self, submitted: Submitted, work: Build | Measure, request: Request) -> None:
        id_ = self.store.add(submitted)
        self.equipment.executor.submit(Job(id_, request), submitted.host)
        self._given[id_] = _Given(submitted, work)
        if submitted.host not in self.equipment.crew.builders:
            self._places.take(id_)

    def _kernel(self, blocks: Blocks, arm: int) -> Kernel | None:
        """What was measured of an arm, with the .config that this run keeps, if there is one."""
        trial = kernels.first(self.plan, blocks.compared, arm)
        if trial is None or trial.kernel is None:
            return None
        for config in (one.path for one in trial.artifacts if one.name == CONFIG_ARTIFACT):
            with suppress(OSError):
                return replace(trial.kernel, config=inside(self.store.path.parent, config))
        return trial.kernel

    # What comes of it

    def _listen(self) -> None:
        """Wait for news, for a host, or until the next attempt of one is due."""
        next_s, executor = self._standing.next_s, self.equipment.executor
        if next_s is not None and not self._given and not self._standing.ready(self._idle()):
            self.equipment.pause(next_s)
        elif executor.wait(next_s):
            self._take(executor.next())
        elif next_s is None and not self._given and not tuple(self._there()):
            for host, error in self._standing.set_aside.items():
                self.tell(Note(f"{host} was set aside: {error}"))
            raise next(reversed(self._standing.set_aside.values()))

    def _take(self, news: News) -> None:
        if not isinstance(news, Progress):
            self._places.leave(news.id)
        if isinstance(news, Progress):
            given = self._given.get(news.id)
            self._say(self._places.of(news.id) or (given.submitted.host if given is not None else ""), news.event)
        elif (given := self._given.pop(news.id, None)) is None:
            self._take_late(news)
        elif isinstance(news := self._of_its_job(news, given.submitted, given.work), Failed):
            self._failed(news, given)
        else:
            self._standing.worked(given.submitted.host)
            self._finished(news, given)

    def _of_its_job(
        self, news: Finished | Failed, submitted: Submitted, work: Build | Measure | None
    ) -> Finished | Failed:
        if not isinstance(work, Measure):
            return news
        cell = Cell(self.plan.arms[work.arm].subject, self.plan.setups[work.block.setup].setup)
        return of_its_job(news, submitted.n, submitted.sha, cell)

    def _finished(self, news: Finished, given: _Given) -> None:
        match given.work, news.result:
            case Build() as build, Fault() | None as result:
                self._built_by(build, news.id, given.submitted.host, result)
            case Measure() as measure, Trial() as trial:
                self._measured(measure, given.submitted, replace(trial, host=news.host), Ended(news.id, Ending.DONE))
            case _:  # its kernel is kept, and that it was built is asked for once more
                self._ended(Ended(news.id, Ending.LOST))

    def _built_by(self, build: Build, id_: int, host: str, fault: Fault | None) -> None:
        arm, reason = self.plan.arms[build.arm], "" if fault is None else fault.reason
        tried = BuildTry(build.compiler, arm.commit.sha, reason, arm.subject.fragment)
        self._ended(Ended(id_, Ending.DONE), tried)
        if fault is not None:
            self._say(host, Note(f"{build.compiler.command} does not build {self._built(build.arm)}: {fault.reason}"))

    def _measured(self, measure: Measure, submitted: Submitted, trial: Trial, *ended: Ended) -> None:
        """A trial on record, and told; raises :class:`MetricAbsent` where nothing can decide."""
        n, block = submitted.n or 0, measure.block
        self._ended(*ended, NumberedTrial(n, trial, place=measure.place))
        one, planned = Placed(n, measure.place, trial), self.plan.setups[block.setup]
        verdict, why = judged(self.plan, block, one)
        told = "" if verdict is Verdict.MEASURED else why  # a sound trial of a comparison is on no side of a threshold
        self._say(submitted.host, TrialJudged(n, trial, verdict, told, _TERMS, planned.objective))
        if block.round == 1 and measure.arm == 0 and (said := thin_tail(planned.objective, trial.runs[-1:])):
            self.tell(Note(f"{planned.setup}: {said}"))
        if verdict is Verdict.WEAK:  # zero and below are measured here
            Judging(planned.settings, ((n, trial),)).check_metric(trial.commit.sha)
        blocks = self._blocks()
        if verdict is not Verdict.MEASURED:
            self._say(submitted.host, Note(f"block {block.n} does not count"))
        elif blocks.state(block) is BlockState.INTERRUPTED:
            self._say(submitted.host, Note(f"block {block.n} does not count and is begun anew: {blocks.why(block)}"))

    def _take_late(self, news: Finished | Failed) -> None:
        """What was given up since its host was silent; a trial counts like any other, unless it was measured again."""
        silent = next((one.submitted for one in self.store.silent() if one.id == news.id), None)
        measure = None if silent is None else self._measure_of(silent)
        news = news if silent is None else self._of_its_job(news, silent, measure)
        trial = news.result if isinstance(news, Finished) else None
        known = measure is None or self._blocks().trial(measure.place) is not None
        if silent is not None and measure is not None and isinstance(trial, Trial) and not known:
            self._measured(measure, silent, replace(trial, host=news.host))
        self.equipment.executor.acknowledge(news.id)

    def _measure_of(self, submitted: Submitted) -> Measure | None:
        """Which arm of which block was submitted; None of a build."""
        block, arm = next((one for one in self.store.blocks() if one.n == submitted.block), None), submitted.arm
        return None if block is None or arm is None else Measure(block, arm)

    def _failed(self, news: Failed, given: _Given) -> None:
        """An attempt that came to nothing is made again; raises its error where no host is left for that."""
        error, host = news.error, given.submitted.host
        ending = Ending.SILENT if isinstance(error, AttemptLost) else Ending.FAILED
        row = (fault_row(news.at, given.submitted.sha, error),) if isinstance(error, AttemptFailed) else ()
        self._ended(Ended(news.id, ending), *row)
        wait_s = self._standing.wait_s(host, error)
        if wait_s is None:
            self._set_aside(host, self._named(error, given))
            return
        self._say(host, again_in(wait_s, error))
        if self._given or any(one != host for one in self._standing.ready(self._idle())):
            self._standing.pause(host, wait_s)  # nobody else has to wait for it
        else:
            self.equipment.pause(wait_s)

    def _set_aside(self, host: str, error: BisectorError) -> None:
        """Use a host no more; raises its error where it is the last one, or where no other would do better."""
        of_input = isinstance(error, TrialRefused)
        if of_input or all(one == host for one in self._there()):
            raise error
        self._standing.set_aside[host] = error
        self.tell(Note(f"{host} is used no more: {error}"))

    def _named(self, error: BisectorError, given: _Given) -> BisectorError:
        match given.work:
            case Build(arm=arm, compiler=compiler):
                one = self.plan.arms[arm]
                what, files = f"{one.name}, build by {compiler.command}", f"compilers/*-{one.subject.short}"
                return named(error, what, self._files(files))
            case Measure(block=block, arm=arm):
                one, setup = self.plan.arms[arm], self.plan.setups[block.setup].setup
                what, of_image = f"{one.name} on {setup}, block {block.n}", "" if one.subject.is_built else BUILT_IN
                return named(error, what, self._files(f"{TRIALS}/{given.submitted.n:04d}-*"), of_image)
            case None:
                return error

    def _files(self, pattern: str) -> Iterable[Path]:
        return self.store.path.parent.glob(pattern)

    def _ended(self, *facts: Ended | BuildTry | NumberedTrial | InfraFault) -> None:
        """Put on record what a submission came to; whoever has done it may forget it then."""
        self.store.add(*facts)
        for fact in facts:
            if isinstance(fact, Ended):
                self.equipment.executor.acknowledge(fact.submission)

    def _built(self, arm: int) -> str:
        one = self.plan.arms[arm]
        return one.commit.short + (f" with {one.file.name}" if one.file is not None else "")

    def _say(self, host: str, event: Event) -> None:
        """Tell what happens, and on which host, or for which of its guests, where there are several."""
        several = len(self._seen) > 1 or self.equipment.crew.builders or host not in self._seen
        self.tell(OnHost(host, event) if host and several and not isinstance(event, OnHost) else event)
