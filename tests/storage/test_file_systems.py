"""File systems: what mkfs and mount are given, and what is read back afterwards."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import BisectorError, Finding, Grade, InfraError, UserError
from bisector.core.shell import CommandResult
from bisector.core.trial import KernelFault
from bisector.doctor.checks import PROBES, CheckContext
from bisector.storage.file_system import FileSystem, words_of
from bisector.storage.layer import Capacity, Device, LayerPlan
from tests.guestshell import Answer, FakeShell
from tests.loopdevice import command
from tests.storage.guests import GUESTS, MIB, NO_FILES, guest, laid_out, mountinfo, recorded_format, settings

OLDEST = (4, 9)
NAMES = ("ext4", "xfs", "btrfs")


def own(name: str, **changed: str) -> FileSystem:
    """One of them with its settings."""
    layer = settings(f"hdd+{name}").storage.layers[name]
    assert isinstance(layer, FileSystem)
    return replace(layer, **changed)


BTRFS, EXT4, XFS = map(own, ("btrfs", "ext4", "xfs"))


def made(name: str, **changed: str) -> LayerPlan:
    return own(name, **changed).make([Device("/dev/vdb", ("/dev/vdb",))], "")


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_guest_makes_and_mounts_it(name: str) -> None:
    mkfs, mount, room = laid_out(f"hdd+{name}", FakeShell(GUESTS[name])).description
    assert mkfs.startswith(f"mkfs.{name} -q ")
    assert mkfs.endswith(" /dev/disk/by-id/virtio-hdd")
    assert mount.startswith(f"mount -t {name} -o rw,relatime,")
    assert room.startswith("stat -f")
    # Nothing is discarded: dm-cache takes discarded blocks into the cache without reading them.
    assert " -K " in mkfs or "-E nodiscard," in mkfs
    assert "nodiscard" in mount.split()[4].split(",")


# Read in guests of v4.11, which does not say in that file what is off.
EXT4_V4_11 = (
    "rw\nblock_validity\ndelalloc\njournal_checksum\nbarrier\nuser_xattr\nacl\nresuid=0\nresgid=0\nerrors=continue\n"
    "commit=5\nmin_batch_time=0\nmax_batch_time=15000\nstripe=0\ndata=ordered\ninode_readahead_blks=32\ninit_itable=10\n"
    "max_dir_size_kb=0\n"
)


def test_what_an_old_kernel_does_not_say_is_off() -> None:
    changed = {"/proc/fs/ext4/": EXT4_V4_11, "mountinfo": mountinfo("ext4", "rw,noinit_itable,data=ordered")}
    laid_out("hdd", FakeShell(guest("ext4", **changed)))
    changed["/proc/fs/ext4/"] = EXT4_V4_11.replace("delalloc", "discard\ndelalloc")
    with pytest.raises(KernelFault, match=r"without nodiscard$"):
        laid_out("hdd", FakeShell(guest("ext4", **changed)))


def test_the_defaults_of_the_tools_of_debian_12_are_told_from_what_was_asked() -> None:
    """Kernels before v5.10 refuse to mount what mkfs.xfs makes by default (bigtime, inobtcount)."""
    of_xfs, of_btrfs = (Answer(recorded_format(one)) for one in ("xfs_info-6.1-default.txt", "btrfs-6.2-default.txt"))
    with pytest.raises(InfraError, match=r"reflink=1 .*bigtime=1 .*inobtcount=1 "):
        laid_out("hdd+xfs", FakeShell({**GUESTS["xfs"], "xfs_spaceman": of_xfs}))
    with pytest.raises(InfraError, match=r"FREE_SPACE_TREE, .*NO_HOLES, "):
        laid_out("hdd+btrfs", FakeShell({**GUESTS["btrfs"], "dump-super": of_btrfs}))


def since() -> Mapping[tuple[str, str], tuple[int, ...]]:
    """The kernel of each feature, from the tools' own documents."""
    rows = (line.split() for line in recorded_format("features.txt").splitlines() if line and not line.startswith("#"))
    return {(name, feature): tuple(map(int, version.split("."))) for name, feature, version in rows}


def features(name: str) -> dict[str, bool]:
    """Each feature that mkfs is told to make, or told to leave out."""
    words = words_of(own(name).mkfs_options)
    if name != "xfs":
        named = ",".join(filter(None, (words.get("O"), words.get("R")))).split(",")
        return {word.removeprefix("^"): not word.startswith("^") for word in named if word != "none"}
    flags = (word.split("=") for letter in "minl" for word in words[letter].split(","))
    return {feature: value == "1" for feature, value in flags if value in ("0", "1")}


@pytest.mark.parametrize("name", NAMES)
def test_every_feature_is_in_the_oldest_kernels(name: str) -> None:
    came, named = since(), features(name)
    on = {feature for feature, is_on in named.items() if is_on}
    assert on
    assert {feature: came[name, feature] for feature in on if came[name, feature] > OLDEST} == {}
    if name != "ext4":  # of ext4 nothing is made that is not named
        assert {feature for kind, feature in came if kind == name and came[kind, feature] > OLDEST} - {
            *("raid1c34", "zoned"),  # of several devices, and of zoned ones
            *(feature for feature, is_on in named.items() if not is_on),
        } == set()


@pytest.mark.parametrize("name", NAMES)
def test_features_that_came_later_are_known_with_their_kernels(name: str) -> None:
    later = own(name).later
    # Several devices, and zoned ones, are not for a stack; the last two were experimental for some versions.
    other = {"raid1c34", "zoned", "rmapbt", "reflink"}
    found = {feature: version for (kind, feature), version in since().items() if kind == name and version > OLDEST}
    assert {one: tuple(map(int, later[one].version[1:].split("."))) for one in found.keys() - other} == {
        one: found[one] for one in found.keys() - other
    }


@pytest.mark.parametrize(
    ("name", "field", "given", "what"),
    [
        ("ext4", "mkfs_options", "-O none,has_journal,fast_commit,^large_dir", ["v5.10 ext4 with fast_commit"]),
        ("ext4", "mount_options", "noatime,mb_optimize_scan=1", ["v5.12 ext4 with mb_optimize_scan"]),
        ("xfs", "mkfs_options", "-m crc=1,bigtime=1,reflink=0 -i nrext64=0", ["v5.10 xfs with bigtime"]),
        ("btrfs", "mkfs_options", "--csum xxhash -R ^free-space-tree", ["v5.5 btrfs with xxhash"]),
        (
            *("btrfs", "mount_options", "compress=zstd:1,discard=async"),
            ["v5.6 btrfs with discard=async", "v4.14 btrfs with compress=zstd"],
        ),
    ],
)
def test_what_settings_ask_of_a_kernel_beside_its_options(name: str, field: str, given: str, what: list[str]) -> None:
    asked = list(own(name, **{field: given}).features())
    assert [f"{one.since.version} {one.what}" for one in asked] == what
    assert {one.keys for one in asked} == {(f"storage.{name}.{field}",)}


def test_given_options_of_mount_replace_what_they_contradict() -> None:
    def mounted(name: str, given: str) -> str:
        _, mount = (step.command for step in made(name, mount_options=given).steps)
        return mount.split()[4]

    assert mounted("ext4", EXT4.mount_options) == EXT4.mount_options
    assert mounted("ext4", "noatime,nobarrier,commit=30,lazytime,data=writeback") == (
        "rw,noatime,data=writeback,nobarrier,delalloc,nodiscard,noinit_itable,commit=30,errors=continue,lazytime"
    )
    assert mounted("btrfs", "ssd_spread") == "rw,relatime,ssd_spread,nodiscard,space_cache"
    assert mounted("xfs", "grpid,inode32,sysvgroups").startswith("rw,relatime,inode32,")
    assert mounted("xfs", "grpid,inode32,sysvgroups").endswith(",nolargeio,sysvgroups")
    assert mounted("ext4", "dioread_nolock,dioread_lock").endswith(",errors=continue,dioread_lock")


@pytest.mark.parametrize(
    "typed",
    ["", ",", "noatime,", "noatime, sync", "ro", "a=b=c", "a" * 5000 + "!", "x=/dev/sda", "loop", "rw,offset=4096"],
)
def test_options_of_mount_that_are_none_are_refused(typed: str) -> None:
    with pytest.raises(UserError, match="expected options of mount"):
        settings("hdd", {"storage.ext4.mount_options": typed})


def lost(display: FileSystem, asked: str, shown: str) -> str:
    return ",".join(display.lost(asked.split(","), shown.split(",")))


@pytest.mark.parametrize(
    ("display", "asked", "shown", "instead"),
    [
        (EXT4, "barrier=1", "rw,barrier", "rw,nobarrier"),
        (EXT4, "barrier=0", "rw,nobarrier", "rw,barrier"),
        (EXT4, "sysvgroups", "rw,nogrpid", "rw,grpid"),
        (EXT4, "nodioread_nolock", "dioread_lock", "dioread_nolock"),
        (EXT4, "dioread_lock", "nodioread_nolock", "dioread_nolock"),
        (EXT4, "max_batch_time=0", "max_batch_time=0", "max_batch_time=7"),
        (XFS, "logbsize=0", "logbsize=32k", "logbsize=64k"),
        (EXT4, "init_itable", "init_itable=10", "noinit_itable"),
        (EXT4, "data_err=ignore", "data=ordered", "data_err=abort"),
        (XFS, "uquota", "usrquota", "noquota"),
        (XFS, "bsdgroups", "grpid", "rw"),
        (XFS, "largeio", "largeio", "rw"),
        (BTRFS, "compress", "compress=zlib:3", "rw"),
        (BTRFS, "compress", "compress=zlib", "compress=lzo"),
        (BTRFS, "compress-force", "compress-force=zlib", "rw"),
        (BTRFS, "compress=no", "rw", "compress=zlib"),
        (BTRFS, "commit=30", "rw", "commit=5"),
        (BTRFS, "commit=5", "commit=5", "rw"),
        (BTRFS, "space_cache=v1", "space_cache", "space_cache=v2"),
        (BTRFS, "datacow,barrier,treelog", "rw", "nodatacow,nobarrier,notreelog"),
        (BTRFS, "nodatacow", "nodatacow", "rw"),
        (BTRFS, "compress=zstd,nodiscard", "rw,compress=zstd:3", "compress=lzo,discard=async"),
        (XFS, "logbsize=32768,allocsize=64m", "logbsize=32k,allocsize=65536k", "logbsize=64k,allocsize=64k"),
        # No kernel shows these: it shows their opposites, and of strictatime it leaves out relatime.
        (EXT4, "strictatime,exec", "rw", "relatime,noexec"),
        (EXT4, "defaults,diratime", "rw", None),
        # What v6.18 showed of mounts that it was asked for: of ext4 in its own file, of the others in the mount table.
        (
            EXT4,
            "rw,barrier=1,commit=0,init_itable,sysvgroups,nodioread_nolock,max_batch_time=0,journal_ioprio=3,"
            "auto_da_alloc=0,data_err=ignore",
            "rw,bsddf,nogrpid,block_validity,nodioread_nolock,nodiscard,delalloc,nowarn_on_error,journal_checksum,barrier,"
            "noauto_da_alloc,user_xattr,acl,noquota,resuid=0,resgid=0,errors=continue,commit=5,min_batch_time=0,"
            "max_batch_time=0,i_version,stripe=0,data=ordered,inode_readahead_blks=32,init_itable=10,max_dir_size_kb=0,"
            "prefetch_block_bitmaps",
            None,
        ),
        (XFS, "rw,largeio,noquota,allocsize=1m,logbsize=64k,wsync,swalloc,nouuid,ikeep,discard",
         "rw,wsync,swalloc,nouuid,largeio,inode64,allocsize=1024k,logbufs=8,logbsize=64k,noquota", None),
        (XFS, "rw,relatime,sync,dirsync,lazytime,norelatime,nosymfollow,bsdgroups,noalign,logbufs=0",
         "rw,relatime,nosymfollow,sync,dirsync,lazytime,wsync,noalign,grpid,inode64,logbufs=8,logbsize=32k,noquota",
         None),
        (BTRFS, "rw,nossd,nodiscard,compress=zlib:9,commit=30,datacow,treelog,acl,fatal_errors=bug,clear_cache",
         "rw,compress=zlib:9,nossd,space_cache=v2,subvolid=5,subvol=/", None),
        (BTRFS, "rw,nossd,nodatacow,discard=sync,space_cache=v1,metadata_ratio=4,commit=60,autodefrag,notreelog",
         "rw,nodatasum,nodatacow,nossd,notreelog,discard,space_cache,metadata_ratio=4,commit=60,autodefrag,subvol=/",
         None),
    ],
)  # fmt: skip
def test_kernels_show_options_in_words_of_their_own(
    display: FileSystem, asked: str, shown: str, instead: str | None
) -> None:
    assert lost(display, asked, shown) == ""
    if instead is not None:
        assert lost(display, asked, instead) == asked


@pytest.mark.parametrize("name", NAMES)
def test_what_no_kernel_shows_is_no_fault_and_is_said_before(name: str) -> None:
    for option in ("iversion", "mand", "of_a_later_kernel", "of_a_later_kernel=3"):
        layer = own(name)
        assert lost(layer, option, "rw,relatime") == ""
        assert list(layer.unverifiable()) == []
        (said,) = own(name, mount_options=f"noatime,{option}").unverifiable()
        assert said.startswith(f"storage.{name}.mount_options: kernels do not show {option}: ")
        assert lost(layer, "of_a_later_kernel=3", "of_a_later_kernel=4") == "of_a_later_kernel=3"


def test_what_is_not_read_back_is_a_warning_before_the_first_hour(tmp_path: Path) -> None:
    asked = settings("hdd", {"storage.ext4.mount_options": "journal_ioprio=3,noatime"})
    (probe,) = (one for one in PROBES if one.name == "disks")
    assert probe.of_setup
    found = probe.look(CheckContext(asked, tmp_path, tmp_path, lambda _: None))
    assert not isinstance(found, Finding)
    (warning,) = (one for one in found if one.state is Grade.WARN)
    assert "kernels do not show journal_ioprio=3" in warning.what


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("typed", "why"),
    [
        *((one, "is for /etc/fstab") for one in ("_netdev", "nofail", "noauto", "user", "group", "comment=x")),
        *((one, "is for /etc/fstab") for one in ("x-systemd.automount", "X-mount.mkdir=0755")),
        *((one, "is for other file systems") for one in ("subvol=a", "norecovery", "dax", "journal_dev=8")),
    ],
)
def test_options_of_mount_that_mean_nothing_here_are_refused_before(name: str, typed: str, why: str) -> None:
    with pytest.raises(UserError, match=rf"storage\.{name}\.mount_options.*{typed} {why}"):
        settings(f"hdd+{name}", {f"storage.{name}.mount_options": f"noatime,{typed}"})


@pytest.mark.parametrize(
    ("name", "typed", "why"),
    [
        *(("ext4", one, f"{one} makes no file system") for one in ("-n", "-V", "-S")),
        ("ext4", "-qn", "-n makes no file system"),
        ("ext4", "-O extent,journal_dev", "-O journal_dev makes no file system"),
        ("ext4", "-E nodiscard,offset=4096", "-E offset=4096 makes no file system"),
        ("ext4", "-d .", "-d names a file"),
        ("ext4", "-b 4096 hda", "hda is a name, and the device is the stack's"),
        *(("xfs", one, f"{one} makes no file system") for one in ("-N", "-V")),
        ("xfs", "-b size=4096 -fN", "-N makes no file system"),
        ("xfs", "-p proto", "-p names a file"),
        *(("btrfs", one, "makes no file system") for one in ("-V", "--version", "--help", "--vers", "-qV")),
        ("btrfs", "--rootdir tree", "--rootdir names a file"),
    ],
)
def test_options_with_which_mkfs_makes_nothing_are_refused_before(name: str, typed: str, why: str) -> None:
    with pytest.raises(UserError, match=rf"storage\.{name}\.mkfs_options.*mkfs\.{name} .*{why}"):
        settings(f"hdd+{name}", {f"storage.{name}.mkfs_options": typed})


def test_sizes_of_mkfs_may_have_units() -> None:
    for name, tool, plain, short in (
        ("ext4", "dumpe2fs", "-b 4096 ", "-b 4k "),
        ("ext4", "dumpe2fs", "-i 16384", "-i 16k"),
        ("btrfs", "dump-super", "-n 16384", "-n 16K"),
        ("xfs", "xfs_spaceman", "-b size=4096", "-b size=4k"),
        ("xfs", "xfs_spaceman", "-i size=512,", "-i size=512,maxpct=25,"),
    ):
        options_of_mkfs = own(name).mkfs_options
        assert plain in options_of_mkfs
        asked = words_of(options_of_mkfs.replace(plain, short))
        assert list(own(name).other_format(asked, GUESTS[name][tool].stdout)) == []


def problems(name: str, size_mib: int | None, **changed: str) -> list[tuple[str, ...]]:
    device = Capacity("the HDD", None if size_mib is None else size_mib * MIB, ("storage.hdd.size",))
    return [found.keys for found in own(name, **changed).problems((device,), NO_FILES)]


@pytest.mark.parametrize(
    ("name", "size_mib", "changed", "keys"),
    [
        ("xfs", 299, {}, ("storage.stack", "storage.hdd.size")),
        ("xfs", 300, {}, None),
        ("xfs", None, {}, None),
        ("btrfs", 108, {}, ("storage.stack", "storage.hdd.size")),
        ("btrfs", 109, {}, None),
        ("ext4", 1, {}, None),
        ("xfs", 512, {"mkfs_options": "-m crc=1 -l version=2,size=32m"}, ("storage.xfs.mkfs_options",)),
        ("xfs", 512, {"mkfs_options": "-l size=64m"}, None),
        ("xfs", 512, {"mkfs_options": "-l size=16384b"}, ("storage.xfs.mkfs_options",)),
        # These look like others that make no file system.
        ("ext4", None, {"mkfs_options": "-N 4096 -b 4096"}, None),
        ("ext4", None, {"mkfs_options": "-E nodiscard,lazy_itable_init=0 -L n -m 0 -J size=64"}, None),
        ("xfs", None, {"mkfs_options": "-m crc=1 -n size=4096 -L V -d agcount=4"}, None),
        ("btrfs", None, {"mkfs_options": "-n 16384 -v --csum xxhash --label V"}, None),
        ("ext4", None, {"mkfs_options": "--dry-run"}, None),  # mke2fs refuses it itself
        ("ext4", None, {"mount_options": "data=journal"}, ("storage.ext4.mount_options",)),
        ("ext4", None, {"mount_options": "data=journal,nodelalloc"}, None),
    ],
)
def test_options_that_mkfs_or_the_mount_refuses_are_refused_before(
    name: str, size_mib: int | None, changed: dict[str, str], keys: tuple[str, ...] | None
) -> None:
    assert problems(name, size_mib, **changed) == ([] if keys is None else [keys])


def blamed(name: str, said: str) -> BisectorError:
    mkfs, _ = made(name).steps
    return mkfs.blame(CommandResult(mkfs.command, 1, "", said))


def test_options_that_mkfs_does_not_take_are_the_persons() -> None:
    for name, said in (
        ("xfs", "unknown option -m hat=1\nUsage: mkfs.xfs\n"),
        ("btrfs", "ERROR: unrecognized filesystem feature 'hat'\n"),
        ("ext4", "Invalid filesystem option set: hat\n"),
    ):
        error = blamed(name, said)
        assert isinstance(error, UserError)
        assert error.hint == f"storage.{name}.mkfs_options has them"
    for error_of_disk in ("Input/output error", "Invalid argument"):
        assert isinstance(blamed("xfs", f"mkfs.xfs: pwrite failed: {error_of_disk}\n"), KernelFault)


@pytest.mark.parametrize("size_mib", [16, 126, 600])
def test_the_real_mke2fs_makes_what_is_asked(size_mib: int, tmp_path: Path) -> None:
    """Also of a small file system, to which it gives 1 KiB: QEMU before 8.1 stops at such requests on many hosts."""
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(size_mib * MIB)
    program, *arguments, _device = shlex.split(made("ext4").steps[0].command)
    command(program, *arguments, disk)
    asked = words_of(own("ext4").mkfs_options)
    assert list(own("ext4").other_format(asked, command("dumpe2fs", "-h", disk))) == []


def test_ext4_without_a_journal_is_mounted_without_its_options() -> None:
    usual = own("ext4").mkfs_options
    for without in (usual.replace("has_journal,", ""), "-O ^has_journal -b 4096"):
        _, mount = (step.command for step in made("ext4", mkfs_options=without).steps)
        assert mount.split()[4].split(",")[:4] == ["rw", "relatime", "barrier", "delalloc"]
        assert problems("ext4", None, mkfs_options=without) == []
        for option in ("data=writeback", "commit=30"):
            keys = ("storage.ext4.mount_options", "storage.ext4.mkfs_options")
            assert problems("ext4", None, mkfs_options=without, mount_options=option) == [keys]
    for with_one in ("-b 4096", "-j -O none", usual):
        assert problems("ext4", None, mkfs_options=with_one, mount_options="data=writeback") == []


def test_options_of_mount_bring_the_kernel_options_that_they_need() -> None:
    def fragments(name: str, typed: str) -> tuple[str, ...]:
        return settings(f"hdd+{name}", {f"storage.{name}.mount_options": typed}).kernel.fragments

    assert fragments("xfs", "noatime") == ("tiny", "vm", "storage-xfs")
    assert fragments("xfs", "uquota,gqnoenforce") == ("tiny", "vm", "storage-xfs", "storage-xfs-quota")
    assert fragments("btrfs", "acl") == ("tiny", "vm", "storage-btrfs", "storage-btrfs-acl")
    assert fragments("btrfs", "noacl") == ("tiny", "vm", "storage-btrfs")
