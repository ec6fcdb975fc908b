"""Kernel configuration as text: base, fragments, requested and obtained options.

The syntax is that of ``.config`` (Documentation/kbuild/kconfig.rst), read as Kconfig reads it (``conf_read_simple()``
and ``conf_set_sym_val()`` in scripts/kconfig/confdata.c). Lines that Kconfig ignores with a warning are errors in a
user's file. Kconfig itself is run by ``build``, not here.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bisector.core import resources
from bisector.core.errors import UserError
from bisector.host.files import files_below
from bisector.kernel import sources

Options = dict[str, str]

NOT_SET = "n"
EMPTY = '""'
_QUOTED = 80
MOST_BYTES = 16 << 20  # an allyesconfig of v6.12 has 0.5 MB
_MOST_NAMED = 6
_GZIP_MAGIC = b"\x1f\x8b"
_NOT_SET = re.compile(r"# (CONFIG_\w+) is not set")
_OPTION = re.compile(r"(CONFIG_\w+)=(.*)")
# The part of a value that Kconfig uses: of y, m or n only the letter, of a string everything up to its closing quote.
# Kconfig accepts no comment after a number; it is cut off here.
_VALUE = re.compile(r'([ymn]).*|("(?:\\.|[^"\\])*").*|(-?\d+|(?:0[xX])?[0-9a-fA-F]+)(?:\s+#.*)?')
# Kconfig passes over a second option on a line, and up to v6.7 over what stands behind "is not set".
_IN_PART = re.compile(r"(?:# CONFIG_\w+ is not set.|CONFIG_\w+=[^#\"]*\bCONFIG_\w+=)")
_NUMBER = re.compile(r"-?\d+|(0[xX])[0-9a-fA-F]+")
_DEFINED = re.compile(r"^\s*(?:menu)?config\s+(\w+)", re.MULTILINE)
# Comments to Kconfig; in a fragment, the options after "optional" may be unknown to a tree, until the next mark.
_MARK = re.compile(r"#: (optional|required)\s*")
_HEADER = re.compile(r"^# Linux/(\w+) .*Configuration", re.MULTILINE)

# Options that only another architecture's configuration sets; the values are the kernel's names.
_FOREIGN = {
    "CONFIG_ARM64": "arm64",
    "CONFIG_ARM": "arm",
    "CONFIG_RISCV": "riscv",
    "CONFIG_PPC64": "powerpc",
    "CONFIG_PPC": "powerpc",
    "CONFIG_S390": "s390",
    "CONFIG_MIPS": "mips",
    "CONFIG_LOONGARCH": "loongarch",
    "CONFIG_SPARC": "sparc",
    "CONFIG_X86_32": "32-bit x86",
    "CONFIG_UML": "um",
}


# Options for finding bugs that cost so much at run time that they may dominate a figure, and their effect
# (lib/Kconfig.debug, lib/Kconfig.*san, and the Kconfig files of file systems and drivers).
_COSTLY = {
    "CONFIG_KASAN": "checks each memory access",
    "CONFIG_KMSAN": "follows uninitialised memory",
    "CONFIG_KCSAN": "delays memory accesses to find races",
    "CONFIG_UBSAN": "checks arithmetic and array indices",
    "CONFIG_UBSAN_ALIGNMENT": "checks the alignment of each memory access",
    "CONFIG_UBSAN_INTEGER_WRAP": "checks arithmetic",
    "CONFIG_KCOV": "records which code runs",
    "CONFIG_GCOV_KERNEL": "counts how often each line runs",
    "CONFIG_PROVE_LOCKING": "proves each lock's order",
    "CONFIG_LOCKDEP": "follows each lock",
    "CONFIG_LOCK_STAT": "counts the contention of each lock",
    "CONFIG_DEBUG_SPINLOCK": "checks each spinlock",
    "CONFIG_DEBUG_MUTEXES": "checks each mutex",
    "CONFIG_DEBUG_ATOMIC_SLEEP": "checks whether each sleep is allowed",
    "CONFIG_DEBUG_PAGEALLOC": "unmaps pages that are free",
    "CONFIG_DEBUG_SLAB": "poisons and checks each object of a slab",
    "CONFIG_SLUB_DEBUG_ON": "poisons and checks each object of a slab",
    "CONFIG_DEBUG_KMEMLEAK": "records each allocation",
    "CONFIG_DEBUG_OBJECTS": "follows the life of objects",
    "CONFIG_DEBUG_VM": "checks memory management",
    "CONFIG_DEBUG_SG": "checks lists of scattered memory",
    "CONFIG_DMA_API_DEBUG": "follows each mapping for DMA",
    "CONFIG_XFS_DEBUG": "checks XFS",
    "CONFIG_BTRFS_DEBUG": "checks btrfs",
    "CONFIG_BTRFS_ASSERT": "checks btrfs",
    "CONFIG_F2FS_CHECK_FS": "checks F2FS",
    "CONFIG_BCACHE_DEBUG": "checks bcache, and reads again what it wrote",
    "CONFIG_DM_DEBUG_BLOCK_MANAGER_LOCKING": "checks the locks of device-mapper's metadata",
}


@dataclass(frozen=True, slots=True)
class Fragment:
    """A configuration fragment; trees may lack its ``optional`` options, and nothing depends on these."""

    options: Mapping[str, str]
    optional: frozenset[str]

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse a file: options after a line ``#: optional`` are optional, until a line ``#: required``."""
        optional: dict[str, bool] = {}
        now = False
        for line in _lines(text):
            if mark := _MARK.fullmatch(line):
                now = mark[1] == "optional"
            else:
                optional |= dict.fromkeys(_option(line), now)
        return cls(parse(text), frozenset(name for name, is_optional in optional.items() if is_optional))


def parse(text: str) -> Options:
    """Each option's last value, ``n`` if it is not set; other lines are ignored."""
    return merge(map(_option, _lines(text)))


def _lines(text: str) -> Iterator[str]:
    """The lines without trailing white space, such as a carriage return."""
    return (line.rstrip() for line in text.split("\n"))


def merge(layers: Iterable[Mapping[str, str]]) -> Options:
    """One set of options from several; a later layer wins.

    An option that is set again moves to the end: of two members of a choice Kconfig takes the one that is set last.
    """
    merged: Options = {}
    for layer in layers:
        for name, value in layer.items():
            merged.pop(name, None)
            merged[name] = value
    return merged


def costly(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The enabled options for finding bugs that cost much at run time, and the effect of each."""
    # Since v5.7 UBSAN alone checks nothing; of its parts Ubuntu and others have UBSAN_BOUNDS on, which costs little.
    cheap = ("CONFIG_UBSAN",) if "CONFIG_UBSAN_BOUNDS" in options else ()
    return tuple((name, does) for name, does in _COSTLY.items() if options.get(name) == "y" and name not in cheap)


def lines(options: Mapping[str, str]) -> tuple[str, ...]:
    """The options for display, as ``CONFIG_X=y``."""
    return tuple(f"{name}={value}" for name, value in options.items())


def render(options: Mapping[str, str]) -> str:
    """The options as ``.config`` text."""
    return "".join(
        f"# {name} is not set\n" if value == NOT_SET else f"{name}={value}\n" for name, value in options.items()
    )


def unmet(asked: Mapping[str, str], obtained: Mapping[str, str]) -> tuple[str, ...]:
    """The requested options that were not obtained, as ``CONFIG_X=y``, in the order of the request.

    A missing option counts as ``n``, or as the empty string if that is requested.
    """
    return tuple(
        f"{name}={value}"
        for name, value in asked.items()
        if not _same(value, obtained.get(name, value if value == EMPTY else NOT_SET))
    )


def _same(asked: str, obtained: str) -> bool:
    """Whether both values mean the same to Kconfig, which adds a missing 0x to the number of a hexadecimal option."""
    numbers = [int(one[0], 16 if one[1] else 10) for one in map(_NUMBER.fullmatch, (asked, obtained)) if one]
    return obtained in (asked, f"0x{asked}") or (len(numbers) > 1 and numbers[0] == numbers[1])


def optional(fragments: Iterable[Fragment]) -> frozenset[str]:
    """The options that a tree may lack: no fragment requires them."""
    fragments = tuple(fragments)
    required = (fragment.options.keys() - fragment.optional for fragment in fragments)
    return frozenset().union(*(fragment.optional for fragment in fragments)).difference(*required)


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """Each option that differs between two effective configurations, sorted by name: its name and both values.

    An option that one of them does not mention counts as ``n``, as in the build.
    """
    names = sorted(before.keys() | after.keys())
    both = ((name, before.get(name, NOT_SET), after.get(name, NOT_SET)) for name in names)
    return tuple((name, old, new) for name, old, new in both if old != new)


def has_modules(options: Mapping[str, str]) -> bool:
    """Whether a kernel with this effective configuration has modules."""
    return options.get("CONFIG_MODULES") == "y" and "m" in options.values()


def read_effective(path: Path) -> Options:
    """The options in a file that Kconfig wrote; its strings may be in any encoding. Raises :class:`OSError`."""
    return parse(sources.whole(path, MOST_BYTES).decode(errors="replace"))


def symbols(source: Path) -> frozenset[str]:
    """The names of all options that a source tree's Kconfig files define, as ``CONFIG_X``."""
    files = (entry.path for entry in files_below(source) if entry.name.startswith("Kconfig"))
    texts = (sources.text(source, path) or "" for path in files)
    return frozenset(f"CONFIG_{name}" for text in texts for name in _DEFINED.findall(text))


def read_base(path: Path) -> str:
    """The text of a user's .config, plain or gzipped like /proc/config.gz.

    Raises :class:`UserError` if it cannot be read, holds no options or is for another architecture.
    """
    text = _read(path, "base .config", need="CONFIG_")
    if foreign := foreign_architecture(text):
        raise UserError(
            f"{path}: this .config is for {foreign}; kernels are built for x86_64 here (CONFIG_X86_64=y is not in it)",
            "give the .config of an x86_64 kernel",
        )
    return text


def foreign_architecture(text: str) -> str | None:
    """The architecture that a configuration is for, None if that is x86_64.

    A short one (``make savedefconfig``) may name none: then it is the one whose own options are set, else the host's.
    """
    options = parse(text)
    if options.get("CONFIG_X86_64") == "y":
        return None
    for name, architecture in _FOREIGN.items():
        if options.get(name) == "y":
            return architecture
    header = _HEADER.search(text)
    if header is None:
        if any(name.startswith("CONFIG_X86") for name in options):
            return None
        own = (words for name, words in _FOREIGN.items() if any(one.startswith(f"{name}_") for one in options))
        return next(own, None)
    # A complete file written by Kconfig for x86_64 has CONFIG_X86_64=y.
    return "32-bit x86" if header[1] in ("x86", "i386") else header[1]


def read_fragments(names: Iterable[str]) -> tuple[Fragment, ...]:
    """The fragments with these names (:func:`bisector.core.resources.fragment`); raises :class:`UserError`."""
    return tuple(read_fragment(resources.fragment(name)) for name in names)


def read_fragment(path: Path) -> Fragment:
    """The fragment in a file; raises :class:`UserError` if it cannot be read."""
    return Fragment.read(_read(path, "configuration fragment"))


def _read(path: Path, what: str, need: str = "") -> str:
    """The text of a configuration; raises :class:`UserError` for the first line that Kconfig does not accept."""
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a text file"
        raise UserError(f"{what} {path}: {reason}") from error
    if b"\0" in data:
        raise UserError(f"{what} {path}: not a text file")
    # A string may be in any encoding, which Kconfig does not check; an editor may have added a byte order mark.
    text = data.decode("utf-8-sig", errors="replace")
    if need not in text:
        raise UserError(
            f"{path}: not a kernel configuration: no CONFIG_ line in it", "give a .config file, as /boot/config-*"
        )
    for number, line in enumerate(_lines(text), 1):
        found = _OPTION.fullmatch(line)
        if _IN_PART.match(line):
            raise UserError(
                f"{path}:{number}: Kconfig does not read all of {line[:_QUOTED]!r}",
                "write each option on a line of its own, and nothing behind 'is not set'",
            )
        if found is None and line and not line.startswith("#"):
            raise UserError(
                f"{path}:{number}: {line[:_QUOTED]!r} is neither an option nor a comment",
                "Kconfig takes CONFIG_X=value without blanks around the =, # CONFIG_X is not set, and comments",
            )
        if found is not None and found[2] and _VALUE.fullmatch(found[2]) is None:
            raise UserError(
                f"{path}:{number}: {found[2][:_QUOTED]!r} is not a value of {found[1]} that Kconfig takes",
                'y, m or n, a number, or a "string"',
            )
    return text


def _option(line: str) -> Options:
    if not_set := _NOT_SET.fullmatch(line):
        return {not_set[1]: NOT_SET}
    option = _OPTION.fullmatch(line)
    value = _VALUE.fullmatch(option[2]) if option is not None else None
    return {option[1]: value[value.lastindex or 0]} if option is not None and value is not None else {}


def check_fragment(file: Path, unmet: Iterable[str], config: Path, without: Path | None) -> None:
    """Raise :class:`UserError` for a fragment with an option that is not obtained, or one that changes nothing.

    Kconfig silently drops an option whose dependencies are off, and a member of a choice if another member is set
    (Documentation/kbuild/kconfig-language.rst, "Menu dependencies"). The kernel's name would then be false.

    ``unmet`` are all requested options that are not in the effective configuration ``config``; ``without`` is the
    effective configuration without the fragment, None if there is none.
    """

    def listed(named: Sequence[str]) -> str:
        return ", ".join(named[:_MOST_NAMED]) + (" …" if named[_MOST_NAMED:] else "")

    asked = read_fragment(file).options
    if dropped := [line for line in unmet if line.partition("=")[0] in asked]:
        raise UserError(
            f"{file.name} asks for {listed(dropped)}, which Kconfig does not set",
            f"`make menuconfig` shows with / what {dropped[0].partition('=')[0]} depends on, and what selects it;"
            " put that into the fragment, too, or leave the option out",
        )
    if without is not None and not differences(*map(read_effective, (without, config))):
        raise UserError(
            f"{file.name} changes nothing: without it {listed(lines(asked))} is so, too",
            "a comparison needs two different kernels",
        )
