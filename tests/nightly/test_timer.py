"""The units of systemd, and what a timer of the system may have root run: real files with other owners and modes."""

import os
import shutil
import stat
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.host import process
from bisector.nightly import plan, timer
from bisector.nightly.timer import Timer, check_for_root
from tests.git import histories


@pytest.fixture
def wanted(tmp_path: Path) -> plan.NightPlan:
    path = tmp_path / "my 100% $nights.toml"
    path.write_text('[[job]]\nname = "one"\nrepository = "linux"\nbranch = "main"\n')
    return plan.load(path)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("system", [True, False])
def test_systemd_finds_no_fault(wanted: plan.NightPlan, tmp_path: Path, system: bool) -> None:
    paths = timer.write(Timer(wanted, "01:30", system), tmp_path / "units")
    assert [path.name for path in paths] == ["bisector-nightly.service", "bisector-nightly.timer"]
    words: list[str | Path] = ["systemd-analyze", "--man=no", *([] if system else ["--user"]), "verify", *paths]
    found = process.run(words, deadline_s=60, env={"XDG_RUNTIME_DIR": str(tmp_path)}, check=False)
    # It reads the machine's other units, too, whose sockets find a long XDG_RUNTIME_DIR too long.
    assert not [line for line in found.stderr.splitlines() if "bisector-nightly" in line]


def test_what_the_units_say(wanted: plan.NightPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Timer(wanted, "23:05", system=False, hosts=tmp_path / "hosts.toml")
    service, times = (made.files()[f"bisector-nightly.{kind}"].splitlines() for kind in ("service", "timer"))
    path = f"{wanted.path.parent}/my 100%% $nights.toml"
    (line,) = [line for line in service if line.startswith("ExecStart=")]
    quoted = path.replace("$", "$$")
    assert line.endswith(f'-m bisector nightly --config "{quoted}" --hosts {tmp_path}/hosts.toml')
    assert {f"Environment=XDG_STATE_HOME={tmp_path}/state", f"Description=bisector: a night of {path}"} <= set(service)
    with pytest.raises(UserError, match="--at 24:00"):
        Timer(wanted, "24:00", system=False)
    # Missed nights are made up for.
    assert {"OnCalendar=*-*-* 23:05:00", "Persistent=yes"} <= set(times)
    assert made.crontab().startswith("5 23 * * * ")
    assert made.crontab().endswith(rf"my 100\% $nights.toml' --hosts {tmp_path}/hosts.toml")


@pytest.mark.parametrize("system", [True, False])
def test_a_process_killed_for_want_of_memory_ends_no_night(wanted: plan.NightPlan, system: bool) -> None:
    settings = Timer(wanted, "01:30", system).files()["bisector-nightly.service"].splitlines()
    assert "OOMPolicy=continue" in settings
    assert "LimitCORE=0" in settings
    # Nothing that makes a guest wait for other processes.
    assert not [one for one in settings if one.startswith(("Nice", "CPU", "IO", "Memory"))]


def test_a_daemon_sees_our_temporary_files(wanted: plan.NightPlan) -> None:
    def private_tmp() -> str:
        text = Timer(plan.load(wanted.path), "01:30", system=True).files()["bisector-nightly.service"]
        return next(line for line in text.splitlines() if line.startswith("PrivateTmp="))

    assert private_tmp() == "PrivateTmp=yes"
    with wanted.path.open("a") as file:
        file.write('[job.settings]\nmachine.connect = "qemu:///system"\n')
    assert private_tmp() == "PrivateTmp=no"


def test_units_of_another_file_stay(wanted: plan.NightPlan, tmp_path: Path) -> None:
    timer.write(Timer(wanted, "01:30", system=False), tmp_path / "units")
    timer.write(Timer(wanted, "02:30", system=False), tmp_path / "units")
    other = tmp_path / "other.toml"
    shutil.copy(wanted.path, other)
    with pytest.raises(UserError, match="for the nights of another file"):
        timer.write(Timer(plan.load(other), "01:30", system=False), tmp_path / "units")
    assert len(timer.remove(tmp_path / "units")) == 2
    assert not list((tmp_path / "units").iterdir())


def test_example_of_the_docs_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/nightly.md").read_text(encoding="utf-8")
    (example,) = [
        block.partition("```")[0] for block in page.split("```toml\n")[1:] if "[[job]]" in block.partition("```")[0]
    ]
    assert tomllib.loads(example)["job"]
    path = tmp_path / "nightly.toml"
    path.write_text(example, encoding="utf-8")
    assert plan.load(path).jobs


# What root runs


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> plan.NightPlan:
    """Jobs in a directory that is root's alone, as far as the user who runs this test can be root."""
    monkeypatch.setattr(timer, "_ROOT", frozenset((0, os.getuid())))
    home = tmp_path / "srv"
    histories.build(home / "linux", histories.linear(1))
    (home / "mine.config").touch()
    path = home / "nightly.toml"
    path.write_text(
        '[settings]\nkernel.fragments = ["auto", "./mine.config"]\n'
        '[[job]]\nname = "one"\nrepository = "linux"\nbranch = "main"\n'
    )
    return by_root_alone(home)


def by_root_alone(home: Path) -> plan.NightPlan:
    for one in (home, *home.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)
    return plan.load(home / "nightly.toml")


@pytest.fixture
def job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the thousands of files of the libraries."""

    def parts(nights: Timer) -> Iterator[tuple[str, Path]]:
        yield "the jobs of", nights.plan.path
        yield from timer._of_job(nights.plan.jobs[0])

    monkeypatch.setattr(timer, "_parts", parts)


def written_by_all(path: Path) -> None:
    path.chmod(0o777 if path.is_dir() else 0o666)


@pytest.mark.usefixtures("job_alone")
def test_what_others_can_write_is_refused(trusted: plan.NightPlan) -> None:
    for name in (".", "nightly.toml", "mine.config", "linux", "linux/.git", "linux/.git/objects"):
        path = trusted.path.parent / name
        mode = path.stat().st_mode
        path.chmod(mode | stat.S_IWGRP if name == "mine.config" else mode | stat.S_IWGRP | stat.S_IWOTH)
        with pytest.raises(UserError, match="and root would run") as caught:
            check_for_root(Timer(trusted, "01:30", system=True))
        assert caught.value.message.startswith(f"{path} can be written by its group")
        assert "/opt/bisector" in caught.value.hint
        path.chmod(mode)
        check_for_root(Timer(trusted, "01:30", system=True))


@pytest.mark.usefixtures("job_alone")
@pytest.mark.parametrize(("words", "there"), [("{}", True), ("ccache {} -m64", False)])
def test_a_compiler_that_others_can_write_is_refused(trusted: plan.NightPlan, words: str, there: bool) -> None:
    """It is asked for its version outside of the sandbox; one that is not there yet can be put there."""
    home = trusted.path.parent
    compiler = home / "bin/gcc"
    compiler.parent.mkdir()
    compiler.touch()
    text = trusted.path.read_text()
    trusted.path.write_text(text.replace("[settings]", f'[settings]\nkernel.compiler = "{words.format(compiler)}"'))
    of_root = by_root_alone(home)
    compiler.chmod(0o755)
    check_for_root(Timer(of_root, "01:30", system=True))
    if there:
        compiler.chmod(0o777)
    else:
        compiler.unlink()
        written_by_all(compiler.parent)
    with pytest.raises(UserError, match=f"and root would run job one with the compiler {compiler} every night"):
        check_for_root(Timer(of_root, "01:30", system=True))


@pytest.mark.usefixtures("job_alone")
def test_the_repository_of_a_linked_worktree_is_looked_at(trusted: plan.NightPlan) -> None:
    home = trusted.path.parent
    (home / "linux").rename(home / "clone")
    histories.git(home / "clone", "worktree", "add", "-q", "--detach", str(home / "linux"))
    of_root = by_root_alone(home)
    check_for_root(Timer(of_root, "01:30", system=True))
    for name in ("config", "objects", "worktrees/linux", "worktrees/linux/commondir"):
        path = home / "clone/.git" / name
        mode = path.stat().st_mode
        written_by_all(path)
        with pytest.raises(UserError, match=f"{path} can be written by .* run git for job one"):
            check_for_root(Timer(of_root, "01:30", system=True))
        path.chmod(mode)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_somebody_else_is_refused(trusted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    os.chown(trusted.path, 65_534, 65_534)
    with pytest.raises(UserError, match=r"nightly\.toml belongs to nobody"):
        check_for_root(Timer(trusted, "01:30", system=True))


def test_a_link_in_somebodys_directory_is_refused(trusted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter of a venv is a link to the system's: who can write the directory can turn it."""
    venv = trusted.path.parent / "venv"
    venv.mkdir()
    (venv / "python3").symlink_to("/usr/bin/env")
    (venv / "python").symlink_to("python3")
    written_by_all(venv)
    link = trusted.path.parent / "python"
    link.symlink_to("venv/../venv/python")
    monkeypatch.setattr(sys, "executable", str(link))
    with pytest.raises(UserError, match=f"{venv} can be written by .*root would run the interpreter {link}"):
        check_for_root(Timer(trusted, "01:30", system=True))


def test_a_sticky_directory_above_is_none_of_it(trusted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer, "_parts", lambda nights: [("the jobs of", nights.plan.path)])
    trusted.path.parent.chmod(0o1777)
    check_for_root(Timer(trusted, "01:30", system=True))
    link = trusted.path.with_name("loop")
    link.symlink_to("loop")
    monkeypatch.setattr(timer, "_parts", lambda trusted: [("a loop", link), ("nothing", link.with_name("none") / "a")])
    check_for_root(Timer(trusted, "01:30", system=True))


def test_hosts_that_others_could_add_to_are_refused(trusted: plan.NightPlan, tmp_path: Path) -> None:
    """A host of the fleet can run programs as root, then."""
    hosts = tmp_path / "srv" / "hosts.toml"
    hosts.touch(0o666)
    written_by_all(hosts)
    with pytest.raises(UserError, match="with the hosts of"):
        check_for_root(Timer(trusted, "01:30", system=True, hosts=hosts))


def test_everything_that_is_run_is_looked_at(trusted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/home/anna/bin")
    monkeypatch.setenv("CCACHE_DIR", "/home/anna/ccache")
    seen = {path for _, path in timer._parts(Timer(trusted, "01:30", system=True))}
    own = (resources.PACKAGE / "cli.py", resources.kconfigs() / "vm.config", Path(pytest.__file__))
    assert {Path(sys.executable), Path("/home/anna/bin"), Path("/home/anna/ccache"), *own} <= seen


def test_nothing_is_installed(
    trusted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timer, "_RUNNING", tmp_path)
    monkeypatch.setattr(timer, "_SYSTEM", tmp_path / "units")
    written_by_all(trusted.path)
    assert main(["nightly", "--config", str(trusted.path), "--install-timer", "--system"]) == 2
    assert "and root would run the jobs of" in capsys.readouterr().err
    assert not (tmp_path / "units").exists()
