"""Foreign load on a made-up /proc, and the wait for a quiet host by a made-up clock."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bisector.config import ContentionSettings
from bisector.core.errors import Grade, InfraError
from bisector.core.figures import Contention
from bisector.host import load
from bisector.host.load import ContentionMeter, Load, look_around, parse_cpu_times, quiet_turn


def test_guest_is_ours_and_the_rest_is_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading is 10 s after the one before, and this process uses no CPU time."""
    clock, guest = iter(range(0, 1000, 10)), iter([5.0, 20.0, 20.0])
    monkeypatch.setattr(load, "_PROC", tmp_path)
    monkeypatch.setattr("bisector.host.load.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("bisector.host.load._TICKS_PER_S", 100)
    monkeypatch.setattr("bisector.host.load.os.times", lambda: os.times_result((0.0,) * 5))

    def write(busy: int, steal: int, pressure_us: int) -> None:
        (tmp_path / "stat").write_text(f"cpu  {busy} 0 0 0 0 0 0 {steal} 0 0\ncpu0 1 1 1 1\n")
        some = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={pressure_us}\n"
        (tmp_path / "pressure/cpu").write_text(f"full avg10=0.00 total=7\n{some}")

    (tmp_path / "pressure").mkdir()
    write(busy=1000, steal=0, pressure_us=1_000_000)
    meter = ContentionMeter(lambda: next(guest))
    write(busy=3000, steal=500, pressure_us=3_500_000)
    contention = meter.stop()
    assert contention.other_busy_cores == pytest.approx(0.5)  # 20 s busy, 15 s of them the guest, in 10 s
    assert contention.steal_share == pytest.approx(0.2)  # 5 s of 25
    assert contention.psi_some_share == pytest.approx(0.25)
    (tmp_path / "pressure/cpu").unlink()  # a kernel without PSI
    assert meter.stop().psi_some_share == 0.0


def test_each_core_that_a_guest_may_use_is_timed_and_this_process_may_use_them_all_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, on, hashed = os.sched_getaffinity(0), list[set[int]](), hashlib.sha256

    def watched(data: bytes) -> object:
        on.append(os.sched_getaffinity(0))
        return hashed(data)

    monkeypatch.setattr("bisector.host.load.hashlib.sha256", watched)
    assert 1.0 < load.core_mib_s() < 100_000.0
    assert sorted(min(one) for one in {frozenset(one) for one in on}) == sorted(before)
    assert os.sched_getaffinity(0) == before


def test_guest_time_is_not_counted_twice() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    busy_s, _, total_s = parse_cpu_times("cpu  100 10 20 300 40 5 5 60 90 9\n")
    assert [busy_s, total_s] == pytest.approx([140 / ticks, 540 / ticks])


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (Contention(0.5, 0.1, 0.9), Grade.OK),
        (Contention(0.6, 0.0, 0.0), Grade.WARN),
        (Contention(0.0, 0.2, 0.0), Grade.WARN),
    ],
)
def test_load_is_judged_by_the_limits_of_a_run(monkeypatch: pytest.MonkeyPatch, seen: Contention, state: Grade) -> None:
    monkeypatch.setattr(load, "_GLANCE_S", 0.0)
    monkeypatch.setattr(ContentionMeter, "stop", lambda _: seen)
    assert load.contention(replace(LIMITS, patience_s=0.0)).state is state


LIMITS = ContentionSettings(max_other_cores=0.5, max_steal_share=0.1, max_speed_change=0.15, patience_s=3600.0)
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
        monkeypatch.setattr(load, "look_around", self.look)

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
        with quiet_turn(limits, self.turn, others, self.told.append):
            self.course += "!"


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


def test_the_work_of_another_run_is_none_that_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn is waited for, however long and often that is."""
    clock = Clock(monkeypatch, [BUSY, BUSY, BUSY, BUSY, QUIET], [False, True, True])
    clock.wait()
    assert clock.course == "(b)b(b)(b)q(qqq!)"


def stat(pid: int, name: str, ticks: int) -> str:
    return f"{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 7 0 0\n"


def test_neither_a_worker_that_got_another_name_nor_this_process_was_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_PROC", tmp_path)
    (tmp_path / "stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
    worker, own = tmp_path / "77" / "stat", tmp_path / str(os.getpid()) / "stat"
    for path in (worker, own):
        path.parent.mkdir()
    worker.write_text(stat(77, "kworker/0:1-events", 100_000))

    def after(_seconds: float) -> None:
        worker.write_text(stat(77, "kworker/0:1", 100_001))
        own.write_text(stat(os.getpid(), "bisector", 100_000))

    monkeypatch.setattr("bisector.host.load.time.sleep", after)
    assert look_around().busiest == ()
