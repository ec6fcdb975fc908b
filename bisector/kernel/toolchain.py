"""The compiler, ccache in front of it, and what else a kernel build needs of its host.

ccache is called so that what it answers follows from the compiler, its options and the sources alone. A person's
ccache.conf may say otherwise (``compiler_check = none``, ``sloppiness``, ``prefix_command``, ``ignore_options``,
``hard_link``; ccache(1)): then an object of another compiler is a hit, and a kernel has other code than its key says.
So no file of settings is read. How large the cache may be, and for what runs without a sandbox where it is, are taken
from theirs.
"""

import itertools
import os
import platform
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from bisector.core.errors import InfraError, UserError
from bisector.core.resources import cache_home
from bisector.core.subject import Compiler
from bisector.host import process
from bisector.host.files import nearest, scratch
from bisector.host.packages import install
from bisector.kernel import kconfig

HOST_ARCHITECTURE = "x86_64"
_DEADLINE_S = 60.0
_SUPERUSER_DIRECTORIES = ("/usr/sbin", "/sbin")  # an ordinary user's PATH has neither
_COMPILER = "gcc"
# The default one first, then the others as the distributions name them, the newest first.
_FAMILIES = ("gcc", "clang")
_CHOOSE = "set kernel.compiler to one that is installed"
_BEHIND_CCACHE = str(Path(__file__).with_name("behind-ccache.sh"))
# Before a compiler in a command that Kbuild has kept; another installation's script has another path.
_THROUGH_CCACHE = re.compile(r"(?<!\S)(?:sh \S*/behind-ccache\.sh|ccache) (?=\S)")
# clang calls itself gcc 4.2 as well, so it is asked first.
_VERSION_SOURCE = """\
#if defined(__clang__)
clang __clang_major__ __clang_minor__ __clang_patchlevel__
#elif defined(__GNUC__)
gcc __GNUC__ __GNUC_MINOR__ __GNUC_PATCHLEVEL__
#endif
"""

# Program, the Debian package that has it (Documentation/process/changes.rst).
_PROGRAMS = {
    "make": "make",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "perl": "perl",
    "ld": "binutils",
    "objcopy": "binutils",
    "readelf": "binutils",
    _COMPILER: "gcc",  # host programs, whatever compiles the kernel
}
# objtool is built with most x86_64 configurations since 627fce14809b ("objtool: Add ORC unwind
# table generation") (in v4.14), and before for CONFIG_STACK_VALIDATION.
_HEADERS = {"gelf.h": "libelf-dev"}
# Options that need more: certs/extract-cert is linked with OpenSSL.
_HEADERS_FOR_OPTION = {"CONFIG_SYSTEM_TRUSTED_KEYRING": ("openssl/opensslv.h", "libssl-dev")}
# What installing and packing modules needs.
FOR_MODULES = {"depmod": "kmod", "mke2fs": "e2fsprogs"}
_COMPRESSORS_FOR_OPTION = {
    "CONFIG_KERNEL_BZIP2": ("bzip2", "bzip2"),
    "CONFIG_KERNEL_LZMA": ("lzma", "xz-utils"),
    "CONFIG_KERNEL_XZ": ("xz", "xz-utils"),
    "CONFIG_KERNEL_LZO": ("lzop", "lzop"),
    "CONFIG_KERNEL_LZ4": ("lz4", "lz4"),
    "CONFIG_KERNEL_ZSTD": ("zstd", "zstd"),
}

_CCACHE = "ccache"
CCACHE_DIR = "CCACHE_DIR"
# Neither the person's nor the system's.
_NO_CCACHE_SETTINGS = {"CCACHE_CONFIGPATH": "/dev/null", "CCACHE_CONFIGPATH2": "/dev/null"}
_CCACHE_DISABLED = {"CCACHE_DISABLE": "1"}
# The variables for a command that is only asked what it is.
_CCACHE_UNUSED: Mapping[str, str] = MappingProxyType({**_NO_CCACHE_SETTINGS, **_CCACHE_DISABLED})


@dataclass(frozen=True, slots=True)
class Toolchain:
    """``cc`` is what make gets as CC; ``identity`` is the versions and options that shape the code."""

    cc: str
    host_cc: str
    identity: str

    @property
    def cached(self) -> bool:
        """Whether ccache keeps what is compiled."""
        return _CCACHE in self.cc


def installed() -> tuple[Compiler, ...]:
    """The compilers of this host that work: gcc, gcc-N, clang, clang-N, each program once, the newest N first.

    Raises :class:`UserError` when there is none.
    """
    found = []
    for command in _commands():
        try:
            found.append(named(command))
        except UserError:  # a leftover of a package, or without its back end
            continue
    if not found:
        raise UserError("no C compiler works: neither gcc nor clang", install(_COMPILER))
    return tuple(found)


def named(command: str) -> Compiler:
    """The compiler of this command; raises :class:`UserError` when it is not there or cannot compile."""
    return Compiler(command, detect(command).identity)


def check_unchanged(recorded: Iterable[Compiler], found: Iterable[Compiler]) -> None:
    """Raise :class:`UserError` when a compiler is not what it was when the run began."""
    now = {compiler.command: compiler.identity for compiler in found}
    for compiler in recorded:
        identity = now.get(compiler.command)
        if identity != compiler.identity:
            raise UserError(
                f"the compiler {compiler.command} has changed since this run began: it was {compiler.identity},"
                f" and {'is ' + identity if identity else 'does not work any more'};"
                " kernels of two compilers cannot be compared",
                f"install that version of {compiler.command} again, or begin anew",
            )


def version(command: str) -> tuple[str, tuple[int, ...]]:
    """``gcc`` or ``clang``, and its version, as it tells the sources (scripts/cc-version.sh); () of another one.

    Raises :class:`UserError` when it is not there or cannot compile.
    """
    words = command.split()
    try:
        argv = [*words, "-E", "-P", "-x", "c", "-"]
        said = process.run(argv, deadline_s=_DEADLINE_S, stdin=_VERSION_SOURCE, env=_CCACHE_UNUSED).stdout
    except (process.CommandMissing, process.CommandFailed) as error:
        raise UserError(f"compiler {command}: {error}", _CHOOSE) from error
    family, *numbers = said.split() or [""]
    return family, tuple(int(number) for number in numbers if number.isdigit())


def detect(compiler: str) -> Toolchain:
    """The named compiler, behind ccache when that is installed and works.

    The kernel's goes through ``behind-ccache.sh``, which make's shell has to be able to read as one word. Host
    programs do not: their dependency files leave out the C library's headers (scripts/Makefile.host).
    clang links with GNU ld, which every tree can, so that one linker makes all kernels of a range;
    host programs are always compiled by gcc, they are no part of the kernel.
    Raises :class:`UserError` when it is not there or cannot compile.
    """
    machine = platform.machine()
    if machine != HOST_ARCHITECTURE:
        raise UserError(f"kernels are built for {HOST_ARCHITECTURE} on {HOST_ARCHITECTURE}; this host is {machine}")
    chosen = compiler or _COMPILER
    words = chosen.split()
    # Options in the command make other code; ccache before it does not.
    options = tuple(itertools.dropwhile(lambda word: not word.startswith("-"), words))
    compiler_version = " ".join((_first_line([*words, "--version"], chosen), *options))
    versions = [compiler_version, _first_line(["ld", "--version"], "ld")]
    if (trouble := _compiles(words)) is not None:
        raise UserError(f"compiler {chosen}: does not compile an empty file: {trouble}", _CHOOSE)
    identity = ", ".join(versions)
    one_word = shlex.quote(_BEHIND_CCACHE) == _BEHIND_CCACHE
    prefix = ["sh", _BEHIND_CCACHE] if one_word else [_CCACHE]
    if _CCACHE in words[0] or _compiles([_CCACHE, *words]) is not None:
        return Toolchain(chosen, _COMPILER, identity)
    return Toolchain(" ".join((*prefix, chosen)), f"{_CCACHE} {_COMPILER}", identity)


def without_ccache(command: str) -> str:
    """A command as it is where nothing is kept: what goes through ccache makes the same code."""
    return _THROUGH_CCACHE.sub("", command)


def programs(options: Mapping[str, str]) -> dict[str, str]:
    """The programs that a build of such a configuration runs, and the Debian package of each."""
    for_modules = FOR_MODULES if kconfig.has_modules(options) else {}
    return {**_PROGRAMS, **dict(_for(options, _COMPRESSORS_FOR_OPTION)), **for_modules}


def headers(options: Mapping[str, str]) -> dict[str, str]:
    """The headers that a build of such a configuration includes, and the Debian package of each."""
    return {**_HEADERS, **dict(_for(options, _HEADERS_FOR_OPTION))}


def find_program(name: str) -> str | None:
    """Where a program that a build runs is, also for an ordinary user."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SUPERUSER_DIRECTORIES)))


def header_found(name: str) -> bool:
    """Whether host programs can include it; raises :class:`bisector.host.process.CommandMissing` without a compiler."""
    argv = [_COMPILER, "-E", "-include", name, "-x", "c", "-"]
    return process.run(argv, deadline_s=_DEADLINE_S, stdin="", check=False).exit_status == 0


def ccache_environment(
    base: Path, *, anew: bool = False, sandboxed: bool = False, checks: bool = False
) -> dict[str, str]:
    """The variables for a build below ``base``, to which ccache takes paths relative: another run's objects are hits.

    ``sandboxed`` builds have a cache of their own, and so have those that are ``checks`` of others. Where a person's
    cannot be written nothing is kept. With ``anew`` nothing kept is believed, and what is compiled takes its place.
    Raises :class:`InfraError` when ccache does not answer.
    """
    own = ccache_of_checks() if checks else sandboxed_ccache() if sandboxed else None
    directory = own or Path(_ccache_setting("cache_dir"))
    if own is None and not os.access(nearest(directory), os.W_OK | os.X_OK):
        return dict(_CCACHE_DISABLED)
    return {
        **_NO_CCACHE_SETTINGS,
        CCACHE_DIR: str(directory),
        "CCACHE_MAXSIZE": _ccache_setting("max_size"),
        "CCACHE_BASEDIR": str(base),
        "CCACHE_NOHASHDIR": "1",
        # The default, by time and size, takes an upgrade for the same compiler where times are pinned, as in Nix.
        "CCACHE_COMPILERCHECK": "content",
        **({"CCACHE_RECACHE": "1"} if anew else {}),
    }


def sandboxed_ccache() -> Path:
    """Where sandboxed builds keep what they compiled.

    What a tree can write to is read outside of its sandbox by nobody: ccache runs what a file of settings beside the
    objects names, and an object that a tree has put there could come to be part of a program of the person's.
    """
    return cache_home() / _CCACHE


def ccache_of_checks() -> Path:
    """Where builds that check others keep what they compiled: no other build reads it, or writes there."""
    return cache_home() / f"{_CCACHE}-of-checks"


def _commands() -> Iterator[str]:
    """Under the name that is preferred: gcc and gcc-12 are often one program."""
    seen: set[str] = set()
    for family in _FAMILIES:
        for name in (family, *sorted(_versioned(family), key=_version, reverse=True)):
            path = shutil.which(name)
            if path is not None and os.path.realpath(path) not in seen:
                seen.add(os.path.realpath(path))
                yield name


def _versioned(family: str) -> set[str]:
    pattern = re.compile(rf"{family}-\d+(\.\d+)?")
    directories = [Path(place) for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if place]
    entries = (path.name for directory in directories if directory.is_dir() for path in directory.iterdir())
    return {name for name in entries if pattern.fullmatch(name)}


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.partition("-")[2].split("."))


def _for(options: Mapping[str, str], table: dict[str, tuple[str, str]]) -> Iterable[tuple[str, str]]:
    return (need for option, need in table.items() if options.get(option) == "y")


def _first_line(argv: list[str], chosen: str) -> str:
    try:
        return process.run(argv, deadline_s=_DEADLINE_S, env=_CCACHE_UNUSED).stdout.partition("\n")[0].strip()
    except process.CommandMissing as error:
        # Debian's packages of compilers have the names of their programs: gcc-12, clang-15.
        package = "binutils" if error.program == "ld" else Path(error.program).name
        raise UserError(f"compiler {chosen}: {error.program} is not installed", install(package)) from error
    except process.CommandFailed as error:
        raise UserError(f"compiler {chosen}: {error}", _CHOOSE) from error


def _compiles(words: list[str]) -> str | None:
    """None, or why an empty file was not compiled. ccache of the command has an empty cache, and no settings."""
    with scratch("cc") as directory:
        source = directory / "empty.c"
        source.write_text("int empty;\n", encoding="utf-8")
        argv = [*words, "-c", str(source), "-o", str(source.with_suffix(".o"))]
        try:
            process.run(argv, deadline_s=_DEADLINE_S, env={**_NO_CCACHE_SETTINGS, CCACHE_DIR: str(directory / _CCACHE)})
        except (process.CommandMissing, process.CommandFailed) as error:
            return str(error)
    return None


def _ccache_setting(key: str) -> str:
    try:
        return process.run([_CCACHE, "--get-config", key], deadline_s=_DEADLINE_S).stdout.strip()
    except (process.CommandMissing, process.CommandFailed, process.CommandTimeout) as error:
        raise InfraError(str(error)) from error
