"""A document as one HTML file that loads nothing: tables, what is behind each trial of a bisection, and pictures.

The template and its style and script are the files ``page.*`` beside this one. jinja2 escapes whatever comes from
commits, kernels and guests; the page's own policy lets no other script run, should that ever fail.

The curves behind a row are paths of a small SVG: matplotlib takes 0.1 s and 100 kB for such a picture, and forty
of them would be neither quick nor small.
"""

import base64
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal, NamedTuple

from bisector.analysis.comparison import Outcome
from bisector.core import units
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.verdict import Verdict
from bisector.git.shown import ShownCommit
from bisector.report import sections
from bisector.report.curves import TOGETHER, Curves, Line, Panel
from bisector.report.document import Block, Column, Facts, Listing, Page, Paragraph, Report, Row, Table
from bisector.report.terminal import Role, verdict_role
from bisector.status.view import OptionChange

if TYPE_CHECKING:
    from jinja2 import Environment

# What the words of a comparison are shown as.
_ROLES = {Outcome.FASTER: Role.BETTER, Outcome.SLOWER: Role.WORSE}
_PATCHED = {"+": "added", "-": "removed", "@": "place"}
# What may be opened by a click; whatever else a commit calls a link stays text.
_ADDRESS = re.compile(r"https?://[\w.-]+(?::\d+)?(?:/[\w./~%@:?&=#+,;()!$*'-]*)?", re.ASCII)
_LINES = {0: "dash-dotted: all jobs together", 1: "solid: job 1", 2: "dashed: job 2", 3: "dotted: job 3"}
# Of a sketch, in the units of its SVG, from the top left.
WIDTH, HEIGHT = 400, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 8, 34
_STEPS = (1, 2, 5)
_TICKS = 6


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture, and what it shows for those who do not see it."""

    svg: bytes
    alt: str


@dataclass(frozen=True, slots=True)
class Detail:
    """Of trial ``n``; whatever is not on record is empty.

    ``fault`` are the log lines that matter to a fault, ``console`` the guest's last ones, ``options`` what differs in
    the effective .config since that of ``against``; ``complaints`` name the files that could not be used.
    """

    n: int
    curves: Curves | None = None
    complaints: tuple[str, ...] = ()
    fault: tuple[str, ...] = ()
    console: tuple[str, ...] = ()
    against: Commit | None = None
    options: tuple[OptionChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Stroke:
    """A job's points and its smooth curve, as the ``d`` of an SVG path; ``job`` is 0 for all together."""

    job: int
    points: str
    smooth: str


@dataclass(frozen=True, slots=True)
class Sketch:
    """One panel; the box of its axes is ``left, top, right, bottom``."""

    title: str
    box: tuple[float, float, float, float]
    strokes: tuple[Stroke, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    threshold_at: float | None
    stops_at: tuple[float, ...]


class _Kinded(NamedTuple):
    """A block, and which of them it is."""

    kind: Literal["paragraph", "facts", "table", "listing"]
    block: Block


class _Section(NamedTuple):
    name: str
    title: str
    blocks: tuple[_Kinded, ...]


@dataclass(frozen=True, slots=True)
class _TrialShown:
    """What a row is shown as and what is behind it; without a detail there is nothing."""

    role: Role
    detail: Detail | None
    is_plain: bool

    @property
    def contents(self) -> str:
        """What is behind the row, in words; empty where nothing is."""
        if self.detail is None:
            return ""
        detail, options = self.detail, len(self.detail.options)
        there = {
            "curves": bool(self.sketches or detail.complaints),
            "last log lines": bool(detail.fault),
            "console": bool(detail.console),
            f".config ({units.plural(options, 'option')} changed)": bool(options),
        }
        return ", ".join(name for name, has in there.items() if has)

    @property
    def sketches(self) -> tuple[Sketch, ...]:
        """Its curves."""
        return sketches(self.detail.curves) if self.detail is not None and self.detail.curves is not None else ()

    @property
    def rates(self) -> str:
        """What its curves are of: the direction of the I/O, and the unit."""
        objective = self.detail.curves.objective if self.detail is not None and self.detail.curves is not None else None
        return f"{objective.io_direction} {objective.definition.unit}" if objective is not None else ""

    @property
    def key(self) -> str:
        """How its curves are told apart."""
        curves = self.detail.curves if self.detail is not None else None
        if curves is None:
            return ""
        drawn = any(panel.threshold is not None for row in curves.rows for panel in row)
        line = "; long dashes: the threshold" if drawn else ""
        jobs = sorted({line.job for line in curves.lines}, key=lambda job: (job == 0, job))
        said = [_LINES[job] for job in jobs if job in _LINES]
        return (
            f"{self.rates}; {', '.join(said)}; points: means of"
            f" {curves.interval_s:g} s{line}; a dotted vertical line: stopped early."
        )

    @property
    def config_sentence(self) -> str:
        """What the effective .config is compared with."""
        if self.detail is None or self.detail.against is None:
            return ""
        against = f"that of {self.detail.against.short}, the one before it in history"
        if not self.detail.options:
            return f"The effective .config is {against}."
        words = units.plural(len(self.detail.options), "option")
        return f"The effective .config differs from {against}, in {words}:"

    @property
    def option_lines(self) -> tuple[str, ...]:
        """One for each option that differs."""
        options = self.detail.options if self.detail is not None else ()
        return tuple(f"{one.option}: {one.parent} -> {one.child}" for one in options)


@dataclass(frozen=True, slots=True)
class _Given:
    """What the template is given; without ``trials`` every table is a plain one. Pictures follow the first section."""

    title: str
    lead: str
    version: str
    sections: tuple[_Section, ...]
    trials: tuple[_TrialShown, ...]
    pictures: tuple[Shown, ...]
    patch: ShownCommit | None
    role: Role


def render(report: Report, details: Sequence[Detail] = (), pictures: Sequence[Shown] = ()) -> str:
    """The report of a bisection; ``details`` are those of its rows, found by their ``n``."""
    by_n = {detail.n: detail for detail in details}
    trials = tuple(
        _TrialShown(verdict_role(row.shown.verdict, report.bisection.direction), by_n.get(row.shown.n), _is_plain(row))
        for row in report.rows
    )
    found = report.bisection.first_fixed is not None
    role = verdict_role(Verdict.NEW, report.bisection.direction) if found else Role.PLAIN
    return _rendered(sections.page(report), pictures, trials, role, report.answer)


def _is_plain(row: Row) -> bool:
    """Whether its figures say all: a whole run of a commit, on one side."""
    trial = row.shown.trial
    whole = trial.stopped_early is None and trial.same_kernel_as is None and trial.subject.is_commit
    return whole and row.shown.verdict in (Verdict.OLD, Verdict.NEW) and trial.origin is None


def render_page(page: Page, pictures: Sequence[Shown] = ()) -> str:
    """Any document."""
    return _rendered(page, pictures, ())


def _rendered(
    page: Page,
    pictures: Sequence[Shown],
    trials: tuple[_TrialShown, ...],
    role: Role = Role.PLAIN,
    patch: ShownCommit | None = None,
) -> str:
    given = _Given(
        title=clean(page.title),
        lead=page.lead,
        patch=patch,
        role=role,
        version=page.tool_version,
        sections=tuple(_Section(one.name, one.title, tuple(map(_kinded, one.blocks))) for one in page.sections),
        trials=trials,
        pictures=tuple(pictures),
    )
    return _environment().get_template("page.html").render(page=given, width=WIDTH, height=HEIGHT)


def _kinded(block: Block) -> _Kinded:
    match block:
        case Paragraph():
            return _Kinded("paragraph", block)
        case Facts():
            return _Kinded("facts", block)
        case Table():
            return _Kinded("table", block)
        case Listing():
            return _Kinded("listing", block)


@cache
def _environment() -> "Environment":
    """Loaded when a page is made, and not for every other command."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - see above
    from markupsafe import Markup  # noqa: PLC0415 - see above

    environment = Environment(
        loader=PackageLoader("bisector.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["classes"] = lambda column, cell: Markup(_classes(column, cell))  # noqa: S704 - ours
    environment.filters["line"] = str.expandtabs
    environment.filters["patched"] = lambda line: _PATCHED.get(line[:1], "kept")
    environment.filters["linked"] = lambda text: (
        Markup('<a href="{0}" rel="noreferrer noopener">{0}</a>').format(text) if _ADDRESS.fullmatch(text) else text
    )
    environment.filters["base64"] = lambda data: Markup(base64.b64encode(data).decode("ascii"))  # noqa: S704 - no markup
    for name, file in (("style", "page.css"), ("script", "page.js")):
        text = resources.files("bisector.report").joinpath(file).read_text(encoding="utf-8")
        environment.globals[name] = Markup(text)  # noqa: S704 - our own file, which the policy knows by its hash
        environment.globals[f"{name}_hash"] = _hash(text)
    return environment


def _classes(column: Column, cell: str) -> str:
    names = ["figures"] * column.figures + ["verdict"] * (column.title == "verdict")
    names += [str(role) for outcome, role in _ROLES.items() if "verdict" in names and cell == outcome]
    return f' class="{" ".join(names)}"' if names else ""


def _visible(value: object) -> object:
    """Whatever the template writes, without what moves a cursor or turns the direction of text; markup is ours."""
    return clean(value) if type(value) is str else value


def _hash(text: str) -> str:
    """As a Content-Security-Policy names what may run (W3C CSP 3, hash-source)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


@dataclass(frozen=True, slots=True)
class _Scale:
    """From a figure to a coordinate."""

    least: float
    most: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, figure: float) -> float:
        """Rounded to a tenth; what is outside is at the edge."""
        inside = min(max(figure, self.least), self.most)
        share = (
            math.log(inside / self.least) / math.log(self.most / self.least)
            if self.logarithmic
            else (inside - self.least) / (self.most - self.least)
        )
        return round(self.start + share * (self.end - self.start), 1)


def sketches(plot: Curves) -> tuple[Sketch, ...]:
    """Each panel, all on the same scales."""
    panels = [panel for row in plot.rows for panel in row]
    time = _Scale(0.0, max(line.at_s[-1] for line in plot.lines) + plot.interval_s / 2, _LEFT, WIDTH - _RIGHT)
    rates = _scale_of_rates(plot, [panel.threshold for panel in panels if panel.threshold is not None])
    return tuple(_sketch(panel, time, rates) for panel in panels)


def _scale_of_rates(plot: Curves, thresholds: Sequence[float]) -> _Scale:
    figures = [*(rate for line in plot.lines for rate in line.smooth), *thresholds]
    most = max(1.0, *figures) * 1.15
    least = min(figure for figure in figures if figure > 0) / 1.15 if plot.logarithmic else 0.0
    return _Scale(least, most, HEIGHT - _BOTTOM, _TOP, plot.logarithmic)


def _sketch(panel: Panel, time: _Scale, rates: _Scale) -> Sketch:
    return Sketch(
        title=panel.title,
        box=(_LEFT, _TOP, WIDTH - _RIGHT, HEIGHT - _BOTTOM),
        strokes=tuple(_stroke(line, time, rates) for line in panel.lines),
        x_ticks=tuple(Tick(time.at(second), f"{second:g}") for second in _linear_ticks(time.most)),
        y_ticks=tuple(Tick(rates.at(rate), f"{rate:,.0f}") for rate in _ticks(rates)),
        threshold_at=None if panel.threshold is None else rates.at(panel.threshold),
        stops_at=tuple(time.at(stop.at_s) for stop in panel.stops),
    )


def _stroke(line: Line, time: _Scale, rates: _Scale) -> Stroke:
    across = [time.at(second) for second in line.at_s]
    # A path of no length with round ends is a dot; one element for all is small.
    points = (
        ""
        if line.job == TOGETHER
        else "".join(f"M{x:g} {rates.at(y):g}h0" for x, y in zip(across, line.rates, strict=True))
    )
    smooth = " ".join(f"{x:g} {rates.at(y):g}" for x, y in zip(across, line.smooth, strict=True))
    return Stroke(line.job, points, f"M{smooth}")


def _ticks(scale: _Scale) -> Iterator[float]:
    if not scale.logarithmic:
        yield from _linear_ticks(scale.most)
        return
    for exponent in range(math.floor(math.log10(scale.least)), math.ceil(math.log10(scale.most)) + 1):
        yield from (step * 10.0**exponent for step in _STEPS if scale.least <= step * 10.0**exponent <= scale.most)


def _linear_ticks(most: float) -> list[float]:
    """Round figures from 0 on, six at most."""
    size = 10.0 ** math.floor(math.log10(most))
    step = next(one for scale in (0.1, 1.0) for part in _STEPS if most / (one := part * size * scale) < _TICKS)
    return [step * index for index in range(math.floor(most / step) + 1)]
