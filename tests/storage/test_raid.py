"""Arrays of the md driver: what mdadm is given, and what sysfs has to say afterwards."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.core.trial import KernelFault
from bisector.storage.layer import Capacity, Device, Layer, LayerPlan
from bisector.storage.raid import Raid1, Raid5
from tests.guestshell import Answer, FakeShell
from tests.storage.guests import GUESTS, MIB, NO_FILES, RAID1_STATE, laid_out

RAID1, RAID5 = Raid1(), Raid5(512 << 10, stripes=256, threads=0)
# As RAID1_STATE of tests/storage/guests.py.
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


def made(layer: Layer, count: int, suffix: str = "") -> LayerPlan:
    paths = ("/dev/a", "/dev/b", "/dev/c", "/dev/d")[:count]
    return layer.make([Device(path, (path,)) for path in paths], suffix)


def test_a_mirror_of_the_two_disks() -> None:
    mounted = laid_out("raid1(ssd,hdd)+ext4", FakeShell(GUESTS["raid1"]))
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
    for state in (OF_RAID5, OF_RAID5.replace("rmw_level:1\n", "")):  # kernels before v4.1 have none
        of_three.verify((state,), {"/dev/a": "254:16", "/dev/b": "254:32", "/dev/c": "254:48"})
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


def test_a_file_is_written_where_it_is_there_and_differs(tmp_path: Path) -> None:
    def after(file: str) -> list[str]:
        for step in made(RAID5, 3).steps[2:]:
            subprocess.run(["sh", "-c", step.command.replace("/sys/block/md5/md", str(tmp_path))], check=True)
        return (tmp_path / file).read_text().split() if (tmp_path / file).exists() else []

    (tmp_path / "skip_copy").write_text("1\n")
    (tmp_path / "rmw_level").write_text("1\n")
    (tmp_path / "rmw_level").chmod(0o444)
    assert (after("skip_copy"), after("rmw_level"), after("stripe_cache_size")) == (["0"], ["1"], [])


def test_a_mirror_of_encrypted_disks_is_checked_against_device_mappers_devices() -> None:
    answers = {
        "stat -L -c '%t:%T' /dev/mapper/crypt": Answer("fd:0\nfd:1\n"),
        "dmsetup table crypt2": Answer(f"0 2097152 crypt aes-xts-plain64 {'0' * 128} 0 254:32 0\n"),
        "dmsetup table crypt": Answer(f"0 1048576 crypt aes-xts-plain64 {'0' * 128} 0 254:16 0\n"),
        "dmsetup deps": Answer("crypt: 1 dependencies : (254, 16)\ncrypt2: 1 dependencies : (254, 32)\n"),
        "dmsetup info": Answer("crypt 253 0\ncrypt2 253 1\n"),
    }
    state = RAID1_STATE.replace("254:16", "253:0").replace("254:32", "253:1")
    stack, rows = "raid1(crypt(ssd),crypt(hdd))+ext4", {**answers, **GUESTS["raid1"]}
    mounted = laid_out(stack, FakeShell(rows | {"/md && grep": Answer(state)}))
    create = next(one for one in mounted.description if one.startswith("mdadm"))
    assert create.endswith(" /dev/mapper/crypt /dev/mapper/crypt2")
    with pytest.raises(InfraError, match="md1 is on 254:16, 254:32 instead of 253:0, 253:1"):
        laid_out(stack, FakeShell(rows))


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
