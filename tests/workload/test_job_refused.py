"""Job files that others wrote: taken, or refused before anything is built, with the line and what to write instead."""

import re
import subprocess
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.errors import UserError
from bisector.doctor.checks import check_workload
from bisector.workload.fio import job_file
from bisector.workload.fio.checks import objections, untaken
from bisector.workload.fio.job_file import jobs
from tests.workload.test_job_file import GOOD, TIMED

OTHERS = Path(__file__).parent.parent / "data" / "jobs"
TAKEN = f"[global]\nioengine=libaio\nrw=randread\ndirectory=${{DIRECTORY}}\nsize=${{FILE_SIZE}}\n{TIMED}[x]\n"


def refusal(job: Path, **flags: str) -> str:
    """What is said of a job file, with what to do about it; nothing of one that is taken."""
    given = {"storage.stack": "hdd", **{key.replace("__", "."): value for key, value in flags.items()}}
    try:
        settings = options.load({"workload.job": str(job), **given}, directory=Path("/")).settings
        list(check_workload(settings))
    except UserError as error:
        return f"{error}\n  {error.hint}"
    return ""


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        (
            "kdiskmark-as-posted",
            {},
            [r'line 4 "filename=.fio-diskmark": .*elsewhere', r"set directory=\$\{DIRECTORY\}"],
        ),
        (
            "kdiskmark-with-directory",
            {},
            [
                r'line 7 "runtime=30\t#seconds": .*runs for 30s, all jobs take 100s, and workload.runtime is 40s',
                r"runtime=\$\{RUNTIME\}, or --runtime 100s",
                'line 10 "stonewall\t#one after the other": .*leave stonewall out',
                'line 3 "filesize=1g": files of 1GiB, 10GiB in all; .*no room',
            ],
        ),
        ("kdiskmark-with-directory", {"workload__runtime": "100s", "storage__hdd__size": "16GiB"}, []),
        (
            "ssd-test-as-posted",
            {},
            [r'line 8 "directory=/mount-point-of-ssd": .*elsewhere', r"directory=\$\{DIRECTORY"],
        ),
        (
            "ssd-test-with-directory",
            {},
            [
                'line 7 "runtime=60": .*not time_based: it ends when it has done its size once, or after 60, and .*40s',
                r"time_based and runtime=\$\{RUNTIME\}",
                r'line 5 "size=10g": files of 10GiB, 10GiB in all; .*1GiB has no room .*; size=\$\{FILE_SIZE\}',
            ],
        ),
        ("ssd-test-stonewall-timed", {}, ['line 17 "stonewall": .*all jobs take 160s, and workload.runtime is 40s']),
        ("foreign-variables-numjobs", {}, [r'line 3 "numjobs=\$\{NUMJOBS\}": the guest has no variable NUMJOBS']),
        ("foreign-variables-var", {}, ["line 4 .*IODEPTH", "line 5 .*BLOCK_SIZE", "line 8 .*SIZE", r"\$\{FILE_SIZE\}"]),
        ("engines-windows", {}, ['line 2 "ioengine=windowsaio": .*no I/O engine windowsaio', "ioengine=libaio"]),
        ("engines-rbd", {}, ['line 2 "ioengine=rbd": .*no network', "ioengine=libaio"]),
        ("engines-uring", {}, []),
        ("engines-typo", {}, ['line 4 "rw=randraed": ', "did you mean randread"]),
        ("engines-typo2", {}, ['line 5 "iodepht=8": fio-3.33 has no option iodepht', "did you mean iodepth"]),
        (
            "zoned-zbd",
            {"storage__stack": "hdd+raw"},
            ['line 5 "zonemode=zbd": .*no disk of a stack', "zonemode=strided"],
        ),
        ("zoned-strided", {"storage__stack": "hdd+raw"}, []),
        ("name-option-name", {}, []),
        ("name-option-name", {"bisect__over": "file1"}, []),
        (
            "name-option-name",
            {"bisect__over": "fio-seq-RW"},
            ['line 2 "name=fio-seq-RW" is in .global.', "one of: file1"],
        ),
    ],
)
def test_job_files_of_others(name: str, flags: dict[str, str], said: list[str]) -> None:
    text = refusal(OTHERS / f"{name}.fio", **flags)
    assert bool(text) is bool(said), text
    for words in said:
        assert re.search(words, text), text


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ("runtime=40s\nloops=3\nramp_time=5s", ""),
        ("timeout=60", r'line 9 "timeout=60": .*runs for 1min, all jobs take 1min, and workload.runtime is 40s'),
        ("runtime=1:00", r'line 9 "runtime=1:00": .*runtime=1:00 is not a time'),
        ("time_based=0", r'line 7 "runtime=\$\{RUNTIME\}": .*not time_based'),
        ("  startdelay=5", r'line 9 "  startdelay=5": .*begins after 5s, so that all jobs take 45s'),
        ("startdelay=10\nruntime=30", ""),
        ("stonewall", ""),
        ("stonewall=0\n[y]\nstonewall=0", ""),
        ("[y]\nwait_for_previous", r'line 10 "wait_for_previous": .*begins after 40s, so that all jobs take 80s'),
        ("[y]\nwait_for=x", 'line 10 "wait_for=x": .*all jobs take 80s'),
        ("runtime=10\n[y]\nstonewall\nruntime=30", ""),
        ("ss=iops:0.3%", 'line 9 "ss=iops:0.3%": .*when its figures are steady'),
        ("latency_target=10ms", "line 9 .*latency_target"),
        ("size=10g", r'line 9 "size=10g": files of 10GiB, 10GiB in all; .*no room'),
        ("size=300m\nnumjobs=4", 'line 9 "size=300m": files of 300MiB, 1200MiB in all; .*no room'),
        ("size=300m\nnumjobs=4\nfilename=one", ""),
        ("filesize=400m\nnrfiles=4", 'line 9 "filesize=400m": files of 400MiB, 1600MiB in all'),
        ("size=400m\nnrfiles=4", ""),
        ("filesize=1k-2g", "line 9 .*files of 2GiB"),
        ("size=50%", 'line 9 "size=50%": .*share of files that are there before'),
        ("size=${FILE_SIZE}\nnumjobs=40", "40 jobs of 32MiB are 1280MiB; .*no room"),
        ("numjobs=$ncpus", 'line 9 "numjobs=.ncpus": .*whole number'),
        ("numjobs=0", 'line 9 "numjobs=0": .*1 to 9999'),
        ("numjobs=2*3", 'line 9 "numjobs=2.3": .*1 to 9999'),
        ("iodepth=${ncpus}", 'line 9 "iodepth=..ncpus.": .*\n  write .ncpus'),
        ("iodepth=$ncpus", ""),
        ("filename_format=$jobname.$jobnum.$clientuid", ""),
        ("runtime=$RUNTIME", 'line 9 "runtime=.RUNTIME": .*without its value\n  write ..RUNTIME.'),
        ("bs=${FILESIZE}", "no variable FILESIZE.*\n  did you mean ..FILE_SIZE.?"),
        ("description=${FOO}", ""),
        ("ioengine=posixaio", ""),
        ("ioengine=external:./own.so", 'line 9 "ioengine=external:./own.so": .*gets this one file'),
        ("ioengine=libhdfs", "line 9 .*no network"),
        ("[burn]\nioengine=cpuio\ncpuload=50", 'line 10 "ioengine=cpuio": .*the engine cpuio does no I/O'),
        ("ioengine=null", "line 9 .*the engine null does no I/O"),
        ("ioengine=libiao", "line 9 .*no I/O engine libiao\n  did you mean libaio"),
        ("read_iolog=trace", "line 9 .*this one file"),
        ("hipri=1", "line 9 .*the engine libaio has no option hipri\n  .*engines that have it: .*io_uring"),
        ("ioengine=io_uring\nhipri", ""),
        ("random_distribution=zpif:1.2", "line 9 .*does not take 'zpif' for random_distribution\n  did you mean zipf"),
        ("random_distribution=zipf:1.2", ""),
        ("iodepth=eight", "line 9 .*\\n  expected a number"),
        ("iodepth=0", "line 9 .*iodepth is 1 or more"),
        ("direct=2", "line 9 .*direct is 1 or less"),
        ("direct", "line 9 .*direct needs a value"),
        ("thread", ""),
        ("\tiodepht=8", 'line 9 "\tiodepht=8": '),
        ("RW=read", "line 9 .*has no option RW"),
        ("rw = randread", "line 9 .*does not take ' randread' for rw\n  did you mean randread"),
        ("rw =randread\nbs = 4k\nioengine = libaio\niodepth=2*16\nrate_iops=,100\nbs=$pagesize", ""),
        ('size="4m"', "line 9 .*does not take '\"4m\"' for size\n  expected a number"),
        ("bs=$BS", "line 9 .*does not take '.BS' for bs"),
        ("rw=$RW", "line 9 .*does not take '.RW' for rw"),
        ("ioengine=$ENGINE", "line 9 .*no I/O engine .ENGINE"),
    ],
)
def test_a_line_more(tmp_path: Path, added: str, words: str) -> None:
    job = tmp_path / "job.fio"
    job.write_text(f"{TAKEN}{added}\n", encoding="utf-8")
    text = refusal(job)
    assert bool(text) is bool(words), text
    assert re.search(words, text), text


def test_work_of_a_fixed_amount_is_judged_by_its_time(tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text(TAKEN.replace(TIMED, ""), encoding="utf-8")
    assert "not time_based" in refusal(job)
    assert refusal(job, bisect__metric="elapsed") == ""


def test_a_mark_of_utf_8_is_passed_over_and_bytes_of_another_encoding(tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_bytes(f"\ufeff{GOOD}".encode() + b"# gr\xfc\xdfe\n")
    assert refusal(job) == ""
    job.write_text(GOOD, encoding="utf-16")
    assert "is not text in UTF-8" in refusal(job)


def test_options_before_any_section(tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text(f"; mine\nrw=randread\n{TAKEN}", encoding="utf-8")
    assert re.search('line 2 "rw=randread": .*before any .section.\n  write .global. above it$', refusal(job))


@pytest.mark.parametrize(
    ("added", "metric", "words"),
    [
        (
            "gtod_reduce=1",
            "read.slat.mean",
            r'\[x\] has no read.slat.mean: line 9 "gtod_reduce=1"\n  leave gtod_reduce',
        ),
        ("gtod_reduce=1", "read.iops", ""),
        ("disable_lat=1", "read.lat.mean", 'line 9 "disable_lat=1"'),
        ("disable_lat=1", "read.clat.p99", ""),
        ("", "read.lat.p99", "fio computes no percentiles of lat\n  lat_percentiles=1"),
        ("lat_percentiles=1", "read.lat.p99", ""),
        ("clat_percentiles=0", "read.clat.p99", "fio computes no percentiles of clat"),
        ("percentile_list=50:90", "read.clat.p99", 'line 9 "percentile_list=50:90"\n  add 99 to the list'),
        ("percentile_list=50:99.0:99.9", "read.clat.p99", ""),
        ("[y]\ndisable_clat=1\n[z]\nrw=write\ndisable_clat=1", "read.clat.mean", 'line 10 "disable_clat=1"'),
    ],
)
def test_a_latency_that_the_jobs_do_not_measure(tmp_path: Path, added: str, metric: str, words: str) -> None:
    job = tmp_path / "job.fio"
    job.write_text(f"{TAKEN}{added}\n", encoding="utf-8")
    text = refusal(job, bisect__metric=metric)
    assert bool(text) is bool(words), text
    assert re.search(words, text), text
    if "[y]" in added:
        assert refusal(job, bisect__metric=metric, bisect__over="x") == ""


def test_job_by_the_name_that_fio_gives_it(tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text(TAKEN + "name=own\n", encoding="utf-8")
    assert [one.processes for one in jobs(TAKEN + "name=own\nnumjobs=2\n")] == [("own", "x")]
    assert refusal(job, bisect__over="own") == ""
    assert re.search('no job .x.: fio calls .x. own, by line 9 "name=own"', refusal(job, bisect__over="x"))


def test_the_fio_of_a_persons_own_image_is_asked_in_its_first_guest(tmp_path: Path) -> None:
    job, files = tmp_path / "job.fio", [tmp_path / name for name in ("root.ext4", "key", "key.pub")]
    job.write_text(TAKEN + "new_in_fio_4=1\n", encoding="utf-8")
    for file in files:
        file.write_text("", encoding="utf-8")
    named = ("machine__image", "machine__image_key", "machine__image_host_key")
    assert "no option new_in_fio_4" in refusal(job)
    assert refusal(job, **dict(zip(named, map(str, files), strict=True))) == ""


def test_our_own_job_files_are_taken_on_the_default_stack() -> None:
    ours = sorted((Path(__file__).parent.parent.parent / "fio").glob("*.fio"))
    assert [(job.name, said) for job in ours if (said := refusal(job, storage__stack="lvmcache"))] == []
    assert all([*objections(text), *untaken(text, {})] == [] for text in (job.read_text() for job in ours))


def test_the_table_is_of_the_fio_that_the_image_has() -> None:
    """Names of options and engines, where this machine has that fio; a run in a guest sees the rest."""
    asked = [subprocess.run(["fio", flag], capture_output=True, text=True, check=True).stdout for flag in
             ("--version", "--cmdhelp=all", "--enghelp")]  # fmt: skip
    if asked[0].strip() != job_file.VERSION:
        pytest.skip(f"this machine has {asked[0].strip()}")
    names, engines = ({line.split(":")[0].strip() for line in text.splitlines() if line.strip()} for text in asked[1:])
    table = [line.split() for line in job_file.TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    assert {first.rstrip("?").split(",")[0] for first, *_ in table if first != "engine"} == names
    assert {words[0] for first, *words in table if first == "engine"} == engines - {"Available IO engines"}
