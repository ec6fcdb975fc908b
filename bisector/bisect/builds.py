"""Pure functions that decide on builds without a trial: to choose a compiler, ahead of trials, and to check an answer.

A kernel that one host has built is sent to the others, and sources and objects that a build leaves make the next build
faster. So each end is built once, as a job of its own; a host that needs an end which another host is building builds
the commit that the search would measure first meanwhile; and a host that only builds works ahead of the measuring ones.
Nothing is concluded from a build that fails: a trial of the commit finds out why, by the rules of trials.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bisector.bisect.state import Aim, BisectState, Installed, ParentsOf
from bisector.campaign.instructions import Attempt, Done, Instruction, Record, SetAside, Submit, Wait, failed
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import BuildEnded, BuildStarted, Event, Note, OnHost
from bisector.core.subject import Commit, Compiler, Kernel, RebuildCheck
from bisector.core.trial import Fault
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, Failed, Finished
from bisector.kernel.toolchain import check_unchanged
from bisector.store.facts import BuildTry, Compilers, Ended, Ending, KernelCheck

_DIGITS = 16


def before_end(facts: BisectState, end: Commit) -> Submit | Wait | None:
    """Return what precedes the trial of an end on this host: a build, or a wait; None if the trial may begin.

    A host whose last attempt failed begins no build of its own, since only failures of trials have rules for what
    follows. A host that builds ahead for itself begins the trial at once, which gets the kernel as soon as it is built.
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
    """Return what a host that only builds does next: both ends, then commits that the search would measure next."""
    crew = facts.scope.crew
    if facts.failures >= facts.scope.policy.attempts:
        return SetAside(facts.host, facts.transient.failures[facts.host][-1])
    if (first := settle_compilers(facts)) is not None or facts.scope.aim is Aim.BASELINES:
        return first or Wait()
    for end in facts.scope.ends:
        begun = facts.is_in_flight(end.sha) or facts.is_being_built(end.sha)
        if not begun and _is_to_build(facts, end.sha):
            return _build(facts, end, "an end" if crew.builds_here else "an end, for all hosts")
    # On this host, two kernels for each guest: one for either outcome of its trial.
    return _ahead(facts, 2 * crew.guests if crew.builds_here else max(1, crew.measuring, len(facts.hosts)))


def _ahead(facts: BisectState, count: int) -> Submit | Wait:
    """The build of the first missing kernel among the next ``count`` commits that the search would measure.

    With a count of all measuring hosts, each host finds a kernel when it is idle. Building further ahead is more often
    in vain, since each reading changes the choice.
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
    """Return the record of a build that has ended, and of the end of its task; ``is_choice``: it tried a compiler."""
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


# The compiler that builds all kernels of a range; it is settled before anything is measured


def settle_compilers(facts: BisectState) -> Submit | Record | Wait | None:
    """Record the compilers that the settings name, or find the first one that builds both ends; None once on record.

    Unless the settings name several, one compiler builds all kernels of a range: another one makes different code of
    the same source, which could be taken for the change that is searched. A resumed run goes on with the same compiler.

    Raises :class:`EndsDoNotReproduce` if no compiler builds both ends, :class:`bisector.core.errors.UserError` if a
    recorded compiler has changed.
    """
    found = facts.answer(Installed())
    if facts.recorded.compilers:
        check_unchanged(facts.recorded.compilers, found)
        return None
    if facts.scope.settings.kernel.compilers:
        return Record((Compilers(found),))
    return Wait() if facts.in_flight else next_build(found, facts.scope.ends, facts.recorded.build_tries)


def next_build(candidates: Sequence[Compiler], ends: Sequence[Commit], tries: Iterable[BuildTry]) -> Submit | Record:
    """Build an end with the first candidate that has not failed, or record it once it builds all ends.

    A single candidate is recorded without a try. A failure at one end rules a candidate out. Tries of a compiler that
    has changed since do not count. Raises :class:`EndsDoNotReproduce` if all candidates fail.
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


# The kernels that an answer rests on are built once more, apart from all others, before the answer is given. They were
# built in a directory that other trees had used before, with ccache objects that other builds had compiled, or came
# from another machine, and may be months old. Bad memory may have changed one, or the build of another tree may have
# written files there. So the commit found, its parents and the ends with it reverted or picked are built in an empty
# directory, with no cached objects but those of earlier checks, and the loaded parts have to equal those measured. If
# they differ, everything is compiled before that is believed. A check that passes is recorded, and kept with the
# kernel on the host that built it.


def once_more(facts: BisectState, done: Done) -> Instruction:
    """Return the build of an unchecked kernel that the answer rests on, then the answer with its inconclusive checks.

    Kernels of imported trials, and kernels whose key names no source tree, are not checked.
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
    """Return the record of a check; a kernel that differs is not recorded as checked: :func:`unlike` ends the run."""
    ended, why_not = Ended(attempt.id, Ending.DONE), _why_not(facts, measured, news.result)
    if why_not is None:
        return Record((ended,), attempt)
    commit = attempt.submit.request.commit
    earlier = " in an earlier run" if isinstance(news.result, RebuildCheck) and news.result.earlier else ""
    told = f"is not checked: {why_not}" if why_not else "is the kernel that was measured"
    fact = KernelCheck(commit.sha, measured.content_sha256, why_not)
    return Record((fact, ended), attempt, over=True, tell=(Note(f"{commit.short}, built once more{earlier}, {told}"),))


def _why_not(facts: BisectState, measured: Kernel, result: object) -> str | None:
    """Why a check is inconclusive; empty if the kernel is the measured one, None if it differs or does not compile.

    If two builds differ from each other, something random goes into each, such as a key for modules. Without ccache, an
    image of old sources contains the name of its build directory, which may be that of another machine.
    """
    if isinstance(result, Fault):
        return None if result.kind.of_compiling else result.sentence
    if not isinstance(result, RebuildCheck):
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
    """The error that ends the run because the same sources gave another kernel."""
    commit, result = attempt.submit.request.commit, news.result
    came = result.sentence if isinstance(result, Fault) else ""
    if isinstance(result, RebuildCheck):
        came = f"what is loaded of it is {result.contents[0][:_DIGITS]}"
    where = f" on {news.host}" if facts.is_shared else ""
    return InfraError(
        f"{commit.short} was built once more{where}, from nothing, and is not the kernel that was measured: {came}"
        f" instead of {measured.content_sha256[:_DIGITS]}; so no answer is given",
        "bad memory (memtest86+), or a tree that wrote into ccache's directory or the build's: `bisector cache clear`,"
        " and begin anew; if only this build was wrong, going on repeats it",
    )
