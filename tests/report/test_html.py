"""The page by what is in it; a browser looks at it in tests/browser."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bisector.core.printable import clean
from bisector.core.verdict import SideWords
from bisector.git.repository import ShownCommit
from bisector.report.blocks import Role
from bisector.report.document import Report
from bisector.report.page import Detail, html
from bisector.report.sections import page as document_of
from bisector.status.view import OptionChange
from tests.examples import cell
from tests.report import documents, examples

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
    options = (OptionChange("CONFIG_HZ", "250", "1000"),)
    return [Detail(row.shown.n, False, lines, lines, examples.COMMITS[0], options) for row in report.rows]


def html_of(report: Report, known: Sequence[Detail] = (), pictures: Mapping[str, bytes] | None = None) -> str:
    return html(document_of(report), pictures, {str(one.n): one for one in known}, Role.BETTER, report.answer)


def whole(report: Report) -> Page:
    return Page(html_of(report, details(report), {"a picture": b"<svg/>"}))


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_every_document_is_well_formed_and_has_each_identifier_once_with_and_without_details(name: str) -> None:
    """Without anything behind it a row has no expander; the patch of the answer is one more."""
    report = documents.DOCUMENTS[name]()
    patch = int(report.bisection.first_fixed is not None)
    empty = [Detail(row.shown.n) for row in report.rows]
    for known in ((), empty):
        assert len(Page(html_of(report, known)).all("details")) == patch
    page = whole(report)
    assert len(page.all("details")) == len(report.rows) + patch
    identifiers = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers)
    assert {attributes["aria-labelledby"] for attributes in page.all("section")} == set(identifiers)


def test_table_has_what_the_other_formats_have() -> None:
    page = whole(documents.found())
    assert [cell["scope"] for cell in page.all("th")] == ["col"] * 8 + ["row"] * 5
    assert len(page.all("tbody")) == 5
    assert [body["class"] for body in page.all("tbody")] == ["worse", "worse", "better", "better", "better"]
    assert "1,002 / 9,104" in page.text
    assert "Trial 4: last log lines, console, .config (1 option changed)" in page.text
    assert "The patch: 1 file changed, 1 insertion(+), 1 deletion(-)" in page.text
    assert {"added", "removed", "place"} == {one["class"] for one in page.all("span")}
    assert "CONFIG_HZ: 250 -> 1000" in page.text
    assert "The effective .config differs from that of 0a5b3c7d9e1f" in page.text


def test_details_are_those_of_the_row() -> None:
    report = documents.found()
    text = html_of(report, [Detail(n, console=(f"console of {n}",)) for n in (5, 4, 3, 2, 1)])
    shown = re.findall(r"Trial (\d+): console<|console of (\d+)\n", text)
    assert [a or b for a, b in shown] == ["1", "1", "3", "3", "4", "4", "5", "5", "2", "2"]


def test_nothing_is_loaded_and_no_other_script_runs() -> None:
    report = documents.found()
    text = html_of(report, details(report), {"a picture": b"<svg/>"})
    page = Page(text)
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
    assert not re.search(r"@import|url\(", text)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def _hostile() -> Page:
    whole_of = examples.found()
    commit = replace(examples.COMMITS[3], subject=HOSTILE, sha=HOSTILE, committed_at=HOSTILE)
    hostile = (examples.with_trial(one, cell=cell(commit), host=HOSTILE) for one in whole_of.trials)
    trials = tuple(replace(one, why=HOSTILE) for one in hostile)
    view = replace(whole_of, trials=trials, first_fixed=commit, terms=SideWords(HOSTILE, HOSTILE), message=HOSTILE)
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
    option = OptionChange(HOSTILE, HOSTILE, HOSTILE)
    detail = [Detail(row.shown.n, False, (HOSTILE,), (HOSTILE,), commit, (option,)) for row in rows]
    return Page(html_of(report, detail, {HOSTILE: HOSTILE.encode()}))


def test_hostile_text_stays_text() -> None:
    page = _hostile()
    assert len(page.all("script")) == 1
    assert len(page.all("img")) == 1
    assert not any(name.startswith("on") for _, attributes in page.found for name in attributes)
    assert "{{ 7*7 }}" in page.text
    assert "\x1b" not in page.text
    assert all((link["href"] or "").startswith("#") for link in page.all("a"))
    assert page.all("img")[0]["alt"] == clean(HOSTILE)
