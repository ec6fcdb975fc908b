"""A repository, a run directory, and a bench that answers as planted: comparisons without any guest."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from bisector.campaign.equipment import MeasurerFactory
from bisector.campaign.instructions import Done
from bisector.cli import main
from bisector.compare import session
from bisector.compare.plan import CompareRequest, planned
from bisector.config import Settings, options
from bisector.core.errors import UserError
from bisector.core.events import Event
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.status.blocks import Blocks
from bisector.store.facts import Extent, Fact, Plan
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests import fakes
from tests.compare import planted
from tests.git import histories

Recorded = TypeVar("Recorded", bound=Fact)


def settings(stack: str = "lvmcache", **more: str | list[str]) -> Settings:
    flags: dict[str, str | list[str]] = {
        "storage.stack": stack,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return options.load(flags, directory=Path("/")).settings


@dataclass
class Desk:
    """A repository, a run directory, and a bench that answers as planted."""

    place: Path
    shas: dict[str, str]
    bench: planted.Bench = field(default_factory=planted.Bench)
    told: list[Event] = field(default_factory=list)

    @property
    def equip(self) -> MeasurerFactory:
        return fakes.equipped(self.bench)

    def asked(self, *names: str, stacks: tuple[str, ...] = ("lvmcache", "hdd"), runs: int = 2, placebo: bool = False,
              patches: tuple[str, ...] = (), parameters: tuple[str, ...] = (),
              fragments: tuple[str, ...] = (), **more: str | list[str]) -> CompareRequest:  # fmt: skip
        revs = tuple(self.shas.get(name, name) for name in names)
        each = tuple(settings(stack, **more) for stack in stacks)
        return CompareRequest(
            self.place / "linux", revs, each, Extent(7, runs), placebo, patches, parameters, fragments
        )

    def begin(self, *names: str, **how: object) -> RunDirectory:
        with session.begun(self.asked(*names, **how), self.place / "run", lambda _: None) as (run, _):  # type: ignore[arg-type] # as asked() takes them
            return run

    def go_on(self) -> Done:
        self.bench.jobs.clear()
        run = RunDirectory.open(self.place / "run")
        with run.lock(), Store.open(run.database) as store:
            done = session.go_on(run, store, self.told.append, self.equip)
            session.let_go(run, store, self.told.append)
            return done

    def blocks(self) -> Blocks:
        with Store.open(self.place / "run" / "record.sqlite", readonly=True) as store:
            assert store.plan is not None
            return Blocks.of(store.plan, store)

    def facts(self, kind: type[Recorded]) -> tuple[Recorded, ...]:
        with Store.open(self.place / "run" / "record.sqlite", readonly=True) as store:
            return store.facts(kind)

    def state(self) -> tuple[State, str]:
        """How the run stands by its record, and what is said of that."""
        with Store.open(self.place / "run" / "record.sqlite", readonly=True) as store:
            last = store.state()
            assert last is not None
            return last.state, last.message

    def held(self) -> set[str]:
        """The commits that references of runs keep from garbage collection."""
        return set(
            histories.git(self.place / "linux", "for-each-ref", "--format=%(objectname)", "refs/by-bisector").split()
        )

    def plan(self, *names: str, **how: object) -> Plan:
        repository = Repository.open(self.place / "linux")
        return planned(repository, self.asked(*names, **how))  # type: ignore[arg-type] # as asked() takes them

    def refused(self, *names: str, **how: object) -> str:
        with pytest.raises(UserError) as caught:
            self.begin(*names, **how)
        assert not (self.place / "run").exists()
        return caught.value.message


def without_md(desk: Desk) -> str:
    """A commit whose tree has no dm-cache."""
    return changed(desk, "drivers/Kconfig", "config BLK_DEV_LOOP\n\tbool\n")


def changed(desk: Desk, path: str, text: str) -> str:
    """A commit on top of main with another text in a file."""
    place = desk.place / "linux"
    histories.git(place, "checkout", "-q", "-f", "main")
    (place / path).write_text(text)
    histories.git(place, "add", path)
    histories.git(place, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", f"another {path}")
    return histories.git(place, "rev-parse", "HEAD")


def compare(desk: Desk, *words: str, code: int = 0) -> None:
    """The command as it is typed at the desk."""
    assert main(["compare", *words, "--repo", str(desk.place / "linux")]) == code


def shown(output: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints."""
    output.readouterr()
    assert main(list(words)) == 0
    return output.readouterr().out
