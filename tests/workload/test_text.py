"""What fio printed: 72 published files of 2.0.8 to 3.x, one of 3.33 beside its JSON, and forms of other versions."""

import csv
import json
import quopri
import re
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest

from bisector.core.figures import Latency
from bisector.core.metric import LatencyKind
from bisector.workload.fio import output as fio
from bisector.workload.fio.output import Output, OutputUnreadable, parse_text, read

DATA = Path(__file__).parent.parent / "data"
RECORDED = DATA / "recorded-runs"
FILES = sorted(RECORDED.rglob("*.txt"))
VARIED = (DATA / "fio" / "varied-3.33.txt").read_text(encoding="utf-8")
UNIT_NS = {"nsec": 1, "usec": 1000, "msec": 1_000_000}


@cache
def text_of(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


@cache
def output_of(name: str) -> Output:
    return parse_text(text_of(name))


BISECT = "lvmcache-bisect-2017/01-4.12.0-rc1+-full.txt"
SUBMIT = "io-submit-2012/01-ext4-disk-patched.txt"
CLOUD = "bcache-cloud-2022/09-bcache-write_bandwidth.txt"


def test_all_files_have_the_figures_of_the_index() -> None:
    expected = defaultdict(list)
    with (RECORDED / "index.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            expected[row["file"]].append((row["direction"], float(row["iops"]), int(row["runtime_ms"])))
    assert len(expected) == len(FILES) == 72
    for name, rows in expected.items():
        assert [(job.direction, job.iops_mean, job.runtime_ms) for job in output_of(name).jobs] == rows, name


def test_figures_of_fio_2_16() -> None:
    output = output_of(BISECT)
    one, two = output.jobs
    assert (output.version, output.ended_at) == ("fio-2.16", "2017-07-28T18:51:41")
    assert (one.name, two.name, one.total_ios, two.total_ios) == ("partial/1", "partial/2", 1927642, 657432)
    assert (one.bw_kib_s, one.iops_stddev, one.error) == (8566.5, None, 0)
    submission, completion, total = one.latencies
    assert submission == Latency(LatencyKind.SUBMISSION, 3000, 190_000, 7840, 5410)
    assert (completion.min_ns, completion.max_ns, completion.mean_ns) == (34_000, 1.5145e9, 3_725_260)
    assert (total.kind, total.min_ns) == (LatencyKind.TOTAL, 72_000)
    assert (one.clat_mean_ns, one.clat_p99_ns) == (3_725_260, 100_864_000)


def test_submission_latency_is_the_result_of_2012() -> None:
    read, write = output_of(SUBMIT).jobs
    assert (read.direction, write.direction, read.name, write.name) == ("read", "write", "random_rw", "random_rw")
    assert read.latencies[0] == Latency(LatencyKind.SUBMISSION, 0, 120_000, 1650, 3460)
    assert read.clat_mean_ns == 134.15e6  # printed in msec, and that of the writes in usec
    assert write.clat_mean_ns == pytest.approx(126_590_220)
    assert (write.clat_p99_ns, read.clat_p99_ns) == (293e6, 302e6)
    assert read.bw_kib_s == pytest.approx(504885 / 1024)  # printed as "504885 B/s"


def test_text_and_json_of_one_run_of_fio_3_33() -> None:
    """A mixed job, syncs, percentiles of every kind, threads reported as one, bits in powers of 1000."""
    seen, known = parse_text(VARIED), fio.parse_output((DATA / "fio" / "varied-3.33.json").read_text(encoding="utf-8"))
    assert seen.version == known.version == "fio-3.33"
    assert known.ended_at == f"{seen.ended_at}+00:00" == "2026-11-21T20:04:57+00:00"
    assert len(seen.jobs) == len(known.jobs) == 7
    for job, same in zip(seen.jobs, known.jobs, strict=True):
        for field in ("name", "direction", "total_ios", "runtime_ms", "error"):
            assert getattr(job, field) == getattr(same, field)
        assert job.iops_mean == pytest.approx(same.iops_mean, abs=1)
        assert job.bw_kib_s == pytest.approx(same.bw_kib_s, rel=0.01)  # as 101MiB/s
        assert [one.kind for one in job.latencies] == [one.kind for one in same.latencies if one.max_ns]
        for one in job.latencies:
            (other,) = (other for other in same.latencies if other.kind is one.kind)
            assert one.mean_ns == pytest.approx(other.mean_ns, rel=1e-3)
            assert one.max_ns == pytest.approx(other.max_ns, rel=0.01)
            assert dict(one.percentiles_ns) == pytest.approx(dict(other.percentiles_ns), rel=0.01)


@pytest.mark.parametrize("said", ["fio 2.0.7", "2.0.8", "fio-2.0.8"])
def test_versions_before_2_0_9_say_so_in_other_words(said: str) -> None:
    output = parse_text(re.sub(r"^fio-2\S+$", said, text_of(SUBMIT), flags=re.MULTILINE))
    assert output.version == f"fio-{said.rpartition(' ')[2].removeprefix('fio-')}"
    assert output.jobs == output_of(SUBMIT).jobs


def test_lines_as_2_2_and_3_1_write_them() -> None:
    old = re.sub(r"bw \(KB/s\)  :", "bw (KB  /s):", text_of(SUBMIT))
    assert old.count("bw (KB  /s): min=") == 2
    assert parse_text(old).jobs == output_of(SUBMIT).jobs
    new, count = re.subn(
        r"issued rwts?: total=(\d+,\d+,\d+),\d+ short=(\d+,\d+,\d+),\d+ dropped=(\d+,\d+,\d+),\d+",
        r"issued rwt: total=\1, short=\2, dropped=\3",
        text_of(CLOUD),
    )
    assert count == 1
    assert parse_text(new).jobs == output_of(CLOUD).jobs


def refused(text: str) -> tuple[int, str]:
    with pytest.raises(OutputUnreadable) as caught:
        parse_text(text)
    return caught.value.line, str(caught.value)


@pytest.mark.parametrize(
    ("was", "becomes", "line", "message"),
    [
        ("fio-2.16\n", "fio-4.0\n", 3, "fio-4.0 is unknown here; known are fio 1.x to 3.x"),
        ("partial: (groupid=0, jobs=1): err= 0: pid=1675: Fri Jul 28 18:51:41 2017\n", "", 48,
         "issued of no job: the line with the job's name is missing"),
        ("iops=2141,", "iops=214,", 9, "214 IOPS for 900093 ms are not the 1927642 I/Os issued"),
        ("iops=2141, runt=900093msec", "iops=21", 8, "issued read I/Os, and their figures are missing"),
        ("  read : io=2568.1MB, bw=2921.6KB/s, iops=730, runt=900113msec\n", "", 30,
         "issued read I/Os, and their figures are missing"),
        ("Starting 2 processes", "Starting 3 processes", 30, "fio started 3 jobs and reports 2"),
        ("Run status group 0 (all jobs):", "", 61, "cut off: its end, 'Run status group', is missing"),
        ("err= 0: pid=1675:", "err= 0: pid=", 30, "fio's output is cut off or damaged: 'partial:"),
        ("issued    : total=r=657432/w=0", "issued    : total=r=657432/w=7", 30, "issued write I/Os, and"),
    ],
)  # fmt: skip
def test_damage_is_found_where_it_shows(was: str, becomes: str, line: int, message: str) -> None:
    text = text_of(BISECT)
    assert was in text
    at, said = refused(text.replace(was, becomes, 1))
    assert message in said
    assert at == line


OTHERS = DATA / "fio" / "others"
READ_3000 = [("seq", "read", 3000.0, 60000, 20000)]


def figures(data: bytes) -> list[tuple[str, str, float, int, int]]:
    return [(job.name, job.direction, job.iops_mean, job.total_ios, job.runtime_ms) for job in read(data).jobs]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("3.1-gtod-reduce.txt", [("test", "read", 1603, 785920, 490043), ("test", "write", 535, 262656, 490043)]),
        ("baseline.txt", [("reader", "read", 262144 / 11.945, 262144, 11945)]),  # printed as 21.9k
        ("patched.txt", [("reader", "read", 262144 / 14.334, 262144, 14334)]),
        ("2.1.3.json", [("randread", "read", 4120, 247204, 60001)]),  # the number of I/Os is IOPS times runtime
        ("mixed.txt", [("randrw", "mixed", 5000, 150000, 30000)]),
        ("mixed.json", [("randrw", "mixed", 5000, 150000, 30000)]),
        ("status.txt", [("dirty", "write", 140100 / 9.88, 140100, 9880)]),
        ("status-3.33.txt", [("a/1", "read", 300 / 3.001, 300, 3001), ("a/2", "read", 300 / 3.001, 300, 3001)]),
        ("unified-both-3.33.txt", [("a", "read", 132000, 132, 1), ("a", "write", 124000, 124, 1)]),
        ("idle-prof-3.33.txt", [("a", "read", 512000, 512, 1)]),
        ("append-terse-3.33.txt", [("a", "read", 256000, 256, 1)]),
        ("normal-json-3.33.txt", [("a", "read", 256000, 256, 1)]),
        ("lat-percentiles-3.33.txt", [("a", "read", 1024000, 1024, 1)]),
        ("prio.txt", [("randread", "read", 1666, 50000, 30001)]),
        ("etcd.txt", [("mytest", "write", 833, 10029, 12036)]),
        *((name, READ_3000) for name in ("plain.txt", "ansi.txt", "ci.log", "fence.md", "indented.md", "k8s.log")),
        *((name, READ_3000) for name in ("prompt.txt", "quoted.txt")),
    ],
)
def test_figures_of_files_as_people_have_them(name: str, expected: list[tuple[str, str, float, int, int]]) -> None:
    found = figures((OTHERS / name).read_bytes())
    assert [one[:2] + one[3:] for one in found] == [one[:2] + one[3:] for one in expected]
    assert [one[2] for one in found] == pytest.approx([one[2] for one in expected])


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("letter.txt", 42, "a second output of fio begins here"),
        ("status.json", 224, "of several reports of one run (--status-interval) keep the last"),
        ("status-3.33.json", 509, "of several reports of one run (--status-interval) keep the last"),
        ("json-and-text.txt", 1, "the file has fio's JSON and its text, and their figures differ: keep one of them"),
        ("terse.txt", 1, "this is fio's terse output (--minimal), which is not imported: use --output-format=json"),
        ("enospc-3.33.txt", 5, "job a ended with an error: file:io_u.c:1876, func=io_u error, error=No space left on"),
    ],
)
def test_what_is_refused_says_what_it_is(name: str, line: int, message: str) -> None:
    with pytest.raises(OutputUnreadable) as caught:
        read((OTHERS / name).read_bytes())
    assert caught.value.line == line
    assert message in str(caught.value)


PLAIN = (OTHERS / "plain.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.encode("utf-16"),
        lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
        lambda text: "".join(json.dumps({"log": f"{line}\n", "stream": "stdout"}) + "\n" for line in text.split("\n")),
        lambda text: "".join(f"> > {line}\n" if line else "> >\n" for line in text.split("\n")),
        lambda text: "".join(f"[{n:9}.{n:06}] host-{n % 7}: {line}\n" for n, line in enumerate(text.split("\n"))),
        lambda text: text.replace("Starting", "Jobs: 1 (f=1): [R(1)][5%][r=9MiB/s][r=1 IOPS][eta 00m:09s]\rStarting"),
        lambda text: text.replace("  ", " \xa0"),
        lambda text: text.replace("    ", "\t").replace(">", "&gt;"),
        lambda text: text.replace("\n", "\r"),
        lambda text: "".join(f"{('Nov', 'Dec')[n > 4]} 1 1:01 h: {x}\n" for n, x in enumerate(text.split("\n"))),
        lambda text: f"$ fio --version\nfio-3.32\n$ fio x.fio\n{text}$ echo ${{HOME}}\n/root\n",
        lambda text: text[max(text.find("seq: (groupid"), 0) :],  # as letters have it
    ],
)  # fmt: skip
def test_what_is_around_an_output_is_taken_off(wrap: Callable[[str], str | bytes]) -> None:
    of_json = [("randread", "read", 4120, 247204, 60001)]
    for text, expected in ((PLAIN, READ_3000), ((OTHERS / "2.1.3.json").read_text(), of_json)):
        wrapped = wrap(text)
        assert figures(wrapped if isinstance(wrapped, bytes) else wrapped.encode()) == expected


@pytest.mark.parametrize("width", [50, 66, 72])
def test_a_letter_may_wrap_every_line(width: int) -> None:
    wrap = partial(textwrap.wrap, width=width, break_long_words=False, break_on_hyphens=False)
    for text in (PLAIN, VARIED, text_of(BISECT), text_of(SUBMIT)):
        wrapped = [part for line in text.split("\n") for part in wrap(line) or [""]]
        for prefix in ("", "> "):
            assert read("\n".join(f"{prefix}{line}" for line in wrapped).encode()).jobs == read(text.encode()).jobs


def test_a_line_of_blanks_is_not_looked_through_again_for_each_of_them() -> None:
    begun = time.process_time()
    assert figures(PLAIN.replace("  cpu  ", f"x{' ' * 40_000}x\n  cpu  ").encode()) == READ_3000
    assert time.process_time() - begun < 5


def test_a_letter_in_quoted_printable() -> None:
    letter = f"Content-Transfer-Encoding: quoted-printable\n\nMoin, \xfcber {'lange ' * 20} Zeilen\n{PLAIN}"
    for text in (letter, quopri.encodestring(letter.encode()).decode()):  # a program may have decoded it before
        assert read(text.encode()).jobs == read(PLAIN.encode()).jobs


def test_a_direction_whose_line_is_missing_beside_that_of_all_together() -> None:
    text = (OTHERS / "unified-both-3.33.txt").read_text()
    lines = text.splitlines(keepends=True)
    for direction in ("read", "write"):
        without = "".join(line for line in lines if not line.startswith(f"  {direction}: IOPS"))
        assert without != text
        assert f"issued {direction} I/Os, and their figures are missing" in refused(without)[1]


@pytest.mark.parametrize(
    ("version", "issued"), [("fio 1.59", "r/w/d: total={}/{}/0, short=0/0/0"), ("", "r/w: total={}/{}, short=0/0")]
)
def test_lines_as_1_x_writes_them(version: str, issued: str) -> None:
    text = re.sub(r"^fio-2\S+$", version, text_of(SUBMIT), flags=re.MULTILINE)
    numbers = [str(job.total_ios) for job in output_of(SUBMIT).jobs]
    text, count = re.subn(r"issued +:.*", f"issued {issued.format(*numbers)}", text)
    assert count == 1
    assert parse_text(text).jobs == output_of(SUBMIT).jobs


def test_few_iops_are_computed_as_fio_cuts_their_fraction_off() -> None:
    text = PLAIN.replace("IOPS=3000", "IOPS=4").replace("total=60000,", "total=99,")
    assert figures(text.encode()) == [("seq", "read", 4.95, 99, 20000)]


def test_percentiles_as_a_list_of_a_job_has_them() -> None:
    text = re.sub(r"(percentiles \(usec\):\n)(?: *\|.*\n)+", r"\1     |  99th=[  204], 100th=[  300]\n", PLAIN)
    (job,) = read(text.encode()).jobs
    assert job.clat_p99_ns == 204_000
    (job,) = read(text.replace("100th", "90th").encode()).jobs  # the end of another list
    assert job.clat_p99_ns is None


def test_a_job_that_burns_cpu_time_is_none_of_io() -> None:
    cycles = "     issued rwts: total=20,0,0,0 short=0,0,0,0 dropped=0,0,0,0\n"
    for said in ("burn (noop): ioengine=cpuio, cpuload=50, cpucycle=50000", "burn: ioengine=cpu, cpuload=50"):
        text = PLAIN.replace("Starting 1 process\n", f"Starting 2 processes\n{said}\n")
        text = text.replace(
            "\nRun", f"burn: (groupid=0, jobs=1): err= 0: pid=78: Fri Feb 23 23:57:43 2024\n{cycles}\nRun"
        )
        assert figures(text.encode()) == READ_3000
        assert "job burn issued read I/Os" in refused(text.replace("ioengine=cpu", "ioengine="))[1]


def of_syncs(name: str) -> list[Latency]:
    (job, *_) = read((OTHERS / name).read_bytes()).jobs
    return [one for one in job.latencies if one.kind is LatencyKind.SYNC]


def test_syncs_of_text_and_json() -> None:
    (text,), (known,) = of_syncs("etcd.txt"), of_syncs("fdatasync-3.33.json")
    assert (text.min_ns, text.max_ns, text.mean_ns, text.stddev_ns) == (410e3, 21030e3, 1180.2e3, 611.3e3)
    assert dict(text.percentiles_ns)[99.0] == 3294e3
    assert len(text.percentiles_ns) == len(known.percentiles_ns) == 17
    assert (known.mean_ns, dict(known.percentiles_ns)[99.0]) == (281.666667, 1304)
    assert of_syncs("plain.txt") == of_syncs("2.1.3.json") == []


def test_percentiles_are_those_of_the_kind_above_them() -> None:
    (job,) = read((OTHERS / "lat-percentiles-3.33.txt").read_bytes()).jobs
    assert [(one.kind, dict(one.percentiles_ns)[99.9]) for one in job.latencies] == [("clat", 21), ("lat", 50)]
    (job,) = read((OTHERS / "prio.txt").read_bytes()).jobs
    assert [(one.kind, len(one.percentiles_ns)) for one in job.latencies] == [("slat", 0), ("clat", 17), ("lat", 0)]


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("  read: IOPS", "   read: IOPS"),  # 2.17 to 3.11
        ("issued rwts: total=60000,0,0,0 short=0,0,0,0 dropped=0,0,0,0",
         "issued rwt: total=60000,0,0, short=0,0,0, dropped=0,0,0"),
        ("(234MiB/20000msec)", "(234MiB/20000msec); 0 zone resets"),
        ("(234MiB/20000msec)", "(234MiB/20000msec); Cachehit=12.50%"),
        ("  cpu  ", "  block lifetime percentiles :\n   | 1.00th=3, 5.00th=4\n        states   : written=1\n  cpu  "),
        ("  cpu  ", "    clat prio 1/0/0 (20.01%) percentiles (usec):\n     |  1.00th=[   90]\n  cpu  "),
        ("  cpu  ", "    high prio (20.01%) clat percentiles (usec):\n     |  1.00th=[   90]\n  cpu  "),
        ("\nRun status",
         "  steadystate  : attained=yes, bw=11.7MiB/s (12.3MB/s), iops=3000, iops mean dev=1.2%\n\nRun status"),
        ("     issued rwts", ">=64=0.0%     issued rwts"),  # a letter that was wrapped anew
        ("23:57:43 2024\n  read:", "23:57:43\n2024 read:"),
        ("\nRun status", "     errors    : total=0, first_error=0/<Success>\n\nRun status"),
        ("23:57:43 2024\n", "23:57:43 2024\n  Description  : [a: b]\n"),
    ],
)  # fmt: skip
def test_lines_of_other_versions_and_options(was: str, becomes: str) -> None:
    assert was in PLAIN
    assert figures(PLAIN.replace(was, becomes).encode()) == READ_3000


def test_what_fio_gives_as_nan_is_unknown() -> None:
    (job,) = read(PLAIN.replace("avg=206.77", "avg=  nan").encode()).jobs
    assert (job.cpu, job.clat_mean_ns, [one.kind for one in job.latencies]) == (None, None, ["slat", "lat"])
    text = (OTHERS / "mixed.json").read_text()
    text = text.replace('"usr_cpu": 0.81', '"usr_cpu": -nan').replace('"bw_agg": 15.0', '"bw_agg": nan')
    (job,) = read(text.replace('"mean": 200000.0', '"mean": nan').encode()).jobs
    assert (job.cpu, job.clat_mean_ns, job.iops_mean, len(job.latencies)) == (None, None, 5000, 2)
    with pytest.raises(OutputUnreadable, match="fio's output has nan"):
        read(text.replace('"iops": 5000.0', '"iops": nan').encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hostname=a, be=0, 64-bit, os=Linux, arch=x86-64, fio=fio-3.32, flags=1\n<a> " + PLAIN, "by fio --client"),
        ('{\n "fio version": "fio-3.32",\n "client_stats": []\n}\n', "by fio --client"),
        ("[{" + '"fio version": "fio-3.32", "jobs": []}, {' * 2 + '"fio version": "fio-3.32"}]', "a second output"),
        ('{"a": {}, "fio version": "fio-3.32", "jobs": []}\n' * 2, "a second output of fio begins here"),
        *((text, "this is not output of fio") for text in ("", "Dear diary\n", "fio-2.16\nStarting 1 process\n")),
    ],
)
def test_other_outputs_are_named(text: str, message: str) -> None:
    with pytest.raises(OutputUnreadable, match=message):
        read(text.encode())


@pytest.mark.parametrize("other", [BISECT, SUBMIT, CLOUD])
def test_two_outputs_in_one_file(other: str) -> None:
    first = text_of(BISECT)
    line, message = refused(first + text_of(other))
    assert "a second output of fio begins here" in message
    assert line == first.count("\n") + 1
    body = first[first.index("partial: (groupid") :]  # without a head
    assert "a second output" in refused(body + body.replace("pid=1675", "pid=9999"))[1]
    # In containers, the processes of several runs have the same numbers.
    assert "a second output" in refused(body + body.replace("Jul 28", "Jul 29"))[1]
    assert "a second output" in refused(body.replace("Jul 28", "Jul 29") + body)[1]
