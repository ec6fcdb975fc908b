"""A trial as an instruction; pure."""

from bisector.analysis import kernels
from bisector.analysis.settle import Again, Measured
from bisector.bisect.facts import Facts
from bisector.bisect.instructions import Outlook, Submit
from bisector.core.cell import Cell, Subject
from bisector.core.commit import Commit, Kind
from bisector.core.errors import AttemptFailed, BisectorError, TrialRefused
from bisector.core.events import Planned
from bisector.search.posterior import Facts as Readings
from bisector.trial.runner import TrialRequest


def measure(
    facts: Facts,
    subject: Subject,
    purpose: str,
    outlook: Outlook,
    *,
    whole: bool = False,
    because: Readings | None = None,
) -> Submit:
    """One trial on the setup of the search.

    Its runs are not stopped early if it is ``whole``, or of an end, of which the line is.
    """
    commit, judging, recorded = subject.commit, facts.judging, facts.recorded
    cell = Cell(subject, facts.task.settings.setup)
    whole = whole or commit in facts.task.ends
    # A kernel that has its figures and is asked for again is not to be told that it has them.
    known = isinstance(judging.settlement(commit.sha), Measured)
    others = kernels.measured_whole(judging) if whole else kernels.measured(judging)
    # What is known of a build that is doubted is not believed either.
    anew = any(one.doubted and one.kernel is None for _, one in judging.trials if one.commit.sha == commit.sha)
    again = recorded.was_tried(commit.sha)
    n = recorded.next_n
    return Submit(
        TrialRequest(n, cell, {} if known else others, recorded.compilers, again=again, anew=anew),
        f"trial {commit.sha}",
        tell=(_planned(facts, commit, purpose, outlook),),
        may_stop_early=not whole,
        because=because,
    )


def changed_name(kind: Kind, commit: Commit, end: Commit) -> str:
    """What a person calls an end without a commit, or with it."""
    return f"{end.short} {'without' if kind is Kind.REVERTED else 'with'} {commit.short}"


def skippable(facts: Facts, submit: Submit, error: BisectorError) -> BisectorError:
    """An error with the commit that it is of, where the run can go on without that."""
    request, commit = submit.request, submit.request.commit
    of_a_commit = isinstance(request, TrialRequest) and request.cell.subject.is_commit
    if of_a_commit and commit not in facts.task.ends and isinstance(error, AttemptFailed | TrialRefused):
        error.skippable = commit.sha
    return error


def _planned(facts: Facts, commit: Commit, purpose: str, outlook: Outlook) -> Planned:
    again = facts.judging.since(commit.sha)
    why = ""
    if facts.recorded.was_tried(commit.sha):
        why = f"again: {again.why}" if isinstance(again, Again) else "once more"
    text = ", ".join(filter(None, (purpose, why)))
    n = facts.recorded.next_n
    return Planned(n, commit, text, outlook.candidates, outlook.trials_left, outlook.probability)
