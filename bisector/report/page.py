"""A document as Markdown, or as one HTML file that loads nothing, with the plots of a run and the details of its rows.

jinja2 escapes text from commits, kernels and guests; should that ever fail, the HTML page's own policy lets no other
script run. Plots and details are made from the report and from files beside the record.
"""

import base64
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from bisector.core import units
from bisector.core.errors import UserError
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import Verdict
from bisector.git.repository import ShownCommit
from bisector.host.files import inside
from bisector.kernel import kconfig
from bisector.report import sections
from bisector.report.blocks import Page, Role, verdict_role
from bisector.report.document import Report
from bisector.report.drawing import Plot, following
from bisector.report.plots import commits, curves_of
from bisector.status.conclusion import CONFIG_ARTIFACT, effective_config
from bisector.status.view import OptionChange, TrialView

if TYPE_CHECKING:
    from jinja2 import Environment


_PATCHED = {"+": "added", "-": "removed", "@": "place"}
# Addresses that become links; anything else that a commit calls a link stays text.
_ADDRESS = re.compile(r"https?://[\w.-]+(?::\d+)?(?:/[\w./~%@:?&=#+,;()!$*'-]*)?", re.ASCII)
# Characters by which a commit's subject could become markup, a table's edge, HTML or a mention of a person in Markdown.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&@])")
_ALT = "Plot: {}. The table has its figures."
_CONSOLE = "console.log"
_CONSOLE_LINES = 40
_CONSOLE_BYTES = 16_384  # enough for so many lines of a console


@dataclass(frozen=True, slots=True)
class Detail:
    """The details behind the row of trial ``n``; whatever is not on record is empty.

    ``fault`` has the relevant log lines of a fault, ``console`` the guest's last lines, ``options`` the changes of the
    effective .config since ``against``. A ``plain`` trial's values need no explanation.
    """

    n: int
    plain: bool = False
    fault: tuple[str, ...] = ()
    console: tuple[str, ...] = ()
    against: Commit | None = None
    options: tuple[OptionChange, ...] = ()

    @property
    def contents(self) -> str:
        """The names of the details that exist; empty if none do."""
        options = len(self.options)
        there = {
            "last log lines": self.fault,
            "console": self.console,
            f".config ({units.plural(options, 'option')} changed)": options,
        }
        return ", ".join(name for name, has in there.items() if has)


def markdown(page: Page) -> str:
    """A document as Markdown."""
    return _environment(html=False).get_template("page.md").render(page=page)


def html(
    page: Page,
    pictures: Mapping[str, bytes] | None = None,
    details: Mapping[str, Detail] | None = None,
    role: Role = Role.PLAIN,
    patch: ShownCommit | None = None,
) -> str:
    """A document as one HTML file; without ``details``, by the numbers of their trials, every table is a plain one.

    Pictures (SVG, by their texts for those who cannot see them) follow the first section, which has the ``role`` and
    may have the ``patch`` of the commit that it names.
    """
    template = _environment(html=True).get_template("page.html")
    return template.render(page=page, pictures=pictures or {}, details=details or {}, role=role, patch=patch)


@cache
def _environment(*, html: bool) -> "Environment":
    """The jinja2 environment, imported only when a page is made, since it takes time to load."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - see above
    from markupsafe import Markup  # noqa: PLC0415 - see above

    environment = Environment(
        loader=PackageLoader("bisector.report", ""),
        autoescape=html,  # noqa: S701 - Markdown has a filter of its own
        undefined=StrictUndefined,
        finalize=lambda value: clean(value) if html and type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "md": _escaped,
        "fence": lambda lines: "`" * max(3, *(len(run) + 1 for line in lines for run in re.findall("`+", line)), 0),
        "visible": clean,
        "line": str.expandtabs,
        "patched": lambda line: _PATCHED.get(line[:1], "kept"),
        "linked": lambda text: (
            Markup('<a href="{0}" rel="noreferrer noopener">{0}</a>').format(text) if _ADDRESS.fullmatch(text) else text
        ),
        "base64": lambda data: Markup(base64.b64encode(data).decode("ascii")),  # noqa: S704 - has no markup
    }
    for name, file in (("style", "page.css"), ("script", "page.js")):
        text = resources.files("bisector.report").joinpath(file).read_text(encoding="utf-8")
        environment.globals[name] = Markup(text)  # noqa: S704 - a file of bisector, whose hash the policy allows
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
        environment.globals[f"{name}_hash"] = f"sha256-{digest}"
    return environment


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};" if found[0] in "<>&@" else f"\\{found[0]}", clean(text))


# The plots of a run, and the details behind its rows


class PlotKind(StrEnum):
    """The kinds of plots; each is also the name of a file."""

    CURVES = "curves"
    COMMITS = "commits"


def plotted(
    kind: PlotKind, report: Report, run_dir: Path, trials: Sequence[int] = ()
) -> tuple[Plot | None, tuple[str, ...]]:
    """One plot of a run (None if there is nothing to draw), and a sentence for each file that could not be used.

    Curves show the trials with the numbers in ``trials``, or both sides of the change if there are none. Raises
    :class:`UserError` if there is no such trial.
    """
    if kind is PlotKind.COMMITS:
        return commits(report), ()
    view, by_n = report.bisection, {shown.n: shown for shown in report.bisection.trials}
    for n in trials:
        if n not in by_n:
            hint = f"the trials are 1 to {max(by_n)}: bisector table" if by_n else ""
            raise UserError(f"there is no trial {n}", hint)
    kernels = [
        (
            clean(f"{one.trial.commit.short} ({view.terms.word(one.verdict)})"),
            verdict_role(one.verdict, view.direction),
            one.trial,
        )
        for one in ([by_n[n] for n in trials] or _both_sides(report))
    ]
    about = f", {' and '.join(name for name, *_ in kernels)}"
    return curves_of(kernels, run_dir, view.objective, about, line=view.threshold, baselines=view.baselines)


def _both_sides(report: Report) -> list[TrialView]:
    """The last trial that counts on each side of the change, or at each end while there is no answer.

    If neither end was measured, as in some imports: all trials.
    """
    view, compared = report.bisection, report.before_after
    if compared is not None:
        trials = [compared.before.trials[-1], compared.after.trials[-1]]
        return [shown for trial in trials for shown in view.trials if shown.trial is trial]
    last = {shown.trial.commit.sha: shown for shown in view.trials if shown.trial.runs}
    of_ends = [last[end.sha] for end in (view.old, view.new) if end.sha in last]
    return of_ends or list(last.values())


def page(report: Report, run_dir: Path) -> str:
    """The report as one HTML file."""
    plots = [plotted(kind, report, run_dir)[0] for kind in PlotKind]
    pictures = {_ALT.format(plot.title): following(plot) for plot in plots if plot is not None}
    found = report.bisection.first_fixed is not None
    role = verdict_role(Verdict.NEW, report.bisection.direction) if found else Role.PLAIN
    behind = {str(one.n): one for one in details(report, run_dir)}
    return html(sections.page(report), pictures, behind, role, report.answer)


def details(report: Report, run_dir: Path) -> tuple[Detail, ...]:
    """The details of each row of the report, in order; a .config is compared with the one before it in history."""
    found, configs = [], dict[str, kconfig.Options | None]()
    before: tuple[Commit, kconfig.Options] | None = None
    for row in report.rows:
        trial, options, against, changes = row.shown.trial, None, None, tuple[OptionChange, ...]()
        # A subject outside the history has no predecessor. Most files are equal, so each content is read once.
        if trial.subject.is_commit and (artifact := trial.artifact(CONFIG_ARTIFACT)) is not None:
            if artifact.sha256 not in configs:
                configs[artifact.sha256] = effective_config(run_dir, artifact)
            options = configs[artifact.sha256]
        if options is not None:
            against, earlier = before or (None, options)
            if earlier is not options:
                changes = tuple(OptionChange(*one) for one in kconfig.differences(earlier, options))
            before = trial.commit, options
        whole = trial.stopped_early is None and trial.same_kernel_as is None and trial.subject.is_commit
        plain = whole and row.verdict in (Verdict.OLD, Verdict.NEW) and trial.origin is None
        fault = trial.fault.tail if trial.fault is not None else ()
        found.append(Detail(row.n, plain, fault, _console(run_dir, trial), against, changes))
    return tuple(found)


def _console(run_dir: Path, trial: Trial) -> tuple[str, ...]:
    """The last lines of the guest's console; none if no guest was started or the file is gone."""
    if (artifact := trial.artifact(_CONSOLE)) is not None:
        with suppress(OSError), inside(run_dir, artifact.path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _CONSOLE_BYTES))
            lines = file.read().decode("utf-8", errors="replace").split("\n")
            return tuple(line.rstrip() for line in lines if line.strip())[-_CONSOLE_LINES:]
    return ()
