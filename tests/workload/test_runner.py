"""A run in a guest that answers as a real one did."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.core.errors import InfraError, KernelFault, UserError
from bisector.core.events import LiveSample
from bisector.core.figures import CacheStatus, Contention, Run, StopReason
from bisector.core.objective import Objective
from bisector.core.shell import Shell
from bisector.core.trial import FaultKind, Stage
from bisector.host import process
from bisector.host.process import run_here
from bisector.storage.layout import Readings
from bisector.vm.guest_output import Bounds
from bisector.workload.base import RunSite
from bisector.workload.fio import output
from bisector.workload.fio.fio import FIO
from bisector.workload.fio.run import MOST_STEERED_JOBS, FioSettings, run_once, steered_command
from tests.guest_answers import FIO as GOOD
from tests.guest_answers import FIO_FILES as FILES
from tests.guest_answers import FIO_RUNS, listed
from tests.guestshell import Answer, FakeShell

PROJECT = Path(__file__).parent.parent.parent
DATA = Path(__file__).parent.parent / "data" / "fio"
SETTINGS = FioSettings(PROJECT / "fio" / "partial.fio", 32 << 20, 40)
QUIET = Contention(0.1, 0.0, 0.0)
CACHE = CacheStatus("smq", "writeback", 1024, 1024, 0, 1, 2, 3, 4, 5, 6)
FAILED = Answer(listed("fio.json", "job.fio"), "\n@uptime 10.00\nfio: went wrong\n\n@uptime 10.20\n", 1)


@dataclass
class Meter:
    stopped: int = 0

    def stop(self) -> Contention:
        self.stopped += 1
        return QUIET


@dataclass
class Stack:
    mountpoint: str = "/mnt"
    device: str = ""
    room: str = "storage.hdd.size"

    def read(self, shell: Shell) -> Readings:
        return Readings((CACHE,))

    def counted(self, before: Readings, after: Readings) -> tuple[tuple[str, float], ...]:
        return (("cache.promotions", 2.0),)


@dataclass
class Bench:
    logs: Path
    settings: FioSettings = SETTINGS
    meter: Meter = field(default_factory=Meter)
    samples: list[LiveSample] = field(default_factory=list)
    stack: Stack = field(default_factory=Stack)

    def run(
        self,
        shell: FakeShell,
        name: str = "full",
        keep_files: bool = False,
        stop: StopRule | None = None,
        *,
        offset_bytes: int = 0,
        seed: int | None = None,
        goes_on: bool = False,
    ) -> Run:
        site = RunSite(
            shell,
            self.stack,
            name,
            logs=self.logs,
            keep_files=keep_files,
            start_meter=lambda: self.meter,
            on_sample=self.samples.append,
            deadline_s=100,
            locally=run_here,
            stop=stop,
            offset_bytes=offset_bytes,
            seed=seed,
            goes_on=goes_on,
        )
        return run_once(self.settings, site)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "logs")


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
    assert bench.meter.stopped == 1


def test_seed_is_in_the_job_that_runs_and_on_record(bench: Bench) -> None:
    shell = FakeShell({FIO_RUNS: GOOD}, FILES)
    bench.run(shell, seed=7)
    written = shell.written["/tmp/bisector/job.fio"]
    assert written == "[global]\nrandrepeat=0\nrandseed=7\n" + SETTINGS.job.read_text(encoding="utf-8")
    assert (bench.logs / "job.fio").read_text(encoding="utf-8") == written


def test_caches_are_dropped_before_fio_starts(bench: Bench) -> None:
    shell = FakeShell({FIO_RUNS: GOOD}, FILES)
    bench.run(shell)
    dropped = next(n for n, command in enumerate(shell.commands) if "drop_caches" in command)
    started = next(n for n, command in enumerate(shell.commands) if FIO_RUNS in command)
    assert dropped < started
    assert "FILE_SIZE=33554432 RUNTIME=40 DIRECTORY=/mnt/full DEVICE=device OFFSET=0 fio" in shell.commands[started]


def test_a_run_on_a_device_is_told_where_its_place_is(bench: Bench) -> None:
    """Nothing is linked to keep its blocks: on a device the place does it."""
    shell = FakeShell({FIO_RUNS: GOOD}, FILES)
    bench.stack = Stack("", "/dev/ram0")
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
    played(first, tmp_path, 'echo laid out > "$DIRECTORY/partial.0.0"; sleep 2; rm "$DIRECTORY/partial.0.0"')
    assert kept.read_text() == "laid out\n"
    assert not (mountpoint / "empty" / "partial.0.0").exists()
    # A round that goes on finds them, and is not to lay them out again.
    played(second, tmp_path, 'echo again >> "$DIRECTORY/partial.0.0"; rm "$DIRECTORY/partial.0.0"')
    assert kept.read_text() == "laid out\nagain\n"
    assert not (mountpoint / "empty@2" / "partial.0.0").exists()


def test_a_run_that_goes_on_without_files_lays_them_out(bench: Bench, tmp_path: Path) -> None:
    shell = FakeShell({FIO_RUNS: GOOD}, FILES)
    bench.run(shell, "empty@2", keep_files=True, goes_on=True)
    (command,) = (one for one in shell.commands if FIO_RUNS in one)
    played(command, tmp_path, 'ls -A "$DIRECTORY" > "$DIRECTORY/../listed"')
    assert (tmp_path / "mnt" / "listed").read_text() == ""


def played(command: str, tmp_path: Path, fio: str) -> None:
    """Run the command of a run on this host, with this shell text as fio."""
    program, outputs = tmp_path / "bin" / "fio", tmp_path / "outputs"
    for directory in (program.parent, outputs):
        directory.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{fio}\n")
    program.chmod(0o755)
    here = command.replace("/tmp/bisector", str(outputs)).replace("/mnt", str(tmp_path / "mnt"))
    process.run(["sh", "-c", f"PATH={program.parent}:$PATH; {here}"], deadline_s=60)


def test_a_job_file_that_the_guests_fio_refuses(bench: Bench) -> None:
    refused = Answer("", "fio: failed parsing rw=bogus\nfio: job partial dropped\n", 1)
    with pytest.raises(UserError, match="failed parsing rw=bogus") as caught:
        bench.run(FakeShell({FIO_RUNS: FAILED, "--parse-only": refused}, {"fio.json": ""}))
    assert "workload.job" in caught.value.message


def test_an_engine_that_fio_does_not_have(bench: Bench) -> None:
    said = "fio: engine nosuch not loadable\nfio: failed to load engine\n"
    with pytest.raises(UserError, match="engine nosuch not loadable"):
        bench.run(FakeShell({FIO_RUNS: replace(FAILED, stderr=said)}, {"fio.json": ""}))


def test_a_guest_without_fio(bench: Bench) -> None:
    missing = {
        FIO_RUNS: replace(FAILED, stdout=listed("job.fio"), exit_status=127),
        "command -v fio": Answer("", "", 127),
    }
    with pytest.raises(UserError, match="lacks fio"):
        bench.run(FakeShell(missing))


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


@pytest.mark.parametrize(("free_blocks", "error"), [("0", UserError), ("9000", InfraError)])
def test_output_that_is_cut_off(bench: Bench, free_blocks: str, error: type[Exception]) -> None:
    files = {**FILES, "fio.json": FILES["fio.json"][:500]}
    with pytest.raises(error):
        bench.run(FakeShell({FIO_RUNS: GOOD, "stat -f": Answer(free_blocks)}, files))


def test_no_room_for_the_outputs(bench: Bench) -> None:
    full = Answer("", "mkdir: cannot create directory '/tmp/bisector': No space left on device\n", 1)
    with pytest.raises(UserError, match="root disk is full"):
        bench.run(FakeShell({"mkdir": full}))


def test_the_meter_is_stopped_whatever_happens(bench: Bench) -> None:
    class Dies(FakeShell):
        def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> None:  # type: ignore[override]  # never returns
            raise KernelFault(Stage.WORKLOAD, FaultKind.PANIC, "Kernel panic")

    with pytest.raises(KernelFault, match="panic"):
        bench.run(Dies())
    assert bench.meter.stopped == 1


def test_logs_of_a_job_whose_name_has_a_space(bench: Bench) -> None:
    files = {"fio.json": FILES["fio.json"], "my job_iops.1.log": FILES["partial_iops.1.log"]}
    good = Answer(listed("fio.json", "job.fio", "my job_iops.1.log"), GOOD.stderr)
    bench.run(FakeShell({FIO_RUNS: good}, files))
    assert sorted(path.name for path in bench.logs.iterdir()) == ["fio.json", "my job_iops.1.log"]


def check_job(settings: FioSettings, objective: Objective) -> None:
    FIO.check(asdict(settings), objective, run_here)


def test_our_own_job_file_passes() -> None:
    check_job(SETTINGS, Objective())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("[global]\nrw=read\n", "no job section"),
        ("rw=read\n", "no job"),
        ("[a]\ndirectory=${DIRECTORY}\ngroup_reporting\n", "each job counts"),
    ],
)
def test_job_files_that_are_none(tmp_path: Path, text: str | None, message: str) -> None:
    job = tmp_path / "own.fio"
    if text is not None:
        job.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        check_job(replace(SETTINGS, job=job), Objective())


OWN = "[global]\nrw=randread\ndirectory=${DIRECTORY}\nlog_avg_msec=500\n"


def own_job(tmp_path: Path, text: str) -> FioSettings:
    """A person's own job file."""
    job = tmp_path / "own.fio"
    job.write_text(OWN + text, encoding="utf-8")
    return replace(SETTINGS, job=job)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("write_iops_log=a\nwrite_bw_log=a\nwrite_lat_log=a\nnumjobs=64\n[a]\n", "320 logs, .* at most 255"),
        ("write_iops_log=x\nnumjobs=128\n[a]\n[b]\n", "256 logs, .* at most 255"),
        ("write_iops_log\n[4k&rand]\n", "a log called '4k&rand_iops.1.log'"),
        ("write_lat_log=what?\n[a]\n", r"a log called 'what\?_lat.1.log'"),
        (f"write_iops_log={'x' * 200}\n[a]\n", "a log called 'xxx"),
        ("write_iops_log=a\n[a]\nnumjobs=2*3\n", "expected a whole number"),
    ],
)
def test_logs_that_would_not_be_fetched_are_refused_before_anything_is_built(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        check_job(own_job(tmp_path, text), Objective())
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "write_iops_log=x\n[4k&rand]\n",
        "[4k&rand]\n",
        "write_iops_log=x\n[a]\nnumjobs=200\n[b]\nnumjobs=55\n",
        "write_iops_log=x\nwrite_bw_log=y\n[a]\nnumjobs=120\n",
        "write_bw_log=/tmp/what?\n[a]\nnumjobs=300\n",
        "write_iops_log=rand read (4k)\n[a]\n",
    ],
)
def test_logs_that_are_fetched(tmp_path: Path, text: str) -> None:
    check_job(own_job(tmp_path, text), Objective())


def test_fio_on_this_machine_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "fio"
    fake.write_text('#!/bin/sh\necho "fio: failed parsing rw=bogus size $FILE_SIZE" >&2\nexit 1\n', encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UserError, match="rw=bogus size 33554432"):
        check_job(SETTINGS, Objective())
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(process.CommandMissing):
        process.run(["fio"], deadline_s=1)
    check_job(SETTINGS, Objective())


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


def test_a_run_that_is_not_clear_is_left_alone(bench: Bench) -> None:
    shell = FakeShell({FIO_RUNS: replace(INTERRUPTED, exit_status=0)}, {"fio.json": STEERED})
    assert bench.run(shell, stop=UNCLEAR).stopped_early is None
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


def test_a_status_with_something_else_in_it_says_nothing() -> None:
    reader = output.StatusReader()
    lines = STEERED.splitlines()
    lines.insert(40, "Jobs: 2 (f=2)")
    heard = [figures for line in lines if (figures := reader.hear(line)) is not None]
    assert heard == [output.parse_json(LAST)]


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


def test_a_job_with_a_ramp_is_never_ended_early(bench: Bench, tmp_path: Path) -> None:
    """During its ramp_time fio reports what it does not count in the end (seen with 3.33)."""
    job = tmp_path / "ramp.fio"
    job.write_text(SETTINGS.job.read_text(encoding="utf-8") + "ramp_time=5\n", encoding="utf-8")
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


# -- a guest that is not to be trusted ---------------------------------------------------------------------------------


@dataclass
class Copies(FakeShell):
    """Notes what is copied out of it, and where to."""

    copied: list[Path] = field(default_factory=list)

    def get(self, remote: str, local: Path) -> None:
        self.copied.append(local)
        local.write_text(FILES.get(Path(remote).name, "of the guest"), encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        "{}/stolen",
        "../stolen",
        "a/b",
        "..",
        ".",
        ".profile",
        "-rf",
        "a\tb",
        "a\x1b[2J",
        "a\u202eb",
        "a\x00b",
        "a" * 201,
        "ü" * 101,
    ],
)
def test_a_guest_does_not_say_where_its_files_go(bench: Bench, tmp_path: Path, name: str) -> None:
    """All that is named here lies below the test's own directory, for the day on which this fails."""
    name = name.format(tmp_path)
    (tmp_path / "stolen").write_text("precious")
    shell = Copies({FIO_RUNS: replace(GOOD, stdout=listed("fio.json", "job.fio", name))}, FILES)
    with pytest.raises(KernelFault, match="fio left a file called") as caught:
        bench.run(shell)
    assert caught.value.stage is Stage.WORKLOAD
    assert shell.copied == []
    assert list(bench.logs.iterdir()) == []
    assert (tmp_path / "stolen").read_text() == "precious"
    assert caught.value.reason.isprintable()


@pytest.mark.parametrize(
    "name", ["rand read (4k)_iops.1.log", "größe_iops.1.log", "seq:read_lat.1.log", "a+b=c@d,e#f%g"]
)
def test_jobs_may_be_called_as_people_call_them(bench: Bench, name: str) -> None:
    shell = Copies({FIO_RUNS: replace(GOOD, stdout=listed("fio.json", "job.fio", name))}, FILES)
    bench.run(shell)
    assert shell.copied == [bench.logs / "fio.json", bench.logs / name]


def test_a_guest_with_a_million_files(bench: Bench) -> None:
    names = (f"{n}.log" for n in range(100_000))
    shell = Copies({FIO_RUNS: replace(GOOD, stdout=listed("fio.json", *names))}, FILES)
    with pytest.raises(KernelFault, match="fio left 100,001 files"):
        bench.run(shell)
    assert shell.copied == []


@pytest.mark.parametrize("line", ["fio.json", "x fio.json", "-1 fio.json", "1e3 fio.json", f"{'9' * 21} fio.json"])
def test_a_list_of_files_that_is_none(bench: Bench, line: str) -> None:
    shell = Copies({FIO_RUNS: replace(GOOD, stdout=f"{line}\n")}, FILES)
    with pytest.raises(KernelFault, match="fio left a file called"):
        bench.run(shell)


@dataclass
class Large(Copies):
    """Its logs have the size that it tells."""

    log_bytes: int = 0

    def get(self, remote: str, local: Path) -> None:
        super().get(remote, local)
        if remote.endswith(".log"):
            os.truncate(local, self.log_bytes)


def test_a_log_that_is_too_large_is_left_out_and_told(bench: Bench) -> None:
    """Only a fast kernel has so many I/Os to log: it is not to be skipped for that."""
    large = listed("a_iops.1.log", size_bytes=(64 << 20) + 1) + listed("b_iops.2.log", size_bytes=64 << 20)
    shell = Large({FIO_RUNS: replace(GOOD, stdout=large + listed("fio.json", "job.fio"))}, FILES, log_bytes=64 << 20)
    assert len(bench.run(shell).jobs) == 2
    assert shell.copied == [bench.logs / "fio.json", bench.logs / "b_iops.2.log"]
    told = (bench.logs / "left-out.txt").read_text()
    assert told.endswith("\na_iops.1.log: 67,108,865 bytes\n")
    assert "log_avg_msec" in told


def test_logs_that_are_large_together(bench: Bench) -> None:
    names = [f"{n}.log" for n in range(100)]
    found = listed("fio.json") + listed(*names, size_bytes=60 << 20)
    shell = Large({FIO_RUNS: replace(GOOD, stdout=found)}, FILES, log_bytes=60 << 20)
    bench.run(shell)
    assert len(shell.copied) == 5
    assert len((bench.logs / "left-out.txt").read_text().splitlines()) == 97


def test_the_figures_are_never_left_out(bench: Bench) -> None:
    """How much of them is taken is for the connection to say."""
    shell = Copies({FIO_RUNS: replace(GOOD, stdout=listed("fio.json", size_bytes=1 << 40))}, FILES)
    bench.run(shell)
    assert shell.copied == [bench.logs / "fio.json"]


@pytest.mark.parametrize(
    "clock",
    ["nan", "inf", "1e400", "", "-1", "ten", "9" * 5000, "10.0\n@uptime 11.0"],
)
def test_a_guests_clock_that_is_none(bench: Bench, clock: str) -> None:
    answer = replace(GOOD, stderr=GOOD.stderr.replace("@uptime 10.00", f"@uptime {clock}"))
    with pytest.raises(KernelFault, match="clock was read"):
        bench.run(FakeShell({FIO_RUNS: answer}, FILES))


@pytest.mark.parametrize("figure", ["18446744073709551615", "-1", "NaN", "Infinity", "-Infinity", "1e400", "9" * 5000])
def test_figures_that_no_machine_has_are_the_kernels(bench: Bench, figure: str) -> None:
    files = {**FILES, "fio.json": FILES["fio.json"].replace('"total_ios" : 39268', f'"total_ios" : {figure}', 1)}
    with pytest.raises(KernelFault, match="figure") as caught:
        bench.run(FakeShell({FIO_RUNS: GOOD, "stat -f": Answer("77\n")}, files))
    assert caught.value.kind is FaultKind.COMMAND_FAILED
    assert len(caught.value.reason) < 400


def test_an_output_without_a_job_that_reads(bench: Bench) -> None:
    files = {"fio.json": '{"fio version": "fio-3.33", "jobs": []}'}
    with pytest.raises(KernelFault, match="no figures of a job that reads"):
        bench.run(FakeShell({FIO_RUNS: replace(GOOD, stdout=listed("fio.json"))}, files))


def test_an_output_without_the_figures_of_one_of_the_jobs(bench: Bench) -> None:
    document = json.loads(FILES["fio.json"])
    del document["jobs"][1]
    files = {**FILES, "fio.json": json.dumps(document)}
    with pytest.raises(KernelFault, match="figures of 1 jobs, and 2 were started"):
        bench.run(FakeShell({FIO_RUNS: GOOD}, files))
