"""Kernels that are built and not measured: to choose a compiler, ahead of trials, and to check an answer; pure.

A kernel that was built on one host travels to the others, and a build leaves sources and objects behind from which the
next one is faster. So both ends are built as jobs of their own, each once; a host that would have to build an end that
is being built elsewhere builds meanwhile what the search would measure first; and a host that only builds is ahead of
those that measure. Nothing is concluded from such a build but that there is a kernel now: where there is none, a trial
finds out why, by the rules of trials.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bisector.bisect.state import Aim, BisectState, Installed, ParentsOf
from bisector.campaign.instructions import Attempt, Done, Instruction, Record, SetAside, Submit, Wait, failed
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import BuildEnded, BuildStarted, Event, Note, OnHost
from bisector.core.subject import Commit, Compiler, Kernel, Remade
from bisector.core.trial import Fault
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, Failed, Finished
from bisector.kernel.toolchain import check_unchanged
from bisector.store.facts import BuildTry, Compilers, Ended, Ending, KernelCheck

_DIGITS = 16


def before_end(facts: BisectState, end: Commit) -> Submit | Wait | None:
    """What comes before the trial of an end on this host; None where its trial may begin.

    A host on which something failed last makes the trial at once: what follows on a trial that fails is settled. So
    does one that builds ahead for itself: the trial has the kernel as soon as it is there.
    """
    crew = facts.scope.crew
    if crew.builds_here:
        return None
    if facts.is_being_built(end.sha):
        return Wait() if facts.failures else _ahead(facts, 1)
    shares_kernels = len(crew.builders) + max(crew.measuring, len(facts.hosts)) > 1
    if not shares_kernels or facts.failures or facts.is_in_flight(end.sha) or not _is_to_build(facts, end.sha):
        return None
    return _build(facts, end, "an end, for all hosts")


def for_builder(facts: BisectState) -> Instruction:
    """What a host that only builds is to do: both ends, then what the search needs next, so far ahead as it may."""
    crew = facts.scope.crew
    if facts.failures >= facts.scope.policy.attempts:
        return SetAside(facts.host, facts.transient.failures[facts.host][-1])
    if (first := settle_compilers(facts)) is not None or facts.scope.aim is Aim.BASELINES:
        return first or Wait()
    for end in facts.scope.ends:
        begun = facts.is_in_flight(end.sha) or facts.is_being_built(end.sha)
        if not begun and _is_to_build(facts, end.sha):
            return _build(facts, end, "an end" if crew.builds_here else "an end, for all hosts")
    # Here for either outcome of each trial that is under way.
    return _ahead(facts, 2 * crew.guests if crew.builds_here else max(1, crew.measuring, len(facts.hosts)))


def _ahead(facts: BisectState, count: int) -> Submit | Wait:
    """The build of the first kernel that is missing among so many that the search would measure next.

    With as many as there are hosts that measure, each finds one when it is idle. What is built further ahead is more
    often built in vain, since each reading changes what is chosen.
    """
    if facts.scope.aim is not Aim.ANSWER or facts.scope.search_range is None:
        return Wait()
    sha = next((sha for sha in facts.standing.choices(count) if _is_to_build(facts, sha)), None)
    return Wait() if sha is None else _build(facts, facts.commit(sha), "ahead")


def _is_to_build(facts: BisectState, sha: str) -> bool:
    return sha not in facts.kept and all(one.sha != sha for one in facts.recorded.build_tries)


def _build(facts: BisectState, commit: Commit, purpose: str) -> Submit:
    request = BuildRequest(commit, facts.recorded.compilers[0])
    told = OnHost(facts.host, BuildStarted(commit, purpose))
    return Submit(request, f"kernel {commit.sha}", tell=(told,), host=facts.host)


def recorded(attempt: Attempt, request: BuildRequest, *, is_choice: bool = False) -> Record:
    """A build that has ended, for the record; its task is over, unless it failed and ``is_choice`` of a compiler."""
    news, commit, compiler = attempt.news, request.commit, request.compiler
    told: tuple[Event, ...] = () if is_choice else (OnHost(news.host, BuildEnded(commit)),)
    if isinstance(news, Failed):
        note = Note(f"{commit.short} was not built on {news.host}: {news.error}")
        return failed(attempt, news.error, over=True, tell=(*told, note))
    reason = news.result.reason if isinstance(news.result, Fault) else ""
    if reason and is_choice:
        told = (Note(f"{compiler.command} does not build {commit.short}: {reason}"),)
    elif reason:
        told = (*told, Note(f"{commit.short} was to be built ahead and is not: {reason}"))
    return Record(
        (BuildTry(compiler, commit.sha, reason), Ended(attempt.id, Ending.DONE)), attempt, over=True, tell=told
    )


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
                note = Note(f"does {compiler.command} build {end.short}? ({compiler.identity})")
                return Submit(BuildRequest(end, compiler), f"build {compiler.command} {end.sha}", tell=(note,))
            if one.reason:
                failures.append(f"{compiler.command} fails at {end.short}: {one.reason}")
                break
        else:
            return Record((Compilers((compiler,)),))
    raise EndsDoNotReproduce(
        f"no compiler of this host builds both ends: {'; '.join(failures)}",
        "install another compiler (apt-cache search '^gcc-[0-9]'), choose other ends,"
        " or let several share the range: --compiler gcc --compiler gcc-11",
    )


# The kernels that an answer rests on are built once more, apart from all others, before it is given. They were made in
# a build directory that other trees had used before them, with objects of ccache that others had compiled, or came from
# another machine, and were kept for months. Bad memory may have changed one, or a tree may have written there what is
# not of its own source. So the commit found, its parents and the ends without it or with it are built in a directory
# that is empty at first, nothing is believed but objects that such checks compiled, and what is loaded of them has to
# be what was measured; for one that is not everything is compiled, before that is believed. What has passed is on
# record, and kept with the kernel where that was built.


def once_more(facts: BisectState, done: Done) -> Instruction:
    """The build of a kernel that an answer rests on and that was not checked; else the answer, with what was not.

    What a kernel was made from is in its key; one that others built is not checked.
    """
    if done.state is not State.FOUND or not facts.scope.settings.kernel.recheck:
        return done
    (found, *_), known = done.candidates, {(one.sha, one.content_sha256): one for one in facts.recorded.kernel_checks}
    shas = {found.sha, *facts.answer(ParentsOf((found.sha,)))[found.sha]}
    kernels: dict[str, tuple[Commit, Kernel]] = {}
    for _, trial in facts.judging.trials:
        is_of_answer = trial.commit.sha in shas if trial.subject.is_commit else trial.subject.changed_by == found.sha
        if is_of_answer and trial.origin is None and trial.kernel is not None and trial.kernel.tree:
            kernels[trial.commit.sha] = trial.commit, trial.kernel
    unchecked = []
    for commit, kernel in kernels.values():
        if (check := known.get((commit.sha, kernel.content_sha256))) is not None:
            unchecked += [f"{commit.short} ({check.why_not})"] if check.why_not else []
            continue
        compiler = next((one for one in facts.recorded.compilers if one.identity == kernel.toolchain), None)
        if compiler is None:
            return Record((KernelCheck(commit.sha, kernel.content_sha256, "its compiler is not one of this run's"),))
        said = (
            f"{commit.short}, on which the answer rests: is its kernel the same when it is built apart from all others?"
        )
        return Submit(BuildRequest(commit, compiler, measured=kernel), f"once more {commit.sha}", tell=(Note(said),))
    said = f"; could not be built once more to check it: {', '.join(unchecked)}" if unchecked else ""
    return replace(done, message=f"{done.message}{said}")


def checked(facts: BisectState, attempt: Attempt, measured: Kernel, news: Finished) -> Record:
    """What came of such a build, for the record; that another kernel came of it is none, and :func:`unlike` raises."""
    ended, why_not = Ended(attempt.id, Ending.DONE), _why_not(facts, measured, news.result)
    if why_not is None:
        return Record((ended,), attempt)
    commit = attempt.submit.request.commit
    earlier = " in an earlier run" if isinstance(news.result, Remade) and news.result.earlier else ""
    told = f"is not checked: {why_not}" if why_not else "is the kernel that was measured"
    fact = KernelCheck(commit.sha, measured.content_sha256, why_not)
    return Record((fact, ended), attempt, over=True, tell=(Note(f"{commit.short}, built once more{earlier}, {told}"),))


def _why_not(facts: BisectState, measured: Kernel, result: object) -> str | None:
    """Why nothing can be said; empty for the kernel that was measured, None for another one, or none.

    Where two builds differ, too, a random number goes into each: a key for modules, say. Without ccache
    an image of old sources names the directory that it was built in, which may be another machine's.
    """
    if isinstance(result, Fault):
        return None if result.kind.of_compiling else result.sentence
    if not isinstance(result, Remade):
        raise TypeError(f"{result} is not what comes of a kernel that is built once more")
    if measured.content_sha256 in result.contents or result.why_not:
        return result.why_not
    if len({*result.contents}) > 1:
        return "each build makes another kernel"
    kernels = [trial.kernel for _, trial in facts.judging.trials if trial.kernel is not None]
    is_own = not facts.scope.crew.measuring and any(
        one.content_sha256 == measured.content_sha256 and not one.cached for one in kernels
    )
    return None if result.by_ccache or is_own else "without ccache, it may name the directory that it was built in"


def unlike(facts: BisectState, attempt: Attempt, measured: Kernel, news: Finished) -> InfraError:
    """What ends the run where another kernel comes of the same sources."""
    commit, result = attempt.submit.request.commit, news.result
    came = result.sentence if isinstance(result, Fault) else ""
    if isinstance(result, Remade):
        came = f"what is loaded of it is {result.contents[0][:_DIGITS]}"
    where = f" on {news.host}" if facts.is_shared else ""
    return InfraError(
        f"{commit.short} was built once more{where}, from nothing, and is not the kernel that was measured: {came}"
        f" instead of {measured.content_sha256[:_DIGITS]}; so no answer is given",
        "bad memory (memtest86+), or a tree that wrote into ccache's directory or the build's: `bisector cache clear`,"
        " and begin anew; if only this build was wrong, going on repeats it",
    )
