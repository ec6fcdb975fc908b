"""A guest image: what its key is made from, its sums, and a person's own one."""

import os
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import MachineSettings, options
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.host.process import run
from bisector.vm.definition import MODULES_SERIAL
from bisector.vm.image import own_image, recipe_key, sum_of

RECIPE = Path(__file__).parent.parent.parent / "vm-images"


def machine(image: Path | None, key: Path | None, host_key: Path | None) -> MachineSettings:
    settings = options.load(directory=Path("/")).settings
    return replace(settings.machine, image=image, image_key=key, image_host_key=host_key)


def test_holes_and_zeros_have_one_sum(tmp_path: Path) -> None:
    """And a place or a size that differs has another."""
    data = random.Random(1).randbytes(5000)
    contents = [
        bytes(3 << 20) + data + bytes(2 << 20),
        bytes(2 << 20) + data + bytes(3 << 20),
        bytes(3 << 20) + data + bytes(1 << 20),
        bytes(3 << 20) + data[:-1] + b"\0" + bytes(2 << 20),
    ]
    sums = []
    for content in contents:
        (tmp_path / "file").write_bytes(content)
        sums.append(sum_of(tmp_path / "file"))
    assert len(set(sums)) == len(contents)
    with (tmp_path / "sparse").open("wb") as file:
        file.seek(3 << 20)
        file.write(data)
        file.truncate(len(contents[0]))
    assert sum_of(tmp_path / "sparse") == sums[0]


def test_the_key_follows_the_recipe_and_not_its_notes(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe"
    shutil.copytree(RECIPE, recipe)
    key = recipe_key(recipe)
    assert key == recipe_key(RECIPE)
    (recipe / "README.md").write_text("other words")
    assert recipe_key(recipe) == key
    (recipe / "packages").write_text("fio\n")
    assert recipe_key(recipe) != key


def test_an_image_of_ones_own(tmp_path: Path) -> None:
    image, key, host = tmp_path / "mine.qcow2", tmp_path / "key", tmp_path / "host.pub"
    image.write_bytes(b"QFI\xfb")
    key.write_text("private")
    host.write_text("ssh-ed25519 AAAAC3Nz me@guest\n")
    own = own_image(machine(image, key, host))
    assert (own.root, own.ssh_key, own.disk_format) == (image, key, "qcow2")
    assert own.host_public_key == "ssh-ed25519 AAAAC3Nz"
    assert own.key.startswith("own-")
    at_ns = image.stat().st_mtime_ns
    os.utime(image, ns=(at_ns, at_ns + 1_000_000_000))
    written_again = own_image(machine(image, key, host)).key
    image.write_bytes(b"QFI\xfb" + bytes(8))
    os.utime(image, ns=(at_ns, at_ns))
    assert len({own.key, written_again, own_image(machine(image, key, host)).key}) == 3


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ((), None),
        (("-o", "compat=0.10"), None),
        (("-F", "raw", "-b", "secret"), "backing file"),
        (("-o", "compat=0.10", "-F", "raw", "-b", "secret"), "backing file"),
        (("-F", "qcow2", "-b", "middle.qcow2"), "backing file"),
        (("-o", "data_file=other,data_file_raw=on"), "data file"),
    ],
)
def test_an_image_that_names_another_file_is_refused(tmp_path: Path, how: tuple[str, ...], words: str | None) -> None:
    """Whatever it names, and in whatever way it goes on from there, would be read by the guest."""
    (tmp_path / "secret").write_bytes(bytes(1 << 20))
    host, image = tmp_path / "host.pub", tmp_path / "mine.qcow2"
    host.write_text("ssh-ed25519 AAAAC3Nz me@guest\n")
    make = ["qemu-img", "create", "-q", "-f", "qcow2"]
    run([*make, "-F", "raw", "-b", tmp_path / "secret", tmp_path / "middle.qcow2"], deadline_s=20, cwd=tmp_path)
    run([*make, *how, image.name, "1M"], deadline_s=20, cwd=tmp_path)
    if words is None:
        assert own_image(machine(image, host, host)).root == image
        return
    with pytest.raises(UserError, match=rf"mine\.qcow2 names a {words}") as caught:
        own_image(machine(image, host, host))
    assert "qemu-img convert" in caught.value.hint


@pytest.mark.parametrize("missing", ["image", "image_key", "image_host_key"])
def test_an_image_of_ones_own_that_is_not_all_there(tmp_path: Path, missing: str) -> None:
    paths = {name: tmp_path / name for name in ("image", "image_key", "image_host_key")}
    for name, path in paths.items():
        if name != missing:
            path.write_text("ssh-ed25519 AAAA")
    with pytest.raises(UserError, match=rf"machine\.{missing}: .* is not a file"):
        own_image(machine(*paths.values()))
    with pytest.raises(UserError, match=rf"machine\.{missing} is not set"):
        own_image(machine(*(None if name == missing else path for name, path in paths.items())))


def test_a_private_key_given_as_the_host_key(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n")
    with pytest.raises(UserError, match="not a public SSH key"):
        own_image(machine(file, file, file))


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
