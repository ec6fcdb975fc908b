"""The loop over commits: it does what the step says, and owns all that is outside: record, git, executor, listener.

One thread owns the state, and the state is the store's facts. Killed at any moment, the next process does the same
with the same facts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bisector.analysis.early_stop import StopRule
from bisector.bisect.facts import Aim, Facts, Heard, Recorded, Task
from bisector.bisect.git_side import GitSide
from bisector.bisect.instructions import Ask, Attempt, Done, Installed, Question, Record, ShowGit, Submit, Tell, Wait
from bisector.bisect.step import step
from bisector.bisect.stop_rule import rule_alike, rule_clear_of, stop_rule
from bisector.config import Settings
from bisector.core.events import Event, Listener
from bisector.core.trial import Fill
from bisector.core.verdict import Strategy
from bisector.executor.base import BuildRequest, ControlRequest, Executor, Job, Progress, Request
from bisector.git.ranges import Ground
from bisector.store.database import Moment
from bisector.store.facts import Ended, Submitted, Work
from bisector.store.rundir import GIT_LOG
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest


@dataclass(slots=True)
class Bisection:
    """A bisection in progress."""

    task: Task
    store: Store
    git: GitSide
    executor: Executor
    tell: Listener
    pause: Callable[[float], None] = time.sleep
    _heard: Heard = field(default_factory=Heard, init=False)
    _in_flight: dict[int, Submit] = field(default_factory=dict, init=False)
    _recorded: tuple[Moment, Recorded] | None = field(default=None, init=False)

    def run(self) -> Done:
        """Go on until there is what was asked for.

        Raises :class:`bisector.core.errors.EndsDoNotReproduce` when there is nothing to bisect, :class:`InfraError`
        when our own side keeps failing. Everything measured is in the store either way.
        """
        while True:
            match step(self._facts(), self._in_flight, self.executor.idle):
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
                case Done() as done:
                    return done

    def _facts(self) -> Facts:
        moment = self.store.database.moment
        if self._recorded is None or self._recorded[0] != moment:
            self._recorded = moment, Recorded.of(self.task, self.store)
        return Facts(self.task, self._recorded[1], self._heard)

    def _submit(self, submit: Submit) -> None:
        self._tell(submit.tell)
        if submit.wait_s:
            self.pause(submit.wait_s)
        request = submit.request
        if isinstance(request, TrialRequest):
            request = replace(request, stop=self._rule(submit, request.fill))
        id_ = self.store.add(_submitted(request, submit.host))
        self.executor.submit(Job(id_, request), submit.host)
        self._in_flight[id_] = submit
        if submit.because is not None:
            self._heard = replace(self._heard, chose_by=submit.because)

    def _rule(self, submit: Submit, fill: Fill) -> StopRule | None:
        """By which its last run may end early, from the logs of earlier ones; None for a whole one."""
        judging, run_dir = self._facts().judging, self.task.run_dir
        if submit.may_stop_early:
            return stop_rule(judging, run_dir, fill)
        if submit.alike:
            return rule_alike(judging, run_dir, submit.request.commit.sha)
        return rule_clear_of(judging, run_dir, submit.clear_of) if submit.clear_of else None

    def _wait(self) -> None:
        news = self.executor.next()
        if isinstance(news, Progress):
            self.tell(news.event)
            return
        attempt = Attempt(self._in_flight.pop(news.id), news.id, news)
        self._heard = replace(self._heard, arrived=(*self._heard.arrived, attempt))

    def _record(self, record: Record) -> None:
        self.store.add(*record.facts)
        for fact in record.facts:
            if isinstance(fact, Ended):
                self.executor.acknowledge(fact.submission)
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
        new = self.task.run_dir / f"{GIT_LOG}.new"
        new.write_text(self.git.log(), encoding="utf-8")
        new.replace(self.task.run_dir / GIT_LOG)
        self._heard = replace(self._heard, git=state)

    def _answer(self, question: Question[object]) -> object:
        return self.executor.compilers() if isinstance(question, Installed) else self.git.answer(question)

    def _tell(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self.tell(event)


def _submitted(request: Request, host: str) -> Submitted:
    match request:
        case TrialRequest(n=n, commit=commit):
            return Submitted(Work.TRIAL, commit.sha, n, host)
        case ControlRequest(commit=commit):
            return Submitted(Work.CONTROL, commit.sha, None, host)
        case BuildRequest(commit=commit):
            return Submitted(Work.BUILD, commit.sha, None, host)


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
        ground=Ground.of(git.repository, git.wanted, settings.bisect.suspects) if weighs else None,
        forgiven=trials[-1][0] if trials else 0,
        aim=aim,
    )
