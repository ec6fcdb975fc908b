"""What matplotlib makes of the plots: whole files, the same each time, told apart without colours."""

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree as ET

import pytest
from matplotlib.lines import Line2D

from bisector.core.metric import Unit
from bisector.core.objective import Objective
from bisector.report import drawing, plots
from bisector.report.drawing import Picture, Plot, draw, following
from bisector.report.plots import CurvesPlot, TracedKernel
from tests.examples import baseline
from tests.report import documents, examples
from tests.report.curve_examples import STOP, both_sides, steady


@cache
def over_time() -> CurvesPlot:
    disks = (baseline("ssd", 17_000.0, 16_000.0), baseline("hdd", 90.0, 110.0))
    kernels = (*both_sides(), TracedKernel("cccccccccccc (weak)", (steady(700.0, 800.0, stop=STOP),)))
    return CurvesPlot("$x^{2}$ and a_b", kernels, Objective(), 1363.0, disks)


@cache
def by_commit() -> Plot:
    made = plots.commits(documents.found())
    assert made is not None
    return made


@cache
def svg_of(made: Callable[[], Plot]) -> bytes:
    return draw(made(), Picture.SVG)


PLOTS = [
    pytest.param(over_time, ("threshold", "read IOPS", "(s)", "10,000", "SSD alone", "stopped early"), id="curves"),
    pytest.param(
        by_commit,
        ("threshold", "read.iops of the worst job, IOPS", "commit", "the step", "level of 2 whole runs", "HDD alone"),
        id="commits",
    ),
]


@pytest.mark.parametrize(("made", "said"), PLOTS)
def test_svg_is_whole_and_says_what_its_axes_are(made: Callable[[], Plot], said: tuple[str, ...]) -> None:
    plot = made()
    svg = svg_of(made)
    words = "".join(ET.fromstring(svg).itertext())
    assert plot.title in words  # as it is, never as a formula
    assert all(word in words for word in said), words
    assert b"http://" not in svg.replace(b"http://www.w3.org/", b"")


@pytest.mark.parametrize(("made", "said"), PLOTS)
def test_a_picture_of_the_page_follows_the_scheme(made: Callable[[], Plot], said: tuple[str, ...]) -> None:
    """Without a background; every colour that it has on paper has one in the dark."""
    svg = following(made()).decode()
    style, ended, drawn = svg.partition("</style>")
    assert ended
    assert "@media (prefers-color-scheme:dark)" in style
    assert 'id="patch_1"' not in drawn or "fill: #ffffff" not in drawn.partition('id="patch_1"')[2][:400]
    used = set(re.findall(r"(?:fill|stroke)(?:: |=\")(#\w{6})", drawn))
    assert used
    assert {colour for colour in used if f"fill: {colour}" not in style} == set()
    assert ET.fromstring(svg).get("width") == "720pt"


def test_png_of_a_single_trial() -> None:
    made = plots.commits(documents.document(examples.view(examples.BROKEN)))
    assert made is not None
    png = draw(made, Picture.PNG)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    assert width > height > 300


def _dashes(line: Line2D) -> object:
    """The dashes as they were asked for; get_linestyle() calls all of them alike."""
    return line._unscaled_dash_pattern  # type: ignore[attr-defined] # matplotlib tells it nowhere else


def test_curves_marks_and_bands_differ_in_more_than_colour() -> None:
    with drawing.styled():
        figure = over_time().figure()
        full = figure.axes[1]
        named = [line for line in full.get_lines() if not str(line.get_label()).startswith("_")]
        looks = {(str(line.get_linestyle()), _dashes(line), line.get_marker()) for line in named}
    assert len(named) == len(looks) == 8  # three kernels of two jobs, the threshold, an early stop
    markers = [ink.marker for ink in drawing.SIDES.values()]
    assert len(set(markers)) == len(markers)
    assert len(set(plots.FILLS.values())) == 3
    assert len(set(drawing.HATCHES)) == 2


def test_axes_of_a_latency_are_in_its_unit() -> None:
    """Its metric stands beside the axis, its unit at each tick and at the threshold."""
    made = documents.found()
    rows = tuple(replace(one, shown=replace(one.shown, value=1e6 * (one.shown.value or 0))) for one in made.rows)
    view = replace(made.bisection, objective=Objective("read.clat.p99"), threshold=2e6, baselines=())
    plot = plots.commits(replace(made, rows=rows, bisection=view))
    assert plot is not None
    words = set("\n".join(ET.fromstring(draw(plot, Picture.SVG)).itertext()).split("\n"))
    assert {"read.clat.p99 of the worst job", "threshold 2.00 ms"} <= words
    assert [word for word in words if word.endswith(" s")], words
    assert not [word for word in words if "IOPS" in word]


def test_a_persons_style_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib  # noqa: PLC0415 - as in the module

    before = svg_of(by_commit)
    monkeypatch.setitem(matplotlib.rcParams, "axes.linewidth", 9.0)
    assert draw(by_commit(), Picture.SVG) == before
    assert matplotlib.rcParams["axes.linewidth"] == 9.0


@pytest.mark.parametrize("value", [3000.0, 0.0])
def test_a_steady_curve_does_not_lie_on_the_frame(value: float) -> None:
    axes = drawing.empty(2.0).add_subplot()
    axes.plot([0, 1, 2], [value, 0.999 * value, value])
    drawing.scale(axes, Unit.IOPS, logarithmic=False)
    bottom, top = axes.get_ylim()
    assert bottom == 0
    assert top >= 1.05 * value
    assert top > 0
