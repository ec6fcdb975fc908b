"""What is submitted, and what people are told once: the trial of a subject on the setup of the search; pure."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from bisector.analysis import kernels
from bisector.analysis.judgement import Again, Measured
from bisector.analysis.short_fill import rule_for
from bisector.bisect.facts import Facts
from bisector.bisect.instructions import Outlook, Submit, Tell
from bisector.core.events import Note, Planned
from bisector.core.subject import Cell, Commit, Subject
from bisector.core.trial import Fill
from bisector.search.readings import Facts as Readings
from bisector.trial.runner import TrialRequest


def measure(
    facts: Facts,
    subject: Subject,
    purpose: str,
    outlook: Outlook,
    *,
    whole: bool = False,
    because: Readings | None = None,
    fill: Fill | None = None,
    clear_of: Iterable[str] = (),
) -> Submit:
    """One trial on the setup of the search.

    Its runs are not stopped early if it is ``whole``, or of an end, of which the line is; a whole one may be once it
    is ``clear_of`` the run of one of these commits, too, and that of an end with a short fill once it is like its whole
    run. Without a ``fill`` to use, the short one is used where it is
    harmless and the trial is not whole.
    """
    commit, judging, recorded = subject.commit, facts.judging, facts.recorded
    cell = Cell(subject, facts.task.settings.setup)
    whole = whole or commit in facts.task.ends
    if fill is None:
        may_be_short = (
            not whole and rule_for(facts.task.settings) is not None and facts.here.judging.short_fill.harmless
        )
        fill = Fill.SHORT if may_be_short else Fill.WHOLE
    # A kernel that has its figures and is asked for again is not to be told that it has them.
    known = isinstance(judging.settlement(commit.sha), Measured)
    others = kernels.measured_whole(judging) if whole else kernels.measured(judging)
    # What is known of a build that is doubted is not believed either.
    anew = any(one.doubted and one.kernel is None for _, one in judging.trials if one.commit.sha == commit.sha)
    again = recorded.was_tried(commit.sha)
    n = recorded.next_n
    request = TrialRequest(n, cell, {} if known else others, recorded.compilers, again=again, anew=anew, fill=fill)
    return Submit(
        replace(request, guest_seed=_guest_seed(facts, commit)),
        f"trial {commit.sha} on {facts.host}",
        tell=(_planned(facts, commit, purpose, outlook),),
        may_stop_early=not whole,
        clear_of=tuple(clear_of) if commit not in facts.task.ends else (),
        alike=commit in facts.task.ends and fill is Fill.SHORT,
        because=because,
    )


def _guest_seed(facts: Facts, commit: Commit) -> int:
    """Another one than those by which a commit was read; but the old end is read with the same one twice."""
    judging = facts.here.judging
    if not facts.task.settings.machine.is_counted or (commit.sha == judging.old and not judging.same_again):
        return 0
    read = {trial.guest_seed for trial, _ in judging.sound(commit.sha) if trial.is_counted}
    return next(seed for seed in count() if seed not in read)


def once(facts: Facts, key: str, note: Note) -> Tell | None:
    """Tell it, unless that was done."""
    return None if key in facts.heard.told else Tell((note,), (key,))


def _planned(facts: Facts, commit: Commit, purpose: str, outlook: Outlook) -> Planned:
    again = facts.judging.since(commit.sha)
    why = ""
    if facts.recorded.was_tried(commit.sha):
        why = f"again: {again.why}" if isinstance(again, Again) else "once more"
    text = ", ".join(filter(None, (purpose, why)))
    n = facts.recorded.next_n
    return Planned(n, commit, text, outlook.candidates, outlook.trials_left, outlook.probability)
