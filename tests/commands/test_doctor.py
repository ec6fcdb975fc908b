from bisector.core import json_document
from bisector.core.errors import Finding, Grade
from bisector.core.examination import Examination, ready
from bisector.report.findings import finding_lines
from bisector.report.terminal import Role, as_text
from tests.docs.json_schema import valid

FINDINGS = (
    Finding("git", Grade.OK, "2.39.5"),
    Finding("accelerator", Grade.WARN, "tcg, emulation: KVM is offered and nothing comes up under it", "rm memory"),
    Finding("libelf headers", Grade.MISSING, "gelf.h: not installed", "apt install libelf-dev"),
    Finding("flex", Grade.MISSING, "flex: not installed", "apt install flex"),
)
TEXT = """\
git             ok       2.39.5
accelerator     warn     tcg, emulation: KVM is offered and nothing
                         comes up under it
                         rm memory
libelf headers  missing  gelf.h: not installed
                         apt install libelf-dev
flex            missing  flex: not installed
                         apt install flex

`bisector start` would fail: 2 missing, 1 warning
  apt install libelf-dev flex
"""


def test_rows_with_their_remedies_and_what_it_comes_to() -> None:
    assert as_text(finding_lines(FINDINGS, 70)) == TEXT


def test_nothing_missing() -> None:
    assert as_text(finding_lines(FINDINGS[:1], 70)).endswith("\n\n`bisector start` can begin here\n")
    assert as_text(finding_lines(FINDINGS[:2], 70)).endswith("\n\n`bisector start` can begin here, 1 warning\n")


def test_a_command_is_never_broken_into_lines() -> None:
    command = "apt install " + " ".join(f"package-{number}" for number in range(30))
    lines = as_text(finding_lines([Finding("x", Grade.MISSING, "long " * 60, command)], 60)).splitlines()
    assert sum(command in line for line in lines) == 2
    assert all(len(line) <= 60 for line in lines if command not in line)


def test_each_state_has_its_role() -> None:
    roles = [line[1].role for line in finding_lines(FINDINGS, 200) if len(line) == 3]
    assert roles == [Role.BETTER, Role.SKIP, Role.WORSE, Role.WORSE]


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
