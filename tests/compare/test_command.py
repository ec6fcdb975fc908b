"""``bisector compare``, the other commands on a run that compares, and runs that were killed or given up."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisector.campaign import life
from bisector.cli import main
from bisector.core.errors import Finding, Grade
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.kernel.build import KernelBuilder
from bisector.store.rundir import Index, state_home
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.compare.desk import Desk, compare, shown, without_md
from tests.docs.json_schema import valid

pytestmark = pytest.mark.usefixtures("at_the_desk")


def refused(desk: Desk, output: pytest.CaptureFixture[str], *words: str) -> str:
    compare(desk, *words, code=2)
    runs = state_home() / "runs"
    assert not runs.is_dir() or not list(runs.iterdir())
    said = output.readouterr().err
    assert said.startswith("bisector: ")
    return said


def test_kernels_are_compared_and_the_ratios_printed(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    compare(desk, "main~3", "main", "--stack", "lvmcache", "--stack", "hdd", "--quiet")
    said = capsys.readouterr()
    assert "In a family of 2 tests the exact test by itself could reach 5 % from 7 blocks on" in said.err
    assert "read.iops of the worst job (higher is better)\nsetup                   main~3   main" in said.out
    for stack in ("lvmcache(ssd,hdd)+ext4", "hdd+ext4"):
        (line,) = (line.split() for line in said.out.splitlines() if line.startswith(f"{stack} "))
        assert line[1:] == ["1,000", "1,300", "+30.0", "%", "+30.0", "to", "+30.0", "%", "faster"]
    assert "measured: 6 blocks on each setup" in said.out
    assert len(desk.bench.requests) == 24


def test_an_outcome_that_fails_has_a_code_of_its_own(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    notify = "printenv BISECTOR_EXIT_CODE BISECTOR_ANSWER > told"
    words = ("main~3", "main", "--stack", "hdd", "--quiet", "--run-dir", "run", "--notify", notify)
    compare(desk, *words, "--fail-on", "slower", "--fail-on", "faster", code=5)
    assert (desk.place / "told").read_text() == "5\nmain is faster on hdd+ext4\n"
    assert "measured: 6 blocks on each setup" in capsys.readouterr().out
    for outcome, code in (("slower", 0), ("unclear", 0), ("faster", 5)):
        assert main(["resume", "--run-dir", "run", "--fail-on", outcome]) == code


def test_what_cannot_be_compared_is_unclear(desk: Desk) -> None:
    words = (without_md(desk), desk.shas["c3"], "--stack", "lvmcache", "--stack", "hdd", "--runs", "2", "--quiet")
    desk.bench.value = lambda _: 1_000.0
    compare(desk, *words, "--run-dir", "run", "--fail-on", "slower")
    assert main(["resume", "--run-dir", "run", "--fail-on", "unclear"]) == 5


def test_a_placebo_fails_by_no_outcome(desk: Desk) -> None:
    words = ("main", "--placebo", "--stack", "hdd", "--runs", "1", "--quiet")
    compare(desk, *words, *(word for one in ("unclear", "slower", "faster") for word in ("--fail-on", one)))


def test_a_stack_that_a_kernel_cannot_have_is_in_no_closing_words_as_measured(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    lacks, new = without_md(desk), desk.shas["c3"]
    desk.bench.value = lambda _: 1_000.0
    words = ("--stack", "hdd", "--stack", "lvmcache", "--runs", "2", "--quiet", "--run-dir", "run")
    compare(desk, lacks, new, *words)
    said = " ".join(capsys.readouterr().out.split())
    assert f"{new} against {lacks} on 2 setups, 1 of them n/a: 2 blocks measured measured: 2 blocks on hdd+ext4" in said
    assert said.endswith("n/a: lvmcache(ssd,hdd)+ext4")


def test_what_is_asked_for_is_on_record(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--runs", "3", "--placebo", "--seed", "99", "--least-effect", "2.5%", "--budget", "90min")
    compare(desk, "main", *words, "--run-dir", "run", "--file-size", "16MiB", "--quiet", "--stack", "hdd")
    plan = desk.blocks().plan
    extent = plan.extent
    assert (extent.seed, extent.runs, extent.until, extent.budget_s, extent.delta) == (99, 3, None, 5400.0, 0.025)
    assert [arm.name for arm in plan.arms] == ["main", "main (again)"]
    assert [one.workload.files.total_bytes for one in plan.setups] == [2 * (16 << 20)]
    (entry,) = Index().entries()
    assert (entry.old, entry.new) == ("main", "main")
    capsys.readouterr()
    assert main(["report", "--format", "json", "--run-dir", "run"]) == 0
    typed = json.loads(capsys.readouterr().out)["command"].split()
    assert [typed[place + 1] for place, word in enumerate(typed) if word == "--least-effect"] == ["2.5%"]


@pytest.mark.parametrize(("clock", "share"), [("host", 0.05), ("instructions", 0.0005)])
def test_the_same_is_what_is_the_same_for_a_search(desk: Desk, clock: str, share: float) -> None:
    compare(desk, "main", "--placebo", "--clock", clock, "--stack", "hdd", "--runs", "1", "--quiet", "--run-dir", "run")
    plan = desk.blocks().plan
    assert plan.extent.delta == plan.setups[0].bisect.least_effect == share


def test_a_commit_is_compared_without_and_with_a_fragment(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given as a name without a slash; what is beside it, in the directory, goes before bisector's own."""
    desk.bench.value = lambda request: 1_300.0 if request.cell.subject.fragment else 1_000.0
    (desk.place / "more.config").write_text("CONFIG_DM_CACHE_SMQ=y\n")
    words = ("main", "--config-fragment", "more.config", "--stack", "hdd", "--repo", "linux")
    assert "builds    2 of" in shown(capsys, "compare", *words, "--plan")
    with monkeypatch.context() as kept:  # the commit's own kernel
        kept.setattr(KernelBuilder, "find", lambda builder, _: "CONFIG_DM_CACHE_SMQ" not in builder.wanted or None)
        assert "builds    1 of" in shown(capsys, "compare", *words, "--plan")
    said = shown(capsys, "compare", *words, "--runs", "1", "--quiet", "--run-dir", "run")
    assert "main + more.config" in said
    assert "same kernel" not in said
    assert (desk.place / "run/inputs/more.config").is_file()


def test_setups_are_every_stack_with_every_workload(desk: Desk) -> None:
    for name in ("one.fio", "other.fio"):
        (desk.place / name).write_text(
            "[j]\nrw=randread\nsize=${FILE_SIZE}\ndirectory=${DIRECTORY}\ntime_based\nruntime=${RUNTIME}\n"
        )
    jobs = ("--job", "one.fio", "--job", "other.fio")
    compare(
        desk, "main~3", "main", "--stack", "hdd", "--stack", "ssd", *jobs, "--runs", "1", "--run-dir", "run", "--quiet"
    )
    found = [str(one.setup) for one in desk.blocks().plan.setups]
    assert found == [f"fio({job}.fio) on {disk}+ext4" for job in ("one", "other") for disk in ("hdd", "ssd")]


def test_a_further_disk_is_one_of_any_of_the_stacks(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("main~3", "main", "--stack", "hdd", "--stack", "lvmcache(nvme,hdd)+ext4", "--runs", "1", "--quiet")
    compare(desk, *words, "--disk", "nvme=512MiB,iops=9000", "--run-dir", "run")
    disks = [one.storage.used_disks for one in desk.blocks().plan.setups]
    assert [tuple(one) for one in disks] == [("hdd",), ("nvme", "hdd")]
    assert disks[1]["nvme"].iops_limit == 9000
    said = refused(desk, capsys, *words, "--disk", "nvme=512MiB", "--disk", "spare=1GiB")
    assert "--disk spare: the stack hdd or lvmcache(nvme,hdd)+ext4 has no disk of that name" in said


def test_a_job_with_random_numbers_of_its_own_is_told_of(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    (desk.place / "own.fio").write_text(
        "[j]\nrw=randread\nrandseed=5\nsize=${FILE_SIZE}\ndirectory=${DIRECTORY}\ntime_based\nruntime=${RUNTIME}\n"
    )
    words = ("--stack", "hdd", "--stack", "ssd", "--runs", "6", "--quiet")
    compare(desk, "main~3", "main", "--job", "own.fio", *words)
    assert capsys.readouterr().err.count("fio(own.fio): job j does not follow the seed of a run") == 1
    compare(desk, "main~3", "main", *words)
    assert "does not follow the seed" not in capsys.readouterr().err


def test_arms_that_are_one_kernel_are_told_of(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--stack", "hdd", "--runs", "1", "--placebo", "--quiet")
    compare(desk, "main~3", "main~2", *words)
    assert "same kernel" not in capsys.readouterr().out
    desk.bench.content = {desk.shas["c0"]: "8" * 64, desk.shas["c1"]: "8" * 64}
    compare(desk, "main~3", "main~2", *words)
    said = " ".join(capsys.readouterr().out.split())
    assert "main~3 and main~2 are the same kernel: only noise differs between them." in said
    assert "main~3 and main~3 (again)" not in said


@pytest.mark.parametrize("command", ["status", "table"])
def test_a_run_that_compares_is_shown(desk: Desk, capsys: pytest.CaptureFixture[str], command: str) -> None:
    compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "2", "--run-dir", "run", "--quiet")
    said = shown(capsys, command, "--run-dir", "run")
    assert "main against main~3 on 1 setup: 2 blocks measured" in said
    assert "1,300  +30.0 %" in said


def test_what_a_run_that_compares_cannot_do_is_said(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "1", "--run-dir", "run", "--quiet")
    words_of = (["log"], ["baselines"], ["next-step"], ["resume", "--skip", "main"], ["test", "main"])
    for words in (*words_of, ["table", "--metric", "read.bw"]):
        capsys.readouterr()
        repo = ["--repo", str(desk.place / "linux")] if words[0] == "test" else []
        assert main([*words, *repo, "--run-dir", "run"]) == 2, words
        said = capsys.readouterr().err
        assert "comparison" in said or "no ends" in said, (words, said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("main",), "main alone cannot be compared"),
        (("main", "v9"), "unknown revision 'v9'"),
        (("main", "HEAD"), "main and HEAD are the same commit"),
        (("main", "--patch", "none.patch"), "--patch none.patch: there is no such file"),
        (("main", "--config-fragment", "none"), "no kernel configuration fragment is named none"),
        (("main~1", "main", "--stack", "nvme"), "there is no layer or disk nvme"),
        (("main~1", "main", "--stack", "hdd", "--stack", "hdd+ext4"), "is asked for twice"),
        (("main~1", "main", "--job", "none.fio"), "none.fio"),
        (("main~1", "main", "--workload", "dd"), "there is no workload dd: expected one of fio, command, gitgrep"),
        (("main~1", "main", "--metric", "read.iopps"), "read.iopps"),
        (("main~1", "main", "--plan", "--metric", "write.iops"), "write.iops"),
    ],
)
def test_bad_input(desk: Desk, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    assert said in refused(desk, capsys, *words)


@pytest.mark.parametrize(
    "words", [("--until", "5"), ("--until", "0%"), ("--until", "x%"), ("--until", "5%", "--runs", "6"), ("--runs", "0"),
              ("--budget", "soon"), ("--budget", "0h"), ("--seed", "-1")],
)  # fmt: skip
def test_bad_numbers(desk: Desk, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert main(["compare", "main~1", "main", *words]) == 2
    said = capsys.readouterr().err
    assert f"{words[0]}: expected " in said or "not allowed with argument" in said


def test_the_document_is_the_same_wherever_it_is_printed(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "1", "--run-dir", "run", "--quiet", "--json")
    printed = valid("compare", capsys.readouterr().out)
    for words in (("status", "--json"), ("table", "--json"), ("report", "--format", "json")):
        assert json.loads(shown(capsys, *words, "--run-dir", "run")) == printed
    again = shlex.split(printed["command"])[2:]
    compare(desk, *again, "--run-dir", "again", "--quiet", "--json")
    assert valid("compare", capsys.readouterr().out)["command"] == printed["command"]


def test_what_counted_time_does_not_show_is_said_before_and_after(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--clock", "instructions", "--stack", "ram+ext4", "--runs", "2", "--run-dir", "run", "--quiet")
    compare(desk, "main~3", "main", *words)
    told = capsys.readouterr()
    assert "bisector: the guests' clock counts instructions, 8 ns each" in told.err
    assert "\nThe guests' clock counts instructions, 8 ns each" in told.out


# What a comparison takes, told beforehand


def test_the_hours_are_told_beforehand(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(
        capsys, "compare", "main~3", "main", "--plan", "--stack", "hdd", "--stack", "lvmcache", "--repo", "linux"
    )
    assert "blocks    6 on each of 2 setups" in said
    assert "trials    24\n" in said
    assert "builds    2 of 4 min 40 s (assumed)" in said
    assert "a trial   1 min 10 s (assumed) of fio(partial.fio) on hdd+ext4, by read.iops of the worst job" in said
    assert "a trial   1 min 50 s to 6 min 10 s (assumed) of fio(partial.fio) on lvmcache(ssd,hdd)+ext4, by" in said
    assert "time      45 min 20 s to 1 h 37 min" in said
    hours = [(2 * 280 + 12 * (30 + 40) + 12 * (30 + 40 + filling)) / 3600 for filling in (40, 300)]
    expected = json.loads(shown(capsys, "compare", "main~3", "main", "--plan", "--json", "--stack", "hdd", "--stack",
                                "lvmcache", "--repo", "linux"))  # fmt: skip
    assert [expected["hours"], expected["hours_most"]] == pytest.approx(hours)
    words = ("main~3", "main", "--stack", "hdd", "--stack", "lvmcache", "--repo", "linux")
    assert shown(capsys, "plan", "compare", *words) == said
    assert desk.bench.requests == []


def test_a_command_whose_length_nobody_knows_is_told_of(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", "main~3", "main", "--plan", "--stack", "hdd", "--command", "a", "--command", "b")
    said = shown(capsys, *words, "--repo", "linux")
    assert [line.partition(" (assumed) of ")[2] for line in said.splitlines() if line.startswith("a trial")] == [
        "command(a) on hdd+ext4, by elapsed", "command(b) on hdd+ext4, by elapsed"
    ]  # fmt: skip
    assert "warning   command(b): how long it runs is known from its first block on" in said


def test_what_cannot_be_compared_takes_no_time(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel that only a stack could have that the first one lacks is not built either."""
    words = ("--plan", "--json", "--stack", "hdd", "--stack", "lvmcache", "--repo", "linux")
    expected = json.loads(shown(capsys, "compare", without_md(desk), desk.shas["c3"], *words))
    assert [one["stack"] for one in expected["setups"]] == ["hdd+ext4"]
    assert (expected["trials"], expected["builds"]) == (12, 2)
    assert expected["hours"] == pytest.approx((2 * 280 + 12 * (30 + 40)) / 3600)
    assert "nothing is measured there" in " ".join(expected["warnings"])


def test_hours_come_from_what_earlier_comparisons_took(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.commands.compare.host_id", lambda: fakes.HOST)
    compare(desk, "main~3", "main", "--stack", "lvmcache", "--stack", "hdd", "--runs", "1", "--quiet")
    words = ("--plan", "--until", "5%", "--json", "--stack", "lvmcache", "--stack", "hdd", "--budget", "30min")
    expected: dict[str, Any] = json.loads(shown(capsys, "compare", "main~3", "main", *words, "--repo", "linux"))
    assert [one["stack"] for one in expected["setups"]] == ["lvmcache(ssd,hdd)+ext4", "hdd+ext4"]
    assert expected["setups"][1]["trial_s"] == {
        "value": pytest.approx(5.7 + 4.2 + 84.0),
        "source": "of 2 trials here",
        "measured": True,
    }
    assert (expected["blocks"], expected["blocks_most"], expected["trials_most"]) == (6, 20, 80)
    assert expected["hours_most"] == 0.5


def test_the_clock_is_told_of_and_takes_its_time(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.vm.accelerator.KVM_DEVICE", desk.place / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk.place / "cache"))
    words = ("compare", "main~3", "main", "--plan", "--stack", "ram+ext4", "--repo", "linux")
    assert "clock     guests are emulated here, as fast as this host" in shown(capsys, *words)
    counted = json.loads(shown(capsys, *words, "--clock", "instructions", "--json"))
    assert counted["clock"] == {"kind": "instructions", "instruction_ns": 8}
    assert counted["clock_note"].startswith("the guests' clock counts instructions")
    assert counted["setups"][0]["trial_s"]["value"] == pytest.approx(30 + 40 * 125 / 120)


# Comparisons that were killed, ended with an error or were given up


def test_an_interrupted_run_is_resumed(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.bench.kill_at = 3
    with pytest.raises(fakes.Killed):
        compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "2", "--run-dir", "run")
    assert "stopped: process " in shown(capsys, "status", "--run-dir", "run")
    assert f"bisector resume --run-dir {desk.place / 'run'}" in shown(capsys, "status", "--run-dir", "run")
    desk.bench.kill_at = None
    desk.bench.jobs.clear()
    assert "measured: 2 blocks on each setup" in shown(capsys, "resume", "--run-dir", "run", "--quiet")
    requests = len(desk.bench.requests)
    assert "measured: 2 blocks on each setup" in shown(capsys, "resume", "--run-dir", "run", "--quiet")
    assert len(desk.bench.requests) == requests == 5


def dies(process: pytest.MonkeyPatch, at: str, run: Path) -> None:
    """A process is killed before or after it has put the end on record, or while it clears away."""
    usual = Store.set_state

    def set_state(store: Store, state: State, message: str = "") -> None:
        if state is not State.MEASURED:
            usual(store, state, message)
            return
        (run / "build").mkdir()
        if at == "before the state":
            raise fakes.Killed
        usual(store, state, message)
        if at == "after the state":
            raise fakes.Killed

    def no_further(*_: object) -> None:
        raise fakes.Killed

    process.setattr(Store, "set_state", set_state)
    process.setattr(life, "remove_build" if at == "before the build is gone" else "release", no_further)


@pytest.mark.parametrize(
    "at", ["before the state", "after the state", "before the build is gone", "before the references are gone"]
)
def test_killed_at_its_end_a_run_is_shown_and_cleared_away(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    run = desk.place / "run"
    with monkeypatch.context() as mortal:
        dies(mortal, at, run)
        with pytest.raises(fakes.Killed):
            compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "2", "--run-dir", "run", "--quiet")
    assert (run / "build").is_dir() is (at != "before the references are gone")
    assert desk.held()
    before = desk.blocks()
    assert "measured: 2 blocks on each setup" in shown(capsys, "resume", "--run-dir", "run", "--quiet")
    assert replace(desk.blocks(), process=before.process) == before
    assert len(desk.bench.requests) == 4
    assert not (run / "build").exists()
    assert desk.held() == set()
    assert "measured: 2 blocks" in shown(capsys, "status", "--run-dir", "run")


def test_what_was_measured_is_shown_before_the_traceback_of_a_bug(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = desk.bench.measure

    def breaks(request: TrialRequest) -> Trial:
        if request.n > 4:
            raise TypeError("'NoneType' object is not subscriptable")
        return measure(request)

    monkeypatch.setattr(desk.bench, "measure", breaks)
    compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "6", "--quiet", "--run-dir", "run", code=70)
    said = capsys.readouterr()
    assert "1,300  +30.0 %" in said.out
    assert said.out.endswith("\nmain against main~3 on 1 setup: 2 blocks measured\n")
    assert "TypeError: 'NoneType' object is not subscriptable\nthis is a bug in bisector" in said.err


def test_what_was_measured_is_shown_before_the_error_that_ends_a_run(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.bench.infra_n = {5: 99}
    words = ("main~3", "main", "--stack", "hdd", "--runs", "6", "--quiet")
    compare(desk, *words, "--run-dir", "run", code=4)
    said = capsys.readouterr()
    assert "1,300  +30.0 %" in said.out
    assert said.out.endswith("\nmain against main~3 on 1 setup: 2 blocks measured\n")
    assert "the network went away" in said.err
    assert main(["resume", "--run-dir", "run", "--quiet"]) == 4
    assert "1,300  +30.0 %" in capsys.readouterr().out
    desk.bench.infra_n = {5: 198}
    compare(desk, *words, "--run-dir", "other", "--json", code=4)
    printed = valid("compare", capsys.readouterr().out)
    assert len(printed["rows"][0]["values"]) == 4
    assert printed["standing"].startswith("It is stopped: ")
    desk.bench.infra_n = {2: 99}
    compare(desk, *words, "--run-dir", "third", code=4)
    assert capsys.readouterr().out == ""


def test_what_was_measured_is_shown_when_nothing_is_left_to_compare(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    def panics(request: TrialRequest) -> None:
        desk.bench.faults = {desk.shas["c3"]: fakes.PANIC} if request.n > 4 else {}

    desk.bench.before = panics
    words = ("--runs", "6", "--seed", "7", "--run-dir", "run", "--quiet")
    compare(desk, "main~3", "main", "--stack", "hdd", *words, code=2)
    said = capsys.readouterr()
    assert "nothing can be compared: main: panic" in said.err
    assert "main against main~3 on 1 setup: 2 blocks measured, 2 weak or failed\n" in said.out


def test_status_of_a_run_that_goes_on_does_not_say_to_resume_it(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    said = list[str]()
    desk.bench.before = lambda _: said.append(shown(capsys, "status", "--run-dir", "run"))
    compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "1", "--run-dir", "run", "--quiet")
    assert said[1].splitlines()[-1].startswith("running")


def test_resume_says_what_weakens_the_evidence_by_now(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bisector.commands.measure.checks.warn_again",
        lambda _settings, _run, warn: warn(Finding("load", Grade.WARN, "the host is busy")),
    )
    desk.bench.infra_n = {2: 4}
    compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "1", "--run-dir", "run", "--quiet", code=4)
    for said in ("warning: load: the host is busy", ""):
        capsys.readouterr()
        assert main(["resume", "--run-dir", "run", "--quiet"]) == 0
        assert capsys.readouterr().err.removeprefix("bisector: ").strip() == said


def test_resume_tries_again_what_did_not_build(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.bench.does_not_build = {("gcc", desk.shas["c1"]): fakes.BUILD_ERROR}
    compare(desk, "main~3", "main~2", "main", "--stack", "hdd", "--runs", "2", "--run-dir", "run", "--quiet")
    said = capsys.readouterr().out
    assert "n/a\n    does not build: " in said
    assert f"main~2 did not build; resume tries it again\nbisector resume --run-dir {desk.place / 'run'}" in said
    desk.bench.does_not_build = {}
    said = shown(capsys, "resume", "--run-dir", "run", "--quiet")
    assert "does not build" not in said
    assert "did not build" not in said
    requests = len(desk.bench.requests)
    shown(capsys, "resume", "--run-dir", "run", "--quiet")
    assert len(desk.bench.requests) == requests == 4 + 6


def test_a_reset_leaves_the_record(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.bench.kill_at = 2
    with pytest.raises(fakes.Killed):
        compare(desk, "main~3", "main", "--stack", "hdd", "--runs", "1", "--run-dir", "run")
    assert "reset; its record stays" in shown(capsys, "reset", "--run-dir", "run")
    assert "stopped: reset" in shown(capsys, "status", "--run-dir", "run")
    assert "removed" in shown(capsys, "reset", "--run-dir", "run", "--delete")
    assert not (desk.place / "run").exists()
