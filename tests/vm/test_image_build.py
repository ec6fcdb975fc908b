"""The guest image from its recipe: with a stand-in for mmdebstrap, and the real make-ext4 and ssh-keygen."""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, UserError
from bisector.host.files import remove_abandoned
from bisector.host.packages import install
from bisector.host.process import CommandFailed, CommandMissing, run
from bisector.vm import image
from bisector.vm.image import GuestImage, build_image, find_image, overlay, recipe_key

RECIPE = Path(__file__).parent.parent.parent / "vm-images"

# What make-ext4 expects of a Debian tree, and nothing else.
_TREE = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/:/usr/sbin/nologin\n",
    "etc/ssh/ssh_host_rsa_key": b"every Debian image would have the same",
    "usr/lib/udev/rules.d/60-persistent-storage.rules": b"",
    "usr/lib/udev/rules.d/69-lvm.rules": b"",
    "usr/share/doc/fio/changelog.gz": b"x" * 5000,
}
_DIRECTORIES = ("root", "usr/sbin", "etc/lvm", "etc/modprobe.d", "usr/lib/udev", "dev")


def stand_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that counts its calls, fails as often as `failures` says, and gives a tiny tree at once."""
    directory.mkdir()
    with tarfile.open(directory / "tree.tar", "w") as tar:
        for name in _DIRECTORIES:
            info = tarfile.TarInfo(f"./{name}")
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name, data in _TREE.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, BytesIO(data))
        device = tarfile.TarInfo("./dev/console")
        device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 5, 1
        tar.addfile(device)
    script = directory / "mmdebstrap"
    script.write_text(
        f"#!/bin/sh\ncd '{directory}'\necho \"$@\" >> calls\n"
        'if [ "$(wc -l < calls)" -le "$(cat failures 2>/dev/null || echo 0)" ]; then\n'
        "\techo 'E: Temporary failure resolving the mirror' >&2; exit 1\nfi\n"
        'for last; do :; done\ncp tree.tar "$last"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setattr(image, "_BETWEEN_TRIES_S", (0.0,) * 2)
    return directory


@pytest.fixture
def mmdebstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return stand_in(tmp_path / "programs", monkeypatch)


@pytest.fixture(scope="module")
def built(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> GuestImage:
    """One image for all tests that only look at it."""
    place = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        stand_in(place / "programs", patch)
        return build(place / "cache")


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Making the file system needs root or subordinate ids."""
    if os.geteuid() != 0:
        try:
            run(["unshare", "--map-auto", "--map-root-user", "true"], deadline_s=20)
        except (CommandFailed, CommandMissing) as error:
            pytest.skip(f"no user namespaces here: {error}")


def calls(mmdebstrap: Path) -> int:
    return len((mmdebstrap / "calls").read_text().splitlines())


def debugfs(image: GuestImage, request: str) -> str:
    program = shutil.which("debugfs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert program is not None, "debugfs comes with mke2fs"
    return run([program, "-R", request, image.root], deadline_s=20).stdout


def build(cache: Path) -> GuestImage:
    return build_image(RECIPE, cache, None, lambda text: None)


@pytest.mark.usefixtures("namespaces")
def test_what_a_killed_builder_unpacked_is_removed(mmdebstrap: Path, tmp_path: Path) -> None:
    """mmdebstrap's own directory is in a directory of bisector, which nobody holds any more."""
    script = (
        "import sys; from pathlib import Path; from bisector.vm.image import build_image;"
        "build_image(Path(sys.argv[1]), Path(sys.argv[2]), None, print)"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    hangs = 'mkdir "$TMPDIR/mmdebstrap.x" && echo x > "$TMPDIR/mmdebstrap.x/file" && exec sleep 300\n'
    (mmdebstrap / "mmdebstrap").write_text(f"#!/bin/sh\n{hangs}")
    environment = {**os.environ, "TMPDIR": str(temporary)}
    words = [sys.executable, "-c", script, str(RECIPE), str(tmp_path / "images")]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as builder:
        unpacked = Deadline("what is unpacked", 20).poll(lambda: next(temporary.glob("*/*/file"), None), every_s=0.02)
        assert remove_abandoned(temporary) == ()
        builder.kill()
    assert unpacked.exists()
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if is_of(path, unpacked)]
    assert remove_abandoned(temporary) == (unpacked.parent.parent,)
    for path in left:
        os.kill(int(path.parent.name), signal.SIGKILL)


def is_of(environ: Path, unpacked: Path) -> bool:
    try:
        return os.fsencode(f"TMPDIR={unpacked.parent.parent}") in environ.read_bytes().split(b"\0")
    except OSError:
        return False


def test_the_file_system_is_complete_and_roots(built: GuestImage) -> None:
    image = built
    for path, mode in {
        "/usr/sbin/bisector-init": "0755",
        "/etc/ssh/ssh_host_ed25519_key": "0600",
        "/root/.ssh/authorized_keys": "0600",
        "/etc/ssh/sshd_config": "0644",
        "/etc/lvm/lvm.conf": "0644",
        "/etc/modprobe.d/bisector.conf": "0644",
        "/etc/fstab": "0644",
    }.items():
        stat = debugfs(image, f"stat {path}").split()
        assert stat[stat.index("Mode:") + 1] == mode, path
        assert (stat[stat.index("User:") + 1], stat[stat.index("Group:") + 1]) == ("0", "0"), path
    assert "bisector-init" in debugfs(image, "stat /usr/sbin/init")
    assert debugfs(image, "cat /root/.ssh/authorized_keys") == image.ssh_key.with_suffix(".pub").read_text()
    assert debugfs(image, "cat /etc/passwd").startswith("root:x:0:0:root:/root:/bin/sh\n")


def test_only_features_that_kernels_of_2017_mount(built: GuestImage) -> None:
    features = debugfs(built, "features").removeprefix("Filesystem features:").split()
    # fs/ext4/ext4.h of v4.11 has all of these, and mounts without a journal.
    known = {"ext_attr", "dir_index", "filetype", "extent", "flex_bg", "sparse_super", "large_file", "huge_file"}
    assert set(features) == known | {"dir_nlink", "extra_isize"}


@pytest.mark.usefixtures("namespaces")
def test_two_builders_at_once_build_one_image(mmdebstrap: Path, tmp_path: Path) -> None:
    images: list[GuestImage] = []
    # flock(2) locks belong to the open file, so that two threads exclude each other as two processes do.
    builders = [threading.Thread(target=lambda: images.append(build(tmp_path / "cache"))) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert len(images) == 2
    assert images[0] == images[1]
    assert calls(mmdebstrap) == 1


@pytest.mark.usefixtures("namespaces")
def test_a_network_that_comes_back(mmdebstrap: Path, tmp_path: Path) -> None:
    (mmdebstrap / "failures").write_text("2")
    said: list[str] = []
    build_image(RECIPE, tmp_path / "cache", None, said.append)
    assert calls(mmdebstrap) == 3
    assert sum("trying again" in text for text in said) == 2


@pytest.mark.usefixtures("namespaces")
def test_a_network_that_stays_away(mmdebstrap: Path, tmp_path: Path) -> None:
    (mmdebstrap / "failures").write_text("9")
    with pytest.raises(InfraError, match="Temporary failure resolving") as caught:
        build(tmp_path / "cache")
    assert "bisector image build" in caught.value.hint
    assert calls(mmdebstrap) == 3
    assert find_image(RECIPE, tmp_path / "cache") is None
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def flip(path: Path) -> None:
    """One bit, in the middle of the data."""
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(1024 + 56)  # the magic number of ext4 in the root
        byte = file.read(1) or b"\0"
        file.seek(-1 if byte != b"\0" else 0, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit": lambda image: flip(image / "root.ext4"),
    "no key": lambda image: (image / "id_ed25519").unlink(),
    "empty host key": lambda image: (image / "ssh_host_ed25519_key.pub").write_bytes(b""),
    "garbled sums": lambda image: (image / "sums").write_bytes(b"\xff\0\n"),
}


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_image_that_was_damaged_is_built_anew(
    built: GuestImage, mmdebstrap: Path, tmp_path: Path, damage: str
) -> None:
    """Before a guest starts on it, and only once."""
    run(["cp", "-a", "--sparse=always", built.root.parents[1], tmp_path / "cache"], deadline_s=20)
    image = GuestImage.kept_in(tmp_path / "cache" / built.key, built.key)
    DAMAGES[damage](image.root.parent)
    notes: list[str] = []
    again = build_image(RECIPE, tmp_path / "cache", None, notes.append)
    assert "built anew" in notes[0]
    assert calls(mmdebstrap) == 1
    assert again.ssh_key.read_text() != ""
    assert debugfs(again, "stat /usr/sbin/bisector-init") != ""
    assert build_image(RECIPE, tmp_path / "cache", None, notes.append) == again
    assert calls(mmdebstrap) == 1
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [image.key, f"{image.key}.lock"]


@pytest.mark.usefixtures("namespaces")
def test_an_image_is_on_the_disk_before_it_has_its_name(
    mmdebstrap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        order.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    def renamed(path: Path, target: Path) -> Path:
        order.append("its name")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "rename", renamed)
    build(tmp_path / "cache")
    assert order[:4] == ["id_ed25519", "id_ed25519.pub", "root.ext4", "ssh_host_ed25519_key.pub"]
    assert order[4].startswith(".sums.")
    assert order[5].startswith(f"{recipe_key(RECIPE)}.new-")
    assert order[6:] == ["its name", "cache"]


def test_programs_that_are_missing_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(image, "_SUPERUSER_DIRECTORIES", ())
    with pytest.raises(UserError, match="mmdebstrap, e2fsprogs") as caught:
        build(tmp_path / "cache")
    assert caught.value.hint == install("mmdebstrap", "e2fsprogs", "openssh-client", "util-linux")


def test_an_ordinary_user_without_subordinate_ids(
    mmdebstrap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unshare = mmdebstrap / "unshare"
    unshare.write_text("#!/bin/sh\necho 'unshare: no line matching user in /etc/subuid' >&2; exit 1\n")
    unshare.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match="no line matching user") as caught:
        build(tmp_path / "cache")
    assert "uidmap" in caught.value.hint
    assert "--add-subuids" in caught.value.hint


def test_the_overlay_leaves_the_image_alone(tmp_path: Path) -> None:
    root = tmp_path / "root.ext4"
    root.write_bytes(b"\0" * 1048576)
    path = overlay(GuestImage(root, tmp_path / "key", "ssh-ed25519 AAAA", "k"), tmp_path / "overlay.qcow2")
    told = run(["qemu-img", "info", path], deadline_s=20).stdout
    assert "file format: qcow2" in told
    assert f"backing file: {root}" in told
    assert "backing file format: raw" in told
