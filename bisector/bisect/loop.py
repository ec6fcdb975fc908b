"""The loop over commits: it does what the step says, and owns all that is outside: record, git, executor, listener.

One thread owns the state, and the state is the store's facts. Killed at any moment, the next process does the same
with the same facts.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from bisector.analysis.early_stop import StopRule
from bisector.bisect.equipment import Places
from bisector.bisect.facts import Aim, Facts, Heard, Recorded, Task
from bisector.bisect.git_side import GitSide
from bisector.bisect.instructions import (
    Ask,
    Attempt,
    Cancel,
    Done,
    Installed,
    Question,
    Record,
    SetAside,
    ShowGit,
    Submit,
    Tell,
    Wait,
)
from bisector.bisect.step import step
from bisector.bisect.stop_rule import rule_alike, rule_clear_of, stop_rule
from bisector.config import Settings
from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptCancelled
from bisector.core.events import Event, Listener, Note, OnHost
from bisector.core.trial import Fill
from bisector.core.verdict import State, Strategy
from bisector.executor.base import (
    BuildRequest,
    ControlRequest,
    Executor,
    Failed,
    Finished,
    Job,
    News,
    Progress,
    Request,
    of_its_job,
)
from bisector.git.ranges import SearchRange
from bisector.host.files import write_whole
from bisector.store.facts import Ended, Submitted, Work
from bisector.store.rundir import GIT_LOG
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest


@dataclass(slots=True)
class Bisection:
    """A bisection in progress; ``adopted`` are an earlier process's submissions of which the executor still hears."""

    task: Task
    store: Store
    git: GitSide
    executor: Executor
    tell: Listener
    pause: Callable[[float], None] = time.sleep
    adopted: Iterable[int] = ()
    _heard: Heard = field(default_factory=Heard, init=False)
    _in_flight: dict[int, Submit | None] = field(default_factory=dict, init=False)
    _since_s: dict[int, float] = field(default_factory=dict, init=False)
    _places: Places = field(init=False)
    _delayed: dict[int, tuple[Deadline, Job]] = field(default_factory=dict, init=False)
    _recorded: tuple[int, Recorded] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        crew = self.task.crew
        self._places = Places(crew.guests, named=crew.builds_here)

    def run(self) -> Done:
        """Go on until there is what was asked for.

        Raises :class:`bisector.core.errors.EndsDoNotReproduce` when there is nothing to bisect, :class:`InfraError`
        when our own side keeps failing. Everything measured is in the store either way. Where it is still running, what
        goes on has other settings, which the store has.
        """
        self._in_flight = dict.fromkeys(self.adopted)
        while True:
            match step(self._facts(), self._in_flight, self._idle):
                case Submit() as submit:
                    self._submit(submit)
                case Wait():
                    self._wait()
                case Record() as record:
                    self._record(record)
                case Tell() as tell:
                    self._tell(tell.events)
                    self._heard = replace(self._heard, told=self._heard.told | {*tell.keys})
                case ShowGit() as show:
                    self._show(show)
                case Ask(question=question):
                    answers = {**self._heard.answers, question: self._answer(question)}
                    self._heard = replace(self._heard, answers=answers)
                case Cancel(id=id_):
                    self._cancel(id_)
                case SetAside() as aside:
                    self._set_aside(aside)
                case Done() as done:
                    if done.state is State.FOUND:  # a search that was narrowed may go on
                        self.executor.over()
                    return done

    @property
    def _idle(self) -> list[str]:
        """The hosts that have nothing to do, and are not about to have."""
        waiting = {one.host for id_ in self._delayed if (one := self._in_flight[id_]) is not None}
        return [host for host in self.executor.idle if host not in waiting]

    def _facts(self) -> Facts:
        moment = self.store.moment
        if self._recorded is None or self._recorded[0] != moment:
            self._recorded = moment, Recorded.of(self.task, self.store)
        now_s = time.monotonic()
        since_min = {id_: (now_s - since_s) / 60 for id_, since_s in self._since_s.items()}
        return Facts(self.task, self._recorded[1], self._heard, since_min=since_min)

    def _submit(self, submit: Submit) -> None:
        self._tell(submit.tell, self._places.free)
        if submit.wait_s and not self._in_flight:
            self.pause(submit.wait_s)
        request = submit.request
        if isinstance(request, TrialRequest):
            request = replace(request, stop=self._rule(submit, request.fill))
        id_ = self.store.add(_submitted(request, submit.host))
        if submit.wait_s and self._in_flight:  # nobody else has to wait for it
            self._delayed[id_] = Deadline("the next attempt", submit.wait_s), Job(id_, request)
        else:
            self.executor.submit(Job(id_, request), submit.host)
        self._in_flight[id_], self._since_s[id_] = submit, time.monotonic()
        if submit.host not in self.task.crew.builders:
            self._places.take(id_)
        if submit.because is not None:
            self._heard = replace(self._heard, chose_by=submit.because)

    def _rule(self, submit: Submit, fill: Fill) -> StopRule | None:
        """By which its last run may end early, from the logs of earlier ones; None for a whole one."""
        judging, run_dir = self._facts().on(submit.host).judging, self.task.run_dir
        if submit.may_stop_early:
            return stop_rule(judging, run_dir, fill)
        if submit.alike:
            return rule_alike(judging, run_dir, submit.request.commit.sha)
        return rule_clear_of(judging, run_dir, submit.clear_of) if submit.clear_of else None

    def _wait(self) -> None:
        """For news; or until an attempt is due, or until there is a host."""
        left_s = {id_: deadline.remaining_s for id_, (deadline, _) in self._delayed.items()}
        first = min(left_s, key=left_s.__getitem__, default=None)
        if first is not None and (len(left_s) == len(self._in_flight) or not left_s[first]):
            self.pause(left_s[first])
            self._submit_delayed(first)
        elif self.executor.wait(None if first is None else left_s[first]):
            self._take(self.executor.next())

    def _submit_delayed(self, id_: int) -> None:
        (_, job), submit = self._delayed.pop(id_), self._in_flight[id_]
        self.executor.submit(job, submit.host if submit is not None else "")

    def _take(self, news: News) -> None:
        match news:
            case Progress(id=id_, event=event):
                submit = self._in_flight.get(id_)
                self._tell((event,), self._places.of(id_) or (submit.host if submit is not None else ""))
            case Finished() | Failed():
                self._hear(news)

    def _hear(self, news: Finished | Failed) -> None:
        heard, submit = self._heard, self._in_flight.pop(news.id, None)
        if submit is not None and isinstance(asked := submit.request, TrialRequest):
            news = of_its_job(news, asked.n, asked.commit.sha, asked.cell)
        self._since_s.pop(news.id, None)
        self._places.leave(news.id)
        failed = heard.failures.get(news.host, ())
        if isinstance(news, Finished):
            failed = ()
        elif not isinstance(news.error, AttemptCancelled):
            failed = (*failed, news.error)
        heard = replace(heard, failures={**heard.failures, news.host: failed})
        if submit is None:
            self._heard = replace(heard, adopted=(*heard.adopted, news))
        else:
            self._heard = replace(heard, arrived=(*heard.arrived, Attempt(submit, news.id, news)))

    def _cancel(self, id_: int) -> None:
        if id_ in self._delayed:
            self._submit_delayed(id_)
        self.executor.cancel(id_)
        self._heard = replace(self._heard, cancelled=self._heard.cancelled | {id_})

    def _set_aside(self, aside: SetAside) -> None:
        """What failed there is no matter any more: what is still wanted of it is chosen anew."""
        heard = self._heard
        matters = {key: attempts for key, attempts in heard.matters.items() if attempts[-1].news.host != aside.host}
        known = {**heard.set_aside, aside.host: aside.error}
        self._heard = replace(heard, matters=matters, set_aside=known)
        self.tell(Note(f"{aside.host} is used no more: {aside.error}"))

    def _record(self, record: Record) -> None:
        if record.facts:
            self.store.add(*record.facts)
        ended = [fact.submission for fact in record.facts if isinstance(fact, Ended)]
        for id_ in (*ended, *([] if record.comes_late is None else [record.comes_late])):
            self.executor.acknowledge(id_)
            adopted = tuple(one for one in self._heard.adopted if one.id != id_)
            self._heard = replace(self._heard, adopted=adopted)
        if (settled := record.settles) is not None:
            matters = dict(self._heard.matters)
            attempts = (*matters.pop(settled.submit.matter, ()), settled)
            if not record.over:
                matters[settled.submit.matter] = attempts
            arrived = tuple(one for one in self._heard.arrived if one.id != settled.id)
            self._heard = replace(self._heard, arrived=arrived, matters=matters)
        self._tell(record.tell)

    def _show(self, show: ShowGit) -> None:
        """What git was told is written down beside the record, too."""
        self._tell(show.tell)
        state = self.git.show(show)
        write_whole(self.task.run_dir / GIT_LOG, self.git.log().encode())
        self._heard = replace(self._heard, git=state)

    def _answer(self, question: Question[object]) -> object:
        match question:
            case Installed():
                return self.executor.compilers()
        return self.git.answer(question)

    def _tell(self, events: tuple[Event, ...], where: str = "") -> None:
        for event in events:
            self.tell(OnHost(where, event) if where and not isinstance(event, OnHost) else event)


def _submitted(request: Request, host: str) -> Submitted:
    match request:
        case TrialRequest(n=n, commit=commit):
            return Submitted(Work.TRIAL, commit.sha, n, host)
        case ControlRequest(commit=commit):
            return Submitted(Work.CONTROL, commit.sha, None, host)
        case BuildRequest(commit=commit, measured=measured):
            return Submitted(Work.BUILD if measured is None else Work.RECHECK, commit.sha, None, host)


def task_of(git: GitSide, store: Store, settings: Settings, skips: tuple[str, ...], aim: Aim = Aim.ANSWER) -> Task:
    """What a process that begins now is to do; ``skips`` are the hashes that a person knows to be untestable."""
    trials = store.trials()
    weighs = aim is Aim.ANSWER and settings.bisect.strategy is Strategy.BAYES
    return Task(
        wanted=git.wanted,
        settings=settings,
        run_dir=store.path.parent,
        skips=skips,
        bases=git.bisect.bases,
        ground=SearchRange.of(git.repository, git.wanted, settings.bisect.suspects) if weighs else None,
        forgiven=trials[-1][0] if trials else 0,
        aim=aim,
    )
