"""Arrays of the md driver: what mdadm is given, and what sysfs has to say afterwards."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.errors import InfraError, UserError
from bisector.core.trial import KernelFault, Stage
from bisector.storage.layer import Capacity, Device, Files, Layer, LayerPlan, MountedStack
from bisector.storage.raid import Raid1, Raid5
from bisector.storage.stack import lay_out, stack_of
from tests.guestshell import Answer, FakeShell

MIB = 1 << 20
NO_FILES = Files(0, "")
RAID1, RAID5 = Raid1(), Raid5(512 << 10, stripes=256, threads=0)
# Not recorded, but as `grep -H .` prints the files of an array of v4.11 in sysfs, and of v4.12. In drivers/md/md.c:
# level 3429, raid_disks 3699, metadata_version 4237, chunk_size 3754, layout 3653, degraded 4487, sync_action 4315,
# rdN/offset 2867, array_state 3893; in bitmap.c bitmap/location 2198; those of RAID 5 in raid5.c from line 6208 on.
OF_RAID1 = """\
level:raid1
raid_disks:2
metadata_version:1.2
chunk_size:0
layout:0
degraded:0
sync_action:idle
bitmap/location:none
rd0/offset:2048
rd1/offset:2048
array_state:clean
rd0/block/dev:254:16
rd1/block/dev:254:32
"""
OF_RAID5 = """\
level:raid5
raid_disks:3
metadata_version:1.2
chunk_size:524288
layout:2
degraded:0
sync_action:idle
bitmap/location:none
rd0/offset:2048
rd1/offset:2048
rd2/offset:2048
stripe_cache_size:256
group_thread_cnt:0
rmw_level:1
preread_bypass_threshold:1
skip_copy:0
array_state:active
rd0/block/dev:254:16
rd1/block/dev:254:32
rd2/block/dev:254:48
"""


GUEST = {"stat -L": Answer("fe:10\nfe:20\n"), "stat -f": Answer("1000 4096\n"), "/md && grep": Answer(OF_RAID1)}


def guest(state: str = OF_RAID1, **changed: Answer) -> FakeShell:
    rows = {"stat -L": Answer("fe:10\nfe:20\n"), "stat -f": Answer("1000 4096\n"), "/md && grep": Answer(state)}
    return FakeShell({**{key.replace("_", " "): answer for key, answer in changed.items()}, **rows})


def laid_out(shell: FakeShell, text: str = "raid1(ssd,hdd)+ext4") -> MountedStack:
    values = options.load({"storage.stack": text}, directory=Path("/")).settings.storage.layers
    return lay_out(shell, stack_of(text), values, NO_FILES, 60)


def made(layer: Layer, count: int, suffix: str = "") -> LayerPlan:
    paths = ("/dev/a", "/dev/b", "/dev/c", "/dev/d")[:count]
    return layer.make([Device(path, (path,)) for path in paths], suffix)


def test_a_mirror_of_the_two_disks() -> None:
    mounted = laid_out(guest())
    assert mounted.description[:2] == (
        "export MDADM_NO_UDEV=1",
        "mdadm --create /dev/md1 --run --level=1 --raid-devices=2 --metadata=1.2 --data-offset=1024K --assume-clean "
        "--bitmap=none /dev/disk/by-id/virtio-ssd /dev/disk/by-id/virtio-hdd",
    )
    assert mounted.description[2].endswith(" /dev/md1")
    assert mounted.room == "storage.ssd.size or storage.hdd.size"


def test_stripes_over_three_devices() -> None:
    of_three = made(RAID5, 3)
    create, *tuned = (step.command for step in of_three.steps[1:])
    assert create == (
        "mdadm --create /dev/md5 --run --level=5 --raid-devices=3 --metadata=1.2 --data-offset=1024K --assume-clean "
        "--bitmap=none --chunk=512K --layout=left-symmetric /dev/a /dev/b /dev/c"
    )
    assert tuned == [
        f"! test -e {path} || test $(cat {path}) = {value} || echo {value} > {path}"
        for path, value in (
            ("/sys/block/md5/md/stripe_cache_size", 256),
            ("/sys/block/md5/md/group_thread_cnt", 0),
            ("/sys/block/md5/md/rmw_level", 1),
            ("/sys/block/md5/md/preread_bypass_threshold", 1),
            ("/sys/block/md5/md/skip_copy", 0),
        )
    ]
    assert of_three.verify is not None
    of_three.verify((OF_RAID5,), {"/dev/a": "254:16", "/dev/b": "254:32", "/dev/c": "254:48"})
    with pytest.raises(KernelFault, match="rmw_level 2; asked for rmw_level 1"):
        of_three.verify((OF_RAID5.replace("rmw_level:1", "rmw_level:2"),), {})
    other = replace(RAID5, chunk_bytes=65536, stripes=4096)
    changed = made(other, 4, "2")
    assert "--raid-devices=4" in changed.steps[1].command
    assert "--chunk=64K" in changed.steps[1].command
    assert changed.path == "/dev/md52"
    with pytest.raises(
        KernelFault, match=r"stripe_cache_size 256; asked for .*chunk_size 65536.*stripe_cache_size 4096"
    ):
        made(other, 3).verify((OF_RAID5,), {})  # type: ignore[misc] # it has one


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("level:raid1", "level:raid0"),
        ("degraded:0", "degraded:1"),
        ("sync_action:idle", "sync_action:resync"),
        ("sync_action:idle\n", ""),
        ("bitmap/location:none", "bitmap/location:+8"),
        ("rd1/offset:2048", "rd1/offset:264192"),
        ("metadata_version:1.2", "metadata_version:1.0"),
        ("array_state:clean", "array_state:read-auto"),
        ("array_state:clean", "array_state:inactive"),
    ],
)
def test_an_array_that_was_not_asked_for_is_the_kernels_fault(old: str, new: str) -> None:
    assert old in OF_RAID1
    with pytest.raises(KernelFault, match=f"^md1: {old.partition(':')[0]} .*; asked for ") as caught:
        laid_out(guest(OF_RAID1.replace(old, new)))
    assert caught.value.stage is Stage.STORAGE


def test_a_file_is_written_where_it_is_there_and_differs(tmp_path: Path) -> None:
    def after(file: str) -> list[str]:
        for step in made(RAID5, 3).steps[2:]:
            subprocess.run(["sh", "-c", step.command.replace("/sys/block/md5/md", str(tmp_path))], check=True)
        return (tmp_path / file).read_text().split() if (tmp_path / file).exists() else []

    (tmp_path / "skip_copy").write_text("1\n")
    (tmp_path / "rmw_level").write_text("1\n")
    (tmp_path / "rmw_level").chmod(0o444)
    assert (after("skip_copy"), after("rmw_level"), after("stripe_cache_size")) == (["0"], ["1"], [])


def test_a_kernel_before_v4_1_has_no_rmw_level() -> None:
    of_three = made(RAID5, 3)
    assert of_three.verify is not None
    disks = {"/dev/a": "254:16", "/dev/b": "254:32", "/dev/c": "254:48"}
    of_three.verify((OF_RAID5.replace("rmw_level:1\n", ""),), disks)


def test_a_kernel_without_bitmaps_has_none() -> None:
    laid_out(guest(OF_RAID1.replace("bitmap/location:none\n", "")))


def test_an_array_on_other_disks_is_ours() -> None:
    swapped = OF_RAID1.replace("254:16", "x").replace("254:32", "254:16").replace("x", "254:32")
    with pytest.raises(InfraError, match="md1 is on 254:32, 254:16 instead of 254:16, 254:32"):
        laid_out(guest(swapped))
    with pytest.raises(InfraError, match="md1 is on 254:16, nothing instead of"):
        laid_out(guest(OF_RAID1.replace("rd1/block/dev:254:32\n", "")))


def test_an_array_that_loses_a_device_stops_the_workload() -> None:
    mounted = laid_out(guest())
    before = mounted.read(guest())
    assert mounted.counted(before, mounted.read(guest())) == ()
    with pytest.raises(KernelFault, match="degraded 1; asked for degraded 0") as caught:
        mounted.read(guest(OF_RAID1.replace("degraded:0", "degraded:1")))
    assert caught.value.stage is Stage.WORKLOAD


def test_a_mirror_of_encrypted_disks_is_checked_against_device_mappers_devices() -> None:
    answers = {
        "stat -L -c '%t:%T' /dev/mapper/crypt": Answer("fd:0\nfd:1\n"),
        "dmsetup table crypt2": Answer(f"0 2097152 crypt aes-xts-plain64 {'0' * 128} 0 254:32 0\n"),
        "dmsetup table crypt": Answer(f"0 1048576 crypt aes-xts-plain64 {'0' * 128} 0 254:16 0\n"),
        "dmsetup deps": Answer("crypt: 1 dependencies : (254, 16)\ncrypt2: 1 dependencies : (254, 32)\n"),
        "dmsetup info": Answer("crypt 253 0\ncrypt2 253 1\n"),
    }
    state = OF_RAID1.replace("254:16", "253:0").replace("254:32", "253:1")
    rows = {"stat -L": Answer("fe:10\nfe:20\n"), "stat -f": Answer("1 4096\n"), "/md && grep": Answer(state)}
    mounted = laid_out(FakeShell({**answers, **rows}), "raid1(crypt(ssd),crypt(hdd))+ext4")
    create = next(one for one in mounted.description if one.startswith("mdadm"))
    assert create.endswith(" /dev/mapper/crypt /dev/mapper/crypt2")
    with pytest.raises(InfraError, match="md1 is on 254:16, 254:32 instead of 253:0, 253:1"):
        laid_out(FakeShell({**answers, **rows, "/md && grep": Answer(OF_RAID1)}), "raid1(crypt(ssd),crypt(hdd))+ext4")


def extents(*sizes_mib: float | None) -> tuple[Capacity, ...]:
    return tuple(
        Capacity(f"disk {n}", None if size is None else int(size * MIB), (f"storage.d{n}.size",))
        for n, size in enumerate(sizes_mib)
    )


def test_what_fits_on_an_array() -> None:
    both = RAID1.extent(extents(512, 1024))
    assert both.size_bytes == 511 * MIB
    assert both.keys == ("storage.d0.size", "storage.d1.size")
    assert both.what == "the raid1 of disk 0, disk 1"
    assert RAID1.extent(extents(512, None)).size_bytes is None
    assert RAID5.extent(extents(512, 512, 512)).size_bytes == 2 * 511 * MIB
    # A chunk that is not whole is left out.
    assert RAID5.extent(extents(512, 512, 512.3, 600)).size_bytes == 3 * 511 * MIB
    assert RAID5.extent(extents(512.6, 512.6, 512.6)).size_bytes == int(2 * 511.5 * MIB)


def test_what_is_written_to_each_device() -> None:
    assert RAID1.written(extents(512, 1024), 100 * MIB) == (101 * MIB, 101 * MIB)
    assert RAID5.written(extents(512, 512, 512), 100 * MIB) == (101 * MIB,) * 3


def test_sizes_that_cannot_be_are_refused_before() -> None:
    def keys(layer: Layer, *sizes_mib: float | None) -> list[tuple[str, ...]]:
        return [found.keys for found in layer.problems(extents(*sizes_mib), NO_FILES)]

    assert keys(RAID1, 512, 1) == [("storage.stack", "storage.d1.size")]
    assert keys(RAID5, 1.4, 512, None) == [("storage.stack", "storage.d0.size")]
    assert keys(RAID5, 1.5, 512, None) == []
    assert keys(replace(RAID5, chunk_bytes=96 << 10), 512, 512, 512) == [("storage.raid5.chunk",)]
    with pytest.raises(UserError, match="expected a whole number from 17 to 32,768"):
        options.load({"storage.raid5.stripe_cache_size": "32769"}, directory=Path("/"))
    with pytest.raises(UserError, match=r"storage\.ssd\.size = 128MiB .*: xfs needs 300MiB on the raid1 of the SSD"):
        options.load({"storage.stack": "raid1(ssd,hdd)+xfs", "storage.ssd.size": "128MiB"}, directory=Path("/"))


def test_the_memory_of_the_guest_is_enough_for_the_stripe_cache() -> None:
    """32,768 stripes of three pages, and what is kept of each beside them."""
    given = {"storage.stack": "raid5(ssd,hdd,hdd2)+ext4", "storage.hdd2.size": "1GiB"}
    options.load({**given, "storage.raid5.stripe_cache_size": "16384"}, directory=Path("/"))
    given |= {"storage.raid5.stripe_cache_size": "32768", "machine.memory": "512MiB"}
    with pytest.raises(
        UserError, match=r"machine\.memory = 512MiB .*the stripe cache of RAID 5 .*takes 432MiB"
    ) as caught:
        options.load(given, directory=Path("/"))
    assert caught.value.hint == "--set machine.memory=688MiB, or make the stripe cache of RAID 5 smaller"
    options.load({**given, "machine.memory": "688MiB"}, directory=Path("/"))
