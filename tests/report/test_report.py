"""The report in each of its forms: golden files, and what no golden file shows; figures before and after a change."""

from dataclasses import replace

import pytest

from bisector.commands.report import RENDERERS, Format
from bisector.core import resources
from bisector.core.deadline import BY_THE_HOST, GuestTime
from bisector.core.figures import DiskQueue, EarlyStop, Run, StopReason, round_name
from bisector.core.objective import Objective
from bisector.core.verdict import State, Verdict
from bisector.mail import compose
from bisector.report import document
from bisector.report.blocks import Fact, FactList, Listing, Table
from bisector.report.document import (
    Basis,
    BeforeAfter,
    CommitSide,
    ComparedMetric,
    Request,
    change,
    metric_line,
    name_of,
    with_article,
)
from bisector.report.page import markdown
from bisector.report.sections import page, sections, terms_sentence
from bisector.report.terminal import plain
from bisector.status.view import TrialView
from tests.docs.json_schema import valid
from tests.examples import cell, commit, job, run, trial
from tests.report import documents, examples


@pytest.mark.parametrize(("name", "form"), documents.FILES)
def test_golden(name: str, form: Format) -> None:
    """``python -m tests.report.documents`` writes them anew; read the difference before it is committed."""
    made = RENDERERS[form](documents.DOCUMENTS[name]())
    assert made == documents.path(name, form).read_text(encoding="utf-8")
    if form is Format.JSON:
        valid("report", made)


def test_docs_show_what_is_written() -> None:
    golden = documents.path("recorded", Format.MAIL).read_text(encoding="utf-8").splitlines()
    pages = "".join((resources.ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("report.md", "mail.md"))
    blocks = pages.split("```")[1::2]
    shown = [block.splitlines()[1:] for block in blocks if block.startswith(("\nplace ", "\nSubject: "))]
    assert [len(lines) > 5 for lines in shown] == [True, True]
    assert [line for lines in shown for line in lines if line not in (*golden, "…")] == []


@pytest.mark.parametrize("form", [Format.HTML, Format.MAIL])
def test_what_counted_time_does_not_show_is_said_with_the_answer(form: Format) -> None:
    def told(clock: GuestTime) -> str:
        made = documents.found()
        return " ".join(RENDERERS[form](replace(made, bisection=replace(made.bisection, clock=clock))).split())

    counted = GuestTime(kind="instructions", instruction_ns=16)
    said = "counts instructions, 16 ns each, one as long as the next; a commit that is slow because of caches, branch"
    assert told(counted).count(said) == 1
    assert "instructions" not in told(BY_THE_HOST)


def test_what_the_guests_had_of_disks_file_system_and_machine() -> None:
    """A default of the kernel that changes within the range shows as such."""
    made = documents.found()
    count = len(made.bisection.trials)
    schedulers = ("cfq", *["mq-deadline"] * (count - 1))
    told = tuple(
        examples.with_trial(one, queues=(DiskQueue("hdd", "scsi", name, 128, 256, None),))
        for one, name in zip(made.bisection.trials, schedulers, strict=True)
    )
    mkfs, mount = "mkfs.ext4 -q /dev/test/data", "mount -t ext4 -o relatime /dev/test/data /mnt"
    hosts = tuple(replace(host, facts=(("guest", "2 CPUs, 1024 MiB"),)) for host in made.hosts)
    view = replace(made.bisection, trials=told)
    made = replace(made, bisection=view, storage=("lvcreate test", mkfs, mount, "stat"), hosts=hosts)
    disk = (
        f"scsi, scheduler cfq, read_ahead_kb 128, nr_requests 256 (1 of {count} trials); scsi, scheduler mq-deadline, "
        f"read_ahead_kb 128, nr_requests 256 ({count - 1} of {count} trials)"
    )
    (section,) = (one for one in sections(made) if one.name == "storage")
    assert section.blocks == (FactList((Fact("hdd", (disk,)),)), Listing(made.storage))
    letter = compose.render(made).splitlines()
    place = letter.index(f"disk hdd: 1 GiB, a file on the host, 1,000 IOPS at most; {disk}")
    assert letter[place + 1 : place + 3] == [f"file system: {mkfs}; {mount}", "guest: 2 CPUs, 1024 MiB"]
    assert place < letter.index("Details are as below:")


@pytest.mark.parametrize(
    ("metric", "before", "after", "text"),
    [
        ("read.iops", 1000, 21_400, "a 21.4x improvement"),
        ("read.iops", 1000, 8_100, "an 8.1x improvement"),
        ("read.iops", 1000, 11_000, "an 11.0x improvement"),
        ("read.iops", 1000, 2_000, "a 2.0x improvement"),
        ("read.iops", 1000, 1_935, "a 93.5% improvement"),
        ("read.iops", 1000, 1_180, "an 18.0% improvement"),
        ("read.iops", 1000, 935, "a 6.5% regression"),
        ("read.iops", 1000, 501, "a 49.9% regression"),
        ("read.iops", 1000, 500, "a 2.0x regression"),
        ("read.iops", 14_303, 14_286, "a 0.12% regression"),
        ("read.clat.p50", 16.2e6, 0.9e6, "an 18.0x improvement"),
        ("read.clat.p50", 1e6, 1.1e6, "a 10.0% regression"),
    ],
)
def test_a_change_is_a_magnitude_and_a_word(metric: str, before: float, after: float, text: str) -> None:
    assert with_article(change(before, after, Objective(metric))) == text


# The forms of lkp-tests' show_perf_change: two decimals below 1,000, whole numbers (which it cuts off, and the letter's
# first lines round), four digits above 10^8.
@pytest.mark.parametrize(
    ("metric", "line"),
    [
        (ComparedMetric("m", (36509.9,), (27079.0,)), "     36510           -25.8%      27079        m"),
        (
            ComparedMetric("m", (7_000_000.0, 7_634_620.0), (5_600_000.0, 6_907_596.0)),
            "   7317310 ±  6%     -14.5%    6253798 ± 15%  m",
        ),
        (ComparedMetric("m", (999.994,), (0.0,)), "    999.99          -100.0%       0.00        m"),
        (ComparedMetric("m", (1e9,), (2e9,)), "     1e+09          +100.0%      2e+09        m"),
        (ComparedMetric("m", (1.0,), (5e6,)), "      1.00       5,000,000x    5000000        m"),
        (ComparedMetric("m", (1.0,), (12.0,)), "      1.00              12x      12.00        m"),
        (ComparedMetric("m", (0.0,), (12.0,)), "      0.00           from 0      12.00        m"),
        (ComparedMetric("m", (100.0, 101.0), (100.0, 101.0)), "    100.50            +0.0%     100.50        m"),
    ],
)
def test_layout_of_a_metric(metric: ComparedMetric, line: str) -> None:
    assert metric_line(metric) == line


def test_parent_that_was_not_measured_is_not_claimed() -> None:
    made = replace(documents.found(), parents=(examples.COMMITS[1],))
    compared = made.before_after
    assert compared is not None
    assert (compared.basis, compared.before.commit) == (Basis.NEAREST, examples.COMMITS[2])
    assert f"{examples.COMMITS[2].short} is the nearest before it that has" in " ".join(plain(page(made)).split())


def test_figures_of_two_hosts_are_never_compared() -> None:
    """Of the parent there is a run on one host, of the commit on the other; both have measured the ends."""
    found = examples.found()
    ends = (examples.BROKEN, examples.FIXED)
    trials = [examples.with_trial(one, host=host) for host in ("bench1", "bench2") for one in ends]
    trials += [
        examples.with_trial(one, host=host) for one, host in ((examples.MIDDLE, "bench1"), (examples.CULPRIT, "bench2"))
    ]
    view = replace(found, trials=tuple(replace(one, n=n) for n, one in enumerate(trials, 1)))
    made = documents.document(view, (examples.COMMITS[2],))
    compared = made.before_after
    assert compared is not None
    assert (compared.basis, compared.before.commit, compared.after.commit) == (
        Basis.NEAREST,
        examples.COMMITS[0],
        examples.COMMITS[3],
    )
    assert {trial.host for side in (compared.before, compared.after) for trial in side.trials} == {"bench2"}
    assert "Means of 1 trial before and 1 after the change on bench2" in document.note(compared)


def test_weak_and_skipped_trials_have_no_part_in_the_comparison() -> None:
    whole = examples.found()
    weak = replace(examples.judged(6, examples.COMMITS[2], Verdict.WEAK, (1.0, 1.0), (1.0, 1.0)))
    made = documents.document(replace(whole, trials=(*whole.trials, weak)), (examples.COMMITS[2],))
    assert made.before_after is not None
    assert [trial.runs[-1].jobs[0].iops_mean for trial in made.before_after.before.trials] == [1002.0]


def test_figures_of_writes_are_never_called_reads() -> None:
    """The run that decides reads; one that only fills the cache may write."""
    view = examples.found()
    filled = []
    for shown in view.trials:
        empty, full = shown.trial.runs
        jobs = tuple(replace(job, direction="write") for job in empty.jobs)
        filled.append(examples.with_trial(shown, runs=(replace(empty, jobs=jobs), full)))
    made = documents.document(replace(view, trials=tuple(filled)), (examples.COMMITS[2],))
    assert made.before_after is not None
    names = [metric.name for metric in made.before_after.metrics]
    assert names[0] == "fio.read_iops"
    assert {name.split(".")[-1] for name in names if name.startswith("fio.full.")} == {
        "read_iops", "read_clat_mean_us", "read_clat_99%_us",
    }  # fmt: skip
    assert {name.split(".")[-1] for name in names if name.startswith("fio.empty.")} == {
        "write_iops", "write_clat_mean_us", "write_clat_99%_us",
    }  # fmt: skip
    assert "write IOPS empty min/max  IOPS full min/max" in plain(page(made))
    reads = replace(made.before_after, before=documents.found().before_after.before)  # type: ignore[union-attr] # it has one
    assert not any(metric.name.startswith("fio.empty.") for metric in reads.metrics), "never compared"


def test_run_that_was_ended_early_is_marked_and_never_compared() -> None:
    stop = EarlyStop(StopReason.ABOVE, 12.0, 3000.0, 2003.1, "every job above")
    whole = examples.found()
    made = documents.document(replace(whole, trials=(*whole.trials, early(whole.trials[3], stop))))
    table = plain(page(made))
    assert "*3,980 / 6,941" not in table
    assert "*4,012 / 7,363" in table
    assert "* stopped early, when its verdict was clear: not to be compared with a full run" in " ".join(table.split())
    assert made.before_after is not None
    assert len(made.before_after.after.trials) == 1
    alone = documents.document(replace(whole, trials=(*whole.trials[:3], early(whole.trials[3], stop))))
    assert alone.before_after is None
    assert "was stopped early" not in " ".join(plain(page(documents.found())).split())


def test_what_it_took_to_fill_caches_is_told() -> None:
    found = examples.found()
    (first, *rest) = found.trials
    empty, full = first.trial.runs
    rounds = tuple(replace(empty, name=round_name("empty", number), duration_s=50.0) for number in (2, 3))
    filled = examples.with_trial(first, runs=(empty, *rounds, full))
    text = plain(page(documents.document(replace(found, trials=(filled, *rest)))))
    told = "in 1 trial the cache was not full and steady after one run, which was repeated 2 times at most, for"
    assert f"{told} 1 min 40 s in all" in " ".join(text.split())
    assert "steady" not in plain(page(documents.document(found)))


def early(shown: TrialView, stop: EarlyStop) -> TrialView:
    *first, last = shown.trial.runs
    return replace(examples.with_trial(shown, runs=(*first, replace(last, stopped_early=stop))), n=6)


def test_culprit_with_the_kernel_of_another_commit_has_its_figures() -> None:
    view = replace(examples.narrowed(), state=State.FOUND, first_fixed=examples.COMMITS[4])
    made = documents.document(view, (examples.COMMITS[2],))
    assert made.before_after is not None
    assert made.before_after.after.commit == examples.COMMITS[4]
    assert document.values(made.before_after.after, Objective()) == (4011.5,)


def test_no_subject_becomes_markup() -> None:
    evil = "a | b `c` <img src=x> [l](http://x) *b* _i_ @someone #1 ``` \x1b[31m"
    commit = replace(examples.COMMITS[3], subject=evil)
    whole = examples.found()
    *others, last = whole.trials
    trials = (*others, examples.with_trial(last, cell=cell(commit)))
    text = markdown(page(documents.document(replace(whole, trials=trials, first_fixed=commit))))
    outside = "".join(part for index, part in enumerate(text.split("```")) if index == 0)
    assert r"a \| b \`c\` &#60;img src=x&#62; \[l\](http://x) \*b\* \_i\_ &#64;someone \#1" in outside
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace(r"\|", "").count("|") for line in rows} == {rows[0].count("|")}


def test_listing_cannot_end_its_own_fence() -> None:
    made = replace(documents.found(), bisect_log="```\n# injected\n````")
    assert "`````\n```\n# injected\n````\n`````" in markdown(page(made))


def test_ends_without_a_commit_are_no_part_of_history_and_no_side() -> None:
    made = documents.believed()
    (table,) = [block for section in sections(made) for block in section.blocks if isinstance(block, Table)]
    assert table.rows[-1].cells[0] == "–"  # noqa: RUF001 - the mark for no figure
    assert made.before_after is not None
    assert made.before_after.before.commit == examples.COMMITS[2]


def test_the_run_that_counts_is_named_as_it_is_called() -> None:
    """Also when the last trial had no run."""
    view = examples.found()
    runs = (replace(view.trials[0].trial.runs[-1], name="ssd"),)
    ran, not_run = (examples.with_trial(view.trials[0], runs=of) for of in (runs, ()))
    alone = examples.with_trial(ran, runs=(replace(runs[0], name="run"),))
    for trials, name in (((ran,), "ssd run"), ((ran, not_run), "ssd run"), ((alone,), "run"), ((not_run,), "last run")):
        said = terms_sentence(documents.document(replace(view, trials=trials)))
        assert f"read.iops of the worst job in the {name} was above" in said


def test_words_for_the_sides_are_told_the_right_way_round_and_not_before_it_is_known_what_changed() -> None:
    """The golden files have both directions of a rate. At first one end is measured, and nobody said what to expect."""
    made = documents.regression()
    latency = replace(made.bisection, objective=Objective("read.clat.mean"), threshold=2e6)
    said = terms_sentence(replace(made, bisection=latency))
    assert '"fast" means that read.clat.mean of the worst job in the full run was below 2.00 ms' in said
    one_end = documents.document(replace(examples.found(), direction=None, threshold=None))
    assert terms_sentence(one_end) == ""


@pytest.mark.parametrize("digits", [40, 64])
def test_whole_hashes_are_shown_by_their_beginnings(digits: int) -> None:
    assert Request("a" * digits, "v6.1", (), (), False, "").span == "aaaaaaaaaaaa..v6.1"
    assert Request("a" * 50, "b" * 12, (), (), False, "").span == f"{'a' * 50}..{'b' * 12}"


# The figures before and after the change: names, units, and what the layers of the storage counted


MIB_KIB = 1024.0


def compared(metric: str, *runs: Run) -> BeforeAfter:
    before, after = (CommitSide(commit(n), (trial(commit(n), one),)) for n, one in enumerate(runs))
    return BeforeAfter(before, after, Basis.PARENT, Objective(metric))


def mixed(read: float, written_kib_s: float) -> Run:
    """A job that reads and writes."""
    both = (job("a/1", read), replace(job("a/1", 50.0, "write"), bw_kib_s=written_kib_s))
    return replace(run("full"), jobs=both)


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("read.iops", "fio.read_iops"),
        ("write.bw", "fio.write_bw_MiB_s"),
        ("read.clat.p99", "fio.read_clat_99%_us"),
        ("read.clat.p99.9", "fio.read_clat_99.9%_us"),
        ("elapsed", "elapsed_s"),
        ("cache.hit_ratio", "cache_hit_ratio_percent"),
    ],
)
def test_a_name_has_its_unit(metric: str, name: str) -> None:
    assert name_of(Objective(metric)) == name


def test_jobs_show_the_metric_that_decides_in_its_direction() -> None:
    found = compared("write.bw", mixed(1000.0, 80 * MIB_KIB), mixed(1000.0, 20 * MIB_KIB)).metrics
    assert [(one.name, one.before, one.after) for one in found[:2]] == [
        ("fio.write_bw_MiB_s", (80.0,), (20.0,)),
        ("fio.full.a/1.write_bw_MiB_s", (80.0,), (20.0,)),
    ]
    assert [one.name.split(".")[-1] for one in found[2:]] == ["write_iops", "write_clat_mean_us", "write_clat_99%_us"]
    # A metric of the whole job stands with each job, too.
    found = compared("elapsed", mixed(1000.0, 80.0), mixed(1000.0, 80.0)).metrics
    assert [one.name for one in found[:3]] == ["elapsed_s", "fio.full.a/1.elapsed_s", "fio.full.a/1.read_iops"]


def test_layers_name_what_they_counted() -> None:
    """One that this version does not know has no unit."""
    before, after = (
        replace(run("full", 100.0), counters=(("cache.hit_ratio", hits), ("warm.laps", 3.0))) for hits in (25.0, 75.0)
    )
    made = compared("read.iops", before, after)
    assert [(one.name, one.before, one.after) for one in made.metrics[-2:]] == [
        ("full.cache_hit_ratio_percent", (25.0,), (75.0,)),
        ("full.warm_laps", (3.0,), (3.0,)),
    ]
    assert document.lines(made, [])[-2].split() == ["25.00", "+200.0%", "75.00", "full.cache_hit_ratio_percent"]
