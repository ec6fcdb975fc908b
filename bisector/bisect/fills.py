"""Both ends with a short fill, too, before any other commit has one; pure.

That takes two trials more. They are made where so many trials are to be expected that what these can save is more.
"""

from statistics import fmean

from bisector.analysis.short_fill import is_tried, why_never
from bisector.bisect.budget import ends_in_time
from bisector.bisect.facts import Facts
from bisector.bisect.instructions import Outlook, Submit, Tell
from bisector.bisect.submission import measure
from bisector.core.events import Note
from bisector.core.subject import Subject
from bisector.core.trial import Fill
from bisector.search.step import figures_tell
from bisector.storage.filling import FillMode

_TOLD = "short fill"


def both_ways(facts: Facts) -> Submit | Tell | None:
    """A trial of an end with a short fill; then it is told once what came of that."""
    settings = facts.task.settings
    told, where = (f"{_TOLD} on {facts.host}", f"{facts.host}: ") if facts.is_shared else (_TOLD, "")
    if why := why_never(settings):
        asked_for = settings.storage.fill is FillMode.SHORT and _TOLD not in facts.heard.told
        return Tell((Note(f"caches are filled by whole runs: {why}"),), (_TOLD,)) if asked_for else None
    known, begun = facts.judging.short_fill, any(trial.fill is Fill.SHORT for _, trial in facts.judging.trials)
    if known.missing and (begun or _is_tried(facts)):
        number = [end.sha for end in facts.task.ends].index(known.missing)
        purpose = f"the {facts.words[number]} end, its cache filled until it is settled"
        trial = measure(facts, Subject(facts.task.ends[number]), purpose, Outlook(), fill=Fill.SHORT)
        if ends_in_time(facts, trial):
            return trial
    if told in facts.heard.told or not begun:
        return None
    said = (
        "caches are filled until they are settled, which changes neither end"
        if known.harmless
        else f"caches are filled by whole runs: {known.why}"
    )
    return Tell((Note(where + said),), (told,))


def _is_tried(facts: Facts) -> bool:
    """By what whole trials took so far; not while levels overlap, so that no run is to be stopped early."""
    commits: float | None = None
    if facts.task.ground is not None:
        belief = facts.standing.belief
        if figures_tell(facts.standing.case.search.rules, belief):
            return False
        commits = 2**belief.unknown_bits
    elif facts.recorded.relevance is not None:
        commits = facts.recorded.relevance.can_matter
    seconds = [
        trial.timings.boot_s + trial.timings.storage_s + trial.timings.workload_s
        for trial, _ in facts.judging.sound()
        if trial.bears_answer
    ]
    return is_tried(facts.task.settings, commits, fmean(seconds), facts.recorded.left_s)
