"""Both ends, which are measured first, and again until it is known that and how far they are apart; pure.

The new end on each disk of the stack alone comes last: what the figures of a cache lie between.
"""

import hashlib
from collections.abc import Iterable
from statistics import fmean

from bisector.analysis.judgement import Again, Numbered, SoundMeasurement, Untestable
from bisector.analysis.short_fill import is_tried, why_never
from bisector.analysis.threshold import are_far_apart
from bisector.analysis.verdicts import Judging
from bisector.bisect import builds
from bisector.bisect.state import Aim, BisectState
from bisector.bisect.trials import ends_in_time, measure, once
from bisector.campaign.instructions import Attempt, Notify, Record, Submit, Wait
from bisector.config import Settings
from bisector.core.errors import BisectorError, EndsDoNotReproduce, InfraError
from bisector.core.events import Note, Planned
from bisector.core.subject import Cell, Commit, Setup, Subject
from bisector.core.trial import Fill, Trial
from bisector.core.units import percent_text, share
from bisector.core.verdict import Verdict
from bisector.executor.base import Finished
from bisector.report.figures import baseline_text, setup_name
from bisector.search.choice import end_to_read
from bisector.search.difference import difference, pairs_to_tell
from bisector.search.step import figures_tell
from bisector.storage.filling import FillMode
from bisector.store.facts import Ended, Ending, NumberedTrial
from bisector.trial.runner import TrialRequest

# Two are compared; where each build makes another kernel, and none is kept, no two can be.
_MOST_WITH_ONE_SEED = 3


def measure_both(facts: BisectState) -> Submit | Wait | Notify | None:
    """A trial of an end that is to be read (again), or what comes before it; then the line between them is told.

    Raises :class:`EndsDoNotReproduce` when there is nothing to bisect, :class:`InfraError` for an end that could not be
    measured, :class:`bisector.core.errors.UserError` when the first that was has no value that can decide.
    """
    judging = facts.judging
    # First what no other host is at: its kernel can be had from there when it is needed here.
    ends = sorted(
        zip(facts.scope.ends, facts.words, strict=True),
        key=lambda end: (facts.is_being_built(end[0].sha), facts.is_in_flight(end[0].sha)),
    )
    for commit, word in ends:
        if (judgement := judging.judge(commit.sha)) is not None:
            if judgement.verdict is Verdict.SKIP:
                raise _no_end(facts, commit, word, judgement.why)
        elif not facts.is_in_flight(commit.sha, facts.host):
            judging.check_metric(commit.sha)
            return builds.before_end(facts, commit) or measure(facts, Subject(commit), f"the {word} end")
    if any(judging.judge(commit.sha) is None for commit in facts.scope.ends):
        return Wait()
    old, new = (judging.scores.get(end.sha, ()) for end in facts.scope.ends)
    # Noise by the host's clock might make as much of one kernel.
    lie_close = not (old and new) or not are_far_apart(fmean(old), fmean(new))
    if (facts.scope.search_range is None or lie_close) and (again := the_same_again(facts)) is not None:
        return again
    for seen in judging.same_again[:1]:
        if (tell := once(facts, f"exact on {facts.home}", seen.sentence)) is not None:
            return tell
    line = judging.threshold()
    if line is None:
        return _read_again(facts)
    told = line.sentence(judging.objective)
    return once(facts, f"threshold on {facts.home}", f"{facts.host}: {told}" if facts.is_shared else told)


def _no_end(facts: BisectState, commit: Commit, word: str, why: str) -> BisectorError:
    """Why an end cannot be judged; after a reason of the host the next process measures the end anew."""
    if commit.sha in facts.judging.given_up:
        return InfraError(f"the {word} end {commit.short} could not be measured: {why}", "bisector doctor")
    return EndsDoNotReproduce(
        f"the {word} end {commit.short} cannot be judged: {why}",
        "choose an end that builds, boots and survives the workload",
    )


def check_measurable(facts: BisectState, end: Commit, name: str) -> None:
    """Raise :class:`InfraError` for an end of which no further reading can be had."""
    if isinstance(since := facts.judging.since(end.sha), Untestable):
        raise InfraError(f"{name} could not be measured again: {since.why}", "bisector doctor")


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
    check_measurable(facts, old, f"the old end {old.short}")
    return measure(facts, Subject(old), "the same once more: is counted time exact here?")


def _read_again(facts: BisectState) -> Submit | Wait:
    """A trial of the end that was read less often, since what was read does not tell the ends apart yet.

    Which one of a pair comes first is drawn by lot, so that nothing which goes with the order is taken for an effect;
    from the commits, so that the next process draws the same. While a reading of each is under way that may tell,
    another guest measures what the search would begin with.
    """
    judging, least_effect = facts.judging, facts.scope.settings.bisect.least_effect
    read = {end.sha: len(judging.scores.get(end.sha, ())) for end in facts.scope.ends}
    begun = {sha: count + facts.is_in_flight(sha, facts.host) for sha, count in read.items()}
    pair = min(begun.values()) + 1
    drawn = hashlib.sha256(f"{judging.old} {judging.new} {pair}".encode()).digest()[0] % 2
    ends = tuple(zip(facts.scope.ends, facts.words, strict=True))[:: -1 if drawn else 1]
    commit, word = min(ends, key=lambda end: begun[end[0].sha])
    if begun[commit.sha] > max(min(read.values()), 1):
        chosen = None if facts.scope.search_range is None else next(iter(facts.standing.choices(1)), None)
        if chosen is None or judging.judge(chosen) is not None or facts.is_in_flight(chosen):
            return Wait()
        return measure(facts, Subject(facts.commit(chosen)), "while the ends are read again", whole=True)
    check_measurable(facts, commit, f"the {word} end {commit.short}")
    seen = difference([(is_new, judging.score(trial)) for is_new, trial in judging.ends_in_turn])
    needed = None if seen is None else pairs_to_tell(seen.spread, least_effect)
    expected = "" if needed is None else f"; {needed} pairs tell a change of {percent_text(least_effect)}"
    purpose = f"the {word} end, {read[commit.sha] + 1}, since the ends lie close{expected}"
    return measure(facts, Subject(commit), purpose)


def repeat(facts: BisectState) -> Submit | None:
    """A trial of the ends in turn, until each has as many sound readings as asked for, or can have no more.

    Then one of an end whose level has to be known better before the search, if there is time for it; none by git, which
    believes each verdict.
    """
    asked = facts.scope.settings.bisect.calibrate
    ends = [
        (side, commit, word)
        for side, commit, word in zip((Verdict.OLD, Verdict.NEW), facts.scope.ends, facts.words, strict=True)
        if not isinstance(facts.judging.since(commit.sha), Untestable)
    ]
    for number in range(2, asked + 1):
        for _, commit, word in ends:
            if len(facts.judging.sound(commit.sha)) < number:
                return measure(facts, Subject(commit), f"the {word} end, {number} of {asked}")
    if facts.scope.search_range is None:
        return None
    standing = facts.standing
    side = end_to_read(standing.case.problem.graph, standing.case.facts, standing.belief)
    for commit, word in ((commit, word) for one, commit, word in ends if one is side):
        purpose = f"the {word} end once more, as {share(standing.belief.overlap)} of the figures may mislead"
        trial = measure(facts, Subject(commit), purpose)
        return trial if ends_in_time(facts, trial) else None
    return None


# Both ends with a short fill, too, before any other commit has one


_TOLD = "short fill"


def both_ways(facts: BisectState) -> Submit | Notify | None:
    """A trial of an end with a short fill; then it is told once what came of that."""
    settings = facts.scope.settings
    told, where = (f"{_TOLD} on {facts.host}", f"{facts.host}: ") if facts.is_shared else (_TOLD, "")
    if why := why_never(settings):
        is_asked_for = settings.storage.fill is FillMode.SHORT
        return once(facts, _TOLD, f"caches are filled by whole runs: {why}") if is_asked_for else None
    known, begun = facts.judging.short_fill, any(trial.fill is Fill.SHORT for _, trial in facts.judging.trials)
    if known.missing and (begun or _is_tried(facts)):
        number = [end.sha for end in facts.scope.ends].index(known.missing)
        purpose = f"the {facts.words[number]} end, its cache filled until it is settled"
        trial = measure(facts, Subject(facts.scope.ends[number]), purpose, fill=Fill.SHORT)
        if ends_in_time(facts, trial):
            return trial
    changes_neither = "caches are filled until they are settled, which changes neither end"
    said = changes_neither if known.harmless else f"caches are filled by whole runs: {known.why}"
    return once(facts, told, where + said) if begun else None


def _is_tried(facts: BisectState) -> bool:
    """By what whole trials took so far; not while levels overlap, so that no run is to be stopped early."""
    commits: float | None = None
    if facts.scope.search_range is not None:
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


# The new end on each disk of the stack alone, measured once. These are facts of this host and its disks. Nothing is
# concluded from them, so what cannot be measured is said and stops nothing, unless they are all that is asked for.


def missing_baselines(settings: Settings, baselines: Iterable[Numbered]) -> tuple[str, ...]:
    """The disks of the stack that are not measured yet, in the order of measuring."""
    known = {trial.setup for _, trial in baselines}
    return tuple(disk for disk in settings.storage.stack.baselines if settings.alone(disk) not in known)


def measure_baselines(facts: BisectState) -> Submit | Notify | None:
    """A whole run on a disk that is missing, again while the evidence is weak; None when there is none to be had.

    Raises :class:`InfraError` for a disk that cannot be measured, where the disks are all that is asked for.
    """
    for disk in missing_baselines(facts.scope.settings, facts.recorded.baselines):
        setup = facts.scope.settings.alone(disk)
        task = f"baseline {setup}"
        if task in facts.transient.notified:
            continue
        attempts = facts.transient.tasks.get(task, ())
        match _baseline_settlement(facts, attempts):
            case Again(why=why):
                # What is tried in vain is not recorded, so the number is that of the one that will be.
                commit, n = facts.scope.wanted.new, facts.recorded.next_n
                again = f", again: {why}" if attempts else ""
                planned = Planned(n, commit, f"the {setup_name(setup)}{again}", 0, 0)
                cell, compilers = Cell(Subject(commit), setup), facts.recorded.compilers
                request = TrialRequest(n, cell, {}, compilers, again=bool(attempts))
                return baseline_in_time(facts, setup, Submit(request, task, tell=(planned,)))
            case Untestable(why=why):
                message = f"the {setup_name(setup)} could not be measured: {why}"
                return baseline_given_up(facts, setup, InfraError(message, "bisector baselines tries it again"))
            case SoundMeasurement():
                raise RuntimeError(f"the baseline {setup} is measured and not on record")
    return None


def baseline_recorded(facts: BisectState, attempts: tuple[Attempt, ...], request: TrialRequest, trial: Trial) -> Record:
    """A baseline, for the record, which takes sound ones only."""
    last = attempts[-1]
    ended = Ended(last.id, Ending.DONE)
    if not isinstance(_baseline_settlement(facts, attempts), SoundMeasurement):
        return Record((ended,), last)
    note = Note(f"{setup_name(trial.setup)}: {baseline_text([trial], facts.judging.objective)}")
    return Record((NumberedTrial(request.n, trial), ended), last, over=True, tell=(note,))


def baseline_given_up(facts: BisectState, setup: Setup, error: BisectorError) -> Notify:
    """Go on without a baseline; raises ``error`` where baselines are all that is asked for."""
    if facts.scope.aim is Aim.BASELINES:
        raise error
    return Notify((Note(f"no baseline: {error}"),), (f"baseline {setup}",))


def baseline_in_time(facts: BisectState, setup: Setup, submit: Submit) -> Submit | Notify:
    """An attempt at a baseline; where it would end after the budget, only that is told, which costs no answer."""
    if ends_in_time(facts, submit):
        return submit
    note = Note(f"the {setup_name(setup)} would end after the budget: bisector baselines measures it")
    return Notify((note,), (f"baseline {setup}",))


def _baseline_settlement(facts: BisectState, attempts: Iterable[Attempt]) -> SoundMeasurement | Untestable | Again:
    news = (one.news for one in attempts)
    trials = [one.result for one in news if isinstance(one, Finished) and isinstance(one.result, Trial)]
    return Judging(facts.scope.settings, tuple(enumerate(trials, 1))).settlement(facts.scope.wanted.new.sha)
