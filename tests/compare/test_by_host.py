"""An answer of counted time that is measured by the host's clock, too: as typed, on benches that answer from tables."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bisector.analysis.comparison import DELTA
from bisector.campaign.equipment import Equipment
from bisector.cli import main
from bisector.compare.session import settings_by_host
from bisector.config import Accelerator, ConfirmBy, Settings, options
from bisector.core.errors import InfraError
from bisector.core.events import Listener
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.status.blocks import Blocks, BlockState
from bisector.storage.disks import Bus
from bisector.store.rundir import Index, keep_inputs
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.conftest import site as site  # noqa: PLC0414 - a fixture of this room, too
from tests.bisect.site import Site
from tests.compare import planted
from tests.docs.json_schema import valid

WORDS = ("--clock", "instructions", "--stack", "ram+ext4", "--confirm-by", "host")


@dataclass
class Person:
    """Somebody who searches a site in counted time, with a bench of the host's clock beside it."""

    site: Site
    bench: planted.Bench

    @contextmanager
    def equip(self, settings: Settings, run: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
        if settings.machine.is_counted:
            with self.site._equip(settings, run, repository, tell) as one:
                yield one
        else:
            self.bench.jobs.clear()
            yield Equipment(self.bench, fakes.FakeEquality(repository))

    def start(self, *more: str) -> int:
        return main(["start", "old", "main", *WORDS, *more, "--repo", str(self.site.repository), "--run-dir", "run"])

    def resume(self) -> int:
        return main(["resume", "--quiet", "--run-dir", "run"])

    def blocks(self) -> Blocks:
        with Store.open(Path("run/confirmed/record.sqlite"), readonly=True) as store:
            assert store.plan is not None
            return Blocks.of(store.plan, store)


@pytest.fixture
def person(site: Site, monkeypatch: pytest.MonkeyPatch) -> Person:
    """By instructions c3 makes its parent four times as fast, by the host's clock three times."""
    bench = planted.Bench(value=planted.by_name(site.shas, {"c2": 1_000.0, "c3": 3_000.0}))
    site.engine.also = lambda request, made: fakes.counted(made, request)  # guests that do the same again
    found = Person(site, bench)
    site.engine.setup = options.load({"storage.stack": "ram+ext4"}, directory=Path("/")).settings.setup
    monkeypatch.setattr("bisector.commands.measuring.here", found.equip)
    monkeypatch.chdir(site.home)
    for key, value in (
        ("user.name", "A Person"),
        ("user.email", "person@example.com"),
    ):  # who drafts of letters are from
        site.git("config", key, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(site.home / "cache"))
    return found


def status(output: pytest.CaptureFixture[str]) -> dict[str, Any]:
    output.readouterr()
    assert main(["status", "--json", "--run-dir", "run"]) == 0
    document: dict[str, Any] = valid("status", output.readouterr().out)
    return document


def test_the_answer_is_measured_beside_its_parent(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    assert person.start() == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "is 4.00 times that of the parent" in said
    assert re.search(
        r"by the host's clock [23]\.\d+ times \(95 %: .*?\) in 6 pairs: the change is seen there, too", said
    )
    blocks = person.blocks()
    assert [arm.commit.sha for arm in blocks.plan.arms] == [person.site.shas[one] for one in ("c2", "c3")]
    assert {one.settings.machine.is_counted for one in person.bench.requests if one.settings} == {False}
    assert blocks.plan.extent.delta == DELTA
    shown = status(capsys)["host_clock"]
    assert (shown["pairs"], shown["pairs_needed"], shown["outcome"], shown["state"]) == (6, 6, "faster", "measured")
    assert shown["by_instructions"]["times"] == pytest.approx(4.0)
    assert shown["by_host"]["times"] == pytest.approx(3.0, rel=1e-3)
    assert len(Index().entries()) == 1
    # The benches leave no files for a letter; it is begun once, after the last pair.
    assert said.count("no draft of a report by mail") == 1
    assert said.index("by the host's clock, in 6 pairs, as") < said.index("block 1 of 6")
    assert said.index("block 6 of 6") < said.index("no draft of a report by mail")
    assert main(["report", "--run-dir", "run"]) == 0
    assert "both clocks read.iops of the worst job is 4.00 times" in " ".join(capsys.readouterr().out.split())


def test_a_change_that_cannot_show_there_is_not_measured(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    person.site.engine.fast_iops = 1.03 * person.site.engine.slow_iops
    assert person.start() == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "is 1.030 times" in said
    assert "it was not measured: figures of one kernel are some 6 % apart there" in said
    assert "takes about 35 pairs to show, and at most 10 are measured" in said
    assert not Path("run/confirmed").exists()
    assert said.count("no draft of a report by mail") == 1
    assert status(capsys)["host_clock"]["state"] is None


def test_a_contradiction_is_told_and_changes_no_answer(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    person.bench.value = planted.by_name(person.site.shas, {"c2": 3_000.0, "c3": 1_000.0})
    assert person.start() == 0
    assert "a change the other way, which contradicts the answer" in " ".join(capsys.readouterr().out.split())
    shown = status(capsys)
    assert (shown["state"], shown["first_fixed"]["sha"]) == ("found", person.site.shas["c3"])


def test_what_one_wild_pair_makes_unsure_is_fragile(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    """The first pair says 1/1.05, the five others 1.2: by the interval they differ, by the permutations they do not."""
    c2, c3 = (person.site.shas[one] for one in ("c2", "c3"))

    def value(request: TrialRequest) -> float:
        of_pair = 1.2 if request.n > 2 else 1 / 1.05
        return {c2: 1_000.0, c3: 1_000.0 * of_pair * (1 + 1e-4 * (request.n % 3))}[request.commit.sha]

    person.bench.value = value
    assert person.start("--quiet") == 0
    assert "seen there, too (fragile: the exact test does not show it)" in status(capsys)["host_clock"]["sentence"]


def test_trouble_is_told_and_resume_tries_again(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    person.bench.infra_n = {3: 99}
    assert person.start() == 0
    assert status(capsys)["state"] == "found"
    shown = status(capsys)
    assert shown["host_clock"]["state"] == "stopped"
    assert shown["resume_command"] == f"bisector resume --run-dir {Path('run').absolute()}"
    person.bench.infra_n = {}
    assert person.resume() == 0
    shown = status(capsys)
    assert (shown["host_clock"]["pairs"], shown["resume_command"]) == (6, None)


def test_an_interruption_is_gone_on_with_by_the_run_itself(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: TrialRequest) -> float:
        raise KeyboardInterrupt

    value, person.bench.value = person.bench.value, interrupted
    assert person.start() == 130
    assert f"go on with: bisector resume --run-dir {Path('run').absolute()}\n" in capsys.readouterr().err
    assert status(capsys)["state"] == "found"
    person.bench.value = value
    assert person.resume() == 0
    assert status(capsys)["host_clock"]["pairs"] == 6


def test_a_start_that_fails_there_leaves_the_answer(
    person: Person, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise InfraError("no room is left")

    with monkeypatch.context() as patch:
        patch.setattr("bisector.compare.session.keep_files", fails)
        assert person.start() == 0
    assert not Path("run/confirmed").exists()
    assert "it is yet to be measured" in status(capsys)["host_clock"]["sentence"]
    assert person.resume() == 0
    assert status(capsys)["host_clock"]["pairs"] == 6


@pytest.mark.parametrize("kill_at", [1, 12])
def test_a_process_that_is_killed_loses_nothing(person: Person, kill_at: int) -> None:
    person.bench.kill_at = kill_at
    with pytest.raises(fakes.Killed):
        person.start()
    searched = len(person.site.engine.measured)
    person.bench.kill_at = None
    assert person.resume() == 0
    blocks = person.blocks()
    assert blocks.count(BlockState.DONE) == 6
    assert len(person.site.engine.measured) == searched
    before = len(person.bench.requests)
    assert person.resume() == 0
    assert len(person.bench.requests) == before


def test_it_has_the_time_that_the_search_has_left(person: Person) -> None:
    assert person.start("--quiet", "--budget", "30min") == 0
    assert 0 < (person.blocks().plan.extent.budget_s or 0.0) < 30 * 60


def test_reset_ends_it_along_with_its_run(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    person.bench.kill_at = 4
    with pytest.raises(fakes.Killed):
        person.start()
    assert person.site.git("for-each-ref", "refs/by-bisector")
    assert main(["reset", "--run-dir", "run"]) == 0
    assert person.site.git("for-each-ref", "refs/by-bisector") == ""
    with Store.open(Path("run/confirmed/record.sqlite"), readonly=True) as store:
        last = store.state()
        assert last is not None
        assert (last.state, last.message) == (State.STOPPED, "reset")
    assert main(["reset", "--delete", "--run-dir", "run"]) == 0
    assert not Path("run").exists()


@pytest.mark.parametrize("bus", ["null_blk", "brd"])
def test_by_the_hosts_clock_all_is_as_usual(tmp_path: Path, bus: str) -> None:
    own = tmp_path / "mine.config"
    own.write_text("CONFIG_X=y\n")
    shared = {"kernel.fragments": ["auto", str(own)], "storage.hdd.iops_limit": "500", "storage.hdd.latency": "5ms"}
    counted = {"machine.clock": "instructions", "machine.guests": "2", "bisect.confirm_by": "host"}
    counted |= {f"storage.{disk}.bus": bus for disk in ("ssd", "hdd")}
    recorded = keep_inputs(options.load({**shared, **counted}, directory=tmp_path).settings, tmp_path)
    found, usual = settings_by_host(recorded), options.load(shared, directory=tmp_path).settings
    assert (found.machine, found.storage) == (usual.machine, usual.storage)
    assert (found.machine.accelerator, found.machine.vcpus) == (Accelerator.AUTO, 2)
    assert found.storage.disks["ssd"].guest.bus is Bus.VIRTIO
    assert found.bisect.confirm_by is ConfirmBy.NONE
    assert found.bisect.least_effect == usual.bisect.least_effect == DELTA
    kept = str(tmp_path / "inputs" / "6-mine.config")
    assert found.kernel.fragments == ("tiny", "vm", "storage-lvmcache", kept)
