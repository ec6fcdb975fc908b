"""The facts about a bisection beside its table: one list for terminals, reports and letters.

In a terminal all facts stand below the table (:func:`footer`): the circumstances first, and last the answer, which is
then what the reader sees. A report has each group in a section of its own (:mod:`bisector.report.sections`).
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
from bisector.report.blocks import Fact, FactList, Role, fact, verdict_role
from bisector.report.figures import EARLY, baseline_facts, early_note, filling_note, tail_note, words
from bisector.status.view import BisectionView

_LABEL_WIDTH = 12
_LISTED = 8
_WORTH_SAYING = 0.01  # the least probability of "nothing changed" that is told; above it no commit is named


def footer(view: BisectionView) -> tuple[FactList, FactList]:
    """The circumstances and the answer."""
    return FactList(tuple(_circumstances(view)), _LABEL_WIDTH), answer(view)


def quoted(commit: Commit) -> str:
    """A commit as kernel developers cite it."""
    return f'{commit.short} ("{clean(commit.subject)}")'


def _circumstances(view: BisectionView) -> Iterator[Fact]:
    """How the trials were judged, what they cost, and where they ran."""
    yield from range_facts(view)
    yield from figure_facts(view)
    yield fact("baselines", *(f"{name} {text}" for name, text in baseline_facts(view.baselines, view.objective)))
    yield from evidence_facts(view)
    yield from kernel_facts(view)
    for sentence, options in config_facts(view):
        yield fact("config", *((sentence, "; ".join(options)) if options else ()), role=Role.WEAK)
    yield fact("host", " ".join(dict.fromkeys(one.trial.host for one in view.trials if one.trial.host)))
    yield fact("clock", view.clock.warning if view.clock is not None else "", role=Role.WEAK)
    yield fact("origin", origin_text(view), role=Role.WEAK)
    yield fact("infra errors", *(f"{fault.host}: {fault.message}" for fault in view.infra_faults), role=Role.WEAK)
    if view.budget is not None:
        spent, given = (units.duration(seconds) for seconds in (view.budget.spent_s, view.budget.budget_s))
        yield fact("budget", f"{spent} of {given} spent")
    yield fact("record", view.run_dir)


def range_facts(view: BisectionView, revs: tuple[str, str] = ("", "")) -> Iterator[Fact]:
    """Both ends, with the ``revs`` by which people asked for them, and how many commits of the range matter."""
    ends = zip((view.terms.old, view.terms.new), (view.old, view.new), revs, strict=True)
    for word, commit, rev in ends:  # an import may have no verdicts, and then no ends
        named = "" if commit.sha.startswith(rev) else f"{rev}, "
        yield fact(f"{word} end", named + quoted(commit) if commit.sha else "")
    yield fact("size", view.relevance.sentence if view.relevance else "")


def figure_facts(view: BisectionView, *, each_job: bool = False) -> Iterator[Fact]:
    """What the values are, which of them are special, the threshold, and the number of trials."""
    objective, trials = view.objective, view.trials
    figure, first, last = words(objective)
    what = f"{objective.label}, of each run"
    if objective.over == WORST:
        jobs = f"of each job, the {first} first" if each_job else f"of the {first} and of the {last} job of each run"
        what = f"{figure} {jobs if objective.is_of_jobs else 'of each run'}"
    early = early_note(trials)
    yield fact(
        "figures",
        what if any(one.trial.runs for one in trials) else "",
        tail_note(view),
        f"{EARLY} {early}: not to be compared with a full run" if early else "",
        filling_note(trials),
    )
    line = "" if view.state is State.MEASURED else "not known: it takes both ends, measured and different"
    if view.threshold is not None:
        line = objective.text(view.threshold)
        if len(view.host_thresholds) > 1:
            of_hosts = ((in_era(one.host, one.era or ""), one.threshold) for one in view.host_thresholds)
            line = "; ".join(f"{host}: {objective.text(value)}" for host, value in of_hosts)
        line += f", {view.threshold_origin}" if view.threshold_origin else ""
    yield fact("threshold", line)
    counts = (
        (view.skipped, "skipped"),
        (view.weak, "too weak to count"),
        (view.reused, "not measured because the kernel was the same"),
        (sum(one.taken_from is not None for one in trials), "taken over from another run"),
    )
    became = (f"{count} {said}" for count, said in counts if count)
    took = [units.duration(sum(one.trial.timings.total_s for one in trials))] if trials else []
    yield fact("evaluations", ", ".join((units.plural(len(trials), "trial"), *became, *took)))


def evidence_facts(view: BisectionView) -> Iterator[Fact]:
    """What the verdicts rest on: the probability from all readings, what confirms the answer, and what is in doubt."""
    yield fact("seen again", view.seen_again, role=Role.WEAK)
    if view.other_steps:
        ranges = ((view.objective.range_text(*map(view.objective.score, (one.low, one.high))), one.trials)
                  for one in view.levels)  # fmt: skip
        said = ", ".join(f"{values} ({units.plural(count, 'trial')})" for values, count in ranges)
        yield fact("levels", said, role=Role.WEAK)
    yield from _search(view)
    if answered := sum(control.answered for control in view.controls):
        times = "once" if answered == 1 else f"{answered} times"
        yield fact("controls", f"an end was tried again {times} after faults, and worked")
    failed = (f"{one.sha[:12]} failed at stage {one.stage}: {one.failed}" for one in view.controls if one.failed)
    yield fact("doubts", *failed, role=Role.WEAK)


def _search(view: BisectionView) -> Iterator[Fact]:
    """The probability of the likeliest commit, and the changed ends that confirm it, with their counts."""
    if (belief := view.belief) is None:
        alone = "" if view.first_fixed is None else "verdicts are those of single measurements, without a probability"
        yield fact("search", alone)
        return
    held = units.plural(len(belief.likely), "commit")
    more = f", about {units.plural(belief.trials_left, 'more trial')}" if view.state is State.RUNNING else ""
    contradictions = units.plural(belief.contradictions, "contradiction")
    texts = [
        f"{belief.best.commit.short} {units.share(belief.best.probability)}, 99 % in {held}{more}",
        f"{contradictions} ({belief.expected_contradictions:.1f} expected)",
    ]
    for kind, end, word, verdict, again in (
        (Kind.REVERTED, "NEW with it reverted", view.terms.old, Verdict.OLD, " again"),
        (Kind.PICKED, "OLD with it added", view.terms.new, Verdict.NEW, ""),
    ):
        if kind in belief.confirmed:
            count = [one.verdict for one in view.trials if one.is_of(kind, belief.best.commit)]
            texts.append(f"{end} is {word}{again} ({count.count(verdict)} of {len(count)})")
    if view.first_fixed is not None and not belief.confirmed:
        texts.append("not confirmed by reverting or adding it")
    if belief.nothing >= _WORTH_SAYING:
        texts.append(f"nothing in the range changed: {units.share(belief.nothing)}")
    if belief.suspects:
        other = belief.without_suspects
        same = "" if other.commit == belief.best.commit else f"{other.commit.short} "
        texts.append(f"without suspecting {' '.join(belief.suspects)}: {same}{units.share(other.probability)}")
    yield fact("search", "; ".join(texts))
    if belief.effect is not None:
        yield fact("effect", f"{belief.effect.text(view.objective)}: {belief.effect.raw(view.objective)}")


def counted(counts: Counter[str], what: str, whole: int) -> tuple[str, ...]:
    """Each item once, with its count unless all ``whole`` have it."""
    return tuple(item if n == whole else f"{item} ({n} of {whole} {what})" for item, n in counts.items())


def kernel_facts(view: BisectionView) -> Iterator[Fact]:
    """What kernels lack, their compilers, and the quirks that were applied to old trees."""
    kernels = [shown.trial.kernel for shown in view.trials if shown.trial.kernel is not None]
    told: dict[str, Callable[[Kernel], Iterable[str]]] = {
        "not obtained": lambda kernel: kernel.unmet,
        "compiler": lambda kernel: (kernel.toolchain,),
        "quirks": lambda kernel: kernel.quirks,
    }
    for label, of in told.items():
        counts = Counter(item for kernel in kernels for item in dict.fromkeys(of(kernel)))
        yield fact(label, *counted(counts, "kernels", len(kernels)))


def config_facts(view: BisectionView) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A sentence for each parent with the options that differ; a changed default is a frequent culprit."""
    for changes in view.config_changes:
        parent, count = changes.parent.short, units.plural(len(changes.options), "option")
        same = f"The effective .config is the same as that of the parent {parent}."
        differs = f"The effective .config differs from that of the parent {parent} in {count}:"
        yield differs if changes.options else same, tuple(one.text for one in changes.options)


def origin_text(view: BisectionView) -> str:
    """A sentence for imported results that says what is unknown, since the rest reads like own measurements."""
    tools = dict.fromkeys(trial.trial.origin.tool for trial in view.trials if trial.trial.origin is not None)
    by = f"Imported: others measured this, with {', '.join(filter(None, tools)) or 'fio'}."
    unknown = " What their kernels were built from, and what else their hosts did meanwhile, is not known."
    return by + unknown if tools else ""


def answer(view: BisectionView) -> FactList:
    """The outcome, the command to continue with, and another change beside it."""
    return FactList(tuple(_answer(view)), _LABEL_WIDTH)


def _answer(view: BisectionView) -> Iterator[Fact]:
    next_command, show = None, ("git", "-C", view.repository or ".", "show")
    is_over = view.budget is not None and view.budget.is_over
    if view.state is State.FOUND and view.first_fixed is not None:
        sure = f", {units.share(view.belief.best.probability)}" if view.belief is not None else ""
        said = f"{view.first_fixed.short} is the first {view.terms.new} commit{sure}"
        yield fact("answer", said, role=verdict_role(Verdict.NEW, view.direction))
        yield fact("", view.first_fixed.subject, role=Role.STRONG)
        yield fact("", view.first_fixed.committed_at[:10], role=Role.DIM)
        next_command = shlex.join((*show, view.first_fixed.short))
    elif view.state is State.NARROWED:
        yield from _narrowed(view)
        if is_over:
            next_command = view.resume_command
        elif view.candidates:
            next_command = shlex.join((*show, "--stat", *(commit.short for commit in view.candidates[:_LISTED])))
    elif view.state in (State.FAILED, State.IMPORTED, State.MEASURED):
        yield fact(view.state.value, view.message, role=Role.WORSE if view.state is State.FAILED else Role.PLAIN)
        next_command = view.resume_command if view.state is State.FAILED else None
    else:
        left = f"{units.plural(len(view.candidates), 'candidate')} left" if view.candidates else ""
        yield fact(view.state.value, left or "no verdict on the range yet", role=Role.STRONG)
        yield fact("", view.message)
        next_command = view.resume_command if view.state is State.STOPPED else None
    if (clock := view.host_clock) is not None:
        yield fact("both clocks", clock.sentence, command=view.resume_command if clock.waits else "")
    yield fact("next", command=next_command)
    if view.next_step_command:
        at = view.objective.text(view.other_steps[0])
        text = f"the readings lie on {len(view.levels)} levels; another commit brought them above, or below, {at}:"
        yield fact("another step", text, role=Role.WEAK, command=view.next_step_command)


def _narrowed(view: BisectionView) -> Iterator[Fact]:
    if view.is_no_change:
        yield fact("answer", view.message, role=Role.WEAK)
        return
    yield fact("answer", f"{one_of(view)}:", role=Role.WEAK)
    yield fact("", *first_ones(candidate_lines(view), _LISTED))
    skipped = (f"skipped {quoted(one)}" for one in view.skips_in_the_way)
    yield fact("in the way", *first_ones(skipped, _LISTED), role=Role.SKIP)
    if view.budget is not None and view.budget.is_over:
        yield fact("out of time", view.budget.why_over)


def one_of(view: BisectionView) -> str:
    """The sentence about the candidates of a narrowed bisection."""
    count = units.plural(len(view.candidates), "commit")
    if view.belief is not None and not view.belief.one_change:
        return f"not one change; if there were one, the first {view.terms.new} commit would be one of {count}"
    return f"the first {view.terms.new} commit is one of {count}"


def candidate_lines(view: BisectionView) -> Iterator[str]:
    """The commits that can still be the first new one, each with its probability if that is known."""
    odds = {one.commit.sha: f"{units.share(one.probability)}  " for one in view.belief.likely} if view.belief else {}
    yield from (odds.get(commit.sha, "") + quoted(commit) for commit in view.candidates)


def first_ones(texts: Iterable[str], count: int) -> tuple[str, ...]:
    """The first ``count`` texts, and the number of the others."""
    whole: Sequence[str] = tuple(texts)
    return (*whole[:count], *([f"and {len(whole) - count} more"] if len(whole) > count else []))
