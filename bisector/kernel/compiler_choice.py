"""Which compiler makes the kernels of a bisection, and which kernels it is too old or too new for; pure.

One makes all kernels of a range, where one builds both ends: another compiler makes other code of the same source, and
the difference could be taken for what is looked for. So it is settled once, before anything is measured, recorded, and
not changed any more.

The kernel says which compilers it accepts in Documentation/process/changes.rst and, since v5.13, in
scripts/min-tool-version.sh, where a build reads it. A tree between two releases may be on either side of a row.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bisector.core.errors import UserError
from bisector.core.subject import Compiler
from bisector.kernel.quirks import Quirk

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BuildTry:
    """Whether a compiler builds a commit: ``reason`` says why not, and is empty when it does."""

    compiler: Compiler
    sha: str
    reason: str


@dataclass(frozen=True, slots=True)
class TryBuild:
    """It is not known yet whether this compiler builds this commit."""

    compiler: Compiler
    sha: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the kernels are built with: the first of these that builds a commit."""

    compilers: tuple[Compiler, ...]


@dataclass(frozen=True, slots=True)
class NoneBuilds:
    """No compiler builds both ends; what each failed at."""

    failures: tuple[BuildTry, ...]


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
        "clang",
        (11,),
        "v5.17",
        "df05c0e9496c",
        "Documentation: Raise the minimum supported version of LLVM to 11.0.0",
    ),
    Demand(
        "clang",
        (13, 0, 1),
        "v6.9",
        "9c1b86f8ce04",
        "kbuild: raise the minimum supported version of LLVM to 13.0.1",
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


def next_step(
    candidates: Sequence[Compiler], ends: Sequence[str], tries: Iterable[BuildTry]
) -> TryBuild | Chosen | NoneBuilds:
    """The first candidate, in their order, that builds all ends; a single one needs no trying.

    A failure at one end settles a candidate. What was tried of a compiler that has changed since
    counts for nothing.
    """
    if len(candidates) == 1:
        return Chosen(tuple(candidates))
    known = {(one.compiler, one.sha): one for one in tries}
    failures = []
    for compiler in candidates:
        for sha in ends:
            one = known.get((compiler, sha))
            if one is None:
                return TryBuild(compiler, sha)
            if one.reason:
                failures.append(one)
                break
        else:
            return Chosen((compiler,))
    return NoneBuilds(tuple(failures))


def check_unchanged(recorded: Iterable[Compiler], found: Iterable[Compiler]) -> None:
    """Raise :class:`UserError` when a compiler is not what it was when the bisection began."""
    now = {compiler.command: compiler.identity for compiler in found}
    for compiler in recorded:
        identity = now.get(compiler.command)
        if identity != compiler.identity:
            raise UserError(
                f"the compiler {compiler.command} has changed since this bisection began: it was {compiler.identity},"
                f" and {'is ' + identity if identity else 'does not work any more'};"
                " kernels of two compilers cannot be compared",
                f"install that version of {compiler.command} again, or begin anew: bisector start",
            )


def first_refusal(family: str, version: Version) -> Demand | None:
    """What the first kernel that refuses this compiler demands; None when no kernel so far refuses it."""
    return next((one for one in DEMANDS if one.family == family and version < one.least), None)


def unchanged_since(gcc: int, table: Iterable[Quirk]) -> str:
    """The first release that needs none of these quirks with gcc of this major version and today's other tools."""
    return max((quirk.cure.version for quirk in table if quirk.gcc <= gcc), key=_numbers)


def _numbers(release: str) -> Version:
    return tuple(int(number) for number in re.findall(r"\d+", release))
