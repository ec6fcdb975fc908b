"""The files that settings name: lines of bisector.toml, job files, and those that bisector brings."""

from pathlib import Path

import pytest

from bisector.config import file
from bisector.core import resources
from bisector.core.errors import InfraError, UserError
from bisector.workload.fio.fio import FIO
from tests.config.given import from_argv

TOML = """\
profile = "quick"  # first
storage.cache_size = 1

[ bisect ]
# threshold = 5
threshold = 6
[storage.ssd]
"size" = 7
[storage]
hdd = { size = 1, path = "x" }
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("profile", 1),
        ("storage.cache_size", 2),
        ("bisect.threshold", 6),
        ("storage.ssd.size", 8),
        ("storage.hdd.path", 10),
        ("storage.ssd.path", None),
    ],
)
def test_line_of(key: str, line: int | None) -> None:
    assert file.line_of(TOML, key) == line


def jobs_of(job: Path) -> int:
    """How many files, of one byte each, a run writes."""
    return FIO.files({"job": job, "file_bytes": 1, "runtime_s": 1}).total_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[a]\n", 1),
        ("[global]\nnumjobs = 3\n[a]\ndirect=1\n[b]\nnumjobs=4\ntime_based\n", 7),
        ("; numjobs=9\n[a]\n# numjobs=8\n[a]\n", 2),
        ("[a]\nnumjobs=4 ; four readers\n", 4),
        ("[global]\nnumjobs=2\n[a]\n[global extra]\nnumjobs=3 # from here on\n[b]\n", 5),
    ],
)
def test_job_count(text: str, count: int, directory: Path) -> None:
    job = directory / "my.fio"
    job.write_text(text, encoding="utf-8")
    assert jobs_of(job) == count


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[global]\nnumjobs=2\n", "my.fio has no job"),
        (b"[a]\nnumjobs=some\n", "my.fio: [a] numjobs = some: expected a whole number"),
        (b"[a]\nnumjobs\n", "my.fio: [a] numjobs = : expected a whole number"),
        (b"[a]\nnumjobs=2*3\n", "my.fio: [a] numjobs = 2*3: expected a whole number"),
        (b"[a]\nnumjobs=0\n", "my.fio: [a] numjobs = 0: expected a whole number from 1 to 9999"),
        (b"\xff", "cannot read the fio job file"),
    ],
)
def test_bad_job_file(content: bytes, message: str) -> None:
    Path("my.fio").write_bytes(content)
    with pytest.raises(UserError, match=r"workload\.job = .*my\.fio \(--job\): ") as caught:
        from_argv("--job", "my.fio")
    assert message in str(caught.value)


def test_our_own_files_are_there() -> None:
    assert resources.fragment("vm").is_file()
    assert resources.job("partial.fio").is_file()
    assert resources.vm_images().is_dir()
    assert jobs_of(resources.job("partial.fio")) == 2


def test_incomplete_installation(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setattr(resources, "ROOT", directory)
    with pytest.raises(InfraError, match=r"the installation is incomplete: .*kconfigs is missing"):
        resources.kconfigs()
