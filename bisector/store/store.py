"""The facts of a run as records, and how long its processes worked. Facts are only added, in transactions of the log.

The times of facts tell how long processes worked. Wall clocks may be set, so the time between two facts is taken from
the clock that counts from the boot (clock_getres(2), CLOCK_BOOTTIME), including suspensions; or from wall clocks if the
host was booted in between.
"""

import math
import os
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import chain, zip_longest
from operator import attrgetter, itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from bisector.config import Settings, options
from bisector.core.errors import InfraError
from bisector.core.subject import Compiler, Mattering, Relevance, Setup
from bisector.core.trial import Artifact, Control, Taken, Trial
from bisector.core.verdict import State
from bisector.host.files import write_atomically
from bisector.search.noise import EarlierSearches
from bisector.store.facts import (
    Compilers,
    Ended,
    Ending,
    Fact,
    NumberedTrial,
    Placed,
    Plan,
    PlannedComparison,
    RunHeader,
    Skip,
    StateChange,
    Submitted,
    Work,
)
from bisector.store.log import Log, LogEntry, NoRoom, now
from bisector.store.rundir import RunDirectory, found_input, recorded_input, with_inputs

T = TypeVar("T")
Numbered = tuple[int, Trial]
_Entry = LogEntry[Any]
_Span = tuple[LogEntry[Submitted], LogEntry[Ended]]

# A file beside the record, removed if the disk is full when a result arrives: a trial of two jobs with 15 files took 24
# to 33 KiB of SQLite's write-ahead log.
ROOM = "room-for-results"
_ROOM_BYTES = 1 << 20


class Store:
    """An open record; a context manager. Numbers ``n`` of trials start at 1, in order of measuring."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.path = log.path
        self._trials: tuple[Numbered, ...] = ()
        self._baselines: tuple[Numbered, ...] = ()
        self._trials_of = (-1, -1)  # from how many facts of each kind the trials were derived

    @classmethod
    def create(
        cls,
        path: Path,
        header: RunHeader,
        trials: Iterable[Trial] = (),
        taken: Iterable[Taken] = (),
        plan: Plan | None = None,
        *,
        facts: Iterable[Fact] = (),
    ) -> Self:
        """Create a record that begins with ``header``, and whose only trials are those already known.

        ``taken`` says where the first of the trials were taken over from, ``plan`` is what is compared, and ``facts``
        are other facts known at the beginning. The record appears under its name once it is complete, with all of that.
        Raises :class:`UserError` if there is a record already, and :class:`InfraError` if it cannot be written.
        """
        run_dir = path.parent
        kept = replace(header, settings=with_inputs(header.settings, recorded_input, run_dir))
        planned = () if plan is None else (PlannedComparison.of(plan, run_dir),)
        numbered = (
            NumberedTrial(n, trial, taken=origin) for n, (trial, origin) in enumerate(zip_longest(trials, taken), 1)
        )
        return cls(Log.create(path, map(_recorded, chain((kept, *planned), numbered, facts))))

    @classmethod
    def open(cls, path: Path, readonly: bool = False) -> Self:
        """Open a record; ``readonly`` beside a process that writes. Raises as :meth:`Log.open`."""
        return cls(Log.open(path, readonly))

    def close(self) -> None:
        """Close the record; all facts are on disk already."""
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def add(self, *facts: Fact) -> int:
        """Record all facts or none, and return the first one's number. Raises :class:`InfraError` without room."""
        room = self.path.parent / ROOM
        if any(isinstance(fact, Submitted) for fact in facts) and not room.exists():
            try:
                write_atomically(room, os.urandom(_ROOM_BYTES))  # random, so that no file system stores it compressed
            except OSError as error:
                what = f"there is no room for results: {room} needs {_ROOM_BYTES >> 20} MiB ({error.strerror})"
                raise InfraError(what, f"df -h {room.parent}; when there is room: bisector resume") from error
        recorded = tuple(map(_recorded, facts))
        try:
            return self.log.add(*recorded)
        except NoRoom:
            if not room.exists():
                raise
            room.unlink()
            return self.log.add(*recorded)

    def add_trials(self, trials: Iterable[Trial]) -> tuple[int, ...]:
        """Record trials that were not submitted, under the next numbers, and return these numbers."""
        numbered = tuple(NumberedTrial(n, trial) for n, trial in enumerate(trials, self.next_n))
        if numbered:
            self.add(*numbered)
        return tuple(one.n for one in numbered)

    def set_state(self, state: State, message: str = "", *, out_of_time: bool = False) -> None:
        """Record that this process brought the run into ``state`` now; ``out_of_time`` if the budget is spent."""
        self.add(StateChange(now(), state, message, os.getpid(), out_of_time))

    @property
    def moment(self) -> int:
        """The number of the last fact, recorded here or by another process."""
        return self.log.refresh()

    def facts(self, kind: type[T]) -> tuple[T, ...]:
        """Every fact of a kind, oldest first."""
        self.log.refresh()
        return tuple(entry.fact for entry in self.log.of(kind))

    def bisection(self) -> RunHeader:
        """What the run was begun for; its skips are followed by the skips added later."""
        (asked,) = self.facts(RunHeader)
        added = (entry.fact.sha for entry in self.log.of(Skip))
        settings = with_inputs(asked.settings, found_input, self.path.parent)
        return replace(asked, settings=settings, skips=tuple(dict.fromkeys((*asked.skips, *added))))

    @cached_property
    def settings(self) -> Settings:
        """The settings that the run was begun with, which do not change; input files are the kept copies."""
        return options.from_json(self.bisection().settings)

    @property
    def by_others(self) -> bool:
        """Whether the trials were measured elsewhere and imported; trials taken over from another run do not count."""
        return any(one.trial.origin is not None and one.taken is None for one in self.facts(NumberedTrial))

    @property
    def is_search(self) -> bool:
        """Whether measuring can lead to an answer: the run has a repository, both ends, and no imported trials."""
        asked = self.bisection()
        return asked.repository is not None and asked.has_ends and not self.by_others

    # Trials

    def trials(self) -> tuple[Numbered, ...]:
        """Every trial on the setup that is searched, with its number; the same tuple until that changes."""
        return self._derived()[0]

    def baselines(self) -> tuple[Numbered, ...]:
        """Every trial on another setup, from which no verdict is derived; all trials are numbered in one series."""
        return self._derived()[1]

    def _derived(self) -> tuple[tuple[Numbered, ...], tuple[Numbered, ...]]:
        self.log.refresh()
        counts = len(self.log.of(NumberedTrial)), len(self.log.of(Control))
        if counts != self._trials_of:
            asked = {n: control for control in self.controls() for n in control.trials}
            recorded = sorted((entry.fact for entry in self.log.of(NumberedTrial)), key=attrgetter("n"))
            known = [(one.n, replace(one.trial, control=asked.get(one.n))) for one in recorded]
            searched = (self.settings.setup, Setup())
            self._trials = tuple(one for one in known if one[1].setup in searched)
            self._baselines = tuple(one for one in known if one[1].setup not in searched)
            self._trials_of = counts
        return self._trials, self._baselines

    def taken(self) -> dict[int, Taken]:
        """Where trials were taken over from, by their number here."""
        return {one.n: one.taken for one in self.facts(NumberedTrial) if one.taken is not None}

    def artifacts(self) -> tuple[Artifact, ...]:
        """Every file that the record names."""
        return tuple(artifact for one in self.facts(NumberedTrial) for artifact in one.trial.artifacts)

    def controls(self) -> tuple[Control, ...]:
        """Every control, that is a new trial of a sound end, oldest first; a control's number is its place, from 1."""
        controls = self.facts(Control)
        vouched = [(entry.fact.vouched_by, entry.fact.n) for entry in self.log.of(NumberedTrial)]
        return tuple(
            replace(control, trials=(*control.trials, *(n for by, n in vouched if by == place)))
            for place, control in enumerate(controls, 1)
        )

    # Submissions

    @property
    def next_n(self) -> int:
        """The number of the next trial: no recorded trial has it, and no trial in flight."""
        held = (one.fact.n or 0 for one in self.in_flight())
        return 1 + max((*held, *(entry.fact.n for entry in self.log.of(NumberedTrial))), default=0)

    def in_flight(self) -> tuple[LogEntry[Submitted], ...]:
        """The submissions that have not ended, oldest first; if their process is gone, no result will come."""
        self.log.refresh()
        ended = {entry.fact.submission for entry in self.log.of(Ended)}
        return tuple(entry for entry in self.log.of(Submitted) if entry.id not in ended)

    def hosts(self) -> frozenset[str]:
        """The hosts that work was submitted to; the name is empty if the executor was to choose."""
        return frozenset(one.host for one in self.facts(Submitted))

    def processes(self) -> dict[int, tuple[int, int]]:
        """For each trial, the process that submitted it and the process that recorded its end; 0 if unknown."""
        self.log.refresh()
        entered = [0, *(entry.id for entry in self.log.of(StateChange))]

        def process(id_: int) -> int:  # a process is known by the state that it entered last
            return entered[bisect_left(entered, id_) - 1]

        ended = {entry.fact.submission: entry.id for entry in self.log.of(Ended)}
        submitted = ((entry.fact.n, entry.id) for entry in self.log.of(Submitted) if entry.id in ended)
        return {n: (process(id_), process(ended[id_])) for n, id_ in submitted if n is not None}

    def process(self) -> int:
        """The last process that measured; 0 if there was none."""
        self.log.refresh()
        running = (entry.id for entry in self.log.of(StateChange) if entry.fact.state is State.RUNNING)
        return max(running, default=0)

    def spent_s(self) -> float:
        """Seconds of the submitted work whose end was not lost, for the host that had the most.

        Seconds in which a host had several jobs count once. Work for which the executor chose the host counts for all.
        """
        seconds: dict[str, float] = {}
        for host, spans in _work_by_host(self.log, frozenset(Work)).items():
            total_s, last = 0.0, None
            for begin, end in spans:
                before_s = 0.0 if last is None else max(0.0, _between_s(begin, last))  # until the latest end so far
                total_s += max(0.0, _spent_s(begin, end) - before_s)
                last = end if last is None or _between_s(last, end) > 0 else last
            seconds[host] = total_s
        return seconds.pop("", 0.0) + max(seconds.values(), default=0.0)

    # Comparisons

    @cached_property
    def plan(self) -> Plan | None:
        """What is compared; None if the run is no comparison."""
        planned = self.facts(PlannedComparison)
        return planned[0].plan(self.path.parent) if planned else None

    def placed(self) -> tuple[Placed, ...]:
        """The trials of a comparison, in order of measuring, each with the whole subject of its arm."""
        if (plan := self.plan) is None:
            return ()
        known = sorted((*self.trials(), *self.baselines()), key=itemgetter(0))
        places = {entry.fact.n: entry.fact.place for entry in self.log.of(NumberedTrial)}
        return tuple(plan.placed(n, place, trial) for n, trial in known if (place := places[n]) is not None)

    # Everything else

    def compilers(self) -> tuple[Compiler, ...]:
        """The compilers of the kernels, preferred one first; empty until they are settled."""
        return tuple(compiler for one in self.facts(Compilers) for compiler in one.compilers)

    def mattering(self) -> frozenset[str] | None:
        """The hashes of the commits that can matter; None if not known yet."""
        found = self._last(Mattering)
        return found.shas if found is not None else None

    def relevance(self) -> Relevance | None:
        """How many commits of the range can matter; None if not known yet."""
        found = self._last(Mattering)
        return found.relevance if found is not None else None

    def earlier(self) -> EarlierSearches:
        """What earlier runs of the same experiment on this host had read when this run began."""
        return self._last(EarlierSearches) or EarlierSearches()

    def state(self) -> StateChange | None:
        """The last recorded state; a killed process leaves "running", see :func:`state_of`."""
        return self._last(StateChange)

    def _last(self, kind: type[T]) -> T | None:
        return found[-1] if (found := self.facts(kind)) else None


def _recorded(fact: Fact) -> Fact:
    return replace(fact, trial=replace(fact.trial, control=None)) if isinstance(fact, NumberedTrial) else fact


def state_of(run: RunDirectory, store: Store) -> tuple[State, str]:
    """The run's state and message; a run recorded as running without a process has stopped."""
    last = store.state()
    if last is None or last.state is State.RUNNING:
        if run.holder():
            return State.RUNNING, last.message if last else ""
        return State.STOPPED, f"process {last.pid} ended without a word" if last else "ended before its first trial"
    return last.state, last.message


# How long the processes worked


def process_s(log: Log) -> float:
    """Seconds of every process, from its beginning to the end that it recorded, or else to its last fact.

    Pauses between processes do not count. What a killed process did after its last fact is not known.
    """
    log.refresh()
    states = log.of(StateChange)
    work: list[_Entry] = [*log.of(Submitted), *log.of(Ended)]
    begun = [n for n, one in enumerate(states) if one.fact.state is State.RUNNING]
    spans = []
    for n, after in zip(begun, (*begun, len(states))[1:], strict=True):
        start, until = states[n], states[after].id if after < len(states) else math.inf
        ends = [one for one in states[n + 1 : after] if one.fact.pid == start.fact.pid]
        known = (one for one in work if start.id < one.id < until)
        spans += [_spent_s(start, ends[-1])] if ends else [max((_spent_s(start, one) for one in known), default=0.0)]
    return math.fsum(spans)


def build_seconds(log: Log) -> float:
    """Seconds of the submissions that only build, of all hosts together."""
    spans = _work_by_host(log, (Work.BUILD, Work.RECHECK)).values()
    return math.fsum(_spent_s(*span) for of_host in spans for span in of_host)


def _work_by_host(log: Log, kinds: Collection[Work]) -> dict[str, list[_Span]]:
    """The beginning and end of each work by host, in the order of the beginnings."""
    log.refresh()
    ended = {one.fact.submission: one for one in log.of(Ended) if one.fact.ending is not Ending.LOST}
    found: dict[str, list[_Span]] = {}
    for one in log.of(Submitted):
        if one.fact.work in kinds and one.id in ended:
            found.setdefault(one.fact.host, []).append((one, ended[one.id]))
    return found


def _spent_s(begin: _Entry, end: _Entry) -> float:
    """The seconds between two facts, but 0 if a wall clock was set back."""
    return max(0.0, _between_s(begin, end))


def _between_s(first: _Entry, second: _Entry) -> float:
    if first.boot_id == second.boot_id:
        return second.since_boot_s - first.since_boot_s
    return (datetime.fromisoformat(second.at) - datetime.fromisoformat(first.at)).total_seconds()
