"""Runs that are ended once their side is clear, and what fio leaves of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.core.errors import InfraError
from bisector.core.events import LiveSample
from bisector.core.figures import StopReason
from bisector.core.objective import Objective
from bisector.core.trial import KernelFault
from bisector.host import process
from bisector.vm.base import Bounds
from bisector.workload.fio import output
from bisector.workload.fio.fio import MOST_STEERED_JOBS, FioWatch, steered_command
from tests.guest_answers import FIO as GOOD
from tests.guest_answers import FIO_FILES as FILES
from tests.guest_answers import FIO_RUNS, listed
from tests.guestshell import Answer, FakeShell
from tests.workload.fio_bench import DATA, SETTINGS, Bench, own_job

# fio 3.33 that reported once, after a quarter of a second, and was interrupted: with threshold 100 that was enough.
STEERED = (DATA / "steered-3.33.txt").read_text(encoding="utf-8")
INTERRUPTED = Answer(listed("fio.json", "job.fio"), f"\n@uptime 10.00\n{STEERED}\n@uptime 11.05\n", output.INTERRUPTED)
SO_FAR, LAST = STEERED[: STEERED.rindex("\n{\n")], STEERED[STEERED.rindex("\n{\n") :]
CLEAR, UNCLEAR = StopRule(100.0, 40.0), StopRule(1e6, 40.0)


def interrupts(shell: FakeShell) -> list[str]:
    return [command for command in shell.commands if "kill -INT" in command]


def test_a_run_whose_side_is_clear_is_interrupted_and_says_so(bench: Bench) -> None:
    shell = FakeShell({FIO_RUNS: INTERRUPTED}, {"fio.json": STEERED})
    run = bench.run(shell, stop=CLEAR)
    assert run.stopped_early is not None
    assert (run.stopped_early.reason, run.stopped_early.threshold) == (StopReason.ABOVE, 100.0)
    assert run.stopped_early.at_s < 0.5
    assert interrupts(shell) == ["kill -INT $(cat /tmp/bisector/.pid)"]
    (command,) = (one for one in shell.commands if FIO_RUNS in one)
    assert "--status-interval=500ms" in command
    last = output.parse_json(LAST)
    assert run.jobs == last != output.parse_json(SO_FAR)
    assert output.parse_json((bench.logs / "fio.json").read_text(encoding="utf-8")) == last
    (sample,) = bench.samples
    assert sample.rate == pytest.approx(sum(job.total_ios * 1000 / job.runtime_ms for job in output.parse_json(SO_FAR)))
    assert sample.done_share == pytest.approx(run.stopped_early.at_s / 40)


def test_a_run_that_was_over_before_the_interrupt_is_a_whole_one(bench: Bench) -> None:
    shell = FakeShell({FIO_RUNS: replace(INTERRUPTED, exit_status=0)}, {"fio.json": STEERED})
    assert bench.run(shell, stop=CLEAR).stopped_early is None
    assert interrupts(shell)


@pytest.mark.parametrize("stop", [UNCLEAR, StopRule(1.0, 40.0, objective=Objective("write.iops"))])
def test_a_run_that_is_not_clear_is_left_alone(bench: Bench, stop: StopRule) -> None:
    """No job writes, so that nothing of it is ever clear."""
    shell = FakeShell({FIO_RUNS: replace(INTERRUPTED, exit_status=0)}, {"fio.json": STEERED})
    assert bench.run(shell, stop=stop).stopped_early is None
    assert not interrupts(shell)
    assert len(bench.samples) == 2


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        pytest.param(UNCLEAR, output.INTERRUPTED, id="interrupted, but not by us"),
        pytest.param(CLEAR, 1, id="failed on its own"),
        pytest.param(CLEAR, 137, id="killed"),
        pytest.param(None, output.INTERRUPTED, id="a whole run"),
    ],
)
def test_a_failed_run_is_not_taken_for_one_that_was_stopped(bench: Bench, stop: StopRule | None, status: int) -> None:
    answer = replace(INTERRUPTED, exit_status=status)
    with pytest.raises(KernelFault, match=f"exit {status}"):
        bench.run(FakeShell({FIO_RUNS: answer}, {"fio.json": STEERED}), stop=stop)


def test_an_error_of_a_job_counts_in_a_run_that_was_stopped_too(bench: Bench) -> None:
    failing = SO_FAR + LAST.replace('"error" : 0', '"error" : 5', 1)
    with pytest.raises(KernelFault, match="EIO"):
        bench.run(FakeShell({FIO_RUNS: INTERRUPTED}, {"fio.json": failing}), stop=CLEAR)


def test_a_run_that_was_stopped_and_left_half_of_its_figures_is_no_kernels_fault(bench: Bench) -> None:
    shell = FakeShell({FIO_RUNS: INTERRUPTED, "stat -f": Answer("77\n")}, {"fio.json": STEERED[:-2000]})
    with pytest.raises(InfraError, match="cut off"):
        bench.run(shell, stop=CLEAR)


@pytest.mark.parametrize("objective", [Objective(), Objective("read.bw"), Objective("read.bw", "sum")])
def test_what_the_metric_counts_is_followed(bench: Bench, objective: Objective) -> None:
    """Every job has done more by the first status than the threshold asks of the whole run."""
    of_bytes = "bw" in objective.metric
    rule = StopRule(4096.0 if of_bytes else 1.0, 40.0, objective=objective)
    run = bench.run(FakeShell({FIO_RUNS: INTERRUPTED}, {"fio.json": STEERED}), stop=rule)
    stop = run.stopped_early
    assert stop is not None
    assert (stop.reason, stop.metric, stop.over) == (StopReason.ABOVE, objective.metric, objective.over)
    assert 0 < stop.bound <= sum(job.bw_kib_s * 1024 if of_bytes else job.iops_mean for job in run.jobs) * 1.01


def test_a_status_with_something_else_in_it_says_nothing() -> None:
    samples: list[LiveSample] = []
    watch = FioWatch("full", samples.append, UNCLEAR)
    lines = STEERED.splitlines()
    lines.insert(40, "  fio: something else")
    for line in lines:
        watch.hear(line)
    (sample,) = samples
    assert sample.rate == pytest.approx(sum(job.total_ios * 1000 / job.runtime_ms for job in output.parse_json(LAST)))


def test_a_status_without_an_end_is_forgotten() -> None:
    watch = FioWatch("full", lambda sample: None, UNCLEAR)
    for _ in range(1_100_000):
        watch.hear(" x")
    assert len(watch._status) <= 1_000_000


def test_the_command_of_a_steered_run_here(tmp_path: Path) -> None:
    """Run by this machine's shell, with an fio that does as fio does when it is interrupted."""
    made = tmp_path / "fio"
    made.write_text("#!/bin/sh\ntrap 'echo last; exit 128' INT\necho $FILE_SIZE; while :; do sleep 0.02; done\n")
    made.chmod(0o755)
    command = steered_command("FILE_SIZE=77", (str(made), "a job.fio"), "fio.json")
    kill = "for n in 1 2 3 4 5 6 7 8 9; do sleep 0.05; [ -s fio.json ] && kill -INT $(cat .pid) && break; done"
    script = f"cd {tmp_path}; ({kill}) & {command}; echo status $status"
    done = process.run(["sh", "-c", script], deadline_s=20)
    assert (done.stdout, done.stderr.splitlines()) == ("status 128\n", ["77", "last"])
    assert (tmp_path / "fio.json").read_text() == "77\nlast\n"


@pytest.mark.parametrize("line", ["ramp_time=5", "startdelay=10\nruntime=30"])
def test_a_job_with_a_ramp_or_a_late_begin_is_never_ended_early(bench: Bench, tmp_path: Path, line: str) -> None:
    """During its ramp_time fio reports what it does not count in the end (seen with 3.33)."""
    job = tmp_path / "ramp.fio"
    job.write_text(SETTINGS.job.read_text(encoding="utf-8") + f"{line}\n", encoding="utf-8")
    bench.settings = replace(SETTINGS, job=job)
    shell = FakeShell({FIO_RUNS: GOOD}, FILES)
    assert bench.run(shell, stop=CLEAR).stopped_early is None
    assert not any("--status-interval" in command for command in shell.commands)


@pytest.mark.parametrize("jobs", [40, 41])
def test_a_run_of_many_jobs_is_never_ended_early(bench: Bench, tmp_path: Path, jobs: int) -> None:
    """What fio writes of them meanwhile would become more than is taken from a guest, and the kernel's fault."""
    bench.settings = own_job(tmp_path, f"[partial]\nnumjobs={jobs}\n")
    figures = json.loads(FILES["fio.json"])
    figures["jobs"] = figures["jobs"][:1] * jobs
    shell = FakeShell({FIO_RUNS: replace(GOOD, stdout=listed("fio.json"))}, {"fio.json": json.dumps(figures)})
    assert len(bench.run(shell, stop=UNCLEAR).jobs) == jobs
    assert any("--status-interval" in command for command in shell.commands) is (jobs == MOST_STEERED_JOBS)


def test_what_a_steered_run_writes_is_half_of_what_is_taken() -> None:
    """By the status of a real fio, of two jobs; a run has at most 90 of them, and one more at its end."""
    statuses = 91
    assert StopRule(1.0, 86400.0).batch_s * (statuses - 1) >= 86400.0
    assert len(LAST) / 2 * MOST_STEERED_JOBS * statuses < Bounds().output_bytes / 2
