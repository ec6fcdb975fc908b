"""What the runs on record say by another metric than the one that decided; pure."""

from contextlib import suppress

from bisector.analysis.judgement import Measured, judged_run
from bisector.analysis.verdicts import Judging
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.units import plural
from bisector.core.verdict import Verdict

_SIDES = (Verdict.OLD, Verdict.NEW)


def check(seen: Judging) -> None:
    """Raise :class:`bisector.core.errors.UserError` where no run has a value, with the metrics that there are.

    Runs that did nothing have a rate of zero, and say so themselves.
    """
    runs = [judged_run(trial) for _, trial in seen.trials if trial.runs and trial.fault is None]
    if runs and all(seen.value(trial) is None for _, trial in seen.trials):
        with suppress(InfraError):
            seen.objective.deciding(runs[-1])


def sentence(judging: Judging, seen: Judging) -> str:
    """How the verdicts compare with what the same trials say as ``seen``; empty while there is nothing to compare."""
    label = seen.objective.label
    if seen.objective == judging.objective or judging.line is None:
        return ""
    try:
        line = seen.threshold()
    except EndsDoNotReproduce as error:
        return f"the ends do not differ by {label}: {error.message}"
    if line is None:
        return f"by {label} the ends cannot be told apart: {_unmeasured(seen)}"
    own = {sha: verdict for sha, verdict in judging.verdicts() if verdict in _SIDES}
    other = {sha: verdict for sha, verdict in seen.verdicts() if verdict in _SIDES}
    turned = [sha[:12] for sha, verdict in own.items() if other.get(sha, verdict) is not verdict]
    silent = sum(sha not in other for sha in own)
    told = len(own) - silent
    what = f"{len(turned)} of {plural(told, 'commit')} would be on the other side ({', '.join(turned)})"
    if not turned:
        what = f"{'the one commit is' if told == 1 else f'all {told} commits are'} on the side that the verdicts say"
    unknown = f"; of {silent} it says nothing" if silent else ""
    return f"by {label}, {line.direction} from {_value(seen, line.old)} to {_value(seen, line.new)}, {what}{unknown}"


def _value(seen: Judging, score: float) -> str:
    return seen.objective.text(seen.objective.value_of(score))


def _unmeasured(seen: Judging) -> str:
    """Why an end has no score."""
    for sha in (seen.old, seen.new):
        settled = seen.settlement(sha)
        if not isinstance(settled, Measured):
            return settled.why
    return "an end has no value"
