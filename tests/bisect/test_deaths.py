"""A process may die before and after each of its facts: the next one comes to the same, and measures nothing twice.

git's part is remembered from the unbroken run: its answers depend on what it is asked, and on nothing else. That a git
of flesh and blood is told anew after a death is tested with the strategies.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest

from bisector.bisect.session import Bisection, GitSide, scope_of
from bisector.bisect.state import GitState, Scope, ShowGit
from bisector.campaign.equipment import Equipment
from bisector.campaign.instructions import Crew, Done, Question
from bisector.config import Settings, options
from bisector.core.subject import Mattering, NotChanged
from bisector.core.trial import Control
from bisector.core.verdict import SideWords, Strategy
from bisector.git.bisect import Bisect
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.store.facts import BuildTry, Compilers, Ended, Fact, InfraFault, NumberedTrial, RunHeader, Submitted
from bisector.store.store import Store
from tests import fakes
from tests.bisect.lab import DEFAULTS, FAR_IOPS
from tests.git import histories
from tests.mortal import Mortal, moments

NODES = [
    replace(node, files={"drivers/md/dm.c": node.name} if node.name in ("c6", "c8") else {})
    for node in histories.linear(12)
]
OLD, NEW, CULPRIT = "c0", "c11", "c6"


@dataclass(frozen=True)
class Story:
    """What goes wrong on the way, and how often facts are added then, which the tests see to.

    The first compiler does not build an end, and hosts are busy; ``faults`` are of the kernels, ``infra`` says how many
    of the first attempts at a commit fail. No commit reverts when others have touched its lines.
    """

    strategy: Strategy
    times: int
    faults: Mapping[str, object] = field(default_factory=dict)
    infra: Mapping[str, object] = field(default_factory=dict)


STORIES = {
    # An end without the culprit cannot be had; its parent breaks the network each time.
    "bayes": Story(Strategy.BAYES, 41, {"c7": fakes.PANIC}, {"c11": 1, "c6": 1, "c5": 99}),
    # A panic, a network that comes back, and two commits that never reach it.
    "git": Story(Strategy.GIT, 46, {"c7": fakes.PANIC}, {"c11": 1, "c6": 1, "c8": 99, "c9": 99}),
    # So many faults in a row that a sound end is tried again, and then nothing but skips.
    "skips": Story(Strategy.GIT, 42, {f"c{n}": fakes.PANIC for n in range(4, 9)}),
}
BUSY: Mapping[str, object] = {"c0": 1, "c5": 1}


@dataclass
class Remembered:
    """Git's side of a bisection, whose answers are asked for once."""

    side: GitSide
    answers: dict[object, object] = field(default_factory=dict)
    states: dict[ShowGit, tuple[GitState, str]] = field(default_factory=dict)
    shown: str = ""

    def answer(self, question: Question[object]) -> object:
        if question not in self.answers:
            self.answers[question] = self.side.answer(question)
        return self.answers[question]

    def show(self, show: ShowGit) -> GitState:
        if show not in self.states:
            self.states[show] = self.side.show(show), self.side.log()
        state, self.shown = self.states[show]
        return state

    def log(self) -> str:
        return self.shown


@dataclass(frozen=True)
class Unbroken:
    """A run that nobody killed."""

    done: Done
    measured: Counter[str]
    added: list[tuple[type[Fact], ...]]


@dataclass
class World:
    """A range in a real repository, and the bench that measures it."""

    story: Story
    scope: Scope
    git: Remembered
    shas: Mapping[str, str]
    row: RunHeader
    unbroken: Unbroken = field(init=False)

    def executor(self) -> fakes.FakeExecutor:
        new = [self.shas[f"c{n}"] for n in range(int(CULPRIT[1:]), len(NODES))]
        rows = {"faults": self.story.faults, "infra": self.story.infra, "busy": BUSY}
        table = {key: {self.shas[name]: value for name, value in row.items()} for key, row in rows.items()}
        return fakes.FakeExecutor(
            fakes.among(new),
            culprit=CULPRIT,
            fast_iops=FAR_IOPS,
            installed=(fakes.GCC, fakes.OLD_GCC),
            does_not_build={("gcc", self.shas[NEW]): fakes.BUILD_ERROR},
            **table,  # type: ignore[arg-type] # rows of the right type each
        )

    def life(
        self, run_dir: Path, executor: fakes.FakeExecutor, dies_at: int | None = None, *, before: bool = True
    ) -> tuple[Done, list[tuple[type[Fact], ...]]]:
        """One process's life to the answer, with the facts that it added; or to its death."""
        path = run_dir / "record.sqlite"
        with Mortal.open(path) if path.exists() else Mortal.create(path, self.row) as store:
            store.log.connection.execute("PRAGMA synchronous = OFF")  # nobody pulls the plug
            store.added, store.dies_at, store.before = [], dies_at, before
            trials = store.trials()
            scope = replace(self.scope, run_dir=run_dir, forgiven=trials[-1][0] if trials else 0)
            equipment = Equipment(executor, fakes.FakeEquality(self.git.side.repository))
            bisection = Bisection(scope, store, self.git, equipment, lambda event: None)  # type: ignore[arg-type] # as it remembers it
            return bisection.run(), store.added


@contextmanager
def world_of(story: Story, path: Path) -> Iterator[World]:
    shas = histories.build(path / "linux", NODES)
    settings: Settings = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, strategy=story.strategy))
    row = RunHeader(path / "linux", OLD, shas[OLD], NEW, shas[NEW], (),
                       False, (), options.to_json(settings), "0", "2026-01-01T00:00:00Z")  # fmt: skip
    mattering = Mattering(len(NODES) - 1, frozenset(set(shas.values()) - {shas["c2"]}))
    repository = Repository.open(path / "linux")
    old, new = repository.commits((shas[OLD], shas[NEW]))
    wanted = Range(old, new)
    (path / "unbroken").mkdir()
    with (
        Bisect(repository, path, wanted, SideWords()) as bisect,
        Store.create(path / "unbroken" / "record.sqlite", row) as store,
    ):
        side = GitSide(repository, wanted, bisect, fakes.FakeEquality(repository, known=mattering))
        world = World(story, scope_of(side, store, settings, (), Crew()), Remembered(side), shas, row)
        executor = world.executor()
        done, added = world.life(path / "unbroken", executor)
        world.unbroken = Unbroken(done, Counter(executor.measured), added)
        yield world


Worlds = Callable[[str], World]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """The world of each story, in which one run has ended that nobody killed."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(world_of(STORIES[name], tmp_path_factory.mktemp(name))))


@pytest.mark.parametrize("name", STORIES)
def test_the_unbroken_run_has_every_kind_of_fact(worlds: Worlds, name: str) -> None:
    world = worlds(name)
    unbroken = world.unbroken
    kinds = {kind for facts in unbroken.added for kind in facts}
    wanted = {Submitted, Ended, NumberedTrial, Control, BuildTry, Compilers, Mattering}
    wanted |= {InfraFault} if world.story.infra else set()
    wanted |= {NotChanged} if world.story.strategy is Strategy.BAYES else set()
    assert kinds == wanted
    assert world.shas[CULPRIT] in {commit.sha for commit in unbroken.done.candidates}
    assert len(unbroken.added) == world.story.times


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("name", "dies_at"),
    [one for name, story in STORIES.items() for one in moments(story.times, name)],
)
def test_killed_at_any_fact_it_comes_to_the_same_answer(
    worlds: Worlds, tmp_path: Path, name: str, dies_at: int, before: bool
) -> None:
    world = worlds(name)
    unbroken = world.unbroken
    executor = world.executor()
    with pytest.raises(fakes.Killed):
        world.life(tmp_path, executor, dies_at, before=before)
    executor.jobs.clear()  # what it had in flight is gone with it
    done, _ = world.life(tmp_path, executor)
    assert done == unbroken.done
    # What was measured and not on record yet is measured again, and nothing else.
    lost = before and NumberedTrial in unbroken.added[dies_at - 1]
    again = Counter(executor.measured) - unbroken.measured
    assert again.total() <= (1 if lost else 0)
    with Store.open(tmp_path / "record.sqlite") as store:
        numbers = [n for n, _ in store.trials()]
        assert numbers == list(range(1, len(numbers) + 1))
        assert store.in_flight() == ()
        assert len(executor.measured) - lost <= len(numbers)
