"""What fio 3.33 really wrote, and what older ones write."""

import json
from pathlib import Path

import pytest

from bisector.workload.fio import output

DATA = Path(__file__).parent.parent / "data"
PARTIAL = (DATA / "fio" / "partial-3.33.json").read_text(encoding="utf-8")


def test_jobs_of_one_name_are_told_apart() -> None:
    one, two = output.parse_json(PARTIAL)
    assert (one.name, one.direction, two.name) == ("partial/1", "read", "partial/2")
    assert (one.bw_kib_s, one.clat_p99_ns, one.total_ios, one.runtime_ms) == (3926, 47972352, 39268, 40001)
    assert one.error == two.error == 0
    for job in (one, two):  # fio's own iops_mean is a mean of samples
        assert job.iops_mean == pytest.approx(job.total_ios / job.runtime_ms * 1000, rel=1e-4)


def test_directions_of_a_mixed_job_and_options_of_the_global_section() -> None:
    jobs = output.parse_json((DATA / "fio" / "mixed-3.33.json").read_text(encoding="utf-8"))
    assert [(job.name, job.direction) for job in jobs] == [("mixed", "read"), ("mixed", "write"), ("writer", "write")]
    assert jobs[2].clat_p99_ns is None


def test_a_configured_direction_without_io_is_kept() -> None:
    document = json.loads(PARTIAL)
    document["jobs"][0]["read"].update(total_ios=0, iops=0.0)
    assert output.parse_json(json.dumps(document))[0].iops_mean == 0
    del document["jobs"][0]["job options"]["rw"]
    document["global options"] = {"rw": "randwrite"}
    assert output.parse_json(json.dumps(document))[0].direction == "write"


def test_what_was_not_measured_is_not_zero() -> None:
    """So fio 3.33 prints a latency with disable_clat or gtod_reduce, or of a synchronous engine."""
    document = json.loads(PARTIAL)
    document["jobs"][0]["read"]["clat_ns"] = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    one, two = output.parse_json(json.dumps(document))
    assert (one.clat_mean_ns, one.clat_p99_ns) == (None, None)
    assert [len(job.latencies) for job in (one, two)] == [2, 3]


def test_a_job_that_burns_cpu_time_has_no_figures() -> None:
    document = json.loads(PARTIAL)
    document["jobs"][1]["read"] |= {"io_bytes": 0, "iops": 0.0, "runtime": 0, "total_ios": 20}
    assert [job.name for job in output.parse_json(json.dumps(document))] == ["partial/1"]


@pytest.mark.parametrize(
    "before",
    ["fio: this platform does not support process shared mutexes, forcing use of threads.\n", "note: {odd}\n", "\n"],
)
def test_warnings_before_the_json(before: str) -> None:
    assert len(output.parse_json(before + PARTIAL)) == 2


@pytest.mark.parametrize(
    ("line", "iops", "done"),
    [
        ("Jobs: 2 (f=2): [r(2)][10.0%][r=12.3MiB/s][r=3151 IOPS][eta 00m:36s]", 3151, 0.10),
        ("Jobs: 2 (f=2): [r(2)][66.7%][r=439MiB/s][r=112k IOPS][eta 00m:02s]\r", 112_000, 0.667),
        ("Jobs: 1 (f=1): [m(1)][50.0%][r=1MiB/s,w=4096KiB/s][r=1.5k,w=250 IOPS][eta 00m:02s]", 1750, 0.5),
        ("Jobs: 1 (f=1): [R(1)][100.0%][r=9GiB/s][r=2.31M IOPS][eta 00m:00s]", 2_310_000, 1.0),
        ("Jobs: 1 (f=1): [r(1),X(1)][-.-%][r=4219MiB/s][r=1080k IOPS][eta 00m:00s]", 1_080_000, 0.0),
        ("Jobs: 2 (f=2): [r(2)] [100.0% done] [14150KB/0KB/0KB /s] [3537/0/0 iops] [eta 00m:00s]", 3537, 1.0),
        ("Jobs: 2 (f=2): [r(2)] [9.1% done] [119.9MB/0KB/0KB /s] [30.7K/0/0 iops] [eta 00m:00s]", 30_700, 0.091),
        (
            "Jobs: 2 (f=2): [r(2)][10.0%][r=1MiB/s][r=9 IOPS][eta 00m:01s]\r"
            "Jobs: 2 (f=2): [r(2)][75.0%][r=1MiB/s][r=256 IOPS][eta 00m:01s]\r",
            256,
            0.75,
        ),
    ],
)
def test_status_lines(line: str, iops: float, done: float) -> None:
    assert output.parse_status_line(line) == pytest.approx((iops, done))


@pytest.mark.parametrize(
    "line",
    [
        *("Jobs: 2 (f=2)", "", "fio: pid=0, err=28", "partial: (g=0): rw=randread", "bw [r=1 IOPS]"),
        *("Jobs: 1 [x IOPS]", "Jobs: 1 (f=1): [r(1)][.. IOPS]", "Jobs: [r=. IOPS]"),
    ],
)
def test_other_lines_are_no_status(line: str) -> None:
    assert output.parse_status_line(line) in (None, (0, 0))


def test_complaint_leaves_out_the_list_of_values() -> None:
    stderr = (
        "        valid values: read       Sequential read\n                    : write      Sequential write\n\n"
        "fio: failed parsing rw=bogus\nfio: job partial dropped\n"
    )
    assert output.complaint(stderr) == "fio: failed parsing rw=bogus; fio: job partial dropped"
    assert output.complaint("something else\n") == "something else"


# -- a guest that prints what it likes ---------------------------------------------------------------------------------


def changed(**figures: object) -> str:
    """A good output with other figures of its first job's reads; a string stands as it is, without quotes."""
    document = json.loads(PARTIAL)
    document["jobs"][0]["read"].update({name: f"@{name}@" for name in figures})
    text = json.dumps(document)
    for name, value in figures.items():
        text = text.replace(f'"@{name}@"', str(value))
    return text


@pytest.mark.parametrize("name", ["iops", "bw", "total_ios", "runtime", "iops_stddev"])
@pytest.mark.parametrize(
    "figure", [2**64 - 1, 2**63, -1, -1.5, "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 5000]
)
def test_figures_that_no_machine_has(name: str, figure: object) -> None:
    with pytest.raises(output.FigureImpossible, match="figure") as caught:
        output.parse_json(changed(**{name: figure}))
    assert len(str(caught.value)) < 400


def test_the_largest_figure_that_can_be_recorded() -> None:
    assert output.parse_json(changed(total_ios=2**63 - 1))[0].total_ios == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "no JSON, but") for text in ("", "nan", "fio: pid=0, got signal=9\n")),
        *((text, "cut off") for text in ("{", PARTIAL[: len(PARTIAL) // 2])),
        ("[" * 100_000, "no JSON"),
        ('{"jobs":' * 100_000, "nested deeper"),
        (
            '{"jobs": [{"jobname": "a", "error": 0, "read": {"total_ios": 1, "iops": 1, "bw": 1, "runtime": 1}}]}',
            "lack",
        ),
        *((text, "lack") for text in ('{"jobs": [1]}', '{"jobs": {"a": 1}}', '{\n "fio version": "fio-3.33"}')),
        *((f'{{"jobs": [], "timestamp": {at}}}', "lack") for at in ("1" + "0" * 30, "67768036191676800")),
        (PARTIAL.replace('"iops"', '"iop"'), "lack"),
        *((changed(iops=figure), "lack") for figure in ("null", "[]", "{}", '"ten"')),
        (changed(iops='"nan"'), "fio's output has nan"),
        (changed(clat_ns='{"min": [], "max": 1, "mean": 1, "stddev": 1}'), "lack"),
        (changed(clat_ns='{"min": 1, "max": 1, "mean": 1, "stddev": 1, "percentile": {"x": 1}}'), "lack"),
        (PARTIAL.replace('"partial"', f'"{"long" * 100}"'), "a name of 402 letters"),
        (PARTIAL.replace('"jobname" : "partial"', f'"jobname" : {"[" * 900 + "]" * 900}'), "letters"),
    ],
)
def test_output_of_other_shapes_is_a_short_sentence(text: str, message: str) -> None:
    with pytest.raises(output.OutputUnreadable, match=message) as caught:
        output.parse_json(text)
    assert len(str(caught.value)) < 400


def test_output_that_is_too_large_is_not_taken_apart() -> None:
    with pytest.raises(output.OutputUnreadable, match="fio's JSON has 20 MiB, more than 16"):
        output.parse_json("{" + " " * (20 << 20) + "}")
