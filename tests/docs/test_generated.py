"""The generated parts of docs/ are what the code says, and each has its place."""

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bisector.storage.layers import LAYERS
from tests.docs import generate, pictures


@pytest.mark.parametrize("path", generate.pages(), ids=lambda path: path.name)
def test_page_is_what_the_code_says(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert generate.generated(page) == page, "`make docs` writes it again"


@pytest.mark.parametrize("path", generate.pages(), ids=lambda path: path.name)
def test_links_within_a_page_lead_to_its_headings(path: Path) -> None:
    """As GitHub makes anchors of headings."""
    page = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= anchors


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
