"""A run from its start to its end, or its removal: real git and store, and a bench that answers from a table."""

import errno
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.bisect import session
from bisector.bisect.session import BisectRequest
from bisector.cli import main
from bisector.config import options
from bisector.core.errors import Finding, Grade, InfraError, UserError
from bisector.core.events import Note
from bisector.core.objective import MetricAbsent
from bisector.core.subject import Kind
from bisector.core.verdict import State, Strategy
from bisector.doctor import checks
from bisector.git.repository import Repository
from bisector.mail.outbox import DRAFT
from bisector.store.facts import Fact, StateChange
from bisector.store.store import Store
from tests import fakes, recorded_run
from tests.bisect.lab import DEFAULTS
from tests.bisect.site import RUNS, Site, interrupted_at
from tests.git import histories
from tests.git.conftest import unconfigured as unconfigured  # noqa: PLC0414 - a fixture of this room, too
from tests.nested import nested


def test_an_end_that_lacks_an_option_of_the_stack_is_refused_before_anything(site: Site) -> None:
    site.git("checkout", "-q", "-f", "main")
    site.git("rm", "-q", "drivers/Kconfig")
    site.git("commit", "-q", "-m", "no drivers")
    with pytest.raises(
        UserError, match=r"\(no drivers\) has no CONFIG_MD, .*: the layer lvmcache of the stack lvmcache"
    ):
        site.begin()
    assert not (site.home / "run").exists()


def test_a_metric_that_fio_does_not_write_ends_the_run_and_resume_is_not_advised(site: Site) -> None:
    site.settings = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, metric="read.clat.p99.5"))
    with pytest.raises(MetricAbsent) as caught:
        site.begin()
    assert state(site) is State.FAILED
    assert "resume" not in caught.value.hint
    assert len(site.engine.measured) == 1


def test_an_end_of_a_run_holds_nothing(site: Site) -> None:
    refs = site.git("for-each-ref")
    assert site.begin() is State.FOUND
    assert site.git("for-each-ref") == refs
    assert not (site.repository / ".git" / RUNS).exists()


@pytest.fixture
def narrowed(site: Site) -> Site:
    """A run whose culprit was given up: the host was busy each time, and no end without the culprit works."""
    site.settings = replace(DEFAULTS, bisect=replace(DEFAULTS.bisect, strategy=Strategy.GIT))
    site.engine.busy = {site.shas["c3"]: 99}
    assert site.begin() is State.NARROWED
    site.engine.busy = {}
    return site


def state(site: Site) -> State | None:
    with Store.open(site.home / "run/record.sqlite", readonly=True) as store:
        last = store.state()
        return last.state if last else None


def test_a_run_that_resume_goes_on_with_holds_its_ends(narrowed: Site) -> None:
    assert narrowed.held() == ["new c5", "old c0"]
    narrowed.lose_the_branches()
    assert narrowed.resume() is State.FOUND
    assert narrowed.held() == []


def test_an_answer_outlives_its_history(narrowed: Site) -> None:
    for name in narrowed.git("for-each-ref", "--format=%(refname)", RUNS).split():
        narrowed.git("update-ref", "-d", name)
    narrowed.lose_the_branches()
    with pytest.raises(UserError, match="unknown revision"):
        narrowed.resume()
    assert state(narrowed) is State.NARROWED


def test_a_run_whose_weak_commit_a_person_skips_has_its_answer(narrowed: Site) -> None:
    narrowed.engine.busy = {narrowed.shas["c3"]: 99}
    with Store.open(narrowed.home / "run/record.sqlite") as store:
        assert session.goes_on(store)
        session.skip(store, (narrowed.shas["c3"],))
        assert not session.goes_on(store)
    assert narrowed.resume() is State.NARROWED
    assert narrowed.held() == []
    assert main(["resume", "--quiet", "--run-dir", str(narrowed.home / "run")]) == 3


@pytest.mark.parametrize("subject", ["c5", 'Revert "c3"'])
def test_history_that_is_gone_while_a_run_is_stopped(site: Site, monkeypatch: pytest.MonkeyPatch, subject: str) -> None:
    """Stopped at an end, and at the end without the culprit, which is in no branch anyway."""
    interrupted_at(monkeypatch, site, subject)
    assert site.held() == ["new c5", "old c0"]
    site.lose_the_branches()
    assert site.resume() is State.FOUND
    with Store.open(site.home / "run/record.sqlite", readonly=True) as store:
        assert Kind.REVERTED in [trial.subject.kind for _, trial in store.trials()]
    assert site.held() == []


def test_resume_tells_what_weakens_the_evidence(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def places(asked: checks.CheckContext) -> Finding:
        return Finding("run directory", Grade.WARN, f"{asked.run_dir} is on tmpfs")

    def go_on(*_: object) -> None:
        assert "is on tmpfs" in capsys.readouterr().err
        raise InfraError("that is all")

    interrupted_at(monkeypatch, site, "c5")
    monkeypatch.setattr(checks, "PROBES", (checks.Probe("places", checks.NeededFor.RUN, places, warns=True),))
    monkeypatch.setattr(session, "go_on", go_on)
    assert main(["resume", "--run-dir", str(site.home / "run")]) == 4
    assert "that is all" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["build", "worktrees/source"])
def test_an_answer_is_not_lost_to_directories_that_a_make_has_nested(
    site: Site, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    interrupted_at(monkeypatch, site, "c3")
    (site.home / "run" / place).mkdir(exist_ok=True)
    with nested(site.home / "run" / place, 1500):
        assert site.resume() is State.FOUND
        assert not (site.home / "run" / place).exists()


def test_the_answer_is_told_before_what_is_needed_no_more_is_removed(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some 80,000 files, which take minutes on a busy disk."""
    interrupted_at(monkeypatch, site, "c5")
    (site.home / "run/build").mkdir()
    monkeypatch.setattr("bisector.doctor.checks.warn_again", lambda *_: None)
    monkeypatch.setattr("bisector.commands.measuring.here", site._equip)
    told = fakes.told_before_removal(monkeypatch, lambda: capsys.readouterr().out)
    assert main(["resume", "--run-dir", str(site.home / "run")]) == 0
    for place in ("build", "source"):
        assert f"{site.shas['c3'][:12]} is the first fixed commit" in told[place]
    assert not (site.home / "run/worktrees").exists()


def test_lock_of_a_killed_git_on_our_references_is_removed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted_at(monkeypatch, site, "c5")
    (found,) = (site.repository / ".git" / RUNS).iterdir()
    (found / "old.lock").touch()
    assert site.resume() is State.FOUND


def test_an_answer_is_not_lost_to_a_reference(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(repository: Repository, run_dir: Path) -> None:
        raise InfraError("somebody else's git is at packed-refs", "wait for it")

    with monkeypatch.context() as patch:
        patch.setattr("bisector.campaign.life.release", locked)
        assert site.begin() is State.FOUND
    told = [event.text for event in site.events if isinstance(event, Note)]
    resume = f"bisector resume --run-dir {site.home / 'run'}"
    why = "somebody else's git is at packed-refs (wait for it; then"
    assert f"this run has left something behind: {why} {resume} removes the rest)" in told
    assert main(["resume", "--run-dir", str(site.home / "run")]) == 0
    assert site.held() == []


def test_a_lock_that_a_killed_git_left_on_all_references_is_named_and_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is deleted is locked with all other references, and nothing tells whose such a lock is."""
    interrupted_at(monkeypatch, site, "c5")
    lock = site.repository / ".git/packed-refs.lock"
    lock.touch()
    assert main(["reset", "--run-dir", str(site.home / "run")]) == 4
    said = capsys.readouterr().err
    assert f"Unable to create '{lock}': File exists" in said
    assert f"if no git is at work in this repository, one was killed there: rm {lock}" in said
    lock.unlink()
    assert main(["reset", "--run-dir", str(site.home / "run")]) == 0
    assert site.held() == []


def test_attributes_of_the_clone_are_refused_before_anything_is_recorded(site: Site) -> None:
    (site.repository / ".git/info").mkdir(exist_ok=True)
    (site.repository / ".git/info/attributes").write_text("*.c ident\n")
    with pytest.raises(UserError, match=r"info/attributes:1 sets ident"):
        site.begin()
    assert not (site.home / "run").exists()


def test_killed_between_the_answer_and_its_letter(tmp_path: Path) -> None:
    record = recorded_run.found(tmp_path)
    (record.run.path / "build").mkdir()
    assert main(["resume", "--run-dir", str(record.run.path)]) == 0
    letter = (record.run.path / DRAFT).read_text()
    assert f"{record.shas['c3'][:12]}" in letter
    assert not (record.run.path / "build").exists()
    (record.run.path / DRAFT).write_text("as the person edited it")
    assert main(["resume", "--run-dir", str(record.run.path)]) == 0
    assert (record.run.path / DRAFT).read_text() == "as the person edited it"


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("entered", [State.RUNNING, State.FOUND])
def test_killed_at_a_state_it_goes_on_and_measures_nothing_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch, entered: State, before: bool
) -> None:
    add = Store.add

    def dying(store: Store, *facts: Fact) -> int:
        dies = any(isinstance(fact, StateChange) and fact.state is entered for fact in facts)
        if dies and before:
            raise fakes.Killed
        first = add(store, *facts)
        if dies:
            raise fakes.Killed
        return first

    with monkeypatch.context() as patch:
        patch.setattr(Store, "add", dying)
        with pytest.raises(fakes.Killed):
            site.begin()
    measured = list(site.engine.measured)
    assert bool(measured) is (entered is State.FOUND)
    assert site.resume() is State.FOUND
    assert site.held() == []
    assert site.engine.measured[: len(measured)] == measured
    assert not measured or site.engine.measured == measured


def test_clone_that_the_workload_searches_is_made_before_the_first_trial(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(site.home / "cache"))
    given = {"workload.gitgrep.pattern": "dm", "workload.gitgrep.path": "drivers", "workload.gitgrep.commit": "main"}
    asked = BisectRequest(site.repository, "old", "main", options.load(given, directory=Path("/")).settings)
    with session.begun(asked, site.home / "run", lambda _: None) as (run, store):
        bundle = options.from_json(store.bisection().settings).workload.inputs["bundle"]
    assert bundle.is_relative_to(run.path)
    assert histories.git(site.home, "bundle", "list-heads", str(bundle)).endswith("refs/heads/tree")
    missing = replace(
        asked, settings=options.load({**given, "workload.gitgrep.path": "fs"}, directory=Path("/")).settings
    )
    with (
        pytest.raises(UserError, match="has no directory 'fs' to clone"),
        session.begun(missing, site.home / "other", lambda _: None),
    ):
        pass
    assert not (site.home / "other").exists()


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
