"""Subjects, consoles, guests and servers whose words are orders to a terminal: none of them reaches one.

Each command is run as it is typed, on a record in which everything that strangers wrote is hostile.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bisector import cli
from bisector.cli import main
from bisector.commands import output
from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.trial import Fault, FaultKind, KernelFault, Stage
from bisector.core.verdict import State
from bisector.mail import compose
from bisector.report.document import Envelope
from bisector.store.facts import InfraFault
from bisector.store.rundir import GIT_LOG
from bisector.store.store import Store
from tests.docs.json_schema import valid
from tests.git import histories
from tests.recorded_run import HOST, RecordedRun, found

# The clipboard (OSC 52), the title, the screen, C1's CSI, bidi overrides and isolates, what ends a line elsewhere.
EVIL = (
    "\x1b]52;c;c3Rvcnk=\x07\x1b]0;title\x1b\\\x1b[2J\x1b[31m\x9b2J\x9d0;t\x9c\x90q\x9c\u202eecila\u2066\u200f"
    "\x08\x7f\x0e\x0b\x0c\x85\u2028\u2029"
)
LONG = "x" * 20_000
_ALLOWED = {"\n", "\t"}
_LONGEST = 4100


def check(text: str, *, longest: int = _LONGEST) -> None:
    """Nothing in a text but what is printed, white space apart, and no line without an end in sight."""
    wrong = {char for char in text if not char.isprintable() and char not in _ALLOWED}
    assert wrong == set(), f"{sorted(map(ascii, wrong))} in {text[:300]!r}"
    assert max(map(len, text.split("\n"))) <= longest


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """The record of a search in which every stranger's word is evil."""
    nodes = [replace(node, subject=f"dm: {EVIL}{node.name} {LONG}") for node in histories.linear(5)]
    record = found(tmp_path_factory.mktemp("record"), nodes=nodes)
    said = f"Kernel panic {EVIL}{LONG}"
    record.add("c1", fault=Fault(Stage.BOOT, FaultKind.PANIC, said, (said, f"{EVIL}Call Trace:")),
               more={"console.log": f"Linux version 6.1\n{said}\n"})  # fmt: skip
    record.add("c3", (4006.0, 7363.0), more={"notes.txt": EVIL, "host.json": json.dumps({**HOST, f"k{EVIL}": said})})
    with Store.open(record.run.database) as store:
        store.add(InfraFault("2026-03-01T10:00:00+00:00", record.shas["c3"], Stage.BOOT, EVIL, said))
    log = record.run.path / GIT_LOG
    log.write_text("".join(f"# bad: [{sha}] dm: {EVIL} {LONG}\n" for sha in record.shas.values()) + log.read_text())
    return record


FORMS = ("text", "markdown", "json", "html", "mail")
COMMANDS = (
    ("status",),
    ("status", "--json"),
    ("table",),
    ("table", "--json"),
    ("log",),
    ("mail",),
    ("next-step",),
    *(("report", "--format", form) for form in FORMS),
    *(("report", "--format", form, "-o", "report") for form in FORMS),
)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("state", [State.FOUND, State.FAILED])
def test_what_commands_write(
    recorded: RecordedRun, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], state: State
) -> None:
    recorded.end(state, f"no: {EVIL}{LONG}")
    code = main([words[0], "--run-dir", str(recorded.run.path), *words[1:]])
    said = capfd.readouterr()
    longest = 1 << 20 if {"html", "json", "markdown", "--json"} & set(words) else _LONGEST
    check(said.out, longest=longest)
    check(said.err)
    if "--json" in words or words[1:] == ("--format", "json"):
        valid(words[0], said.out)
    assert code != BisectorError.exit_code
    for file in (Path("report"), recorded.run.path / "report.eml"):
        if file.exists():
            check(file.read_text(encoding="utf-8"), longest=990 if "mail" in words else longest)


@pytest.mark.parametrize(
    "error",
    [
        UserError(f"{EVIL}{LONG}\nsecond {EVIL}", f"hint {EVIL}{LONG}"),
        InfraError(f"guest: {EVIL}"),
        KernelFault(Stage.BOOT, FaultKind.PANIC, EVIL),
        RuntimeError(f"a bug {EVIL}{LONG}"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors(error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr(cli, "parsed", lambda _: argparse.Namespace(command=fails))
    main(["runs"])
    said = capfd.readouterr().err
    check(said)
    assert said.strip()


@pytest.mark.usefixtures("home")
def test_a_name_that_is_typed(recorded: RecordedRun, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["start", f"v1{EVIL}", "v2", "--repo", str(recorded.repository)]) == 2
    check(capfd.readouterr().err)


def test_whatever_a_command_writes(capfd: pytest.CaptureFixture[str]) -> None:
    output.write(f"one {EVIL}{LONG}\ntwo {EVIL}\n")
    output.note(f"three {EVIL}{LONG}")
    output.write_document(f"\tfour {EVIL}{LONG}\n")
    output.write_document(json.dumps({EVIL: LONG}, indent=2))
    said = capfd.readouterr()
    check(said.out, longest=len(LONG) + 1000)
    check(said.err)
    assert [line[:4] for line in said.out.split("\n")[:3]] == ["one ", "two ", "\tfou"]


def test_a_notice_by_mail() -> None:
    envelope = Envelope("a@example.org", "<1@example.org>", "Sun, 01 Mar 2026 10:00:00 +0000", ("b@example.org",), ())
    made = compose.notice(envelope, f"no {EVIL}", f"it failed: {EVIL}\nsecond {LONG}{'ü' * 3000}\n").as_bytes()
    check(made.decode())
    assert max(map(len, made.splitlines())) <= 998
    assert b"\nsecond xxx" in made
