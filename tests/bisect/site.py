"""A person's clone, and a run in it from its start to its end, on a bench that answers from a table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bisector.bisect import session
from bisector.bisect.session import BisectRequest
from bisector.campaign.equipment import Equipment
from bisector.config import Settings
from bisector.core.errors import Interrupted
from bisector.core.events import Event, Listener
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import DEFAULTS
from tests.git import histories

RUNS = "refs/by-bisector/runs"


class CheckingOut(fakes.FakeExecutor):
    """A bench that has each commit checked out, as a real one, before it knows what it measures."""

    tree: SourceTree

    def measure(self, request: TrialRequest) -> Trial:
        self.tree.checkout(request.commit)
        return super().measure(request)


@dataclass
class Site:
    """A person's clone, in which two branches end at the ends of a range; the culprit is c3."""

    home: Path
    settings: Settings = DEFAULTS
    events: list[Event] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.repository = self.home / "linux"
        self.shas = histories.build(self.repository, histories.linear(6))
        self.names = {sha: name for name, sha in self.shas.items()}
        self.git("branch", "old", self.shas["c0"])
        self.git("checkout", "-q", "--orphan", "elsewhere")
        self.git("commit", "-q", "--allow-empty", "-m", "nothing to do with it")
        self.engine = CheckingOut(lambda sha: self.names.get(sha, "c0") not in {"c0", "c1", "c2"}, culprit="c3")

    def git(self, *words: str) -> str:
        return histories.git(self.repository, *words)

    def begin(self) -> State:
        asked = BisectRequest(self.repository, "old", "main", self.settings)
        with session.begun(asked, self.home / "run", lambda _: None) as (run, store):
            return self._go_on(run, store)

    def resume(self) -> State:
        run = RunDirectory(self.home / "run")
        with run.lock(), Store.open(run.database) as store:
            return self._go_on(run, store)

    def _go_on(self, run: RunDirectory, store: Store) -> State:
        outcome = session.go_on(run, store, self.events.append, self._equip)
        session.let_go(run, store, self.events.append)
        return outcome.state

    @contextmanager
    def _equip(self, settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
        self.engine.tree = SourceTree(repository, run_dir)
        yield Equipment(self.engine, fakes.FakeEquality(repository))

    def held(self) -> Sequence[str]:
        """The commits that are held, by the names of the references that do it."""
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)", RUNS).splitlines()
        return sorted(f"{name.rpartition('/')[2]} {self.names[sha]}" for name, sha in map(str.split, lines))

    def lose_the_branches(self) -> None:
        """The person deletes both branches, and git collects everything that nothing holds."""
        self.git("branch", "-q", "-D", "old", "main")
        self.git("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
        self.git("gc", "-q", "--prune=now")


def interrupted_at(monkeypatch: pytest.MonkeyPatch, site: Site, subject: str) -> None:
    """The person presses Ctrl-C when this commit's sources are checked out."""

    def before(request: TrialRequest) -> None:
        if request.commit.subject == subject:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(site.engine, "before", before)
        with pytest.raises(Interrupted):
            site.begin()
