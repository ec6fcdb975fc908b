"""The part of the guest's init that finds the modules, run with a stand-in /sys and mount."""

import subprocess
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.vm.definition import MODULES_SERIAL


def part(text: str) -> str:
    """The loop over the disks, without the rest, which is for a process 1."""
    return text[text.index("for disk in /sys/block") : text.index("done\n", text.index("for disk in /sys/block")) + 5]


@pytest.mark.parametrize(
    ("serials", "status", "mounted", "file_there"),
    [
        pytest.param({}, 0, "", True, id="no disk, as in a guest whose time is counted"),
        pytest.param({"vda": "root", "vdb": "ssd", "vdc": "hdd"}, 0, "", True, id="a kernel without modules"),
        pytest.param(
            {"vda": "root", "vdd": MODULES_SERIAL}, 0, "-n -t ext4 -o ro /dev/vdd /lib/modules\n", False, id="last"
        ),
        pytest.param(
            {"vda": MODULES_SERIAL, "vdb": "root"}, 0, "-n -t ext4 -o ro /dev/vda /lib/modules\n", False, id="first"
        ),
        pytest.param(
            {"vda": MODULES_SERIAL, "vdb": None}, 0, "-n -t ext4 -o ro /dev/vda /lib/modules\n", False, id="once"
        ),
        pytest.param(
            {"vda": None, "vdb": MODULES_SERIAL}, 0, "-n -t ext4 -o ro /dev/vdb /lib/modules\n", False, id="no serial"
        ),
        pytest.param(
            {"vdb": MODULES_SERIAL}, 32, "-n -t ext4 -o ro /dev/vdb /lib/modules\n", True, id="it does not mount"
        ),
    ],
)
def test_modules_are_found_by_serial_number(
    tmp_path: Path, serials: dict[str, str | None], status: int, mounted: str, file_there: bool
) -> None:
    for disk, serial in serials.items():
        (tmp_path / "block" / disk).mkdir(parents=True)
        if serial is not None:  # virtio-blk's attribute has no newline (serial_show in drivers/block/virtio_blk.c)
            (tmp_path / "block" / disk / "serial").write_text(serial)
    conf = tmp_path / "bisector.conf"
    conf.write_text("install dm_cache_smq /bin/true\n")
    mount = tmp_path / "mount"
    mount.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {tmp_path}/mounted\nexit {status}\n')
    mount.chmod(0o755)
    init = part((resources.vm_images() / "init").read_text())
    script = init.replace("/sys/block", f"{tmp_path}/block").replace("/etc/modprobe.d/bisector.conf", str(conf))
    script = script.replace("mount -n", f"{mount} -n")
    said = subprocess.run(["sh", "-c", script], check=False, capture_output=True, timeout=10).stderr
    assert b"*" not in said  # a kind of disk that is not there is not looked into
    calls = tmp_path / "mounted"
    assert (calls.read_text() if calls.exists() else "") == mounted
    assert conf.exists() is file_there
