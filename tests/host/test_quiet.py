"""Before a trial is repeated the host is quiet, or the run stops; nothing here waits in earnest."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from bisector.config import ContentionSettings
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError
from bisector.core.figures import Contention
from bisector.host import quiet
from bisector.host.quiet import Load, look_around, wait_until_quiet

LIMITS = ContentionSettings(max_other_cores=0.5, max_steal_share=0.1, patience_s=3600.0)
QUIET = Load(Contention(0.1, 0.0, 0.0), ())
BUSY = Load(Contention(1.9, 0.0, 0.0), (("cc1", 1.4), ("rsync", 0.4)))
DEPRIVED = Load(Contention(0.1, 0.4, 0.0), ())


class Clock:
    """Time that passes by looking: ten seconds a look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loads: Iterable[Load]) -> None:
        self.looks = 0
        self.told: list[str] = []
        self._loads = iter(loads)
        self._last = QUIET
        monkeypatch.setattr("bisector.core.deadline.time.monotonic", lambda: 10.0 * self.looks)
        # a dataclass keeps the function that it was made with
        monkeypatch.setattr(quiet, "Deadline", lambda what, seconds: Deadline(what, seconds, 10.0 * self.looks))

    def look(self) -> Load:
        self.looks += 1
        self._last = next(self._loads, self._last)
        return self._last

    def wait(self, limits: ContentionSettings = LIMITS) -> None:
        wait_until_quiet(limits, self.told.append, self.look)


def test_a_quiet_host_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [QUIET])
    clock.wait()
    assert (clock.looks, clock.told) == (1, [])


@pytest.mark.parametrize("load", [BUSY, DEPRIVED])
def test_a_busy_one_is_waited_for_and_its_work_named_once(monkeypatch: pytest.MonkeyPatch, load: Load) -> None:
    clock = Clock(monkeypatch, [load, load, QUIET])
    clock.wait()
    assert clock.told == [f"waiting for a quiet host, at most 1h: {load}"]
    assert clock.looks == 5  # quiet for half a minute


def test_work_that_pauses_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [BUSY, QUIET, QUIET, BUSY, QUIET])
    clock.wait()
    assert clock.looks == 7
    assert len(clock.told) == 1


def test_what_does_not_end_stops_the_run_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [BUSY] * 1000)
    with pytest.raises(
        InfraError, match=r"busy for 1h: 1\.90 cores of other work \(cc1 1\.4, rsync 0\.4\), limit 0\.50"
    ):
        clock.wait()
    assert clock.looks == 360


def test_nobody_waits_who_does_not_want_to(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [BUSY] * 1000)
    clock.wait(ContentionSettings(0.5, 0.1, 0.0))
    assert clock.looks == 0


def stat(pid: int, name: str, ticks: int) -> str:
    return f"{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 7 0 0\n"


def test_a_worker_that_got_another_name_was_not_busy_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
    (tmp_path / "77").mkdir()
    worker = tmp_path / "77" / "stat"
    worker.write_text(stat(77, "kworker/0:1-events", 100_000))
    monkeypatch.setattr("bisector.host.quiet.time.sleep", lambda _: worker.write_text(stat(77, "kworker/0:1", 100_001)))
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
