"""Nights in which something fails: no other job is stopped, and it is told once."""

import errno
import os
from collections.abc import Callable

import pytest

from bisector.bisect import session
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, UserError
from bisector.core.objective import MetricAbsent
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.store.nights import NightEnding, Tip, nights_home
from tests import fakes
from tests.nightly.conftest import Make, World


def test_job_that_fails_stops_no_other_and_is_told_once(make_world: Make) -> None:
    world = make_world(("gone", "cache"))
    (world.path / "gone.git").rename(world.path / "away.git")
    for _ in range(2):
        assert world.night() is NightEnding.DONE
    assert world.measured() == ["c2"]
    ((job, subject, text),) = world.letters.notices
    assert (job, subject) == ("gone", "bisector nightly: gone: fetch failed")
    assert "does not answer" in text
    (world.path / "away.git").rename(world.path / "gone.git")
    world.night()
    (world.path / "gone.git").rename(world.path / "away.git")
    world.night()
    assert len(world.letters.notices) == 2


def test_password_of_a_remote_is_told_to_nobody(world: World) -> None:
    world.extra = {"cache": 'remote = "http://me:secret@127.0.0.1:1/linux.git?private_token=secret"'}
    world.night()
    ((_, _, text),) = world.letters.notices
    assert "the remote http://127.0.0.1:1/linux.git does not answer" in text
    assert "secret" not in "".join((text, *world.told, *(str(event) for event in world.events())))


def test_what_nobody_could_be_told_is_told_the_next_night(world: World) -> None:
    world.letters.mute = True
    world.extra = {"cache": 'remote = "nowhere"'}
    world.night()
    world.letters.mute = False
    for _ in range(2):
        world.night()
    assert len(world.letters.notices) == 1


def test_tip_that_does_not_build_is_told_once_and_compared_with_nothing(world: World) -> None:
    world.night()
    engine = world.engines["cache"]
    for tip in ("c4", "c5"):
        engine.faults = {**engine.faults, world.push("cache", tip): fakes.BUILD_ERROR}
        world.night()
    assert world.classes() == ["first", "untestable", "untestable"]
    assert len(world.letters.notices) == 1
    world.night()
    assert world.measured() == ["c2", "c4", "c5"]


def test_weak_evidence_and_infrastructure_errors_are_tried_again(world: World) -> None:
    world.engines["cache"].busy = {world.shas["c2"]: 2}
    world.engines["cache"].infra = {world.shas["c3"]: 2}
    world.night()
    world.night(tip="c3")
    assert world.measured() == ["c2"] * 3 + ["c3"]
    assert world.classes() == ["first", "same"]
    assert not world.letters.notices


def test_branch_that_was_reset_is_told_and_gone_on_from(world: World) -> None:
    world.push("cache", "c9")
    world.slower("c1", "c4")
    world.night()
    ((_, _, text),) = world.letters.notices
    assert "swapped" in text
    world.night(tip="c5")
    assert world.classes() == ["first", "slower", "same"]


def test_bisection_that_fails_each_night_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.slower()

    def fails(*_: object) -> None:
        raise InfraError("no room on the disk")

    monkeypatch.setattr("bisector.bisect.session.go_on", fails)
    for _ in range(3):
        world.night()
    assert world.history().open is None
    (_, _, first), (_, _, last) = world.letters.notices
    assert first.startswith("no room on the disk")
    run_dir = world.history().nights[-1].concluded[0].run_dir
    assert last.startswith(
        f"given up after 3 nights: no room on the disk\n\nbisector resume --run-dir {run_dir} goes on with it all the "
        f"same; until it is ended by bisector reset --run-dir {run_dir} its files stay, and its references in "
    )
    world.night(tip="c10")
    assert world.classes()[-1] == "same"


def test_bisection_waits_until_a_persons_mistake_is_put_right(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the four nights with a mistake none counts as one in which the bisection failed."""
    world.slower()
    errors = [*[UserError("gcc-12 is not installed", "apt install gcc-12")] * 4, *[InfraError("no room")] * 2]

    def fails(*_: object) -> None:
        raise errors.pop(0)

    with monkeypatch.context() as patch:
        patch.setattr(session, "go_on", fails)
        for _ in range(len(errors)):
            world.night()
    assert world.history().open is not None
    assert [text.partition("\n")[0] for _, _, text in world.letters.notices] == ["gcc-12 is not installed", "no room"]
    world.night()
    (concluded,) = world.history().nights[-1].concluded
    assert concluded.state is State.FOUND


def test_a_metric_that_no_run_has_is_waited_for_by_no_bisection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise MetricAbsent("no run has it")

    world.slower()
    monkeypatch.setattr(session.Bisection, "run", fails)
    world.night()
    (concluded,) = world.history().nights[-1].concluded
    assert (concluded.state, concluded.message) == (State.FAILED, "no run has it")


def breaks(*_: object, **__: object) -> Trial:
    raise TypeError("'NoneType' object is not subscriptable\n")


def no_room(*_: object, **__: object) -> Trial:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/srv/run/trials")


@pytest.mark.parametrize(
    ("fails", "step", "message"),
    [
        (breaks, "bug", "this is a bug in bisector: TypeError: 'NoneType' object is not subscriptable"),
        (no_room, "measure", "/srv/run/trials: No space left on device"),
    ],
)
def test_whatever_one_job_meets_stops_no_other(
    make_world: Make, monkeypatch: pytest.MonkeyPatch, fails: Callable[..., Trial], step: str, message: str
) -> None:
    world = make_world(("broken", "cache"))
    monkeypatch.setattr(world.engines["broken"], "measure", fails)
    for _ in range(2):
        assert world.night() is NightEnding.DONE
    assert world.measured() == ["c2"]
    trouble = world.history("broken").nights[-1].trouble
    assert trouble is not None
    assert (trouble.step, trouble.message) == (step, message)
    ((job, subject, text),) = world.letters.notices
    assert (job, subject) == ("broken", f"bisector nightly: broken: {step} failed")
    assert text.startswith(message)
    written = nights_home() / "jobs" / "broken" / "traceback.txt"
    if fails is breaks:
        assert str(written) in trouble.hint
        assert "in breaks\n" in written.read_text()
    else:
        assert not written.exists()


def test_bisection_that_takes_all_hours_and_fails_takes_no_other_jobs_night(
    make_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(("cache", "other"))
    world.slower()
    hours_gone = False

    def fails_at_the_end(*_: object) -> None:
        nonlocal hours_gone
        hours_gone = True
        breaks()

    monkeypatch.setattr("bisector.bisect.session.go_on", fails_at_the_end)
    monkeypatch.setattr(Deadline, "elapsed_s", property(lambda self: self.seconds if hours_gone else 0.0))
    for tip, reached in (("c3", []), ("c4", ["c4"]), ("c5", ["c4", "c5"])):
        hours_gone = False
        world.push("other", tip)
        world.night()
        assert world.measured("other") == ["c2", *reached]
    # The third night in which it failed was its last.
    assert [one.state for one in world.history().nights[-1].concluded] == [State.FAILED]
    assert world.history().open is None


def test_a_letter_that_nobody_can_write_ends_no_night(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container has no name for its user, say."""
    world = make_world(("gone", "cache"))
    (world.path / "gone.git").rename(world.path / "away.git")

    def nobody(*_: object) -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(world.letters, "notice", nobody)
    with pytest.raises(fakes.Killed):
        world.night(("cache", Tip))
    world.told.clear()
    assert world.night() is NightEnding.DONE
    assert world.measured() == ["c2"]
    assert [text for text in world.told if "nobody could be told: this is a bug in bisector: KeyError" in text]


def test_report_that_fails_is_tried_the_next_night(world: World) -> None:
    world.slower("c3", "c3")
    world.letters.mute = True
    world.night()
    assert not world.history().nights[-1].done
    world.letters.mute = False
    world.night()
    world.night()
    assert len(world.letters.reports) == 1
