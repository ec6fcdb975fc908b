"""The report of a comparison in each of its forms, and its pictures by value."""

import json
import math
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.analysis.comparison import LOOKED_ALPHA, Scale
from bisector.core import units
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.report import as_html
from bisector.report.as_text import plain
from bisector.report.comparison import ComparisonReport, page, title
from bisector.report.comparison_document import document, render
from bisector.report.comparison_plots import Dot, forest, forest_figure, ratio_ticks, run_order, runs_figure, tick_text
from bisector.report.comparison_table import (
    deciding_tables,
    digits,
    few_blocks,
    p_text,
    ratio_text,
    remark,
    sentences,
    span,
    word,
)
from bisector.report.document import Paragraph, Section, Table
from bisector.report.drawing import Picture, draw
from bisector.status.comparison import Arm, Measured, SoundBlock
from bisector.status.time_spent import TimeSpent
from tests.report import comparison_examples as examples
from tests.report.test_as_html import HOSTILE, Page


@pytest.mark.parametrize("name", examples.DOCUMENTS)
@pytest.mark.parametrize("suffix", examples.RENDERERS)
def test_golden(name: str, suffix: str) -> None:
    """``python -m tests.report.comparison_examples`` writes them anew; read the difference before it is committed."""
    made = examples.RENDERERS[suffix](page(examples.DOCUMENTS[name]()))
    assert made == examples.golden(name, suffix).read_text(encoding="utf-8")


def table(report: ComparisonReport) -> Table:
    return next(block for block in deciding_tables(report.result) if isinstance(block, Table))


def test_caption_of_a_table_has_the_direction() -> None:
    few = [block for block in deciding_tables(examples.of_few_blocks().result) if isinstance(block, Table)]
    assert [one.caption for one in few] == [
        "read.iops of the worst job (higher is better)",
        "read.clat.mean of the worst job (lower is better)",
    ]


def test_each_of_two_kernels_has_a_column_and_each_of_more_a_row() -> None:
    assert [column.title for column in table(examples.usual()).columns[1:3]] == ["v6.10", "v6.11"]
    three = table(examples.with_placebo())
    assert [column.title for column in three.columns[1:3]] == ["kernel", "figure"]
    assert [(row[1], row[3], row[-1]) for row in three.rows] == [
        ("v6.10", "", "reference"),
        ("v6.11", "+20.2 %", "faster"),
        ("v6.10 (again)", "0.0 %", "same ±5 %"),
    ]


def test_cell_that_a_tree_cannot_have_is_na_with_the_reason() -> None:
    found = table(examples.usual())
    assert found.rows[2][1:] == ("n/a", "801", units.UNKNOWN, units.UNKNOWN, "n/a")
    assert found.remarks[2] == "v6.10: needs CONFIG_DM_WRITECACHE"
    lacks = {"v6.10": "needs CONFIG_DM_WRITECACHE"}
    alone = {**examples.ALONE, examples.AGAIN.name: examples.ALONE["v6.11"]}
    three = table(
        examples.report(examples.measured(alone, absent=lacks), arms=(examples.OLD, examples.NEW, examples.AGAIN))
    )
    assert (three.rows[0][1:3], three.rows[0][-1]) == (("v6.10", "n/a"), "n/a")
    assert three.remarks == ("needs CONFIG_DM_WRITECACHE", *["v6.10: needs CONFIG_DM_WRITECACHE"] * 2)


def test_kernel_that_is_lost_has_its_values_its_word_and_the_reason() -> None:
    lost = replace(examples.measured(examples.FASTER), absent={"v6.11": "panic: Kernel panic"})
    made = examples.report(lost)
    found = table(made)
    assert (found.rows[0][2], found.rows[0][-1]) == ("496", "faster")
    assert found.remarks == ("n/a after block 6: panic: Kernel panic",)
    written = document(made).rows[0]
    assert (written.absent, written.ended) == ({}, {"v6.11": "after block 6: panic: Kernel panic"})
    assert (written.changes[0].absent, written.changes[0].ended) == ("", "after block 6: panic: Kernel panic")
    assert len(written.values) == 12


@pytest.mark.parametrize(
    ("void", "missing", "said"),
    [
        (2, 0, "2 blocks with a weak or failed run did not count; others took their place."),
        (1, 1, "1 block with a weak or failed run did not count; no sound one was measured since."),
        (4, 3, "4 blocks with a weak or failed run did not count; no sound one was measured after 3 of them."),
    ],
)
def test_blocks_that_did_not_count(void: int, missing: int, said: str) -> None:
    made = examples.report(replace(examples.measured(examples.FASTER), void=void, missing=missing))
    assert said in list(sentences(made.result))


def test_words() -> None:
    assert [row[-1] for row in table(examples.usual()).rows] == ["faster", "same ±5 %", "n/a"]
    unclear = table(examples.unclear())
    assert [row[-1] for row in unclear.rows] == ["unclear"]
    assert unclear.remarks == ("about 52 blocks would tell",)
    fragile = table(examples.of_few_blocks())
    assert (fragile.rows[0][-1], fragile.remarks[0]) == ("faster", "fragile: the exact test does not show it")


def test_row_that_differs_by_itself_and_not_in_its_family_says_so() -> None:
    """Else its interval, which leaves out 0, contradicts the word."""
    weak = {"v6.10": (100.0,) * 6, "v6.11": (110.0, 102, 112, 101, 111, 103)}
    setups = [examples.measured(weak, Setup(f"{n}", "w"), start=20 * n) for n in range(4)]
    found = table(examples.report(*setups))
    assert {row[-1] for row in found.rows} == {"unclear"}
    assert found.rows[0][4] == "+1.3 to +11.8 %"
    assert found.remarks[0].startswith("it differs by itself, and not in its family; about ")


def test_word_of_one_block() -> None:
    one = {arm: values[:1] for arm, values in examples.FASTER.items()}
    found = table(examples.report(examples.measured(one)))
    assert found.rows[0][3:] == ("+19.2 %", units.UNKNOWN, "unclear")
    assert found.remarks == ("one block has no interval",)


def test_title_counts_the_words() -> None:
    assert title(examples.usual()) == "Comparison of v6.11 with v6.10: faster in 1 of 3, the same in 1 of 3"
    assert title(examples.with_placebo()) == "Comparison of v6.11 with v6.10: faster"
    nothing = dict.fromkeys(examples.FASTER, ())
    assert title(examples.report(examples.measured(nothing))).endswith("no result yet")


def test_title_of_a_kernel_that_is_measured_twice() -> None:
    figures = {"v6.10": examples.FASTER["v6.10"], examples.AGAIN.name: (409.0, 401, 428, 409, 421, 406)}
    made = examples.report(examples.measured(figures), arms=(examples.OLD, examples.AGAIN))
    assert title(made) == "Comparison of v6.10 with itself: the same"


def test_mean_of_one_block_has_no_interval() -> None:
    one = {arm: values[:1] for arm, values in examples.FASTER.items()}
    made = examples.report(examples.measured(one), examples.measured(one, examples.BCACHE))
    assert rows_of(made, "means") == [("v6.11", "+19.2 %", units.UNKNOWN, "1")]


def rows_of(report: ComparisonReport, name: str) -> list[tuple[str, ...]]:
    """The rows of the tables of a section."""
    found: list[Section] = [section for section in page(report).sections if section.name == name]
    return [row for section in found for block in section.blocks if isinstance(block, Table) for row in block.rows]


def test_tests_stand_beside_the_result() -> None:
    assert rows_of(examples.usual(), "tests") == [
        ("lvmcache(ssd,hdd)+ext4", "v6.11", "<0.0001", "0.031", "+20.2 %", "6"),
        ("bcache(ssd,hdd)+ext4", "v6.11", "0.95", "0.97", "0.0 %", "6"),
    ]


def test_wider_interval_of_a_lone_look_is_told() -> None:
    looked = replace(examples.measured(examples.FASTER), alpha=LOOKED_ALPHA)
    said = " ".join(plain(page(examples.report(looked))).split())
    assert "it reaches to the 98 % point of t" in said
    assert "98 %" not in plain(page(examples.usual()))


def test_values_of_a_block_are_in_the_columns_of_their_kernels() -> None:
    """Whatever the order was that they were measured in: the number of the trial tells it."""
    assert rows_of(examples.with_placebo(), "blocks")[0] == (
        "lvmcache(ssd,hdd)+ext4", "1", "1", "1001", "412 (1)", "491 (2)", "409 (3)",
    )  # fmt: skip
    made = examples.with_placebo()
    (first, *others) = made.blocks
    turned = replace(first, order=(("v6.11", 99), ("v6.10", None)), why_void="the host was busy")
    assert rows_of(replace(made, blocks=(turned, *others)), "blocks")[0][2:] == (
        units.UNKNOWN, "1001", units.UNKNOWN, f"{units.UNKNOWN} (99)", units.UNKNOWN,
    )  # fmt: skip


def test_change_on_a_stack_is_compared_with_that_on_the_first_one() -> None:
    (found,) = rows_of(examples.usual(), "stacks")
    assert found[:3] == ("v6.11 on lvmcache(ssd,hdd)+ext4: +20.2 %", "bcache(ssd,hdd)+ext4", "0.0 %")
    assert found[3:] == ("0.832", "0.820 to 0.844", "<0.0001")
    assert rows_of(examples.with_placebo(), "stacks") == [], "one stack"


def test_what_decides_nothing_says_so() -> None:
    sections = {section.name: section for section in page(examples.usual()).sections}
    for name, said in (("stacks", "No verdict is made of it"), ("exploratory", "Nothing is concluded from them"),
                       ("means", "No verdict is made of it"), ("tests", "The last two decide nothing")):  # fmt: skip
        prose = " ".join(block.text for block in sections[name].blocks if isinstance(block, Paragraph))
        assert said in prose
    assert sections["stacks"].title.startswith("Exploratory: ")
    assert sections["exploratory"].title.startswith("Exploratory: ")


def test_ratios() -> None:
    assert [ratio_text(one, one) for one in (1.2034, 0.9996, 0.5, 9.9, 12.04, 0.08374, 5234.0)] == [
        "+20.3 %", "0.0 %", "-50.0 %", "+890.0 %", "12.0x", "0.0837x", "5,234x",
    ]  # fmt: skip
    assert ratio_text(math.inf, 3.0) == "no end"
    assert [digits(one) for one in (0.00012345, 0.999, 9.999, 99.96, 123.4)] == [
        "0.000123", "0.999", "10.0", "100", "123",
    ]  # fmt: skip
    assert (span("+18.5 %", "+22.0 %"), span("9.5x", "12.0x"), span("0.0 %", "no end"), span("+9 ms", "+1 s")) == (
        "+18.5 to +22.0 %", "9.5x to 12.0x", "0.0 % to no end", "+9 ms to +1 s",
    )  # fmt: skip


@pytest.mark.parametrize("name", examples.DOCUMENTS)
def test_tables_can_be_pasted_into_a_mail(name: str) -> None:
    lines = plain(page(examples.DOCUMENTS[name]())).splitlines()
    for until, width in (("Exploratory: other figures", 80), ("Kernels", 86)):
        assert max(map(len, lines[: lines.index(until)])) <= width


def test_placebo_that_differs_is_said_first() -> None:
    drifted = {**examples.FASTER, examples.AGAIN.name: [one * 1.1 for one in examples.FASTER["v6.10"]]}
    made = examples.report(examples.measured(drifted), arms=(examples.OLD, examples.NEW, examples.AGAIN))
    said = examples.RENDERERS["txt"](page(made))
    assert "v6.10 (again) is the kernel v6.10, and faster on" in " ".join(said.split())


def test_what_few_blocks_cannot_do() -> None:
    assert (
        few_blocks(5) == "With 5 blocks the exact test cannot reach 5 %: its least p-value is 6.2 %. It takes 6 blocks."
    )
    assert "cannot reach" not in examples.RENDERERS["txt"](page(examples.usual()))


def test_p_values() -> None:
    assert [p_text(p) for p in (0.0, 0.00012, 0.031, 0.5612, 1.0)] == ["<0.0001", "0.00012", "0.031", "0.56", "1"]


def test_html_has_the_tables_and_no_trials() -> None:
    made = page(examples.usual())
    found = Page(as_html.render_page(made, [as_html.Shown(b"<svg/>", "ratios")]))
    assert len(found.all("table")) == len([one for section in made.sections for one in section.blocks
                                           if isinstance(one, Table)])  # fmt: skip
    assert len(found.all("caption")) == 1
    assert found.all("details") == []
    assert [image["alt"] for image in found.all("img")] == ["ratios"]
    assert "same ±5 %" in found.text


def test_html_names_a_group_of_rows_once() -> None:
    found = Page(as_html.render_page(page(examples.with_placebo())))
    heads = [one for one in found.all("th") if one.get("scope") == "rowgroup"]
    assert len(heads) == 4, "of the result, the tests, the other figures and the blocks"


def test_hostile_words_are_text() -> None:
    made = examples.usual()
    arms = (Arm(HOSTILE), examples.NEW)
    result = replace(made.result, arms=arms)
    kernels = tuple(replace(one, commit=HOSTILE, compiler=HOSTILE) for one in made.kernels)
    html = as_html.render_page(page(replace(made, result=result, kernels=kernels, storage=((HOSTILE, (HOSTILE,)),))))
    assert len(Page(html).all("script")) == 1
    for render_ in examples.RENDERERS.values():
        assert "\x1b" not in render_(page(replace(made, result=result, kernels=kernels)))


def test_json_has_every_value_and_what_was_said() -> None:
    made = document(examples.usual())
    printed = json.loads(render(examples.usual()))
    assert printed["schema"] == 1
    assert [one["value"] for one in printed["rows"][0]["values"][:2]] == [412.0, 491.0]
    (change,) = printed["rows"][0]["changes"]
    assert (change["outcome"], change["blocks"], change["scale"]) == ("faster", 6, "ratio")
    assert change["low"] < change["estimate"] < change["high"]
    assert printed["rows"][2]["absent"] == {"v6.10": "needs CONFIG_DM_WRITECACHE"}
    assert printed["rows"][2]["changes"][0]["outcome"] is None
    assert {row["deciding"] for row in printed["exploratory"]} == {False}
    assert all(change.outcome is None for row in made.exploratory for change in row.changes)
    assert printed["arms"][0]["config_sha256"] == "0123456789abcdef" * 4
    assert len(printed["blocks"]) == 18


def test_json_says_how_it_stands_and_what_to_type() -> None:
    """A script does not read sentences; only a comparison's document has the key ``arms``."""
    made = examples.usual()
    printed = json.loads(render(made))
    assert (printed["state"], printed["run_dir"], printed["resume_command"]) == ("measured", "/runs/a b", None)
    typed = "bisector resume --run-dir '/runs/a b'"
    stopped = json.loads(render(replace(made, state=State.STOPPED, resume_command=typed)))
    assert (stopped["state"], stopped["resume_command"]) == ("stopped", typed)


def test_json_has_what_a_kernel_changes_on_either_stack() -> None:
    printed = json.loads(render(examples.usual()))
    (one,) = printed["stacks"]
    assert (one["arm"], one["first"], one["stack"], one["metric"]) == (
        "v6.11", "lvmcache(ssd,hdd)+ext4", "bcache(ssd,hdd)+ext4", "read.iops",
    )  # fmt: skip
    assert one["low"] < one["estimate"] < one["high"] < 1
    assert one["p"] <= one["adjusted_p"] < 0.0001
    assert printed["tested"] == 2


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq here")
@pytest.mark.parametrize(("example", "code"), [("usual", 0), ("matrix", 1), ("unclear", 0)])
def test_jq_of_the_page_about_json_fails_what_is_slower(example: str, code: int) -> None:
    """The command of docs/json.md as it stands there."""
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if "| jq -e " in line and "slower" in line)
    words = shlex.split(line.partition(" | ")[2].partition("    #")[0])
    found = subprocess.run(
        words, input=render(getattr(examples, example)()), text=True, capture_output=True, check=False
    )
    assert (found.returncode, found.stderr) == (code, "")


def test_what_the_hours_went_to_is_told() -> None:
    made = replace(examples.usual(), time=TimeSpent(2_100.0, 280.0, 120.0, 60.0, 1_590.0))
    said = " ".join(examples.RENDERERS["txt"](page(made)).split())
    assert (
        "time 30 min 20 s: boots 2 min, layouts 1 min, workloads 26 min 30 s, all else 50 s (2.7 %); builds 4 min 40 s"
        " beside that"
    ) in said
    printed = json.loads(render(made))["time"]
    assert (printed["other_s"], printed["other_share"]) == (50.0, pytest.approx(50 / 1820))
    assert json.loads(render(examples.usual()))["time"] is None


def test_json_of_one_block_has_no_interval() -> None:
    one = {arm: values[:1] for arm, values in examples.FASTER.items()}
    (change,) = json.loads(render(examples.report(examples.measured(one))))["rows"][0]["changes"]
    assert (change["low"], change["high"], change["p"], change["adjusted_p"]) == (None, None, None, None)
    assert change["estimate"] == pytest.approx(491 / 412)


def test_forest_has_a_panel_for_each_metric_and_ratios_alone() -> None:
    plot = forest(examples.of_few_blocks().result)
    assert plot is not None
    assert [panel.title for panel in plot.panels] == [
        "read.iops of the worst job (higher is better)",
        "read.clat.mean of the worst job (lower is better)",
    ], "as the captions of the tables"
    (one,) = plot.panels[0].marks
    assert one.low is not None
    assert one.high is not None
    assert one.low < one.estimate < one.high
    assert one.label == "lvmcache(ssd,hdd)+ext4: faster"


def counted(first: float, *others: float, stack: Setup = examples.LVMCACHE) -> Measured:
    """A counter that decides: of the first kernel it has one value, of the other one several."""
    usual = replace(examples.measured(examples.FASTER, stack), objective=Objective("cache.dirty_blocks"))

    def trials(block: SoundBlock, other: float) -> dict[str, tuple[int, Trial]]:
        values = zip((first, other), block.trials.items(), strict=True)
        return {arm: (n, examples.with_counter(one, "cache.dirty_blocks", value)) for value, (arm, (n, one)) in values}

    blocks = zip(usual.blocks, others, strict=False)
    return replace(usual, blocks=tuple(replace(block, trials=trials(block, other)) for block, other in blocks))


def test_differences_have_a_panel_of_their_own_with_their_intervals() -> None:
    zero, some = counted(0.0, 10.0, 14.0, 12.0), counted(100.0, 120.0, 121.0, 119.0, stack=examples.BCACHE)
    made = examples.report(zero, some)
    plot = forest(made.result)
    assert plot is not None
    assert plot.title == "Ratio to or difference from v6.10, with 95 % intervals"
    ratios, differences = sorted(plot.panels, key=lambda panel: panel.scale, reverse=True)
    assert (ratios.scale, differences.scale) == (Scale.RATIO, Scale.DIFFERENCE)
    assert ratios.title == differences.title == "cache.dirty_blocks (lower is better)"
    (one,), (other,) = ratios.marks, differences.marks
    assert one.estimate == pytest.approx(1.2, rel=0.01)
    assert (other.estimate, other.band) == (12.0, 0.0)
    assert (other.low, other.high) == pytest.approx((12 - 4.9683, 12 + 4.9683), abs=1e-4)  # t of 2 freedoms: 4.3027
    assert run_order(made.result) is not None
    said = " ".join(examples.RENDERERS["txt"](page(made)).split())
    assert "differences are given and not ratios: cache.dirty_blocks on lvmcache(ssd,hdd)+ext4." in said


def test_the_axis_of_differences_is_linear_and_has_signs_and_units() -> None:
    plot = forest(examples.report(counted(0.0, 10.0, 14.0, 12.0)).result)
    assert plot is not None
    figure = forest_figure(plot)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_xscale() == "linear"
    assert axes.get_xlabel() == "difference from v6.10"
    low, high = axes.get_xlim()
    assert low == -high < -16
    shown = [text.get_text() for text in axes.get_xticklabels()]
    assert {"-16", "0", "+16"} <= set(shown)
    assert figure.get_suptitle() == "Difference from v6.10, with 95 % intervals"


def test_a_difference_of_nothing_and_one_block_without_an_interval_can_be_drawn() -> None:
    for of in (counted(0.0, 0.0, 0.0), counted(0.0, 3.0)):
        plot = forest(examples.report(of).result)
        assert plot is not None
        assert draw(plot, Picture.SVG)


def test_any_metric_of_the_runs_can_be_drawn() -> None:
    result = examples.usual().result
    plot, runs = forest(result, "read.clat.mean"), run_order(result, "read.clat.mean")
    assert plot is not None
    assert runs is not None
    (panel,) = plot.panels
    assert panel.title == "exploratory: read.clat.mean of the worst job (lower is better)"
    assert [one.label for one in panel.marks] == [row.label for row in result.rows[:2]], "nothing is said of them"
    assert [len(one.dots) for one in runs.panels] == [12, 12, 6]
    assert forest(result, "read.iops") == forest(result)
    assert forest(result, "trim.iops") is None


def test_runs_are_in_the_order_of_measuring() -> None:
    plot = run_order(examples.usual().result)
    assert plot is not None
    assert [len(panel.dots) for panel in plot.panels] == [12, 12, 6]
    assert plot.panels[0].dots[:2] == (Dot(1, 0, 1, 412.0), Dot(2, 1, 1, 491.0))


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ((1405.0, 1417.0), "1,412.5, written as 1,412"),
        ((4.2, 4.9), "several ticks that are written as 4"),
        ((0.5, 3e5), ""),
    ],
)
def test_ticks_say_where_they_stand(values: tuple[float, float], wrong: str) -> None:
    plot = run_order(examples.report(examples.measured({"v6.10": values, "v6.11": values})).result)
    assert plot is not None
    figure = runs_figure(plot)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    formatted = [(axes.yaxis.get_major_formatter()(tick), tick) for tick in axes.get_yticks()]
    assert all(float(text.replace(",", "")) == pytest.approx(tick) for text, tick in formatted), wrong


@pytest.mark.parametrize("name", ["usual", "with_placebo", "of_few_blocks", "unclear"])
def test_pictures_are_drawn_and_equal_ones_are_equal_files(name: str) -> None:
    result = getattr(examples, name)().result
    for plot in (forest(result), run_order(result)):
        assert plot is not None
        svg = draw(plot, Picture.SVG)
        assert svg == draw(plot, Picture.SVG)
        assert b"v6.11" in svg


def test_picture_of_one_block_and_of_a_huge_ratio() -> None:
    huge = {"v6.10": (1.0,), "v6.11": (5000.0,)}
    plot = forest(examples.report(examples.measured(huge)).result)
    assert plot is not None
    assert plot.panels[0].marks[0].low is None
    assert draw(plot, Picture.PNG)


def test_ticks_of_ratios_are_round_and_apart() -> None:
    assert ratio_ticks(0.06) == pytest.approx([0.95, 0.98, 1.0, 1.02, 1.05])
    assert ratio_ticks(3.0) == pytest.approx([0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20])
    assert list(map(tick_text, (0.5, 0.95, 1.0, 1.2, 20.0))) == ["1/2", "-5 %", "1", "+20 %", "20x"]
    assert ratio_ticks(0.0001) == [1.0]


def test_verdict_of_what_is_absent() -> None:
    (change,) = examples.usual().result.rows[2].changes
    assert (word(change, 0.05), remark(change, 0.05)) == ("n/a", "v6.10: needs CONFIG_DM_WRITECACHE")


def test_a_percentile_of_few_ios_is_told_of() -> None:
    def few(one: Trial) -> Trial:
        runs = (replace(run, jobs=tuple(replace(job, total_ios=312) for job in run.jobs)) for run in one.runs)
        return replace(one, runs=tuple(runs))

    usual = replace(examples.measured(examples.FASTER), objective=Objective("read.clat.p99"))
    assert examples.report(usual).result.thin == ()
    blocks = (
        replace(block, trials={arm: (n, few(one)) for arm, (n, one) in block.trials.items()}) for block in usual.blocks
    )
    made = examples.report(replace(usual, blocks=tuple(blocks)))
    said = " ".join(examples.RENDERERS["txt"](page(made)).split())
    assert "Too few I/Os on lvmcache(ssd,hdd)+ext4: read.clat.p99 of 312 I/Os of job " in said
    assert "10 take 1,000 I/Os." in said
