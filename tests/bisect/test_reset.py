"""A run that is ended, and what is removed of it."""

import errno
import shutil
from pathlib import Path

import pytest

from bisector.cli import main
from tests.bisect.site import Site, interrupted_at
from tests.git.conftest import unconfigured as unconfigured  # noqa: PLC0414 - a fixture of this room, too


def test_reset_of_a_run_whose_repository_is_gone_removes_the_rest(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted_at(monkeypatch, site, "c5")
    for left in ("build", "worktrees/source"):
        (site.home / "run" / left).mkdir(parents=True, exist_ok=True)
    shutil.rmtree(site.repository)
    assert main(["reset", "--run-dir", str(site.home / "run")]) == 0
    assert f"bisector: {site.repository} is gone, and what was registered there with it" in capsys.readouterr().err
    assert not (site.home / "run/build").exists()
    assert not (site.home / "run/worktrees").exists()
    assert main(["reset", "--delete", "--run-dir", str(site.home / "run")]) == 0
    assert not (site.home / "run").exists()


def test_reset_lets_go_and_takes_a_link_away_and_not_what_it_leads_to(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_at(monkeypatch, site, "c5")
    elsewhere = site.home / "fast disk"
    elsewhere.mkdir()
    (elsewhere / "vmlinux").touch()
    (site.home / "run/build").symlink_to(elsewhere)
    assert main(["reset", "--run-dir", str(site.home / "run")]) == 0
    assert site.held() == []
    assert not (site.home / "run/build").is_symlink()
    assert (elsewhere / "vmlinux").exists()


def test_reset_tells_what_cannot_be_removed(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(path: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(path))

    interrupted_at(monkeypatch, site, "c5")
    (site.home / "run/build").mkdir(exist_ok=True)
    with monkeypatch.context() as patch:
        patch.setattr("bisector.commands.machine.remove_tree", busy)
        assert main(["reset", "--run-dir", str(site.home / "run")]) == 4
    assert f"bisector: {site.home}/run/build: Device or resource busy" in capsys.readouterr().err
