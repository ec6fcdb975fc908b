"""The loop over an executor: it carries out the instructions of a step, and does all input and output.

It does not know what is searched or compared. One thread owns the state, which is the facts of the store: if the
process is killed at any moment, the next one decides alike by the same facts. :class:`Transient` may be lost, since the
next process asks, or tries, again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from bisector.campaign.equipment import Equipment
from bisector.campaign.instructions import (
    Ask,
    Attempt,
    Cancel,
    Done,
    ExcludeHost,
    Instruction,
    Notify,
    Pause,
    Question,
    Record,
    Submit,
    Transient,
    Wait,
)
from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError
from bisector.core.events import Event, Listener, Note, OnHost
from bisector.core.trial import AttemptCancelled
from bisector.executor.base import (
    BuildRequest,
    ControlRequest,
    Finished,
    Job,
    News,
    Progress,
    Request,
    of_its_job,
)
from bisector.store.facts import Ended, Ending, Submitted, Work
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

Known = TypeVar("Known")


def no_answer(question: Question[object]) -> object:
    """Answer for a step that asks no questions; raises :class:`RuntimeError`."""
    raise RuntimeError(f"nobody answers {question}")


@dataclass(slots=True)
class Loop(Generic[Known]):
    """The part of a run that one process does.

    ``recorded`` reads the record, once after each new fact. ``step`` decides by it what to do next, ``answer`` answers
    its questions, and ``complete`` adds what only files tell to a request. Submissions that an earlier process had in
    flight are recorded as lost when the loop is made.
    """

    store: Store
    equipment: Equipment
    tell: Listener
    recorded: Callable[[], Known]
    step: Callable[[Known, Transient], Instruction]
    answer: Callable[[Question[object]], object] = no_answer
    complete: Callable[[Known, Submit], Request] = lambda _, submit: submit.request
    transient: Transient = field(default_factory=Transient)
    _read: tuple[int, Known] | None = field(default=None, init=False)
    _since_s: dict[int, float] = field(default_factory=dict, init=False)
    _pauses: dict[str, Deadline] = field(default_factory=dict, init=False)
    _idle: frozenset[str] = field(default=frozenset(), init=False)
    _seen: set[str] = field(default_factory=set, init=False)
    _guests: dict[int, str] = field(default_factory=dict, init=False)  # names, by submission

    def __post_init__(self) -> None:
        lost = self.store.in_flight()
        for one in lost:
            what = f"trial {one.fact.n}" if one.fact.n is not None else f"the {one.fact.work}"
            sha = one.fact.sha[:12]
            self.tell(Note(f"{what}, of {sha}, was under way when this run was stopped, and is lost"))
        if lost:
            self.store.add(*(Ended(one.id, Ending.LOST) for one in lost))

    def run(self) -> Done:
        """Go on until the step is done; raises the step's errors. Everything measured is in the store either way."""
        while True:
            match self.step(self._known, self._now()):
                case Submit() as submit:
                    self._submit(submit)
                case Record() as record:
                    self._add(record)
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
                case ExcludeHost(host=host, error=error):
                    self._exclude(host, error)
                case Ask(question=question):
                    self._change(answers={**self.transient.answers, question: self.answer(question)})
                case Wait():
                    self._wait()
                case Done() as done:
                    return done

    @property
    def _known(self) -> Known:
        if self._read is None or self._read[0] != self.store.moment:
            self._read = self.store.moment, self.recorded()
        return self._read[1]

    def _change(self, **changes: object) -> None:
        self.transient = replace(self.transient, **changes)  # type: ignore[arg-type] # fields of it, by name

    def _now(self) -> Transient:
        """The transient state as of now; hosts that have a pause do not count as idle."""
        self._pauses = {host: one for host, one in self._pauses.items() if not one.expired}
        now_s = time.monotonic()
        idle = self.equipment.executor.idle
        self._idle = frozenset(idle)
        self._seen |= self._idle - self.equipment.crew.builders
        self._change(
            since_min={id_: (now_s - since_s) / 60 for id_, since_s in self._since_s.items()},
            idle=tuple(host for host in idle if host not in self._pauses),
            paused=frozenset(self._pauses),
        )
        return self.transient

    def _submit(self, submit: Submit) -> None:
        """Record a submission and give it to the executor; if that raises an error, the submission has failed."""
        guest = "" if submit.host in self.equipment.crew.builders else self._free_guest()
        self._tell(submit.tell, guest or (submit.host if self._several else ""))
        request = self.complete(self._known, submit)
        id_ = self.store.add(_submitted(submit))
        try:
            self.equipment.executor.submit(Job(id_, request), submit.host)
        except BisectorError:
            self.store.add(Ended(id_, Ending.FAILED))
            raise
        if guest:
            self._guests[id_] = guest
        self._since_s[id_] = time.monotonic()
        self._change(in_flight={**self.transient.in_flight, id_: submit})

    def _free_guest(self) -> str:
        """The name, in messages, of the next guest; empty if this host runs one guest and builds nothing beside it."""
        crew = self.equipment.crew
        names = (f"guest {number}" for number in range(1, crew.guests + 1) if crew.guests > 1 or crew.builds_here)
        return next((name for name in names if name not in self._guests.values()), "")

    def _wait(self) -> None:
        """Wait for news, for the end of the first pause, or for another idle host."""
        host = min(self._pauses, key=lambda one: self._pauses[one].remaining_s, default=None)
        left_s = None if host is None else self._pauses[host].remaining_s
        executor = self.equipment.executor
        if executor.wait(left_s):
            self._hear(executor.next())
        elif host is not None and self._idle.issuperset(executor.idle):
            del self._pauses[host]

    def _hear(self, news: News) -> None:
        submit = self.transient.in_flight.get(news.id)
        if submit is None:  # its end is known already, and later news do not count
            return
        if isinstance(news, Progress):
            self._tell((news.event,), self._guests.get(news.id, submit.host))
            return
        self._guests.pop(news.id, None)
        del self._since_s[news.id]
        self._change(in_flight={id_: one for id_, one in self.transient.in_flight.items() if id_ != news.id})
        if isinstance(asked := submit.request, TrialRequest):
            news = of_its_job(news, asked.n, asked.cell)
        failures = self.transient.failures.get(news.host, ())
        if isinstance(news, Finished):
            failures = ()
        elif not isinstance(news.error, AttemptCancelled):
            failures = (*failures, news.error)
        self._change(
            arrived=(*self.transient.arrived, Attempt(submit, news)),
            failures={**self.transient.failures, news.host: failures},
        )

    def _exclude(self, host: str, error: BisectorError) -> None:
        """Exclude a host: the tasks whose last attempt was there are forgotten, and chosen anew if still wanted."""
        tasks = {key: one for key, one in self.transient.tasks.items() if one[-1].news.host != host}
        self._change(tasks=tasks, excluded={**self.transient.excluded, host: error})
        self.tell(Note(f"{host} is excluded from this run: {error}"))

    def _add(self, record: Record) -> None:
        if record.facts:
            self.store.add(*record.facts)
        if (settled := record.settles) is not None:
            tasks = dict(self.transient.tasks)
            attempts = (*tasks.pop(settled.submit.task, ()), settled)
            if not record.over:
                tasks[settled.submit.task] = attempts
            self._change(tasks=tasks, arrived=tuple(one for one in self.transient.arrived if one.id != settled.id))
        self._tell(record.tell)

    @property
    def _several(self) -> bool:
        """Whether messages name the host."""
        crew = self.equipment.crew
        return len(self._seen) > 1 or (bool(crew.builders) and not crew.builds_here)

    def _tell(self, events: tuple[Event, ...], where: str = "") -> None:
        for event in events:
            self.tell(OnHost(where, event) if where and not isinstance(event, OnHost) else event)


def _submitted(submit: Submit) -> Submitted:
    match submit.request:
        case TrialRequest(n=n, commit=commit):
            place = (None, None) if submit.place is None else (submit.place.block, submit.place.arm)
            return Submitted(Work.TRIAL, commit.sha, n, submit.host, *place)
        case ControlRequest(commit=commit):
            return Submitted(Work.CONTROL, commit.sha, None, submit.host)
        case BuildRequest(commit=commit, measured=measured):
            return Submitted(Work.BUILD if measured is None else Work.RECHECK, commit.sha, None, submit.host)
