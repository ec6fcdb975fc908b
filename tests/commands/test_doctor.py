from bisector.core import json_document
from bisector.core.errors import Finding, Grade
from bisector.core.examination import Examination, ready
from tests.docs.json_schema import valid

FINDINGS = (
    Finding("git", Grade.OK, "2.39.5"),
    Finding("accelerator", Grade.WARN, "tcg, emulation: KVM is offered and nothing comes up under it", "rm memory"),
    Finding("libelf headers", Grade.MISSING, "gelf.h: not installed", "apt install libelf-dev"),
    Finding("flex", Grade.MISSING, "flex: not installed", "apt install flex"),
)


def test_only_what_is_missing_stands_in_the_way() -> None:
    assert ready(FINDINGS[:2])
    assert not ready(FINDINGS)


def test_the_document_for_scripts() -> None:
    assert valid("doctor", json_document.text(Examination.of(FINDINGS[:2]))) == {
        "schema": 1,
        "ready": True,
        "findings": [
            {"name": "git", "state": "ok", "what": "2.39.5", "remedy": None},
            {
                "name": "accelerator",
                "state": "warn",
                "what": "tcg, emulation: KVM is offered and nothing comes up under it",
                "remedy": "rm memory",
            },
        ],
    }
