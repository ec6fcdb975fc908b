"""A run in a guest that answers as a real one did."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.core.errors import InfraError, UserError
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.host import process
from tests.guest_answers import FIO as GOOD
from tests.guest_answers import FIO_FILES as FILES
from tests.guest_answers import FIO_RUNS, listed
from tests.guestshell import Answer, FakeShell
from tests.workload.fio_bench import CACHE, DATA, FAILED, QUIET, SETTINGS, STACK, Bench


def test_a_good_run(bench: Bench) -> None:
    shell = FakeShell({FIO_RUNS: GOOD}, FILES)
    run = bench.run(shell)
    assert [job.name for job in run.jobs] == ["partial/1", "partial/2"]
    assert run.contention == QUIET
    assert run.cache_before == run.cache_after == CACHE
    assert run.counters == (("cache.promotions", 2.0),)
    assert run.clock_drift_s == pytest.approx(43.25 - run.duration_s)
    assert [(sample.run, sample.rate, sample.done_share) for sample in bench.samples] == [
        ("full", 1024, 0.5),
        ("full", 2048, 1.0),
    ]
    assert sorted(path.name for path in bench.logs.iterdir()) == ["fio.json", "partial_iops.1.log"]
    assert shell.written["/tmp/bisector/job.fio"] == SETTINGS.job.read_text(encoding="utf-8")
    assert bench.stopped_meters == 1
    dropped = next(n for n, command in enumerate(shell.commands) if "drop_caches" in command)
    started = next(n for n, command in enumerate(shell.commands) if FIO_RUNS in command)
    assert dropped < started
    assert "FILE_SIZE=33554432 RUNTIME=40 DIRECTORY=/mnt/full DEVICE=device OFFSET=0 fio" in shell.commands[started]
    # A log is lacking, so the run is not split.
    assert {(job.steady_iops, job.settled_after_s) for job in run.jobs} == {(None, None)}


def test_a_run_is_split_by_the_logs_of_its_jobs(bench: Bench) -> None:
    logs = {f"partial_iops.{n}.log": (DATA / f"broken-full_iops.{n}.log").read_text(encoding="utf-8") for n in (1, 2)}
    text = re.sub(r'"iops" : 9[86][0-9.]+', '"iops" : 500', FILES["fio.json"])
    good = replace(GOOD, stdout=listed("fio.json", "job.fio", *logs))
    run = bench.run(FakeShell({FIO_RUNS: good}, {"fio.json": text, **logs}))
    assert [(round(job.steady_iops or 0), job.settled_after_s) for job in run.jobs] == [(500, 12.0)] * 2


def test_seed_is_in_the_job_that_runs_and_on_record(bench: Bench) -> None:
    shell = FakeShell({FIO_RUNS: GOOD}, FILES)
    bench.run(shell, seed=7)
    written = shell.written["/tmp/bisector/job.fio"]
    assert written == "[global]\nrandrepeat=0\nrandseed=7\n" + SETTINGS.job.read_text(encoding="utf-8")
    assert (bench.logs / "job.fio").read_text(encoding="utf-8") == written


def test_a_run_on_a_device_is_told_where_its_place_is(bench: Bench) -> None:
    """Nothing is linked to keep its blocks: on a device the place does it."""
    shell = FakeShell({FIO_RUNS: GOOD}, FILES)
    bench.stack = replace(STACK, mountpoint="", device="/dev/ram0")
    bench.run(shell, "empty", keep_files=True, offset_bytes=64 << 20)
    (command,) = (one for one in shell.commands if FIO_RUNS in one)
    assert " RUNTIME=40 DIRECTORY=/ DEVICE=/dev/ram0 OFFSET=67108864 fio " in command
    assert "keeper" not in command


def test_files_of_the_first_run_keep_their_blocks(bench: Bench, tmp_path: Path) -> None:
    """The command itself, run here, with a fio that lays out a file and unlinks it as fio does."""
    shell = FakeShell({FIO_RUNS: GOOD}, FILES)
    bench.run(shell, "empty", keep_files=True)
    bench.run(shell, "empty@2", keep_files=True, goes_on=True)
    first, second = (one for one in shell.commands if FIO_RUNS in one)
    mountpoint = tmp_path / "mnt"
    kept = mountpoint / ".kept" / "empty" / "partial.0.0"
    played(first, tmp_path, 'echo laid out > "$DIRECTORY/partial.0.0"; sleep 0.5; rm "$DIRECTORY/partial.0.0"')
    assert kept.read_text() == "laid out\n"
    assert not (mountpoint / "empty" / "partial.0.0").exists()
    # A round that goes on finds them, and is not to lay them out again.
    played(second, tmp_path, 'echo again >> "$DIRECTORY/partial.0.0"; rm "$DIRECTORY/partial.0.0"')
    assert kept.read_text() == "laid out\nagain\n"
    assert not (mountpoint / "empty@2" / "partial.0.0").exists()
    # If there are none, it lays them out.
    shutil.rmtree(mountpoint)
    played(second, tmp_path, 'ls -A "$DIRECTORY" > "$DIRECTORY/../listed"')
    assert (mountpoint / "listed").read_text() == ""


def played(command: str, tmp_path: Path, fio: str) -> None:
    """Run the command of a run on this host, with this shell text as fio."""
    program, outputs = tmp_path / "bin" / "fio", tmp_path / "outputs"
    for directory in (program.parent, outputs):
        directory.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{fio}\n")
    program.chmod(0o755)
    here = command.replace("/tmp/bisector", str(outputs)).replace("/mnt", str(tmp_path / "mnt"))
    here = here.replace("while sleep 1;", "while sleep 0.1;")
    process.run(["sh", "-c", f"PATH={program.parent}:$PATH; {here}"], deadline_s=60)


REFUSED = Answer("", "fio: failed parsing rw=bogus\nfio: job partial dropped\n", 1)
NO_FIO = replace(FAILED, stdout=listed("job.fio"), exit_status=127)
NO_ENGINE = replace(FAILED, stderr="fio: engine nosuch not loadable\nfio: failed to load engine\n")


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({FIO_RUNS: FAILED, "--parse-only": REFUSED}, r"workload\.job.*failed parsing rw=bogus"),
        ({FIO_RUNS: NO_ENGINE}, "engine nosuch not loadable"),
        ({FIO_RUNS: NO_FIO, "command -v fio": Answer("", "", 127)}, "lacks fio"),
        ({"mkdir": Answer("", "mkdir: '/tmp/bisector': No space left on device\n", 1)}, "root disk is full"),
    ],
)
def test_what_keeps_fio_from_running_is_no_kernels_fault(
    bench: Bench, answers: dict[str, Answer], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        bench.run(FakeShell(answers, {"fio.json": ""}))


def test_fio_that_fails_without_a_word_of_json_is_the_kernels(bench: Bench) -> None:
    with pytest.raises(KernelFault, match=r"^fio: exit 1: fio: went wrong$") as caught:
        bench.run(FakeShell({FIO_RUNS: FAILED}, {"fio.json": ""}))
    assert caught.value.stage is Stage.WORKLOAD
    assert caught.value.kind is FaultKind.COMMAND_FAILED


def test_files_that_do_not_fit(bench: Bench) -> None:
    files = {"fio.json": (DATA / "enospc-3.33.json").read_text(encoding="utf-8")}
    with pytest.raises(UserError, match="ENOSPC") as caught:
        bench.run(FakeShell({FIO_RUNS: replace(GOOD, stdout=listed("fio.json"), exit_status=1)}, files))
    assert "workload.file_size" in caught.value.hint
    assert "storage.hdd.size" in caught.value.hint


def test_io_errors_are_the_kernels(bench: Bench) -> None:
    files = {"fio.json": FILES["fio.json"].replace('"error" : 0', '"error" : 5', 1)}
    said = GOOD.stderr.replace("\n@uptime 53", "\nfio: pid=9, err=5/file:io_u.c:1845, func=io_u error\n@uptime 53")
    with pytest.raises(KernelFault) as caught:
        bench.run(FakeShell({FIO_RUNS: Answer(listed("fio.json"), said, 1)}, files))
    assert caught.value.kind is FaultKind.IO_ERROR
    assert "EIO" in caught.value.reason
    assert "io_u.c:1845" in caught.value.reason


@pytest.mark.parametrize(
    ("code", "ios", "expected"),
    [(22, 0, UserError), (0, 0, UserError), (38, 0, UserError), (22, 9, KernelFault), (5, 0, KernelFault)],
)
def test_what_fio_refuses_before_any_io_is_of_the_job(
    bench: Bench, code: int, ios: int, expected: type[Exception]
) -> None:
    document = json.loads(FILES["fio.json"])
    for job in document["jobs"]:
        job["error"] = code
        job["read"]["total_ios"] = ios
    said = "partial: you need to specify size=\nfio: pid=0, err=22/file:filesetup.c:1155, func=total_file_size\n"
    answer = Answer(listed("fio.json"), GOOD.stderr.replace("\n@uptime 53", f"\n{said}@uptime 53"), 1)
    for stop in (None, StopRule(100.0, 40.0)):
        with pytest.raises(expected, match="you need to specify size=" if expected is UserError else "fio") as caught:
            bench.run(FakeShell({FIO_RUNS: answer}, {"fio.json": json.dumps(document, indent=2)}), stop=stop)
        assert isinstance(caught.value, expected)


@pytest.mark.parametrize(("free_blocks", "error"), [("0", UserError), ("9000", InfraError)])
def test_output_that_is_cut_off(bench: Bench, free_blocks: str, error: type[Exception]) -> None:
    files = {**FILES, "fio.json": FILES["fio.json"][:500]}
    with pytest.raises(error):
        bench.run(FakeShell({FIO_RUNS: GOOD, "stat -f": Answer(free_blocks)}, files))


def test_the_meter_is_stopped_whatever_happens(bench: Bench) -> None:
    class Dies(FakeShell):
        def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> None:  # type: ignore[override]  # never returns
            raise KernelFault(Stage.WORKLOAD, FaultKind.PANIC, "Kernel panic")

    with pytest.raises(KernelFault, match="panic"):
        bench.run(Dies())
    assert bench.stopped_meters == 1
