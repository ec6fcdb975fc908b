"""What a timer of the system may have root run: real files with other owners and modes."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.nightly import plan, timer
from bisector.nightly.timer import Timer, check_for_root
from tests.git import histories


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> plan.NightPlan:
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
def test_what_others_can_write_is_refused(wanted: plan.NightPlan) -> None:
    for name in (".", "nightly.toml", "mine.config", "linux", "linux/.git", "linux/.git/objects"):
        path = wanted.path.parent / name
        mode = path.stat().st_mode
        path.chmod(mode | stat.S_IWGRP if name == "mine.config" else mode | stat.S_IWGRP | stat.S_IWOTH)
        with pytest.raises(UserError, match="and root would run") as caught:
            check_for_root(Timer(wanted, "01:30", system=True))
        assert caught.value.message.startswith(f"{path} can be written by its group")
        assert "/opt/bisector" in caught.value.hint
        path.chmod(mode)
        check_for_root(Timer(wanted, "01:30", system=True))


@pytest.mark.usefixtures("job_alone")
@pytest.mark.parametrize(("words", "there"), [("{}", True), ("ccache {} -m64", False)])
def test_a_compiler_that_others_can_write_is_refused(wanted: plan.NightPlan, words: str, there: bool) -> None:
    """It is asked for its version outside of the sandbox; one that is not there yet can be put there."""
    home = wanted.path.parent
    compiler = home / "bin/gcc"
    compiler.parent.mkdir()
    compiler.touch()
    text = wanted.path.read_text()
    wanted.path.write_text(text.replace("[settings]", f'[settings]\nkernel.compiler = "{words.format(compiler)}"'))
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
def test_the_repository_of_a_linked_worktree_is_looked_at(wanted: plan.NightPlan) -> None:
    home = wanted.path.parent
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
def test_what_belongs_to_somebody_else_is_refused(wanted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    os.chown(wanted.path, 65_534, 65_534)
    with pytest.raises(UserError, match=r"nightly\.toml belongs to nobody"):
        check_for_root(Timer(wanted, "01:30", system=True))


def test_a_link_in_somebodys_directory_is_refused(wanted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter of a venv is a link to the system's: who can write the directory can turn it."""
    venv = wanted.path.parent / "venv"
    venv.mkdir()
    (venv / "python3").symlink_to("/usr/bin/env")
    (venv / "python").symlink_to("python3")
    written_by_all(venv)
    link = wanted.path.parent / "python"
    link.symlink_to("venv/../venv/python")
    monkeypatch.setattr(sys, "executable", str(link))
    with pytest.raises(UserError, match=f"{venv} can be written by .*root would run the interpreter {link}"):
        check_for_root(Timer(wanted, "01:30", system=True))


def test_a_sticky_directory_above_is_none_of_it(wanted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer, "_parts", lambda nights: [("the jobs of", nights.plan.path)])
    wanted.path.parent.chmod(0o1777)
    check_for_root(Timer(wanted, "01:30", system=True))
    link = wanted.path.with_name("loop")
    link.symlink_to("loop")
    monkeypatch.setattr(timer, "_parts", lambda wanted: [("a loop", link), ("nothing", link.with_name("none") / "a")])
    check_for_root(Timer(wanted, "01:30", system=True))


def test_hosts_that_others_could_add_to_are_refused(wanted: plan.NightPlan, tmp_path: Path) -> None:
    """A host of the fleet can run programs as root, then."""
    hosts = tmp_path / "srv" / "hosts.toml"
    hosts.touch(0o666)
    written_by_all(hosts)
    with pytest.raises(UserError, match="with the hosts of"):
        check_for_root(Timer(wanted, "01:30", system=True, hosts=hosts))


def test_everything_that_is_run_is_looked_at(wanted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/home/anna/bin")
    monkeypatch.setenv("CCACHE_DIR", "/home/anna/ccache")
    seen = {path for _, path in timer._parts(Timer(wanted, "01:30", system=True))}
    own = (resources.PACKAGE / "cli.py", resources.kconfigs() / "vm.config", Path(pytest.__file__))
    assert {Path(sys.executable), Path("/home/anna/bin"), Path("/home/anna/ccache"), *own} <= seen


def test_nothing_is_installed(
    wanted: plan.NightPlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timer, "_RUNNING", tmp_path)
    monkeypatch.setattr(timer, "_SYSTEM", tmp_path / "units")
    written_by_all(wanted.path)
    assert main(["nightly", "--config", str(wanted.path), "--install-timer", "--system"]) == 2
    assert "and root would run the jobs of" in capsys.readouterr().err
    assert not (tmp_path / "units").exists()
