"""What is built before anybody measures it, where several hosts share a search, or a CPU is left here; pure.

A kernel that was built on one host travels to the others, and a build leaves sources and objects behind from which the
next one is faster. So both ends are built as jobs of their own, each once; a host that would have to build an end that
is being built elsewhere builds meanwhile what the search would measure first; and a host that only builds is ahead of
those that measure. Nothing is concluded from such a build but that there is a kernel now: where there is none, a trial
finds out why, by the rules of trials.
"""

from collections.abc import Iterable, Sequence

from bisector.bisect.questions import Installed
from bisector.bisect.state import Aim, BisectState
from bisector.campaign.instructions import Attempt, Instruction, Record, SetAside, Submit, Wait, failed
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.events import BuildEnded, BuildStarted, Event, Note, OnHost
from bisector.core.subject import Commit, Compiler
from bisector.core.trial import Fault
from bisector.executor.base import BuildRequest, Failed, Finished
from bisector.kernel.toolchain import check_unchanged
from bisector.store.facts import BuildTry, Compilers, Ended, Ending


def is_awaited(facts: BisectState, sha: str) -> bool:
    """Whether the kernel of a commit is about to be there: it is being built, and nothing else."""
    return sha in facts.builds_in_flight.values()


def before_end(facts: BisectState, end: Commit) -> Submit | Wait | None:
    """What comes before the trial of an end on this host; None where its trial may begin.

    A host on which something failed last makes the trial at once: what follows on a trial that fails is settled. So
    does one that builds ahead for itself: the trial has the kernel as soon as it is there.
    """
    if facts.scope.crew.builds_here:
        return None
    if is_awaited(facts, end.sha):
        return _meanwhile(facts)
    if not _shares_kernels(facts) or facts.is_in_flight(end.sha) or not _is_to_build(facts, end.sha):
        return None
    return None if facts.transient.failures.get(facts.host) else _build(facts, end, "an end, for all hosts")


def for_builder(facts: BisectState) -> Instruction:
    """What a host that only builds is to do: both ends, then what the search needs next, so far ahead as it may."""
    failures = facts.transient.failures.get(facts.host, ())
    if len(failures) >= facts.scope.policy.attempts:
        return SetAside(facts.host, failures[-1])
    if (first := settle_compilers(facts)) is not None or facts.scope.aim is Aim.BASELINES:
        return first or Wait()
    crew = facts.scope.crew
    for end in facts.scope.ends:
        if not facts.is_in_flight(end.sha) and not is_awaited(facts, end.sha) and _is_to_build(facts, end.sha):
            return _build(facts, end, "an end" if crew.builds_here else "an end, for all hosts")
    if crew.builds_here:  # for either outcome of each trial that is under way
        return _ahead(facts, 2 * crew.guests)
    return _ahead(facts, max(1, crew.measuring, len(facts.hosts)))


def recorded(attempt: Attempt, request: BuildRequest) -> Record:
    """A build that has ended, for the record, whatever its end; its matter is over."""
    news, commit = attempt.news, request.commit
    told: tuple[Event, ...] = (OnHost(news.host, BuildEnded(commit)),)
    if isinstance(news, Failed):
        told = (*told, Note(f"{commit.short} was not built on {news.host}: {news.error}"))
        return failed(attempt, news.error, over=True, tell=told)
    fault = news.result if isinstance(news.result, Fault) else None
    if fault is not None:
        told = (*told, Note(f"{commit.short} was to be built ahead and is not: {fault.reason}"))
    one = BuildTry(request.compiler, commit.sha, fault.reason if fault else "")
    return Record((one, Ended(attempt.id, Ending.DONE)), attempt, over=True, tell=told)


def _meanwhile(facts: BisectState) -> Submit | Wait:
    """One kernel ahead, by a host that can measure nothing yet."""
    return Wait() if facts.transient.failures.get(facts.host) else _ahead(facts, 1)


def _ahead(facts: BisectState, count: int) -> Submit | Wait:
    """The build of the first kernel that is missing among so many that the search would measure next.

    With as many as there are hosts that measure, each finds one when it is idle. What is built further ahead is more
    often built in vain, since each reading changes what is chosen.
    """
    if facts.scope.aim is not Aim.ANSWER or facts.scope.ground is None:
        return Wait()
    missing = (sha for sha in facts.standing.choices(count) if _is_to_build(facts, sha))
    sha = next(missing, None)
    return Wait() if sha is None else _build(facts, facts.commit(sha), "ahead")


def _shares_kernels(facts: BisectState) -> bool:
    crew = facts.scope.crew
    return len(crew.builders) + max(crew.measuring, len(facts.hosts)) > 1


def _is_to_build(facts: BisectState, sha: str) -> bool:
    """Whether a commit has no kernel that is known of, and nobody has tried to build one."""
    return sha not in facts.kept and all(one.sha != sha for one in facts.recorded.build_tries)


def _build(facts: BisectState, commit: Commit, purpose: str) -> Submit:
    request = BuildRequest(commit, facts.recorded.compilers[0])
    told = OnHost(facts.host, BuildStarted(commit, purpose))
    return Submit(request, f"kernel {commit.sha}", tell=(told,), host=facts.host)


# With which compiler all kernels of a range are built: it is settled before anything is measured


def settle_compilers(facts: BisectState) -> Submit | Record | Wait | None:
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
    if facts.scope.settings.kernel.compilers:
        return Record((Compilers(found),))
    return Wait() if facts.in_flight else next_build(found, facts.scope.ends, facts.recorded.build_tries)


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
