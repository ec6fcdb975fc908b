"""What comes before the search: the compilers, both ends, and which commits can matter between them; pure."""

from collections.abc import Iterable

from bisector.analysis.judgement import Measured, Untestable
from bisector.bisect.facts import Facts, measure
from bisector.bisect.instructions import Attempt, Installed, Outlook, Record, Submit, Tell, WhatMatters
from bisector.bisect.stop_rule import why_whole
from bisector.core.errors import BisectorError, EndsDoNotReproduce, InfraError
from bisector.core.events import Note
from bisector.core.subject import Commit, Compiler, Subject
from bisector.core.trial import Fault
from bisector.core.verdict import Verdict
from bisector.executor.base import BuildRequest, Finished
from bisector.kernel.compiler_choice import BuildTry, Chosen, NoneBuilds, TryBuild, check_unchanged, next_step
from bisector.store.facts import Compilers, Ended, Ending


def settle_compilers(facts: Facts) -> Submit | Record | None:
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


def say_what_is_whole(facts: Facts) -> Tell | None:
    """Tell once why no run can be stopped early, where that is so."""
    why = why_whole(facts.judging.objective)
    return _once(facts, "whole runs", Note(why)) if why else None


def measure_both(facts: Facts) -> Submit | Tell | None:
    """A trial of an end that has no verdict yet; then the line between them is told.

    Raises :class:`EndsDoNotReproduce` when there is nothing to bisect, :class:`InfraError` for an end that could not be
    measured, :class:`bisector.core.errors.UserError` when the first that was has no value that can decide.
    """
    judging = facts.judging
    for commit, word in zip(facts.task.ends, facts.words, strict=True):
        if (judgement := judging.judge(commit.sha)) is None:
            judging.check_metric(commit.sha)
            return measure(facts, Subject(commit), f"the {word} end", Outlook())
        if judgement.verdict is Verdict.SKIP:
            raise _no_end(facts, commit, word, judgement.why)
    line = judging.threshold()
    if line is None:
        raise RuntimeError("both ends are measured and there is no threshold")
    return _once(facts, "threshold", Note(line.sentence(judging.objective)))


def repeat(facts: Facts) -> Submit | None:
    """A trial of the ends in turn, until each has as many sound readings as asked for, or can have no more."""
    asked = facts.task.settings.bisect.calibrate
    for number in range(2, asked + 1):
        for commit, word in zip(facts.task.ends, facts.words, strict=True):
            can_be = not isinstance(facts.judging.since(commit.sha), Untestable)
            if len(facts.judging.sound(commit.sha)) < number and can_be:
                return measure(facts, Subject(commit), f"the {word} end, {number} of {asked}", Outlook())
    return None


def relevance(facts: Facts) -> Record | Tell | None:
    """Record and tell once which commits can matter, which the ends' builds tell."""
    if facts.recorded.relevance is not None:
        return _once(facts, "relevance", Note(facts.recorded.relevance.sentence))
    old, new = (facts.judging.settlement(end.sha) for end in facts.task.ends)
    if not (isinstance(old, Measured) and isinstance(new, Measured) and old.trial.kernel and new.trial.kernel):
        return None
    mattering = facts.answer(WhatMatters(old.trial.kernel, new.trial.kernel))
    return Record((mattering,)) if mattering is not None else None


def _once(facts: Facts, key: str, note: Note) -> Tell | None:
    """Tell it, unless that was done."""
    return None if key in facts.heard.told else Tell((note,), (key,))


def _no_end(facts: Facts, commit: Commit, word: str, why: str) -> BisectorError:
    """Why an end cannot be judged: that of the host is no answer, and the next process measures it anew."""
    if commit.sha in facts.judging.given_up:
        return InfraError(f"the {word} end {commit.short} could not be measured: {why}", "bisector doctor")
    return EndsDoNotReproduce(
        f"the {word} end {commit.short} cannot be judged: {why}",
        "choose an end that builds, boots and survives the workload",
    )
