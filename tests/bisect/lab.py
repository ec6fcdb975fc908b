"""A history in a real repository, and a bench that answers from a table: what the tests of the loop have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from bisector.bisect.session import Bisection, GitSide, scope_of
from bisector.campaign.equipment import Equipment
from bisector.campaign.instructions import Crew, Done
from bisector.config import Settings, options
from bisector.core.events import Event, Note, OnHost
from bisector.core.subject import Kind, Mattering
from bisector.core.trial import Trial
from bisector.core.verdict import SideWords, State, Strategy
from bisector.executor.base import Executor
from bisector.git.bisect import Bisect
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.status import from_record
from bisector.status.view import BeliefView, BisectionView
from bisector.store.facts import Budget, Fact, RunHeader
from bisector.store.rundir import GIT_LOG, RunDirectory
from bisector.store.store import Store
from tests import fakes
from tests.git import histories
from tests.git.histories import Node

Bench = TypeVar("Bench", bound=fakes.FakeExecutor)
Recorded = TypeVar("Recorded", bound=Fact)
DEFAULTS = options.load(directory=Path("/")).settings
BY_GIT = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, strategy=Strategy.GIT))
BOTH = pytest.mark.parametrize("settings", [BY_GIT, DEFAULTS], ids=["git", "bayes"])
# Of the new side: so far from the old one that no end is read again before the search.
FAR_IOPS = 40 * fakes.SLOW_IOPS


@dataclass
class Clock:
    """The clock that budgets go by, which passes while something is measured."""

    at_s: float = 1000.0

    def since_boot_s(self) -> float:
        return self.at_s

    def passes(self, seconds: float) -> None:
        self.at_s += seconds


@dataclass
class Lab:
    """A history in a real repository, a store and a run directory; bisects with a fake bench."""

    path: Path
    nodes: Sequence[Node]
    old: str
    new: str
    settings: Settings = BY_GIT
    paths: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    twins: Mapping[str, str] = field(default_factory=dict)
    known: Mattering | None = None
    kept: tuple[str, ...] = ()
    crew: Crew = field(default_factory=Crew)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path.mkdir(exist_ok=True)
        self.shas = histories.build(self.path / "linux", self.nodes)
        self.names = {sha: name for name, sha in self.shas.items()}
        self.above = histories.ancestors(self.nodes)

    def bench(self, kind: type[Bench], new_from: str, **more: object) -> Bench:
        """A bench on which every commit with this one among its ancestors is new; rows go by the names of commits."""
        new = [self.shas[name] for name, above in self.above.items() if new_from in above]
        own = {
            key: {self.shas.get(name, name): value for name, value in row.items()} if isinstance(row, Mapping) else row
            for key, row in more.items()
        }
        return kind(fakes.among(new), **{"culprit": new_from, **own})  # type: ignore[arg-type] # its own fields

    def engine(self, new_from: str, **more: object) -> fakes.FakeExecutor:
        """The usual bench."""
        return self.bench(fakes.FakeExecutor, new_from, **more)

    def far_engine(self, new_from: str, **more: object) -> fakes.FakeExecutor:
        """The same, with ends of which no search reads one again before it begins."""
        return self.engine(new_from, **{"fast_iops": FAR_IOPS, **more})

    def search(self, new_from: str, **more: object) -> fakes.FakeExecutor:
        """The usual bench, after a search on it that has found this commit."""
        engine = self.engine(new_from, **more)
        assert self.finds(engine) == new_from
        return engine

    def finds(self, engine: Executor) -> str:
        """The answer of a search on this bench."""
        return self.found(self.bisect(engine))

    def killed(self, engine: Bench) -> Bench:
        """The bench, after a search on it whose process has died there, as the next one finds it."""
        with pytest.raises(fakes.Killed):
            self.bisect(engine)
        engine.kill_at = engine.kill_at_build = None
        return engine

    def bisect(self, engine: Executor) -> Done:
        """One process's life: from the store's facts to an answer, or to its death."""
        repository = Repository.open(self.path / "linux")
        with self._store() as store:
            old, new = repository.commits((self.shas[self.old], self.shas[self.new]))
            wanted = Range(old, new, self.settings.bisect.first_parent, self.paths)
            with Bisect(repository, self.path, wanted, self.settings.bisect.terms or SideWords.usual(None)) as bisect:
                skips = (*(self.shas[name] for name in self.skips), *store.bisection().skips)
                twins = {self.shas[a]: self.shas[b] for a, b in self.twins.items()}
                kept = frozenset(self.shas[name] for name in self.kept)
                equality = fakes.FakeEquality(repository, twins, self.known, kept)
                git = GitSide(repository, wanted, bisect, equality)
                scope = scope_of(git, store, self.settings, skips, self.crew)
                equipment = Equipment(engine, equality, crew=self.crew)
                outcome = Bisection(scope, store, git, equipment, self.events.append).run()
                told = self.path / GIT_LOG
                self.log = told.read_text(encoding="utf-8") if told.is_file() else ""
        return outcome

    def give(self, seconds: float) -> None:
        """A person gives a budget."""
        with self._store() as store:
            store.add(Budget(seconds, store.spent_s()))

    @property
    def spent_s(self) -> float:
        with self._store() as store:
            return store.spent_s()

    def facts(self, kind: type[Recorded]) -> tuple[Recorded, ...]:
        with self._store() as store:
            return store.facts(kind)

    @property
    def notes(self) -> list[str]:
        """The sentences that people were told, on whatever host."""
        events = (event.event if isinstance(event, OnHost) else event for event in self.events)
        return [event.text for event in events if isinstance(event, Note)]

    def trials(self) -> tuple[Trial, ...]:
        with self._store() as store:
            return tuple(trial for _, trial in store.trials())

    def _store(self) -> Store:
        database = self.path / "record.sqlite"
        if database.exists():
            return Store.open(database)
        row = RunHeader(
            self.path / "linux", self.old, self.shas[self.old], self.new, self.shas[self.new],
            self.paths, self.settings.bisect.first_parent, (), options.to_json(self.settings),
            "0", "2026-01-01T00:00:00Z",
        )  # fmt: skip
        return Store.create(database, row)

    def shown(self, outcome: Done) -> list[str]:
        """The candidates that ``status`` shows of the record."""
        return [self.names[commit.sha] for commit in self.view(outcome).candidates]

    def belief(self, outcome: Done | None = None) -> BeliefView:
        """What is shown of the posterior."""
        found = self.view(outcome).belief
        assert found is not None
        return found

    def view(self, outcome: Done | None = None) -> BisectionView:
        """All that is shown of the record, once it has ended in some way."""
        with self._store() as store:
            if outcome is not None:
                store.set_state(outcome.state, outcome.message)
            return from_record.view(RunDirectory(self.path), store)

    def found(self, outcome: Done) -> str:
        assert outcome.state is State.FOUND
        (commit,) = outcome.candidates
        return self.names[commit.sha]


def lab_of(path: Path, nodes: Sequence[Node], old: str, new: str, **more: object) -> Lab:
    return Lab(path, nodes, old, new, **{"settings": DEFAULTS, **more})  # type: ignore[arg-type] # Lab's own fields


def kinds(lab: Lab) -> list[tuple[Kind, str]]:
    subjects = [trial.subject for trial in lab.trials()]
    return [(one.kind, lab.names[one.changed_by]) for one in subjects if one.changed_by]


def tried(lab: Lab) -> list[str]:
    return [lab.names[trial.commit.sha] for trial in lab.trials() if trial.subject.kind is Kind.COMMIT]
