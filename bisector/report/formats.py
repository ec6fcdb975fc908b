"""The forms a report is read in: a row each."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from bisector.report import as_html, as_json, as_markdown, as_text, letter
from bisector.report.document import Report


class Format(StrEnum):
    """What ``bisector report --format`` takes."""

    TEXT = "text"
    MAIL = "mail"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


RENDERERS: Mapping[Format, Callable[[Report], str]] = {
    Format.TEXT: as_text.render,
    Format.MAIL: letter.render,
    Format.MARKDOWN: as_markdown.render,
    Format.JSON: as_json.render,
    Format.HTML: as_html.render,
}
