"""Nights on real git remotes and a bench that answers from a table."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from bisector.campaign.equipment import Equipment
from bisector.campaign.instructions import Crew
from bisector.config import Settings
from bisector.core.errors import InfraError
from bisector.core.events import Event as Told
from bisector.core.events import Listener, Note
from bisector.doctor import checks
from bisector.fleet.hosts import Host, HostRole, Hosts
from bisector.git import transfer
from bisector.git.repository import Repository
from bisector.nightly import night, plan
from bisector.nightly.job_history import JobHistory, replay
from bisector.nightly.night import Mailer, NightContext
from bisector.nightly.plan import NightJob
from bisector.store.log import DATABASE
from bisector.store.nights import (
    BisectionConcluded,
    JobBegun,
    JobFact,
    NightEnding,
    NightEvent,
    NightRecord,
    nights_home,
)
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests import fakes
from tests.bisect.crew import Fleet
from tests.git import histories
from tests.git.conftest import unconfigured as unconfigured  # noqa: PLC0414 - a fixture of this room, too

LENGTH = 12  # commits c0 to c11


@dataclass(frozen=True)
class Truth:
    """A bare repository with all the commits there will be, and their names."""

    path: Path
    shas: dict[str, str]

    @property
    def names(self) -> dict[str, str]:
        return {sha: name for name, sha in self.shas.items()}


def _empty_clone(git_dir: Path, remote: str) -> None:
    (git_dir / "refs" / "heads" / "main").unlink()
    (git_dir / "objects" / "info").mkdir(parents=True)
    (git_dir / "objects" / "pack").mkdir()
    config = f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote "origin"]\n\turl = {remote}\n'
    config += "\tfetch = +refs/heads/*:refs/remotes/origin/*\n[fetch]\n\tprune = true\n\tpruneTags = true\n"
    (git_dir / "config").write_text(config, encoding="utf-8")


@dataclass
class Letters(Mailer):
    """A mailer that keeps everything; ``mute`` lets it fail."""

    directory: Path = Path()
    reports: list[tuple[str, Path]] = field(default_factory=list)
    notices: list[tuple[str, str, str]] = field(default_factory=list)
    mute: bool = False

    def report(self, job: NightJob, run: RunDirectory, store: Store) -> str:
        self._speak()
        self.reports.append((job.name, run.path))
        return "drafted"

    def notice(self, job: NightJob, subject: str, text: str) -> str:
        self._speak()
        self.notices.append((job.name, subject, text))
        return "drafted"

    def _speak(self) -> None:
        if self.mute:
            raise InfraError("no mail server answers")


class Record(NightRecord):
    """A history whose process is killed when it is about to record a fact of this kind for this job."""

    dies: tuple[str, type[JobFact]] | None = None
    job = ""

    def add(self, fact: JobFact) -> None:
        if isinstance(fact, JobBegun):
            self.job = fact.job
        if (self.job, type(fact)) == self.dies:
            raise fakes.Killed
        super().add(fact)


@dataclass
class World:
    """Remotes with their clones, by job; ``slow_from`` says from which commit on each is slow."""

    path: Path
    truth: "Truth"
    names: tuple[str, ...] = ("cache",)
    extra: Mapping[str, str] = field(default_factory=dict)
    slow_from: dict[str, str] = field(default_factory=dict)
    engines: dict[str, fakes.FakeExecutor] = field(default_factory=dict)
    letters: Letters = field(default_factory=Letters)
    told: list[str] = field(default_factory=list)
    budget_hours: float = 8.0
    top: str = ""
    settings: str = 'bisect.strategy = "git"'  # fewer trials
    hosts: Hosts | None = None
    fleet: Fleet | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            shutil.copytree(self.truth.path, self.path / f"{name}.git")
            shutil.copytree(self.truth.path, self.path / name / ".git", ignore=shutil.ignore_patterns("objects"))
            _empty_clone(self.path / name / ".git", f"../{name}.git")
            self.push(name, "c2")
            self.engines[name] = self._engine(name)

    def on_hosts(self, *measuring: str, builders: Sequence[str] = (), gone: Sequence[str] = ()) -> Fleet:
        """From now on the nights are those of a fleet, each of whose hosts is a bench of the first job."""
        roles = {**dict.fromkeys(measuring, HostRole.MEASURE), **dict.fromkeys(builders, HostRole.BUILD)}
        listed = [Host(name=name, ssh=name, role=role) for name, role in roles.items()]
        self.hosts = Hosts(self.path / "hosts.toml", tuple(listed))
        benches = {one.name: self._engine(self.names[0]) for one in listed}
        self.fleet = Fleet(benches, gone=set(gone))
        return self.fleet

    def _engine(self, name: str) -> fakes.FakeExecutor:
        """A bench on which the new side is the slow one."""
        slow, fast = fakes.FAST_IOPS, fakes.SLOW_IOPS
        return fakes.FakeExecutor(lambda sha: not self.fast(name, sha), slow_iops=slow, fast_iops=fast)

    @property
    def shas(self) -> dict[str, str]:
        return self.truth.shas

    def name_of(self, sha: str) -> str:
        return self.truth.names[sha]

    def fast(self, job: str, sha: str) -> bool:
        return int(self.name_of(sha)[1:]) < int(self.slow_from.get(job, "c99")[1:])

    def push(self, job: str, tip: str) -> str:
        """The remote's branch is at this commit now."""
        histories.git(self.path / f"{job}.git", "update-ref", "refs/heads/main", self.shas[tip])
        return self.shas[tip]

    def config(self) -> Path:
        text = f"budget_hours = {self.budget_hours}\n{self.top}\n[settings]\n{self.settings}\n"
        for name in self.names:
            text += f'[[job]]\nname = "{name}"\nrepository = "{name}"\nbranch = "main"\n{self.extra.get(name, "")}\n'
        path = self.path / "nightly.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def slower(self, culprit: str = "c6", tip: str = "c9") -> None:
        """A night, and what was pushed since: from the culprit on everything is slow."""
        self.night()
        self.slow_from["cache"] = culprit
        self.push("cache", tip)

    def night(self, dies: tuple[str, type[JobFact]] | None = None, tip: str = "") -> NightEnding:
        """One process's night, or its death; the branch of the first job is at another tip by then, if one is given."""
        if tip:
            self.push("cache", tip)
        with night.only_one(nights_home()), Record.open(nights_home() / DATABASE) as record:
            record.dies = dies
            context = NightContext(record, self.letters, self._tell, nights_home(), self.equip, self.hosts)
            return night.run(plan.load(self.config()), context)[1]

    def _tell(self, event: Told) -> None:
        if isinstance(event, Note):
            self.told.append(event.text)

    @contextmanager
    def equip(self, settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
        job = repository.top.name
        self.engines[job].culprit = self.slow_from.get(job, "")
        if self.hosts is None or self.fleet is None:
            yield Equipment(self.engines[job], fakes.FakeEquality(repository))
            return
        builders = frozenset(one.name for one in self.hosts.hosts if one.role is HostRole.BUILD)
        crew = Crew(len(self.fleet.benches) - len(builders), builders)
        yield Equipment(self.fleet, fakes.FakeEquality(repository), crew)

    def events(self) -> tuple[NightEvent, ...]:
        with NightRecord.open(nights_home() / DATABASE, readonly=True) as record:
            return record.events()

    def history(self, job: str = "cache") -> JobHistory:
        return replay(event for event in self.events() if event.job == job)

    @property
    def concluded(self) -> BisectionConcluded:
        """The end of the only bisection that has one."""
        (found,) = (one for night in self.history().nights for one in night.concluded)
        return found

    def measured(self, job: str = "cache") -> list[str]:
        """The names of the commits that were measured, in their order."""
        return [self.truth.names.get(sha, "changed") for sha in self.engines[job].measured]

    def classes(self, job: str = "cache") -> list[str]:
        return [str(one.result) if one.result else "-" for one in self.history(job).nights]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "check", lambda *_: None)
    monkeypatch.setattr(transfer, "_BETWEEN_ATTEMPTS_S", (0.0,) * 2)
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    path = tmp_path_factory.mktemp("truth") / "linux.git"
    return Truth(path, histories.build(path, histories.linear(LENGTH), bare=True))


Make = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path, truth: Truth) -> Make:
    """Makes the world of some jobs."""
    return partial(World, tmp_path, truth)


@pytest.fixture
def world(make_world: Make) -> World:
    """One job."""
    return make_world()
