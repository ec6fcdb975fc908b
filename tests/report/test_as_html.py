"""The page by what is in it, its sketches by value; a browser looks at it in tests/browser."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.core.verdict import Terms, Verdict
from bisector.git.shown import ShownCommit
from bisector.report import as_html
from bisector.report.as_html import HEIGHT, WIDTH, Detail, Shown, Sketch, Tick, sketches
from bisector.report.curves import Curves, Measured, curves
from bisector.report.document import Report
from bisector.status.view import OptionChange
from tests.examples import cell
from tests.report import documents, examples
from tests.report.curve_examples import STOP, both_sides, steady

_VOID = {"meta", "img", "br", "link", "input", "hr"}
HOSTILE = (
    """</pre></script><script>parent.hacked=1</script><img src=x onerror=hacked=1> "'{{ 7*7 }}{% raw %}&amp;\x1b[31m"""
)


class Page(HTMLParser):
    """Elements with their attributes, and that they are closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def details(report: Report, lines: tuple[str, ...] = ("one", "two")) -> list[Detail]:
    drawn = curves("t", both_sides()[1:], Objective(), 1363.0)
    options = (OptionChange("CONFIG_HZ", "250", "1000"),)
    return [Detail(row.shown.n, drawn, lines, lines, lines, examples.COMMITS[0], options) for row in report.rows]


def whole(report: Report) -> Page:
    return Page(as_html.render(report, details(report), [Shown(b"<svg/>", "a picture")]))


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_every_document_is_well_formed_with_and_without_details(name: str) -> None:
    """Without anything behind it a row has no expander; the patch of the answer is one more."""
    report = documents.DOCUMENTS[name]()
    patch = int(report.bisection.first_fixed is not None)
    empty = [Detail(row.shown.n) for row in report.rows]
    for known in ((), empty):
        assert len(Page(as_html.render(report, known)).all("details")) == patch
    assert len(whole(report).all("details")) == len(report.rows) + patch


def test_table_has_what_the_other_formats_have() -> None:
    page = whole(documents.found())
    assert [cell["scope"] for cell in page.all("th")] == ["col"] * 8 + ["row"] * 5
    assert len(page.all("tbody")) == 5
    assert [body["class"] for body in page.all("tbody")] == ["worse", "worse", "better", "better", "better"]
    assert "1,002 / 9,104" in page.text
    assert "Trial 4: curves, last log lines, console, .config (1 option changed)" in page.text
    assert "The patch: 1 file changed, 1 insertion(+), 1 deletion(-)" in page.text
    assert {"added", "removed", "place"} == {one["class"] for one in page.all("span")}
    assert "CONFIG_HZ: 250 -> 1000" in page.text
    assert "The effective .config differs from that of 0a5b3c7d9e1f" in page.text


def test_details_are_those_of_the_row() -> None:
    report = documents.found()
    html = as_html.render(report, [Detail(n, console=(f"console of {n}",)) for n in (5, 4, 3, 2, 1)])
    shown = re.findall(r"Trial (\d+): console<|console of (\d+)\n", html)
    assert [a or b for a, b in shown] == ["1", "1", "3", "3", "4", "4", "5", "5", "2", "2"]


def test_nothing_is_loaded_and_no_other_script_runs() -> None:
    report = documents.found()
    html = as_html.render(report, details(report), [Shown(b"<svg/>", "a picture")])
    page = Page(html)
    assert [image["src"] for image in page.all("img")] == ["data:image/svg+xml;base64,PHN2Zy8+"]
    loading = [
        (tag, name)
        for tag, attributes in page.found
        for name in attributes
        if name in {"src", "href", "srcset", "action", "data", "style"} or name.startswith("on")
    ]
    assert [one for one in loading if one != ("a", "href")] == [("img", "src")]
    links = [link["href"] or "" for link in page.all("a")]
    assert [link for link in links if not link.startswith("#")] == ["https://lore.example.org/r/1@example.com"]
    assert {link[1:] for link in links if link.startswith("#")} <= {str(one.get("id")) for _, one in page.found}
    assert page.all("link") == []
    assert not re.search(r"@import|url\(", html)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def _hostile() -> Page:
    whole_of = examples.found()
    commit = replace(examples.COMMITS[3], subject=HOSTILE, sha=HOSTILE, committed_at=HOSTILE)
    trials = tuple(
        replace(one, why=HOSTILE, trial=replace(one.trial, cell=cell(commit), host=HOSTILE)) for one in whole_of.trials
    )
    view = replace(whole_of, trials=trials, first_fixed=commit, terms=Terms(HOSTILE, HOSTILE), message=HOSTILE)
    made = documents.found()
    rows = tuple(replace(row, shown=shown) for row, shown in zip(made.rows, trials, strict=False))
    asked = replace(made.asked, old_rev=HOSTILE, command=HOSTILE)
    links = (("Link", "javascript:alert(1)"), ("Link", f"https://x.org/{HOSTILE}"), (HOSTILE, "https://[::1]/"))
    report = replace(
        made,
        bisection=view,
        rows=rows,
        asked=asked,
        bisect_log=HOSTILE,
        tool_version=HOSTILE,
        storage=(HOSTILE,),
        answer=ShownCommit(HOSTILE, HOSTILE, links, HOSTILE, (HOSTILE, f"+{HOSTILE}"), cut=True),
    )
    drawn = curves(HOSTILE, [Measured(HOSTILE, both_sides()[1].runs)], Objective(), 1.0)
    option = OptionChange(HOSTILE, HOSTILE, HOSTILE)
    detail = [Detail(row.shown.n, drawn, (HOSTILE,), (HOSTILE,), (HOSTILE,), commit, (option,)) for row in rows]
    return Page(as_html.render(report, detail, [Shown(HOSTILE.encode(), HOSTILE)]))


def test_hostile_text_stays_text() -> None:
    page = _hostile()
    assert len(page.all("script")) == 1
    assert len(page.all("img")) == 1
    assert not any(name.startswith("on") for _, attributes in page.found for name in attributes)
    assert "{{ 7*7 }}" in page.text
    assert "\x1b" not in page.text
    assert all((link["href"] or "").startswith("#") for link in page.all("a"))
    assert page.all("img")[0]["alt"] == clean(HOSTILE)


def test_identifiers_are_used_once() -> None:
    page = whole(documents.narrowed())
    identifiers = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers)
    assert {attributes["aria-labelledby"] for attributes in page.all("section")} == set(identifiers)


def test_verdicts_are_words_and_not_colours_alone() -> None:
    page = whole(documents.narrowed())
    for word in ("broken", "fixed", Verdict.SKIP.value):
        assert re.search(rf"\b{word}\b", page.text)


def test_a_picture_of_any_size_is_whole() -> None:
    svg = b"<svg>" + b"x" * 100_000 + b"</svg>"
    (image,) = Page(as_html.render(documents.found(), (), [Shown(svg, "Plot")])).all("img")
    assert base64.b64decode((image["src"] or "").partition(",")[2], validate=True) == svg


def plotted(*kernels: Measured, threshold: float | None = None) -> Curves:
    plot = curves("t", kernels, Objective(), threshold)
    assert plot is not None
    return plot


def coordinates(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]


def test_a_linear_sketch() -> None:
    """Two intervals of a second at 100 IOPS: the axis of IOPS goes to 115, that of time to 2 s."""
    (one,) = sketches(plotted(Measured("a", (steady(100.0, seconds=2),))))
    assert one.title == "full run"
    assert one.box == (52, 8, 392, 186)
    (stroke,) = one.strokes
    assert (stroke.job, stroke.points, stroke.smooth) == (1, "M137 31.2h0M307 31.2h0", "M137 31.2 307 31.2")
    assert one.x_ticks == (Tick(52, "0"), Tick(137, "0.5"), Tick(222, "1"), Tick(307, "1.5"), Tick(392, "2"))
    assert [tick.text for tick in one.y_ticks] == ["0", "20", "40", "60", "80", "100"]
    assert one.y_ticks[0].at == 186
    assert (one.threshold_at, one.stops_at) == (None, ())


def test_logarithmic_ticks_are_at_equal_ratios() -> None:
    (one,) = sketches(plotted(Measured("a", (steady(100.0, 10_000.0),))))
    at = {tick.text: tick.at for tick in one.y_ticks}
    assert list(at) == ["100", "200", "500", "1,000", "2,000", "5,000", "10,000"]
    assert at["100"] - at["1,000"] == pytest.approx(at["1,000"] - at["10,000"], abs=0.11)


def test_threshold_and_stop() -> None:
    (one,) = sketches(plotted(Measured("a", (steady(100.0, seconds=40, stop=STOP),)), threshold=50.0))
    assert one.threshold_at == one.y_ticks[0].at - round((one.y_ticks[0].at - 8) * 50 / 115, 1)
    assert one.stops_at == (round(52 + 340 * 20.25 / 40, 1),)


def test_threshold_above_every_curve_is_within_the_axes() -> None:
    (one,) = sketches(plotted(Measured("a", (steady(100.0),)), threshold=1000.0))
    assert one.threshold_at == round(186 - 178 / 1.15, 1)


def test_all_stays_within_the_axes() -> None:
    """A job that stands still, and a point far above the smooth curve, on either scale."""
    for plot in (plotted(*both_sides()), plotted(Measured("a", (steady(0.0, 5.0, 9_000.0),)))):
        odd = replace(plot.lines[0], rates=(0.0, 1e9, *plot.lines[0].rates[2:]))
        panel = replace(plot.rows[0][0], lines=(odd, *plot.rows[0][0].lines[1:]))
        for one in sketches(replace(plot, rows=((panel, *plot.rows[0][1:]), *plot.rows[1:]))):
            points = [
                xy for stroke in one.strokes for path in (stroke.points, stroke.smooth) for xy in coordinates(path)
            ]
            assert points
            assert all(52 <= x <= WIDTH - 8 and 8 <= y <= HEIGHT - 34 for x, y in points)


def test_points_of_a_sum_are_left_out() -> None:
    (one,) = sketches(plotted(Measured("a", (steady(100.0, 100.0),))))
    assert [bool(stroke.points) for stroke in one.strokes] == [True, True, False]
    assert isinstance(one, Sketch)


@pytest.mark.parametrize("seconds", [1, 7, 40, 60, 900, 3600])
def test_ticks_are_few_and_round(seconds: int) -> None:
    (one,) = sketches(plotted(Measured("a", (steady(100.0, seconds=seconds),))))
    assert 2 <= len(one.x_ticks) <= 7
    assert all(len(tick.text) <= 4 for tick in one.x_ticks)
