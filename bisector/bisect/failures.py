"""Pure functions that decide on builds without a trial, and on what follows a failure.

A kernel that one host has built is sent to the others, and sources and objects that a build leaves make the next build
faster. So each end is built once, as a job of its own; a host that needs an end which another host is building builds
the commit that the search would measure first meanwhile; and a host that only builds works ahead of the measuring ones.
Nothing is concluded from a build that fails: a trial of the commit finds out why, by the rules of trials.

An attempt that fails by no fault of its commit is repeated, and finally given up. If the end works and the commit fails
each time, the commit causes what looks like an infrastructure error. If the end fails as well, the host may have caused
the commits' faults.

Trouble of one host does not end a run that other hosts can continue. An error raised while a host measures the ends or
runs a control excludes that host; on the last host, or on a single one, it ends the run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NoReturn

from bisector.analysis.judgement import Due, can_be_vouched_for, reach, speaks_for
from bisector.bisect.state import Aim, BisectState, Installed, ParentsOf
from bisector.campaign.instructions import (
    Attempt,
    Cancel,
    Done,
    ExcludeHost,
    Instruction,
    Notify,
    Pause,
    Record,
    Submit,
    Wait,
    again_note,
    failed,
)
from bisector.core.errors import BisectorError, EndsDoNotReproduce, InfraError
from bisector.core.events import BuildEnded, BuildStarted, Event, Note, OnHost, Planned
from bisector.core.subject import Commit, Kernel, RebuildCheck
from bisector.core.trial import AttemptFailed, Control, Fault, FaultKind, Stage, Trial, TrialRefused
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, ControlRequest, Failed, Finished
from bisector.kernel.toolchain import check_unchanged
from bisector.store.facts import BuildTry, Compilers, Ended, Ending, KernelCheck
from bisector.trial.runner import TrialRequest

Attempts = Sequence[Attempt]

_DIGITS = 16


# Builds of the ends, and builds ahead of trials


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


def next_of_builder(facts: BisectState) -> Instruction:
    """Return what a host that only builds does next: both ends, then commits that the search would measure next."""
    crew = facts.scope.crew
    if facts.failures >= facts.scope.settings.retries.attempts:
        return ExcludeHost(facts.host, facts.transient.failures[facts.host][-1])
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
    sha = next((sha for sha in facts.search_state.choices(count) if _is_to_build(facts, sha)), None)
    return Wait() if sha is None else _build(facts, facts.commit(sha), "ahead")


def _is_to_build(facts: BisectState, sha: str) -> bool:
    return sha not in facts.kept and all(one.sha != sha for one in facts.recorded.build_tries)


def _build(facts: BisectState, commit: Commit, purpose: str) -> Submit:
    request = BuildRequest(commit, facts.recorded.compilers[0])
    told = OnHost(facts.host, BuildStarted(commit, purpose))
    return Submit(request, f"kernel {commit.sha}", tell=(told,), host=facts.host)


def build_recorded(attempt: Attempt, request: BuildRequest, *, is_choice: bool = False) -> Record:
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
    A failure at one end rules a compiler out. The only compiler is recorded without a try. Tries of a compiler that has
    changed since do not count.

    Raises :class:`EndsDoNotReproduce` if no compiler builds both ends, :class:`bisector.core.errors.UserError` if a
    recorded compiler has changed.
    """
    found = facts.answer(Installed())
    if facts.recorded.compilers:
        check_unchanged(facts.recorded.compilers, found)
        return None
    if facts.scope.settings.kernel.compilers or len(found) == 1:
        return Record((Compilers(found),))
    if facts.in_flight:
        return Wait()
    known = {(one.compiler, one.sha): one for one in facts.recorded.build_tries}
    failures = []
    for compiler in found:
        for end in facts.scope.ends:
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


def checked_answer(facts: BisectState, done: Done) -> Instruction:
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


# An attempt that failed


def after_failure(facts: BisectState, attempts: Attempts, error: BisectorError) -> Submit:
    """Return what follows a failed attempt; raises ``error``, or what explains it, if there is to be no other."""
    last = attempts[-1]
    request, commit = last.submit.request, last.submit.request.commit
    if (stage := _asked_for(facts, attempts)) is not None:
        return _control(facts, stage, last.submit.task, f"{commit.short}: {error}; does {_name(facts)} still work?")
    if _back_off_s(facts, attempts) is not None:
        n = facts.recorded.next_n
        return replace(
            last.submit, request=replace(request, n=n) if isinstance(request, TrialRequest) else request, tell=()
        )
    if isinstance(request, ControlRequest) and isinstance(error, AttemptFailed | TrialRefused):
        _raise_alike(facts, attempts, error, str(error))
    raise _skippable(facts, last.submit, error)


def pause_before(facts: BisectState, attempts: Attempts, found: Submit) -> Pause | None:
    """The pause before a host repeats an attempt that failed on it; None if it needs none, or has had it."""
    last = attempts[-1]
    if not isinstance(last.news, Failed) or type(found.request) is not type(last.submit.request):
        return None
    key, wait_s = f"pause after {last.id}", _back_off_s(facts, attempts)
    if not wait_s or key in facts.transient.notified:
        return None
    return Pause(last.news.host, wait_s, (again_note(wait_s, last.news.error),), key)


def _back_off_s(facts: BisectState, attempts: Attempts) -> float | None:
    """The seconds to wait after the last attempt; None if it did not fail, or is not to be repeated."""
    news = attempts[-1].news
    if not isinstance(news, Failed) or not isinstance(news.error, AttemptFailed):
        return None
    in_turn = takewhile(lambda one: isinstance(one.news, Failed), reversed(attempts))
    return facts.scope.settings.retries.wait_s(sum(1 for _ in in_turn))


def _skippable(facts: BisectState, submit: Submit, error: BisectorError) -> BisectorError:
    """The error, with its commit marked as skippable if the run can go on without that commit."""
    request, commit = submit.request, submit.request.commit
    of_a_commit = isinstance(request, TrialRequest) and request.cell.subject.is_commit
    if of_a_commit and commit not in facts.scope.ends and isinstance(error, AttemptFailed | TrialRefused):
        error.skippable = commit.sha
    return error


# Failures that look like infrastructure errors


def _asked_for(facts: BisectState, attempts: Attempts) -> Stage | None:
    """The stage that a control has to complete because of the last failed attempt; None if no control is due.

    A control is run between two failed attempts, so that trouble which has passed meanwhile is not put down to the
    commit. No control can explain a failed checkout, or an attempt without facts: such an attempt is repeated like any
    infrastructure error.
    """
    partial, news = _partial_facts(facts, attempts[-1]), attempts[-1].news
    if partial is None:
        return None
    refused = isinstance(news, Failed) and isinstance(news.error, TrialRefused)
    trials = sum(isinstance(one.submit.request, TrialRequest) for one in attempts)
    enough = refused or trials >= facts.scope.settings.retries.before_control or any(_controls_without_fault(attempts))
    return reach(partial.stage) if enough else None


def blamed(facts: BisectState, attempts: Attempts) -> tuple[Trial, int] | None:
    """The partial trial of the last failed attempt, its fault put down to the kernel, and the number of the control.

    None if no control shows that the fault is the kernel's.
    """
    partial, news = _partial_facts(facts, attempts[-1]), attempts[-1].news
    if partial is None or not isinstance(news, Failed):
        return None
    answered = next(
        (one for one in _controls_without_fault(attempts) if speaks_for(_through(one), partial.stage)), None
    )
    if answered is None:
        return None
    kind = FaultKind.NO_SSH if partial.stage is Stage.BOOT else FaultKind.COMMAND_FAILED
    fault = Fault(partial.stage, kind, str(news.error))
    return replace(partial, fault=fault), facts.recorded.controls.index(_fact(answered)) + 1


def _partial_facts(facts: BisectState, attempt: Attempt) -> Trial | None:
    """The partial trial of a failed attempt, if a control can explain it: not of an end, and with a threshold."""
    news, request = attempt.news, attempt.submit.request
    if not isinstance(news, Failed) or not isinstance(news.error, AttemptFailed | TrialRefused):
        return None
    trial, of_an_end = news.error.trial, request.commit in facts.scope.ends  # baselines are of the new end
    if trial is None or not isinstance(request, TrialRequest) or of_an_end or facts.judging.threshold() is None:
        return None
    return trial if can_be_vouched_for(trial.stage) else None


def _controls_without_fault(attempts: Attempts) -> Iterator[Attempt]:
    """The controls that ended without a fault."""
    for one in attempts:
        if isinstance(one.submit.request, ControlRequest) and isinstance(one.news, Finished) and not one.news.result:
            yield one


# Controls and their results


def ask_control(facts: BisectState, due: Due) -> Submit:
    """Submit a control because of the faults of trials."""
    note = f"{_faults(due.trials)} at stage {due.stage}: does {_name(facts)} still work?"
    return replace(_control(facts, due.stage, f"control {due.stage} {due.trials}", note), about=due.trials)


def control_recorded(facts: BisectState, attempts: Attempts) -> Record:
    """Return the record of the last attempt, a control that has ended; its result is included once it is sure."""
    last = attempts[-1]
    ended = Ended(last.id, Ending.DONE)
    if not _is_sure(facts, attempts):
        return Record((ended,), last)
    control = _fact(last)
    if not (last.submit.about and control.answered):
        return Record((control, ended), last)
    those = "that is" if len(control.trials) == 1 else "those are"
    note = Note(f"{_name(facts)} still works: {those} of the commits themselves")
    return Record((control, ended), last, over=True, tell=(note,))


def after_control(facts: BisectState, attempts: Attempts) -> Submit:
    """Return what follows a control on record: the commit once more, or another control if its fault may be chance.

    Raises :class:`InfraError` if the end fails now: the faults that the control was about are doubted from then on.
    """
    last = attempts[-1]
    if not _is_sure(facts, attempts):
        return replace(last.submit, tell=())
    control = _fact(last)
    if control.answered:
        (tried, request), n = _last_trial(attempts), facts.recorded.next_n
        planned = Planned(n, request.commit, f"once more, {_name(facts)} still works", 0, 0)
        return replace(tried.submit, request=replace(request, n=n), tell=(planned,))
    if not last.submit.about:
        _raise_alike(facts, attempts, None, control.failed)
    raise InfraError(
        f"{_name(facts)}, which was measured before, fails now: {control.failed};"
        f" so {_faults(control.trials)} before it may well be this host's",
        _what_changed(facts, control.stage),
    )


def _raise_alike(facts: BisectState, attempts: Attempts, error: BisectorError | None, alike: str) -> NoReturn:
    """Raise the error that the commit failed with, since the end fails as well; ``error`` if no commit was tried."""
    if not any(isinstance(one.submit.request, TrialRequest) for one in attempts):
        raise error or InfraError(alike)
    tried, _ = _last_trial(attempts)
    first = tried.news.error if isinstance(tried.news, Failed) else None
    if not isinstance(first, AttemptFailed):
        raise _skippable(facts, tried.submit, first or InfraError(alike))
    told = "alike" if alike == str(first) else f"now, too: {alike}"
    hint = first.hint or _what_changed(facts, _through(attempts[-1]))
    message = f"{first}; {_name(facts)}, which was measured before, fails {told}"
    raise _skippable(facts, tried.submit, AttemptFailed(message, hint, first.stage, first.host, first.trial)) from first


def _control(facts: BisectState, stage: Stage, task: str, note: str) -> Submit:
    # A control has no trial number of its own: people see the number of the next trial.
    planned = Planned(facts.recorded.next_n, facts.scope.wanted.new, "measured before; does it still work?", 0, 0)
    return Submit(
        ControlRequest(facts.scope.wanted.new, facts.recorded.compilers, stage), task, tell=(Note(note), planned)
    )


def _is_sure(facts: BisectState, attempts: Attempts) -> bool:
    """Whether the last control's result is sure; a fault that may be chance must be seen ``faults_believed`` times."""
    series = takewhile(lambda one: isinstance(one.submit.request, ControlRequest), reversed(attempts))
    faults = [one.news.result for one in series if isinstance(one.news, Finished)]
    last = faults[0]
    return (
        not isinstance(last, Fault)
        or last.kind.of_compiling
        or len(faults) >= facts.scope.settings.retries.faults_believed
    )


def _last_trial(attempts: Attempts) -> tuple[Attempt, TrialRequest]:
    return next((one, one.submit.request) for one in reversed(attempts) if isinstance(one.submit.request, TrialRequest))


def _through(attempt: Attempt) -> Stage:
    request = attempt.submit.request
    return request.through if isinstance(request, ControlRequest) else Stage.DONE


def _fact(attempt: Attempt) -> Control:
    news = attempt.news
    failed = news.result.sentence if isinstance(news, Finished) and isinstance(news.result, Fault) else ""
    sha = attempt.submit.request.commit.sha
    return Control(news.at, news.host, sha, _through(attempt), attempt.submit.about, failed)


def _name(facts: BisectState) -> str:
    return f"the {facts.words[1]} end {facts.scope.wanted.new.short}"


def _faults(trials: Sequence[int]) -> str:
    return "a fault" if len(trials) == 1 else f"{len(trials)} faults"


def _what_changed(facts: BisectState, stage: Stage) -> str:
    logs = facts.scope.run_dir / "controls" / f"{stage}-{facts.scope.wanted.new.short}"
    return (
        "the host has changed since that end was measured: an upgrade of QEMU, the compiler or a header, the guest"
        f" image, a disk, memory; its logs are in {logs}."
        " What failed meanwhile is tried again by resume"
    )


# Several hosts: which one repeats an attempt, which one is excluded, what is cancelled


def excluding_host_on_error(
    facts: BisectState, what: Callable[[BisectState], Instruction | None]
) -> Instruction | None:
    """Return what a host does next by its own trials alone; an error excludes the host if there are others."""
    try:
        return what(facts.here)
    except BisectorError as error:
        if not facts.is_shared:
            raise
        return ExcludeHost(facts.host, error)


def check_direction(facts: BisectState) -> None:
    """Raise :class:`EndsDoNotReproduce` if the ends differ in one direction on this host, and in the other elsewhere.

    Only a person who says which direction is expected can decide which host is right.
    """
    if facts.here.judging.line is None or facts.judging.line_on(facts.home) is not None:
        return
    first = next(name for name, own in facts.judging.hosts.items() if own is facts.judging.reference)
    raise EndsDoNotReproduce(
        f"the ends differ one way on {first}, and the other way on {facts.home}",
        "with --expect improvement, or regression, hosts on which they differ the other way are not used",
    )


def failing_too_often(facts: BisectState) -> ExcludeHost | None:
    """Exclude this host if there are others and its last attempts, as many as one task may have, all failed."""
    if facts.failures < facts.scope.settings.retries.attempts or not facts.is_shared:
        return None
    return ExcludeHost(facts.host, facts.transient.failures[facts.host][-1])


def follow_up(
    facts: BisectState, attempts: Attempts, after: Callable[[BisectState, Attempts], Submit | Notify | None]
) -> Iterator[Instruction]:
    """Yield what follows the last attempt of a task, if this host is to do it.

    Another host, if there is one, repeats a failed trial of the search at once. Trials of an end, and controls, are
    repeated by the host that they are about.
    """
    host = attempts[-1].news.host
    others = [one for one in facts.hosts if one != host]
    try:
        found = after(facts.on(host), attempts)
    except BisectorError as error:
        if error.skippable or not others:
            raise
        yield ExcludeHost(host, error)
        return
    if found is None:
        return
    request = found.request if isinstance(found, Submit) else None
    of_host = isinstance(request, ControlRequest) or (
        isinstance(request, TrialRequest) and request.commit in facts.scope.ends
    )
    is_searched, is_elsewhere = isinstance(request, TrialRequest) and not of_host, facts.host != host
    if is_elsewhere:
        is_for_this_host = is_searched or (host not in facts.hosts and not of_host)
    else:
        is_for_this_host = not (is_searched and others)
    if is_for_this_host:
        pause = pause_before(facts, attempts, found) if isinstance(found, Submit) else None
        yield found if pause is None or (is_searched and is_elsewhere) else pause


def cancel_rest_before_done(facts: BisectState, found: Instruction) -> Instruction:
    """Return the instruction; if the search is done, first cancel all that is in flight, then wait for its end.

    If the search only ran out of time, trials in flight are waited for, since they still tell something; builds are
    cancelled even then.
    """
    if not isinstance(found, Done):
        return found
    needless = set(facts.builds_in_flight)
    if not found.out_of_time:
        needless |= {id_ for id_, one in facts.in_flight.items() if isinstance(one.request, TrialRequest)}
        needless -= facts.transient.cancelled
    return next(map(Cancel, sorted(needless)), Wait() if facts.in_flight else found)
