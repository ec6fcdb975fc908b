"""Modules as the guest gets them: installed by the tree's own rules, on a read-only file system of their own.

ext4, because every kernel that boots here has it built in for its root.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from bisector.core.errors import InfraError, KernelFault
from bisector.core.trial import FaultKind, Stage
from bisector.host import packages, process
from bisector.kernel import signature
from bisector.kernel.builddir import remove_whole
from bisector.kernel.kconfig import MODULE
from bisector.kernel.make import Make

# What making and packing modules needs of the host: program, and the Debian package that has it.
PROGRAMS = {"depmod": "kmod", "mke2fs": "e2fsprogs"}

_STAGING = ".bisector-modules"
_SUPERUSER_DIRECTORIES = ("/usr/sbin", "/sbin")  # an ordinary user's PATH has neither
# Features that a kernel of 2017 mounts, whatever the host's e2fsprogs prefers; no journal, nothing is ever written.
_FEATURES = "none,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize"
_LABEL = "bisector-modules"
_BLOCK_BYTES, _INODE_BYTES = 4096, 256
_SPARE_BLOCKS = 1024  # superblocks, group descriptors, bitmaps
_PACK_DEADLINE_S = 300.0


def wanted(options: Mapping[str, str]) -> bool:
    """Whether a kernel of this effective configuration has modules."""
    return options.get("CONFIG_MODULES") == "y" and MODULE in options.values()


def find_program(name: str) -> str | None:
    """Where a program of :data:`PROGRAMS` is, also for an ordinary user."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SUPERUSER_DIRECTORIES)))


def install(make: Make) -> Path:
    """Install what ``make modules`` built into a new directory, stripped; what becomes /lib/modules of the guest.

    Raises :class:`KernelFault` as make does and where it installs for no release or several, ``OSError``, and
    :class:`InfraError` without depmod: the tree's own rules only warn (scripts/depmod.sh), and nothing could be loaded
    by its name.
    """
    staging = make.places.build / _STAGING
    remove_whole(staging)
    depmod = _program("depmod")
    make.run(
        Stage.BUILD,
        "modules_install",
        variables={"INSTALL_MOD_PATH": str(staging), "INSTALL_MOD_STRIP": "1", "DEPMOD": depmod},
    )
    tree = staging / "lib/modules"
    _only_directory(tree)
    for link in (*tree.glob("*/build"), *tree.glob("*/source")):  # to directories of this host
        if link.is_symlink():
            link.unlink()
    if not list(tree.glob("*/modules.dep")):
        raise InfraError(f"{depmod} made no modules.dep in {tree}", "the end of the build log says why")
    return tree


def parts(tree: Path, release: str) -> dict[str, str]:
    """The digests of the installed modules, for :func:`elf.combined`: a changed module is a changed kernel.

    Of one that the tree's rules have compressed (CONFIG_MODULE_COMPRESS) it is that of the file. Raises
    :class:`KernelFault` where there are modules of several releases, or of none.
    """
    root = _only_directory(tree)
    plain = {path: signature.content_sha256(path, release) for path in root.rglob("*.ko")}
    compressed = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in root.rglob("*.ko.*")}
    return {str(path.relative_to(root)): digest for path, digest in (plain | compressed).items()}


def _only_directory(tree: Path) -> Path:
    roots = sorted(path for path in tree.iterdir() if path.is_dir())
    if len(roots) != 1:
        reason = f"make modules_install made {len(roots)} directories in lib/modules instead of one"
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason, tuple(path.name for path in roots[:5]))
    return roots[0]


def pack(tree: Path, image: Path) -> Path:
    """Make the file system of an installed tree, as large as it has to be; raises :class:`InfraError`."""
    image.unlink(missing_ok=True)
    blocks, inodes = _needs(tree)
    argv = (_program("mke2fs"), "-q", "-t", "ext4", "-O", _FEATURES, "-b", _BLOCK_BYTES, "-I", _INODE_BYTES,
            "-N", inodes, "-m", 0, "-L", _LABEL, "-E", "root_owner=0:0,lazy_itable_init=0",
            "-d", tree, image, blocks)  # fmt: skip
    try:
        process.run([str(word) for word in argv], deadline_s=_PACK_DEADLINE_S)
    except (process.CommandMissing, process.CommandFailed, process.CommandTimeout) as error:
        raise InfraError(f"the image of the modules could not be made: {error}", f"df {image.parent}") from error
    return image


def _needs(tree: Path) -> tuple[int, int]:
    """Blocks and inodes, a few too many."""
    sizes = list(_sizes(tree))
    inodes = len(sizes) + 64
    blocks = sum(-(-size // _BLOCK_BYTES) for size in sizes) + inodes * _INODE_BYTES // _BLOCK_BYTES
    return blocks + blocks // 32 + _SPARE_BLOCKS, inodes


def _sizes(tree: Path) -> Iterator[int]:
    for at, directories, names in os.walk(tree):
        yield from (_BLOCK_BYTES for _ in directories)
        yield from (Path(at, name).lstat().st_size for name in names)


def _program(name: str) -> str:
    found = find_program(name)
    if found is None:
        raise InfraError(f"{name}: command not found; a kernel with modules needs it", packages.install(PROGRAMS[name]))
    return found
