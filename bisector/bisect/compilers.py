"""What every kernel of a bisection is built with is settled before anything is measured, and recorded; pure."""

from collections.abc import Iterable

from bisector.bisect.facts import Facts
from bisector.bisect.instructions import Attempt, Installed, Record, Submit
from bisector.core.commit import Commit
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.events import Note
from bisector.core.kernel import Compiler
from bisector.core.trial import Fault
from bisector.executor.base import BuildRequest, Finished
from bisector.kernel.compiler_choice import BuildTry, Chosen, NoneBuilds, TryBuild, check_unchanged, next_step
from bisector.store.facts import Compilers, Ended, Ending


def settle(facts: Facts) -> Submit | Record | None:
    """The compilers that the settings name, or the first that builds both ends; None when they are on record.

    A resumed run goes on with the same, or says that it has changed. Raises :class:`EndsDoNotReproduce` when no
    compiler builds both ends.
    """
    found = facts.answer(Installed())
    if facts.recorded.compilers:
        check_unchanged(facts.recorded.compilers, found)
        return None
    if facts.task.settings.kernel.compilers:
        return Record((Compilers(found),))
    by_sha = {end.sha: end for end in facts.task.ends}
    match next_step(found, tuple(by_sha), facts.recorded.build_tries):
        case TryBuild(compiler=compiler, sha=sha):
            return _try_build(compiler, by_sha[sha])
        case Chosen(compilers=compilers):
            return Record((Compilers(compilers),))
        case NoneBuilds(failures=failures):
            raise _none_builds(failures)


def _try_build(compiler: Compiler, commit: Commit) -> Submit:
    note = Note(f"does {compiler.command} build {commit.short}? ({compiler.identity})")
    return Submit(BuildRequest(commit, compiler), f"build {compiler.command} {commit.sha}", tell=(note,))


def recorded(attempt: Attempt, request: BuildRequest, news: Finished) -> Record:
    """A build that was tried, for the record."""
    commit, compiler = request.commit, request.compiler
    fault = news.result if isinstance(news.result, Fault) else None
    one = BuildTry(compiler, commit.sha, fault.reason if fault else "")
    told = (Note(f"{compiler.command} does not build {commit.short}: {fault.reason}"),) if fault else ()
    return Record((one, Ended(attempt.id, Ending.DONE)), attempt, over=True, tell=told)


def _none_builds(failures: Iterable[BuildTry]) -> EndsDoNotReproduce:
    said = "; ".join(f"{one.compiler.command} fails at {one.sha[:12]}: {one.reason}" for one in failures)
    return EndsDoNotReproduce(
        f"no compiler of this host builds both ends: {said}",
        "install another compiler (apt-cache search '^gcc-[0-9]'), choose other ends,"
        " or let several share the range: --compiler gcc --compiler gcc-11",
    )
