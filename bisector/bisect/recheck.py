"""The kernels that an answer rests on are built once more, apart from all others, before it is given; pure.

They were made in a build directory that other trees had used before them, with objects of ccache that others had
compiled, or came from another machine, and were kept for months. Bad memory may have changed one, or a tree may have
written there what is not of its own source. So the commit found, its parents and the ends without it or with it are
built in a directory that is empty at first, nothing is believed but objects that such checks compiled, and what is
loaded of them has to be what was measured; for one that is not everything is compiled, before that is believed.
What has passed is on record, and kept with the kernel where that was built.
"""

from collections.abc import Iterator
from dataclasses import replace

from bisector.bisect.questions import ParentsOf
from bisector.bisect.state import BisectState
from bisector.campaign.instructions import Attempt, Done, Instruction, Record, Submit
from bisector.core.errors import InfraError
from bisector.core.events import Note
from bisector.core.subject import Commit, Kernel, Remade
from bisector.core.trial import Fault
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, Finished
from bisector.store.facts import Ended, Ending, KernelCheck

_DIGITS = 16


def once_more(facts: BisectState, done: Done) -> Instruction:
    """The build of a kernel that an answer rests on and that was not checked; else the answer, with what was not."""
    if done.state is not State.FOUND or not facts.scope.settings.kernel.recheck:
        return done
    known = {(one.sha, one.content_sha256): one.why_not for one in facts.recorded.kernel_checks}
    unchecked = []
    for commit, kernel in _rests_on(facts, done.candidates[0]):
        if (why_not := known.get((commit.sha, kernel.content_sha256))) is None:
            return _build(facts, commit, kernel)
        unchecked += [f"{commit.short} ({why_not})"] if why_not else []
    said = f"; could not be built once more to check it: {', '.join(unchecked)}" if unchecked else ""
    return replace(done, message=f"{done.message}{said}")


def _rests_on(facts: BisectState, found: Commit) -> Iterator[tuple[Commit, Kernel]]:
    """What was measured of the commit, its parents, and ends that are changed by it; as far as it was built here.

    What such a kernel was made from is in its key.
    """
    shas = {found.sha, *facts.answer(ParentsOf((found.sha,)))[found.sha]}
    kernels: dict[str, tuple[Commit, Kernel]] = {}
    for _, trial in facts.judging.trials:
        is_of_answer = trial.commit.sha in shas if trial.subject.is_commit else trial.subject.changed_by == found.sha
        if is_of_answer and trial.origin is None and trial.kernel is not None and trial.kernel.tree:
            kernels[trial.commit.sha] = trial.commit, trial.kernel
    yield from kernels.values()


def _build(facts: BisectState, commit: Commit, kernel: Kernel) -> Submit | Record:
    compiler = next((one for one in facts.recorded.compilers if one.identity == kernel.toolchain), None)
    if compiler is None:
        return Record((KernelCheck(commit.sha, kernel.content_sha256, "its compiler is not one of this run's"),))
    note = Note(
        f"{commit.short}, on which the answer rests: is its kernel the same when it is built apart from all others?"
    )
    return Submit(BuildRequest(commit, compiler, measured=kernel), f"once more {commit.sha}", tell=(note,))


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
        raise TypeError(f"{result} is nothing that was built once more")
    if measured.content_sha256 in result.contents or result.why_not:
        return result.why_not
    if len({*result.contents}) > 1:
        return "each build makes another kernel"
    content = measured.content_sha256
    kernels = [trial.kernel for _, trial in facts.judging.trials if trial.kernel is not None]
    is_own = not facts.scope.crew.measuring and any(one.content_sha256 == content and not one.cached for one in kernels)
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
