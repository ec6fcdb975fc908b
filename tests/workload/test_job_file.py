"""Job files that fio takes and that would be read wrongly; how each is meant was seen with fio 3.33."""

from collections.abc import Iterator

import pytest

from bisector.core.errors import UserError
from bisector.core.objective import Objective
from bisector.workload.fio.checks import Objection, objections, unfit_for_device, unfit_for_files
from bisector.workload.fio.job_file import deciding, jobs, lacks, own_seeds, seeded

TIMED = "time_based\nruntime=${RUNTIME}\n"
GOOD = (
    f"[global]\nrw=randread\ndirectory=${{DIRECTORY}}\nsize=${{FILE_SIZE}}\n{TIMED}write_iops_log=x\n[one]\nnumjobs=2\n"
)


def only(found: Iterator[Objection]) -> Objection | None:
    return next(found, None)


def said(text: str) -> str:
    found = only(objections(text))
    assert found is not None
    assert found.advice
    if found.line:
        assert text.splitlines()[found.line.number - 1] == found.line.text
    return found.why


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", ""),
        ("; group_reporting", ""),
        ("# group_reporting=1", ""),
        ("group_reporting=0", ""),
        ("group_reporting = 00 ; off", ""),
        ("unified_rw_reporting=both", ""),
        ("unified_rw_reporting=0", ""),
        ("per_job_logs", ""),
        ("rw=rw:4", ""),
        ("readwrite=randrw", ""),
        ("directory=${DIRECTORY}/one:${DIRECTORY}/other", ""),
        ("filename=/file", ""),
        ("filename=one:other", ""),
        ("filename_format=$jobname.$filenum", ""),
        ("opendir=${DIRECTORY}/below", ""),
        ("description=include nothing, group_reporting of no kind", ""),
        ("group_reporting", "[one] group_reporting"),
        ("group_reporting=1", "[one] group_reporting"),
        ("  group_reporting\t", "[one] group_reporting"),
        ("group_reporting\r", "[one] group_reporting"),
        ("unified_rw_reporting=1", "[one] unified_rw_reporting=1 makes"),
        ("unified_rw_reporting=mixed", "[one] unified_rw_reporting=mixed makes"),
        ("per_job_logs=0", "[one] per_job_logs=0 writes"),
        ("directory=/mnt", "[one] has its files elsewhere"),
        ("directory=", "[one] has its files elsewhere"),
        ("directory=/elsewhere\nfilename=${DIRECTORY}/file", "(/elsewhere)"),
        ("directory=${DIRECTORY}/../..", "(${DIRECTORY}/../..)"),
        ("directory=${DIRECTORY}:/tmp", "(/tmp)"),
        ("directory=${DIRECTORY}-not", "(${DIRECTORY}-not)"),
        ("directory=/dev/${DIRECTORY}", "(/dev/${DIRECTORY})"),
        ("filename=../file", "(../file)"),
        ("filename=one:../../dev/vda", "(../../dev/vda)"),
        ("filename_format=../$jobnum", "(../$jobnum)"),
        ("opendir=/etc", "(/etc)"),
        ("include more.fio", "the guest gets this one file"),
        ("include=more.fio", "the guest gets this one file"),
    ],
)
def test_a_line_with_which_figures_are_what_they_are_read_for_or_not(line: str, words: str) -> None:
    """In the section of the job, or in the global one above it."""
    for text in (f"{GOOD}{line}\n", GOOD.replace("[one]", f"{line}\n[one]")):
        assert words in said(text) if words else only(objections(text)) is None


@pytest.mark.parametrize(
    ("place", "is_on_the_stack"),
    [
        ("filename=${DIRECTORY}/file", True),
        ("filename=${DIRECTORY}/one:${DIRECTORY}/other", True),
        ("opendir=${DIRECTORY}", True),
        ("filename=${DIRECTORY}/one:/dev/vda", False),
        ("filename=/dev/vda", False),
        ("filename=file", False),
        ("filename_format=file", False),
        ("", False),
    ],
)
def test_files_of_a_job_without_a_directory(place: str, is_on_the_stack: bool) -> None:
    assert (only(objections(f"[one]\nrw=read\n{place}\n")) is None) is is_on_the_stack


@pytest.mark.parametrize(
    ("jobs_of", "metric", "why"),
    [
        ("rw=randread\n[writer]\nrw=write", "read.clat.p99", ""),
        ("readwrite=write:4", "write.bw", ""),
        ("rw=randwrite", "elapsed", ""),
        ("rw=randwrite", "read.iops", "no job has read.iops: none is told to read"),
        ("rw=randread\n[other]\nrw=read", "write.iops", "no job has write.iops: none is told to write"),
    ],
)
def test_a_metric_that_no_job_can_have_is_seen_before_anything_is_built(jobs_of: str, metric: str, why: str) -> None:
    text = f"{GOOD}{jobs_of}\n"
    assert only(objections(text)) is None
    found = lacks(text, Objective(metric))
    assert (found[0] if found else "") == why
    if found:
        assert ("read.clat.mean" in found[1], "write.bw" in found[1]) == ("randread" in jobs_of, "write" in jobs_of)
        assert found[1].endswith(f"such as {'read' if 'randread' in jobs_of else 'write'}.clat.p99")


def test_one_job_is_named_as_fio_names_it() -> None:
    text = f"{GOOD}[two]\n"
    assert lacks(text, Objective("read.iops", "one/2")) is None
    why, advice = lacks(text, Objective("read.iops", "one")) or ("", "")
    assert why == "has no job 'one'"
    assert advice.endswith("one/1, one/2, two")


def test_one_job_has_to_go_in_the_direction_of_the_metric() -> None:
    """Another one does, so that the file as a whole has the metric."""
    text = f"{GOOD}rw=randread\n[writer]\nrw=write\n[both]\nrw=randrw\n"
    assert lacks(text, Objective("write.iops", "both")) is None
    assert lacks(text, Objective("elapsed", "one/1")) is None
    found = lacks(text, Objective("write.iops", "one/1"))
    assert found == ("job one/1 has no write.iops: it is not told to write", "jobs that are: writer, both")


def test_a_job_is_told_by_the_global_sections_above_it() -> None:
    text = "[a]\n[global]\nrw=write\nbs=4k\n[b]\nbs=8k\n[globally]\nbs=1k\n[c]\n[GLOBAL]\n"
    assert [(job.name, dict(job.options)) for job in jobs(text)] == [
        ("a", {}),
        ("b", {"rw": "write", "bs": "8k"}),
        ("c", {"rw": "write", "bs": "1k"}),
        ("GLOBAL", {"rw": "write", "bs": "1k"}),
    ]
    merged_everywhere_but_here = GOOD.replace("[one]", "group_reporting\n[one]\ngroup_reporting=0")
    assert only(objections(merged_everywhere_but_here)) is None


@pytest.mark.parametrize("text", ["", "[global]\nrw=read\n", "; [one]\n", "rw=read\n"])
def test_no_job_at_all(text: str) -> None:
    assert "no job section" in said(text)


DEVICE = "[a]\nfilename=${DEVICE}\n"
PLACED = DEVICE + "offset=${OFFSET}\n"
BOTH = PLACED + "directory=${DIRECTORY}\n"


@pytest.mark.parametrize(
    ("text", "runs", "why"),
    [
        (DEVICE, 1, None),
        (BOTH, 1, None),
        (PLACED, 2, None),
        (BOTH, 2, None),
        (DEVICE, 2, "[a] has no offset=${OFFSET}, and each of the stack's 2 runs needs a place of its own"),
        (GOOD, 1, "[one] has no filename=${DEVICE}, and the stack has no file system"),
        (DEVICE + "[b]\ndirectory=${DIRECTORY}\nfilename=x\n", 1, "[b] has no filename=${DEVICE}, and"),
        (DEVICE + "directory=${DIRECTORY}/below\n", 1, "[a] has no filename=${DEVICE} alone, and"),
        (DEVICE + "opendir=${DIRECTORY}\n", 1, "[a] has no filename=${DEVICE} alone, and"),
        ("[a]\nfilename=${DEVICE}:/dev/vda\n", 1, "[a] has no filename=${DEVICE}, and"),
    ],
)
def test_what_a_job_file_does_on_a_device(text: str, runs: int, why: str | None) -> None:
    found = only(unfit_for_device(text, runs))
    assert (found is None) is (why is None)
    if found is not None:
        assert found.why.startswith(why or "")


@pytest.mark.parametrize(
    ("text", "is_fit"),
    [(GOOD, True), (BOTH + "size=1m\n", True), (BOTH, False), (BOTH + "size=50%\n", False), (PLACED, False)],
)
def test_what_a_job_file_does_on_files(text: str, is_fit: bool) -> None:
    assert (only(unfit_for_files(text)) is None) is is_fit
    assert only(objections(text)) is None


@pytest.mark.parametrize(
    ("comment", "named"),
    [
        ("# deciding metric: write.bw", Objective("write.bw")),
        (";deciding metric :  read.clat.p99.90 ", Objective("read.clat.p99.9")),
        ("# deciding metric: write.bw, over sum", Objective("write.bw", "sum")),
        ("  # deciding metric: read.iops over a job", Objective("read.iops", "a job")),
        ("# the deciding metric: write.bw", None),
        ("description=# deciding metric: write.bw", None),
        ("", None),
    ],
)
def test_deciding_metric_of_a_comment(comment: str, named: Objective | None) -> None:
    assert deciding(f"{GOOD}{comment}\n") == named


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("# deciding metric:", "'' is not a deciding metric"),
        ("# deciding metric: write.bw and more", "'write.bw and more' is not a deciding metric"),
        ("# deciding metric: write.bandwidth", "there is no metric 'write.bandwidth'"),
        ("# deciding metric: cache.promotions", r"neither more nor less of cache\.promotions is better"),
        ("# deciding metric: read.clat.p99, over sum", r"the sum of read\.clat\.p99 over jobs"),
        ("# deciding metric: write.bw\n; deciding metric: write.bw", "two comments name the deciding metric"),
    ],
)
def test_comment_that_names_no_metric(comment: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        deciding(f"{GOOD}{comment}\n")


def test_seed_is_for_every_job_that_has_none_of_its_own() -> None:
    text = "[global]\nrw=randread\n[a]\n[b]\nrandseed=9\n[c]\nrandrepeat=1\n[d]\nallrandrepeat=1\n[e]\nrandrepeat=0\n"
    found = jobs(seeded(text, 7))
    assert [job.options["randseed"] for job in found] == ["7", "9", "7", "7", "7"]
    assert {job.options["rw"] for job in found} == {"randread"}
    assert own_seeds(text) == ("b", "c", "d")
