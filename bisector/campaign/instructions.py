"""What a step is given beside the record, and what it tells the loop to do; values, which decide nothing.

The loop carries each instruction out before it asks for the next. What comes of it is on record, or transient.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias, TypeVar

from bisector.config import RetryPolicy
from bisector.core.errors import AttemptFailed, BisectorError
from bisector.core.events import Event, Note
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.executor.base import Failed, Finished, Request
from bisector.search.readings import SearchFacts as Readings
from bisector.store.comparison import Place
from bisector.store.facts import Ended, Ending, Fact, InfraFault, NumberedTrial
from bisector.trial.runner import TrialRequest

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Submit:
    """Tell people, put a submission on record, and give it to the executor for ``host``.

    ``task`` names what it is for: attempts that fail, and the controls that follow on them, are of one task. ``place``
    is where a trial belongs in a comparison.

    The other fields are for the step that finds them in flight, or for who completes the request. A control is
    ``about`` the trials whose faults it is to explain. With ``may_stop_early`` the run of a trial may be stopped by the
    usual rule; with ``clear_of`` only once it is clear of the whole run of one of these commits, too; with ``alike``
    once it resembles the whole run of the same end. ``because`` are the readings by which the search chose it, and
    ``expected_min`` the minutes that it is expected to take.
    """

    request: Request
    task: str
    tell: tuple[Event, ...] = ()
    host: str = ""
    place: Place | None = None
    about: tuple[int, ...] = ()
    may_stop_early: bool = False
    clear_of: tuple[str, ...] = ()
    alike: bool = False
    because: Readings | None = None
    expected_min: float = 0.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """A submission and how it ended."""

    submit: Submit
    news: Finished | Failed

    @property
    def id(self) -> int:
        """The number of the submission."""
        return self.news.id


@dataclass(frozen=True, slots=True)
class Record:
    """Put facts on record, all or none, then tell people.

    ``settles`` is the attempt whose end is among the facts; with ``over`` its task is over, and its attempts count no
    more.
    """

    facts: tuple[Fact, ...]
    settles: Attempt | None = None
    over: bool = False
    tell: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell people, once: ``keys`` name what they have been told."""

    events: tuple[Event, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Tell people once, by ``key``, and give a host nothing for so long."""

    host: str
    wait_s: float
    tell: tuple[Event, ...]
    key: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a submission that nobody needs any more."""

    id: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Exclude a host from the rest of this process, for what was raised there; other hosts go on."""

    host: str
    error: BisectorError


class Question(Generic[T_co]):
    """Something that only the repository, a build or a host can tell."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Find the answer to a question, which does not change while the process lasts."""

    question: Question[object]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for news of what is in flight, for the end of a pause, or for a host where nothing is in flight."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a campaign ended: ``candidates`` holds one commit when a search found it.

    ``out_of_time`` is true when it would go on, and its budget allows no more. ``given_up`` says for which setups of a
    comparison no sound block could be had, and why.
    """

    state: State
    message: str = ""
    candidates: tuple[Commit, ...] = ()
    skipped: tuple[Commit, ...] = ()
    out_of_time: bool = False
    given_up: tuple[str, ...] = ()


Instruction: TypeAlias = Submit | Record | Notify | Pause | Cancel | SetAside | Ask | Wait | Done


@dataclass(frozen=True, slots=True)
class Crew:
    """The hosts that a person has named: how many are to measure, and those that only build.

    On this host, where nobody named any, so many ``guests`` measure at the same time, and a builder is a CPU that none
    of them needs.
    """

    measuring: int = 0
    builders: frozenset[str] = frozenset()
    guests: int = 1

    @property
    def builds_here(self) -> bool:
        """Whether what builds ahead is this host, which measures alone."""
        return bool(self.builders) and not self.measuring


@dataclass(frozen=True, slots=True)
class Transient:
    """What this process knows beside the record.

    ``in_flight`` are its submissions that have not ended, by number, and ``since_min`` for how many minutes they have
    been. ``idle`` are the hosts that may be given work now, ``paused`` those whose pause
    is not over. ``arrived`` are the ends of submissions that are not on record yet, ``tasks`` the attempts at each task
    that is not over, oldest first. ``notified`` are the keys of what people were told, ``answers`` those to questions.
    Submissions that were ``cancelled`` may still be in flight. ``set_aside`` has for each excluded host what was raised
    there, and ``failures`` for each host what attempts failed with since it last finished one.
    """

    in_flight: Mapping[int, Submit] = field(default_factory=dict)
    since_min: Mapping[int, float] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    paused: frozenset[str] = frozenset()
    arrived: tuple[Attempt, ...] = ()
    tasks: Mapping[str, tuple[Attempt, ...]] = field(default_factory=dict)
    notified: frozenset[str] = frozenset()
    answers: Mapping[Question[object], object] = field(default_factory=dict)
    cancelled: frozenset[int] = frozenset()
    set_aside: Mapping[str, BisectorError] = field(default_factory=dict)
    failures: Mapping[str, tuple[BisectorError, ...]] = field(default_factory=dict)


# What steps put on record


def failed(attempt: Attempt, error: BisectorError, *, over: bool = False, tell: tuple[Event, ...] = ()) -> Record:
    """An attempt that failed, for the record, and the infrastructure error that it failed by, if it was one."""
    facts: list[Fact] = [Ended(attempt.id, Ending.FAILED)]
    if isinstance(error, AttemptFailed):
        sha = attempt.submit.request.commit.sha
        facts.insert(0, InfraFault(attempt.news.at, sha, error.stage, error.host, str(error)))
    return Record(tuple(facts), attempt, over=over, tell=tell)


def measured(attempt: Attempt, trial: Trial) -> Record:
    """The trial of an attempt, for the record: it is that of the host as the executor knows it.

    By that name its figures are compared with others.
    """
    request = attempt.submit.request
    if not isinstance(request, TrialRequest):
        raise TypeError(f"{request} is not a trial")
    numbered = NumberedTrial(request.n, replace(trial, host=attempt.news.host), place=attempt.submit.place)
    return Record((numbered, Ended(attempt.id, Ending.DONE)), attempt, over=True)


def settled(attempt: Attempt) -> Record:
    """The end of an attempt at a trial, for the record."""
    match attempt.news:
        case Failed(error=error):
            return failed(attempt, error)
        case Finished(result=Trial() as trial):
            return measured(attempt, trial)
    raise RuntimeError(f"{attempt.news} is not an answer to {attempt.submit.request}")


def again_note(wait_s: float, error: BisectorError) -> Note:
    """What people are told before a pause."""
    return Note(f"not the kernel's fault, trying again in {wait_s:.0f} s: {error}")


def last_failed(now: Transient, host: str) -> Attempt | None:
    """The attempt that failed on a host since it last finished one, if it has had no pause for that yet."""
    attempts = (tried[-1] for tried in now.tasks.values() if tried[-1].news.host == host)
    last = max(attempts, key=lambda one: one.id, default=None)
    is_due = last is not None and now.failures.get(host) and f"pause after {last.id}" not in now.notified
    return last if is_due else None


def back_off(now: Transient, host: str, policy: RetryPolicy) -> Pause | None:
    """The pause of a host on which an attempt failed last, each longer than the one before; None where none is due.

    Raises what the attempt failed with where there is to be no other.
    """
    if (last := last_failed(now, host)) is None:
        return None
    error = now.failures[host][-1]
    wait_s = policy.wait_s(len(now.failures[host])) if isinstance(error, AttemptFailed) else None
    if wait_s is None:
        raise error
    return Pause(host, wait_s, (again_note(wait_s, error),), f"pause after {last.id}")
