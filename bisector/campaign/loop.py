"""The one loop over an executor: it carries out what a step says, and does all input and output.

It does not know what is searched or compared. One thread owns the state, and the state is the store's facts: killed at
any moment, the next process does the same with the same facts. What is only in :class:`Transient` may be lost, since
the next process asks, or tries, again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bisector.campaign.equipment import Equipment
from bisector.campaign.instructions import (
    Ask,
    Attempt,
    Cancel,
    Done,
    Instruction,
    Notify,
    Pause,
    Question,
    Record,
    SetAside,
    Submit,
    Transient,
    Wait,
    failed_ending,
    failure_row,
)
from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptCancelled, BisectorError
from bisector.core.events import Event, Listener, Note, OnHost
from bisector.core.trial import Trial
from bisector.executor.base import (
    BuildRequest,
    ControlRequest,
    Failed,
    Finished,
    Job,
    News,
    Progress,
    Request,
    of_its_job,
)
from bisector.store.comparison import Place
from bisector.store.facts import Ended, Ending, Fact, NumberedTrial, Submitted, Work
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest


@dataclass(slots=True)
class GuestNames:
    """What people are told the guests of a host are called, of which so many measure at a time.

    One alone has no name, unless guests are ``named`` since something else is told of, too.
    """

    count: int = 1
    named: bool = False
    _taken: dict[int, str] = field(default_factory=dict, init=False)

    @property
    def free(self) -> str:
        """The name of the next guest; empty without one."""
        names = (f"guest {number}" for number in range(1, self.count + 1))
        is_named = self.named or self.count > 1
        return next((name for name in names if is_named and name not in self._taken.values()), "")

    def take(self, id_: int) -> None:
        """Give the next guest to a submission."""
        self._taken[id_] = self.free

    def leave(self, id_: int) -> str:
        """The name of the guest of a submission, which has ended."""
        return self._taken.pop(id_, "")

    def of(self, id_: int) -> str:
        """The name of the guest of a submission; empty without one."""
        return self._taken.get(id_, "")


def no_answer(question: Question[object]) -> object:
    """For a step that asks nothing."""
    raise RuntimeError(f"nobody answers {question}")


@dataclass(slots=True)
class Loop:
    """A process's part of a run.

    ``step`` decides what to do next, ``answer`` finds the answers to its questions, and ``complete`` adds to a request
    what only files tell. ``accepts`` says whether the trial of an earlier process's submission is worth recording.
    """

    store: Store
    equipment: Equipment
    tell: Listener
    step: Callable[[Transient], Instruction]
    answer: Callable[[Question[object]], object] = no_answer
    complete: Callable[[Submit], Request] = lambda submit: submit.request
    accepts: Callable[[Submitted, Trial], bool] = lambda submitted, trial: True
    transient: Transient = field(default_factory=Transient)
    _since_s: dict[int, float] = field(default_factory=dict, init=False)
    _pauses: dict[str, Deadline] = field(default_factory=dict, init=False)
    _seen: set[str] = field(default_factory=set, init=False)
    _guests: GuestNames = field(init=False)

    def __post_init__(self) -> None:
        crew = self.equipment.crew
        self._guests = GuestNames(crew.guests, named=crew.builds_here)
        self._take_over()

    def run(self) -> Done:
        """Go on until the step is done; raises what it raises. Everything measured is in the store either way."""
        while True:
            match self.step(self._now()):
                case Submit() as submit:
                    self._submit(submit)
                case Record() as record:
                    self._record(record)
                case Notify(events=events, keys=keys):
                    self._tell(events)
                    self._change(notified=self.transient.notified | {*keys})
                case Pause() as pause:
                    self._tell(pause.tell, pause.host if self._several else "")
                    self._change(notified=self.transient.notified | {pause.key})
                    self._pauses[pause.host] = Deadline("the next attempt", pause.wait_s)
                case Cancel(id=id_):
                    self.equipment.executor.cancel(id_)
                    self._change(cancelled=self.transient.cancelled | {id_})
                case SetAside(host=host, error=error):
                    self._set_aside(host, error)
                case Ask(question=question):
                    self._change(answers={**self.transient.answers, question: self.answer(question)})
                case Wait():
                    self._wait()
                case Done() as done:
                    return done

    def _change(self, **changes: object) -> None:
        self.transient = replace(self.transient, **changes)  # type: ignore[arg-type] # fields of it, by name

    def _now(self) -> Transient:
        """What is known now: of hosts that are excluded none is idle, nor of those that have a pause."""
        self._pauses = {host: one for host, one in self._pauses.items() if not one.expired}
        now_s = time.monotonic()
        idle = tuple(self.equipment.executor.idle)
        self._seen |= {*idle} - self.equipment.crew.builders
        self._change(
            since_min={id_: (now_s - since_s) / 60 for id_, since_s in self._since_s.items()},
            idle=tuple(host for host in idle if host not in self._pauses),
            paused=frozenset(self._pauses),
        )
        return self.transient

    def _submit(self, submit: Submit) -> None:
        """Put it on record and give it to the executor: what cannot be given has failed, and its error is raised."""
        guest = "" if submit.host in self.equipment.crew.builders else self._guests.free
        self._tell(submit.tell, guest or (submit.host if self._several else ""))
        request = self.complete(submit)
        id_ = self.store.add(_submitted(submit))
        try:
            self.equipment.executor.submit(Job(id_, request), submit.host)
        except BisectorError:
            self.store.add(Ended(id_, Ending.FAILED))
            raise
        if guest:
            self._guests.take(id_)
        self._since_s[id_] = time.monotonic()
        self._change(in_flight={**self.transient.in_flight, id_: submit})

    def _wait(self) -> None:
        """For news; or until the first pause is over, or until there is a host."""
        host = min(self._pauses, key=lambda one: self._pauses[one].remaining_s, default=None)
        left_s = None if host is None else self._pauses[host].remaining_s
        if host is not None and left_s is not None and not self.transient.in_flight:
            self.equipment.pause(left_s)
            del self._pauses[host]
        elif self.equipment.executor.wait(left_s):
            self.hear()

    def hear(self) -> None:
        """Take the next news of the executor."""
        news: News = self.equipment.executor.next()
        submit = self.transient.in_flight.get(news.id)
        if isinstance(news, Progress):
            self._tell((news.event,), self._guests.of(news.id) or (submit.host if submit is not None else ""))
            return
        self._guests.leave(news.id)
        self._since_s.pop(news.id, None)
        self._change(in_flight={id_: one for id_, one in self.transient.in_flight.items() if id_ != news.id})
        if submit is None:
            self._adopt(news)
            return
        if isinstance(asked := submit.request, TrialRequest):
            news = of_its_job(news, asked.n, asked.commit.sha, asked.cell)
        failures = self.transient.failures.get(news.host, ())
        if isinstance(news, Finished):
            failures = ()
        elif not isinstance(news.error, AttemptCancelled):
            failures = (*failures, news.error)
        self._change(
            arrived=(*self.transient.arrived, Attempt(submit, news.id, news)),
            failures={**self.transient.failures, news.host: failures},
        )

    def _set_aside(self, host: str, error: BisectorError) -> None:
        """Exclude a host: what failed there counts no more, and what is still wanted of it is chosen anew."""
        tasks = {key: one for key, one in self.transient.tasks.items() if one[-1].news.host != host}
        self._change(tasks=tasks, set_aside={**self.transient.set_aside, host: error})
        self.tell(Note(f"{host} is excluded from this run: {error}"))

    def _record(self, record: Record) -> None:
        if record.facts:
            self.store.add(*record.facts)
        for fact in record.facts:
            if isinstance(fact, Ended):
                self.equipment.executor.acknowledge(fact.submission)
        if (settled := record.settles) is not None:
            tasks = dict(self.transient.tasks)
            attempts = (*tasks.pop(settled.submit.task, ()), settled)
            if not record.over:
                tasks[settled.submit.task] = attempts
            self._change(tasks=tasks, arrived=tuple(one for one in self.transient.arrived if one.id != settled.id))
        self._tell(record.tell)

    @property
    def _several(self) -> bool:
        """Whether people are to be told on which host something happens."""
        crew = self.equipment.crew
        return len(self._seen) > 1 or (bool(crew.builders) and not crew.builds_here)

    def _tell(self, events: tuple[Event, ...], where: str = "") -> None:
        for event in events:
            self.tell(OnHost(where, event) if where and not isinstance(event, OnHost) else event)

    # What an earlier process has left

    def _take_over(self) -> None:
        """Submissions of an earlier process that no host is heard of end here; the others are in flight."""
        lost, adopted = list[Ended](), dict[int, None]()
        for one in self.store.in_flight():
            if one.id in self.equipment.adopted:
                adopted[one.id] = None
                continue
            lost.append(Ended(one.id, Ending.LOST))
            what = f"trial {one.submitted.n}" if one.submitted.n is not None else f"the {one.submitted.work}"
            sha = one.submitted.sha[:12]
            self.tell(Note(f"{what}, of {sha}, was under way when this run was stopped, and is lost"))
        if lost:
            self.store.add(*lost)
        self._change(in_flight=adopted)

    def _adopt(self, news: Finished | Failed) -> None:
        """Record what came of an earlier process's submission, or of one that was given up as silent.

        How late a trial comes says nothing of its figures.
        """
        late = {one.id: one.submitted for one in self.store.silent()}
        submitted = (late | {one.id: one.submitted for one in self.store.in_flight()}).get(news.id)
        if submitted is not None:
            news = of_its_job(news, submitted.n, submitted.sha)
            facts = tuple(self._adopted(news, submitted))
            if news.id not in late:
                ending = (
                    failed_ending(news.error) if isinstance(news, Failed) else Ending.DONE if facts else Ending.LOST
                )
                facts = (*facts, *failure_row(submitted.sha, news), Ended(news.id, ending))
            if facts:
                self.store.add(*facts)
        self.equipment.executor.acknowledge(news.id)

    def _adopted(self, news: Finished | Failed, submitted: Submitted) -> list[Fact]:
        trial, n = news.result if isinstance(news, Finished) else None, submitted.n
        if not isinstance(trial, Trial) or n is None or not self.accepts(submitted, trial):
            return []
        place = None if submitted.block is None or submitted.arm is None else Place(submitted.block, submitted.arm)
        return [NumberedTrial(n, replace(trial, host=news.host), place=place)]


def _submitted(submit: Submit) -> Submitted:
    match submit.request:
        case TrialRequest(n=n, commit=commit):
            place = (None, None) if submit.place is None else (submit.place.block, submit.place.arm)
            return Submitted(Work.TRIAL, commit.sha, n, submit.host, *place)
        case ControlRequest(commit=commit):
            return Submitted(Work.CONTROL, commit.sha, None, submit.host)
        case BuildRequest(commit=commit, measured=measured):
            return Submitted(Work.BUILD if measured is None else Work.RECHECK, commit.sha, None, submit.host)
