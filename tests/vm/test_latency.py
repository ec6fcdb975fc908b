"""A disk that answers late, by the real nbdkit, asked by QEMU's own client."""

import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bisector.config import Accelerator, options
from bisector.core.deadline import SYSTEM_CLOCK
from bisector.core.errors import InfraError
from bisector.host import process
from bisector.host.files import abandoned
from bisector.vm.definition import DiskSpec, DomainSpec, SourceKind, delayed
from bisector.vm.machine import VirtualMachine
from tests import examples

MIB = 1 << 20
pytestmark = pytest.mark.skipif(shutil.which("nbdkit") is None, reason="nbdkit is not installed")


def read(disk: DiskSpec, *commands: str) -> float:
    """The seconds of a few commands of qemu-io."""
    words = [word for command in commands for word in ("-c", command)]
    begun = time.monotonic()
    process.run(["qemu-io", "-f", "raw", *words, f"nbd+unix:///?socket={disk.path}"], deadline_s=30)
    return time.monotonic() - begun


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hdd.img"
    path.write_bytes(b"\1" * MIB + b"\2" * MIB)
    return path


def test_each_request_waits_and_reaches_the_file(file: Path, tmp_path: Path) -> None:
    disk = DiskSpec("hdd", file, iops_limit=5)
    with delayed(disk, 0.2, tmp_path) as late:
        assert (late.serial, late.kind, late.iops_limit) == ("hdd", SourceKind.NETWORK, 5)
        socket = late.path
        assert process.marked()[tmp_path.resolve()]
        assert read(late, "read -P 1 0 4k", "read -P 2 1M 4k", "write -P 3 1M 4k") > 0.6
        side_by_side = [f"aio_read {number * 4}k 4k" for number in range(12)]
        assert 0.2 < read(late, *side_by_side, "aio_flush") < 1.5
    assert file.read_bytes()[MIB : MIB + 2] == b"\3\3"
    assert not socket.exists()
    assert tmp_path.resolve() not in process.marked()


def test_the_time_that_it_takes_is_the_guests(file: Path, tmp_path: Path) -> None:
    """Else it would be other work of the host, beside which runs are weak."""
    disk = DiskSpec("hdd", file)
    bench = SimpleNamespace(image=None, settings=options.load().settings, log_in=None, clock=SYSTEM_CLOCK)
    with delayed(disk, 0.001, tmp_path) as late:
        spec = DomainSpec("guest", tmp_path, tmp_path, 22, Accelerator.TCG, disks=(disk, late))
        machine = VirtualMachine(None, spec, examples.kernel(), bench)  # type: ignore[arg-type] # no guest is started
        before_s = machine.cpu_time_s()
        read(late, *["read 0 2M"] * 40)
        assert 0.0 < machine.cpu_time_s() - before_s < 10.0


def test_the_guest_sees_its_part_of_a_device(file: Path, tmp_path: Path) -> None:
    disk = DiskSpec("hdd", file, part=(MIB, MIB // 2))
    with delayed(disk, 0.001, tmp_path) as late:
        assert late.part is None
        read(late, "read -P 2 0 512k")
        info = process.run(["qemu-img", "info", f"nbd+unix:///?socket={late.path}"], deadline_s=30).stdout
    assert f"({MIB // 2} bytes)" in info


def test_what_a_killed_run_has_left_is_ended_by_the_next(file: Path, tmp_path: Path) -> None:
    disk = DiskSpec("hdd", file)
    with delayed(disk, 0.001, tmp_path):
        assert process.reap(tmp_path) == 1
        assert process.marked().get(tmp_path.resolve()) is None


def test_a_file_that_cannot_be_served(tmp_path: Path) -> None:
    disk = DiskSpec("hdd", tmp_path / "none")
    why = r"the hdd disk gets no latency: .*nbdkit: error: realpath: .*/none"
    with pytest.raises(InfraError, match=why), delayed(disk, 1, tmp_path):
        pytest.fail("it was served")
    assert [path for path in abandoned() if path.name.startswith("nbd")] == []
