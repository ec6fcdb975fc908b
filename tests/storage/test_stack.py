"""What a text stands for, and what follows from it."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisector.config import options
from bisector.core.errors import UserError
from bisector.storage.disks import DISKS, in_order, objection_to
from bisector.storage.layer import LAYERS, Capacity, Files
from bisector.storage.layers import aliases
from bisector.storage.stack import stack_of, unknown_disk
from bisector.vm.definition import MODULES_SERIAL

GIB = 1 << 30
MIB = 1 << 20
EXTENTS = {
    "ssd": Capacity("the SSD", GIB, ("storage.ssd.size",)),
    "hdd": Capacity("the HDD", 4 * GIB, ("storage.hdd.size",)),
}
VALUES = options.load(directory=Path("/")).settings.storage.layers
CACHE = VALUES["lvmcache"]
FILE_SIZE = "workload.file_size"
FILES = Files(64 * MIB, "two files", 32 * MIB, (FILE_SIZE,))


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("lvmcache", "lvmcache"),
        ("lvmcache(ssd,hdd)+ext4", "lvmcache"),
        (" lvmcache( ssd , hdd ) + ext4 ", "lvmcache"),
        ("ext4(lvmcache(ssd,hdd))", "lvmcache"),
        ("lvmcache(hdd,ssd)+ext4", "lvmcache(hdd,ssd)+ext4"),
        ("ssd", "ssd"),
        ("ssd+ext4", "ssd"),
        ("nvme0", "nvme0"),
        ("lvmcache(nvme0,hdd-2)+ext4", "lvmcache(nvme0,hdd-2)+ext4"),
        ("raid1( hdd,ssd )+xfs", "raid1(hdd,ssd)+xfs"),
        ("raid5(hdd,hdd2,hdd3)+xfs", "raid5(hdd,hdd2,hdd3)+xfs"),
        ("lvmcache(crypt(ssd),hdd+crypt)+btrfs", "lvmcache(crypt(ssd),crypt(hdd))+btrfs"),
        ("lvmcache(ssd,hdd)+crypt+ext4", "crypt(lvmcache(ssd,hdd))+ext4"),
        ('hdd+xfs(mount_options="noatime,logbufs=4")', 'hdd+xfs(mount_options="noatime,logbufs=4")'),
        ('hdd+xfs(mount_options="noatime")', "hdd+xfs(mount_options=noatime)"),
        ("lvmcache(ssd,hdd,cache_size=67108864)+ext4", "lvmcache(ssd,hdd,cache_size=64MiB)+ext4"),
    ],
)
def test_equal_stacks_are_written_alike(text: str, short: str) -> None:
    stack = stack_of(text)
    assert str(stack) == short
    assert stack_of(short) == stack
    assert pickle.loads(pickle.dumps(stack)) == stack


REFUSED = {
    "hdd+zfs": "there is no layer or disk zfs",
    "zfs(hdd)": "there is no layer or disk zfs",
    "HDD+ext4": "there is no layer or disk HDD",
    "root+ext4": "there is no layer or disk root",
    "": "a layer or disk is missing at the end",
    "hdd+": "a layer or disk is missing at the end",
    "lvmcache(ssd,hdd)": "lvmcache(ssd,hdd) has no file system on it",
    "lvmcache+ext4": "lvmcache needs 2 devices below it (cache device, origin device), not 0",
    "lvmcache(ssd)+ext4": "lvmcache needs 2 devices below it (cache device, origin device), not 1",
    "ext4": "ext4 needs 1 device below it (device), not 0",
    "lvmcache(ssd,ssd)+ext4": "ssd is used twice",
    "lvmcache(ssd,hdd+ext4)+ext4": "ext4 is a file system, and lvmcache needs a device",
    "ssd(hdd)+ext4": "ssd is a disk, and lies on nothing",
    "hdd+ssd+ext4": "ssd is a disk, and lies on nothing",
    "lvmcache(ssd,hdd": "a ) is missing at the end",
    "hdd+ext4)": "')' is not expected there",
    "hdd++ext4": "'+' is not expected there",
    "lvmcache(ssd,hdd,x=1)+ext4": "lvmcache has no setting x",
    "hdd+ext4(x=1)": "ext4 has no setting x",
    "lvmcache(ssd,hdd,cache_mode=x)+ext4": "lvmcache: cache_mode=x: expected one of writeback, writethrough",
    "lvmcache(ssd,hdd,cache_mode=)+ext4": "')' is not expected there",
    "lvmcache(ssd,hdd,cache_policy=mq,cache_policy=smq)+ext4": "cache_policy is given twice",
    "raid1(ssd)+ext4": "raid1 needs at least 2 devices below it (device, device), not 1",
    "raid5(ssd,hdd)+ext4": "raid5 needs at least 3 devices below it (device, device, device), not 2",
    "hdd+ext4+crypt+ext4": "ext4 is a file system, and crypt needs a device",
    "hdd+crypt": "crypt(hdd) has no file system on it",
    'hdd+ext4(mount_options="noatime': "'\"' is not expected there",
    'hdd+"ext4"': 'there is no layer or disk "ext4"',
    "hdd+ext4(mount_options=ro)": "expected options of mount",
    'hdd+ext4(mount_options="noatime;reboot")': "expected options of mount",
    'hdd+xfs(mkfs_options="-m crc=1 /dev/sda")': "expected options of mkfs",
    "crypt(hdd,cipher=rot13)+ext4": "expected a cipher",
    "crypt(hdd,key_size=1)+ext4": "expected one of 128, 192, 256, 384, 512",
    "hdd+ext4" * 100: "a stack of 800 characters",
    "lvmcache(lvmcache(ram,ram),lvmcache(ram,lvmcache(ram,ram)))+ext4": "a stack has ram 4 times at most",
    "lvmcache(ssd,raw(hdd))+ext4": "raw is the end of a stack, and lvmcache needs a device",
    "hdd+raw+ext4": "raw is the end of a stack, and ext4 needs a device",
}


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_what_is_no_stack_is_refused_and_says_why(text: str, why: str) -> None:
    with pytest.raises(UserError) as caught:
        stack_of(text)
    assert why in caught.value.message


def test_a_refusal_lists_what_there_is() -> None:
    with pytest.raises(UserError) as caught:
        stack_of("hdd+nilfs2")
    hint = caught.value.hint or ""
    assert hint.startswith("for example lvmcache(ssd,hdd)+ext4; disks: ssd, hdd; layers: ")
    assert "lvmcache(cache device, origin device)" in hint
    assert [name for name in LAYERS if name not in hint] == []
    assert hint.endswith(f"; short names: {', '.join(aliases())}")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("lvmcach(ssd,hdd)+ext4", "lvmcache"),
        ("hdd+ex4", "ext4"),
        ("HDD", "hdd"),
        ("lvmcache(ssd,hdd,cache_mod=writeback)+ext4", "cache_mode"),
    ],
)
def test_a_refusal_has_the_nearest_name(text: str, meant: str) -> None:
    with pytest.raises(UserError) as caught:
        stack_of(text)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"did you mean {meant}? ")


def test_which_disks_there_are_is_a_matter_of_settings() -> None:
    stack = stack_of("lvmcache(ssd,hdd2)+ext4")
    assert stack.disks == ("ssd", "hdd2")
    assert unknown_disk(stack, ("ssd", "hdd", "hdd2")) is None
    name, advice = unknown_disk(stack, ("ssd", "hdd")) or ("", "")
    assert name == "hdd2"
    assert advice.startswith("did you mean hdd? a further disk: --disk hdd2=1GiB; disks: ssd, hdd; layers: ")


@pytest.mark.parametrize("name", ["", "HDD", "2hdd", "a.b", "a" * 21, "ä", MODULES_SERIAL, "root"])
def test_names_that_no_disk_can_have(name: str) -> None:
    assert objection_to(name) is not None
    assert objection_to("a" * 20) is None


@given(
    st.lists(
        st.sampled_from([*'(),+= x"', "ssd", "hdd", "ext4", "lvmcache", "raid1", 'mount_options="noatime,rw"']),
        max_size=12,
    ).map("".join)
)
def test_any_text_is_a_stack_or_refused(text: str) -> None:
    try:
        stack = stack_of(text)
    except UserError:
        return
    assert stack_of(str(stack)) == stack


@pytest.mark.parametrize(
    ("text", "disks", "fragments", "suspects", "baselines"),
    [
        ("lvmcache", "ssd hdd", "storage-lvmcache", "drivers/md", "ssd hdd"),
        ("lvmcache(ssd,hdd,cache_policy=cleaner)+ext4", "ssd hdd", "storage-lvmcache storage-lvmcache-policies",
         "drivers/md", "ssd hdd"),
        ("hdd", "hdd", "", "block drivers/block fs/ext4", ""),
        ("ram", "", "storage-ram", "block drivers/block fs/ext4", ""),
        ("lvmcache(ram,hdd)+ext4", "hdd", "storage-ram storage-lvmcache", "drivers/md drivers/block/brd.c", "hdd"),
    ],
)  # fmt: skip
def test_what_a_stack_needs_follows_from_its_layers(
    text: str, disks: str, fragments: str, suspects: str, baselines: str
) -> None:
    stack = stack_of(text)
    found = (stack.disks, stack.fragments(VALUES), stack.suspects, stack.baselines)
    assert tuple(map(" ".join, found)) == (disks, fragments, suspects, baselines)


def test_the_origin_bounds_the_file_system() -> None:
    for stack, origin in (("lvmcache", "hdd"), ("lvmcache(hdd,ssd)+ext4", "ssd")):
        assert stack_of(stack).device.extent(EXTENTS, VALUES) == replace(EXTENTS[origin], has_partitions=False)
    assert stack_of("ssd").device.extent(EXTENTS, VALUES) == EXTENTS["ssd"]
    assert [str(stack_of("lvmcache(hdd,ssd)+ext4").alone(disk)) for disk in ("hdd", "ssd")] == ["hdd", "ssd"]


def test_what_is_written_comes_down_to_each_disk() -> None:
    of_cache = stack_of("lvmcache").written(EXTENTS, VALUES, 128 * MIB)
    assert of_cache["ssd"] == (64 + 8 + 4) * MIB
    assert of_cache["hdd"] == (128 + 1024 + 4096 // 64 + 4) * MIB
    assert stack_of("hdd").written(EXTENTS, VALUES, 128 * MIB) == {"hdd": (128 + 1024 + 64) * MIB}


def problems(text: str, files: Files = FILES) -> list[tuple[str, ...]]:
    return [problem.keys for problem in stack_of(text).problems(EXTENTS, VALUES, files)]


def test_the_settings_of_a_layer_matter_where_it_is() -> None:
    assert problems("lvmcache") == []
    assert problems("hdd", Files(1, "")) == []
    assert problems("lvmcache", Files(1, "", 1, (FILE_SIZE,))) == [("workload.file_size", "storage.cache_size")]
    small = "lvmcache(ssd,hdd,metadata_size=1MiB)+ext4"
    assert problems(small) == [("storage.stack",)]
    large = [("storage.stack", "storage.metadata_size", "storage.ssd.size")]
    assert problems("lvmcache(ssd,hdd,cache_size=1GiB)+ext4", Files(2 * GIB, "")) == large


def test_a_stack_says_over_the_settings() -> None:
    stack = stack_of("lvmcache(ssd,hdd,cache_mode=writethrough)+ext4")
    assert stack.device.layer(VALUES) == replace(CACHE, mode="writethrough")


def test_the_order_of_disks() -> None:
    assert in_order(["hdd", "nvme", "ssd", "hdd"]) == ("ssd", "hdd", "nvme")
    assert in_order([]) == ()
    assert in_order(DISKS) == tuple(DISKS)
