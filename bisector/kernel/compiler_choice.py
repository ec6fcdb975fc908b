"""Which compiler makes the kernels of a bisection; pure.

One for the whole range, where one builds both ends: another compiler makes other code of the same
source, and the difference could be taken for what is looked for. So it is settled once, before
anything is measured, recorded, and not changed any more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bisector.core.errors import UserError
from bisector.core.kernel import Compiler


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
