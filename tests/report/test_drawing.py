"""What matplotlib makes of the plots' values: whole files, the same each time, told apart without colours."""

import re
import struct
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.lines import Line2D

from bisector.core import resources
from bisector.core.metric import Unit
from bisector.core.objective import Objective
from bisector.report import curves, drawing, nights, search_plots
from bisector.report.curves import CurvePlot, TracedKernel
from bisector.report.drawing import Picture, Plot, draw, following
from bisector.report.nights import NightChange, NightMark, NightPanel, Nights, NightSeen, Stretch
from bisector.report.search_plots import Commits
from tests.examples import baseline
from tests.report import documents, examples
from tests.report.curve_examples import STOP, both_sides, steady


def over_time() -> CurvePlot:
    disks = [baseline("ssd", 17_000.0, 16_000.0), baseline("hdd", 90.0, 110.0)]
    kernels = (*both_sides(), TracedKernel("cccccccccccc (weak)", (steady(700.0, 800.0, stop=STOP),)))
    made = curves.curves("$x^{2}$ and a_b", kernels, Objective(), 1363.0, disks)
    assert made is not None
    return made


def by_commit() -> Commits:
    made = search_plots.commits(documents.found())
    assert made is not None
    return made


def by_night() -> Nights:
    at = [datetime(2026, 11, day, 1, 30, tzinfo=UTC) for day in range(1, len(NightSeen) + 2)]
    marks = [
        NightMark(day, seen, 1000.0 if n < 5 else None)
        for n, (day, seen) in enumerate(zip(at, NightSeen, strict=False))
    ]
    whole = Stretch(at[0], at[-1], 500.0, 2000.0)
    line = replace(whole, high=500.0)
    changes = (NightChange(at[2], "from 0123456789ab on", ""), NightChange(at[3], "", "4,000 to 1,000, p = 0.001"))
    lines = (tuple((day, 1000.0) for day in at[:3]),)
    panel = NightPanel("a_b: $x^{2}$", Objective(), tuple(marks), lines, (line,), (whole,), (line,), changes, (at[4],))
    return Nights("night $x$ by night", (panel, replace(panel, title="another", changes=changes[:1])))


PLOTS = [
    pytest.param(over_time(), id="curves"),
    pytest.param(by_commit(), id="commits"),
    pytest.param(by_night(), id="nights"),
]


_SAID: dict[type, tuple[str, ...]] = {
    CurvePlot: ("threshold", "read IOPS", "(s)", "10,000", "SSD alone", "stopped early"),
    Commits: (
        "threshold",
        "read.iops of the worst job, IOPS",
        "commit",
        "the step",
        "level of 2 whole runs",
        "HDD alone",
    ),
    Nights: (
        "threshold 500 IOPS",
        "read.iops of the worst job, IOPS",
        "(UTC)",
        "Nov",
        "1: 2026-11-03, from 0123456789ab on",
        "2: 2026-11-04, 4,000 to",
        "3: ",
    ),
}


@pytest.mark.parametrize("plot", PLOTS)
def test_svg_is_whole_and_says_what_its_axes_are(plot: Plot) -> None:
    svg = draw(plot, Picture.SVG)
    words = "".join(ET.fromstring(svg).itertext())
    assert plot.title in words  # as it is, never as a formula
    assert all(word in words for word in _SAID[type(plot)]), words
    assert b"http://" not in svg.replace(b"http://www.w3.org/", b"")


@pytest.mark.parametrize("plot", PLOTS)
def test_a_picture_of_the_page_follows_the_scheme(plot: Plot) -> None:
    """Without a background; every colour that it has on paper has one in the dark."""
    svg = following(plot).decode()
    style, ended, drawn = svg.partition("</style>")
    assert ended
    assert "@media (prefers-color-scheme:dark)" in style
    assert 'id="patch_1"' not in drawn or "fill: #ffffff" not in drawn.partition('id="patch_1"')[2][:400]
    used = set(re.findall(r"(?:fill|stroke)(?:: |=\")(#\w{6})", drawn))
    assert used
    assert {colour for colour in used if f"fill: {colour}" not in style} == set()
    assert ET.fromstring(svg).get("width") == "720pt"


def test_the_answer_is_named_at_its_step() -> None:
    plot = by_commit()
    assert plot.step is not None
    words = list(ET.fromstring(draw(plot, Picture.SVG)).itertext())
    assert "first fixed: 3a5b3c7d9e1f" in words
    many = replace(plot, names=tuple(f"{n}: {n:012x}" for n in range(500)), step=333)
    words = [word.strip() for word in ET.fromstring(draw(many, Picture.SVG)).itertext()]
    assert {"first fixed: 00000000014d", "333: 00000000014d"} <= set(words)
    assert sum(": 0000" in word for word in words) < 80


def test_png() -> None:
    png = draw(by_commit(), Picture.PNG)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    assert width > height > 300


def _dashes(line: Line2D) -> object:
    """The dashes as they were asked for; get_linestyle() calls all of them alike."""
    return line._unscaled_dash_pattern  # type: ignore[attr-defined] # matplotlib tells it nowhere else


def test_curves_differ_in_more_than_colour() -> None:
    with drawing.styled():
        figure = over_time().figure()
        full = figure.axes[1]
        named = [line for line in full.get_lines() if not str(line.get_label()).startswith("_")]
        looks = {(str(line.get_linestyle()), _dashes(line), line.get_marker()) for line in named}
    assert len(named) == len(looks) == 8  # three kernels of two jobs, the threshold, an early stop


def test_marks_and_bands_differ_in_more_than_colour() -> None:
    markers = [ink.marker for ink in drawing.SIDES.values()]
    assert len(set(markers)) == len(markers)
    assert len(set(search_plots.FILLS.values())) == 3
    assert len(set(drawing.HATCHES)) == 2


def test_nights_differ_in_more_than_colour() -> None:
    looks = [(ink.marker, ink.filled) for ink in nights._INKS.values()]
    assert len(set(looks)) == len(looks) == len(NightSeen)
    with drawing.styled():
        figure = by_night().figure()
    (words,) = figure.legends
    assert {str(seen) for seen in NightSeen} < {text.get_text() for text in words.get_texts()}


def test_axes_of_a_latency_are_in_its_unit() -> None:
    """Its metric stands beside the axis, its unit at each tick and at the threshold."""
    latency = Objective("read.clat.p99")
    whole = by_night()
    marks = tuple(
        replace(mark, value=None if mark.value is None else 1e6 * mark.value) for mark in whole.panels[0].marks
    )
    line = replace(whole.panels[0].thresholds[0], low=2e6, high=2e6)
    panel = replace(whole.panels[0], objective=latency, marks=marks, thresholds=(line,))
    step = by_commit()
    values = tuple(replace(mark, value=mark.value and 1e6 * mark.value) for mark in step.marks)
    by_latency = replace(step, objective=latency, marks=values, levels=(), bands=(), threshold=2e6)
    for plot in (replace(whole, panels=(panel,)), by_latency):
        words = set("\n".join(ET.fromstring(draw(plot, Picture.SVG)).itertext()).split("\n"))
        assert {"read.clat.p99 of the worst job", "threshold 2.00 ms"} <= words
        assert [word for word in words if word.endswith(" s")], words
        assert not [word for word in words if "IOPS" in word]


def test_a_persons_style_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib  # noqa: PLC0415 - as in the module

    before = draw(by_commit(), Picture.SVG)
    monkeypatch.setitem(matplotlib.rcParams, "axes.linewidth", 9.0)
    assert draw(by_commit(), Picture.SVG) == before
    assert matplotlib.rcParams["axes.linewidth"] == 9.0


def test_the_step_is_drawn_directly_before_the_answer() -> None:
    plot = by_commit()
    assert plot.step == 2
    with drawing.styled():
        (axes,) = plot.figure().axes
        (line,) = (line for line in axes.get_lines() if line.get_label() == "the step")
    assert np.asarray(line.get_xdata()).tolist() == [1.5, 1.5]


def test_commits_of_a_single_trial() -> None:
    made = search_plots.commits(documents.document(examples.view(examples.BROKEN)))
    assert made is not None
    assert draw(made, Picture.PNG)


def test_other_commands_do_not_load_it() -> None:
    loaded = "import sys, bisector.cli; print(sorted({'matplotlib', 'jinja2'} & set(sys.modules)))"
    said = subprocess.run(
        [sys.executable, "-c", loaded], cwd=resources.ROOT, capture_output=True, text=True, check=True
    )
    assert said.stdout == "[]\n"


@pytest.mark.parametrize("value", [3000.0, 0.0])
def test_a_steady_curve_does_not_lie_on_the_frame(value: float) -> None:
    axes = drawing.empty(2.0).add_subplot()
    axes.plot([0, 1, 2], [value, 0.999 * value, value])
    drawing.scale(axes, Unit.IOPS, logarithmic=False)
    bottom, top = axes.get_ylim()
    assert bottom == 0
    assert top >= 1.05 * value
    assert top > 0
