"""Whether this host has what a kernel build needs: a row for each package.

The kernel says which compilers it accepts in Documentation/process/changes.rst and, since v5.13, in
scripts/min-tool-version.sh, where a build reads it. A tree between two releases may be on either side of a row of
:data:`DEMANDS`.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bisector.core.errors import Finding, Grade
from bisector.core.subject import Compiler
from bisector.host import process, sandbox
from bisector.host.build_user import build_user
from bisector.host.packages import install
from bisector.kernel import toolchain
from bisector.kernel.quirk_table import QUIRKS
from bisector.kernel.quirks import QuirkEvidence, unchanged_since
from bisector.kernel.toolchain import sandboxed_ccache

_DEADLINE_S = 10.0
_HEADER_ROWS = {"libelf-dev": "libelf headers", "libssl-dev": "OpenSSL headers"}
_ALL_HEADERS = {"CONFIG_SYSTEM_TRUSTED_KEYRING": "y"}

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """Kernels since ``release`` ask for this version; ``commit`` is the one of mainline that asked first."""

    family: str
    least: Version
    release: str
    commit: str
    subject: str


# Those of x86. Before the first row of gcc it was 3.2, and nothing was asked of clang.
DEMANDS = (
    Demand("gcc", (4, 6), "v4.19", "cafa0010cd51", "Raise the minimum required gcc version to 4.6"),
    Demand("gcc", (4, 9), "v5.8", "6ec4476ac825", "Raise gcc version requirement to 4.9"),
    Demand("gcc", (5, 1), "v5.15", "76ae847497bc", "Documentation: raise minimum supported version of GCC to 5.1"),
    Demand("gcc", (8, 1), "v6.15", "a3e8fe814ad1", "x86/build: Raise the minimum GCC version to 8.1"),
    Demand("clang", (10, 0, 1), "v5.10", "1f7a44f63e6c", "compiler-clang: add build check for clang 10.0.1"),
    Demand(
        "clang", (11,), "v5.17", "df05c0e9496c", "Documentation: Raise the minimum supported version of LLVM to 11.0.0"
    ),
    Demand(
        "clang", (13, 0, 1), "v6.9", "9c1b86f8ce04", "kbuild: raise the minimum supported version of LLVM to 13.0.1"
    ),
    Demand("clang", (15,), "v6.15", "7861640aac52", "x86/build: Raise the minimum LLVM version to 15.0.0"),
    Demand(
        "clang",
        (17, 0, 1),
        "v7.2",
        "ce3267a39a92",
        "kbuild: Bump minimum version of LLVM for building the kernel to 17.0.1",
    ),
)


def programs(options: Mapping[str, str]) -> Iterator[Finding]:
    """A row for each package of programs that a build of this configuration runs."""
    by_package: dict[str, list[str]] = {}
    for program, package in toolchain.programs(options).items():
        by_package.setdefault(package, []).append(program)
    for package, names in by_package.items():
        if missing := [name for name in names if toolchain.find_program(name) is None]:
            yield Finding(package, Grade.MISSING, f"{', '.join(missing)}: not installed", install(package))
        else:
            yield Finding(package, Grade.OK, _version(names[0]))


def headers(options: Mapping[str, str]) -> Iterator[Finding]:
    """A row for each package of headers; those that only other configurations need are told as well."""
    needed = toolchain.headers(options)
    for header, package in toolchain.headers(_ALL_HEADERS).items():
        row = _HEADER_ROWS.get(package, package)
        try:
            there = toolchain.header_found(header)
        except process.CommandMissing as error:
            grade = Grade.MISSING if header in needed else Grade.INFO
            yield Finding(row, grade, f"{error}, so {header} cannot be looked for", install("gcc"))
            continue
        if there:
            yield Finding(row, Grade.OK, f"{header} is found")
        elif header in needed:
            yield Finding(row, Grade.MISSING, f"{header}: not installed", install(package))
        else:
            what = f"{header}: not installed; a configuration with trusted keys would need it"
            yield Finding(row, Grade.INFO, what, install(package))


def compilers(commands: Sequence[str]) -> Iterator[Finding]:
    """A row for each chosen compiler, or for each installed one; raises :class:`UserError` for one that does not work.

    The name of the first row, of the compiler that is used first, does not depend on what else is installed.
    """
    for number, one in enumerate(_compilers(commands)):
        row = f"compiler {one.command}" if number else "compiler"
        yield Finding(row, Grade.OK, f"{one.command}: {one.identity}; {_reach(*toolchain.version(one.command))}")


def _reach(family: str, version: tuple[int, ...]) -> str:
    refusal = first_refusal(family, version)
    if refusal is None:
        return "new enough for every kernel so far"
    least = ".".join(map(str, refusal.least))
    return f"for kernels before {refusal.release}, which requires {family} {least} ({refusal.commit})"


def first_refusal(family: str, version: Version) -> Demand | None:
    """What the first kernel that refuses this compiler demands; None when no kernel so far refuses it."""
    return next((one for one in DEMANDS if one.family == family and version < one.least), None)


def _compilers(commands: Sequence[str]) -> Iterable[Compiler]:
    return map(toolchain.named, commands) if commands else toolchain.installed()


def old_kernels(commands: Sequence[str]) -> Finding:
    """Which kernels need help with the tools of this host, by the table of quirks; each tree is asked when it is built.

    Raises :class:`UserError` for a compiler that does not work.
    """
    # Host programs are compiled by the default one, whatever compiles the kernel.
    found = [toolchain.version(command) for command in ("gcc", *(one.command for one in _compilers(commands)))]
    newest = max(version for family, version in found if family == "gcc")
    tried = sum(quirk.evidence is QuirkEvidence.TRIED for quirk in QUIRKS)
    what = (
        f"gcc {newest[0]} builds kernels from {unchanged_since(newest[0], QUIRKS)} on as they are; older"
        f" ones need some of {len(QUIRKS)} known quirks, {tried} of them tried and the others from the literature"
    )
    return Finding("old kernels", Grade.INFO, what)


def ccache(commands: Sequence[str], sandboxed: bool) -> Finding:
    """Whether compilations are kept; raises :class:`UserError` for the compiler's trouble."""
    command = commands[0] if commands else toolchain.installed()[0].command
    if shutil.which("ccache") is None:
        what = "not installed: each new build directory is compiled from nothing, which takes several times as long"
        return Finding("ccache", Grade.WARN, what, install("ccache"))
    if not toolchain.detect(command).cached:
        show = f"ccache {command} -c -x c /dev/null -o /dev/null"
        return Finding("ccache", Grade.WARN, f"not used: `ccache {command}` does not compile", show)
    own = f"; what is compiled in the sandbox is kept in {sandboxed_ccache()}" if sandboxed else ""
    return Finding("ccache", Grade.OK, f"{_version('ccache')}{own}")


def confinement(wanted: bool, programs: Iterable[str]) -> Finding:
    """Whether what a tree brings along can be kept in a sandbox, which is tried with the programs of a build.

    Raises :class:`UserError` when not.
    """
    row = "sandbox"
    if not wanted:
        what = f"{sandbox.OPTION} = false: make runs a tree's scripts as this user, with network and home directory"
        return Finding(row, Grade.WARN, what, f"--set {sandbox.OPTION}=true")
    sandbox.check(*programs)
    user = build_user()
    number = f", user {user.uid} instead of root" if user is not None else ""
    tried = f"tried: no network, an empty home, no other process{number}"
    return Finding(row, Grade.OK, f"{_version(sandbox.BUBBLEWRAP)}; {tried}")


def _version(program: str) -> str:
    """The first line of what a program says of its version; where it is, if it says nothing."""
    path = toolchain.find_program(program) or program
    try:
        said = process.run([path, "--version"], deadline_s=_DEADLINE_S, check=False).stdout
    except process.CommandTimeout as error:
        return str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0] if lines else path
