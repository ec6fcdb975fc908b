"""The values that a step receives beside the record, and the instructions that it returns to the loop.

The loop carries out each instruction before it asks for the next; its effects are on record, or in :class:`Transient`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias, TypeVar

from bisector.config import RetryPolicy
from bisector.core.errors import BisectorError
from bisector.core.events import Event, Note
from bisector.core.subject import Commit
from bisector.core.trial import AttemptFailed, Trial
from bisector.core.verdict import State
from bisector.executor.base import Failed, Finished, Request
from bisector.search.graph import SearchFacts
from bisector.store.facts import Ended, Ending, Fact, InfraFault, NumberedTrial, Place
from bisector.trial.runner import TrialRequest

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Submit:
    """Tell people, record a submission, and give it to the executor for ``host``.

    Attempts with the same ``task`` serve one purpose, as do the controls that follow failed ones. ``place`` is the
    block and arm of a trial in a comparison.

    Later steps, or the code that completes the request, read the other fields. ``about`` are the trials whose faults a
    control is to explain. With ``may_stop_early``, a trial's run may be stopped by the usual rule; with ``clear_of``,
    only once it is also clear of the whole run of one of these commits; with ``alike``, once it resembles the whole run
    of the same end. ``because`` are the readings by which the search chose the trial, and ``expected_min`` the minutes
    that it should take.
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
    because: SearchFacts | None = None
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
    """Record facts, all or none, then tell people.

    ``settles`` is the attempt whose end is among the facts; with ``over``, its task ends, and its attempts are
    forgotten.
    """

    facts: tuple[Fact, ...]
    settles: Attempt | None = None
    over: bool = False
    tell: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell people; ``keys`` name what they were told, so that a step does not tell it twice."""

    events: tuple[Event, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Tell people once, by ``key``, and give a host no work for ``wait_s`` seconds."""

    host: str
    wait_s: float
    tell: tuple[Event, ...]
    key: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a submission whose result is no longer needed."""

    id: int


@dataclass(frozen=True, slots=True)
class ExcludeHost:
    """Exclude a host for the rest of this process because of an error there; other hosts go on."""

    host: str
    error: BisectorError


class Question(Generic[T_co]):
    """A question that only the repository, a build or a host can answer."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Find the answer to a question, which does not change while the process lasts."""

    question: Question[object]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for news of the work in flight, for the end of a pause, or for a host if no work is in flight."""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a campaign; ``candidates`` holds one commit if a search found it.

    ``out_of_time`` is true if the campaign would go on but for its budget. ``given_up`` has a sentence for each setup
    of a comparison that had no sound block, with the reason.
    """

    state: State
    message: str = ""
    candidates: tuple[Commit, ...] = ()
    skipped: tuple[Commit, ...] = ()
    out_of_time: bool = False
    given_up: tuple[str, ...] = ()


Instruction: TypeAlias = Submit | Record | Notify | Pause | Cancel | ExcludeHost | Ask | Wait | Done


@dataclass(frozen=True, slots=True)
class Crew:
    """The hosts that a person has named: how many of them measure, and the names of those that only build.

    If none is named, ``guests`` measure on this host at the same time, and a builder is a CPU that none of them needs.
    """

    measuring: int = 0
    builders: frozenset[str] = frozenset()
    guests: int = 1

    @property
    def builds_here(self) -> bool:
        """Whether a spare CPU of this host builds ahead; only if no other hosts measure."""
        return bool(self.builders) and not self.measuring


@dataclass(frozen=True, slots=True)
class Transient:
    """What this process knows beside the record.

    ``in_flight`` are its submissions that have not ended, by number, and ``since_min`` the minutes since each began.
    ``idle`` are the hosts that may be given work now, ``paused`` the hosts whose pause is not over. ``arrived`` are
    ended attempts that are not on record yet, ``tasks`` the attempts at each task that is not over, oldest first.
    ``notified`` are the keys of what people were told, ``answers`` the answers by question. A ``cancelled`` submission
    may still be in flight. ``excluded`` has the error that excluded each host, and ``failures`` the errors of each
    host's attempts since it last finished one.
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
    excluded: Mapping[str, BisectorError] = field(default_factory=dict)
    failures: Mapping[str, tuple[BisectorError, ...]] = field(default_factory=dict)


# Records of attempts that have ended


def failed(attempt: Attempt, error: BisectorError, *, over: bool = False, tell: tuple[Event, ...] = ()) -> Record:
    """Return the record of a failed attempt, with its error if that is an infrastructure error."""
    facts: list[Fact] = [Ended(attempt.id, Ending.FAILED)]
    if isinstance(error, AttemptFailed):
        sha = attempt.submit.request.commit.sha
        facts.insert(0, InfraFault(attempt.news.at, sha, error.stage, error.host, str(error)))
    return Record(tuple(facts), attempt, over=over, tell=tell)


def measured(attempt: Attempt, trial: Trial) -> Record:
    """Return the record of an attempt's trial, with the executor's name of its host, by which figures are compared."""
    request = attempt.submit.request
    if not isinstance(request, TrialRequest):
        raise TypeError(f"{request} is not a trial")
    numbered = NumberedTrial(request.n, replace(trial, host=attempt.news.host), place=attempt.submit.place)
    return Record((numbered, Ended(attempt.id, Ending.DONE)), attempt, over=True)


def settled(attempt: Attempt) -> Record:
    """Return the record of an attempt that has failed, or of a trial that has finished."""
    match attempt.news:
        case Failed(error=error):
            return failed(attempt, error)
        case Finished(result=Trial() as trial):
            return measured(attempt, trial)
    raise RuntimeError(f"{attempt.news} is not an answer to {attempt.submit.request}")


def again_note(wait_s: float, error: BisectorError) -> Note:
    """Return the note for a pause of ``wait_s`` seconds after an infrastructure error."""
    return Note(f"not the kernel's fault, trying again in {wait_s:.0f} s: {error}")


def last_failed(now: Transient, host: str) -> Attempt | None:
    """Return the last attempt on a host if it failed and the host has not paused because of it yet."""
    attempts = (tried[-1] for tried in now.tasks.values() if tried[-1].news.host == host)
    last = max(attempts, key=lambda one: one.id, default=None)
    is_due = last is not None and now.failures.get(host) and f"pause after {last.id}" not in now.notified
    return last if is_due else None


def back_off(now: Transient, host: str, policy: RetryPolicy) -> Pause | None:
    """Return the pause of a host whose last attempt failed, each longer than the one before; None if none is due.

    Raises the attempt's error if there is to be no other attempt.
    """
    if (last := last_failed(now, host)) is None:
        return None
    error = now.failures[host][-1]
    wait_s = policy.wait_s(len(now.failures[host])) if isinstance(error, AttemptFailed) else None
    if wait_s is None:
        raise error
    return Pause(host, wait_s, (again_note(wait_s, error),), f"pause after {last.id}")
