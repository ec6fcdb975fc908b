"""``bisector next-step``: real git, a bench that answers from a table, and the readings of 2017 in a small history."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.bisect import session
from bisector.bisect.session import BisectRequest, next_step
from bisector.bisect.state import Aim
from bisector.campaign.equipment import Equipment
from bisector.campaign.instructions import Done
from bisector.cli import main
from bisector.config import Settings, options
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Listener
from bisector.core.json_document import text as json_text
from bisector.core.subject import Commit, Kind
from bisector.core.trial import Artifact, Trial
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.search.noise import EarlierSearches
from bisector.status import from_record
from bisector.status.view import BisectionView
from bisector.storage.stack import lone_disk
from bisector.store.facts import Compilers, RunHeader
from bisector.store.rundir import Index, IndexEntry, RunDirectory, collect, trial_directory
from bisector.store.store import Store
from tests import fakes
from tests.bisect.lab import DEFAULTS
from tests.docs.json_schema import valid
from tests.examples import EARLY, baseline, cell
from tests.git.histories import Node, build, chain, linear
from tests.report.examples import footer_text

AT_20000 = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, threshold="20000"))

# The kernels of the recorded bisect as far as they tell anything; x1 to x3 were not measured then.
HISTORY: tuple[Node, ...] = (
    *linear(1),
    Node("2ea659a9ef48", ("c0",)),
    Node("243bfd2c052d", ("2ea659a9ef48",)),
    Node("78c45607b909", ("2ea659a9ef48",)),
    *chain("x", 3, "78c45607b909"),
    Node("4d44ec5ab751", ("x3",)),
    Node("6cf4cc8f8b3b", ("4d44ec5ab751",)),
    Node("701e03e4e180", ("6cf4cc8f8b3b",)),
    Node("a58a260fd96b", ("701e03e4e180", "243bfd2c052d")),
    Node("5518b69b7668", ("a58a260fd96b",)),
)
# Least job means of the full-cache runs, in the order of measuring. Nobody knows the commit of the first kernel.
READINGS = {
    "c0": 730.0,
    "5518b69b7668": 20_077.0,
    "a58a260fd96b": 20_089.0,
    "243bfd2c052d": 738.0,
    "701e03e4e180": 21_616.0,
    "78c45607b909": 694.0,
    "6cf4cc8f8b3b": 20_877.0,
    "4d44ec5ab751": 6_120.0,
    "2ea659a9ef48": 689.0,
}
SECOND = {"x1": 700.0, "x2": 6_000.0, "x3": 6_100.0}


@dataclass
class Site:
    """A repository, a run with readings, and the bench on which another one goes on."""

    home: Path
    shas: Mapping[str, str]
    readings: Mapping[str, float]
    settings: Settings = AT_20000
    old: str = "c0"
    new: str = "5518b69b7668"
    measured: list[str] = field(default_factory=list)

    def first_run(self, state: State = State.FOUND) -> RunDirectory:
        run = RunDirectory(self.home / "first")
        run.path.mkdir()
        row = RunHeader(
            self.home / "linux", self.old, self.shas[self.old], self.new, self.shas[self.new],
            (), False, (), options.to_json(self.settings), "0", "2026-01-01T00:00:00Z",
        )  # fmt: skip
        with Store.create(run.database, row) as store:
            for n, (name, iops) in enumerate(self.readings.items(), 1):
                store.add_trials([self._trial(run, n, name, iops)])
            store.add(Compilers((fakes.GCC,)))
            store.set_state(state, "found it")
        return run

    def _trial(self, run: RunDirectory, n: int, name: str, iops: float) -> Trial:
        sha = self.shas[name]
        made = fakes.trial(Commit(sha, sha, name, "2017-05-14T21:54:33-04:00"))
        jobs = tuple(replace(job, iops_mean=max(iops, job.iops_mean)) for job in made.runs[-1].jobs[1:])
        last = replace(made.runs[-1], jobs=(replace(made.runs[-1].jobs[0], iops_mean=iops), *jobs))
        directory = trial_directory(run.path, n, made.commit)
        (directory / "full").mkdir()
        (directory / "full/fio.json").write_text(f"{iops}\n")
        artifacts = collect(directory, run.path)
        return replace(made, runs=(*made.runs[:-1], last), artifacts=artifacts, host=fakes.HOST)

    @contextmanager
    def equip(self, settings: Settings, run_dir: Path, repository: Repository, tell: Listener) -> Iterator[Equipment]:
        iops = {self.shas[name]: figure for name, figure in {**READINGS, **SECOND}.items()}
        engine = fakes.FakeExecutor(lambda sha: iops[sha] > 2_000, culprit="x2", slow_iops=700.0, fast_iops=6_000.0)
        yield Equipment(engine, fakes.FakeEquality(repository))
        names = {sha: name for name, sha in self.shas.items()}
        self.measured += [names[sha] for sha in engine.measured if sha in names]  # not the ends without a commit

    def asked(self, run: RunDirectory) -> BisectRequest:
        with Store.open(run.database, readonly=True) as store:
            return next_step(run, store)

    def view(self, run: RunDirectory) -> BisectionView:
        with Store.open(run.database, readonly=True) as store:
            return from_record.view(run, store)

    def go_on(self, run: RunDirectory) -> tuple[Done, RunDirectory, BisectionView]:
        with session.begun(self.asked(run), self.home / "second", lambda _: None) as (new, new_store):
            outcome = session.go_on(new, new_store, lambda event: None, self.equip)
            return outcome, new, from_record.view(new, new_store)

    def range(self, run: RunDirectory) -> tuple[str, str]:
        names, asked = {sha: name for name, sha in self.shas.items()}, self.asked(run)
        return names[asked.old], names[asked.new]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("bisector.doctor.checks.check", lambda *_: None)
    return Site(tmp_path, build(tmp_path / "linux", HISTORY), READINGS)


def test_the_second_step_of_2017_is_found_with_what_is_measured(site: Site) -> None:
    outcome, new, view = site.go_on(site.first_run())
    assert outcome.state is State.FOUND
    assert [commit.subject for commit in outcome.candidates] == ["x2"]
    assert set(site.measured) <= set(SECOND)
    assert len(set(site.measured)) == len(site.measured)
    assert view.threshold == pytest.approx((738 * 6_120) ** 0.5)
    with Store.open(new.database, readonly=True) as store:
        assert store.compilers() == (fakes.GCC,)


def without(*names: str) -> dict[str, float]:
    return {name: iops for name, iops in READINGS.items() if name not in names}


BELOW_AN_OLD_ONE = {"78c45607b909": 6_120.0, "4d44ec5ab751": 694.0, "701e03e4e180": 6_120.0}


@pytest.mark.parametrize(
    ("readings", "ends"),
    [
        pytest.param(READINGS, ("78c45607b909", "4d44ec5ab751"), id="the nearest that are measured"),
        pytest.param(without("78c45607b909"), ("2ea659a9ef48", "4d44ec5ab751"), id="not an old commit aside"),
        pytest.param(
            {"c0": 730.0, "5518b69b7668": 20_077.0, **BELOW_AN_OLD_ONE},
            ("4d44ec5ab751", "701e03e4e180"),
            id="not a new commit below an old one",
        ),
        pytest.param(
            {"c0": 730.0, "5518b69b7668": 20_077.0, "243bfd2c052d": 6_120.0},
            ("c0", "243bfd2c052d"),
            id="an end of the run where nothing is nearer",
        ),
    ],
)
def test_the_ends_are_those_around_the_other_step(
    site: Site, readings: dict[str, float], ends: tuple[str, str]
) -> None:
    site.readings = readings
    assert site.range(site.first_run()) == ends


def test_an_end_that_was_only_stopped_early_is_measured_whole(site: Site) -> None:
    """Its verdict is that of a commit with the same kernel, whose only run was stopped: no threshold comes from it."""
    aside = ("4d44ec5ab751", "6cf4cc8f8b3b")
    site.readings = without(*aside) | {"701e03e4e180": 6_120.0}
    run = site.first_run()
    end, alike = (Commit(site.shas[name], site.shas[name], name, "2017-05-14T21:54:33-04:00") for name in aside)
    with Store.open(run.database) as store:
        for trial in (
            fakes.trial(alike, 5_000.0, stopped=replace(EARLY, bound=4_000.0)),
            fakes.trial(end, content=alike.sha, same_as=alike.sha),
        ):
            store.add_trials([replace(trial, artifacts=())])
    assert main(["status", "--json", "--run-dir", str(run.path)]) == 0
    assert site.range(run) == ("78c45607b909", "4d44ec5ab751")
    outcome, _, _ = site.go_on(run)
    assert [commit.subject for commit in outcome.candidates] == ["x2"]
    assert site.measured[0] == "4d44ec5ab751"


def test_trials_come_with_their_files_and_say_where_from(site: Site) -> None:
    run = site.first_run()
    _, new, view = site.go_on(run)
    taken = [trial for trial in view.trials if trial.taken_from is not None]
    assert [trial.taken_from.n for trial in taken if trial.taken_from] == list(range(1, 10))
    assert {trial.taken_from.run_dir for trial in taken if trial.taken_from} == {str(run.path)}
    artifacts: list[Artifact] = [artifact for trial in taken for artifact in trial.trial.artifacts]
    assert [float((new.path / one.path).read_text()) for one in artifacts] == list(READINGS.values())
    document = valid("status", json_text(view))
    assert document["trials"][0]["taken_from"] == {"run_dir": str(run.path), "n": 1}
    assert document["trials"][-1]["taken_from"] is None
    assert "9 taken over from another run" in footer_text(view, 200)


def test_disks_alone_are_taken_over_and_are_no_trials(site: Site) -> None:
    run = site.first_run()
    with Store.open(run.database) as store:
        store.add_trials([replace(baseline("hdd", 500.0), artifacts=())])
    _, _, view = site.go_on(run)
    assert [lone_disk(one.setup.stack) for one in view.baselines] == ["hdd"]
    assert sum(one.taken_from is not None for one in view.trials) == len(READINGS)


def test_an_end_without_a_commit_stays_with_its_run(site: Site) -> None:
    run = site.first_run()
    made = fakes.trial(Commit("e" * 40, "f" * 40, 'Revert "x2"', "2017-05-14T21:54:33-04:00"), 6_500.0)
    with Store.open(run.database) as store:
        store.add_trials([replace(made, cell=cell(made.commit, Kind.REVERTED, site.shas["x2"]))])
    inherited = site.asked(run).inherited
    assert inherited is not None
    assert len(inherited.trials) == len(READINGS)
    assert site.range(run) == ("78c45607b909", "4d44ec5ab751")


def test_the_end_of_a_run_says_that_there_is_another_step(site: Site) -> None:
    run = site.first_run()
    view = site.view(run)
    document = valid("status", json_text(view))
    assert document["levels"] == [
        {"low": 689.0, "high": 738.0, "trials": 4},
        {"low": 6_120.0, "high": 6_120.0, "trials": 1},
        {"low": 20_077.0, "high": 21_616.0, "trials": 4},
    ]
    assert document["other_steps"] == [pytest.approx(2125.2, abs=0.1)]
    assert document["next_step_command"] == f"bisector next-step --run-dir {run.path}"
    assert document["message"].endswith("so there is another step, at 2,125 IOPS")
    text = footer_text(view, 200)
    assert "689 to 738 IOPS (4 trials), 6,120 IOPS (1 trial), 20,077 to 21,616 IOPS (4 trials)" in text
    assert text.rstrip().endswith(f"bisector next-step --run-dir {run.path}")


def test_what_is_taken_over_was_not_read_before_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials of the first run teach the second one its rates: as its own, and not once more as another run's."""
    monkeypatch.setattr("bisector.bisect.session.host_id", lambda: fakes.HOST)
    run = site.first_run()
    with Store.open(run.database) as store:
        for n in (20, 21):
            store.add_trials([site._trial(run, n, site.new, 20_900.0)])
        asked = next_step(run, store)
    Index().add(IndexEntry(str(run.path), str(asked.repository), "c0", "new", "2026-01-01T00:00:00Z"))
    with session.begun(asked, site.home / "second", lambda _: None) as (_, store):
        assert store.earlier() == EarlierSearches()
    another = replace(asked, inherited=None)
    with session.begun(another, site.home / "third", lambda _: None) as (_, store):
        assert store.earlier() == EarlierSearches(better=2, searches=1)


def test_two_levels_have_no_next_step(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.readings = without("4d44ec5ab751")
    run = site.first_run()
    view = site.view(run)
    assert not view.next_step_command
    assert view.message == "found it"
    assert main(["next-step", "--run-dir", str(run.path)]) == 2
    assert "have no other step: they lie at 689 to 738 IOPS, 20,077 to 21,616 IOPS" in capsys.readouterr().err


def test_a_run_that_goes_on_is_left_alone(site: Site) -> None:
    run = site.first_run()
    with run.lock(), Store.open(run.database) as store:
        store.set_state(State.RUNNING)
        with pytest.raises(UserError, match="still running"):
            next_step(run, store)


def test_a_file_that_is_gone_is_said_and_nothing_is_begun(site: Site) -> None:
    run = site.first_run()
    next(run.path.glob("trials/0003-*/full/fio.json")).unlink()
    with pytest.raises(InfraError, match="cannot take over"):
        site.go_on(run)
    assert not (site.home / "second").exists()


def test_ends_that_were_calibrated_are_not_measured_again(site: Site) -> None:
    """What ``plan --calibrate`` does, and ``resume`` after it."""
    settings = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, calibrate=2))
    asked = BisectRequest(site.home / "linux", site.shas["x1"], site.shas["x3"], settings)
    with session.begun(asked, site.home / "calibrated", lambda _: None) as (run, store):
        outcome = session.go_on(run, store, lambda event: None, site.equip, Aim.ENDS)
        assert outcome.state is State.STOPPED
        assert site.measured == ["x1", "x3", "x1", "x3"]
        assert from_record.view(run, store).resume_command
        site.measured.clear()
        outcome = session.go_on(run, store, lambda event: None, site.equip)
        assert [commit.subject for commit in outcome.candidates] == ["x2"]
        assert "x1" not in site.measured[:1]
        assert site.measured.count("x3") == 0
