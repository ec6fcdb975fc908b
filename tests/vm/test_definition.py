"""The XML that libvirt gets, and how a disk is named in the settings."""

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bisector.config import Accelerator
from bisector.host.disks import BlockSizes
from bisector.storage.disks import Bus
from bisector.vm.definition import (
    DiskSpec,
    DomainSpec,
    InstructionClock,
    SourceKind,
    command_line,
    domain_xml,
)

SPEC = DomainSpec(
    name="bisector-1f2e-3",
    kernel=Path("/k/bzImage & co"),
    console=Path("/r/console.log"),
    ssh_port=2222,
    accelerator=Accelerator.TCG,
    root=Path("/r/root.qcow2"),
    root_base=Path("/c/root.img"),
    disks=(
        DiskSpec("ssd", Path("/r/ssd.img")),
        DiskSpec("hdd", Path("/dev/vg/hdd"), SourceKind.BLOCK, iops_limit=1000),
        DiskSpec("nas", Path("/n/nas.img"), direct=False, bytes_per_s_limit=1 << 20),
    ),
    vcpus=3,
    memory_bytes=768 << 20,
)
QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"


def tree(spec: DomainSpec = SPEC) -> ET.Element:
    return ET.fromstring(domain_xml(spec))


def disks(spec: DomainSpec = SPEC) -> dict[str | None, ET.Element]:
    return {disk.findtext("serial"): disk for disk in tree(spec).iter("disk")}


def at(element: ET.Element, path: str) -> dict[str, str]:
    """The attributes of what is there."""
    found = element.find(path)
    assert found is not None, path
    return found.attrib


def arguments(spec: DomainSpec = SPEC) -> list[str]:
    """QEMU's own."""
    return [str(argument.get("value")) for argument in tree(spec).iter(f"{QEMU}arg")]


def test_root_is_the_first_disk_and_its_base_keeps_its_owner() -> None:
    root = disks()["root"]
    driver = at(root, "driver")
    assert (driver["type"], driver["cache"], at(root, "target")["dev"]) == ("qcow2", "unsafe", "vda")
    assert at(root, "backingStore/source/seclabel")["relabel"] == "no"


def test_qemu_under_a_daemon_is_who_we_are() -> None:
    assert tree().find("seclabel") is None
    by_a_daemon = tree(replace(SPEC, run_as=(1000, 107)))
    assert at(by_a_daemon, "seclabel") == {"type": "static", "model": "dac", "relabel": "yes"}
    assert by_a_daemon.findtext("seclabel/label") == "+1000:+107"


def test_modules_are_the_last_disk_and_read_only() -> None:
    found = disks(replace(SPEC, modules=Path("/c/k/modules.ext4")))
    assert list(found) == ["root", "ssd", "hdd", "nas", "modules"]
    disk = found["modules"]
    assert disk.find("readonly") is not None
    assert (at(disk, "source")["file"], at(disk, "target")["dev"]) == ("/c/k/modules.ext4", "vde")
    assert disk.find("source/seclabel") is None, "libvirt has no such labels where it is not privileged"
    by_a_daemon = disks(replace(SPEC, modules=Path("/c/k/modules.ext4"), run_as=(1000, 107)))["modules"]
    assert by_a_daemon.find("source/seclabel[@relabel='no']") is not None, "the kept file keeps its owner"
    assert all(other.find("readonly") is None for name, other in found.items() if name != "modules")


@pytest.mark.parametrize(
    ("bus", "target", "model"), [(Bus.SCSI, "sdc", "virtio-scsi"), (Bus.SATA, "sdc", None), (Bus.VIRTIO, "vdc", "")]
)
def test_a_disk_on_another_bus_has_a_controller_and_all_else(bus: Bus, target: str, model: str | None) -> None:
    late = replace(SPEC.disks[1], bus=bus, blocks=BlockSizes(512, 4096))
    spec = replace(SPEC, disks=(SPEC.disks[0], late, SPEC.disks[2]))
    disk = disks(spec)["hdd"]
    assert at(disk, "target") == {"dev": target, "bus": bus.value}
    assert disk.findtext("iotune/total_iops_sec") == "1000"
    assert at(disk, "driver")["rerror_policy"] == "stop"
    controllers = tree(spec).findall(f"devices/controller[@type='{bus}']")
    if model == "":
        assert (disk.find("address"), controllers) == (None, [])
        return
    (controller,) = controllers
    assert (controller.get("index"), controller.get("model")) == (at(disk, "address")["controller"], model)
    assert controller.get("index") == "0"
    several = replace(spec, disks=(late, *(replace(one, bus=bus) for one in SPEC.disks)))
    found = [one.get("index") for one in tree(several).findall(f"devices/controller[@type='{bus}']")]
    assert found == ["0", "1", "2", "3"], "libvirt fills gaps with controllers of another kind"


def test_a_disk_on_nvme_is_told_to_qemu_itself() -> None:
    """libvirt knows of none; what it is told of the others is as if that one were not there."""
    late = replace(SPEC.disks[1], bus=Bus.NVME, blocks=BlockSizes(512, 4096), part=(1 << 20, 64 << 20))
    spec = replace(SPEC, disks=(SPEC.disks[0], late, SPEC.disks[2]))
    assert "hdd" not in disks(spec)
    assert [target.get("dev") for target in tree(spec).iterfind("devices/disk/target")] == ["vda", "vdb", "vdc"]
    words = arguments(spec)
    raw, limited = (json.loads(after) for word, after in pairwise(words) if word == "-blockdev")
    assert raw["file"] == {
        "driver": "host_device",
        "filename": "/dev/vg/hdd",
        "aio": "native",
        "cache": {"direct": True, "no-flush": False},
        "discard": "unmap",
    }
    assert (raw["offset"], raw["size"], limited["file"]) == (1 << 20, 64 << 20, raw["node-name"])
    assert "throttle-group,id=nvme0-limit,x-iops-total=1000" in words
    sizes = "logical_block_size=512,physical_block_size=4096"
    assert words[-1] == f"nvme,id=nvme0,bus=pci.0,addr=0x11,serial=hdd,drive={limited['node-name']},{sizes}"
    served = DiskSpec("ssd", Path("/s/socket"), SourceKind.NETWORK, bus=Bus.NVME)
    words = arguments(replace(SPEC, disks=(served,)))
    assert json.loads(words[words.index("-blockdev") + 1])["file"]["server"] == {"type": "unix", "path": "/s/socket"}
    assert words[-1] == "nvme,id=nvme0,bus=pci.0,addr=0x11,serial=ssd,drive=nvme0"


def test_network_goes_in_by_one_port_and_never_out() -> None:
    assert " ".join(arguments()) == (
        "-netdev user,id=ssh,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:2222-:22"
        " -device virtio-net-pci,netdev=ssh,bus=pci.0,addr=0x10,romfile="
    )


def test_a_guest_whose_instructions_are_counted_has_nothing_from_outside(tmp_path: Path) -> None:
    root, box = tmp_path / "root.ext4", tmp_path / "mailbox"
    for path, size in ((root, 64), (box, 32)):
        path.touch()
        os.truncate(path, size << 20)
    counted = InstructionClock(3, box, (tmp_path / "a,b", tmp_path / "c"), cpu=5)
    spec = replace(SPEC, root=None, root_base=root, disks=(), vcpus=1, counted=counted)
    domain = tree(spec)
    assert domain.find("vcpu[@cpuset='5']") is not None
    assert tree(SPEC).find("vcpu[@cpuset]") is None
    said = " ".join(arguments(spec))
    assert said.startswith("-icount shift=3,sleep=off,rr=record,rrfile=/dev/null -rtc base=2024-01-01,clock=vm -uuid ")
    for part in (
        f"-chardev file,id=bell0,path={tmp_path}/a,,b -device isa-debugcon,iobase=0x5e8,",
        f"-machine nvdimm=on -object memory-backend-file,id=memnvdimm0,mem-path={root},share=off,size={64 << 20}",
        f"memory-backend-file,id=memnvdimm1,mem-path={box},share=on,size={32 << 20}",
    ):
        assert part in said
    assert {kind for kind in ("disk", "rng", "interface") if domain.find(f"devices/{kind}") is not None} == set()
    off = [feature.get("name") for feature in domain.iterfind("cpu/feature[@policy='disable']")]
    assert off == ["rdrand", "rdseed"]
    with_modules = tree(replace(spec, modules=root))
    assert f"id=memnvdimm2,mem-path={root},share=off" in ET.tostring(with_modules, encoding="unicode")
    assert with_modules.find("maxMemory[@slots='3']") is not None
    words = command_line(counted=True)
    assert words[-4:-1] == ("root=/dev/pmem0", "rootwait", "BISECTOR_MAILBOX=yes")


def test_a_disk_of_a_server_on_this_host() -> None:
    """Its file is the server's to open, so libvirt takes no way to do that."""
    spec = DiskSpec("hdd", Path("/tmp/x/socket"), SourceKind.NETWORK, iops_limit=7)
    disk = disks(replace(SPEC, disks=(spec,)))["hdd"]
    assert disk.get("type") == "network"
    assert at(disk, "source") == {"protocol": "nbd"}
    assert at(disk, "source/host") == {"transport": "unix", "socket": "/tmp/x/socket"}
    driver = at(disk, "driver")
    assert (driver["cache"], driver["rerror_policy"], "io" in driver) == ("none", "stop", False)
    assert disk.findtext("iotune/total_iops_sec") == "7"
