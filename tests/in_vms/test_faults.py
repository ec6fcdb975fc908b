"""Input that only a real guest can refuse: the sentence for the person, and never a verdict."""

from pathlib import Path

import pytest

from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool

pytestmark = pytest.mark.vm

JOB = """\
[mine]
ioengine=libaio
direct=1
{option}
readwrite=randread
blocksize=4k
directory=${{DIRECTORY}}
size={size}
numjobs=2
time_based
runtime=${{RUNTIME}}
"""

FAULTS = {
    "a value that is none": (
        ("percentile_list=a", "16M"),
        ("workload.job: ", "mine.fio: ", "failed parsing percentile_list=a"),
    ),
    "no room on the stack": (("iodepth=8", "0x80000000"), ("ENOSPC", "do not fit on the stack", "workload.file_size")),
}


@pytest.mark.parametrize(("job", "words"), FAULTS.values(), ids=FAULTS)
def test_job_file(tool: Tool, demo: History, tmp_path: Path, job: tuple[str, str], words: tuple[str, ...]) -> None:
    option, size = job
    file = tmp_path / "mine.fio"
    file.write_text(JOB.format(option=option, size=size))
    said = tool.refused(demo.new, "--job", file, *SHORT)
    assert all(word in said for word in words), said
