"""Both ends, which are measured before anything else, and again until it is known that and how far they are apart."""

import hashlib
from statistics import fmean

from bisector.analysis.judgement import Untestable
from bisector.analysis.short_fill import is_tried, why_never
from bisector.analysis.threshold import are_far_apart
from bisector.analysis.verdicts import Judging
from bisector.bisect import builds
from bisector.bisect.state import BisectState
from bisector.bisect.trials import Outlook, ends_in_time, measure, once
from bisector.campaign.instructions import Notify, Submit, Wait
from bisector.core.errors import BisectorError, EndsDoNotReproduce, InfraError
from bisector.core.events import Note
from bisector.core.subject import Commit, Subject
from bisector.core.trial import Fill
from bisector.core.units import percent_text, share
from bisector.core.verdict import Verdict
from bisector.search.choice import end_to_read
from bisector.search.difference import difference, pairs_to_tell
from bisector.search.step import figures_tell
from bisector.storage.filling import FillMode

# Two are compared; where each build makes another kernel, and none is kept, no two can be.
_MOST_WITH_ONE_SEED = 3


def measure_both(facts: BisectState) -> Submit | Wait | Notify | None:
    """A trial of an end that is to be read (again), or what comes before it; then the line between them is told.

    Raises :class:`EndsDoNotReproduce` when there is nothing to bisect, :class:`InfraError` for an end that could not be
    measured, :class:`bisector.core.errors.UserError` when the first that was has no value that can decide.
    """
    if (first := _unread(facts)) is not None:
        return first
    judging = facts.judging
    if any(judging.judge(commit.sha) is None for commit in facts.scope.ends):
        return Wait()
    if (facts.scope.ground is None or _lie_close(judging)) and (again := the_same_again(facts)) is not None:
        return again
    for seen in judging.same_again[:1]:
        if (tell := once(facts, f"exact on {facts.home}", Note(seen.sentence))) is not None:
            return tell
    line = judging.threshold()
    if line is None:
        return _read_again(facts)
    told = line.sentence(judging.objective)
    return once(facts, f"threshold on {facts.home}", Note(f"{facts.host}: {told}" if facts.is_shared else told))


def _unread(facts: BisectState) -> Submit | Wait | None:
    """A trial of an end that is not judged yet, and that this host is not at, or what comes before it."""
    judging = facts.judging
    # First what no other host is at: its kernel can be had from there when it is needed here.
    ends = sorted(
        zip(facts.scope.ends, facts.words, strict=True),
        key=lambda end: (builds.is_awaited(facts, end[0].sha), facts.is_in_flight(end[0].sha)),
    )
    for commit, word in ends:
        if (judgement := judging.judge(commit.sha)) is not None:
            if judgement.verdict is Verdict.SKIP:
                raise _no_end(facts, commit, word, judgement.why)
        elif not facts.is_in_flight(commit.sha, facts.host):
            judging.check_metric(commit.sha)
            return builds.before_end(facts, commit) or measure(facts, Subject(commit), f"the {word} end", Outlook())
    return None


def _lie_close(judging: Judging) -> bool:
    """Whether noise by the host's clock might make as much of one kernel."""
    old, new = (judging.scores.get(sha, ()) for sha in (judging.old, judging.new))
    return not (old and new) or not are_far_apart(fmean(old), fmean(new))


def the_same_again(facts: BisectState) -> Submit | None:
    """The old end once more, with the same seed, where the guest's time is counted: whether that is exact.

    Where the ends lie close that is asked first, and else before an answer is given: until then it is taken for exact.
    Nobody waits for it: where it is not, what other guests have measured meanwhile counts as noisy.
    """
    judging, (old, _) = facts.judging, facts.scope.ends
    if not facts.scope.settings.machine.is_counted or judging.same_again or judging.judge(old.sha) is None:
        return None
    with_one_seed = sum(not trial.guest_seed for trial, _ in judging.sound(old.sha))
    if facts.is_in_flight(old.sha, facts.host) or with_one_seed >= _MOST_WITH_ONE_SEED:
        return None
    if isinstance(since := judging.since(old.sha), Untestable):
        raise InfraError(f"the old end {old.short} could not be measured again: {since.why}", "bisector doctor")
    return measure(facts, Subject(old), "the same once more: is counted time exact here?", Outlook())


def _read_again(facts: BisectState) -> Submit | Wait:
    """A trial of the end that was read less often, since what was read does not tell the ends apart yet.

    Which one of a pair comes first is drawn by lot, so that nothing which goes with the order is taken for an effect;
    from the commits, so that the next process draws the same. While a reading of each is under way that may tell,
    another guest measures what the search would begin with.
    """
    judging = facts.judging
    read = {end.sha: len(judging.scores.get(end.sha, ())) for end in facts.scope.ends}
    begun = {sha: count + facts.is_in_flight(sha, facts.host) for sha, count in read.items()}
    pair = min(begun.values()) + 1
    drawn = hashlib.sha256(f"{judging.old} {judging.new} {pair}".encode()).digest()[0] % 2
    ends = tuple(zip(facts.scope.ends, facts.words, strict=True))[:: -1 if drawn else 1]
    commit, word = min(ends, key=lambda end: begun[end[0].sha])
    if begun[commit.sha] > max(min(read.values()), 1):
        return _first_of_search(facts)
    if isinstance(since := judging.since(commit.sha), Untestable):
        raise InfraError(f"the {word} end {commit.short} could not be measured again: {since.why}", "bisector doctor")
    purpose = f"the {word} end, {read[commit.sha] + 1}, since the ends lie close{_expected_pairs(judging)}"
    return measure(facts, Subject(commit), purpose, Outlook())


def _expected_pairs(judging: Judging) -> str:
    """How many pairs to expect, by the spread so far, for a person."""
    seen = difference([(is_new, judging.score(trial)) for is_new, trial in judging.ends_in_turn])
    needed = None if seen is None else pairs_to_tell(seen.spread, judging.settings.bisect.least_effect)
    told = percent_text(judging.settings.bisect.least_effect)
    return "" if needed is None else f"; {needed} pairs tell a change of {told}"


def _first_of_search(facts: BisectState) -> Submit | Wait:
    if facts.scope.ground is None:
        return Wait()
    chosen = next(iter(facts.standing.choices(1)), None)
    if chosen is None or facts.judging.judge(chosen) is not None or facts.is_in_flight(chosen):
        return Wait()
    return measure(facts, Subject(facts.commit(chosen)), "while the ends are read again", Outlook(), whole=True)


def repeat(facts: BisectState) -> Submit | None:
    """A trial of the ends in turn, until each has as many sound readings as asked for, or can have no more."""
    asked = facts.scope.settings.bisect.calibrate
    for number in range(2, asked + 1):
        for commit, word in zip(facts.scope.ends, facts.words, strict=True):
            can_be = not isinstance(facts.judging.since(commit.sha), Untestable)
            if len(facts.judging.sound(commit.sha)) < number and can_be:
                return measure(facts, Subject(commit), f"the {word} end, {number} of {asked}", Outlook())
    return _repeat_as_needed(facts)


def _repeat_as_needed(facts: BisectState) -> Submit | None:
    """A trial of an end whose level has to be known better before the search, if there is time for it.

    None by git, which believes each verdict.
    """
    if facts.scope.ground is None:
        return None
    standing = facts.standing
    side = end_to_read(standing.case.problem.graph, standing.case.facts, standing.belief)
    sides = zip((Verdict.OLD, Verdict.NEW), facts.scope.ends, facts.words, strict=True)
    for commit, word in ((commit, word) for one, commit, word in sides if one is side):
        if not isinstance(facts.judging.since(commit.sha), Untestable):
            purpose = f"the {word} end once more, as {share(standing.belief.overlap)} of the figures may mislead"
            trial = measure(facts, Subject(commit), purpose, Outlook())
            return trial if ends_in_time(facts, trial) else None
    return None


def _no_end(facts: BisectState, commit: Commit, word: str, why: str) -> BisectorError:
    """Why an end cannot be judged: that of the host is no answer, and the next process measures it anew."""
    if commit.sha in facts.judging.given_up:
        return InfraError(f"the {word} end {commit.short} could not be measured: {why}", "bisector doctor")
    return EndsDoNotReproduce(
        f"the {word} end {commit.short} cannot be judged: {why}",
        "choose an end that builds, boots and survives the workload",
    )


# Both ends with a short fill, too, before any other commit has one


_TOLD = "short fill"


def both_ways(facts: BisectState) -> Submit | Notify | None:
    """A trial of an end with a short fill; then it is told once what came of that."""
    settings = facts.scope.settings
    told, where = (f"{_TOLD} on {facts.host}", f"{facts.host}: ") if facts.is_shared else (_TOLD, "")
    if why := why_never(settings):
        asked_for = settings.storage.fill is FillMode.SHORT and _TOLD not in facts.transient.notified
        return Notify((Note(f"caches are filled by whole runs: {why}"),), (_TOLD,)) if asked_for else None
    known, begun = facts.judging.short_fill, any(trial.fill is Fill.SHORT for _, trial in facts.judging.trials)
    if known.missing and (begun or _is_tried(facts)):
        number = [end.sha for end in facts.scope.ends].index(known.missing)
        purpose = f"the {facts.words[number]} end, its cache filled until it is settled"
        trial = measure(facts, Subject(facts.scope.ends[number]), purpose, Outlook(), fill=Fill.SHORT)
        if ends_in_time(facts, trial):
            return trial
    if told in facts.transient.notified or not begun:
        return None
    said = (
        "caches are filled until they are settled, which changes neither end"
        if known.harmless
        else f"caches are filled by whole runs: {known.why}"
    )
    return Notify((Note(where + said),), (told,))


def _is_tried(facts: BisectState) -> bool:
    """By what whole trials took so far; not while levels overlap, so that no run is to be stopped early."""
    commits: float | None = None
    if facts.scope.ground is not None:
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
    return is_tried(facts.scope.settings, commits, fmean(seconds), facts.recorded.left_s)
