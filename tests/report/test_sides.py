"""Colours by which side is better, whichever of the two is the new one: on a terminal, on the page, in the plots."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bisector.core.events import TrialJudged
from bisector.core.verdict import Verdict
from bisector.report import drawing, plots
from bisector.report.blocks import verdict_role
from bisector.report.display import CourseSoFar, live_lines, report_lines
from bisector.report.document import Report
from bisector.report.drawing import Plot
from bisector.report.page import Detail, html
from bisector.report.plots import CurvesPlot
from bisector.report.sections import page
from bisector.report.terminal import on_stream
from tests.report import documents
from tests.report.curve_examples import both_sides
from tests.report.test_display import Terminal

CASES = [
    pytest.param(documents.regression, "fast", "slow", id="regression"),
    pytest.param(documents.found, "fixed", "broken", id="improvement"),
]
GREEN, RED = "32", "31"
BLUE, ORANGE = "#0072B2", "#D55E00"
Made = Callable[[], Report]


@pytest.mark.parametrize(("made", "better", "worse"), CASES)
def test_on_a_terminal_and_on_the_page(made: Made, better: str, worse: str) -> None:
    report = made()
    view = report.bisection
    table = on_stream(report_lines(view, 120), Terminal())
    going = CourseSoFar()
    for one in view.trials:
        told = TrialJudged(one.n, one.trial, one.verdict, one.why, view.terms, direction=view.direction)
        going = going.after(told, 0.0)
    live = on_stream(live_lines(going, 1.0, datetime(2026, 3, 1, tzinfo=UTC), 120, 30), Terminal())
    answer = next(line for line in table.splitlines() if "is the first" in line)
    assert f"\x1b[{GREEN if view.terms.new == better else RED}m" in answer
    for text in (table, live):
        assert re.search(rf"\x1b\[{GREEN}m{better} *\x1b", text)
        assert re.search(rf"\x1b\[{RED}m{worse} *\x1b", text)
        assert not re.search(rf"\x1b\[{RED}m{better}|\x1b\[{GREEN}m{worse}", text)
    whole = html(page(report), details={str(row.n): Detail(row.n) for row in report.rows})
    bodies = re.findall(r'<tbody class="(\w+)">.*?<td class="verdict[^"]*"[^>]*>(\w+)</td>', whole, re.DOTALL)
    assert set(bodies) == {("better", better), ("worse", worse)}


def inks(plot: Plot) -> dict[str, tuple[str, str]]:
    """Colour and marker of each entry of a plot's legend."""
    with drawing.styled():
        lines = [line for axes in plot.figure().axes for line in axes.get_lines()]
    return {str(line.get_label()): (str(line.get_color()), str(line.get_marker())) for line in lines}


@pytest.mark.parametrize(("made", "better", "worse"), CASES)
def test_in_the_plots(made: Made, better: str, worse: str) -> None:
    report = made()
    by_commit = plots.commits(report)
    direction, terms = report.bisection.direction, report.bisection.terms
    kernels = tuple(
        replace(one, name=terms.word(verdict), role=verdict_role(verdict, direction))
        for one, verdict in zip(both_sides(), (Verdict.OLD, Verdict.NEW), strict=True)
    )
    assert by_commit is not None
    for found, suffix in ((inks(by_commit), ""), (inks(CurvesPlot("t", kernels)), ", job 1")):
        assert found[f"{better}{suffix}"] == (BLUE, "^")
        assert found[f"{worse}{suffix}"] == (ORANGE, "v")
