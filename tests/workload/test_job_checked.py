"""Job files that are refused before anything is built."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.core.objective import Objective
from bisector.host.process import run_here
from bisector.workload.fio.fio import Fio
from tests.workload.fio_bench import SETTINGS, own_job


def check_job(settings: Fio, objective: Objective) -> None:
    settings.check(objective, run_here)


def test_a_job_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        check_job(replace(SETTINGS, job=tmp_path / "own.fio"), Objective())


@pytest.mark.parametrize("text", ["[a]\n", "[a]\nwrite_iops_log=a\nlog_avg_msec=0\n", "[a]\nwrite_iops_log=a\n[b]\n"])
@pytest.mark.parametrize("metric", ["read.iops.steady", "settled_after"])
def test_without_a_log_of_each_job_no_run_is_split(tmp_path: Path, text: str, metric: str) -> None:
    settings = own_job(tmp_path, text)
    check_job(settings, Objective())
    with pytest.raises(UserError, match=f"no run has {metric}: not each job leaves a log") as caught:
        check_job(settings, Objective(metric))
    assert "log_avg_msec=500" in caught.value.hint
    check_job(SETTINGS, Objective(metric))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("write_iops_log=a\nwrite_bw_log=a\nwrite_lat_log=a\nnumjobs=64\n[a]\n", "320 logs, .* at most 255"),
        ("write_iops_log=x\nnumjobs=128\n[a]\n[b]\n", "256 logs, .* at most 255"),
        ("write_iops_log\n[4k&rand]\n", "a log called '4k&rand_iops.1.log'"),
        ("write_lat_log=what?\n[a]\n", r"a log called 'what\?_lat.1.log'"),
        (f"write_iops_log={'x' * 200}\n[a]\n", "a log called 'xxx"),
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


def test_a_metric_of_syncs_takes_a_job_that_syncs(tmp_path: Path) -> None:
    check_job(own_job(tmp_path, "rw=write\n[a]\n[b]\nfdatasync=1\n"), Objective("sync.lat.p99"))
    with pytest.raises(UserError, match=r"no job has sync\.lat\.p99: none is told to sync") as caught:
        check_job(own_job(tmp_path, "rw=write\nfsync=0\n[a]\n"), Objective("sync.lat.p99"))
    assert "set fsync=N or fdatasync=N" in str(caught.value.hint)
