"""What makes the guest's time pass: what follows from that, and what does not go with it."""

from pathlib import Path

import pytest

from bisector.config import Accelerator, options
from bisector.core.errors import UserError
from bisector.storage.disks import Brd, Bus, NullBlk
from tests.config.given import MIB, from_argv

COUNTED = ("--clock", "instructions")


def test_where_instructions_are_counted_all_is_the_guests_own() -> None:
    settings = from_argv(*COUNTED).settings
    machine = settings.machine
    assert (machine.is_counted, machine.instruction_ns, machine.vcpus) == (True, 8, 1)
    assert machine.accelerator is Accelerator.TCG
    assert settings.kernel.fragments == ("tiny", "vm", "counted", "disk-null_blk", "storage-lvmcache")
    assert settings.storage.attached_disks == {}
    assert settings.storage.parameters == ("null_blk.nr_devices=0",)
    assert settings.storage.in_memory == {
        "ssd": NullBlk(512 * MIB, completion_ns=100_000, depth=64),
        "hdd": NullBlk(1024 * MIB, completion_ns=2_000_000, depth=2),  # 1,000 IOPS
    }
    assert {who for who, _ in settings.further_features} == {"disk ssd on null_blk", "disk hdd on null_blk"}


def test_where_a_tree_is_too_old_all_disks_are_on_brd() -> None:
    """All of a run are of one kind; what somebody has asked for stays."""
    flags = {"machine.clock": "instructions"}
    effective = options.load(flags, trees_have=lambda since: since.version != "v4.14")
    settings = effective.settings
    assert settings.kernel.fragments == ("tiny", "vm", "counted", "disk-brd", "storage-lvmcache")
    assert effective.origins["storage.hdd.bus"] == "the oldest tree"
    assert settings.storage.in_memory == {
        "ssd": Brd(0, 512 * MIB, latency_ms=0),
        "hdd": Brd(1, 1024 * MIB, latency_ms=2, iops_limit=1000),
    }
    assert settings.storage.parameters == ("brd.rd_nr=2", f"brd.rd_size={1025 << 10}")
    assert settings.further_features == ()
    asked = options.load({**flags, "storage.ssd.bus": "null_blk"}, trees_have=lambda since: False).settings
    assert [disk.guest.bus for disk in asked.storage.used_disks.values()] == [Bus.NULL_BLK, Bus.BRD]
    assert {who for who, _ in asked.further_features} == {"disk ssd on null_blk"}
    ours = options.load({}, trees_have=lambda since: False).settings
    assert ours == options.load({}).settings


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--stack ssd --disk ssd=bus=brd,latency=1500us", r"storage\.ssd\.latency = .*in whole milliseconds"),
        ("--stack lvmcache(ram,ssd)+ext4 --disk ssd=bus=brd", r"storage\.ssd\.bus = brd.*makes all of one size"),
    ],
)
def test_what_brd_cannot(words: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        from_argv(*words.split())


def test_where_guests_are_emulated_instructions_are_counted_unless_what_is_given_is_in_the_way() -> None:
    counted = options.load({}, could_count=lambda machine, storage: True)
    assert counted.settings == options.load({"machine.clock": "instructions"}).settings
    assert counted.origins["machine.clock"] == "this host"
    for given in ({"machine.vcpus": "2"}, {"storage.ssd.bus": "nvme"}, {"machine.clock": "host"}):
        by_host = options.load(given, could_count=lambda machine, storage: True)
        assert by_host.settings == options.load(given).settings
    auto = {"machine.clock": "auto"}
    older = options.load(auto, trees_have=lambda since: False, could_count=lambda machine, storage: True)
    assert older.settings.storage.disks["hdd"].guest.bus is Bus.BRD


def test_a_disk_in_the_guests_memory_does_without_counted_time() -> None:
    settings = from_argv("--stack", "hdd", "--disk", "hdd=128MiB,bus=null_blk,iops=0,latency=50us").settings
    assert settings.storage.in_memory == {"hdd": NullBlk(128 * MIB, 50_000, 64)}
    assert settings.kernel.fragments == ("tiny", "vm", "disk-null_blk")


@pytest.mark.parametrize(
    ("words", "why", "hint"),
    [
        ("--accelerator kvm", r"machine\.accelerator = kvm.*under KVM nobody counts", "--accelerator tcg"),
        ("--set machine.vcpus=2", r"machine\.vcpus = 2.*of one CPU, not of 2", "machine.vcpus=1"),
        ("--set machine.instruction_ns=3", r"machine\.instruction_ns = 3.*a power of two of ns", ""),
        ("--set machine.instruction_ns=2048", r"machine\.instruction_ns = 2048.*at most 1024", ""),
        ("--ssd .", r"storage\.ssd\.path.*keeps the host's time", "--clock host"),
        ("--disk hdd=bus=virtio", r"storage\.hdd\.bus = virtio.*keeps the host's time", "--clock host"),
        ("--image a --image-key a --image-host-key a", r"machine\.image = .*has no network", "leave out one"),
    ],
)
def test_what_does_not_go_with_counted_time(words: str, why: str, hint: str) -> None:
    Path("a").touch()
    with pytest.raises(UserError, match=why) as caught:
        from_argv(*COUNTED, *words.split())
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("words", "why", "hint"),
    [
        ("--confirm-by host", r"confirm_by = host \(--confirm-by\), machine\.clock = host .*again", "--clock instr"),
        ("--metric io.instructions", r"bisect\.metric = io\.instructions.*nobody counts", "or another --metric"),
        ("--set machine.guests=2", r"machine\.guests = 2 .*makes the figures of the first one weak", "--clock instr"),
    ],
)
def test_what_goes_with_counted_time_only(words: str, why: str, hint: str) -> None:
    from_argv(*COUNTED, *words.split())
    with pytest.raises(UserError, match=why) as caught:
        from_argv(*words.split())
    assert hint in (caught.value.hint or "")


def test_a_disk_in_memory_has_no_place_on_the_host() -> None:
    with pytest.raises(UserError, match=r"storage\.ssd\.path = .*no place on the host"):
        from_argv("--stack", "ssd", "--ssd", ".", "--disk", "ssd=bus=null_blk")
