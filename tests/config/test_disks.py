"""Disks that a person names: in the file, by ``--disk``, in stacks, and on record."""

import tomllib
from pathlib import Path

import pytest

from bisector.config import DiskSettings, options
from bisector.config.option_table import from_words, rows
from bisector.core.errors import UserError
from bisector.storage.disks import Bus, GuestDisk
from tests.config.given import GIB, MIB, from_argv


def test_the_words_of_a_disk() -> None:
    assert from_words("hdd2=1GiB,iops=1000,bandwidth=100MiB,path=/srv/hdd2") == {
        "storage.hdd2.size": "1GiB",
        "storage.hdd2.iops_limit": "1000",
        "storage.hdd2.bandwidth_limit": "100MiB",
        "storage.hdd2.path": "/srv/hdd2",
    }
    assert from_words("a=latency=5ms") == {"storage.a.latency": "5ms"}
    assert from_words("nvme=path=/dev/nvme0n1p4") == {"storage.nvme.path": "/dev/nvme0n1p4"}
    assert from_words("hdd=size=2GiB") == {"storage.hdd.size": "2GiB"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("hdd2", "expected NAME=SIZE"),
        ("=1GiB", "expected NAME=SIZE"),
        ("hdd2=", "expected NAME=SIZE"),
        ("HDD2=1GiB", "HDD2 cannot be the name of a disk: it has lower-case letters"),
        ("modules=1GiB", "the guest has a disk of that name"),
        ("ext4=1GiB", "there is a layer of that name"),
        ("overwrite=1GiB", "there is a setting storage.overwrite"),
        ("hdd2=1GiB,size=2GiB", "storage.hdd2.size is given twice"),
        ("hdd2=1GiB,2GiB", "a disk has no setting 2GiB"),
        ("hdd2=1GiB,iop=5", "a disk has no setting iop\n  did you mean iops? "),
    ],
)
def test_words_that_are_no_disk(words: str, why: str) -> None:
    with pytest.raises(UserError) as caught:
        from_argv("--disk", words)
    assert why in f"{caught.value.message}\n  {caught.value.hint}"


def test_a_disk_of_the_command_line_is_used_by_the_stack(directory: Path) -> None:
    effective = from_argv("--disk", "hdd2=2GiB,iops=500", "--stack", "lvmcache(ssd,hdd2)+ext4", "--disk", "ssd=1GiB")
    storage = effective.settings.storage
    assert storage.used_disks == {"ssd": DiskSettings(None, GIB, 0, 0), "hdd2": DiskSettings(None, 2 * GIB, 500, 0)}
    assert effective.origins["storage.hdd2.size"] == "--disk"
    assert effective.origins["storage.hdd2.path"] == "profile quick"
    assert str(from_argv("--disk", "hdd2=2GiB", "--stack", "hdd2").settings.storage.stack) == "hdd2"
    relative = from_argv("--disk", "hdd2=path=.", "--stack", "hdd2").settings.storage
    assert relative.used_disks["hdd2"].path == str(directory)


def test_a_disk_of_the_file(directory: Path) -> None:
    (directory / "bisector.toml").write_text(
        'storage.stack = "lvmcache(nvme,hdd)+ext4"\n[storage.nvme]\nsize = "2GiB"\nbandwidth_limit = "100MiB/s"\n'
        '[storage.spare]\nsize = "1GiB"\n'
    )
    effective = from_argv()
    storage = effective.settings.storage
    assert storage.used_disks["nvme"] == DiskSettings(None, 2 * GIB, 0, 100 * MIB)
    assert list(storage.disks) == ["ssd", "hdd", "nvme", "spare"]
    assert effective.origins["storage.nvme.size"] == "bisector.toml"
    assert {row.key: row.value for row in options.describe(effective)}["storage.nvme.size"] == "2GiB"


def test_settings_with_disks_are_written_and_recorded(directory: Path) -> None:
    guest = "bus=scsi,scheduler=mq-deadline,read_ahead_kb=4096,nr_requests=64,wbt_lat_usec=0"
    effective = from_argv("--disk", f"hdd-2=2GiB,iops=500,{guest}", "--stack", "hdd-2")
    assert options.from_json(options.to_json(effective.settings)) == effective.settings
    asked = GuestDisk(Bus.SCSI, "mq-deadline", 4096, 64, 0)
    assert effective.settings.storage.disks["hdd-2"].guest == asked
    (directory / "bisector.toml").write_text(options.to_toml(effective))
    assert tomllib.loads(options.to_toml(effective))["storage"]["hdd-2"]["iops_limit"] == 500
    assert options.load().settings == effective.settings
    assert options.usual(effective.settings)["storage.hdd-2.iops_limit"] == 0


def test_a_disk_that_nobody_named() -> None:
    with pytest.raises(UserError, match=r"^storage\.stack = zfs \(--stack\): there is no layer or disk zfs$"):
        from_argv("--stack", "zfs")
    with pytest.raises(UserError, match="there is no layer or disk hdd2") as caught:
        from_argv("--stack", "lvmcache(ssd,hdd2)+ext4")
    assert (caught.value.hint or "").startswith("did you mean hdd? a further disk: --disk hdd2=1GiB; ")


def test_a_disk_of_the_command_line_that_no_stack_uses() -> None:
    with pytest.raises(UserError, match=r"^--disk hdd2: the stack lvmcache has no disk of that name") as caught:
        from_argv("--disk", "hdd2=1GiB")
    assert (caught.value.hint or "").startswith("did you mean hdd? --stack hdd2, ")
    with pytest.raises(UserError, match=r"^--disk sdd: the stack lvmcache has no disk of that name"):
        from_argv("--set", "storage.sdd.size=1GiB")
    from_argv("--disk", "hdd2=1GiB", stacks=("hdd2",))
    from_argv("--disk", "hdd=1GiB", "--stack", "ssd")
    with pytest.raises(UserError, match=r"^--ssd: the stack hdd has no disk of that name"):
        from_argv("--ssd", ".", "--stack", "hdd")
    from_argv("--ssd", ".", "--stack", "hdd", stacks=("hdd", "ssd"))


@pytest.mark.parametrize("size", ["0", "0MiB", "-1", "4KiB"])
def test_a_disk_of_no_size(size: str) -> None:
    with pytest.raises(UserError, match=r"--disk: storage\.hdd2\.size = .*expected a size such as .* 1MiB or more"):
        from_argv("--disk", f"hdd2={size}", "--stack", "hdd2")


def test_a_latency_is_of_whole_milliseconds() -> None:
    storage = from_argv("--disk", "hdd2=1GiB,latency=5ms", "--stack", "hdd2").settings.storage
    assert storage.used_disks["hdd2"].latency_s == 0.005
    from_argv("--set", "storage.hdd.latency=0.0005", "--stack", "ssd")
    with pytest.raises(UserError, match=r"storage\.hdd\.latency = .*in whole milliseconds"):
        from_argv("--disk", "hdd=latency=0.0005", "--stack", "hdd")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "hdd=bus=usb",
            r"^--disk: storage\.hdd\.bus = usb: expected one of virtio, scsi, sata, nvme, null_blk, brd; or",
        ),
        ("hdd=scheduler=[none]", r"storage\.hdd\.scheduler = \[none\]: expected the name of an I/O scheduler"),
        ("hdd=scheduler=none; reboot", r"storage\.hdd\.scheduler = .*: expected the name of an I/O scheduler"),
        ("hdd=nr_requests=-1", r"storage\.hdd\.nr_requests = -1: expected a whole number, 0 or more"),
        ("hdd=wbt_lat_usec=2ms", r"storage\.hdd\.wbt_lat_usec = 2ms: expected a whole number, 0 or more"),
    ],
)
def test_what_a_guest_can_have_of_no_disk(words: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        from_argv("--disk", words)


def test_a_stack_has_as_many_disks_as_a_guest() -> None:
    names = [f"d{n}" for n in range(25)]
    words = [word for name in names for word in ("--disk", f"{name}=1GiB")]
    with pytest.raises(UserError, match=r"25 disks; a guest has 24 at most"):
        from_argv(*words, "--stack", f"raid5({','.join(names)})+ext4")
    from_argv(*words[:-2], "--stack", f"raid5({','.join(names[:-1])})+ext4")


def test_a_disk_on_nvme_is_not_given_to_a_daemon() -> None:
    words = ("--stack", "hdd", "--disk", "hdd=bus=nvme")
    assert from_argv(*words).settings.kernel.fragments == ("tiny", "vm", "disk-nvme")
    with pytest.raises(UserError, match=r"storage\.hdd\.bus = nvme.*libvirt daemon"):
        from_argv(*words, "--connect", "qemu:///system")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[storage.HDD]\nsize = "1GiB"\n', "bisector.toml: HDD cannot be the name of a disk"),
        ('[storage.hdd2]\nsise = "1GiB"\n', "bisector.toml: there is no setting storage.hdd2.sise"),
        ("[storage.hdd2]\n", "there is no setting storage.hdd2"),
        ('[storage]\nhdd2 = "1GiB"\n', "bisector.toml: there is no setting storage.hdd2"),
        ('[storage.cache_size]\nsize = "1GiB"\n', "storage.cache_size = {"),
        ('[storage.a.b]\nsize = "1GiB"\n', "a.b cannot be the name of a disk"),
    ],
)
def test_a_table_that_is_no_disk(directory: Path, text: str, why: str) -> None:
    (directory / "bisector.toml").write_text(text)
    with pytest.raises(UserError) as caught:
        from_argv()
    assert why in caught.value.message


def test_a_disk_is_given_once() -> None:
    with pytest.raises(UserError, match=r"storage\.hdd2\.size is given twice: by --disk and by --disk"):
        from_argv("--disk", "hdd2=1GiB", "--disk", "hdd2=2GiB", "--stack", "hdd2")
    with pytest.raises(UserError, match=r"storage\.hdd\.path is given twice: by --hdd and by --disk"):
        from_argv("--hdd", "/tmp", "--disk", "hdd=path=/tmp", "--stack", "hdd")
    with pytest.raises(UserError, match=r"storage\.hdd2\.size is given twice: by --disk and by --set"):
        from_argv("--disk", "hdd2=1GiB", "--set", "storage.hdd2.size=2GiB", "--stack", "hdd2")


def test_no_disk_is_called_like_a_setting() -> None:
    """``storage.stack`` cannot be a word and a table at once."""
    words = [row.key.split(".")[1] for row in rows() if row.key.startswith("storage.")]
    for word in set(words) - {"ssd", "hdd"}:
        with pytest.raises(UserError, match=f"{word} cannot be the name of a disk"):
            from_words(f"{word}=1GiB")
