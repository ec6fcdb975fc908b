"""A report as one HTML file that loads nothing: a table, what is behind each of its rows, and pictures.

The template and its style and script are the files ``page.*`` beside this one. jinja2 escapes whatever comes from
commits, kernels and guests; the page's own policy lets no other script run, should that ever fail.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal, NamedTuple

from bisector.core.printable import clean
from bisector.report.details import Detail
from bisector.report.document import Block, Facts, Listing, Paragraph, Report, Table
from bisector.report.sections import sections, title
from bisector.report.sketch import HEIGHT, WIDTH, Sketch, sketches

if TYPE_CHECKING:
    from jinja2 import Environment

_PICTURES_BELOW = "answer"
# How columns are shown; what is minor gives way on a phone.
_FIGURES = ' class="figures"'
_CLASSES = {"n": ' class="figures minor"', "date": ' class="minor"', "verdict": ' class="verdict"'}
_LINES = {0: "dash-dotted: all jobs together", 1: "solid: job 1", 2: "dashed: job 2", 3: "dotted: job 3"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture, and what it shows for those who do not see it."""

    svg: bytes
    alt: str


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
    """A row's side and what is behind it; without a detail there is nothing."""

    side: str
    detail: Detail | None

    @property
    def sketches(self) -> tuple[Sketch, ...]:
        """Its curves."""
        return sketches(self.detail.curves) if self.detail is not None and self.detail.curves is not None else ()

    @property
    def rates(self) -> str:
        """What its curves are of: ``read IOPS``."""
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
            f" {curves.interval_s:g} s{line}; a dotted upright: ended early."
        )

    @property
    def config_sentence(self) -> str:
        """What the effective .config is compared with."""
        if self.detail is None or self.detail.against is None:
            return ""
        count = len(self.detail.options)
        against = self.detail.against.short
        if not count:
            return f"The effective .config is that of {against}, the one before it in history."
        words = f"{count} option{'s' if count > 1 else ''}"
        return f"The effective .config differs from that of {against}, the one before it in history, in {words}:"

    @property
    def option_lines(self) -> tuple[str, ...]:
        """One for each option that differs."""
        options = self.detail.options if self.detail is not None else ()
        return tuple(f"{one.option}: {one.parent} -> {one.child}" for one in options)


@dataclass(frozen=True, slots=True)
class _Page:
    """What the template is given."""

    title: str
    version: str
    sections: tuple[_Section, ...]
    trials: tuple[_TrialShown, ...]
    pictures: tuple[Shown, ...]
    pictures_below: str


def render(report: Report, details: Sequence[Detail] = (), pictures: Sequence[Shown] = ()) -> str:
    """The whole page; ``details`` are those of its rows, found by their ``n``."""
    by_n = {detail.n: detail for detail in details}
    page = _Page(
        title=clean(title(report)),
        version=report.tool_version,
        sections=tuple(_Section(one.name, one.title, tuple(map(_kinded, one.blocks))) for one in sections(report)),
        trials=tuple(_TrialShown(row.shown.verdict.value, by_n.get(row.shown.n)) for row in report.rows),
        pictures=tuple(pictures),
        pictures_below=_PICTURES_BELOW,
    )
    return _environment().get_template("page.html").render(page=page, width=WIDTH, height=HEIGHT)


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
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("bisector.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["classes"] = lambda column: Markup(_CLASSES.get(column.title, _FIGURES * column.figures))  # noqa: S704 - ours
    environment.filters["line"] = str.expandtabs
    environment.filters["base64"] = lambda data: Markup(base64.b64encode(data).decode("ascii"))  # noqa: S704 - no markup
    for name, file in (("style", "page.css"), ("script", "page.js")):
        text = resources.files("bisector.report").joinpath(file).read_text(encoding="utf-8")
        environment.globals[name] = Markup(text)  # noqa: S704 - our own file, which the policy knows by its hash
        environment.globals[f"{name}_hash"] = _hash(text)
    return environment


def _visible(value: object) -> object:
    """Whatever the template writes, without what moves a cursor or turns the direction of text; markup is ours."""
    return clean(value) if type(value) is str else value


def _hash(text: str) -> str:
    """As a Content-Security-Policy names what may run (W3C CSP 3, hash-source)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
