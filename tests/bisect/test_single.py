"""Trials of single commits: how often an attempt is made, what is recorded and told of it; and `bisector test`."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bisector.campaign.equipment import Equipment
from bisector.campaign.single import SingleTrials
from bisector.cli import main
from bisector.config import RetryPolicy, options
from bisector.core.errors import UserError
from bisector.core.events import Event, Note
from bisector.core.trial import Artifact, AttemptFailed, Trial
from bisector.executor.base import Failed, Finished, Job, of_its_job
from bisector.store.facts import Ended, Ending, InfraFault, RunHeader, Submitted, Work
from bisector.store.rundir import TRIALS, RunDirectory
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.examples import alone, cell, commit
from tests.fakes import FAST_IOPS, SLOW_IOPS, FakeExecutor
from tests.git import histories
from tests.recorded_run import RecordedRun, found

REQUEST = TrialRequest(1, cell(commit(1)), {})
POLICY = RetryPolicy()


@dataclass
class Log:
    """What was recorded, told and waited for."""

    store: Store
    told: list[Event] = field(default_factory=list)

    def trial(self, executor: fakes.FakeExecutor) -> Trial:
        equipment = Equipment(executor, None)  # type: ignore[arg-type] # nobody asks for kernels
        settings = options.from_json(self.store.bisection().settings)
        *_, (_, trial) = (
            SingleTrials(self.store, settings, equipment, self.told.append)
            .settle(REQUEST.commit, "tip", fakes.HOST)
            .trials
        )
        return trial

    @property
    def faults(self) -> Sequence[InfraFault]:
        return self.store.facts(InfraFault)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    row = RunHeader.of(options.load({}, directory=tmp_path).settings, tmp_path)
    with Store.create(tmp_path / "record.sqlite", row) as store:
        yield Log(store)


def of_another(sha: str) -> Callable[[Trial], Trial]:
    return lambda trial: replace(trial, cell=cell(replace(trial.commit, sha=sha)))


def numbered(n: int) -> Callable[[Trial], Trial]:
    file = Artifact("console.log", f"{TRIALS}/{n:04d}-{'0' * 12}/console.log", "ab" * 32, 7)
    return lambda trial: replace(trial, artifacts=(file,))


def elsewhere(trial: Trial) -> Trial:
    return replace(trial, cell=replace(trial.cell, setup=alone("hdd")))


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda trial: trial, ""),
        (numbered(1), ""),
        (lambda trial: replace(trial, same_kernel_as="d" * 40), ""),
        (of_another("e" * 40), "answered with eeeeeeeeeeee on fio"),
        (elsewhere, "fio(partial.fio) on hdd+ext4"),
        (numbered(2), "trial 2"),
    ],
)
def test_a_result_is_held_against_its_job(change: Callable[[Trial], Trial], got: str) -> None:
    came = Finished(7, "bench1", change(fakes.trial(REQUEST.commit)), "now")
    news = of_its_job(came, 1, REQUEST.cell)
    assert isinstance(news, Failed) == bool(got)
    if isinstance(news, Failed):
        assert (news.id, news.host) == (7, "bench1")
        assert isinstance(news.error, AttemptFailed)
        assert got in news.error.message


def failing(times: int) -> fakes.FakeExecutor:
    return fakes.FakeExecutor(lambda sha: True, infra={REQUEST.commit.sha: times})


def test_the_policy_is_the_settings_own() -> None:
    settings = options.load({"bisect.max_repeats": "7"}).settings
    assert settings.retries == RetryPolicy((5.0, 60.0, 300.0), 2, 2, 7, 3)


def test_waits_grow_to_minutes_and_are_told(log: Log) -> None:
    executor = failing(99)
    with pytest.raises(AttemptFailed, match="network went away"):
        log.trial(executor)
    assert list(POLICY.waits_s) == [5.0, 60.0, 300.0]
    assert executor.waited_s == pytest.approx(POLICY.waits_s, abs=3)
    assert [fault.message for fault in log.faults] == ["the network went away"] * POLICY.attempts
    notes = [event.text for event in log.told if isinstance(event, Note)]
    assert notes[-1] == "not the kernel's fault, trying again in 300 s: the network went away"


def test_each_attempt_is_on_record_under_a_number_of_its_own(log: Log) -> None:
    executor = failing(1)
    log.trial(executor)
    assert log.trial(executor).host == fakes.HOST
    assert [(n, trial.commit) for n, trial in log.store.trials()] == [(1, REQUEST.commit), (2, REQUEST.commit)]
    endings = [one.ending for one in log.store.facts(Ended)]
    assert endings == [Ending.FAILED, Ending.DONE, Ending.DONE]
    assert {one.host for one in log.store.facts(Submitted)} == {fakes.HOST}
    assert [one.message for one in log.store.facts(InfraFault)] == ["the network went away"]


def test_what_is_interrupted_stays_under_way(log: Log) -> None:
    """The next process says that it is lost."""
    cancelled = list[int]()

    class Watched(fakes.FakeExecutor):
        def cancel(self, id_: int) -> None:
            cancelled.append(id_)

    def interrupted(request: TrialRequest) -> None:
        raise KeyboardInterrupt

    executor = Watched(lambda sha: True, before=interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.trial(executor)
    assert not cancelled
    assert [one.fact.n for one in log.store.in_flight()] == [1]


def test_a_job_that_cannot_be_sent_is_not_under_way(log: Log) -> None:
    def refuses(job: Job, host: str = "") -> None:
        raise UserError("the input files have 65 MiB, and 64 go to a host at most")

    executor = fakes.FakeExecutor(lambda sha: True)
    executor.submit = refuses  # type: ignore[method-assign] # an executor that cannot read a file, say
    with pytest.raises(UserError, match="65 MiB"):
        log.trial(executor)
    assert [one.ending for one in log.store.facts(Ended)] == [Ending.FAILED]
    assert not log.store.in_flight()


def test_what_is_no_trouble_of_ours_is_raised_at_once(log: Log) -> None:
    executor = fakes.FakeExecutor(lambda sha: True, refused={REQUEST.commit.sha: 1})
    with pytest.raises(UserError, match="root disk is full"):
        log.trial(executor)
    assert (log.faults, executor.waited_s) == ((), [])


# `bisector test`


@dataclass
class Desk:
    """A repository, a directory for the trials, and a bench that answers from a table."""

    place: Path
    shas: dict[str, str]
    output: pytest.CaptureFixture[str]
    bench: FakeExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.bench = FakeExecutor(fakes.among((self.shas["c3"], self.shas["c4"])))

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.place / "run")

    def test(self, name: str, *words: str, run_dir: str = "run") -> int:
        self.output.readouterr()
        where = ("--repo", str(self.place / "linux"), "--run-dir", str(self.place / run_dir))
        return main(["test", self.shas.get(name, name), *where, *words])

    def refused(self, name: str, *words: str, run_dir: str = "run") -> str:
        assert self.test(name, *words, run_dir=run_dir) == 2
        return self.output.readouterr().err

    def shown(self, *words: str) -> dict[str, Any]:
        self.output.readouterr()
        assert main([*words, "--json", "--run-dir", str(self.run.path)]) == 0
        document: dict[str, Any] = json.loads(self.output.readouterr().out)
        return document


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path, histories.build(tmp_path / "linux", histories.linear(5)), capsys)
    monkeypatch.setattr("bisector.commands.measuring.here", fakes.equipped(made.bench))
    monkeypatch.setattr("bisector.commands.measure.checks.check", lambda *_: None)
    return made


def test_a_commit_that_lacks_an_option_of_the_stack_is_refused(desk: Desk) -> None:
    """By the stack of the settings that hold, which are those on record in the directory."""
    nodes = (histories.Node("bare", files={**histories.KERNEL_TREE, "drivers/Kconfig": "config MD\n"}),)
    desk.shas |= histories.build(desk.place / "linux", nodes)
    said = desk.refused("bare", run_dir="other")
    assert "(bare) has no CONFIG_BLK_DEV_DM, CONFIG_DM_CACHE, CONFIG_DM_CACHE_SMQ" in said
    assert "the layer lvmcache of the stack lvmcache does not work without" in said
    assert desk.test("c1", "--stack", "hdd") == 0
    assert desk.test("bare") == 0


def test_a_further_disk_matters_where_the_stack_uses_it(desk: Desk) -> None:
    settings = desk.place / "mine.toml"
    settings.write_text('[storage.nvme]\nsize = "2GiB"\n')
    assert desk.test("c1", "--stack", "hdd") == 0
    assert desk.test("c2", "--stack", "hdd", "--config", str(settings)) == 0
    said = desk.refused("c3", "--stack", "nvme", "--config", str(settings))
    assert "storage.stack was hdd, and is nvme" in said
    assert 'storage.nvme.size was "", and is 2GiB' in said


def test_each_trial_is_on_record_beside_the_others(desk: Desk) -> None:
    assert desk.test("c1", "--json") == 0
    told = json.loads(desk.output.readouterr().out)
    assert (told["n"], told["sha"], told["value"], told["run_dir"]) == (
        1,
        desk.shas["c1"],
        SLOW_IOPS,
        str(desk.run.path),
    )
    assert desk.test("c4") == 0
    assert f"bisector table --run-dir {desk.run.path}" in desk.output.readouterr().out
    assert [(one["n"], one["sha"], one["value"]) for one in desk.shown("table")["trials"]] == [
        (1, desk.shas["c1"], SLOW_IOPS),
        (2, desk.shas["c4"], FAST_IOPS),
    ]
    status = desk.shown("status")
    assert (status["state"], status["message"]) == ("measured", "2 trials of 2 commits")
    assert (status["resume_command"], status["old"]["sha"], status["baselines"]) == (None, "", [])
    with Store.open(desk.run.database) as store:
        assert (store.in_flight(), store.is_search, store.by_others) == ((), False, False)


def test_a_commit_that_cannot_be_judged_is_on_record_too(desk: Desk) -> None:
    desk.bench.faults = {desk.shas["c2"]: fakes.BUILD_ERROR}
    assert desk.test("c2") == 3
    (trial,) = desk.shown("table")["trials"]
    assert (trial["verdict"], trial["stage"]) == ("skip", "build")


def test_a_threshold_makes_verdicts_of_them(desk: Desk) -> None:
    for name in ("c1", "c4"):
        assert desk.test(name, "--threshold", "2000", "--expect", "improvement") == 0
    assert [one["verdict"] for one in desk.shown("table")["trials"]] == ["old", "new"]


def test_trouble_of_the_host_is_on_record_and_no_trial(desk: Desk) -> None:
    desk.bench.infra = {desk.shas["c1"]: 1}
    assert desk.test("c1") == 4
    status = desk.shown("status")
    assert [one["message"] for one in status["infra_faults"]] == ["the network went away"]
    assert status["trials"] == []
    assert desk.test("c1", "--json") == 0
    assert json.loads(desk.output.readouterr().out)["n"] == 1


def test_what_a_killed_test_had_begun_is_lost_and_its_files_go(desk: Desk) -> None:
    desk.bench.kill_at = 2
    assert desk.test("c1") == 0
    left = desk.run.path / "trials" / "0002-half"
    with pytest.raises(fakes.Killed):
        desk.test("c4")
    left.mkdir(parents=True)
    with Store.open(desk.run.database) as store:
        assert [one.fact for one in store.in_flight()] == [Submitted(Work.TRIAL, desk.shas["c4"], 2, fakes.HOST)]
    desk.bench.kill_at = None
    assert desk.test("c4") == 0
    assert not left.exists()
    with Store.open(desk.run.database) as store:
        assert ([n for n, _ in store.trials()], store.in_flight()) == ([1, 2], ())


def test_one_store_has_one_way_of_measuring(desk: Desk) -> None:
    """Without flags a further commit is measured as those on record, whatever the job file is like by now."""
    job = desk.place / "mine.fio"
    job.write_text(
        "[mine]\nnumjobs=2\nrw=randread\nsize=${FILE_SIZE}\ndirectory=${DIRECTORY}\nruntime=${RUNTIME}\ntime_based\n"
    )
    words = ("--threshold", "2000", "--job", str(job))
    assert desk.test("c1", *words) == 0
    assert desk.test("c2", *words) == 0
    said = desk.refused("c3", "--threshold", "3000", "--job", str(job))
    assert "was measured with other settings: bisect.threshold was 2000, and is 3000" in said
    job.write_text(job.read_text() + "bs=8k\n")
    assert "was measured with other settings: an input file has changed" in desk.refused("c3", *words)
    assert desk.test("c3") == 0
    with Store.open(desk.run.database) as store:
        assert {str(trial.setup) for _, trial in store.trials()} == {"fio(mine.fio) on lvmcache(ssd,hdd)+ext4"}
        assert len(store.trials()) == 3


def test_without_a_run_directory_alike_commits_are_together(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    places = []
    for name, words in (("c1", ()), ("c4", ()), ("c4", ("--threshold", "2000"))):
        assert main(["test", desk.shas[name], "--repo", str(tmp_path / "linux"), "--json", *words]) == 0
        places.append(json.loads(desk.output.readouterr().out)["run_dir"])
    assert places[0] == places[1] != places[2]


@pytest.mark.parametrize("command", ["resume", "baselines", "next-step"])
def test_nothing_is_searched_there(desk: Desk, command: str) -> None:
    assert desk.test("c1") == 0
    desk.output.readouterr()
    assert main([command, "--run-dir", str(desk.run.path)]) == 2
    assert "range to search" in (said := desk.output.readouterr().err) or "no ends between" in said


def test_there_is_no_letter_about_them(desk: Desk) -> None:
    assert desk.test("c1") == 0
    desk.output.readouterr()
    assert main(["mail", "--run-dir", str(desk.run.path)]) == 2
    assert "holds the trials of single commits, and no answer to tell" in desk.output.readouterr().err


@pytest.mark.parametrize("form", ["text", "markdown", "json", "mail"])
def test_a_report_tells_of_them(desk: Desk, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A U Thor")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "author@example.com")
    assert desk.test("c1") == 0
    assert desk.test("c4") == 0
    desk.output.readouterr()
    assert main(["report", "--format", form, "--run-dir", str(desk.run.path)]) == 0
    said = desk.output.readouterr().out
    assert desk.shas["c4"][:12] in said
    assert "bisector start" not in said
    if form == "text":
        assert said.startswith("Single commits: 2 trials")


def test_a_bisection_is_left_alone(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    record: RecordedRun = found(tmp_path / "other")
    said = desk.refused("c1", run_dir="other/run")
    assert "is a bisection; a single trial needs a run directory of its own" in said
    with Store.open(record.run.database) as store:
        assert len(store.trials()) == 5


def test_commits_of_another_repository_are_refused(desk: Desk, tmp_path: Path) -> None:
    assert desk.test("c1") == 0
    histories.build(tmp_path / "copy", histories.linear(5))
    words = ["test", "HEAD", "--repo", str(tmp_path / "copy"), "--run-dir", str(desk.run.path)]
    assert main(words) == 2
    assert f"holds trials of commits of {tmp_path / 'linux'}" in desk.output.readouterr().err


def test_results_of_others_are_not_added(desk: Desk, tmp_path: Path) -> None:
    assert desk.test("c1") == 0
    text = Path(__file__).parents[1] / "data/recorded-runs"
    file = next(text.rglob("*full.txt"))
    desk.output.readouterr()
    assert main(["import", str(file), "--commit", "x", "--run-dir", str(desk.run.path)]) == 2
    assert "holds what was measured here; results of others cannot be added to it" in desk.output.readouterr().err


def test_what_counted_time_does_not_show_is_said_once_it_begins(desk: Desk) -> None:
    assert desk.test("c1", "--clock", "instructions", "--stack", "ram+ext4") == 0
    assert "bisector: the guests' clock counts instructions, 8 ns each, one as long" in desk.output.readouterr().err
    assert desk.shown("status")["clock"] == {"kind": "instructions", "instruction_ns": 8}
    assert desk.test("c1", "--stack", "ram+ext4", run_dir="other") == 0
    assert "clock" not in desk.output.readouterr().err
