"""A document as Markdown, or as one HTML file that loads nothing, by the templates ``page.*`` beside this module.

jinja2 escapes text from commits, kernels and guests; should that ever fail, the HTML page's own policy lets no other
script run.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from bisector.core import units
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.git.shown import ShownCommit
from bisector.report.blocks import Page, Role
from bisector.status.view import OptionChange

if TYPE_CHECKING:
    from jinja2 import Environment

_PATCHED = {"+": "added", "-": "removed", "@": "place"}
# Addresses that become links; anything else that a commit calls a link stays text.
_ADDRESS = re.compile(r"https?://[\w.-]+(?::\d+)?(?:/[\w./~%@:?&=#+,;()!$*'-]*)?", re.ASCII)
# Characters by which a commit's subject could become markup, a table's edge, HTML or a mention of a person in Markdown.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&@])")


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """A picture and its text for those who cannot see it."""

    svg: bytes
    alt: str


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
    pictures: Sequence[ShownPicture] = (),
    details: Mapping[str, Detail] | None = None,
    role: Role = Role.PLAIN,
    patch: ShownCommit | None = None,
) -> str:
    """A document as one HTML file; without ``details``, by the numbers of their trials, every table is a plain one.

    Pictures follow the first section, which has the ``role`` and may have the ``patch`` of the commit that it names.
    """
    template = _environment(html=True).get_template("page.html")
    return template.render(page=page, pictures=pictures, details=details or {}, role=role, patch=patch)


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
