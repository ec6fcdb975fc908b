"""The kernel that make built: its image and modules, checked before use, and digests that tell two kernels apart.

Modules are installed by the tree's own rules; the guest gets them on a separate read-only file system.

Kernels with equal digests run the same code on the same data. A bzImage is vmlinux, compressed, behind code that
unpacks it (Documentation/x86/boot.rst), and the compressed length changes with the version text. So vmlinux is compared
before it is compressed, and the code around it before it is linked. Both are ELF files (elf(5)): the loaded sections
count, in an object file or module also relocations and symbols, but not the texts that name the version.

pyelftools 0.33 is not used: it takes 2.7 s instead of 0.2 s for the thousand images of 90 sections that a tree can put
into its data, does not notice a section that is cut short, and raises OverflowError for some damaged files.
"""

import errno
import hashlib
import itertools
import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bisector.core.errors import InfraError, UserError
from bisector.core.printable import clean
from bisector.core.subject import Commit, Kernel, build_id_in
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.host import packages, process
from bisector.host.files import remove_tree, sha256_of
from bisector.kernel import cache, kconfig, sources, toolchain
from bisector.kernel.builddir import BuildPlaces, Make

CONFIG = Path(".config")
IMAGE = Path("arch/x86/boot/bzImage")
_VMLINUX = Path("vmlinux")
_RELEASE = Path("include/config/kernel.release")
_NEEDED = (IMAGE, _VMLINUX, _RELEASE, CONFIG)
# Limits for files that are copied or read as a whole: a sparse file takes no room on the disk until then. An image is
# smaller than a kernel's address range, 1 GiB (KERNEL_IMAGE_SIZE); a distribution's stripped modules take 0.5 GB.
_MOST_BYTES = {IMAGE: 1 << 30, CONFIG: kconfig.MOST_BYTES, _RELEASE: 4096}
_MOST_MODULES_BYTES = 16 << 30
# A kernel's release has at most 64 letters (uts_len in the kernel's Makefile).
_PLAIN_RELEASE = re.compile(r"\w[!-.0-~]{0,63}", re.ASCII)
_QUOTED = 80
_STAGING = ".bisector-modules"
_LIST = "modules.dep"
# The directory in which depmod is tried, and a name that it accepts as a release.
_TRIED, _TRIED_RELEASE = ".bisector-depmod", "1.0"
# Features that a kernel of 2017 can mount, whatever the host's e2fsprogs prefers; no journal, nothing is written.
_FEATURES = "none,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize"
_LABEL = "bisector-modules"
_BLOCK_BYTES, _INODE_BYTES = 4096, 256
_UNIT_BLOCKS = (2 << 20) // _BLOCK_BYTES
_SPARE_BLOCKS = 1024  # superblocks, group descriptors, bitmaps
_PACK_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Product:
    """The results of a build.

    ``modules`` is the file system of the modules, None if there are none; ``read`` are the sources, None if unknown.
    """

    obtained: kconfig.Options
    release: str
    build_id: str
    content_sha256: str
    modules: Path | None
    read: sources.Sources | None


def require_image(build: Path) -> None:
    """Raise :class:`KernelFault` unless make produced an image and the other files of a kernel, in plausible sizes."""
    for name in _NEEDED:
        if not (build / name).is_file():
            reason = f"make bzImage ended well and made no {name}"
            raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason)
    for name, most_bytes in _MOST_BYTES.items():
        _check_size(f"make has made {name}", (build / name).stat().st_size, most_bytes)


def install_modules(make: Make) -> Path:
    """Install what ``make modules`` built, stripped, into a new directory, the guest's future /lib/modules.

    Raises :class:`KernelFault` as make does, if modules are installed for no release or for several, or if the tree's
    rules omit or remove depmod's output; ``OSError``; and :class:`InfraError` without a working depmod: the tree's own
    rules only warn (scripts/depmod.sh), and no module could be loaded by its name.
    """
    staging = make.places.build / _STAGING
    remove_tree(staging)
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
        # The host is to blame if depmod writes no list for an empty directory either.
        tried = make.places.build / _TRIED
        remove_tree(tried)
        directory = tried / "lib/modules" / _TRIED_RELEASE
        make.try_program("mkdir", "-p", directory)  # so that the user that make runs as owns it
        make.try_program(depmod, "-b", tried, _TRIED_RELEASE)
        if (directory / _LIST).is_file():
            reason = f"make modules_install leaves no {_LIST}, which depmod makes on this host"
            raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason)
        raise InfraError(f"{depmod} makes no {_LIST}", f"the end of the build log says why: {make.places.log}")
    _check_size("make modules_install has installed modules", sum(_sizes(tree)), _MOST_MODULES_BYTES)
    return tree


def modules_parts(tree: Path, release: str) -> dict[str, str]:
    """The digests of the installed modules by their paths, which are parts of the kernel's digest (:func:`combined`).

    A module that the tree's rules have compressed (CONFIG_MODULE_COMPRESS) is digested as a file. Raises
    :class:`KernelFault` if there are modules of several releases, or of none.
    """
    root = _only_directory(tree)
    plain = {path: content_sha256(path, release) for path in root.rglob("*.ko")}
    compressed = {path: sha256_of(path) for path in root.rglob("*.ko.*")}
    return {str(path.relative_to(root)): digest for path, digest in (plain | compressed).items()}


def pack_modules(tree: Path, image: Path) -> Path:
    """Make a file system of an installed tree, as large as needed; raises :class:`InfraError`."""
    image.unlink(missing_ok=True)
    # Blocks and inodes with some to spare; the total in units of 2 MiB, as libvirt requires of a guest's memory.
    sizes = list(_sizes(tree))
    inodes = len(sizes) + 64
    needed = sum(-(-size // _BLOCK_BYTES) for size in sizes) + inodes * _INODE_BYTES // _BLOCK_BYTES
    blocks = -(-(needed + needed // 32 + _SPARE_BLOCKS) // _UNIT_BLOCKS) * _UNIT_BLOCKS
    argv = (_program("mke2fs"), "-q", "-t", "ext4", "-O", _FEATURES, "-b", _BLOCK_BYTES, "-I", _INODE_BYTES,
            "-N", inodes, "-m", 0, "-L", _LABEL, "-E", "root_owner=0:0,lazy_itable_init=0",
            "-d", tree, image, blocks)  # fmt: skip
    try:
        process.run([str(word) for word in argv], deadline_s=_PACK_DEADLINE_S)
    except (process.CommandMissing, process.CommandFailed, process.CommandTimeout) as error:
        raise InfraError(f"the image of the modules could not be made: {error}", f"df {image.parent}") from error
    return image


def found(places: BuildPlaces, obtained: kconfig.Options, installed: Path | None, deciding: Iterable[str]) -> Product:
    """The product in the build directory; ``installed`` is the modules' tree, ``deciding`` the files that quirks test.

    Raises :class:`KernelFault`, ``OSError``, and :class:`bisector.core.errors.InfraError` without mke2fs.
    """
    build = places.build
    # The future output of ``uname -r``; it names the modules' directory, so it must not be a path or have odd letters.
    release = sources.whole(build / _RELEASE, _MOST_BYTES[_RELEASE]).decode("ascii", errors="replace").strip()
    if not _PLAIN_RELEASE.fullmatch(release):
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, f"the tree calls its release {release[:_QUOTED]!r}")
    modules = modules_parts(installed, release) if installed is not None else {}
    return Product(
        obtained=obtained,
        release=release,
        build_id=build_id_of(build / _VMLINUX),
        # A kernel with a changed module is another kernel, whether or not the module gets loaded.
        content_sha256=combined(image_parts(build, places.source, release) | modules),
        modules=pack_modules(installed, places.state / cache.MODULES) if installed is not None else None,
        read=sources.collected(build, places.source, obtained, deciding),
    )


def _check_size(what: str, size_bytes: int, most_bytes: int) -> None:
    if size_bytes > most_bytes:
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, f"{what} of {size_bytes} bytes, which no kernel has")


def _only_directory(tree: Path) -> Path:
    roots = sorted(path for path in tree.iterdir() if path.is_dir())
    if len(roots) != 1:
        reason = f"make modules_install made {len(roots)} directories in lib/modules instead of one"
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason, tuple(path.name for path in roots[:5]))
    return roots[0]


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


_BOOT = Path("arch/x86/boot")
# header.o holds the payload's place and length as numbers, so it is identified by its sources; piggy.o is the payload.
_WITH_PAYLOAD = ("header.o", "piggy.o")
_RELOCS = _BOOT / "compressed/vmlinux.relocs"
_MAGIC = b"\x7fELF"
_RELOCATABLE = 1  # ET_REL
_SYMBOLS, _RELOCATIONS, _NOTE, _NO_BITS = 2, (4, 9), 7, 8  # SHT_SYMTAB, SHT_RELA and SHT_REL, SHT_NOTE, SHT_NOBITS
_ALLOCATED, _EXECUTABLE = 0x2, 0x4  # SHF_ALLOC, SHF_EXECINSTR
# A kernel contains three images, the vDSOs for x86-64, 32 bits and x32, with two dozen sections each.
_MOST_BEGINNINGS = 1000
_MOST_SECTIONS = 100
_LONGEST_NAME = 1000
# The limit for all loaded sections of one file: a kernel's image has at most 1 GiB of addresses (KERNEL_IMAGE_SIZE,
# CONFIG_KASAN, in arch/x86/include/asm/page_64_types.h). A sparse file may claim any size.
_MOST_CONTENT_BYTES = 1 << 30
_MOST_NAMED = 6  # differences between two kernels


def image_parts(build: Path, source: Path, release: str) -> dict[str, str]:
    """The digests of vmlinux and of everything that is put around it in a bzImage; see :func:`combined`.

    A kernel with modules adds :func:`content_sha256` of each ``.ko`` under its path. Raises ``OSError`` and
    :class:`bisector.core.errors.InfraError`.
    """
    found = {"vmlinux": content_sha256(build / "vmlinux", release)}
    for path in sources.command_files(build / _BOOT):
        target = sources.target_of(path)
        name = str(target.relative_to(build))
        if target.suffix == ".o" and target.name not in _WITH_PAYLOAD:
            if target.is_file():
                found[name] = content_sha256(target, release)
        else:
            found[name] = _made_of(path, build, source)
    if (build / _RELOCS).is_file():
        found[str(_RELOCS)] = hashlib.sha256(sources.whole(build / _RELOCS, _MOST_CONTENT_BYTES)).hexdigest()
    return found


def combined(parts: Mapping[str, str]) -> str:
    """One digest of named digests (of vmlinux, its boot code, its modules), in the order of their names."""
    return hashlib.sha256("".join(f"{name} {parts[name]}\n" for name in sorted(parts)).encode()).hexdigest()


def build_id_of(vmlinux: Path) -> str:
    """The GNU build-id note (ld(1), ``--build-id``), as in /sys/kernel/notes; empty if there is none.

    Raises as :func:`content_sha256` does.
    """
    file = _read(vmlinux)
    notes = file.contents(section for section in file.sections if section.kind == _NOTE)
    return next(filter(None, (build_id_in(content) for _, content in notes)), "")


def content_sha256(path: Path, release: str = "") -> str:
    """The digest of what an ELF file loads into memory: vmlinux, an object file or a module (``.ko``).

    Equal digests mean equal kernel code and data. Left out are parts that differ without a reason: notes, debugging
    information, and in data the text ``release``, which is this kernel's ``uname -r``: the banners, ``init_uts_ns``,
    ``vermagic`` and firmware paths contain it, and so do strings that the compiler merged and that no symbol names.
    Another kernel has the same digest only if it has its own release, of the same length, at exactly these places.
    Further effects of a release (``LINUX_VERSION_CODE`` in code, a longer text that moves what follows) make kernels
    different, which costs only one more measurement. The vDSO is an ELF image inside vmlinux; its notes are left out,
    too: they hold ``LINUX_VERSION_CODE`` and a build-id (arch/x86/entry/vdso/note.S).

    Raises :class:`InfraError` if the file cannot be read or is not ELF, and ``OSError`` if its sections are too large.
    """
    file = _read(path)
    digest = hashlib.sha256(f"{file.relocatable} {file.entry}\n".encode())
    for section, content in file.contents(_telling(file)):
        place = (section.name, section.kind, section.flags, section.address, section.size)
        digest.update(repr(place).encode() + b"\n")
        digest.update(_without_version(content, section, release.encode()))
    return digest.hexdigest()


def _made_of(command_file: Path, build: Path, source: Path) -> str:
    """The digest of a target's command and of the sources that the command names or the compiler read.

    Generated files are left out: they follow from vmlinux, from other targets here, or from the version.
    """
    command, files = sources.recipe(command_file)
    command = toolchain.without_ccache(command)
    told = command.replace(str(source), "").replace(str(build), "")
    digest = hashlib.sha256(told.encode(errors="surrogateescape"))
    words = [word for word in command.split() if word.startswith("/")]
    paths = {Path(os.path.normpath(build / file)) for file in (*files, *words)}
    for path in sorted(path for path in paths if path.is_relative_to(source)):
        if (found := sources.content(source, path)) is not None:
            digest.update(f"\n{path.relative_to(source)}\n".encode() + found)
    return digest.hexdigest()


# The layout of the headers in ELF files of 32 and of 64 bits: e_type, e_entry, e_shoff, e_shentsize, e_shnum and
# e_shstrndx of the file; sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link and sh_info of a section.
_LAYOUTS = {
    b"\x01\x01": (struct.Struct("<16xH6xI4xI10xHHH"), struct.Struct("<8I8x")),
    b"\x02\x01": (struct.Struct("<16xH6xQ8xQ10xHHH"), struct.Struct("<2I4Q2I16x")),
}


@dataclass(frozen=True, slots=True)
class _ElfSection:
    name: bytes
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int

    @property
    def loaded(self) -> bool:
        """Whether the section counts as loaded; notes do not, for the build-id covers debugging sections, too."""
        return bool(self.flags & _ALLOCATED) and self.kind != _NOTE


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes | mmap.mmap
    relocatable: bool
    entry: int
    sections: tuple[_ElfSection, ...]
    path: Path = Path()

    def contents(self, sections: Iterable[_ElfSection]) -> Iterator[tuple[_ElfSection, bytes]]:
        """Each section with its bytes in the file; raises ``OSError`` if they exceed what a kernel can load."""
        left = _MOST_CONTENT_BYTES
        for section in sections:
            size = 0 if section.kind == _NO_BITS else section.size
            left -= size
            if left < 0:
                raise OSError(errno.EFBIG, "its sections are larger than a kernel can be", str(self.path))
            yield section, self.data[section.offset : section.offset + size]


def _telling(file: _File) -> Iterator[_ElfSection]:
    """The loaded sections; in a relocatable file also those that the linker uses."""
    loaded = {index for index, section in enumerate(file.sections) if section.loaded}
    strings = {section.link for section in file.sections if section.kind == _SYMBOLS}
    for index, section in enumerate(file.sections):
        for_linking = (
            section.kind == _SYMBOLS or index in strings or (section.kind in _RELOCATIONS and section.info in loaded)
        )
        if index in loaded or (file.relocatable and for_linking):
            yield section


def _without_version(content: bytes, section: _ElfSection, release: bytes) -> bytes:
    """Data with the text of the release masked, and with the notes of embedded ELF images blanked.

    Bytes that merely begin like an image stay. The time is linear in the length, whatever a tree puts there: the number
    of beginnings and sections that are examined is limited, and no byte is blanked twice.
    """
    if section.flags & _EXECUTABLE or not section.flags & _ALLOCATED:
        return content
    if release:
        content = content.replace(release, b"\xfe" * len(release))  # this byte is in no text
    notes = []
    for beginning in itertools.islice(re.finditer(re.escape(_MAGIC), content), _MOST_BEGINNINGS):
        if (inner := _parse(content, beginning.start(), _MOST_SECTIONS)) is not None:
            notes += [(one.offset, one.offset + one.size) for one in inner.sections if one.kind == _NOTE]
    blanked, done = bytearray(content), 0
    for start, end in sorted(notes):
        if end > (start := max(start, done)):
            blanked[start:end] = bytes(end - start)
            done = end
    return bytes(blanked)


def _read(path: Path) -> _File:
    """Map a file just linked and parse its headers; raises :class:`InfraError`, since only the host can be to blame."""
    try:
        with path.open("rb") as opened:
            empty = os.fstat(opened.fileno()).st_size == 0
            file = None if empty else _parse(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise InfraError(f"{path}: {error.strerror}") from error
    if file is None:
        raise InfraError(f"{path} is not a whole ELF file of x86")
    return replace(file, path=path)


def _parse(data: bytes | mmap.mmap, start: int = 0, most_sections: int = 0xFFFF) -> _File | None:
    """The ELF image that begins at ``start``, with the offsets of its sections in ``data``.

    None for anything but a complete little-endian ELF file with at most ``most_sections`` sections.
    """
    length = len(data) - start
    layout = _LAYOUTS.get(data[start + 4 : start + 6]) if data[start : start + 4] == _MAGIC else None
    if layout is None or length < layout[0].size:
        return None
    of_file, of_section = layout
    kind, entry, table, size, count, names = of_file.unpack_from(data, start)
    if size != of_section.size or table + size * count > length or not names < count <= most_sections:
        return None
    rows = [of_section.unpack_from(data, start + table + size * index) for index in range(count)]
    if any(kind_ != _NO_BITS and offset + size_ > length for _, kind_, _, _, offset, size_, _, _ in rows):
        return None
    words, end = start + rows[names][4], start + rows[names][4] + rows[names][5]

    def section(row: tuple[int, ...]) -> _ElfSection:
        name = data[words + row[0] : min(words + row[0] + _LONGEST_NAME, end)].partition(b"\0")[0]
        kind_, flags, address, offset, size_, link, info = row[1:]
        return _ElfSection(name, kind_, flags, address, start + offset, size_, link, info)

    return _File(data, kind == _RELOCATABLE, entry, tuple(map(section, rows)))


def as_measured(measured: Kernel | None, built: Kernel) -> Kernel:
    """Return the kernel that was built; :class:`UserError`, with the differences, if it is not the measured one.

    The ``config`` file of the measured kernel may be gone; then no option is named.
    """
    if measured is not None and built.content_sha256 != measured.content_sha256:
        raise UserError(
            f"the measured kernel is no longer cached, and a rebuild differs: {_changes(measured, built)}",
            "bring that back, or begin anew: `bisector report` ends with the command",
        )
    return built


def _changes(measured: Kernel, built: Kernel) -> str:
    told = [
        ("its compiler and linker", measured.toolchain, built.toolchain),
        ("its quirks", *(", ".join(kernel.quirks) or "none" for kernel in (measured, built))),
        ("its release", measured.release, built.release),
    ]
    with suppress(OSError):
        told += kconfig.differences(*(kconfig.read_effective(one.config) for one in (measured, built)))
    found = [f"{what} changed from {old} to {new}" for what, old, new in told if old != new]
    if found:
        return "; ".join([*found[:_MOST_NAMED], *(("and more",) if found[_MOST_NAMED:] else ())])
    if measured.family != built.family:
        return "this bisector builds kernels, or tells them apart, in another way"
    return "though of the same sources, configuration, compiler and quirks, so another tool of the build has changed"


# For a kernel that was built elsewhere (Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header").
_HEAD_BYTES = 0x200 + (1 << 16) + 256  # the version text begins at most this far from the start
_BOOT_FLAG, _BOOT_MAGIC, _PROTOCOL, _VERSION_FIELD, _XLOADFLAGS = 0x1FE, 0x202, 0x206, 0x20E, 0x236
_SECTOR_BYTES = 0x200
_HAS_XLOADFLAGS = 0x20C
_KERNEL_64 = 1  # XLF_KERNEL_64
_GIVEN_HINT = "give a bzImage for x86_64, such as a distribution's /boot/vmlinuz-*"


def commit_of(file: Path) -> Commit:
    """The stand-in for a commit of a given image: the file's SHA-256, and the version text in its header.

    Raises :class:`UserError` for a file that is not a bzImage for x86_64.
    """
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
        digest = sha256_of(file)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}", f"ls -l {file}") from error
    if (
        len(head) < _XLOADFLAGS + 2
        or head[_BOOT_FLAG : _BOOT_FLAG + 2] != b"\x55\xaa"
        or head[_BOOT_MAGIC:_PROTOCOL] != b"HdrS"
    ):
        raise UserError(f"{file} is not a bzImage: it has no boot header", _GIVEN_HINT)
    protocol, version_at, flags = (
        struct.unpack_from("<H", head, at)[0] for at in (_PROTOCOL, _VERSION_FIELD, _XLOADFLAGS)
    )
    if protocol >= _HAS_XLOADFLAGS and not flags & _KERNEL_64:
        raise UserError(f"{file} is a kernel for 32 bits, and the guest's programs have 64", _GIVEN_HINT)
    text = head[_SECTOR_BYTES + version_at :].partition(b"\0")[0] if version_at else b""
    version = clean(text[:256].decode(errors="replace")).strip()  # its first word is the output of `uname -r`
    if not version:
        raise UserError(f"{file} does not say which version it is", _GIVEN_HINT)
    return Commit(digest, digest, version, "")


def kernel_of(file: Path, commit: Commit) -> Kernel:
    """The kernel to boot; raises :class:`InfraError` if the file is no longer the one that :func:`commit_of` saw."""
    try:
        now = commit_of(file)
    except UserError as error:
        raise InfraError(error.message, error.hint) from error
    if now.sha != commit.sha:
        raise InfraError(f"{file} is not the image that was given: its SHA-256 is {now.sha[:12]}, not {commit.short}")
    return Kernel(
        image=file,
        config=Path(os.devnull),
        release=now.subject.split()[0],
        build_id="",
        content_sha256=now.sha,
        key=f"image{Kernel.KEY_SEPARATOR}{now.tree}",
        toolchain="",
        quirks=(),
        unmet=(),
        cached=True,
        build_s=0.0,
    )
