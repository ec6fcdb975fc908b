"""A kernel tree that builds in a second, for tests that want real git, real make and a real compiler."""

import re
import shutil
from pathlib import Path

TREE = Path(__file__).parent / "fakelinux"
SMQ = "drivers/md/dm-cache-policy-smq.c"
FRAGMENT = "CONFIG_MD=y\nCONFIG_BLK_DEV_DM=y\nCONFIG_DM_CACHE=y\nCONFIG_DM_CACHE_SMQ=y\n"


def copy_to(path: Path) -> Path:
    """A fresh copy of the tree at ``path`` (made; may exist); commit it to git there if wanted."""
    shutil.copytree(TREE, path, dirs_exist_ok=True)
    return path


def edit(tree: Path, file: str, old: str, new: str) -> None:
    """Replace a text that is there."""
    path = tree / file
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{old!r} is not in {file}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def set_iops(tree: Path, iops: int) -> None:
    """Make a stand-in guest that boots this tree's kernel measure this."""
    path = tree / SMQ
    text = re.sub(r"IOPS_MEAN \d+", f"IOPS_MEAN {iops}", path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")


def iops_of(image: Path) -> int | None:
    """What :func:`set_iops` put into the tree that this bzImage was built from; None without smq."""
    match = re.search(rb"fakelinux iops_mean=(\d+)", image.read_bytes())
    return int(match[1]) if match else None


def spoil(tree: Path) -> None:
    """Make fs/dcache.c a file that does not compile, as a bad commit does."""
    edit(tree, "fs/dcache.c", "nr_dentry = 0;", "nr_dentries = 0;")
