"""A root image of the user's own, made from ours by a small change."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.vm.image import build_image
from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool
from tests.loopdevice import command

pytestmark = pytest.mark.vm


@dataclass(frozen=True)
class Own:
    """The image, and the flags that name it."""

    root: Path
    flags: tuple[str | Path, ...]

    def change(self, request: str) -> None:
        """A request of debugfs(8), which writes into the file system without mounting it."""
        command("debugfs", "-w", "-R", request, self.root)

    def edit(self, recipe: str, path: str, old: str, new: str) -> None:
        """Another file at ``path`` than that of the recipe."""
        text, mine = (resources.vm_images() / recipe).read_text(), self.root.with_name(recipe)
        assert old in text
        mine.write_text(text.replace(old, new))
        self.change(f"rm {path}")
        self.change(f"write {mine} {path}")
        self.change(f"set_inode_field {path} mode 0100755")


@pytest.fixture
def own(tmp_path: Path) -> Own:
    kept = build_image(resources.vm_images(), resources.cache_home() / "images", None, lambda text: None)
    root, host_key = tmp_path / "mine.img", tmp_path / "host.pub"
    command("cp", "--sparse=always", kept.root, root)
    root.chmod(0o644)
    host_key.write_text(f"{kept.host_public_key}\n")
    flags = ("--image", root, "--image-key", kept.ssh_key, "--image-host-key", host_key)
    return Own(root, flags)


def test_trial(tool: Tool, demo: History, own: Own) -> None:
    """That it is this image that runs is seen on the console: its init says something more."""
    said = "mount -a -n\necho '<1>an image of my own' > /dev/kmsg\n"
    own.edit("init", "/usr/sbin/bisector-init", "mount -a -n\n", said)
    before = own.root.stat().st_mtime_ns
    trial = tool.trial(demo.new, *own.flags, *SHORT)
    (console,) = (artifact for artifact in trial["artifacts"] if artifact["name"] == "console.log")
    assert "an image of my own" in (Path(trial["run_dir"]) / console["path"]).read_text(errors="replace")
    assert own.root.stat().st_mtime_ns == before


def test_image_without_fio(tool: Tool, demo: History, own: Own) -> None:
    own.change("rm /usr/bin/fio")
    said = tool.refused(demo.new, *own.flags, *SHORT)
    assert "the guest image lacks fio" in said
    assert "machine.image" in said


@pytest.mark.rare
def test_image_without_room_for_the_figures(tool: Tool, demo: History, own: Own) -> None:
    own.edit("fstab", "/etc/fstab", "nosuid,nodev,mode=1777", "nosuid,nodev,mode=1777,size=12k")
    said = tool.refused(demo.new, *own.flags, *SHORT)
    assert "the guest's root disk is full" in said
