"""RAM disks, and stacks without a file system."""

from pathlib import Path

import pytest

from bisector.config import Settings, options
from bisector.core.errors import UserError
from bisector.core.trial import KernelFault
from bisector.storage.layer import Files, MountedStack
from bisector.storage.stack import lay_out, stack_of
from tests.guest_answers import STORAGE
from tests.guestshell import Answer, FakeShell

MIB = 1 << 20
ROOM = {"stat -f": Answer("100000 4096\n")}
SIZE = "blockdev --getsize64"
SIZED = "size=${FILE_SIZE}\ntime_based\nruntime=${RUNTIME}\n"
BOTH = "[a]\nrw=randread\ndirectory=${DIRECTORY}\nfilename=${DEVICE}\noffset=${OFFSET}\n" + SIZED


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "device.fio").write_text(BOTH.replace("directory=${DIRECTORY}\n", ""))
    (tmp_path / "both.fio").write_text(BOTH)
    return tmp_path


def loaded(stack: str, **more: str) -> Settings:
    return options.load({"storage.stack": stack, **{key.replace("__", "."): one for key, one in more.items()}}).settings


def laid_out(stack: str, answers: dict[str, Answer], files: Files | None = None) -> tuple[FakeShell, MountedStack]:
    large = {"workload__job": "both.fio", "workload__file_size": "64MiB"}
    shell, storage = FakeShell(answers), loaded(stack, **large).storage
    return shell, lay_out(shell, storage.stack, storage.layers, files or Files(MIB, "one file", MIB), 60)


def test_a_ram_disk_is_written_from_end_to_end_before_the_file_system() -> None:
    shell, mounted = laid_out("ram", {**ROOM, SIZE: Answer(f"{256 * MIB}\n")})
    assert mounted.description[:2] == (
        "test -b /dev/ram0",
        "dd if=/dev/zero of=/dev/ram0 bs=1M iflag=count_bytes count=268435456 oflag=direct",
    )
    assert mounted.description[2].endswith(" /dev/ram0")
    assert not any("virtio" in command for command in shell.commands)


def test_its_number_and_size_are_told_to_the_kernel() -> None:
    storage = loaded("ram(size=300MiB)+ext4").storage
    assert storage.stack.parameters(storage.layers) == ("brd.rd_nr=4", "brd.rd_size=307200")
    assert storage.stack.fragments(storage.layers) == ("storage-ram",)
    assert loaded("ram").kernel.fragments == ("tiny", "vm", "storage-ram")
    assert (storage.used_disks, storage.stack.baselines) == ({}, ())


def test_ram_disks_of_one_stack_are_several() -> None:
    storage = loaded("lvmcache(ram,ram)+ext4").storage
    assert storage.stack.parameters(storage.layers) == ("brd.rd_nr=4", "brd.rd_size=262144")
    shell = FakeShell({**STORAGE, "stat -L": Answer("1:0\n1:1\n"), SIZE: Answer(f"{256 * MIB}\n")})
    with pytest.raises(Exception, match="is on"):  # the answers of the guest are those of two disks
        lay_out(shell, storage.stack, storage.layers, Files(0, ""), 60)
    assert "of=/dev/ram0 " in (made := "".join(shell.commands))
    assert "of=/dev/ram1 " in made


def test_ram_disks_of_two_sizes_are_refused() -> None:
    with pytest.raises(UserError, match=r"two values of the kernel parameter brd\.rd_size, 262144 and 131072"):
        loaded("lvmcache(ram,ram(size=128MiB))+ext4")
    with pytest.raises(UserError, match="a stack has ram 4 times at most"):
        stack_of("lvmcache(lvmcache(ram,ram),lvmcache(ram,lvmcache(ram,ram)))+ext4")


@pytest.mark.parametrize("said", ["268435456000\n", "0\n", "", "none"])
def test_a_ram_disk_of_another_size_is_this_kernels_fault(said: str) -> None:
    with pytest.raises(KernelFault, match=r"asked for 268435456"):
        laid_out("ram", {**ROOM, SIZE: Answer(said)})


def test_the_memory_of_the_guest_is_enough_for_it() -> None:
    loaded("ram(size=512MiB)+ext4")
    with pytest.raises(UserError, match=r"^machine\.memory = 1GiB .*storage\.stack = .*takes 1016MiB of it") as caught:
        loaded("ram(size=1000MiB)+ext4")
    assert caught.value.hint == "--set machine.memory=1272MiB, or make the RAM disk smaller"
    loaded("ram(size=1000MiB)+ext4", machine__memory="1272MiB")
    with pytest.raises(UserError, match=r"machine\.memory = 1GiB .*storage\.ram\.size = 400MiB .*takes 813MiB"):
        loaded("lvmcache(ram,ram)+ext4", storage__ram__size="400MiB")


def test_a_ram_disk_is_too_small_for_the_files() -> None:
    with pytest.raises(UserError, match=r"storage\.ram\.size = 64MiB .*has no room"):
        loaded("ram", storage__ram__size="64MiB")


def test_without_a_file_system_the_workload_gets_the_device() -> None:
    shell, mounted = laid_out("hdd+raw", {"stat -L": Answer("fe:10\n"), SIZE: Answer(f"{64 * MIB}\n")})
    assert (mounted.mountpoint, mounted.device) == ("", "/dev/disk/by-id/virtio-hdd")
    assert mounted.description == ("blockdev --getsize64 /dev/disk/by-id/virtio-hdd",)
    assert "mount" not in shell.commands[0].replace("blockdev", "")
    _, cached = laid_out("lvmcache(ssd,hdd)+raw", {**STORAGE, SIZE: Answer(f"{64 * MIB}\n")})
    assert cached.device == "/dev/bisector/origin"
    assert cached.description[-1] == "blockdev --getsize64 /dev/bisector/origin"


def test_a_device_in_the_guest_has_room_for_all_runs() -> None:
    answers = {**STORAGE, SIZE: Answer(f"{64 * MIB}\n")}
    files = Files(33 * MIB, "one file of 33 MiB", 33 * MIB, ("workload.file_size",))
    with pytest.raises(UserError, match=r"one file of 33 MiB, for each of 2 runs, and the device .* only 64 MiB"):
        laid_out("lvmcache(ssd,hdd)+raw", answers, files)


@pytest.mark.parametrize("said", ["", "a\n", "1 2\n"])
def test_a_size_that_is_none_is_this_kernels_fault(said: str) -> None:
    with pytest.raises(KernelFault, match="blockdev printed"):
        laid_out("hdd+raw", {"stat -L": Answer("fe:10\n"), SIZE: Answer(said)})


def test_what_raw_means_for_a_stack() -> None:
    stack = stack_of("hdd+raw")
    assert (str(stack), stack.lone_disk, stack.suspects) == ("hdd+raw", "hdd", ("block", "drivers/block"))
    assert str(stack_of("lvmcache(ssd,hdd)+raw").alone("ssd")) == "ssd+raw"
    with pytest.raises(UserError, match="raw is the end of a stack, and lvmcache needs a device"):
        stack_of("lvmcache(ssd,raw(hdd))+ext4")
    with pytest.raises(UserError, match="raw is the end of a stack, and ext4 needs a device"):
        stack_of("hdd+raw+ext4")


def test_a_job_on_a_device_says_what_it_does_there() -> None:
    loaded("hdd+raw", workload__job="device.fio")
    loaded("lvmcache(ssd,hdd)+raw", workload__job="both.fio", workload__file_size="64MiB")
    loaded("hdd", workload__job="both.fio")
    with pytest.raises(
        UserError, match=r"workload\.job = .*partial\.fio .*storage\.stack = hdd\+raw .*no filename="
    ) as no:
        loaded("hdd+raw")
    assert "set filename=${DEVICE} in the job" in (no.value.hint or "")
    with pytest.raises(UserError, match=r"filename=\$\{DEVICE\} without a directory, and the stack has a file system"):
        loaded("hdd", workload__job="device.fio")
