"""A document as one HTML file that loads nothing: tables, what is behind each trial of a bisection, and pictures.

The template and its style and script are the files ``page.*`` beside this one. jinja2 escapes whatever comes from
commits, kernels and guests; the page's own policy lets no other script run, should that ever fail.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from bisector.analysis.comparison import Outcome
from bisector.core import units
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.verdict import Verdict
from bisector.git.shown import ShownCommit
from bisector.report import sections
from bisector.report.document import Column, Page, PlacedTrial, Report
from bisector.report.terminal import Role, verdict_role
from bisector.status.view import OptionChange

if TYPE_CHECKING:
    from jinja2 import Environment

# What the words of a comparison are shown as.
_ROLES = {Outcome.FASTER: Role.BETTER, Outcome.SLOWER: Role.WORSE}
_PATCHED = {"+": "added", "-": "removed", "@": "place"}
# What may be opened by a click; whatever else a commit calls a link stays text.
_ADDRESS = re.compile(r"https?://[\w.-]+(?::\d+)?(?:/[\w./~%@:?&=#+,;()!$*'-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """A picture, and what it shows for those who do not see it."""

    svg: bytes
    alt: str


@dataclass(frozen=True, slots=True)
class Detail:
    """Of trial ``n``; whatever is not on record is empty.

    ``fault`` are the log lines that matter to a fault, ``console`` the guest's last ones, ``options`` what differs in
    the effective .config since that of ``against``.
    """

    n: int
    fault: tuple[str, ...] = ()
    console: tuple[str, ...] = ()
    against: Commit | None = None
    options: tuple[OptionChange, ...] = ()


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
            "last log lines": bool(detail.fault),
            "console": bool(detail.console),
            f".config ({units.plural(options, 'option')} changed)": bool(options),
        }
        return ", ".join(name for name, has in there.items() if has)

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


def render(report: Report, details: Sequence[Detail] = (), pictures: Sequence[ShownPicture] = ()) -> str:
    """The report of a bisection; ``details`` are those of its rows, found by their ``n``."""
    by_n = {detail.n: detail for detail in details}
    trials = tuple(
        _TrialShown(verdict_role(row.shown.verdict, report.bisection.direction), by_n.get(row.shown.n), _is_plain(row))
        for row in report.rows
    )
    found = report.bisection.first_fixed is not None
    role = verdict_role(Verdict.NEW, report.bisection.direction) if found else Role.PLAIN
    return render_page(sections.page(report), pictures, trials, role, report.answer)


def _is_plain(row: PlacedTrial) -> bool:
    """Whether its figures say all: a whole run of a commit, on one side."""
    trial = row.shown.trial
    whole = trial.stopped_early is None and trial.same_kernel_as is None and trial.subject.is_commit
    return whole and row.shown.verdict in (Verdict.OLD, Verdict.NEW) and trial.origin is None


def render_page(
    page: Page,
    pictures: Sequence[ShownPicture] = (),
    trials: Sequence[_TrialShown] = (),
    role: Role = Role.PLAIN,
    patch: ShownCommit | None = None,
) -> str:
    """Any document; without ``trials`` every table is a plain one. Pictures follow the first section."""
    template = _environment().get_template("page.html")
    return template.render(page=page, pictures=pictures, rows=trials, role=role, patch=patch)


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
    return clean(value) if type(value) is str else value


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
