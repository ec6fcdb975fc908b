"""What comes before the search: the ends, as often as asked for, and what can matter between them; pure."""

from bisector.analysis.settle import Measured, Untestable
from bisector.bisect.facts import Facts
from bisector.bisect.instructions import Outlook, Record, Submit, Tell, WhatMatters
from bisector.bisect.stop_rule import why_whole
from bisector.bisect.trials import measure
from bisector.core.cell import Subject
from bisector.core.commit import Commit
from bisector.core.errors import BisectorError, EndsDoNotReproduce, InfraError
from bisector.core.events import Note
from bisector.core.verdict import Verdict


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
