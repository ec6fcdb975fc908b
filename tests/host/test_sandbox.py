"""What a stranger's tree runs gets nothing of this host but what it is given."""

import grp
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import UserError
from bisector.core.shell import CommandResult
from bisector.host import process, sandbox
from bisector.host.sandbox import Sandbox
from tests.hostile import EVERYTHING, Prey, prey
from tests.nobody import passed


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Prey]:
    with prey(tmp_path) as made:
        yield made


def run(script: str, box: Sandbox | None = None, cwd: Path | None = None) -> CommandResult:
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
    process.give(build)
    box = Sandbox(readable=(source,), writable=(build,))
    asked = f'{source} {other} / /usr /etc /proc/sys/kernel /dev/shm "$HOME" /tmp {build}'
    touched = f'{source} {other} "$HOME" {build}'
    script = f"""cat {source}/file
        for place in {asked}; do [ -w $place ] && echo $place; done
        for place in {touched}; do touch $place/new 2>/dev/null; done"""
    assert run(script, box).stdout.split() == ["old", "/dev/shm", "/tmp/home", "/tmp", str(build)]
    assert list(tmp_path.rglob("new")) == [build / "new"]


def test_programs_that_other_files_of_the_system_choose_run(tmp_path: Path) -> None:
    """As awk, a link to /etc/alternatives/awk in Debian; what is shown can be entered by whoever a command is."""
    script = (
        'awk "BEGIN { print 1 + 1 }"; for place in /* /etc/*; do [ -d $place ] && ! [ -x $place ] && echo $place; done'
    )
    assert run(script, Sandbox(readable=(tmp_path,))).stdout == "2\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts something")
def test_what_is_mounted_below_a_place_is_as_writable_as_that(tmp_path: Path) -> None:
    source, build = tmp_path / "my source", tmp_path / "my source/build"
    inner = [source / "inner", build / "inner"]
    for place in inner:
        place.mkdir(parents=True)
    with ExitStack() as mounted:
        for place in inner:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,mode=1777", "tmpfs", place], check=True)
            mounted.callback(subprocess.check_call, ["umount", str(place)])
            (place / "file").write_text("seen\n")
        script = 'for place; do cat "$place/file"; touch "$place/new"; done'
        words = ["sh", "-c", script, "sh", *map(str, inner)]
        done = process.run(words, deadline_s=20, within=Sandbox((source,), (build,)).words, check=False)
        assert (done.stdout, [(place / "new").exists() for place in inner]) == ("seen\nseen\n", [False, True])


def test_a_command_in_it_has_no_capabilities_and_no_way_to_some() -> None:
    names = ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs")
    status = run(f"grep -E '^({'|'.join(names)})' /proc/self/status").stdout.split()
    assert dict(zip(status[::2], status[1::2], strict=True)) == {
        **{f"{name}:": "0" * 16 for name in names[:-1]},
        "NoNewPrivs:": "1",
    }


def test_an_ordinary_user_is_itself_in_it_and_root_somebody_who_is_nobody_else(tmp_path: Path) -> None:
    numbers = [int(number) for number in run("id -u; id -g; id -G").stdout.split()]
    if os.geteuid() != 0:
        assert numbers[0] == os.geteuid()
        assert run("unshare --user true").exit_status != 0  # nor is it root in a namespace of its own
        return
    assert numbers == [numbers[0]] * 3
    for find in (pwd.getpwuid, grp.getgrgid):
        with pytest.raises(KeyError):
            find(numbers[0])
    assert "CapBnd:\t" + "0" * 16 in run("cat /proc/self/status").stdout
    # What is root's alone, and the process of root's that waits for the command.
    (tmp_path / "private").write_text("private\n")
    (tmp_path / "private").chmod(0o600)
    tmp_path.chmod(0o755)
    tried = run(f"cat {tmp_path}/private /proc/1/environ; kill -9 1; echo still here", Sandbox(readable=(tmp_path,)))
    assert tried.stdout == "still here\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user than root has no other user")
def test_a_program_that_only_root_may_run_refuses_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program of that name would take its place."""
    directory = tmp_path / "bin"
    directory.mkdir(mode=0o755)
    for name in ("gcc", "own-cc"):
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    sandbox.check("gcc", "own-cc", "make", "surely-not-there")
    directory.chmod(0o700)
    with pytest.raises(UserError, match=r"/bin/gcc cannot be run in the sandbox, where gcc is /usr/bin/gcc") as caught:
        sandbox.check("make", "gcc")
    assert str(directory) in caught.value.hint
    with pytest.raises(UserError, match="where own-cc is not found"):
        sandbox.check("own-cc")


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are of such a user")
def test_what_matters_holds_for_an_ordinary_user_too(tmp_path: Path) -> None:
    """Whose sandbox is one of a user namespace: other options of bwrap(1) than root's."""
    names = (
        "test_an_attack_that_succeeds_without_it_gets_nothing_in_it",
        "test_only_what_is_writable_can_be_written",
        "test_a_command_in_it_has_no_capabilities_and_no_way_to_some",
        "test_an_ordinary_user_is_itself_in_it_and_root_somebody_who_is_nobody_else",
        "test_it_ends_with_the_process_that_began_it",
    )
    with tempfile.TemporaryDirectory() as home:  # unlike pytest's, in one that others may enter
        assert passed(*(f"{__file__}::{name}" for name in names), home=Path(home)) == len(names)


def test_it_ends_with_the_process_that_began_it() -> None:
    """Killed as nothing can prepare for; its whole tree of processes, sessions of their own included."""
    nap = f"300.{os.getpid()}7"
    script = (
        "from bisector.host import process; from bisector.host.sandbox import Sandbox;"
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


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A socket's name has at most 107 bytes (unix(7)), which those of ``tmp_path`` exceed."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.mark.parametrize("of_a_container", [False, True])
def test_a_socket_beside_programs_cannot_be_connected_to(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, of_a_container: bool
) -> None:
    """The kernel does not tell where that of a container is: nor where one is that was bound by a relative name."""
    place = short_path / "my tools"
    (place / "daemon").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    sandbox._special_files_below.cache_clear()
    if of_a_container:
        monkeypatch.setattr(sandbox, "_OPT", place)
        monkeypatch.chdir(place)
    script = "use IO::Socket::UNIX; print IO::Socket::UNIX->new(shift) ? 1 : 0"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("daemon/socket" if of_a_container else str(place / "daemon/socket"))
        listening.listen()
        (place / "daemon/socket").chmod(0o777)
        words = ["perl", "-e", script, str(place / "daemon/socket")]
        found = [process.run(words, deadline_s=20, within=one).stdout for one in ((), Sandbox().words)]
    assert found == ["1", "0"]


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
    with pytest.raises(UserError, match=r"there is no sandbox .*: its home (cannot be entered|is not empty)$"):
        sandbox.check()
    program.write_text("#!/bin/sh\nexit 7\n")
    with pytest.raises(UserError, match=r"there is no sandbox .*: what makes it ended with status 7$"):
        sandbox.check()
