"""A guest that is not to be trusted: the names, sizes and figures of what it sends."""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.core.trial import FaultKind, KernelFault, Stage
from tests.guest_answers import FIO as GOOD
from tests.guest_answers import FIO_FILES as FILES
from tests.guest_answers import FIO_RUNS, listed
from tests.guestshell import Answer, FakeShell
from tests.workload.fio_bench import Bench


@dataclass
class Copies(FakeShell):
    """Notes what is copied out of it, and where to; its logs have the size that it tells, if it tells one."""

    copied: list[Path] = field(default_factory=list)
    log_bytes: int = 0

    def get(self, remote: str, local: Path) -> None:
        self.copied.append(local)
        local.write_text(FILES.get(Path(remote).name, "of the guest"), encoding="utf-8")
        if remote.endswith(".log") and self.log_bytes:
            os.truncate(local, self.log_bytes)


def guest(listing: str, log_bytes: int = 0) -> Copies:
    return Copies({FIO_RUNS: replace(GOOD, stdout=listing)}, FILES, log_bytes=log_bytes)


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
    shell = guest(listed("fio.json", "job.fio", name))
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
    shell = guest(listed("fio.json", "job.fio", name))
    bench.run(shell)
    assert shell.copied == [bench.logs / "fio.json", bench.logs / name]


def test_a_guest_with_a_million_files(bench: Bench) -> None:
    shell = guest(listed("fio.json", *(f"{n}.log" for n in range(100_000))))
    with pytest.raises(KernelFault, match="fio left 100,001 files"):
        bench.run(shell)
    assert shell.copied == []


@pytest.mark.parametrize("line", ["fio.json", "x fio.json", "-1 fio.json", "1e3 fio.json", f"{'9' * 21} fio.json"])
def test_a_list_of_files_that_is_none(bench: Bench, line: str) -> None:
    with pytest.raises(KernelFault, match="fio left a file called"):
        bench.run(guest(f"{line}\n"))


def test_a_log_that_is_too_large_is_left_out_and_told(bench: Bench) -> None:
    """Only a fast kernel has so many I/Os to log: it is not to be skipped for that."""
    large = listed("a_iops.1.log", size_bytes=(64 << 20) + 1) + listed("b_bw.2.log", size_bytes=64 << 20)
    shell = guest(large + listed("fio.json", "job.fio"), log_bytes=64 << 20)
    assert len(bench.run(shell).jobs) == 2
    assert shell.copied == [bench.logs / "fio.json", bench.logs / "b_bw.2.log"]
    told = (bench.logs / "left-out.txt").read_text()
    assert told.endswith("\na_iops.1.log: 67,108,865 bytes\n")
    assert "log_avg_msec" in told


def test_logs_that_are_large_together(bench: Bench) -> None:
    names = [f"{n}.log" for n in range(100)]
    shell = guest(listed("fio.json") + listed(*names, size_bytes=60 << 20), log_bytes=60 << 20)
    bench.run(shell)
    assert len(shell.copied) == 5
    assert len((bench.logs / "left-out.txt").read_text().splitlines()) == 97


def test_the_figures_are_never_left_out(bench: Bench) -> None:
    """How much of them is taken is for the connection to say."""
    shell = guest(listed("fio.json", size_bytes=1 << 40))
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


@pytest.mark.parametrize("figure", ["18446744073709551615", "9" * 5000])
def test_figures_that_no_machine_has_are_the_kernels(bench: Bench, figure: str) -> None:
    files = {**FILES, "fio.json": FILES["fio.json"].replace('"total_ios" : 39268', f'"total_ios" : {figure}', 1)}
    with pytest.raises(KernelFault, match="figure") as caught:
        bench.run(FakeShell({FIO_RUNS: GOOD, "stat -f": Answer("77\n")}, files))
    assert caught.value.kind is FaultKind.COMMAND_FAILED
    assert len(caught.value.reason) < 400


@pytest.mark.parametrize(
    ("left", "message"), [(0, "no figures of a job that reads"), (1, "figures of 1 jobs, and 2 were started")]
)
def test_an_output_without_the_figures_of_each_job(bench: Bench, left: int, message: str) -> None:
    document = json.loads(FILES["fio.json"])
    del document["jobs"][left:]
    with pytest.raises(KernelFault, match=message):
        bench.run(FakeShell({FIO_RUNS: GOOD}, {**FILES, "fio.json": json.dumps(document)}))
