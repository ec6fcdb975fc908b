"""Foreign load, disk room, ports: on a made-up /proc where figures matter, on the real one where not."""

import os
import socket
from pathlib import Path

import pytest

from bisector.host.load import ContentionMeter, host_facts, host_id, parse_cpu_times
from bisector.host.places import direct_io, disk_room_bytes
from bisector.vm.definition import free_port


class FakeProc:
    """A /proc with the two files that the meter reads; CPU figures in ticks of 10 ms."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pressure").mkdir()

    def write(self, busy: int, idle: int, steal: int, pressure_us: int | None) -> None:
        (self.root / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 1 1 1\n")
        if pressure_us is not None:
            (self.root / "pressure/cpu").write_text(
                f"some avg10=0.00 avg60=0.00 avg300=0.00 total={pressure_us}\nfull avg10=0.00 total=7\n"
            )


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


@pytest.fixture
def _ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading is 10 s after the one before, and this process uses no CPU time."""
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr("bisector.host.load.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("bisector.host.load._TICKS_PER_S", 100)
    monkeypatch.setattr("bisector.host.load.os.times", lambda: os.times_result((0.0,) * 5))


@pytest.mark.usefixtures("_ten_seconds")
def test_guest_is_ours_and_the_rest_is_foreign(proc: FakeProc) -> None:
    guest = iter([5.0, 20.0])
    proc.write(busy=1000, idle=0, steal=0, pressure_us=1_000_000)
    meter = ContentionMeter(lambda: next(guest), proc.root)
    proc.write(busy=3000, idle=0, steal=500, pressure_us=3_500_000)
    contention = meter.stop()
    assert contention.other_busy_cores == pytest.approx(0.5)  # 20 s busy, 15 s of them the guest, in 10 s
    assert contention.steal_share == pytest.approx(0.2)  # 5 s of 25
    assert contention.psi_some_share == pytest.approx(0.25)


@pytest.mark.usefixtures("_ten_seconds")
def test_without_psi_its_share_is_zero(proc: FakeProc) -> None:
    proc.write(busy=0, idle=0, steal=0, pressure_us=None)
    meter = ContentionMeter(lambda: 0.0, proc.root)
    proc.write(busy=100, idle=100, steal=0, pressure_us=None)
    assert meter.stop().psi_some_share == 0.0


@pytest.mark.usefixtures("_ten_seconds")
def test_rounding_never_makes_load_negative(proc: FakeProc) -> None:
    guest = iter([0.0, 9.0])
    proc.write(busy=0, idle=0, steal=0, pressure_us=0)
    meter = ContentionMeter(lambda: next(guest), proc.root)
    proc.write(busy=899, idle=0, steal=0, pressure_us=0)
    assert meter.stop().other_busy_cores == 0.0


def test_meter_reads_the_real_host() -> None:
    contention = ContentionMeter(lambda: 0.0).start().stop()
    assert contention.other_busy_cores >= 0.0
    assert 0.0 <= contention.steal_share <= 1.0


def test_guest_time_is_not_counted_twice() -> None:
    times = parse_cpu_times("cpu  100 10 20 300 40 5 5 60 90 9\n")
    assert times.busy_s == pytest.approx(140 / _ticks())
    assert times.total_s == pytest.approx(540 / _ticks())


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK")


def test_room_of_a_directory_that_is_still_to_be_made(tmp_path: Path) -> None:
    assert disk_room_bytes(tmp_path / "not" / "there") == pytest.approx(disk_room_bytes(tmp_path), rel=0.05)


def test_direct_io_is_told_without_leaving_a_file(tmp_path: Path) -> None:
    assert direct_io(tmp_path) in (True, False)
    assert list(tmp_path.iterdir()) == []


def test_direct_io_of_nowhere(tmp_path: Path) -> None:
    assert not direct_io(tmp_path / "missing")


def test_free_port_can_be_bound() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))


def test_host_is_named() -> None:
    facts = host_facts()
    assert facts.name in host_id()
    assert facts.cpu_model in host_id()
    assert facts.cores >= 1
    assert facts.boot_id
