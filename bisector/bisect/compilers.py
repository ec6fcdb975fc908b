"""What every kernel of a bisection is built with is settled before anything is measured, and recorded."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from bisector.bisect.retry import Attempts
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.events import Listener, Note
from bisector.core.model import Commit, Compiler
from bisector.executor.base import Engine
from bisector.kernel.compiler_choice import BuildTry, Chosen, NoneBuilds, TryBuild, check_unchanged, next_step
from bisector.store.store import Store


@dataclass(frozen=True, slots=True)
class CompilerChoice:
    """The compilers of a bisection; ``wished`` tells that the settings name them."""

    wished: bool
    engine: Engine
    store: Store
    attempts: Attempts
    tell: Listener

    def settle(self, ends: Iterable[Commit]) -> None:
        """As wished, or the first that builds both ends.

        Recorded, so that a resumed run goes on with the same, or says that it has changed. Raises
        :class:`EndsDoNotReproduce` when no compiler builds both ends.
        """
        found = self.engine.compilers()
        if recorded := self.store.compilers():
            check_unchanged(recorded, found)
            return
        if self.wished:
            self.store.set_compilers(found)
            return
        by_sha = {end.sha: end for end in ends}
        while True:
            match next_step(found, tuple(by_sha), self.store.build_tries()):
                case TryBuild(compiler=compiler, sha=sha):
                    self._try_build(compiler, by_sha[sha])
                case Chosen(compilers=compilers):
                    self.store.set_compilers(compilers)
                    return
                case NoneBuilds(failures=failures):
                    raise _none_builds(failures)

    def _try_build(self, compiler: Compiler, commit: Commit) -> None:
        self.tell(Note(f"does {compiler.command} build {commit.short}? ({compiler.identity})"))
        fault = self.attempts.at(commit, partial(self.engine.try_build, commit, compiler))
        self.store.add_build_try(BuildTry(compiler, commit.sha, fault.reason if fault else ""))
        if fault:
            self.tell(Note(f"{compiler.command} does not build {commit.short}: {fault.reason}"))


def _none_builds(failures: Iterable[BuildTry]) -> EndsDoNotReproduce:
    said = "; ".join(f"{one.compiler.command} fails at {one.sha[:12]}: {one.reason}" for one in failures)
    return EndsDoNotReproduce(
        f"no compiler of this host builds both ends: {said}",
        "install another compiler (apt-cache search '^gcc-[0-9]'), choose other ends,"
        " or let several share the range: --compiler gcc --compiler gcc-11",
    )
