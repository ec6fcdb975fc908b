"""The table of a bisection, and what stands below it: the footer, and the answer."""

from dataclasses import replace

import pytest

from bisector.commands.report import RENDERERS, Format
from bisector.core import units
from bisector.core.figures import Run
from bisector.core.objective import Objective
from bisector.core.subject import Commit, Kind, Relevance
from bisector.core.verdict import State, Verdict
from bisector.report.sections import footer
from bisector.report.table import (
    baseline_text,
    figures,
    run_blocks,
    run_titles,
    tail_note,
    values_text,
    words,
)
from bisector.status.view import BisectionView, TrialView
from tests import examples as records
from tests.examples import cell
from tests.report import documents, examples

FOUND_80 = """\
n  commit        date        verdict  IOPS empty min/max  IOPS full min/max
1  0a5b3c7d9e1f  2026-01-10  broken        1,002 / 8,046      1,002 / 9,104
    Linux 5.0
2  5a5b3c7d9e1f  2026-01-15  fixed         3,818 / 6,057      4,006 / 7,363
    Linux 5.1-rc1
3  2a5b3c7d9e1f  2026-01-12  broken        1,002 / 7,701     1,002 / 12,701
    dm cache policy smq: make the cleaner gentle
4  3a5b3c7d9e1f  2026-01-13  fixed         3,980 / 6,941      4,012 / 7,363
    dm cache policy smq: demote when the cache is full

broken end    0a5b3c7d9e1f ("Linux 5.0")
fixed end     5a5b3c7d9e1f ("Linux 5.1-rc1")
figures       mean IOPS of the slowest and of the fastest job of each run
threshold     2,003 IOPS, the geometric mean of the least jobs of both ends
evaluations   4 trials, 9 min 46 s
search        verdicts are those of single measurements, without a probability
compiler      gcc 12.2.0, GNU ld 2.40
config        The effective .config differs from that of the parent 2a5b3c7d9e1f
              in 2 options:
              CONFIG_DM_CACHE_SMQ: n -> y; CONFIG_HZ: 250 -> 1000
host          box
record        /var/runs/r1

answer        3a5b3c7d9e1f is the first fixed commit
              dm cache policy smq: demote when the cache is full
              2026-01-13
next          git -C /src/linux show 3a5b3c7d9e1f
"""

NARROWED_120 = """\
n  commit        date        verdict  IOPS empty min/max  IOPS full min/max
1  0a5b3c7d9e1f  2026-01-10  broken        1,002 / 8,046      1,002 / 9,104
    Linux 5.0
2  5a5b3c7d9e1f  2026-01-15  fixed         3,818 / 6,057      4,006 / 7,363
    Linux 5.1-rc1
3  2a5b3c7d9e1f  2026-01-12  skip                      –                  –
    dm cache policy smq: make the cleaner gentle
    does not build: drivers/md/dm-cache-policy-smq.c:1201:2: error: 'nr_free' undeclared
4  3a5b3c7d9e1f  2026-01-13  fixed         3,980 / 6,941      4,012 / 7,363
    dm cache policy smq: demote when the cache is full
5  4a5b3c7d9e1f  2026-01-14  fixed                     –                  –
    dm cache: rename a variable
    same kernel as 3a5b3c7d9e1f, not measured again

trial 3, 2a5b3c7d9e1f: build error (build)

      CC      drivers/md/dm-cache-policy-smq.o
    drivers/md/dm-cache-policy-smq.c: In function 'queue_promotion':
    drivers/md/dm-cache-policy-smq.c:1201:2: error: 'nr_free' undeclared
    make[3]: *** [scripts/Makefile.build:250: drivers/md/dm-cache-policy-smq.o] Error 1

n  seconds       build  boot  storage   runs  bisector  total
1  0a5b3c7d9e1f   47.0   5.7      4.2   84.0       5.5  146.4
2  5a5b3c7d9e1f   47.0   5.7      4.2   84.0       5.5  146.4
3  2a5b3c7d9e1f   12.1     –        –      –       0.8   12.9
4  3a5b3c7d9e1f   47.0   5.7      4.2   84.0       5.5  146.4
5  4a5b3c7d9e1f   16.6     –        –      –       0.4   17.0
   all           169.7  17.1     12.6  252.0      17.7  469.1

broken end    0a5b3c7d9e1f ("Linux 5.0")
fixed end     5a5b3c7d9e1f ("Linux 5.1-rc1")
figures       mean IOPS of the slowest and of the fastest job of each run
threshold     2,003 IOPS, the geometric mean of the least jobs of both ends
evaluations   5 trials, 1 skipped, 1 not measured because the kernel was the same, 7 min 49 s
controls      an end was tried again once after faults, and worked
doubts        5a5b3c7d9e1f failed at stage build: build error: gelf.h: No such file
compiler      gcc 12.2.0, GNU ld 2.40
host          box
infra errors  box: the guest's SSH connection was lost
record        /var/runs/r1

answer        the first fixed commit is one of 2 commits:
              2a5b3c7d9e1f ("dm cache policy smq: make the cleaner gentle")
              3a5b3c7d9e1f ("dm cache policy smq: demote when the cache is full")
in the way    skipped 2a5b3c7d9e1f ("dm cache policy smq: make the cleaner gentle")
next          git -C /src/linux show --stat 2a5b3c7d9e1f 3a5b3c7d9e1f
"""  # noqa: RUF001 - the dash that stands for no figure

EMPTY_80 = """\
No trial has ended yet.

broken end    0a5b3c7d9e1f ("Linux 5.0")
fixed end     5a5b3c7d9e1f ("Linux 5.1-rc1")
threshold     not known: it takes both ends, measured and different
evaluations   0 trials
record        /var/runs/r1

running       5 candidates left
"""


def table(*trials: TrialView, width: int = 120, view: BisectionView | None = None) -> list[str]:
    """The lines of the verdict table."""
    return examples.shown(run_blocks(replace(view or examples.view(), trials=trials)), width).splitlines()


@pytest.mark.parametrize(
    ("view", "width", "more", "golden"),
    [
        pytest.param(examples.found(), 80, False, FOUND_80, id="found at 80 columns"),
        pytest.param(examples.narrowed(), 120, True, NARROWED_120, id="narrowed, with logs and times"),
        pytest.param(examples.empty(), 80, False, EMPTY_80, id="empty"),
    ],
)
def test_golden(view: BisectionView, width: int, more: bool, golden: str) -> None:
    assert examples.shown((*run_blocks(view, logs=more, times=more), *footer(view)), width) == golden


def test_weak_and_settled_reasons() -> None:
    shown = "\n".join(table(examples.BROKEN, examples.WEAK))
    assert "weak" in shown
    assert "another process used 1.4 cores during run full" in shown
    assert examples.BROKEN.why not in shown, "the figures say it"


def test_figures_by_number_of_jobs() -> None:
    several = [records.run("full", *means) for means in ((5.0,), (5.0, 3.0), (5.0, 3.0, 4.0), (), (float("nan"),))]
    assert list(map(figures, several)) == ["5", "3 / 5", "3 … 5", units.UNKNOWN, units.UNKNOWN]
    assert figures(several[2], each_job=True) == "3 / 4 / 5"
    mixed = replace(records.run("full"), jobs=(records.job("a", 9.0), records.job("a", 2.0, "write")))
    assert figures(mixed) == "9"


def test_a_column_of_writes_says_so() -> None:
    def heading(*runs: Run) -> str:
        views = [TrialView(n, records.trial(records.commit(n), run), Verdict.OLD, "") for n, run in enumerate(runs, 1)]
        return table(*views)[0].split("verdict")[1].split("subject")[0].strip()

    reads = records.run("full", 9.0)
    writes = replace(reads, jobs=(records.job("a", 9.0, "write"), records.job("b", 7.0, "write")))
    assert heading(reads) == "IOPS full"
    assert heading(writes) == "write IOPS full min/max"
    assert heading(reads, writes) == "read.iops/write.iops full min/max"
    assert heading(replace(reads, jobs=())) == "IOPS full"
    assert figures(writes) == "7 / 9"


def test_a_column_of_latencies_has_their_unit_and_the_worst_first() -> None:
    jobs = (replace(records.job("a", 9.0), clat_p99_ns=850e3), replace(records.job("b", 9.0), clat_p99_ns=16.2e6))
    run = replace(records.run("full"), jobs=jobs)
    shown = TrialView(1, records.trial(records.commit(1), run), Verdict.OLD, "")
    latency = Objective("read.clat.p99")
    title, line = table(shown, view=replace(examples.view(), objective=latency))
    assert "read.clat.p99 full max/min" in title
    assert "16.2 ms / 850 µs" in line
    assert values_text(run, latency) == "16.2 ms / 850 µs"
    assert values_text(run, Objective()) == "9 / 9 IOPS"
    assert values_text(run, Objective("write.bw")) == "–"  # noqa: RUF001 - as units.UNKNOWN
    assert words(latency) == ("read.clat.p99", "worst", "best")
    assert words(Objective("write.bw")) == ("mean write.bw", "slowest", "fastest")
    (total,) = baseline_text([records.trial(records.commit(1), run)], latency).split("; ")
    assert total.startswith("16.2 ms / 850 µs on ")


def test_a_further_round_of_a_run_has_no_column_of_its_own() -> None:
    runs = [records.run(name, figure) for name, figure in (("empty", 7.0), ("empty@2", 9.0), ("full", 3818.0))]
    view = TrialView(1, records.trial(examples.COMMITS[0], *runs), Verdict.NEW, "")
    title, line = table(view)
    assert "empty@2" not in title
    assert "  7 " in line
    assert " 9 " not in line


def test_a_commit_that_was_not_even_built_says_so() -> None:
    built = examples.REUSED.trial
    assert built.kernel is not None
    kernel = replace(built.kernel, key=f"family-{examples.COMMITS[3].tree}")
    commit = replace(built.commit, tree="7" * 40)
    unbuilt = examples.with_trial(examples.REUSED, cell=cell(commit), kernel=kernel)
    text = "\n".join(table(examples.CULPRIT, unbuilt))
    assert "same sources as 3a5b3c7d9e1f, not built and not measured again" in text
    own = examples.with_trial(examples.REUSED, kernel=replace(kernel, key=f"family-{built.commit.tree}"))
    assert "same kernel as 3a5b3c7d9e1f, not measured again" in table(own)[-1]


def test_an_end_without_a_commit_is_not_taken_for_the_commit() -> None:
    view = examples.believed()
    *_, row, _, why = table(*view.trials, view=view)
    assert "no commit: NEW with 3a5b3c7d9e1f reverted" in why
    assert " " + "e" * 12 in row
    trial = examples.REVERTED.trial
    with_it = examples.with_trial(examples.REVERTED, cell=cell(trial.commit, Kind.PICKED, trial.subject.changed_by))
    assert "no commit: OLD with 3a5b3c7d9e1f added" in table(with_it)[-1]


@pytest.mark.parametrize(
    ("over", "text", "title"),
    [
        ("worst", "501 / 502", "IOPS full min/max"),
        ("sum", "1,003", "IOPS full sum"),
        ("mean", "502", "IOPS full mean"),
        ("job1", "502", "IOPS full job1"),
        ("job2", units.UNKNOWN, "IOPS full job2"),
    ],
)
def test_what_several_jobs_amount_to_is_shown_where_that_decides(over: str, text: str, title: str) -> None:
    """The threshold is of it, too: the values of the jobs beside it would be on another side."""
    run, objective = records.run("full", 501.0, 502.0), Objective("read.iops", over)
    assert figures(run, objective) == text
    found_view = examples.found()
    shown = replace(found_view.trials[0], trial=records.trial(records.commit(1), run))
    (heading,) = run_titles([shown], objective)
    assert heading == title
    footer = examples.footer_text(replace(found_view, objective=objective), 120)
    assert (objective.label in footer) == (over != "worst")


def test_a_percentile_of_few_ios_is_told_of_below_the_table() -> None:
    view = replace(examples.found(), objective=Objective("read.clat.p99"))
    assert tail_note(view) == ""
    few = replace(records.run("full"), jobs=(replace(records.job("a", 9.0), total_ios=312),))
    view = replace(view, trials=(examples.with_trial(view.trials[0], runs=(few,)),))
    assert tail_note(view).startswith("Too few I/Os: read.clat.p99 of 312 I/Os of job a: about 3 of them lie beyond it")
    assert "read.clat.p99 of 312 I/Os" in " ".join(examples.footer_text(view).split())


def test_of_several_hosts_each_trial_says_where_it_was_and_each_host_has_its_line() -> None:
    view = examples.on_two_hosts()
    lines = table(*view.trials, view=view)
    assert [line.split()[-1] for line in lines if line.strip().startswith("on bench")] == ["bench1", "bench1", "bench2"]
    assert "threshold     bench1: 2,003 IOPS; bench2: 8,012 IOPS" in examples.footer_text(view)


# Below the table


def test_footer_counts_the_commits_that_can_matter_and_what_kernels_lack() -> None:
    lacking = examples.with_trial(examples.BROKEN, kernel=records.kernel(("CONFIG_VIRTIO_MENU=y",), ("max-page-size",)))
    view = examples.view(lacking, examples.with_trial(examples.FIXED, kernel=records.kernel((), ("max-page-size",))))
    footer = examples.footer_text(replace(view, relevance=Relevance(14_565, 1_012)), 80)
    assert "14,565 commits, 1,012 can matter to this kernel" in footer
    assert "not obtained  CONFIG_VIRTIO_MENU=y (1 of 2 kernels)\n" in footer
    assert "quirks        max-page-size\n" in footer


def test_one_compiler_is_in_the_footer_and_several_are_beside_each_kernel_too() -> None:
    one = examples.BROKEN
    other = examples.with_trial(examples.FIXED, kernel=replace(records.kernel(), toolchain="gcc 11.3"))
    assert "compiler      gcc 12.2.0, GNU ld 2.40\n" in examples.footer_text(examples.view(one), 80)
    assert "built by" not in examples.shown(run_blocks(examples.view(one)))
    footer = examples.footer_text(examples.view(one, other), 80)
    assert "compiler      gcc 12.2.0, GNU ld 2.40 (1 of 2 kernels)\n              gcc 11.3 (1 of 2 kernels)\n" in footer
    table = examples.shown(run_blocks(examples.view(one, other)))
    assert table.index("built by gcc 12.2.0") < table.index("\n2  ") < table.index("built by gcc 11.3")


def test_long_lists_are_cut_with_their_count() -> None:
    many = tuple(Commit(f"{n:040x}", "t", f"subject {n}", records.STARTED_AT) for n in range(100))
    view = replace(examples.narrowed(), candidates=many)
    answer = examples.answer_text(view, 80)
    assert "one of 100 commits" in answer
    assert "and 92 more" in answer


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED])
def test_what_can_go_on_says_how(state: State) -> None:
    view = replace(examples.view(examples.BROKEN, state=state), message="interrupted by the person at the keyboard")
    answer = examples.answer_text(view, 80)
    assert answer.startswith(state.value)
    assert "interrupted by the person" in answer
    assert answer.endswith("next          bisector resume --run-dir /var/runs/r1\n")


def test_an_answer_by_both_clocks_says_how_the_second_is_gone_on_with() -> None:
    view = examples.by_both_clocks()
    said = examples.answer_text(view, 90)
    assert "both clocks   read.iops of the worst job is 4.00 times that of the parent" in said
    assert "by the host's clock 3.20 times (95 %: 3.00 to 3.40) in 1 pair" in " ".join(said.split())
    assert f"              {view.resume_command}\n" in said
    assert view.host_clock is not None
    done = replace(view, host_clock=replace(view.host_clock, state=State.MEASURED))
    assert str(view.resume_command) not in examples.answer_text(done, 90)


def test_that_nothing_changed_names_no_commit() -> None:
    report = documents.no_change()
    answer = " ".join(examples.answer_text(examples.no_change(), 100).split())
    mail = RENDERERS[Format.MAIL](report)
    for text in (answer, " ".join(mail.split())):
        assert "othing in this range changed read.iops of the worst job: the new end's was 1.10 times" in text
        assert "is one of" not in text
    assert "no change of fio.read_iops" in mail
    assert "noticed" not in mail
    assert "nothing in the range changed: 99.3 %" in " ".join(examples.footer_text(examples.no_change(), 100).split())


def test_where_one_commit_is_left_it_is_not_one_of_several() -> None:
    """As where no time was left to confirm it."""
    view = replace(examples.narrowed(), candidates=(examples.COMMITS[3],), skips_in_the_way=())
    assert "the first fixed commit is most likely this one:" in examples.answer_text(view)
    mail = " ".join(RENDERERS[Format.MAIL](documents.document(view)).split())
    assert f"v5.0..v5.1-rc1: fio.read_iops 4.0x improvement most likely by {examples.COMMITS[3].short}" in mail
    assert "The first fixed commit is most likely this one." in mail
    belief = replace(examples.BELIEF, one_change=False)
    said = examples.answer_text(replace(view, belief=belief))
    assert "if there were one, the first fixed commit would be this one:" in " ".join(said.split())
