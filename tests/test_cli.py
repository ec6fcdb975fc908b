"""Bad input at the command line: a sentence, what to type next, an exit code, and nothing left behind."""

import argparse
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bisector import cli
from bisector.__main__ import main as entry_point
from bisector.cli import main
from bisector.commands import catalogue, measure, measuring, settings
from bisector.config import options
from bisector.core import errors, resources
from bisector.store.rundir import state_home
from tests.git import histories
from tests.git.histories import Node


@dataclass
class World:
    """A kernel repository with ends ``v1`` and ``v2``, and a state directory of its own."""

    repo: Path
    output: pytest.CaptureFixture[str]

    def refuses(self, *words: str | Path, code: int = 2) -> str:
        """What the person reads when a command is refused; there is never a traceback."""
        self.output.readouterr()
        assert main([str(word) for word in words]) == code
        seen = self.output.readouterr()
        assert "Traceback" not in seen.err
        assert seen.err.startswith("bisector: ")
        return seen.err

    def start_refused(self, *words: str | Path, code: int = 2) -> str:
        """The same for ``start``; no run is left that ``resume`` could find."""
        said = self.refuses("start", *words, "--repo", self.repo, code=code)
        runs = state_home() / "runs"
        assert not runs.is_dir() or not list(runs.iterdir())
        return said


@pytest.fixture
def world(home: Path, capsys: pytest.CaptureFixture[str], known_qemu: None) -> World:
    tags = {"c0": ("v1",), "c4": ("v2",)}
    chain = [replace(node, tags=tags.get(node.name, ())) for node in histories.linear(5)]
    histories.build(home / "linux", [*chain, Node("lone", files=histories.KERNEL_TREE, tags=("other",))])
    return World(home / "linux", capsys)


BISECTOR = (sys.executable, "-m", "bisector")


def ended(*command: str, path: str = "", **streams: Any) -> subprocess.CompletedProcess[str]:
    """What becomes of a command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(resources.ROOT), "PATH": path or os.environ["PATH"]}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(command, env=environment, text=True, check=False, timeout=60, **streams)


def test_not_a_kernel_tree(world: World, tmp_path: Path) -> None:
    world.repo = tmp_path / "other"
    histories.build(world.repo, [Node("a"), Node("b", ("a",))])
    assert "is not a kernel tree" in world.start_refused("main~1", "main")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("v1 v3", ("unknown revision 'v3'",)),
        ("v1 other", ("no common history",)),
        ("v2 v1", ("swapped", "the other way round")),
        ("v1 v1", ("the same commit",)),
        ("v1 v2 --base-config arm.config", ("arm",)),
        ("v1 v2 --compiler gcc-4.1", ("gcc-4.1",)),
        ("v1 v2 --job ./empty.fio --set storage.stack=hdd", ("has no job",)),
        ("v1 v2 --job ./merged.fio", ('line 4 "group_reporting=1": [mine] group_reporting makes one figure',)),
        ("v1 v2 --job ./nowhere.fio", ("nowhere.fio",)),
        ("v1 v2 --connect qemu:///system?socket=/nowhere", ("qemu:///system?socket=/nowhere",)),
        ("v1 v2 --ssd /dev/nowhere", ("storage.ssd.path",)),
        ("v1 v2 --terms reset:fixed", ("'reset'",)),
    ],
)
def test_what_cannot_be_searched(world: World, words: str, said: tuple[str, ...]) -> None:
    Path("arm.config").write_text("CONFIG_ARM64=y\nCONFIG_64BIT=y\n" * 300)
    Path("empty.fio").write_text("[global]\nbs=4k\n")
    Path("merged.fio").write_text("[mine]\ndirectory=${DIRECTORY}\nnumjobs=2\ngroup_reporting=1\n")
    refusal = world.start_refused(*words.split())
    assert all(one in refusal for one in said), refusal


def test_no_room_on_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisector.doctor.checks.disk_room_bytes", lambda path: 1 << 30)
    said = world.start_refused("v1", "v2")
    assert "1 GiB free" in said
    assert "--run-dir" in said


def test_git_is_not_installed(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git is not installed" in world.start_refused("v1", "v2")


@pytest.mark.parametrize("command", ["start", "resume", "status", "table", "log", "reset"])
def test_directory_that_is_no_run_directory(world: World, tmp_path: Path, command: str) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "precious").write_text("x")
    words = ("start", "v1", "v2", "--repo", world.repo) if command == "start" else (command,)
    assert "is not a run directory" in world.refuses(*words, "--run-dir", plain)
    assert (plain / "precious").read_text() == "x"
    if command != "start":
        assert "bisector start" in world.refuses(command)


def test_settings_are_listed_with_their_origin(world: World) -> None:
    assert main(["settings", "--changed"]) == 0
    assert world.output.readouterr().out == "no setting differs from its default\n"
    Path("bisector.toml").write_text("[workload]\nruntime = '55s'\nfile_size = '32M'\n")
    assert main(["settings", "--changed", "--stack", "hdd"]) == 0
    changed = [line.split() for line in world.output.readouterr().out.splitlines() if line]
    assert changed == [["storage.stack", "hdd", "--stack"], ["workload.runtime", "55s", "bisector.toml"]]
    assert main(["settings", "--threshold", "2000"]) == 0
    lines = {line.split()[0]: line.split()[1:] for line in world.output.readouterr().out.splitlines()}
    assert lines["workload.runtime"] == ["55s", "bisector.toml"]
    assert lines["bisect.threshold"][-1] == "--threshold"


def test_settings_fit_the_terminal(world: World) -> None:
    rows = options.describe(options.load())
    lines = list(settings.listed(rows, 80))
    assert all(len(line) <= 80 for line in lines)
    at = next(number for number, line in enumerate(lines) if line.startswith("storage.ext4.mkfs_options"))
    value = [lines[at].removesuffix("profile quick").split(maxsplit=1)[1]]
    value += itertools.takewhile(lambda line: line.startswith(" "), lines[at + 1 :])
    (row,) = (one for one in rows if one.key == "storage.ext4.mkfs_options")
    assert "".join("".join(value).split()) == "".join(row.value.split())
    assert {line.split(maxsplit=1)[0] for line in lines if line[:1].strip()} == {one.key for one in rows}


def test_one_setting_is_explained(world: World) -> None:
    assert main(["settings", "storage.hdd", "--set", "storage.hdd.size=2G"]) == 0
    said = world.output.readouterr().out
    assert "storage.hdd.size\n  value     2GiB (--set)\n  default   1GiB\n" in said
    assert "storage.hdd.path\n" in said
    assert "flag      --hdd PATH\n" in said
    assert "storage.ssd" not in said
    assert "did you mean storage.cache_size?" in world.refuses("settings", "storage.cash_size")


def test_help_has_every_command_once(world: World) -> None:
    parser = cli.parser()
    listed = [entry.name for entry in catalogue.entries()]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(parser.commands)
    lines = [line.split() for line in parser.format_help().splitlines()]
    for name, command in parser.commands.items():
        assert command.description
        assert [name, *command.description.rstrip(".").split()] in lines


def test_what_a_comparison_takes_is_what_compare_says() -> None:
    arguments = cli.parsed(["plan", "compare", "v6.1", "v6.2", "--stack", "hdd", "--json"])
    assert arguments == cli.parsed(["compare", "--plan", "v6.1", "v6.2", "--stack", "hdd", "--json"])
    assert (arguments.plan, arguments.subjects, arguments.stack) == (True, ["v6.1", "v6.2"], ["hdd"])
    assert cli.parsed(["plan", "v6.1", "compare"]).new == "compare"
    assert cli.parsed(["plan", "refs/heads/compare", "v6.2"]).old == "refs/heads/compare"


@pytest.mark.parametrize(
    ("typed", "ends", "paths"),
    [
        ("v6.1..v6.2", ("v6.1", "v6.2"), []),
        ("v6.1..v6.2 -- md a..b", ("v6.1", "v6.2"), ["md", "a..b"]),
        ("--regression v6.1..v6.2 --stack hdd", ("v6.1", "v6.2"), []),
        ("v6.1..", ("v6.1", "HEAD"), []),
        ("..v6.2", ("HEAD", "v6.2"), []),
        ("v6.1^{}..stable/v6.1.2~3", ("v6.1^{}", "stable/v6.1.2~3"), []),
        ("v6.1 v6.2 ../md", ("v6.1", "v6.2"), ["../md"]),
        (":/fix..it HEAD^{/a..b}", (":/fix..it", "HEAD^{/a..b}"), []),
        ("--set machine.append=a..b x y", ("x", "y"), []),
        ("x --stack hdd y -- p", ("x", "y"), ["p"]),
    ],
)
@pytest.mark.parametrize("command", ["plan", "start"])
def test_a_range_as_one_word(command: str, typed: str, ends: tuple[str, str], paths: list[str]) -> None:
    arguments = cli.parsed([command, *typed.split()])
    assert ((arguments.old, arguments.new), arguments.paths) == (ends, paths)


def test_each_command_is_registered_by_the_module_that_the_catalogue_names() -> None:
    for entry in catalogue.entries():
        command = cli.parser(entry.name).commands[entry.name]
        assert command.get_default("command") or command._subparsers, entry.name


def loaded_by(script: str) -> set[str]:
    """The modules that a new interpreter has after some statements."""
    command = [sys.executable, "-c", f"import sys; {script}; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split())


_HEAVY = {"numpy", "paramiko", "fabric", "git", "libvirt", "rich", "matplotlib", "jinja2"}


def test_help_imports_nothing_heavy() -> None:
    """So that it is there at once: paramiko, numpy and the others take most of a second."""
    loaded = loaded_by("from bisector import cli; cli.parser('').format_help()")
    assert "bisector.commands.catalogue" in loaded
    assert not {*_HEAVY, "msgspec"} & loaded


def test_settings_import_nothing_heavy() -> None:
    loaded = loaded_by("from bisector import cli; cli.main(['settings'])")
    assert "bisector.config.options" in loaded
    assert not _HEAVY & loaded


def test_a_host_that_is_sent_commits_imports_no_code_of_trials() -> None:
    """Each push starts ``fleet on-host receive-pack`` there."""
    assert not (_HEAVY - {"git"} | {"distributed"}) & loaded_by("import bisector.commands.fleet")


def helps(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """The help of a command and of all its parts."""
    yield parser.prog, parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from helps(part)


@pytest.mark.parametrize("command", catalogue.FIRST_FLAGS)
def test_help_of_many_flags_fits_a_screen(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = []
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as caught:
            main([*command.split(), flag])
        assert caught.value.code == 0
        shown.append(capsys.readouterr().out)
    brief, whole = shown
    assert len(brief.splitlines()) < 24
    assert all(len(line) <= 80 for line in brief.splitlines())
    assert brief.startswith(f"usage: bisector {command} [options]")
    assert brief.partition("examples:\n")[2].startswith(f"  bisector {command}")
    assert brief.endswith(f"flags: bisector {command} --help-all\n")
    named = set(re.findall(r"^  .*?(--[a-z-]+)", brief.partition("examples:")[0], re.MULTILINE))
    assert named < set(re.findall(r"--[a-z-]+", whole))


def test_help_has_the_defaults_of_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["start", "--help"])
    defaults = set(re.findall(r"\(default: .*?\)", capsys.readouterr().out))
    assert {"(default: lvmcache)", "(default: 40s)", "(default: partial.fio)"} <= defaults


@pytest.mark.parametrize(
    ("command", "foreign"),
    [
        ("kernel config", "--calibrate --terms --suspect --over --grep --hdd --jobs"),
        ("test", "--calibrate --suspect --strategy --first-parent --full-runs --baselines --confirm-by"),
    ],
)
def test_a_flag_that_cannot_matter_is_not_offered(world: World, command: str, foreign: str) -> None:
    for flag in foreign.split():
        assert f"bisector {command} has no flag {flag}" in world.refuses(*command.split(), "v1", flag, "x")


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("strat v1 v2", "there is no command bisector strat", "did you mean start?"),
        ("help strat", "there is no command bisector strat", "did you mean start?"),
        ("kernel bild v1", "there is no command bisector kernel bild", "did you mean build?"),
        ("start", "start needs OLD, NEW", "see bisector start --help"),
        ("start v1", "start needs NEW", "see bisector start --help"),
        ("start v1 v2 --runtme 3s", "bisector start has no flag --runtme", "did you mean --runtime?"),
        ("plan v1 -x", "bisector plan has no flag -x", "see bisector plan --help"),
        ("report -x", "bisector report has no flag -x", "see bisector report --help"),
        ("start --runtme=3s", "bisector start has no flag --runtme", "did you mean --runtime?"),
        ("start v1 v2 --budget soon", "--budget: expected a duration such as 4h, 90min or 1h30m, not 'soon'", "see"),
        ("start v1 v2 --budget", "--budget: expected one argument", "see bisector start --help"),
        ("report --format pdf", "--format: expected one of text, mail, markdown, json, html, not 'pdf'", "see"),
        ("plot --kind curve", "--kind: expected one of curves, commits, ratios, runs, not curve", "did you"),
        ("plot --trial none", "--trial: expected a whole number, 1 or more, not 'none'", "see bisector plot --help"),
        ("simulate --graph x --flip x", "--flip: expected a probability from 0 to 1, not 'x'", "see"),
        ("simulate --graph x --strategy y", "--strategy: expected one of bayes, git, not 'y'", "see"),
        ("status it", "status does not take it", "see bisector status --help"),
        ("cache clean", "bisector cache: expected one of show, clear, not clean", "did you mean clear?"),
        ("image", "image needs build", "see bisector image --help"),
        ("plan v1 v2 --skip x", "bisector plan has no flag --skip", "see bisector plan --help"),
        ("--halp", "bisector has no flag --halp", "did you mean --help?"),
        ("plan x..y y", "x..y is both ends of the range, and y is one word more", "OLD NEW or OLD..NEW"),
        (
            "plan x...y",
            "x...y: three dots are the commits of both sides since their merge base, and no range of two ends",
            "x y; where x is not an ancestor",
        ),
    ],
)
def test_a_usage_error_is_a_sentence_and_what_to_type(world: World, words: str, said: str, hint: str) -> None:
    first, second = world.refuses(*words.split()).splitlines()
    assert first == f"bisector: {said}"
    assert second.startswith(f"  {hint}")


def test_help_without_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 0
        return capsys.readouterr().out

    assert shown("help", "start") == shown("start", "--help")
    assert shown("help", "kernel", "build") == shown("kernel", "build", "--help")
    assert shown("help") == shown("--help")


def test_no_command_is_a_summary_and_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    seen = capsys.readouterr()
    assert "examples:" in seen.out
    assert len(seen.out.splitlines()) < 24
    assert seen.err == ""


def test_every_help_has_examples_and_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = dict(helps(cli.parser()))
    assert {"bisector", "bisector compare", "bisector kernel build"} <= set(shown)
    assert [name for name, text in shown.items() if "examples:" not in text] == []
    assert [line for text in shown.values() for line in text.splitlines() if len(line) > 100] == []


def test_help_has_every_exit_code_that_an_error_has() -> None:
    help_text = cli.parser().format_help().partition("exit codes:")[2]
    assert {int(code) for code in re.findall(r"^ +(\d+)  ", help_text, re.MULTILINE)} == set(cli.EXIT_CODES)
    classes, known = [errors.BisectorError], set()
    while classes:
        known.add(classes[-1].exit_code)
        classes += classes.pop().__subclasses__()
    assert known | set(measure._EXIT_CODES.values()) | {measuring.FAILED} == set(cli.EXIT_CODES)


# A command that prints more than a pipe holds, to a reader that has gone, and then has something to say by its code.
_NOBODY_READS = """
import os, sys
from bisector import cli
from bisector.commands import output, show
from bisector.core.errors import UserError

def status(arguments):
    output.write("x" * {count})
    output.note("by the way")
    return {end}

def refuse():
    raise UserError("no", "try this")

show.status = status
read, write = os.pipe()
os.close(read)
for stream in {lost}:
    os.dup2(write, stream)
sys.exit(cli.main({arguments}))
"""


@pytest.mark.parametrize(
    ("words", "lost", "count", "end", "code"),
    [
        ("status", (1,), 1, "0", 0),
        ("status", (1,), 1 << 20, "3", 3),
        ("status", (1, 2), 1 << 20, "refuse()", 2),
        ("status", (2,), 1, "1 / 0", 70),
        ("--help", (1,), 0, "0", 0),
        ("start --help", (1,), 0, "0", 0),
    ],
)
def test_exit_code_does_not_depend_on_a_reader(
    words: str, lost: tuple[int, ...], count: int, end: str, code: int
) -> None:
    script = _NOBODY_READS.format(count=count, end=end, lost=lost, arguments=words.split())
    seen = ended(sys.executable, "-c", script)
    assert seen.returncode == code, seen.stderr
    assert seen.stderr == "" or words == "status"


@pytest.mark.parametrize("words", ["--help", "settings", "settings --help"])
def test_output_to_a_full_disk_is_an_error_and_no_bug(words: str, home: Path) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        seen = ended(*BISECTOR, *words.split(), stdout=full)
    assert seen.returncode == 4, seen.stderr
    assert seen.stderr.startswith("bisector: standard output cannot be written: No space left on device\n")
    assert "Traceback" not in seen.stderr


def test_errors_on_a_full_disk_keep_their_exit_code() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        assert ended(*BISECTOR, "status", "--run-dir", "nowhere", stderr=full).returncode == 2


@pytest.mark.parametrize(("words", "code"), [("settings >&- <&-", 0), ("nothing 2>&-", 2)])
def test_closed_streams_are_readers_that_have_gone(words: str, code: int, home: Path) -> None:
    seen = ended("sh", "-c", f"exec {sys.executable} -m bisector {words}")
    assert (seen.returncode, seen.stderr) == (code, "")


def test_a_locale_without_the_characters_of_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert "[-- PATH?]" in ended(*BISECTOR, "start", "--help").stdout


class _Interrupting:
    """Ctrl-C while the command line is loaded."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "bisector.cli":
            raise KeyboardInterrupt


def test_an_interruption_while_modules_are_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "bisector.cli")
    monkeypatch.delattr("bisector.cli")
    monkeypatch.setattr(sys, "meta_path", [_Interrupting(), *sys.meta_path])
    assert entry_point() == 130
    assert capsys.readouterr().err == "bisector: interrupted\n"


def test_no_qemu(world: World, tmp_path: Path) -> None:
    """In a process of its own: libvirt looks for QEMU in the PATH it is loaded with."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in map(Path, ("/usr/bin", "/bin", "/usr/sbin")):
        for program in directory.iterdir():
            if not program.name.startswith("qemu-system") and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    refused = ended(*BISECTOR, "start", "v1", "v2", "--repo", str(world.repo), path=str(programs))
    assert refused.returncode == 2, refused.stderr
    assert "libvirt finds no QEMU" in refused.stderr
    assert "install qemu-system-x86" in refused.stderr
