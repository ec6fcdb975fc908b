"""What is to be known of a bisection beside its table, as facts: one list for terminals, reports and letters.

Below a table in a terminal stand all of them (:func:`footer`): circumstances first, the answer last, where the eye is
when the output has scrolled by. A report has each group in a section of its own (:mod:`bisector.report.sections`).
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from bisector.analysis.verdicts import in_era
from bisector.core import units
from bisector.core.objective import WORST
from bisector.core.printable import clean
from bisector.core.subject import Commit, Kernel, Kind
from bisector.core.verdict import State, Verdict
from bisector.report.blocks import Fact, FactList, Role, verdict_role
from bisector.report.figures import EARLY, baseline_facts, early_note, filling_note, tail_note, words
from bisector.status.view import BisectionView

_LABEL_WIDTH = 12
_LISTED = 8
_WORTH_SAYING = 0.01  # of a probability, that nothing changed: with more of it no commit is named


def footer(view: BisectionView) -> tuple[FactList, FactList]:
    """Circumstances first, the answer last."""
    return FactList(tuple(circumstances(view)), _LABEL_WIDTH), answer(view)


def quoted(commit: Commit) -> str:
    """A commit as kernel people cite it."""
    return f'{commit.short} ("{clean(commit.subject)}")'


def some(*texts: str | None) -> tuple[str, ...]:
    """The texts that say something."""
    return tuple(filter(None, texts))


def circumstances(view: BisectionView) -> Iterator[Fact]:
    """How it was judged, what it cost, and on what."""
    yield from range_facts(view)
    yield from figure_facts(view)
    yield Fact("baselines", tuple(f"{name} {text}" for name, text in baseline_facts(view.baselines, view.objective)))
    yield from evidence_facts(view)
    yield from kernel_facts(view)
    for sentence, options in config_facts(view):
        yield Fact("config", some(sentence, "; ".join(options)) if options else (), Role.WEAK)
    yield Fact("host", (" ".join(dict.fromkeys(one.trial.host for one in view.trials if one.trial.host)),))
    yield Fact("clock", some(view.clock.warning if view.clock is not None else ""), Role.WEAK)
    yield Fact("origin", some(origin_text(view)), Role.WEAK)
    yield Fact("infra errors", tuple(f"{fault.host}: {fault.message}" for fault in view.infra_faults), Role.WEAK)
    if view.budget is not None:
        spent, given = (units.duration(seconds) for seconds in (view.budget.spent_s, view.budget.budget_s))
        yield Fact("budget", (f"{spent} of {given} spent",))
    yield Fact("record", (view.run_dir,))


def range_facts(view: BisectionView, revs: tuple[str, str] = ("", "")) -> Iterator[Fact]:
    """Both ends, with the ``revs`` by which people asked for them, and how many commits of the range matter."""
    ends = zip((view.terms.old, view.terms.new), (view.old, view.new), revs, strict=True)
    for word, commit, rev in ends:  # of an import nobody may have said anything of its kernels
        named = "" if commit.sha.startswith(rev) else f"{rev}, "
        yield Fact(f"{word} end", some(named + quoted(commit) if commit.sha else ""))
    yield Fact("size", some(view.relevance.sentence if view.relevance else None))


def figure_facts(view: BisectionView, *, each_job: bool = False) -> Iterator[Fact]:
    """What the figures are, what is special of some of them, the line between the sides, and how many trials."""
    figure, first, last = words(view.objective)
    what = f"{view.objective.label}, of each run"
    if view.objective.over == WORST:
        jobs = f"of each job, the {first} first" if each_job else f"of the {first} and of the {last} job of each run"
        what = f"{figure} {jobs if view.objective.is_of_jobs else 'of each run'}"
    early = early_note(view.trials)
    yield Fact("figures", some(
        what if any(trial.trial.runs for trial in view.trials) else "",
        tail_note(view),
        f"{EARLY} {early}: not to be compared with a full run" if early else "",
        filling_note(view.trials),
    ))  # fmt: skip
    origin = f", {view.threshold_origin}" if view.threshold_origin else ""
    if view.threshold is None:
        unknown = "" if view.state is State.MEASURED else "not known: it takes both ends, measured and different"
        yield Fact("threshold", some(unknown))
    elif len(view.host_thresholds) > 1:
        lines = (f"{in_era(one.host, one.era or '')}: {view.objective.text(one.threshold)}"
                 for one in view.host_thresholds)  # fmt: skip
        yield Fact("threshold", ("; ".join(lines) + origin,))
    else:
        yield Fact("threshold", (view.objective.text(view.threshold) + origin,))
    yield Fact("evaluations", (evaluations(view),))


def evaluations(view: BisectionView) -> str:
    """How many trials there are, what became of them, and what they took."""
    counts = (
        (view.skipped, "skipped"),
        (view.weak, "too weak to count"),
        (view.reused, "not measured because the kernel was the same"),
        (view.taken_over, "taken over from another run"),
    )
    what = (f"{count} {said}" for count, said in counts if count)
    took = [units.duration(view.trials_s)] if view.trials else []
    return ", ".join((units.plural(len(view.trials), "trial"), *what, *took))


def evidence_facts(view: BisectionView) -> Iterator[Fact]:
    """What the verdicts rest on: how sure all readings together are, what confirms the answer, and what is in doubt."""
    yield Fact("seen again", some(view.seen_again), Role.WEAK)
    if view.other_steps:
        yield Fact("levels", (", ".join(_levels(view)),), Role.WEAK)
    yield from _search(view)
    if answered := sum(control.answered for control in view.controls):
        times = "once" if answered == 1 else f"{answered} times"
        yield Fact("controls", (f"an end was tried again {times} after faults, and worked",))
    failed = (f"{one.sha[:12]} failed at stage {one.stage}: {one.failed}" for one in view.controls if one.failed)
    yield Fact("doubts", tuple(failed), Role.WEAK)


def _levels(view: BisectionView) -> Iterator[str]:
    for level in view.levels:
        values = view.objective.range_text(*map(view.objective.score, (level.low, level.high)))
        yield f"{values} ({units.plural(level.trials, 'trial')})"


def _search(view: BisectionView) -> Iterator[Fact]:
    if (belief := view.belief) is None:
        alone = "" if view.first_fixed is None else "verdicts are those of single measurements, without a probability"
        yield Fact("search", some(alone))
        return
    held = units.plural(len(belief.likely), "commit")
    more = f", about {units.plural(belief.trials_left, 'more trial')}" if view.state is State.RUNNING else ""
    contradictions = units.plural(belief.contradictions, "contradiction")
    texts = [
        f"{belief.best.commit.short} {units.share(belief.best.probability)}, 99 % in {held}{more}",
        f"{contradictions} ({belief.expected_contradictions:.1f} expected)",
        *_confirmed(view),
    ]
    if belief.nothing >= _WORTH_SAYING:
        texts.append(f"nothing in the range changed: {units.share(belief.nothing)}")
    if belief.suspects:
        other = belief.without_suspects
        same = "" if other.commit == belief.best.commit else f"{other.commit.short} "
        texts.append(f"without suspecting {' '.join(belief.suspects)}: {same}{units.share(other.probability)}")
    yield Fact("search", ("; ".join(texts),))
    if belief.effect is not None:
        yield Fact("effect", (f"{belief.effect.text(view.objective)}: {belief.effect.raw(view.objective)}",))


def _confirmed(view: BisectionView) -> Iterator[str]:
    """By which ends that were changed by the likeliest commit it was confirmed, and how often."""
    if view.belief is None:
        return
    for kind, end, word, verdict, again in (
        (Kind.REVERTED, "NEW with it reverted", view.terms.old, Verdict.OLD, " again"),
        (Kind.PICKED, "OLD with it added", view.terms.new, Verdict.NEW, ""),
    ):
        if kind in view.belief.confirmed:
            count = [one.verdict for one in view.trials if one.is_of(kind, view.belief.best.commit)]
            yield f"{end} is {word}{again} ({count.count(verdict)} of {len(count)})"
    if view.first_fixed is not None and not view.belief.confirmed:
        yield "not confirmed by reverting or adding it"


def counted(counts: Counter[str], what: str, whole: int) -> tuple[str, ...]:
    """Each item once, with its number where not all have it."""
    return tuple(item if n == whole else f"{item} ({n} of {whole} {what})" for item, n in counts.items())


def kernel_facts(view: BisectionView) -> Iterator[Fact]:
    """What kernels lack, what made them, and what was done for old trees."""
    kernels = [shown.trial.kernel for shown in view.trials if shown.trial.kernel is not None]

    def of_each(label: str, of: Callable[[Kernel], Iterable[str]]) -> Fact:
        counts = Counter(item for kernel in kernels for item in dict.fromkeys(of(kernel)))
        return Fact(label, counted(counts, "kernels", len(kernels)))

    yield of_each("not obtained", lambda kernel: kernel.unmet)
    yield of_each("compiler", lambda kernel: (kernel.toolchain,))
    yield of_each("quirks", lambda kernel: kernel.quirks)


def config_facts(view: BisectionView) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A sentence for each parent, and the options that differ; a default that changed is a frequent culprit."""
    for changes in view.config_changes:
        parent, count = changes.parent.short, units.plural(len(changes.options), "option")
        same = f"The effective .config is the same as that of the parent {parent}."
        differs = f"The effective .config differs from that of the parent {parent} in {count}:"
        options = tuple(f"{one.option}: {one.parent} -> {one.child}" for one in changes.options)
        yield differs if options else same, options


def origin_text(view: BisectionView) -> str:
    """What nobody knows of the facts of others is said, because the rest reads like facts that bisector measured."""
    tools = dict.fromkeys(trial.trial.origin.tool for trial in view.trials if trial.trial.origin is not None)
    by = f"Imported: others measured this, with {', '.join(filter(None, tools)) or 'fio'}."
    unknown = " What their kernels were built from, and what else their hosts did meanwhile, is not known."
    return by + unknown if tools else ""


# The answer


def answer(view: BisectionView) -> FactList:
    """The outcome, the command that goes on from it, and another change beside it."""
    return FactList(tuple(_answer(view)), _LABEL_WIDTH)


def _answer(view: BisectionView) -> Iterator[Fact]:
    if view.state is State.FOUND and view.first_fixed is not None:
        sure = f", {units.share(view.belief.best.probability)}" if view.belief is not None else ""
        said = f"{view.first_fixed.short} is the first {view.terms.new} commit{sure}"
        yield Fact("answer", (said,), verdict_role(Verdict.NEW, view.direction))
        yield Fact("", (view.first_fixed.subject,), Role.STRONG)
        yield Fact("", (view.first_fixed.committed_at[:10],), Role.DIM)
    elif view.state is State.NARROWED:
        yield from _narrowed(view)
    elif view.state in (State.FAILED, State.IMPORTED, State.MEASURED):
        yield Fact(view.state.value, (view.message,), Role.WORSE if view.state is State.FAILED else Role.PLAIN)
    else:
        left_over = f"{units.plural(len(view.candidates), 'candidate')} left" if view.candidates else ""
        yield Fact(view.state.value, (left_over or "no verdict on the range yet",), Role.STRONG)
        yield Fact("", some(view.message))
    if (clock := view.host_clock) is not None:
        yield Fact("both clocks", (clock.sentence,), command=(view.resume_command or "") if clock.waits else "")
    yield Fact("next", command=_next(view))
    if view.next_step_command:
        at = view.objective.text(view.other_steps[0])
        text = f"the readings lie on {len(view.levels)} levels; another commit brought them above, or below, {at}:"
        yield Fact("another step", (text,), Role.WEAK, command=view.next_step_command)


def _narrowed(view: BisectionView) -> Iterator[Fact]:
    if view.is_no_change:
        yield Fact("answer", (view.message,), Role.WEAK)
        return
    yield Fact("answer", (f"{one_of(view)}:",), Role.WEAK)
    yield Fact("", first_ones(candidate_lines(view), _LISTED))
    yield Fact(
        "in the way", first_ones((f"skipped {quoted(one)}" for one in view.skips_in_the_way), _LISTED), Role.SKIP
    )
    if view.budget is not None and view.budget.is_over:
        yield Fact("out of time", (view.budget.why_over,))


def one_of(view: BisectionView) -> str:
    """What a narrowed bisection says of its candidates."""
    count = units.plural(len(view.candidates), "commit")
    if view.belief is not None and not view.belief.one_change:
        return f"not one change; if there were one, the first {view.terms.new} commit would be one of {count}"
    return f"the first {view.terms.new} commit is one of {count}"


def candidate_lines(view: BisectionView) -> Iterator[str]:
    """What the first new commit can still be, with the probability of each where there is one."""
    odds = {one.commit.sha: f"{units.share(one.probability)}  " for one in view.belief.likely} if view.belief else {}
    yield from (odds.get(commit.sha, "") + quoted(commit) for commit in view.candidates)


def first_ones(texts: Iterable[str], count: int) -> tuple[str, ...]:
    """So many of the texts, and how many more there are."""
    whole: Sequence[str] = tuple(texts)
    return (*whole[:count], *([f"and {len(whole) - count} more"] if len(whole) > count else []))


def _next(view: BisectionView) -> str:
    """What to type next; empty where nothing is left to do."""
    show = ("git", "-C", view.repository or ".", "show")
    is_over = view.budget is not None and view.budget.is_over
    if view.state is State.FOUND and view.first_fixed is not None:
        return shlex.join((*show, view.first_fixed.short))
    if view.state is State.NARROWED and view.candidates and not is_over:
        return shlex.join((*show, "--stat", *(commit.short for commit in view.candidates[:_LISTED])))
    goes_on = view.state in (State.STOPPED, State.FAILED) or (view.state is State.NARROWED and is_over)
    return view.resume_command or "" if goes_on else ""
