"""What make has made, as this process finds it in the build directory: to be looked at before it is believed.

Modules are installed by the tree's own rules, and the guest gets them on a read-only file system of their own: ext4,
because every kernel that boots here has it built in for its root.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bisector.core.errors import InfraError, KernelFault
from bisector.core.trial import FaultKind, Stage
from bisector.host import packages, process
from bisector.host.files import remove_whole, sha256_of
from bisector.kernel import cache, kconfig, signature, sources, toolchain
from bisector.kernel.builddir import BuildPlaces
from bisector.kernel.make import Make

CONFIG = Path(".config")
IMAGE = Path("arch/x86/boot/bzImage")
_VMLINUX = Path("vmlinux")
_RELEASE = Path("include/config/kernel.release")
_NEEDED = (IMAGE, _VMLINUX, _RELEASE, CONFIG)
# What is copied or read as a whole: a sparse file takes no room on the disk until that is done. An image is smaller
# than the addresses of a kernel, 1 GiB (KERNEL_IMAGE_SIZE); a distribution's modules, stripped, have 0.5 GB.
_MOST_BYTES = {IMAGE: 1 << 30, CONFIG: kconfig.MOST_BYTES, _RELEASE: 4096}
_MOST_MODULES_BYTES = 16 << 30
# A kernel's name has 64 letters at most (uts_len in the kernel's Makefile).
_PLAIN_RELEASE = re.compile(r"\w[!-.0-~]{0,63}", re.ASCII)
_QUOTED = 80
_STAGING = ".bisector-modules"
_LIST = "modules.dep"
# Where depmod is tried, and for a release that it takes for one.
_TRIED, _TRIED_RELEASE = ".bisector-depmod", "1.0"
# Features that a kernel of 2017 mounts, whatever the host's e2fsprogs prefers; no journal, nothing is ever written.
_FEATURES = "none,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize"
_LABEL = "bisector-modules"
_BLOCK_BYTES, _INODE_BYTES = 4096, 256
_UNIT_BLOCKS = (2 << 20) // _BLOCK_BYTES
_SPARE_BLOCKS = 1024  # superblocks, group descriptors, bitmaps
_PACK_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Product:
    """``modules`` is their file system, None of a kernel without any; ``read`` what the build read, if it says so."""

    obtained: kconfig.Options
    release: str
    build_id: str
    content_sha256: str
    modules: Path | None
    read: sources.Sources | None


def require_image(build: Path) -> None:
    """Raise :class:`KernelFault` unless make has made an image, and what else a kernel is known by, of usual sizes."""
    for name in _NEEDED:
        if not (build / name).is_file():
            reason = f"make bzImage ended well and made no {name}"
            raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason)
    for name, most_bytes in _MOST_BYTES.items():
        _check_size(f"make has made {name}", (build / name).stat().st_size, most_bytes)


def install_modules(make: Make) -> Path:
    """Install what ``make modules`` built into a new directory, stripped; what becomes /lib/modules of the guest.

    Raises :class:`KernelFault` as make does, where it installs for no release or several, and where the tree's rules
    leave out or remove what depmod makes; ``OSError``; and :class:`InfraError` without a depmod that works: the tree's
    own rules only warn (scripts/depmod.sh), and nothing could be loaded by its name.
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
    root = _only_directory(tree)
    for link in (*tree.glob("*/build"), *tree.glob("*/source")):  # to directories of this host
        if link.is_symlink():
            link.unlink()
    if not (root / _LIST).is_file():
        raise _no_list(make, depmod)
    _check_size("make modules_install has installed modules", sum(_sizes(tree)), _MOST_MODULES_BYTES)
    return tree


def modules_parts(tree: Path, release: str) -> dict[str, str]:
    """The digests of the installed modules, which are parts of the kernel's (:func:`signature.combined`).

    The digest of a module that the tree's rules have compressed (CONFIG_MODULE_COMPRESS) is that of its file. Raises
    :class:`KernelFault` where there are modules of several releases, or of none.
    """
    root = _only_directory(tree)
    plain = {path: signature.content_sha256(path, release) for path in root.rglob("*.ko")}
    compressed = {path: sha256_of(path) for path in root.rglob("*.ko.*")}
    return {str(path.relative_to(root)): digest for path, digest in (plain | compressed).items()}


def pack_modules(tree: Path, image: Path) -> Path:
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


def found(places: BuildPlaces, obtained: kconfig.Options, installed: Path | None, deciding: Iterable[str]) -> Product:
    """What is in the build directory; ``installed`` are the modules, ``deciding`` the files that quirks go by.

    Raises :class:`KernelFault`, ``OSError``, and :class:`bisector.core.errors.InfraError` without mke2fs.
    """
    build = places.build
    # What ``uname -r`` will print; it names a directory of modules, so it is no path and has no odd letters.
    release = sources.whole(build / _RELEASE, _MOST_BYTES[_RELEASE]).decode("ascii", errors="replace").strip()
    if not _PLAIN_RELEASE.fullmatch(release):
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, f"the tree calls its release {release[:_QUOTED]!r}")
    return Product(
        obtained=obtained,
        release=release,
        build_id=signature.build_id(build / _VMLINUX),
        content_sha256=_content(places, installed, release),
        modules=pack_modules(installed, places.state / cache.MODULES) if installed is not None else None,
        read=sources.collected(build, places.source, obtained, deciding),
    )


def _content(places: BuildPlaces, installed: Path | None, release: str) -> str:
    """What is loaded, at boot and later: a changed module is a changed kernel, whoever loads it."""
    loaded_later = modules_parts(installed, release) if installed is not None else {}
    return signature.combined({**signature.image_parts(places.build, places.source, release), **loaded_later})


def _check_size(what: str, size_bytes: int, most_bytes: int) -> None:
    if size_bytes > most_bytes:
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, f"{what} of {size_bytes} bytes, which no kernel has")


def _no_list(make: Make, depmod: str) -> KernelFault | InfraError:
    """Who is to blame that there is no modules.dep: the host where depmod makes none of an empty directory either."""
    tried = make.places.build / _TRIED
    remove_whole(tried)
    directory = tried / "lib/modules" / _TRIED_RELEASE
    make.try_program("mkdir", "-p", directory)  # by whoever make runs as
    make.try_program(depmod, "-b", tried, _TRIED_RELEASE)
    if (directory / _LIST).is_file():
        reason = f"make modules_install leaves no {_LIST}, which depmod makes on this host"
        return KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason)
    return InfraError(f"{depmod} makes no {_LIST}", f"the end of the build log says why: {make.places.log}")


def _only_directory(tree: Path) -> Path:
    roots = sorted(path for path in tree.iterdir() if path.is_dir())
    if len(roots) != 1:
        reason = f"make modules_install made {len(roots)} directories in lib/modules instead of one"
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason, tuple(path.name for path in roots[:5]))
    return roots[0]


def _needs(tree: Path) -> tuple[int, int]:
    """Blocks and inodes, a few too many; in all what libvirt gives a guest as memory: whole units of 2 MiB."""
    sizes = list(_sizes(tree))
    inodes = len(sizes) + 64
    blocks = sum(-(-size // _BLOCK_BYTES) for size in sizes) + inodes * _INODE_BYTES // _BLOCK_BYTES
    return -(-(blocks + blocks // 32 + _SPARE_BLOCKS) // _UNIT_BLOCKS) * _UNIT_BLOCKS, inodes


def _sizes(tree: Path) -> Iterator[int]:
    for at, directories, names in os.walk(tree):
        yield from (_BLOCK_BYTES for _ in directories)
        yield from (Path(at, name).lstat().st_size for name in names)


def _program(name: str) -> str:
    found = toolchain.find_program(name)
    if found is None:
        raise InfraError(
            f"{name}: command not found; a kernel with modules needs it", packages.install(toolchain.FOR_MODULES[name])
        )
    return found
