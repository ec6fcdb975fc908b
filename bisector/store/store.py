"""The facts of one bisection as records; there is one way to add them, a transaction of the database."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Self

from bisector.config import options
from bisector.core.errors import InfraError
from bisector.core.figures import CacheStatus, Contention, CpuUse, DiskFigures, EarlyStop, JobFigures, Latency, Run
from bisector.core.subject import Cell, Commit, Compiler, Kernel, NotChanged, Relevance, Setup, Subject
from bisector.core.trial import Artifact, Control, Era, Fault, Origin, Taken, Timings, Trial
from bisector.core.verdict import State
from bisector.host.files import write_whole
from bisector.search.noise import Earlier
from bisector.storage.dmcache import counted
from bisector.storage.stack import stack_of
from bisector.store import comparison, submissions, times
from bisector.store.comparison import Block, Budget, Placed, Plan
from bisector.store.database import Database, Moment, NoRoom, Row
from bisector.store.facts import (
    STOP_FIELDS,
    BuildTry,
    Fact,
    InFlight,
    KernelCheck,
    NumberedTrial,
    Skip,
    Submitted,
    named,
    now,
    write,
)
from bisector.store.rows import BisectionRow, InfraFaultRow, StateRow, build, columns
from bisector.store.run_files import found_input, recorded_input, with_inputs

Numbered = tuple[int, Trial]

# A file that is kept beside the record, and removed when a result comes and the disk is full: a trial takes about
# 40 KiB of SQLite's write-ahead log.
ROOM = "room-for-results"
_ROOM_BYTES = 1 << 20


class Store:
    """An open record; a context manager. Numbers ``n`` of trials start at 1, in order of measuring."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.path = database.path
        self._trials: tuple[Numbered, ...] = ()
        self._baselines: tuple[Numbered, ...] = ()
        self._trials_at: Moment | None = None

    @classmethod
    def create(
        cls,
        path: Path,
        bisection: BisectionRow,
        trials: Iterable[Trial] = (),
        taken: Iterable[Taken] = (),
        plan: Plan | None = None,
        *,
        facts: Iterable[Fact] = (),
    ) -> Self:
        """Make a database that holds ``bisection``, and no trials yet but those that are known before.

        ``taken`` tells of the first of them where they were taken over from, ``plan`` what is compared in it, ``facts``
        are what else is known when it begins. It appears under its name when it is complete, with all of that. Raises
        :class:`UserError` when there is one already, :class:`InfraError` when it cannot be written.
        """
        with Database.create(path) as new:
            kept = with_inputs(bisection.settings, recorded_input, path.parent)
            new.insert("bisection", {"id": 1, **columns(replace(bisection, settings=kept))})
            if plan is not None:
                comparison.insert(new, plan)
            for number, trial in enumerate(trials, 1):
                write(new, NumberedTrial(number, trial))
            for n, origin in enumerate(taken, 1):
                new.insert("taken", {"trial": n, **columns(origin)})
            for fact in facts:
                write(new, fact)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, readonly: bool = False) -> Self:
        """Open a database, for reading only beside a process that writes.

        Raises :class:`UserError` when it is not ours or of another version, :class:`InfraError`
        when it is damaged or locked.
        """
        return cls(Database.open(path, readonly))

    def close(self) -> None:
        """Close the database; what was added is on disk already."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def bisection(self) -> BisectionRow:
        """What was asked for.

        The skips are those of the start, then those that were added.
        """
        with self.database.snapshot():
            asked = build(BisectionRow, self.database.select("bisection")[0])
            added = self.database.select("skips", "id") if self.database.has("skips") else []
        skips = tuple(dict.fromkeys((*asked.skips, *(row["sha"] for row in added))))
        settings = with_inputs(asked.settings, found_input, self.database.path.parent)
        return replace(asked, settings=settings, skips=skips)

    def add(self, *facts: Fact) -> int:
        """Record facts, all of them or none: there is no other way to add one. The number of the first one's row.

        Nothing is submitted without the room to record what comes of it: raises :class:`InfraError`.
        """
        room = self.path.parent / ROOM
        if any(isinstance(fact, Submitted) for fact in facts):
            _keep(room)
        try:
            return self._add(facts)
        except NoRoom:
            if not room.exists():
                raise
            room.unlink()
            return self._add(facts)

    def _add(self, facts: Iterable[Fact]) -> int:
        with self.database.transaction():
            first, *_ = [write(self.database, fact) for fact in facts]
        return first

    def add_trials(self, trials: Iterable[Trial]) -> tuple[int, ...]:
        """Record trials that nobody submitted, under the next numbers; those."""
        numbered = tuple(NumberedTrial(n, trial) for n, trial in enumerate(trials, self.next_n))
        if numbered:
            self.add(*numbered)
        return tuple(one.n for one in numbered)

    def add_trial(self, trial: Trial) -> int:
        """The same of one trial."""
        (n,) = self.add_trials((trial,))
        return n

    def add_skips(self, shas: Iterable[str]) -> None:
        """Record that a person wants these commits, by their hashes, not to be measured (any more)."""
        self.add(*map(Skip, shas))

    @property
    def next_n(self) -> int:
        """The number that the next trial will get: no trial has it, and none that is in flight, or was silent."""
        held = (one.submitted.n or 0 for one in (*self.in_flight(), *self.silent()))
        return max(self.database.greatest("trials", "n"), *held, 0) + 1

    def in_flight(self) -> tuple[InFlight, ...]:
        """What was submitted and has not ended, oldest first; of a process that is gone nothing will come of it."""
        return submissions.that_ended(self.database, None)

    def silent(self) -> tuple[InFlight, ...]:
        """What was submitted to a host that was not heard of any more, and has not come to a trial since."""
        return submissions.silent(self.database)

    def hosts(self) -> frozenset[str]:
        """The names of the hosts that anything was submitted to; one is empty where the executor was to choose."""
        return submissions.hosts(self.database)

    def controls(self) -> tuple[Control, ...]:
        """Every time that a sound end was tried again, oldest first; each has the number of its place, from 1."""
        with self.database.snapshot():
            return self._controls()

    def _controls(self) -> tuple[Control, ...]:
        rows = self.database.select("controls", "id") if self.database.has("controls") else []
        vouched = self.database.grouped("vouched", "control")
        controls = ((build(Control, row), vouched[row["id"]]) for row in rows)
        return tuple(replace(one, trials=(*one.trials, *(row["trial"] for row in more))) for one, more in controls)

    @cached_property
    def setup(self) -> Setup:
        """What is searched: the setup of the settings."""
        (row,) = self.database.select("bisection")
        return options.setup_from_json(row["settings"])

    @property
    def by_others(self) -> bool:
        """Whether its trials were measured by others, and not here: those that were taken over do not count."""
        taken = self.taken()
        rows = self.database.select("origins") if self.database.has("origins") else []
        return any(row["trial"] not in taken for row in rows)

    @property
    def is_search(self) -> bool:
        """Whether it can come to an answer by measuring: it has a repository, both ends, and no trials of others."""
        asked = self.bisection()
        return asked.repository is not None and asked.has_ends and not self.by_others

    @cached_property
    def plan(self) -> Plan | None:
        """What is compared; None where nothing is."""
        with self.database.snapshot():
            return comparison.plan_in(self.database)

    def blocks(self) -> tuple[Block, ...]:
        """The blocks of a comparison, in the order in which they were begun."""
        return comparison.blocks_in(self.database)

    def budgets(self) -> tuple[Budget, ...]:
        """What time a search was given, or a comparison after its beginning, oldest first; the last one holds."""
        return comparison.budgets_in(self.database)

    def placed(self) -> tuple[Placed, ...]:
        """The trials of a comparison, in order of measuring, each with the whole subject of its arm."""
        plan, places = self.plan, comparison.places_in(self.database)
        if plan is None:
            return ()
        known = sorted((*self.trials(), *self.baselines()), key=itemgetter(0))
        return tuple(plan.placed(n, places[n], trial) for n, trial in known if n in places)

    def processes(self) -> dict[int, tuple[int, int]]:
        """By which process each trial was submitted, and by which its end was recorded; 0 where that is not known."""
        return submissions.processes(self.database)

    def process(self) -> int:
        """The last process that measured; 0 where there was none."""
        return max((row["id"] for row in self.database.select("states") if row["state"] == State.RUNNING), default=0)

    def spent_s(self) -> float:
        """Seconds between the submissions and the ends of what was done, or failed, by the host that had the most."""
        return times.of_work_s(self.database)

    def trials(self) -> tuple[Numbered, ...]:
        """Every trial on the setup that is searched with its number, equal to what was added, as of one moment.

        The same tuple until that changes.
        """
        return self._of_this_moment()[0]

    def baselines(self) -> tuple[Numbered, ...]:
        """Every trial on another setup, of which no verdict is derived; the numbers are of one series."""
        return self._of_this_moment()[1]

    def artifacts(self) -> tuple[Artifact, ...]:
        """Every file that the record names."""
        with self.database.snapshot():
            return tuple(build(Artifact, row) for row in self.database.select("artifacts"))

    def _of_this_moment(self) -> tuple[tuple[Numbered, ...], tuple[Numbered, ...]]:
        moment = self.database.moment
        if moment != self._trials_at:
            known = self._read_trials()
            searched = (self.setup, Setup())
            self._trials = tuple(one for one in known if one[1].setup in searched)
            self._baselines = tuple(one for one in known if one[1].setup not in searched)
            self._trials_at = moment
        return self._trials, self._baselines

    def _read_trials(self) -> tuple[Numbered, ...]:
        with self.database.snapshot():
            trials = self.database.select("trials", "n")
            faults, kernels = self.database.grouped("faults", "trial"), self.database.grouped("kernels", "trial")
            artifacts, origins = self.database.grouped("artifacts", "trial"), self.database.grouped("origins", "trial")
            eras = self.database.grouped("eras", "trial")
            runs = self._runs()
            controls = self._controls()
        asked = {n: control for control in controls for n in control.trials}
        return tuple(
            (
                row["n"],
                build(
                    Trial,
                    row,
                    cell=Cell(
                        build(Subject, row, commit=build(Commit, row)),
                        self._setup_of(row, by_others=bool(origins[row["n"]])),
                    ),
                    timings=build(Timings, row),
                    fault=next((build(Fault, one) for one in faults[row["n"]]), None),
                    kernel=next((build(Kernel, one) for one in kernels[row["n"]]), None),
                    artifacts=tuple(build(Artifact, one) for one in artifacts[row["n"]]),
                    runs=tuple(runs[row["n"]]),
                    origin=next((build(Origin, one) for one in origins[row["n"]]), None),
                    control=asked.get(row["n"]),
                    era=next((build(Era, one) for one in eras[row["n"]]), None),
                ),
            )
            for row in trials
        )

    def _setup_of(self, row: Row, *, by_others: bool) -> Setup:
        """What a trial was measured on; one of an older version has at most the name of a disk that was alone."""
        if row.get("stack") is not None:
            return build(Setup, row)
        disk = row.get("alone")
        if by_others:
            return Setup(disk or "")
        return replace(self.setup, stack=stack_of(self.setup.stack).alone(disk).text) if disk else self.setup

    def taken(self) -> dict[int, Taken]:
        """Where trials were taken over from, by their number here."""
        rows = self.database.select("taken", "trial") if self.database.has("taken") else []
        return {row["trial"]: build(Taken, row) for row in rows}

    def _runs(self) -> Mapping[int, list[Run]]:
        jobs, caches = self.database.grouped("jobs", "run"), self.database.grouped("caches", "run")
        latencies, disks = self.database.grouped("latencies", "job"), self.database.grouped("disks", "run")
        stops = self.database.grouped("early_stops", "run")
        runs: defaultdict[int, list[Run]] = defaultdict(list)
        for row in self.database.select("runs", "id"):
            cache = {one["moment"]: build(CacheStatus, one) for one in caches[row["id"]]}
            stop = next((build(EarlyStop, named(one, STOP_FIELDS)) for one in stops[row["id"]]), None)
            run = build(
                Run,
                row,
                jobs=tuple(_job(one, latencies) for one in jobs[row["id"]]),
                cache_before=cache.get("before"),
                cache_after=cache.get("after"),
                contention=None if row["other_busy_cores"] is None else build(Contention, row),
                disks=tuple(build(DiskFigures, one) for one in disks[row["id"]]),
                stopped_early=stop,
            )
            # Older records have what dm-cache showed, and not what it counted.
            counters = run.counters or tuple(counted(run.cache_before, run.cache_after))
            runs[row["trial"]].append(replace(run, counters=counters))
        return runs

    def build_tries(self) -> tuple[BuildTry, ...]:
        """What was tried to find the compiler, oldest first."""
        rows = self.database.select("build_tries", "id")
        return tuple(build(BuildTry, row, compiler=build(Compiler, row)) for row in rows)

    def kernel_checks(self) -> tuple[KernelCheck, ...]:
        """Which kernels were built once more, oldest first."""
        rows = self.database.select("kernel_checks", "id") if self.database.has("kernel_checks") else []
        return tuple(build(KernelCheck, row) for row in rows)

    def compilers(self) -> tuple[Compiler, ...]:
        """What the kernels are built with, the first one before the others; empty before that is settled."""
        return tuple(build(Compiler, row) for row in self.database.select("compilers", "n"))

    def infra_faults(self) -> tuple[InfraFaultRow, ...]:
        """Every attempt that failed by our fault, oldest first."""
        return tuple(build(InfraFaultRow, row) for row in self.database.select("infra_faults", "id"))

    def mattering(self) -> frozenset[str] | None:
        """The hashes of the commits that can matter; None while that is not known, or was only counted."""
        with self.database.snapshot():
            relevance = self.relevance()
            rows = self.database.select("mattering") if self.database.has("mattering") else []
        counted = relevance is not None and relevance.can_matter == len(rows)
        return frozenset(row["sha"] for row in rows) if counted else None

    def not_changed(self) -> tuple[NotChanged, ...]:
        """Every such end, oldest first."""
        rows = self.database.select("not_changed", "id") if self.database.has("not_changed") else []
        return tuple(build(NotChanged, row) for row in rows)

    def relevance(self) -> Relevance | None:
        """How many commits of the range can matter; None while that is not known."""
        rows = self.database.select("relevance") if self.database.has("relevance") else []
        return build(Relevance, rows[0]) if rows else None

    def earlier(self) -> Earlier:
        """What runs of the same experiment on this host had read when this one began."""
        rows = self.database.select("earlier") if self.database.has("earlier") else []
        return build(Earlier, rows[0]) if rows else Earlier()

    def set_state(self, state: State, message: str = "", *, out_of_time: bool = False) -> None:
        """Record that this process brought the bisection into ``state``, now; whether its budget allowed no more."""
        self.add(StateRow(now(), state, message, os.getpid(), out_of_time))

    def state(self) -> StateRow | None:
        """The last state recorded; a killed process leaves "running", see :func:`rundir.state_of`."""
        rows = self.database.select("states", "id")
        return build(StateRow, rows[-1]) if rows else None


def _keep(room: Path) -> None:
    """No file system makes it smaller than it is."""
    if room.exists():
        return
    try:
        write_whole(room, os.urandom(_ROOM_BYTES))
    except OSError as error:
        what = f"there is no room for results: {room} needs {_ROOM_BYTES >> 20} MiB ({error.strerror})"
        raise InfraError(what, f"df -h {room.parent}; when there is room: bisector resume") from error


def _job(row: Row, latencies: Mapping[int, list[Row]]) -> JobFigures:
    # An older database that is only read lacks the columns of the CPU.
    cpu = None if row.get("user_percent") is None else build(CpuUse, row)
    return build(JobFigures, row, cpu=cpu, latencies=tuple(build(Latency, one) for one in latencies[row["id"]]))
