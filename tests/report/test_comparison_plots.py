"""The pictures of a comparison, by value and drawn."""

from dataclasses import replace

import pytest

from bisector.analysis.comparison import Scale
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.core.trial import Trial
from bisector.report.comparison import ComparisonReport
from bisector.report.comparison_plots import Forest, RunOrder, plots_of, ratio_ticks, rows_of, tick_text
from bisector.report.drawing import Picture, draw
from bisector.status.comparison import MeasuredSetup, SoundBlock
from tests.report import comparison_examples as examples


def forest(report: ComparisonReport, metric: str | None = None) -> Forest:
    return Forest(report.result, rows_of(report.result, metric))


def run_order(report: ComparisonReport, metric: str | None = None) -> RunOrder:
    return RunOrder(report.result, rows_of(report.result, metric))


def test_forest_has_a_panel_for_each_metric_and_ratios_alone() -> None:
    panels = forest(examples.of_few_blocks()).panels
    assert [title for title, *_ in panels] == [
        "read.iops of the worst job (higher is better)",
        "read.clat.mean of the worst job (lower is better)",
    ], "as the captions of the tables"
    (one,) = next(iter(panels.values()))
    assert one.ends is not None
    assert one.ends[0] < one.effect.estimate < one.ends[1]
    assert one.label == "lvmcache(ssd,hdd)+ext4: faster"


def test_runs_are_in_the_order_of_measuring_and_each_host_has_a_panel() -> None:
    panels = run_order(examples.usual()).panels
    assert [len(values) for *_, values in panels] == [12, 12, 6]
    assert [(one.n, one.arm, one.value) for one in panels[0][2][:2]] == [(1, "v6.10", 412.0), (2, "v6.11", 491.0)]
    of_hosts = run_order(examples.of_two_hosts()).panels
    assert [(title.partition(":")[0], len(values)) for title, _, values in of_hosts] == [
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
    plot = forest(made)
    assert plot.title == "v6.11: ratio to or difference from v6.10, with 95 % intervals"
    found = {scale: (title, marks) for (title, _, scale), marks in plot.panels.items()}
    assert found[Scale.RATIO][0] == found[Scale.DIFFERENCE][0] == "cache.dirty_blocks (lower is better)"
    (one,), (other,) = found[Scale.RATIO][1], found[Scale.DIFFERENCE][1]
    assert one.effect.estimate == pytest.approx(1.2, rel=0.01)
    assert (other.effect.estimate, other.effect.band(made.result.delta)) == (12.0, 0.0)
    assert other.ends == pytest.approx((12 - 4.9683, 12 + 4.9683), abs=1e-4)  # t of 2 freedoms: 4.3027


def test_the_axis_of_differences_is_linear_and_has_signs_and_units() -> None:
    figure = forest(examples.report(counted(0.0, 10.0, 14.0, 12.0))).figure()
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_xscale() == "linear"
    assert axes.get_xlabel() == "difference from v6.10"
    low, high = axes.get_xlim()
    assert low == -high < -16
    assert {"-16", "0", "+16"} <= {text.get_text() for text in axes.get_xticklabels()}
    assert figure.get_suptitle() == "v6.11: difference from v6.10, with 95 % intervals"


def test_any_metric_of_the_runs_can_be_drawn() -> None:
    made = examples.usual()
    (((title, *_), marks),) = forest(made, "read.clat.mean").panels.items()
    assert title == "exploratory: read.clat.mean of the worst job (lower is better)"
    assert [one.label for one in marks] == [row.label for row in made.result.rows[:2]], "nothing is said of them"
    assert forest(made, "read.iops").panels == forest(made).panels
    assert plots_of(made.result, "trim.iops") == {}


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ((1405.0, 1417.0), "1,412.5, written as 1,412"),
        ((4.2, 4.9), "several ticks that are written as 4"),
        ((0.5, 3e5), ""),
    ],
)
def test_ticks_say_where_they_stand(values: tuple[float, float], wrong: str) -> None:
    figure = run_order(examples.report(examples.measured({"v6.10": values, "v6.11": values}))).figure()
    figure.draw_without_rendering()
    axes = figure.axes[0]
    formatted = [(axes.yaxis.get_major_formatter()(tick), tick) for tick in axes.get_yticks()]
    assert all(float(text.replace(",", "")) == pytest.approx(tick) for text, tick in formatted), wrong


def test_pictures_are_drawn_and_equal_ones_are_equal_files() -> None:
    for plot in plots_of(examples.with_placebo().result).values():
        svg = draw(plot, Picture.SVG)
        assert svg == draw(plot, Picture.SVG)
        assert b"v6.11" in svg


@pytest.mark.parametrize(
    "setup",
    [
        pytest.param(counted(0.0, 0.0, 0.0), id="a difference of nothing"),
        pytest.param(counted(0.0, 3.0), id="a difference in one block"),
        pytest.param(examples.measured({"v6.10": (1.0,), "v6.11": (5000.0,)}), id="a huge ratio in one block"),
    ],
)
def test_odd_figures_can_be_drawn(setup: MeasuredSetup) -> None:
    assert draw(forest(examples.report(setup)), Picture.SVG)


def test_no_two_rows_of_a_panel_have_one_label() -> None:
    for marks in forest(examples.matrix()).panels.values():
        assert len({mark.label for mark in marks}) == len(marks)


def test_ticks_of_ratios_are_round_and_apart() -> None:
    assert ratio_ticks(0.06) == pytest.approx([0.95, 0.98, 1.0, 1.02, 1.05])
    assert ratio_ticks(0.00058) == pytest.approx([0.9995, 1.0, 1.0005]), "the band of counted time"
    assert ratio_ticks(3.0) == pytest.approx([0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20])
    assert list(map(tick_text, (0.5, 0.95, 1.0, 1.2, 20.0))) == ["1/2", "-5 %", "1", "+20 %", "20x"]
    assert ratio_ticks(0.0001) == [1.0]
