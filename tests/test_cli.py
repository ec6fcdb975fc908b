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
    shas: dict[str, str]
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
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], known_qemu: None
) -> World:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    tags = {"c0": ("v1",), "c4": ("v2",)}
    chain = [replace(node, tags=tags.get(node.name, ())) for node in histories.linear(5)]
    shas = histories.build(tmp_path / "linux", [*chain, Node("lone", files=histories.KERNEL_TREE, tags=("other",))])
    return World(tmp_path / "linux", shas, capsys)


def test_not_a_kernel_tree(world: World, tmp_path: Path) -> None:
    world.repo = tmp_path / "other"
    histories.build(world.repo, [Node("a"), Node("b", ("a",))])
    assert "is not a kernel tree" in world.start_refused("main~1", "main")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("v1 v3", ("unknown revision 'v3'",)),
        ("v1 other", ("no common history",)),
        ("v2 v1", ("swapped", "bisector start")),
        ("v1 v1", ("the same commit",)),
        ("v1 v2 --base-config arm.config", ("arm",)),
        ("v1 v2 --compiler gcc-4.1", ("gcc-4.1",)),
        ("v1 v2 --job ./empty.fio --set storage.stack=hdd", ("has no job",)),
        (
            "v1 v2 --job ./merged.fio",
            ('line 4 "group_reporting=1": [mine] group_reporting makes one figure',),
        ),
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


@pytest.mark.parametrize("command", ["resume", "status", "table", "log", "reset"])
def test_directory_that_is_no_run_directory(world: World, tmp_path: Path, command: str) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "precious").write_text("x")
    assert "is not a run directory" in world.refuses(command, "--run-dir", plain)
    assert (plain / "precious").read_text() == "x"
    assert "bisector start" in world.refuses(command)


def test_start_in_a_directory_of_something_else(world: World, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "precious").write_text("x")
    assert "not a run directory" in world.start_refused("v1", "v2", "--run-dir", plain)
    assert (plain / "precious").read_text() == "x"


def test_settings_are_listed_with_their_origin(world: World) -> None:
    Path("bisector.toml").write_text("[workload]\nruntime = '55s'\n")
    assert main(["settings", "--threshold", "2000"]) == 0
    lines = {line.split()[0]: line for line in world.output.readouterr().out.splitlines()}
    assert "55s" in lines["workload.runtime"]
    assert "bisector.toml" in lines["workload.runtime"]
    assert "--threshold" in lines["bisect.threshold"]


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


def test_settings_that_are_changed(world: World) -> None:
    assert main(["settings", "--changed"]) == 0
    assert world.output.readouterr().out == "no setting differs from its default\n"
    Path("bisector.toml").write_text("[workload]\nruntime = '55s'\nfile_size = '32M'\n")
    assert main(["settings", "--changed", "--stack", "hdd"]) == 0
    shown = [line.split() for line in world.output.readouterr().out.splitlines() if line]
    assert shown == [["storage.stack", "hdd", "--stack"], ["workload.runtime", "55s", "bisector.toml"]]


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


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        (
            "v6.1...v6.2",
            "v6.1...v6.2: three dots are the commits of both sides",
            "v6.1 v6.2; where v6.1 is not an ancestor",
        ),
        ("v6.1..v6.2 v6.2", "v6.1..v6.2 is both ends of the range, and v6.2 is one word more", "OLD NEW or OLD..NEW"),
    ],
)
def test_a_word_that_is_no_range(typed: str, message: str, hint: str) -> None:
    with pytest.raises(errors.UserError) as caught:
        cli.parsed(["plan", *typed.split()])
    assert (caught.value.message.startswith(message), (caught.value.hint or "").startswith(hint)) == (True, True)


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


@pytest.mark.parametrize("verb", [[], ["start"]])
def test_help_has_examples(world: World, verb: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*verb, "--help"])
    assert caught.value.code == 0
    assert "examples:" in world.output.readouterr().out


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
    said = capsys.readouterr().out
    assert {"(default: lvmcache)", "(default: 40s)", "(default: partial.fio)"} <= set(
        re.findall(r"\(default: .*?\)", said)
    )


@pytest.mark.parametrize(
    ("command", "foreign"),
    [
        ("kernel config", ("--calibrate", "--terms", "--suspect", "--over", "--grep", "--hdd", "--jobs")),
        (
            "test",
            ("--calibrate", "--suspect", "--strategy", "--first-parent", "--full-runs", "--baselines", "--confirm-by"),
        ),
    ],
)
def test_a_flag_that_cannot_matter_is_not_offered(world: World, command: str, foreign: tuple[str, ...]) -> None:
    for flag in foreign:
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
        ("cache clean", "action: expected one of show, clear, not clean", "did you mean clear?"),
        ("--halp", "bisector has no flag --halp", "did you mean --help?"),
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
    ("lost", "count", "end", "code"),
    [
        ((1,), 1, "0", 0),
        ((1,), 1 << 20, "3", 3),
        ((1, 2), 1 << 20, "refuse()", 2),
        ((2,), 1, "1 / 0", 70),
    ],
)
def test_exit_code_does_not_depend_on_a_reader(lost: tuple[int, ...], count: int, end: str, code: int) -> None:
    script = _NOBODY_READS.format(count=count, end=end, lost=lost, arguments=["status"])
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == code, ended.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["start", "--help"]])
def test_help_to_a_reader_that_has_gone(arguments: list[str]) -> None:
    script = _NOBODY_READS.format(count=0, end=0, lost=(1,), arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["--help"], ["settings"], ["settings", "--help"]])
def test_output_to_a_full_disk_is_an_error_and_no_bug(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bisector", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(resources.ROOT)}
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert ended.returncode == 4, ended.stderr
    assert ended.stderr.startswith("bisector: standard output cannot be written: No space left on device\n")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("words", "code"), [("settings >&- <&-", 0), ("nothing 2>&-", 2)])
def test_closed_streams_are_readers_that_have_gone(words: str, code: int, tmp_path: Path) -> None:
    command = ["sh", "-c", f"exec {sys.executable} -m bisector {words}"]
    environment = {**os.environ, "PYTHONPATH": str(resources.ROOT)}
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (code, b"")


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
    command = [sys.executable, "-m", "bisector", "start", "v1", "v2", "--repo", str(world.repo)]
    environment = {**os.environ, "PATH": str(programs), "PYTHONPATH": str(resources.ROOT)}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2, refused.stderr
    assert "libvirt finds no QEMU" in refused.stderr
    assert "install qemu-system-x86" in refused.stderr


def test_errors_on_a_full_disk_keep_their_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bisector", "status", "--run-dir", str(tmp_path / "none")]
    environment = {**os.environ, "PYTHONPATH": str(resources.ROOT)}
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(command, env=environment, stderr=full, check=False, timeout=60)
    assert ended.returncode == 2
