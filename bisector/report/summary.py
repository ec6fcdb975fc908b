"""What is to be known of a run beside its table, as facts: a label, and what is said under it.

Below the table facts are lines (:func:`footer_lines`): circumstances first, the answer last, where the eye is when the
output has scrolled by. A report has those of configuration, kernels and origin in sections of their own
(:mod:`bisector.report.sections`).
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bisector.analysis.verdicts import in_era
from bisector.core import units
from bisector.core.objective import WORST
from bisector.core.printable import clean
from bisector.core.subject import Commit, Kernel, Kind
from bisector.core.verdict import State, Verdict
from bisector.report.figures import EARLY, baseline_facts, early_note, tail_note, words
from bisector.report.terminal import Line, Role, Span, cells, left, shorten, verdict_role, wrapped
from bisector.status.view import BisectionView

_LABEL_WIDTH = 13
_LISTED = 8
_WORTH_SAYING = 0.01  # of a probability, that nothing changed: with more of it no commit is named


@dataclass(frozen=True, slots=True)
class Fact:
    """A label, and below each other what is said under it: prose, which is filled, or ``items`` on a line each.

    A ``command`` stands below them, never shortened: it is there to be copied.
    """

    label: str
    texts: tuple[str, ...] = ()
    role: Role = Role.PLAIN
    items: bool = False
    command: str = ""

    def lines(self, width: int) -> Iterator[Line]:
        """The fact in lines of at most ``width`` cells; of many items the first ones."""
        room = width - _LABEL_WIDTH
        rows = [line for text in self.texts for line in wrapped(clean(text).split(), room)]
        if self.items:
            more = [f"and {len(self.texts) - _LISTED} more"] if len(self.texts) > _LISTED else []
            rows = [shorten(text, room) for text in (*self.texts[:_LISTED], *more)]
        spans = [*(Span(row, self.role) for row in rows), *([Span(self.command, Role.COMMAND)] if self.command else [])]
        for n, span in enumerate(spans):
            yield (Span(left("" if n else self.label, _LABEL_WIDTH), Role.HEAD), span)


def footer_lines(view: BisectionView, width: int) -> list[Line]:
    """Circumstances first, the answer last."""
    return [*_lines(circumstances(view), width), (), *answer_lines(view, width)]


def answer_lines(view: BisectionView, width: int) -> list[Line]:
    """The outcome alone: the commit, or the set and what stands in the way, and what to type next."""
    return _lines(answer(view), width)


def _lines(facts: Iterable[Fact], width: int) -> list[Line]:
    return [line for fact in facts for line in fact.lines(width)]


# What several forms say


def quoted(commit: Commit) -> str:
    """A commit as kernel people cite it."""
    return f'{commit.short} ("{clean(commit.subject)}")'


def candidate_lines(view: BisectionView) -> Iterator[str]:
    """What the first new commit can still be, with the probability of each where there is one."""
    odds = {one.commit.sha: f"{units.share(one.probability)}  " for one in view.belief.likely} if view.belief else {}
    yield from (odds.get(commit.sha, "") + quoted(commit) for commit in view.candidates)


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


def confirmed(view: BisectionView, name: str) -> list[str]:
    """What the changed ends measured that confirm the likeliest commit, which is called ``name``; and how often."""
    return [
        f"{end} is {word}{again} ({count.count(verdict)} of {len(count)})"
        for kind, end, word, verdict, again in (
            (Kind.REVERTED, f"NEW with {name} reverted", view.terms.old, Verdict.OLD, " again"),
            (Kind.PICKED, f"OLD with {name} added", view.terms.new, Verdict.NEW, ""),
        )
        if view.belief is not None and kind in view.belief.confirmed
        for count in [[one.verdict for one in view.trials if one.is_of(kind, view.belief.best.commit)]]
    ]


def counted(counts: Counter[str], what: str, whole: int) -> tuple[str, ...]:
    """Each item once, with its number where not all have it."""
    return tuple(item if n == whole else f"{item} ({n} of {whole} {what})" for item, n in counts.items())


def kernel_facts(view: BisectionView) -> Iterator[Fact]:
    """What kernels lack, what made them, and what was done for old trees."""
    kernels = [shown.trial.kernel for shown in view.trials if shown.trial.kernel is not None]

    def of_each(label: str, of: Callable[[Kernel], Iterable[str]]) -> Fact:
        counts = Counter(item for kernel in kernels for item in dict.fromkeys(of(kernel)))
        return Fact(label, counted(counts, "kernels", len(kernels)), items=True)

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


# What is below the table


def circumstances(view: BisectionView) -> Iterator[Fact]:
    """How it was judged, what it cost, and on what."""
    yield from (_range(view), _figures(view), _threshold(view))
    yield Fact("seen again", _some(view.seen_again), Role.WEAK)
    yield Fact("baselines", tuple(f"{name} {text}" for name, text in baseline_facts(view.baselines, view.objective)))
    if view.other_steps:
        yield Fact("levels", (", ".join(_levels(view)),), Role.WEAK)
    yield Fact("evaluations", (evaluations(view),))
    yield from _search(view)
    yield from kernel_facts(view)
    for sentence, options in config_facts(view):
        yield Fact("config", (sentence, "; ".join(options)) if options else (), Role.WEAK)
    yield Fact("host", (" ".join(dict.fromkeys(one.trial.host for one in view.trials if one.trial.host)),))
    yield Fact("clock", _some(view.clock.warning if view.clock is not None else ""), Role.WEAK)
    yield Fact("origin", _some(origin_text(view)), Role.WEAK)
    faults = tuple(f"{fault.host}: {fault.message}" for fault in view.infra_faults)
    yield Fact("infra errors", faults, Role.WEAK, items=True)
    yield from _controls(view)
    if view.budget is not None:
        spent, given = (units.duration(seconds) for seconds in (view.budget.spent_s, view.budget.budget_s))
        yield Fact("budget", (f"{spent} of {given} spent",))
    yield Fact("record", (view.run_dir,), items=True)


def _some(text: str | None) -> tuple[str, ...]:
    return (text,) if text else ()


def _range(view: BisectionView) -> Fact:
    if not (view.old.sha or view.new.sha):  # an import whose people said nothing of its kernels
        return Fact("range")
    width = max(cells(clean(word)) for word in (view.terms.old, view.terms.new)) + 2
    ends = ((view.terms.old, view.old), (view.terms.new, view.new))
    texts = tuple(left(f"{word}:", width) + quoted(commit) for word, commit in ends)
    return Fact("range", (*texts, *_some(view.relevance.sentence if view.relevance else None)), items=True)


def _figures(view: BisectionView) -> Fact:
    figure, first, last = words(view.objective)
    jobs = f"of the {first} and of the {last} job " if view.objective.is_of_jobs else ""
    what = f"{figure} {jobs}of each run" if view.objective.over == WORST else f"{view.objective.label}, of each run"
    early = early_note(view.trials)
    said = (
        what if any(trial.trial.runs for trial in view.trials) else "",
        tail_note(view),
        f"{EARLY} {early}: not to be compared with a full run" if early else "",
    )
    return Fact("figures", tuple(filter(None, said)))


def _threshold(view: BisectionView) -> Fact:
    if view.threshold is None:
        unknown = "not known: it takes both ends, measured and different"
        return Fact("threshold", _some(unknown if view.state is not State.MEASURED else ""))
    lines = [view.objective.text(view.threshold)]
    if len(view.host_thresholds) > 1:
        of_hosts = ((in_era(one.host, one.era or ""), one.threshold) for one in view.host_thresholds)
        lines = [f"{host}: {view.objective.text(threshold)}" for host, threshold in of_hosts]
    return Fact("threshold", ("; ".join(lines) + (f", {view.threshold_origin}" if view.threshold_origin else ""),))


def _levels(view: BisectionView) -> Iterator[str]:
    for level in view.levels:
        values = view.objective.range_text(*map(view.objective.score, (level.low, level.high)))
        yield f"{values} ({units.plural(level.trials, 'trial')})"


def _search(view: BisectionView) -> Iterator[Fact]:
    """How sure all readings together are, and what that rests on."""
    if (belief := view.belief) is None:
        return
    held = units.plural(len(belief.likely), "commit")
    more = f", about {units.plural(belief.trials_left, 'more trial')}" if view.state is State.RUNNING else ""
    contradictions = units.plural(belief.contradictions, "contradiction")
    texts = [
        f"{belief.best.commit.short} {units.share(belief.best.probability)}, 99 % in {held}{more}",
        f"{contradictions} ({belief.expected_contradictions:.1f} expected)",
        *confirmed(view, "it"),
    ]
    if belief.nothing >= _WORTH_SAYING:
        texts.append(f"nothing in the range changed: {units.share(belief.nothing)}")
    if belief.suspects:
        other = belief.without_suspects
        same = "" if other.commit == belief.best.commit else f"{other.commit.short} "
        texts.append(f"without suspecting {' '.join(belief.suspects)}: {same}{units.share(other.probability)}")
    yield Fact("search", ("; ".join(texts),))
    yield Fact("effect", _some(belief.effect.text(view.objective) if belief.effect else None))


def _controls(view: BisectionView) -> Iterator[Fact]:
    """How often an end that was measured before was tried again because of faults, and how it fared."""
    if answered := sum(control.answered for control in view.controls):
        times = "once" if answered == 1 else f"{answered} times"
        yield Fact("controls", (f"an end was tried again {times} after faults, and worked",))
    failed = (f"{one.sha[:12]} failed at stage {one.stage}: {one.failed}" for one in view.controls if one.failed)
    yield Fact("doubts", tuple(failed), Role.WEAK, items=True)


# The answer


def answer(view: BisectionView) -> Iterator[Fact]:
    """The outcome, the command that goes on from it, and another change beside it."""
    yield from _ANSWERS[view.state](view)
    if (clock := view.host_clock) is not None:
        yield Fact("both clocks", (clock.sentence,), command=(view.resume_command or "") if clock.waits else "")
    yield Fact("next", command=_next(view))
    if view.next_step_command:
        at = view.objective.text(view.other_steps[0])
        text = f"the readings lie on {len(view.levels)} levels; another commit brought them above, or below, {at}:"
        yield Fact("another step", (text,), Role.WEAK, command=view.next_step_command)


def _found(view: BisectionView) -> Iterator[Fact]:
    if view.first_fixed is None:
        yield from _unfinished(view)
        return
    sure = f", {units.share(view.belief.best.probability)}" if view.belief is not None else ""
    said = f"{view.first_fixed.short} is the first {view.terms.new} commit{sure}"
    yield Fact("answer", (said,), verdict_role(Verdict.NEW, view.direction), items=True)
    yield Fact("", (view.first_fixed.subject,), Role.STRONG, items=True)
    yield Fact("", (view.first_fixed.committed_at[:10],), Role.DIM)


def _narrowed(view: BisectionView) -> Iterator[Fact]:
    if view.is_no_change:
        yield Fact("answer", (view.message,), Role.WEAK)
        return
    count = units.plural(len(view.candidates), "commit")
    title = f"the first {view.terms.new} commit is one of {count}:"
    if view.belief is not None and not view.belief.one_change:
        title = f"not one change; if there were one, the first {view.terms.new} commit would be one of {count}:"
    yield Fact("answer", (title,), Role.WEAK, items=True)
    yield Fact("", tuple(candidate_lines(view)), items=True)
    skipped = tuple(f"skipped {quoted(one)}" for one in view.skips_in_the_way)
    yield Fact("in the way", skipped, Role.SKIP, items=True)
    if view.budget is not None and view.budget.is_over:
        yield Fact("out of time", (view.budget.why_over,))


def _unfinished(view: BisectionView) -> Iterator[Fact]:
    left_over = f"{units.plural(len(view.candidates), 'candidate')} left" if view.candidates else ""
    yield Fact(view.state.value, (left_over or "no verdict on the range yet",), Role.STRONG)
    yield Fact("", _some(view.message))


def _in_words(view: BisectionView) -> Iterator[Fact]:
    yield Fact(view.state.value, (view.message,), Role.WORSE if view.state is State.FAILED else Role.PLAIN)


_ANSWERS: dict[State, Callable[[BisectionView], Iterator[Fact]]] = {
    State.FOUND: _found,
    State.NARROWED: _narrowed,
    State.RUNNING: _unfinished,
    State.STOPPED: _unfinished,
    State.FAILED: _in_words,
    State.IMPORTED: _in_words,
    State.MEASURED: _in_words,
}


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
