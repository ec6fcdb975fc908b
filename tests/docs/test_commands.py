"""Every command that README.md and docs/ show is run here; those of :data:`NOT_RUN` are parsed, with the reason."""

import argparse
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bisector import cli
from bisector.commands.arguments import given_settings
from bisector.core import resources
from bisector.doctor import checks
from bisector.host.disks import BlockDevice
from bisector.store.facts import Work
from bisector.store.rundir import Index, IndexEntry, RunDirectory
from bisector.store.store import Store
from tests import fakes, recorded_run
from tests.docs.generate import DOCS
from tests.git import histories
from tests.loopdevice import loop_device

README = resources.ROOT / "README.md"
PAGES = (README, resources.ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))
# By the beginning of a command. It is parsed all the same, and its settings are read.
NOT_RUN = {
    "bisector start": "boots guests",
    "bisector resume": "boots guests",
    "bisector baselines": "boots guests",
    "bisector compare": "boots guests",
    "bisector plan v6.1 v6.2 --calibrate": "boots guests",
    "bisector nightly --config nightly.toml --install-timer": "changes systemd's units",
    "bisector nightly": "boots guests",
    "bisector history": "needs nights; tests/nightly/test_commands.py has some",
    "bisector mail --send": "sends mail",
    "bisector kernel": "needs a whole kernel tree",
    "bisector image build": "downloads packages",
    "bisector doctor --hosts": "logs in on other machines; tests/fleet/test_ssh.py has some",
    "bisector fleet status": "the same",
    "jq": "is not on every machine that measures",
    "wipefs": "overwrites a disk",
    "git clone URL": "URL stands for where the project is",
    "make": "each is a run of its own; the Makefile has it",
}
RUN = (
    "bisector compare v6.1 v6.2 --plan",
    "bisector nightly --config nightly.toml --check",
    "bisector nightly --config nightly.toml --dry-run",
)
# What a line of output says that is different on every machine and at every time.
_VARIES = re.compile(r"/home/anna|^a step|…")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`(bisector [^`]+)`")
_FLAGS = re.compile(r"`(--[a-z][a-z-]+)[^`]*`")
_SHELLS = ("sh", "console")
# Those of other programs.
_OTHERS = {"--assume-clean": "mdadm"}


@dataclass(frozen=True)
class Shown:
    """A command as a page shows it, and the lines of output below it."""

    command: str
    output: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What the shell runs one after the other."""
        return tuple(part.strip() for part in self.command.split(";"))


def blocks(page: Path) -> list[tuple[Shown, ...]]:
    """The commands of each block of a page, in order."""
    fences = _FENCE.findall(page.read_text(encoding="utf-8"))
    return [tuple(_commands(language, body)) for language, body in fences if language in _SHELLS]


def _commands(language: str, body: str) -> Iterator[Shown]:
    if language == "sh":
        lines = (re.sub(r"(^|\s+)#.*", "", line) for line in body.replace("\\\n", " ").splitlines())
        yield from (Shown(line) for line in lines if line)
        return
    for piece in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, *output = piece.splitlines()
        yield Shown(command, tuple(output))


def reason(part: str) -> str | None:
    """Why a command is not run here; None when it is."""
    if part.startswith(RUN):
        return None
    return next((why for begins, why in NOT_RUN.items() if part.startswith(begins)), None)


def words_of(part: str) -> list[str]:
    """What the tool is given, as a shell takes it apart."""
    return shlex.split(part.partition("|")[0])[1:]


def parsed(part: str) -> None:
    """The command line is one that the tool takes, settings included."""
    arguments = cli.parsed(words_of(part))
    if hasattr(arguments, "set"):
        given_settings(arguments)


@pytest.fixture
def tree(home: Path, monkeypatch: pytest.MonkeyPatch, known_qemu: None) -> Path:
    """In a home a small kernel tree, a run with an answer, and the files that the pages name."""
    tags = {"c0": ("v4.11", "v6.1"), "c4": ("v4.13-rc1", "v6.2")}
    nodes = [replace(node, tags=tags.get(node.name, ())) for node in histories.linear(5)]
    (home / "src").mkdir()
    found = recorded_run.found(home / "src", nodes=nodes)
    Index().add(IndexEntry(str(found.run.path), str(found.repository), "v6.1", "v6.2", "2026-03-01T10:00:00+00:00"))
    for name in ("recorded-runs", "graphs"):
        shutil.copytree(resources.ROOT / "tests/data" / name, found.repository / "tests/data" / name)
    monkeypatch.chdir(found.repository)
    (example,) = re.findall(r"```toml\n(.*?)```", (DOCS / "nightly.md").read_text(encoding="utf-8"), re.DOTALL)
    Path("nightly.toml").write_text(example, encoding="utf-8")
    return found.repository


_SIMULATES = "plan.md"  # for a minute
# What commands end with here: the machine, or its repositories, may lack something, or they are refused.
_CODES = {
    "bisector doctor": (0, 1),
    "bisector import cut.txt": (2,),
    "bisector nightly --config nightly.toml --dry-run": (1,),
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=pytest.mark.rare if page.name == _SIMULATES else ())
        for page in PAGES
        if blocks(page)
    ],
)
def test_commands(page: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (one for block in blocks(page) for one in block):
        for part in shown.parts:
            if part.startswith("cd "):
                monkeypatch.chdir(Path(part.removeprefix("cd ")).expanduser())
            elif (why := reason(part)) is not None:
                assert why
                if part.startswith("bisector "):
                    parsed(part)
            elif part.startswith("bisector "):
                code = _main(words_of(part))
                seen = capsys.readouterr()
                expected = _CODES.get(part.partition("|")[0].strip(), (0,))
                assert code in expected, f"{page.name}: {part}: {code}\n{seen.err}"
                lines = (seen.out + seen.err).splitlines()
                missing = [line for line in shown.output if line not in lines and not _VARIES.search(line)]
                assert not missing, f"{page.name}: {part} prints\n{seen.out}{seen.err}"
            else:
                subprocess.run(["bash", "-euc", part], check=True, timeout=60)


_README_MEASURES = [
    part
    for block in blocks(README)
    for shown in block
    for part in shown.parts
    if part.startswith(("bisector start", "bisector compare"))
]


@pytest.mark.parametrize("part", _README_MEASURES)
def test_readme_comes_to_its_first_trial(part: str, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through each check of tree, stack, disks and workload; then the process dies, with the trial on record."""
    equip = fakes.equipped(fakes.FakeExecutor(lambda _: False, kill_at=1))
    shutil.copy(resources.ROOT / "fio/partial.fio", "my.fio")
    Path("bench.sh").write_text("#!/bin/sh\necho tps=512.25\n", encoding="utf-8")
    Path("bench.sh").chmod(0o755)
    Path("fix.patch").write_text(histories.git(Path(), "diff", "v6.1", "v6.2", "--", "files") + "\n", encoding="utf-8")
    monkeypatch.setattr("bisector.commands.measuring.here", equip)
    asked_here = tuple(one for one in checks.PROBES if one.of_setup or one.name == "kernel config")
    monkeypatch.setattr(checks, "PROBES", asked_here)
    with _disk(part) as words, pytest.raises(fakes.Killed):
        _main(words)
    with Store.open(RunDirectory(Path(Index().entries()[-1].run_dir)).database, readonly=True) as store:
        (begun,) = store.in_flight()
        assert begun.fact.work is Work.TRIAL


@contextmanager
def _disk(part: str) -> Iterator[list[str]]:
    """The words of a command, with a disk for the partition that it names."""
    words = words_of(part)
    if "/dev/nvme0n1p4" not in words:
        yield words
        return
    with Path("../disk").open("wb") as new:
        new.truncate(1 << 30)
    with loop_device(Path("../disk")) as device:
        with BlockDevice.claimed(device) as claimed:  # as after its first use
            claimed.empty()
        yield [str(device) if word == "/dev/nvme0n1p4" else word for word in words]


def _main(words: list[str]) -> int:
    try:
        return cli.main(words)
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_in_sentences(page: Path) -> None:
    """The command exists, and so do its flags; what stands for something else is not looked at."""
    commands = cli.parser().commands
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for words in (" ".join(found.split()).split() for found in _INLINE.findall(text)):
        if words[1].startswith("-") or words[1] == "COMMAND":
            continue
        assert words[1] in commands, (page.name, words)
        flags = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
        assert flags <= _flags(commands[words[1]]), (page.name, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_flags_in_sentences(page: Path) -> None:
    """One that stands alone is a flag of some command."""
    named = set(_FLAGS.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))))
    assert named - set(_OTHERS) <= _flags(cli.parser()), page.name


def _flags(command: argparse.ArgumentParser) -> set[str]:
    """The flags of a command and of the commands below it."""
    found = set(re.findall(r"(--[a-z-]+)", command.format_help()))
    if command._subparsers is not None:
        for below in command._subparsers._group_actions:
            assert isinstance(below.choices, Mapping)
            found = found.union(*map(_flags, below.choices.values()))
    return found


def test_every_block_of_commands_is_found() -> None:
    for page in PAGES:
        for language, body in _FENCE.findall(page.read_text(encoding="utf-8")):
            looks = re.search(r"^(\$ )?(bisector|make|git) [a-z-]", body, re.MULTILINE) is not None
            assert language in _SHELLS or not looks, (page.name, body)


def test_each_reason_is_needed() -> None:
    shown = [part for page in PAGES for block in blocks(page) for one in block for part in one.parts]
    used = {next(begins for begins in NOT_RUN if part.startswith(begins)) for part in shown if reason(part)}
    assert used == set(NOT_RUN)
