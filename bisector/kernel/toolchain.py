"""The compiler, ccache in front of it, and the other programs and headers that a kernel build needs on its host.

ccache's answers must depend on the compiler, its options and the sources alone. A user's ccache.conf may say otherwise
(``compiler_check = none``, ``sloppiness``; ccache(1)). So only the size of the cache and, without a sandbox, its
directory are taken from the settings files.
"""

import itertools
import os
import platform
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from bisector.core.errors import Finding, Grade, InfraError, UserError
from bisector.core.resources import cache_home
from bisector.core.subject import Compiler
from bisector.host import process, sandbox
from bisector.host.files import nearest, scratch
from bisector.host.packages import install
from bisector.host.process import build_user
from bisector.kernel import kconfig

HOST_ARCHITECTURE = "x86_64"
_DEADLINE_S = 60.0
_SUPERUSER_DIRECTORIES = ("/usr/sbin", "/sbin")  # not in an ordinary user's PATH
_COMPILER = "gcc"
# The default compiler first, then the others by the names that distributions use, the newest first.
_FAMILIES = ("gcc", "clang")
_CHOOSE = "set kernel.compiler to one that is installed"
_BEHIND_CCACHE = str(Path(__file__).with_name("behind-ccache.sh"))
# The prefix of a compiler in a command that Kbuild has kept; another installation's script has another path.
_THROUGH_CCACHE = re.compile(r"(?<!\S)(?:sh \S*/behind-ccache\.sh|ccache) (?=\S)")
# Each program and its Debian package (Documentation/process/changes.rst).
_PROGRAMS = {
    "make": "make",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "perl": "perl",
    "ld": "binutils",
    "objcopy": "binutils",
    "readelf": "binutils",
    _COMPILER: "gcc",  # compiles host programs, whatever compiles the kernel
}
# Headers that host programs include: the Debian package, its row, and the option that needs it.
_HEADERS = {
    # objtool is built with most x86_64 configurations since 627fce14809b ("objtool: Add ORC unwind
    # table generation") (in v4.14), and before for CONFIG_STACK_VALIDATION.
    "gelf.h": ("libelf-dev", "libelf headers", None),
    # certs/extract-cert is linked with OpenSSL.
    "openssl/opensslv.h": ("libssl-dev", "OpenSSL headers", "CONFIG_SYSTEM_TRUSTED_KEYRING"),
}
# Programs that install and pack modules.
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
# Ignore both the user's settings file and the system's.
_NO_CCACHE_SETTINGS = {"CCACHE_CONFIGPATH": "/dev/null", "CCACHE_CONFIGPATH2": "/dev/null"}
_CCACHE_DISABLED = {"CCACHE_DISABLE": "1"}
# The environment for a command that only tells its version.
_CCACHE_UNUSED: Mapping[str, str] = MappingProxyType({**_NO_CCACHE_SETTINGS, **_CCACHE_DISABLED})


@dataclass(frozen=True, slots=True)
class Toolchain:
    """``cc`` is make's CC, ``host_cc`` its HOSTCC; ``identity`` names the versions and options that shape the code."""

    cc: str
    host_cc: str
    identity: str

    @property
    def cached(self) -> bool:
        """Whether ccache is used."""
        return _CCACHE in self.cc


def installed() -> tuple[Compiler, ...]:
    """The working compilers of this host: gcc, gcc-N, clang, clang-N, each program once, the newest N first.

    Raises :class:`UserError` if there is none.
    """
    directories = [Path(place) for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if place]
    names = {path.name for directory in directories if directory.is_dir() for path in directory.iterdir()}
    found, seen = [], set[str]()
    for family in _FAMILIES:
        versioned = [name for name in names if re.fullmatch(rf"{family}-\d+(\.\d+)?", name)]
        versioned.sort(key=lambda name: [int(part) for part in name.partition("-")[2].split(".")], reverse=True)
        for name in (family, *versioned):
            # gcc and gcc-12 are often one program; the name that comes first is kept.
            if (path := shutil.which(name)) is not None and os.path.realpath(path) not in seen:
                seen.add(os.path.realpath(path))
                with suppress(UserError):  # the leftover of a removed package, or a compiler without its back end
                    found.append(named(name))
    if not found:
        raise UserError("no C compiler works: neither gcc nor clang", install(_COMPILER))
    return tuple(found)


def named(command: str) -> Compiler:
    """The compiler that this command runs; raises :class:`UserError` if it is missing or cannot compile."""
    return Compiler(command, detect(command).identity)


def check_unchanged(recorded: Iterable[Compiler], found: Iterable[Compiler]) -> None:
    """Raise :class:`UserError` if a compiler has changed since the run began."""
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


def detect(compiler: str) -> Toolchain:
    """The named compiler, behind ccache if that is installed and works.

    The kernel's compiler is called through ``behind-ccache.sh``, whose path has to be one word for make's shell. Host
    programs are not: their dependency files leave out the C library's headers (scripts/Makefile.host). clang links with
    GNU ld, so that one linker makes all kernels of a range. Raises :class:`UserError` if the compiler is missing or
    cannot compile.
    """
    machine = platform.machine()
    if machine != HOST_ARCHITECTURE:
        raise UserError(f"kernels are built for {HOST_ARCHITECTURE} on {HOST_ARCHITECTURE}; this host is {machine}")
    chosen = compiler or _COMPILER
    words = chosen.split()

    def first_line(*argv: str) -> str:
        try:
            return process.run(argv, deadline_s=_DEADLINE_S, env=_CCACHE_UNUSED).stdout.partition("\n")[0].strip()
        except process.CommandMissing as error:
            # Debian names compiler packages after their programs: gcc-12, clang-15.
            package = "binutils" if error.program == "ld" else Path(error.program).name
            raise UserError(f"compiler {chosen}: {error.program} is not installed", install(package)) from error
        except process.CommandFailed as error:
            raise UserError(f"compiler {chosen}: {error}", _CHOOSE) from error

    def trouble(*prefix: str) -> str | None:
        """The reason why an empty file does not compile, or None; ccache gets an empty cache and no settings."""
        with scratch("cc") as directory:
            source = directory / "empty.c"
            source.write_text("int empty;\n", encoding="utf-8")
            argv = [*prefix, *words, "-c", str(source), "-o", str(source.with_suffix(".o"))]
            env = {**_NO_CCACHE_SETTINGS, CCACHE_DIR: str(directory / _CCACHE)}
            try:
                process.run(argv, deadline_s=_DEADLINE_S, env=env)
            except (process.CommandMissing, process.CommandFailed) as error:
                return str(error)
        return None

    # Options in the command change the generated code; ccache in front of it does not.
    options = tuple(itertools.dropwhile(lambda word: not word.startswith("-"), words))
    identity = f"{' '.join((first_line(*words, '--version'), *options))}, {first_line('ld', '--version')}"
    if (why := trouble()) is not None:
        raise UserError(f"compiler {chosen}: does not compile an empty file: {why}", _CHOOSE)
    if _CCACHE in words[0] or trouble(_CCACHE) is not None:
        return Toolchain(chosen, _COMPILER, identity)
    one_word = shlex.quote(_BEHIND_CCACHE) == _BEHIND_CCACHE
    prefix = f"sh {_BEHIND_CCACHE}" if one_word else _CCACHE
    return Toolchain(f"{prefix} {chosen}", f"{_CCACHE} {_COMPILER}", identity)


def without_ccache(command: str) -> str:
    """The command without ccache in front, which makes the same code."""
    return _THROUGH_CCACHE.sub("", command)


def programs(options: Mapping[str, str]) -> dict[str, str]:
    """The programs that a build of this configuration runs, each with its Debian package."""
    compressors = (need for option, need in _COMPRESSORS_FOR_OPTION.items() if options.get(option) == "y")
    return {**_PROGRAMS, **dict(compressors), **(FOR_MODULES if kconfig.has_modules(options) else {})}


def find_program(name: str) -> str | None:
    """The path of a program that a build runs, also in directories for the superuser; or None."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SUPERUSER_DIRECTORIES)))


def ccache_environment(
    base: Path, *, anew: bool = False, sandboxed: bool = False, checks: bool = False
) -> dict[str, str]:
    """The variables for a build below ``base``; ccache uses paths relative to it, so objects of other runs are hits.

    ``sandboxed`` builds have a cache of their own, and so have ``checks`` of other builds. If the user's cache cannot
    be written, ccache is disabled. With ``anew`` no cached object is used. Raises :class:`InfraError` without ccache.
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
        # By default ccache compares time and size, and misses an upgrade if times are pinned, as in Nix.
        "CCACHE_COMPILERCHECK": "content",
        **({"CCACHE_RECACHE": "1"} if anew else {}),
    }


def sandboxed_ccache() -> Path:
    """The cache directory of sandboxed builds.

    A tree can write to it, so nothing outside of the sandbox reads it: ccache runs programs that a settings file there
    names, and an object of the tree could become part of one of the user's programs.
    """
    return cache_home() / _CCACHE


def ccache_of_checks() -> Path:
    """The cache directory of builds that check others; no other build reads or writes it."""
    return cache_home() / f"{_CCACHE}-of-checks"


def _ccache_setting(key: str) -> str:
    try:
        return process.run([_CCACHE, "--get-config", key], deadline_s=_DEADLINE_S).stdout.strip()
    except (process.CommandMissing, process.CommandFailed, process.CommandTimeout) as error:
        raise InfraError(str(error)) from error


_VERSION_S = 10.0


def program_rows(options: Mapping[str, str]) -> Iterator[Finding]:
    """A row for each package of programs that a build of this configuration runs."""
    packages = programs(options)
    for package in dict.fromkeys(packages.values()):
        names = [name for name, one in packages.items() if one == package]
        if missing := [name for name in names if find_program(name) is None]:
            yield Finding(package, Grade.MISSING, f"{', '.join(missing)}: not installed", install(package))
        else:
            yield Finding(package, Grade.OK, _version_line(names[0]))


def header_rows(options: Mapping[str, str]) -> Iterator[Finding]:
    """A row for each package of headers, including those that only other configurations need."""
    for header, (package, row, option) in _HEADERS.items():
        needed = option is None or options.get(option) == "y"
        grade, other = (Grade.MISSING, "") if needed else (Grade.INFO, f"; a configuration with {option} would need it")
        argv = [_COMPILER, "-E", "-include", header, "-x", "c", "-"]
        try:
            if process.run(argv, deadline_s=_DEADLINE_S, stdin="", check=False).exit_status == 0:
                yield Finding(row, Grade.OK, f"{header} is found")
            else:
                yield Finding(row, grade, f"{header}: not installed{other}", install(package))
        except process.CommandMissing as error:
            yield Finding(row, grade, f"{error}, so {header} cannot be looked for", install("gcc"))


def compiler_rows(commands: Sequence[str]) -> Iterator[Finding]:
    """A row for each chosen compiler, or for each installed one; raises :class:`UserError` for one that does not work.

    The first row, for the compiler that is used first, has the same name whatever else is installed.
    """
    for number, one in enumerate(map(named, commands) if commands else installed()):
        row = f"compiler {one.command}" if number else "compiler"
        yield Finding(row, Grade.OK, f"{one.command}: {one.identity}")


def ccache_row(commands: Sequence[str], sandboxed: bool) -> Finding:
    """Whether ccache is used; raises :class:`UserError` if the compiler does not work."""
    command = commands[0] if commands else installed()[0].command
    if shutil.which("ccache") is None:
        what = "not installed: each new build directory is compiled from nothing, which takes several times as long"
        return Finding("ccache", Grade.WARN, what, install("ccache"))
    if not detect(command).cached:
        show = f"ccache {command} -c -x c /dev/null -o /dev/null"
        return Finding("ccache", Grade.WARN, f"not used: `ccache {command}` does not compile", show)
    own = f"; what is compiled in the sandbox is kept in {sandboxed_ccache()}" if sandboxed else ""
    return Finding("ccache", Grade.OK, f"{_version_line('ccache')}{own}")


def sandbox_row(wanted: bool, programs: Iterable[str]) -> Finding:
    """Whether a tree's own commands can run in a sandbox, tested with the programs of a build.

    Raises :class:`UserError` if not.
    """
    row = "sandbox"
    if not wanted:
        what = f"{sandbox.OPTION} = false: make runs a tree's scripts as this user, with network and home directory"
        return Finding(row, Grade.WARN, what, f"--set {sandbox.OPTION}=true")
    sandbox.check(*programs)
    user = build_user()
    number = f", user {user.uid} instead of root" if user is not None else ""
    tried = f"tried: no network, an empty home, no other process{number}"
    return Finding(row, Grade.OK, f"{_version_line(sandbox.BUBBLEWRAP)}; {tried}")


def _version_line(program: str) -> str:
    """The first line of a program's ``--version`` output; the program's path if there is none."""
    path = find_program(program) or program
    try:
        said = process.run([path, "--version"], deadline_s=_VERSION_S, check=False).stdout
    except process.CommandTimeout as error:
        return str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0] if lines else path
