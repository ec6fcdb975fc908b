"""The page in headless Chromium: it sorts, opens, fits a phone, loads nothing, and axe finds no fault with it.

What a browser cannot be asked is in tests/report/test_html.py.
"""

import importlib.resources
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from bisector.report import comparison, comparison_plots, plots, sections
from bisector.report.blocks import Role
from bisector.report.comparison import ComparisonReport
from bisector.report.document import Report
from bisector.report.drawing import following
from bisector.report.page import Detail, html
from bisector.report.plots import CurvesPlot
from bisector.status.view import OptionChange
from tests.examples import cell
from tests.report import comparison_examples, documents, examples
from tests.report.curve_examples import both_sides

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE, DESK = (360, 740), (1280, 900)
LEAST_POINTS = 7  # the letters of a legend
# Of what is shown; a table is wider than a desk's window only where it has to be.
EDGES = """return [...document.querySelectorAll(arguments[0])].filter(one => one.checkVisibility()).map(one => {
    const box = one.getBoundingClientRect(); return [box.left, box.right]; })"""
SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options, Service("/usr/bin/chromedriver")) as driver:
        yield driver


def report() -> Report:
    """Found, with a skip, a subject that is a script, and a row whose figures a text order would put last."""
    made = documents.found()
    skipped = replace(made.rows[1], shown=replace(examples.SKIPPED, n=6), place=4)
    hostile = replace(examples.COMMITS[3], subject=SCRIPT)
    rows = tuple(
        replace(row, shown=replace(row.shown, trial=replace(row.shown.trial, cell=cell(hostile))))
        if row.shown.n == 4 else row for row in made.rows
    )  # fmt: skip
    return replace(made, rows=(*rows, skipped))


def page() -> str:
    made = report()
    drawn, by_commit = CurvesPlot("t", both_sides()[1:], line=1363.0), plots.commits(made)
    assert by_commit is not None
    wide = tuple(f"[    0.{n:06}] {'a very long line of a console ' * 8}{SCRIPT}" for n in range(60))
    options = (OptionChange("CONFIG_HZ", "250", "1000"),)
    details = {str(row.n): Detail(row.n, True, wide, wide, examples.COMMITS[0], options) for row in made.rows}
    pictures = {f"Plot: {plot.title}": following(plot) for plot in (drawn, by_commit)}
    return html(sections.page(made), pictures, details, Role.BETTER, made.answer)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(), encoding="utf-8")
    return path


def look(browser: webdriver.Chrome, file: Path, size: tuple[int, int] = DESK, scheme: str = "light") -> None:
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(file.as_uri())


def column(browser: webdriver.Chrome, title: str) -> list[str]:
    heads = [head.text.split("\n")[0] for head in browser.find_elements(By.CSS_SELECTOR, "thead th")]
    place = heads.index(title) + 1
    cells = browser.find_elements(By.CSS_SELECTOR, f"tr.trial > :nth-child({place})")
    return [cell.text for cell in cells]


def logged(browser: webdriver.Chrome, kind: str) -> list[str]:
    """What was logged since the last look."""
    return [str(entry["message"]) for entry in browser.get_log(kind)]  # type: ignore[no-untyped-call] # selenium's own


def head(browser: webdriver.Chrome, title: str) -> tuple[str | None, str]:
    (one,) = [h for h in browser.find_elements(By.CSS_SELECTOR, "thead th") if h.text == title]
    return one.get_attribute("aria-sort"), one.get_attribute("scope") or ""


def press(browser: webdriver.Chrome, title: str) -> None:
    (button,) = [b for b in browser.find_elements(By.CSS_SELECTOR, "thead button") if b.text == title]
    button.send_keys(Keys.ENTER)


def open_all(browser: webdriver.Chrome) -> None:
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")


def test_sorts_by_the_slowest_job_and_takes_the_details_along(browser: webdriver.Chrome, file: Path) -> None:
    look(browser, file)
    assert column(browser, "n") == ["1", "3", "4", "5", "2", "6"]
    assert head(browser, "IOPS full min/max") == ("none", "col")
    press(browser, "IOPS full min/max")
    assert head(browser, "IOPS full min/max") == ("ascending", "col")
    assert column(browser, "n") == ["1", "3", "2", "4", "5", "6"]
    press(browser, "IOPS full min/max")
    assert head(browser, "IOPS full min/max") == ("descending", "col")
    assert column(browser, "n") == [
        "5",
        "4",
        "2",
        "1",
        "3",
        "6",
    ]  # what has no figure stays last
    press(browser, "verdict")
    assert (head(browser, "verdict")[0], head(browser, "IOPS full min/max")[0]) == ("ascending", "none")
    assert column(browser, "verdict") == ["broken"] * 2 + ["fixed"] * 3 + ["skip"]
    summaries = [summary.text.split(":")[0] for summary in browser.find_elements(By.CSS_SELECTOR, "tbody summary")]
    assert summaries == [f"Trial {n}" for n in column(browser, "n")]


def test_row_opens_what_is_behind_it(browser: webdriver.Chrome, file: Path) -> None:
    look(browser, file)
    (details, *_) = browser.find_elements(By.CSS_SELECTOR, "tbody details")
    assert not details.find_element(By.TAG_NAME, "pre").is_displayed()
    browser.find_element(By.CSS_SELECTOR, "tr.trial td.verdict").click()
    assert details.find_element(By.TAG_NAME, "pre").is_displayed()
    assert "CONFIG_HZ: 250 -> 1000" in details.text
    assert "a very long line of a console" in details.text
    details.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert not details.find_element(By.TAG_NAME, "pre").is_displayed()


@pytest.mark.parametrize("size", [PHONE, DESK])
def test_page_never_scrolls_sideways(browser: webdriver.Chrome, file: Path, size: tuple[int, int]) -> None:
    look(browser, file, size)
    for opened in (False, True):
        if opened:
            open_all(browser)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    boxes = "details pre, .picture, tr.trial th, tr.trial td, dd, nav li"
    edges = browser.execute_script(EDGES, boxes)
    assert len(edges) > 50
    assert all(left >= 0 and right <= size[0] for left, right in edges)
    hashes = browser.execute_script(
        "return [...document.querySelectorAll('th code')].map(h => h.getClientRects().length)"
    )
    assert set(hashes) == {1}, "none is broken in two"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK])
def test_axe_finds_nothing(browser: webdriver.Chrome, file: Path, size: tuple[int, int], scheme: str) -> None:
    look(browser, file, size, scheme)
    open_all(browser)
    assert {"color-contrast", "scrollable-region-focusable"} <= passed(browser)


def passed(browser: webdriver.Chrome) -> set[str]:
    """The rules of axe that the page keeps; it breaks none."""
    browser.execute_script((importlib.resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script("axe.run().then(arguments[0])")
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found["violations"]] == []
    assert len(found["passes"]) > 20
    return {one["id"] for one in found["passes"]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK])
@pytest.mark.parametrize("example", [comparison_examples.usual, comparison_examples.matrix])
def test_page_of_a_comparison_is_as_accessible(
    browser: webdriver.Chrome,
    tmp_path: Path,
    example: Callable[[], ComparisonReport],
    size: tuple[int, int],
    scheme: str,
) -> None:
    """Two kernels, and three, whose rows have groups: what names a group stays in sight on a phone."""
    made = example()
    plots = comparison_plots.plots_of(made.result).values()
    shown = {f"Plot: {plot.title}": following(plot) for plot in plots}
    path = tmp_path / "comparison.html"
    path.write_text(html(comparison.page(made), shown), encoding="utf-8")
    look(browser, path, size, scheme)
    assert passed(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    named = browser.find_elements(By.CSS_SELECTOR, "caption div, tr.group div")
    assert {one.text for one in named} >= {"read.iops of the worst job (higher is better)"}
    assert all(one.rect["x"] >= 0 and one.rect["x"] + one.rect["width"] <= size[0] for one in named)
    if size == PHONE:  # a card for each kernel, whose name and figures are within the edges
        edges = browser.execute_script(EDGES, ".scroll th, .scroll td")
        assert len(edges) > 20
        assert all(left >= 0 and right <= size[0] for left, right in edges)
        titles = """return [...document.querySelectorAll(".result td[data-title]")].map(one =>
            getComputedStyle(one, "::before").content)"""
        assert {'"change"', '"95 % interval"'} < set(browser.execute_script(titles))
    (region, *_) = browser.find_elements(By.CSS_SELECTOR, ".scroll")
    region.send_keys(Keys.END)
    assert region == browser.switch_to.active_element, "the keyboard reaches what is beyond the edge"


def test_schemes_differ(browser: webdriver.Chrome, file: Path) -> None:
    backs = []
    for scheme in ("light", "dark"):
        look(browser, file, DESK, scheme)
        backs.append(browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color"))
    assert backs == ["rgba(255, 255, 255, 1)", "rgba(22, 22, 22, 1)"]


def test_whole_without_scripts(browser: webdriver.Chrome, file: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        look(browser, file)
        assert browser.find_elements(By.CSS_SELECTOR, "thead button") == []
        assert [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tr.trial td.verdict")][-1] == "skip"
        (summary, *_) = browser.find_elements(By.CSS_SELECTOR, "tbody summary")
        summary.click()
        (details, *_) = browser.find_elements(By.CSS_SELECTOR, "tbody details")
        assert details.find_element(By.TAG_NAME, "pre").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_pictures_fill_the_width_and_their_letters_can_be_read(browser: webdriver.Chrome, file: Path) -> None:
    """On a phone they are wider than it, and scroll in their box."""
    shown = "return [...document.images].map(one => [one.clientWidth, one.parentElement.clientWidth, one.naturalWidth])"
    look(browser, file)
    assert {wide == box for wide, box, _ in browser.execute_script(shown)} == {True}
    look(browser, file, PHONE)
    for wide, box, natural in browser.execute_script(shown):
        assert box < PHONE[0] < wide
        assert LEAST_POINTS / 0.75 * wide / natural >= 9, "pixels"


def test_pictures_follow_the_scheme(browser: webdriver.Chrome, file: Path) -> None:
    for scheme, is_light in (("light", True), ("dark", False)):
        look(browser, file, DESK, scheme)
        picture = browser.find_element(By.CSS_SELECTOR, ".picture img").screenshot_as_png
        usual = np.median(imread(io.BytesIO(picture))[..., :3])
        assert (usual > 0.9) if is_light else (usual < 0.2)


def test_every_expander_has_something_in_it(browser: webdriver.Chrome, file: Path) -> None:
    look(browser, file)
    inside = """return [...document.querySelectorAll("details")].map(one =>
        one.textContent.trim().length - one.querySelector("summary").textContent.trim().length)"""
    found = browser.execute_script(inside)
    assert len(found) == 7  # six rows and the patch
    assert min(found) > 20


def test_nothing_is_asked_of_a_network_and_nothing_foreign_runs(browser: webdriver.Chrome, file: Path) -> None:
    look(browser, file)
    logged(browser, "performance")
    logged(browser, "browser")
    look(browser, file)
    open_all(browser)
    asked = [
        message.split('"url":"')[1].split('"')[0][:30]
        for message in logged(browser, "performance")
        if "Network.requestWillBeSent" in message and '"url":"' in message
    ]
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}
    assert any(url.startswith("file:") for url in asked)
    assert browser.execute_script("return window.hacked") is None
    assert logged(browser, "browser") == []


def test_a_script_that_got_in_would_not_run(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """The second door: were the escaping broken, the page's own policy would stop it."""
    broken = tmp_path / "broken.html"
    broken.write_text(page().replace("</main>", f"{SCRIPT}</main>"), encoding="utf-8")
    look(browser, broken)
    assert browser.execute_script("return window.hacked") is None
    assert any("Content Security Policy" in message for message in logged(browser, "browser"))
