"""With which compiler all kernels of a range are built: it is settled before anything is measured; pure."""

from collections.abc import Iterable, Sequence

from bisector.bisect.facts import Facts
from bisector.bisect.instructions import Attempt, Installed, Record, Submit, Wait
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.events import Note
from bisector.core.subject import Commit, Compiler
from bisector.core.trial import Fault
from bisector.executor.base import BuildRequest, Finished
from bisector.kernel.toolchain import check_unchanged
from bisector.store.facts import BuildTry, Compilers, Ended, Ending


def settle_compilers(facts: Facts) -> Submit | Record | Wait | None:
    """The compilers that the settings name, or the first that builds both ends; None when they are on record.

    One makes all kernels of a range, where one builds both ends: another compiler makes other code of the same source,
    and the difference could be taken for what is looked for. So it is settled once, before anything is measured, and
    recorded. A resumed run goes on with the same, or says that it has changed.

    Raises :class:`EndsDoNotReproduce` when no compiler builds both ends.
    """
    found = facts.answer(Installed())
    if facts.recorded.compilers:
        check_unchanged(facts.recorded.compilers, found)
        return None
    if facts.task.settings.kernel.compilers:
        return Record((Compilers(found),))
    return Wait() if facts.in_flight else next_build(found, facts.task.ends, facts.recorded.build_tries)


def next_build(candidates: Sequence[Compiler], ends: Sequence[Commit], tries: Iterable[BuildTry]) -> Submit | Record:
    """Try or take the first candidate, in their order, that builds all ends; a single one needs no trying.

    A failure at one end settles a candidate. What was tried of a compiler that has changed since counts for nothing.
    """
    if len(candidates) == 1:
        return Record((Compilers(tuple(candidates)),))
    known = {(one.compiler, one.sha): one for one in tries}
    failures = []
    for compiler in candidates:
        for end in ends:
            one = known.get((compiler, end.sha))
            if one is None:
                return _try_build(compiler, end)
            if one.reason:
                failures.append(one)
                break
        else:
            return Record((Compilers((compiler,)),))
    raise _none_builds(failures)


def _try_build(compiler: Compiler, commit: Commit) -> Submit:
    note = Note(f"does {compiler.command} build {commit.short}? ({compiler.identity})")
    return Submit(BuildRequest(commit, compiler), f"build {compiler.command} {commit.sha}", tell=(note,))


def build_recorded(attempt: Attempt, request: BuildRequest, news: Finished) -> Record:
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
