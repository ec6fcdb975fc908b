"""What a stranger's tree runs gets nothing of this host but what it is given."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisector import process, sandbox
from bisector.deadline import Deadline
from bisector.errors import UserError
from bisector.sandbox import Sandbox
from tests.hostile import EVERYTHING, Prey, prey


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Prey]:
    with prey(tmp_path) as made:
        yield made


def run(script: str, box: Sandbox | None = None, cwd: Path | None = None) -> process.Finished:
    within = (box or Sandbox()).words
    return process.run(["sh", "-c", script], deadline_s=20, within=within, check=False, cwd=cwd)


def test_an_attack_that_succeeds_without_it_gets_nothing_in_it(victim: Prey) -> None:
    printed = run(victim.script).stdout
    assert victim.harm(printed) == set()
    printed = process.run(["sh", "-c", victim.script], deadline_s=20).stdout
    assert victim.harm(printed) == EVERYTHING


def test_only_what_is_writable_can_be_written(tmp_path: Path) -> None:
    source, build, other = (tmp_path / name for name in ("source", "source/build", "other"))
    for place in (source, build, other):
        place.mkdir(parents=True)
    (source / "file").write_text("old\n")
    box = Sandbox(readable=(source,), writable=(build,))
    asked = f'{source} {other} / /usr /etc /proc/sys/kernel /dev "$HOME" /tmp {build}'
    touched = f'{source} {other} "$HOME" {build}'
    script = f"""cat {source}/file
        for place in {asked}; do [ -w $place ] && echo $place; done
        for place in {touched}; do touch $place/new 2>/dev/null; done"""
    assert run(script, box).stdout.split() == ["old", "/dev", "/tmp/home", "/tmp", str(build)]
    assert list(tmp_path.rglob("new")) == [build / "new"]


def test_exit_status_output_and_directory_are_those_of_the_command(tmp_path: Path) -> None:
    done = run("pwd; echo said >&2; exit 7", Sandbox(readable=(tmp_path,)), cwd=tmp_path)
    assert (done.exit_status, done.stdout, done.stderr) == (7, f"{tmp_path}\n", "said\n")
    assert done.argv[0] == "sh"


def test_a_command_in_it_has_no_capabilities_and_no_way_to_some() -> None:
    status = run("grep -E '^(CapPrm|CapEff|NoNewPrivs)' /proc/self/status; id -u").stdout.split()
    assert status == ["CapPrm:", "0" * 16, "CapEff:", "0" * 16, "NoNewPrivs:", "1", str(os.geteuid())]


def test_it_ends_with_the_process_that_began_it(tmp_path: Path) -> None:
    """Killed as nothing can prepare for; its whole tree of processes, sessions of their own included."""
    nap = f"300.{os.getpid()}7"
    script = (
        "from bisector import process; from bisector.sandbox import Sandbox;"
        f"process.run(['sh', '-c', 'setsid sleep {nap} & sleep {nap}'], deadline_s=60, within=Sandbox().words)"
    )

    def napping() -> int:
        found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if f"\0{nap}\0" in read(path)]
        return len(found)

    with subprocess.Popen([sys.executable, "-c", script]) as orchestrator:
        Deadline("two naps", 20).poll(lambda: napping() == 2 or None, every_s=0.02)
        orchestrator.send_signal(signal.SIGKILL)
    Deadline("the end of both", 5).poll(lambda: napping() == 0 or None, every_s=0.02)


def read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize("place", ["bin", "toolchains/x/bin", "manager/shims"])
def test_programs_of_a_persons_own_work_with_what_is_beside_them(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / place
    directory.mkdir(parents=True)
    (directory.parent / "lib").mkdir()
    (directory.parent / "lib/word").write_text("found\n")
    (directory / "own-cc").write_text(f"#!/bin/sh\ncat {directory.parent}/lib/word\n")
    (directory / "own-cc").chmod(0o755)
    (tmp_path / "private").write_text("private\n")
    for words in ((str(directory / "own-cc"),), ()):
        done = run(f"{directory}/own-cc; cat {tmp_path}/private", Sandbox(programs=words))
        assert (done.stdout, "private: No such file" in done.stderr) == ("found\n", True)
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")  # from now on it is found there


def test_of_a_home_with_a_program_in_it_the_program_alone_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "private").write_text("private\n")
    program = tmp_path / "own-cc"
    program.write_text("#!/bin/sh\necho compiled\n")
    program.chmod(0o755)
    box = Sandbox(programs=(str(program),))
    assert run(f"{program}; cat {tmp_path}/private; echo {tmp_path}/*", box).stdout == f"compiled\n{program}\n"


def test_a_home_on_path_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/private").write_text("private\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/home:{tmp_path}:{os.environ['PATH']}")
    assert run(f"cat {tmp_path}/home/private").stdout == ""


def test_where_there_is_none_a_sentence_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.check()
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n")
    program.chmod(0o755)
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="No permissions to create a new namespace") as caught:
        sandbox.check()
    assert "kernel.sandbox=false" in caught.value.hint
    program.unlink()
    with pytest.raises(UserError, match="bwrap is not installed") as caught:
        sandbox.check()
    assert "bubblewrap" in caught.value.hint


def test_a_sandbox_that_is_none_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not hide the home is no sandbox, whatever it is called."""
    program = tmp_path / "bwrap"
    program.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError, match="there is no sandbox"):
        sandbox.check()


def test_its_own_words_are_told_from_those_of_what_it_runs() -> None:
    assert sandbox.failed(["bwrap: Can't find source path /x", "more"]) == "bwrap: Can't find source path /x"
    assert sandbox.failed(["make: Entering directory", "bwrap: said a tree"]) is None
    assert sandbox.failed([]) is None
