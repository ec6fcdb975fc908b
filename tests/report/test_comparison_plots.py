"""The pictures of a comparison, by value and drawn."""

from dataclasses import replace

import pytest

from bisector.analysis.comparison import Scale
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.core.trial import Trial
from bisector.report.comparison import page
from bisector.report.comparison_plots import Dot, forest, forest_figure, ratio_ticks, run_order, runs_figure, tick_text
from bisector.report.drawing import Picture, draw
from bisector.status.comparison import MeasuredSetup, SoundBlock
from tests.report import comparison_examples as examples


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


def test_runs_of_each_host_have_a_panel_of_their_own() -> None:
    plot = run_order(examples.of_two_hosts().result)
    assert plot is not None
    assert [(panel.title.partition(":")[0], len(panel.dots)) for panel in plot.panels] == [
        ("lvmcache(ssd,hdd)+ext4 on bench1", 8), ("lvmcache(ssd,hdd)+ext4 on bench2", 4)
    ]  # fmt: skip


def counted(first: float, *others: float, stack: Setup = examples.LVMCACHE) -> MeasuredSetup:
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
    assert plot.title == "v6.11: ratio to or difference from v6.10, with 95 % intervals"
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
    assert figure.get_suptitle() == "v6.11: difference from v6.10, with 95 % intervals"


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


def test_no_two_rows_of_a_panel_have_one_label() -> None:
    plot = forest(examples.matrix().result)
    assert plot is not None
    for panel in plot.panels:
        assert len({mark.label for mark in panel.marks}) == len(panel.marks)


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
