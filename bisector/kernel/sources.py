r"""The sources of a build: reading them, which of them each target was made of, and whether a change matters.

A file of the tree is read with all rights of this process, and git checks out symbolic links to anywhere:
``include/linux/compiler.h`` may be a link to /dev/zero, which never ends, to a terminal, which blocks, or into a user's
home. In make's sandbox such a link leads nowhere, so it is treated the same way here.

The build directory records in ``.TARGET.cmd`` what a target was made of. Kbuild writes this file after each recipe that
is rerun if its command changes (``if_changed``, scripts/Kbuild.include), and ``fixdep`` adds every file that the
compiler reports to have read (scripts/basic/fixdep.c)::

    cmd_kernel/fork.o := gcc -Wp,-MMD,kernel/.fork.o.d …      (savedcmd_… since v6.2)
    source_kernel/fork.o := /src/kernel/fork.c
    deps_kernel/fork.o := \
        $(wildcard include/config/SMP) \
      /src/include/linux/kconfig.h \

If no change between trees X and Y counts (:meth:`Sources.counts`), the same build of X makes Y's kernel, and fails
where Y's fails. Proof by induction over the steps of make: the first step reads Makefiles, Kconfig files and scripts,
and any change to these counts, so the list of steps is the same. A step that compiles has read unchanged files. It may
have looked for a file that is new in X. Such a file counts if its name was found elsewhere (``#include`` along -I), if
it is beside a file that the same target was made of (``x.c`` before ``x.S``), if it is a header, or if it is in or
below a directory that any file was read from (``__has_include``).

Not covered is what kbuild itself overlooks in a build directory that is kept: a new header that hides another one does
not trigger recompilation.
"""

import errno
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Self

from bisector.core.subject import Change, Mattering
from bisector.host.files import inside

# A change to any of these always counts, so trees that differ in them need not be compared further.
ALIKE_AT = ("Makefile", "Kconfig", "Kbuild", "scripts")
# Errors for a missing file, for a link out of the tree or in a circle, and for anything but a regular file.
_NONE = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
)
_COMMANDS = (b"cmd_", b"savedcmd_")
_SOURCE = b"source_"
_ASKED = b"    $(wildcard include/config/"
_IS = b" := "
_LONGEST_BYTES = 16 << 20  # the limit for one of Kbuild's own files; the longest has the linker's command
# Every build reads this file: a list without it is incomplete.
_ALWAYS_READ = "init/main.c"
_KCONFIG_FILES = Path("include/config/auto.conf.cmd")  # scripts/kconfig/confdata.c, conf_write_autoconf_cmd()
# Only compilers read these files, and compilers report what they read.
_COMPILED = frozenset((".c", ".h", ".S", ".dts", ".dtsi", ".dtso", ".rs"))
# Except that these options have all files of a kind packed, checked or compiled by special rules.
_ALL_OF_A_KIND = {
    "CONFIG_IKHEADERS": ".h",  # kernel/gen_kheaders.sh
    "CONFIG_HEADERS_INSTALL": ".h",
    "CONFIG_HEADERS_CHECK": ".h",
    "CONFIG_HEADER_TEST": ".h",
    "CONFIG_KERNEL_HEADER_TEST": ".h",
    "CONFIG_UAPI_HEADER_TEST": ".h",
    "CONFIG_RUST": ".rs",
}
# The build of an image reads nothing in these, except perhaps Makefiles and Kconfig files of the documentation.
_ASIDE = ("Documentation", "LICENSES")
_ASIDE_TOOLS = frozenset(
    (
        *("gpio", "hv", "iio", "kvm", "memory-model", "mm", "net", "perf", "power", "testing", "thermal", "usb"),
        *("virtio", "vm"),
    )
)
_ASIDE_NAMES = frozenset(
    (
        *(".clang-format", ".cocciconfig", ".editorconfig", ".get_maintainer.ignore", ".gitignore", ".mailmap"),
        *(".rustfmt.toml", "COPYING", "CREDITS", "MAINTAINERS", "README", "REPORTING-BUGS"),
    )
)
_MAKES = ("Kbuild", "Kconfig", "Makefile")


def content(source: Path, file: str | Path) -> bytes | None:
    """The bytes of a file of the tree, following links inside it; None if there is no such file. Raises ``OSError``."""
    try:
        return inside(source, file).read_bytes()
    except OSError as error:
        if error.errno in _NONE:
            return None
        raise


def whole(path: Path, most_bytes: int) -> bytes:
    """The bytes of a file that make wrote. Raises ``OSError``, also (EFBIG) if it is larger than ``most_bytes``.

    A sparse file takes no room on the disk, but would fill all memory.
    """
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"there are more than {most_bytes} bytes in it", str(path))
    return data


def text(source: Path, file: str | Path) -> str | None:
    """The content as text; old trees have files in Latin-1, so surrogates preserve every byte."""
    data = content(source, file)
    return None if data is None else data.decode(errors="surrogateescape")


def command_files(directory: Path) -> Iterator[Path]:
    """Every ``.TARGET.cmd`` at and below a directory of a build, in no particular order; raises ``OSError``."""
    for place, directories, names in os.walk(directory):
        # In a build directory inside the sources nothing is left out; the sources themselves are elsewhere.
        directories[:] = [name for name in directories if not name.startswith(".tmp_")]
        yield from (Path(place, name) for name in names if name.startswith(".") and name.endswith(".cmd"))


def target_of(command_file: Path) -> Path:
    """The target that a ``.cmd`` file describes."""
    return command_file.with_name(command_file.name[1 : -len(".cmd")])


def recipe(command_file: Path) -> tuple[str, tuple[str, ...]]:
    """A target's command, and the files that were read, as the compiler named them; raises ``OSError``."""
    lines = whole(command_file, _LONGEST_BYTES).split(b"\n")
    commands = (line.partition(_IS)[2] for line in lines if line.startswith(_COMMANDS))
    return os.fsdecode(next(commands, b"")), tuple(_files(lines))


@dataclass(frozen=True)
class Sources:
    """The files that a build read: relative to the top of the tree, ``./`` in the build directory, or absolute.

    ``whole_kinds`` are the suffixes of which every file counts.
    """

    files: frozenset[str]
    whole_kinds: frozenset[str] = frozenset()

    def counts(self, change: Change) -> bool:
        """Whether the change may affect the build's output; True if in doubt."""
        path = PurePosixPath(change.path)
        if change.path in self.files or "\ufffd" in change.path:  # a path that is not UTF-8 cannot be looked up
            return True
        top, *below = path.parts
        if top == "arch" and len(below) > 1 and path.name not in _ASIDE_NAMES:
            if below[0] not in self._architectures:
                return False
        elif _is_aside(path):
            return False
        if not _is_compiled_only(path) or path.suffix in self.whole_kinds:
            return True
        return change.added and (
            path.name in self._names
            or str(path.with_suffix("")) in self._stems
            or "include" in path.parts
            or any(str(parent) in self._directories for parent in path.parents)
        )

    def same(self, changes: Iterable[Change] | None) -> bool:
        """Whether a tree with these changes surely makes the same kernel; False if the changes are unknown."""
        return changes is not None and not any(map(self.counts, changes))

    @cached_property
    def _in_tree(self) -> tuple[str, ...]:
        return tuple(file for file in self.files if not file.startswith((".", "/")))

    @cached_property
    def _architectures(self) -> frozenset[str]:
        """The architectures whose sources were read; of others only Kconfig files are read, for accelerated ciphers."""
        read = (file.split("/") for file in self._in_tree if file.startswith("arch/"))
        return frozenset(parts[1] for parts in read if not parts[-1].startswith("Kconfig"))

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(file.rpartition("/")[2] for file in self.files)

    @cached_property
    def _stems(self) -> frozenset[str]:
        return frozenset(str(PurePosixPath(file).with_suffix("")) for file in self.files)

    @cached_property
    def _directories(self) -> frozenset[str]:
        return frozenset(file.rpartition("/")[0] for file in self._in_tree) - {""}

    def packed(self) -> bytes:
        """Serialize to a small file; :meth:`unpacked` is the inverse."""
        lines = (" ".join(sorted(self.whole_kinds)), *sorted(self.files))
        return gzip.compress("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"), mtime=0)

    @classmethod
    def unpacked(cls, data: bytes) -> Self | None:
        """The list that :meth:`packed` wrote; None if it is incomplete."""
        try:
            kinds, *lines = gzip.decompress(data).decode(errors="surrogateescape").splitlines()
            files = frozenset(lines)
        except (OSError, EOFError, zlib.error, ValueError):
            return None
        return cls(files, frozenset(kinds.split())) if _ALWAYS_READ in files else None


def may_configure(change: Change) -> bool:
    """Whether the change may affect the .config that make writes; True if in doubt.

    A .config is made of Makefiles, Kconfig files and scripts that they run, which are not read by compilers alone.
    """
    path = PurePosixPath(change.path)
    return not _is_aside(path) and not _is_compiled_only(path)


def _is_aside(path: PurePosixPath) -> bool:
    """Whether no build of an image reads the file, for any architecture."""
    top, *below = path.parts
    if path.name in _ASIDE_NAMES:
        return True
    if top == "tools" and below:
        return below[0] in _ASIDE_TOOLS
    return top in _ASIDE and not path.name.startswith(_MAKES)


def _is_compiled_only(path: PurePosixPath) -> bool:
    """Whether only compilers read the file, and no Makefile, Kconfig file or script does."""
    if path.name.startswith(_MAKES) or ".lds" in path.name or "tools" in path.parts:
        return False
    return path.suffix in _COMPILED and path.parts[0] not in ("certs", "scripts", "usr")


def collected(build: Path, source: Path, obtained: Mapping[str, str], deciding: Iterable[str] = ()) -> Sources | None:
    """The files that the build in ``build`` read; None if it does not say. Both paths are free of symbolic links.

    ``obtained`` is its configuration; ``deciding`` are the files (relative to the top), existing or not, that were
    consulted to decide how to build. Raises ``OSError``.
    """
    real_directory = cache(os.path.realpath)  # a hundred directories hold thousands of files
    files = set(deciding)
    if (read := build / _KCONFIG_FILES).is_file():  # relative to the top of the tree; they all count anyway
        lines = whole(read, _LONGEST_BYTES).decode(errors="surrogateescape").splitlines()
        files.update(os.path.normpath(line.strip("\t \\")) for line in lines if line.startswith("\t"))
    # A small kernel's build has two thousand of these files, with mostly the same lines, so each line is parsed once.
    every_line = {line for path in command_files(build) for line in whole(path, _LONGEST_BYTES).split(b"\n")}
    for named in _files(every_line):
        directory, _, name = os.path.normpath(build / named).rpartition("/")
        # The file, and what its path leads to through symbolic links: git reports a changed file by its own path.
        real = f"{real_directory(directory)}/{name}"
        paths = (f"{directory}/{name}", real, *((os.path.realpath(real),) if Path(real).is_symlink() else ()))
        for path in paths:
            places = ((f"{source}/", ""), (f"{build}/", "./"))
            files.add(next((new + path.removeprefix(place) for place, new in places if path.startswith(place)), path))
    kinds = {kind for option, kind in _ALL_OF_A_KIND.items() if obtained.get(option, "n") in ("y", "m")}
    return Sources(frozenset(files), frozenset(kinds)) if _ALWAYS_READ in files else None


def _files(lines: Iterable[bytes]) -> Iterator[str]:
    for line in lines:
        if b"\0" in line:  # names no file
            continue
        if line.startswith(_SOURCE):
            yield os.fsdecode(line.partition(_IS)[2].strip())
        elif line.startswith(b"  ") and not line.startswith(_ASKED):
            yield os.fsdecode(line.strip(b" \\"))


def mattering(reads: Sequence[Sources], commits: int, changes: Iterable[tuple[str, Change]]) -> Mattering:
    """Which of ``commits`` commits change a file that counts for one of the builds that read ``reads``."""
    counts = cache(lambda change: any(read.counts(change) for read in reads))  # several commits change the same file
    return Mattering(commits, frozenset(sha for sha, change in changes if counts(change)))
