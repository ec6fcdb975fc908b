"""The job files that come with the tool: fio takes each, and each says what it is measured by."""

import json
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.core.errors import UserError
from bisector.host import process
from bisector.host.process import run_here
from bisector.workload.fio import job_file
from bisector.workload.fio.fio import Fio
from tests.workload.fio_bench import own_job
from tests.workload.test_job_file import GOOD, TIMED

MIB = 1 << 20
# The workloads of two recorded sets: what fio is told of each, and what it is measured by.
CLOUD = {
    "rand-write-iops": ("randwrite", "4k", "128", "write.iops"),
    "rand-read-iops": ("randread", "4k", "128", "read.iops"),
    "write-bandwidth": ("write", "1m", "64", "write.bw"),
    "read-bandwidth": ("read", "1m", "64", "read.bw"),
    "rand-write-latency": ("randwrite", "4k", "1", "write.clat.mean"),
    "rand-read-latency": ("randread", "4k", "1", "read.clat.mean"),
}
RECORDED = {**CLOUD, "randrw": ("randrw", "4k", "32", "read.slat.mean")}
SHIPPED = {"partial": ("randread", "4k", "8", "read.iops"), **RECORDED}


def own(job: Path) -> Fio:
    return Fio(job, MIB, 1)


def test_the_table_has_each() -> None:
    assert {path.name for path in resources.jobs().iterdir()} == {f"{name}.fio" for name in SHIPPED}


@pytest.mark.parametrize("name", SHIPPED)
def test_fio_takes_it_and_it_has_what_it_is_measured_by(name: str) -> None:
    job = resources.job(name)
    (section,) = job_file.jobs(job.read_text(encoding="utf-8"))
    options = section.options
    objective = own(job).deciding().objective
    assert (options["rw"], options["bs"], options["iodepth"], objective.metric) == SHIPPED[name]
    assert (options["ioengine"], options["direct"], objective.over) == ("libaio", "1", "worst")
    own(job).check(objective, run_here)
    assert own(job).unseeded() == ()


def test_job_with_a_seed_of_its_own_is_told(tmp_path: Path) -> None:
    (said,) = own_job(tmp_path, "[one]\nrandseed=5\n").unseeded()
    assert said.startswith("job one does not follow the seed")


def test_a_shipped_one_is_known_by_its_name_alone() -> None:
    assert resources.job("randrw") == resources.job("randrw.fio") == resources.jobs() / "randrw.fio"
    with pytest.raises(UserError, match="no fio job file rand-rw"):
        resources.job("rand-rw")


def offsets(directory: Path, text: str) -> list[list[str]]:
    """The first blocks that the real fio reads in each job."""
    job = directory / "job.fio"
    lines = "ioengine=sync\nio_size=64k\nwrite_lat_log=log\nlog_offset=1\n"
    job.write_text(text.replace(TIMED, "").replace("[one]", f"{lines}[one]"), encoding="utf-8")
    where = {"DIRECTORY": f"{directory}", "FILE_SIZE": f"{MIB}"}
    process.run(
        ["fio", "--output-format=json", "--output=out.json", "job.fio"], cwd=directory, deadline_s=30, env=where
    )
    logs = [directory / f"log_clat.{n}.log" for n in (1, 2)]
    return [[line.split(",")[4] for line in log.read_text().splitlines()] for log in logs]


def test_seed_decides_which_blocks_are_read(tmp_path: Path) -> None:
    """What holds for the text of a job file holds for the real fio."""
    text = GOOD.replace("write_iops_log=x\n", "")
    first, again, other = (offsets(tmp_path, job_file.seeded(text, seed)) for seed in (7, 7, 8))
    assert first == again
    assert all(one != another for one, another in zip(first, other, strict=True))
    assert first[0] != first[1]
    told = json.loads((tmp_path / "out.json").read_text())["global options"]
    assert told["randseed"] == "8"
