"""RAM disks, and stacks without a file system."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.core.trial import KernelFault
from bisector.storage.layer import Files, MountedStack
from bisector.storage.stack import lay_out, stack_of
from tests.guestshell import Answer, FakeShell
from tests.storage.guests import GUESTS, MIB, NO_FILES, RAM_SIZE, laid_out, settings

SIZED = "size=${FILE_SIZE}\ntime_based\nruntime=${RUNTIME}\n"
ON_DEVICE = "[a]\nrw=randread\nfilename=${DEVICE}\noffset=${OFFSET}\n" + SIZED
DEVICE_64_MIB = {"stat -L": Answer("fe:10\n"), RAM_SIZE: Answer(f"{64 * MIB}\n")}
CACHE_64_MIB = {**GUESTS["lvmcache"], RAM_SIZE: Answer(f"{64 * MIB}\n")}


@pytest.fixture
def jobs(tmp_path: Path) -> Mapping[str, str]:
    """Job files of a person's own: for a device alone, and for a device or a file."""
    contents = {"device": ON_DEVICE, "both": ON_DEVICE.replace("filename", "directory=${DIRECTORY}\nfilename")}
    for name, text in contents.items():
        (tmp_path / f"{name}.fio").write_text(text)
    return {name: str(tmp_path / f"{name}.fio") for name in contents}


def on_raw(
    stack: str, jobs: Mapping[str, str], answers: Mapping[str, Answer], files: Files = NO_FILES
) -> tuple[FakeShell, MountedStack]:
    given = {"workload.job": jobs["both"], "workload.file_size": "64MiB"}
    shell, storage = FakeShell(answers), settings(stack, given).storage
    return shell, lay_out(shell, storage.stack, storage.layers, files, 60)


def test_a_ram_disk_is_written_from_end_to_end_before_the_file_system() -> None:
    shell = FakeShell(GUESTS["ram"])
    write, fill, mkfs, *_ = laid_out("ram", shell).description
    assert (write, fill) == (
        "test -b /dev/ram0",
        "dd if=/dev/zero of=/dev/ram0 bs=1M iflag=count_bytes count=268435456 oflag=direct",
    )
    assert mkfs.endswith(" /dev/ram0")
    assert not any("virtio" in command for command in shell.commands)


def test_the_kernel_is_told_the_number_and_the_size_of_ram_disks() -> None:
    one, storage = settings("ram(size=300MiB)+ext4"), settings("lvmcache(ram,ram)+ext4").storage
    assert one.storage.parameters == ("brd.rd_nr=4", "brd.rd_size=307200")
    assert one.kernel.fragments == ("tiny", "vm", "storage-ram")
    assert (one.storage.used_disks, one.storage.stack.baselines) == ({}, ())
    assert storage.parameters == ("brd.rd_nr=4", "brd.rd_size=262144")
    shell = FakeShell({**GUESTS["lvmcache"], "stat -L": Answer("1:0\n1:1\n"), RAM_SIZE: Answer(f"{256 * MIB}\n")})
    with pytest.raises(Exception, match="is on"):  # the answers of the guest are those of two disks
        lay_out(shell, storage.stack, storage.layers, NO_FILES, 60)
    assert all(f"of=/dev/ram{number} " in "".join(shell.commands) for number in range(2))


def test_without_a_file_system_the_workload_gets_the_device(jobs: Mapping[str, str]) -> None:
    shell, mounted = on_raw("hdd+raw", jobs, DEVICE_64_MIB)
    assert (mounted.mountpoint, mounted.device) == ("", "/dev/disk/by-id/virtio-hdd")
    assert mounted.description == ("blockdev --getsize64 /dev/disk/by-id/virtio-hdd",)
    assert "mount" not in shell.commands[0].replace("blockdev", "")
    _, cached = on_raw("lvmcache(ssd,hdd)+raw", jobs, CACHE_64_MIB)
    assert cached.device == "/dev/bisector/origin"
    assert cached.description[-1] == "blockdev --getsize64 /dev/bisector/origin"


def test_a_device_in_the_guest_has_room_for_all_runs(jobs: Mapping[str, str]) -> None:
    files = Files(33 * MIB, "one file of 33 MiB", 33 * MIB, ("workload.file_size",))
    with pytest.raises(UserError, match=r"one file of 33 MiB, for each of 2 runs, and the device .* only 64 MiB"):
        on_raw("lvmcache(ssd,hdd)+raw", jobs, CACHE_64_MIB, files)
    for said in ("", "a\n", "1 2\n"):
        with pytest.raises(KernelFault, match="blockdev printed"):
            on_raw("hdd+raw", jobs, {**DEVICE_64_MIB, RAM_SIZE: Answer(said)})


def test_what_raw_means_for_a_stack() -> None:
    stack = stack_of("hdd+raw")
    assert (str(stack), stack.lone_disk, stack.suspects) == ("hdd+raw", "hdd", ("block", "drivers/block"))
    assert str(stack_of("lvmcache(ssd,hdd)+raw").alone("ssd")) == "ssd+raw"


def test_a_job_on_a_device_says_what_it_does_there(jobs: Mapping[str, str]) -> None:
    settings("hdd+raw", {"workload.job": jobs["device"]})
    settings("hdd", {"workload.job": jobs["both"]})
    with pytest.raises(
        UserError, match=r"workload\.job = .*partial\.fio .*storage\.stack = hdd\+raw .*no filename="
    ) as no:
        settings("hdd+raw")
    assert "set filename=${DEVICE} in the job" in no.value.hint
    with pytest.raises(UserError, match=r"filename=\$\{DEVICE\} without a directory, and the stack has a file system"):
        settings("hdd", {"workload.job": jobs["device"]})
