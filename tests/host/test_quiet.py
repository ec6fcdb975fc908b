"""Before a trial is repeated the host is quiet, or the run stops; nothing here waits in earnest."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from bisector.config import ContentionSettings
from bisector.core.errors import InfraError
from bisector.core.figures import Contention
from bisector.host import load as quiet
from bisector.host.load import Load, look_around, quiet_turn

LIMITS = ContentionSettings(max_other_cores=0.5, max_steal_share=0.1, patience_s=3600.0)
QUIET = Load(Contention(0.1, 0.0, 0.0), ())
BUSY = Load(Contention(1.9, 0.0, 0.0), (("cc1", 1.4), ("rsync", 0.4)))
DEPRIVED = Load(Contention(0.1, 0.4, 0.0), ())


class Clock:
    """Time that passes by looking: ten seconds a look; and turns, which others have while it is told so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loads: Iterable[Load], others: Iterable[bool] = ()) -> None:
        self.looks = 0
        self.told: list[str] = []
        self.course = ""  # what happened, by letters
        self._loads = iter(loads)
        self._others = iter(others)
        self._last = QUIET
        monkeypatch.setattr("bisector.core.deadline.time.monotonic", lambda: 10.0 * self.looks)

    def look(self) -> Load:
        self.looks += 1
        self._last = next(self._loads, self._last)
        self.course += "q" if self._last is QUIET else "b"
        return self._last

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.course += "("
        try:
            yield
        finally:
            self.course += ")"

    def wait(self, limits: ContentionSettings = LIMITS) -> None:
        others = partial(next, self._others, False)
        with quiet_turn(limits, self.turn, others, self.told.append, self.look):
            self.course += "!"


def test_a_quiet_host_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [QUIET])
    clock.wait()
    assert (clock.course, clock.told) == ("(q!)", [])


@pytest.mark.parametrize("load", [BUSY, DEPRIVED])
def test_a_busy_one_is_waited_for_and_its_work_named_once(monkeypatch: pytest.MonkeyPatch, load: Load) -> None:
    """Others may have their turn meanwhile, and half a minute of quiet is seen in one's own."""
    clock = Clock(monkeypatch, [load, load, load, QUIET])
    clock.wait()
    assert clock.told == [f"waiting for a quiet host, at most 1h: {load}"]
    assert clock.course == "(b)bbq(qqq!)"


def test_work_that_pauses_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [BUSY, QUIET, QUIET, BUSY, QUIET])
    clock.wait()
    assert clock.course == "(b)q(qb)q(qqq!)"
    assert len(clock.told) == 1


def test_what_does_not_end_stops_the_run_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [BUSY] * 1000)
    with pytest.raises(
        InfraError, match=r"busy for 1h: 1\.90 cores of other work \(cc1 1\.4, rsync 0\.4\), limit 0\.50"
    ):
        clock.wait()
    assert clock.looks == 360


def test_work_that_ends_at_the_last_moment_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The half minute after it is not refused, though all patience is gone by then."""
    clock = Clock(monkeypatch, [*[BUSY] * 359, QUIET])
    clock.wait()
    assert clock.course.endswith("bq(qqq!)")
    assert clock.looks == 363


def test_the_work_of_another_run_is_none_that_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn is waited for, however long and often that is."""
    clock = Clock(monkeypatch, [BUSY, BUSY, BUSY, BUSY, QUIET], [False, True, True])
    clock.wait()
    assert clock.course == "(b)b(b)(b)q(qqq!)"


def test_nobody_waits_who_does_not_want_to(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [BUSY] * 1000)
    clock.wait(ContentionSettings(0.5, 0.1, 0.0))
    assert clock.course == "(!)"


def stat(pid: int, name: str, ticks: int) -> str:
    return f"{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 7 0 0\n"


def test_a_worker_that_got_another_name_was_not_busy_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
    (tmp_path / "77").mkdir()
    worker = tmp_path / "77" / "stat"
    worker.write_text(stat(77, "kworker/0:1-events", 100_000))
    monkeypatch.setattr("bisector.host.load.time.sleep", lambda _: worker.write_text(stat(77, "kworker/0:1", 100_001)))
    assert look_around(1.0, tmp_path).busiest == ()


def test_the_busiest_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_NAMED", 1000)  # others may be busy, too
    program = tmp_path / "backup) of all"  # proc_pid_stat(5): the name may have anything in it
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "while True: pass"]) as busy:
        try:
            load = look_around(0.5)
        finally:
            busy.kill()
    assert "backup) of all" in dict(load.busiest)
    assert load.contention.other_busy_cores > 0.1
    assert "backup) of all" in str(load)
