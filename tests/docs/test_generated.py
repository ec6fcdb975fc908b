"""The generated parts of README and docs/ are what the code says, and each has its place."""

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bisector.config import options
from bisector.core.errors import Finding
from bisector.doctor import checks
from bisector.storage.layer import LAYERS
from tests.docs import generate, pictures


@pytest.mark.parametrize("path", generate.pages(), ids=lambda path: path.name)
def test_page_is_what_the_code_says(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert generate.generated(page) == page, "`make docs` writes it again"


@pytest.mark.parametrize("path", generate.pages(), ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    for target, heading in re.findall(r"(?:\]\(|src=\"|srcset=\")(?!https:)([^)\"#]*)#?([^)\"]*)[)\"]", page):
        there = path.parent / target if target else path
        assert there.exists(), target
        assert not heading or heading in _anchors(there), (target, heading)


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_setup_shows_what_doctor_prints(tmp_path: Path) -> None:
    """Of the rows that are the same on every machine, but for the version of git."""
    page = " ".join((generate.DOCS / "setup.md").read_text(encoding="utf-8").split())
    asked = checks.CheckContext(
        options.load({"machine.clock": "instructions"}, directory=tmp_path).settings, tmp_path, tmp_path, lambda _: None
    )
    for probe in (one for one in checks.PROBES if one.name in ("git", "kernel config")):
        finding = probe.look(asked)
        assert isinstance(finding, Finding)
        assert finding.what.rpartition("; ")[2] in page, "copy the row from `bisector doctor`"


def test_pictures_say_what_the_code_draws() -> None:
    """Their words; lines and letters are those of the matplotlib that drew them."""
    for name, picture in pictures.drawn().items():
        words = [set(ET.fromstring(svg).itertext()) for svg in (picture, (pictures.DOCS / name).read_bytes())]
        assert words[0] == words[1], "`python -m tests.docs.pictures` writes it again"


def test_schemas_are_what_the_code_says() -> None:
    kept = {path: path.read_text(encoding="utf-8") for path in generate.SCHEMAS.iterdir()}
    assert kept == generate.schemas(), "`make docs` writes them again"


def test_each_part_has_one_place() -> None:
    found = Counter(name for path in generate.pages() for name in generate.parts(path.read_text(encoding="utf-8")))
    assert found == dict.fromkeys(generate.PARTS, 1)


def test_stale_page_is_noticed() -> None:
    page = "<!-- generated: exit codes -->\n| 0 | something else |\n<!-- end -->\n"
    assert "something else" not in generate.generated(page)


def test_every_storage_layer_has_its_section() -> None:
    page = (generate.DOCS / "stacks.md").read_text(encoding="utf-8")
    assert {f"## {name}" for name in LAYERS} <= set(page.splitlines())


def test_pages_are_short() -> None:
    """In words outside of their generated parts; a page that grows has to say less elsewhere."""
    written = (generate.without_parts(path.read_text(encoding="utf-8")) for path in generate.DOCS.glob("*.md"))
    assert sum(len(page.split()) for page in written) <= 29_850


def test_architecture_names_files_that_exist() -> None:
    page = (generate.DOCS.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+\w+\.\w+)`", page))
    assert named
    missing = {
        one for one in named if not any((generate.DOCS.parent / room / one).exists() for room in ("", "bisector"))
    }
    assert not missing
