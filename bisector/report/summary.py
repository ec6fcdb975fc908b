"""What stands below the table: how it was judged, what it cost, the answer, what to type next."""

import shlex
from collections.abc import Callable, Iterable

from bisector.analysis.verdicts import in_era
from bisector.core import units
from bisector.core.objective import WORST, Objective
from bisector.core.printable import clean
from bisector.core.verdict import State, Verdict
from bisector.report.figures import EARLY, baseline_facts, early_note, tail_note, words
from bisector.report.sections import candidate_lines, confirmed, evaluations, per_kernel, quoted
from bisector.report.terminal import Line, Role, Span, cells, left, shorten, verdict_role, wrapped
from bisector.status.view import BisectionView, LevelView

_LABEL_WIDTH = 13
_LISTED = 8
_WORTH_SAYING = 0.01  # of a probability, that nothing changed: with more of it no commit is named


def footer_lines(view: BisectionView, width: int) -> list[Line]:
    """Circumstances first, the answer last, where the eye is when the output has scrolled by."""
    circumstances = [line for block in _CIRCUMSTANCES for line in block(view, width)]
    return [*circumstances, (), *answer_lines(view, width)]


def answer_lines(view: BisectionView, width: int) -> list[Line]:
    """The outcome alone: the commit, or the set and what stands in the way, and what to type next."""
    return [*_ANSWERS[view.state](view, width), *_host_clock(view, width), *_next(view), *_other_step(view, width)]


def _labelled(label: str, texts: Iterable[str], width: int, role: Role = Role.PLAIN) -> list[Line]:
    """A label once, its texts below each other; nothing when there is none."""
    room = width - _LABEL_WIDTH
    return [
        (Span(left("" if index else label, _LABEL_WIDTH), Role.HEAD), Span(shorten(text, room), role))
        for index, text in enumerate(texts)
    ]


def _listed(items: Iterable[str]) -> list[str]:
    """The first few and how many more there are."""
    items = list(items)
    return items[:_LISTED] + ([f"and {len(items) - _LISTED} more"] if len(items) > _LISTED else [])


def _sentences(text: str, width: int) -> list[str]:
    return wrapped(clean(text).split(), width - _LABEL_WIDTH)


def _range(view: BisectionView, width: int) -> list[Line]:
    if not (view.old.sha or view.new.sha):  # an import whose people said nothing of its kernels
        return []
    words = max(cells(clean(word)) for word in (view.terms.old, view.terms.new)) + 2
    texts = [left(f"{view.terms.old}:", words) + quoted(view.old), left(f"{view.terms.new}:", words) + quoted(view.new)]
    texts += [view.relevance.sentence] if view.relevance else []
    return _labelled("range", texts, width)


def _threshold(view: BisectionView, width: int) -> list[Line]:
    if view.threshold is None and view.state is State.MEASURED:
        return []
    if view.threshold is None:
        return _labelled("threshold", ["not known: it takes both ends, measured and different"], width)
    origin = f", {view.threshold_origin}" if view.threshold_origin else ""
    if len(view.host_thresholds) > 1:
        lines = [
            f"{in_era(one.host, one.era or '')}: {view.objective.text(one.threshold)}" for one in view.host_thresholds
        ]
        return _labelled("threshold", _sentences("; ".join(lines) + origin, width), width)
    return _labelled("threshold", _sentences(f"{view.objective.text(view.threshold)}{origin}", width), width)


def _baselines(view: BisectionView, width: int) -> list[Line]:
    """What the disks do without a cache."""
    facts = (f"{name} {text}" for name, text in baseline_facts(view.baselines, view.objective))
    return _labelled("baselines", [line for text in facts for line in _sentences(text, width)], width)


def _levels(view: BisectionView, width: int) -> list[Line]:
    """Where the readings lie, when that is on more than two levels."""
    if not view.other_steps:
        return []
    texts = [_level(level, view.objective) for level in view.levels]
    return _labelled("levels", wrapped(_joined(texts), width - _LABEL_WIDTH), width, Role.WEAK)


def _level(level: LevelView, objective: Objective) -> str:
    values = objective.range_text(*map(objective.score, (level.low, level.high)))
    return f"{values} ({units.plural(level.trials, 'trial')})"


def _figures(view: BisectionView, width: int) -> list[Line]:
    runs = [run for trial in view.trials for run in trial.trial.runs]
    figure, first, last = words(view.objective)
    jobs = f"of the {first} and of the {last} job " if view.objective.is_of_jobs else ""
    what = f"{figure} {jobs}of each run" if view.objective.over == WORST else f"{view.objective.label}, of each run"
    texts = [what] if runs else []
    texts += _sentences(tail_note(view), width)
    if early := early_note(view.trials):
        texts += _sentences(f"{EARLY} {early}: not to be compared with a full run", width)
    return _labelled("figures", texts, width)


def _again(view: BisectionView, width: int) -> list[Line]:
    return _labelled("seen again", _sentences(view.seen_again, width) if view.seen_again else [], width, Role.WEAK)


def _evaluations(view: BisectionView, width: int) -> list[Line]:
    return _labelled("evaluations", wrapped(_joined(evaluations(view)), width - _LABEL_WIDTH), width)


def _joined(parts: list[str]) -> list[str]:
    return ", ".join(parts).split()


def _search(view: BisectionView, width: int) -> list[Line]:
    """How sure all readings together are, and what that rests on."""
    belief = view.belief
    if belief is None:
        return []
    held = units.plural(len(belief.likely), "commit")
    left = f", about {units.plural(belief.trials_left, 'more trial')}" if view.state is State.RUNNING else ""
    texts = [f"{belief.best.commit.short} {units.share(belief.best.probability)}, 99 % in {held}{left}"]
    texts.append(
        f"{units.plural(belief.contradictions, 'contradiction')} ({belief.expected_contradictions:.1f} expected)"
    )
    texts += confirmed(view, "it")
    if belief.nothing >= _WORTH_SAYING:
        texts.append(f"nothing in the range changed: {units.share(belief.nothing)}")
    if belief.suspects:
        other = belief.without_suspects
        same = "" if other.commit == belief.best.commit else f"{other.commit.short} "
        texts.append(f"without suspecting {' '.join(belief.suspects)}: {same}{units.share(other.probability)}")
    lines = _labelled("search", wrapped("; ".join(texts).split(), width - _LABEL_WIDTH), width)
    if belief.effect is not None:
        lines += _labelled("effect", wrapped(belief.effect.text(view.objective).split(), width - _LABEL_WIDTH), width)
    return lines


def _kernels(view: BisectionView, width: int) -> list[Line]:
    return [
        *_labelled("not obtained", _listed(per_kernel(view, lambda kernel: kernel.unmet)), width),
        *_labelled("compiler", _listed(per_kernel(view, lambda kernel: (kernel.toolchain,))), width),
        *_labelled("quirks", _listed(per_kernel(view, lambda kernel: kernel.quirks)), width),
    ]


def _config(view: BisectionView, width: int) -> list[Line]:
    """A default that changed is a frequent culprit: all that differs is named, also what cannot matter."""
    lines: list[Line] = []
    for changes in view.config_changes:
        if not changes.options:
            continue
        count = units.plural(len(changes.options), "option")
        title = f"the effective configuration differs from that of the parent {changes.parent.short} in {count}:"
        words = "; ".join(f"{one.option}: {one.parent} -> {one.child}" for one in changes.options)
        lines += _labelled("config", [*_sentences(title, width), *_sentences(words, width)], width, Role.WEAK)
    return lines


def _host(view: BisectionView, width: int) -> list[Line]:
    hosts = dict.fromkeys(trial.trial.host for trial in view.trials if trial.trial.host)
    return _labelled("host", wrapped(hosts, width - _LABEL_WIDTH), width)


def _clock(view: BisectionView, width: int) -> list[Line]:
    warning = view.clock.warning if view.clock is not None else ""
    return _labelled("clock", _sentences(warning, width) if warning else [], width, Role.WEAK)


def _origin(view: BisectionView, width: int) -> list[Line]:
    """Facts of others are not as good as ours: what nobody knows of them is said."""
    tools = dict.fromkeys(trial.trial.origin.tool for trial in view.trials if trial.trial.origin is not None)
    if not tools:
        return []
    by = f"imported, measured by others with {', '.join(filter(None, tools)) or 'fio'}"
    return _labelled("origin", _sentences(f"{by}; what else their hosts did is not known", width), width, Role.WEAK)


def _infra(view: BisectionView, width: int) -> list[Line]:
    texts = [f"{fault.host}: {fault.message}" for fault in view.infra_faults]
    return _labelled("infra errors", _listed(texts), width, Role.WEAK)


def _controls(view: BisectionView, width: int) -> list[Line]:
    """How often an end that was measured before was tried again because of faults, and how it fared."""
    lines: list[Line] = []
    if answered := sum(control.answered for control in view.controls):
        times = "once" if answered == 1 else f"{answered} times"
        lines += _labelled(
            "controls", _sentences(f"an end was tried again {times} after faults, and worked", width), width
        )
    failed = [f"{one.sha[:12]} failed at stage {one.stage}: {clean(one.failed)}" for one in view.controls if one.failed]
    return [*lines, *_labelled("doubts", _listed(failed), width, Role.WEAK)]


def _budget(view: BisectionView, width: int) -> list[Line]:
    """How much of the time that a person gave is spent."""
    if view.budget is None:
        return []
    spent, given = (units.duration(seconds) for seconds in (view.budget.spent_s, view.budget.budget_s))
    return _labelled("budget", [f"{spent} of {given} spent"], width)


def _directory(view: BisectionView, width: int) -> list[Line]:
    return _labelled("record", [view.run_dir], width)


_CIRCUMSTANCES = (
    _range,
    _figures,
    _threshold,
    _again,
    _baselines,
    _levels,
    _evaluations,
    _search,
    _kernels,
    _config,
    _host,
    _clock,
    _origin,
    _infra,
    _controls,
    _budget,
    _directory,
)


def _found(view: BisectionView, width: int) -> list[Line]:
    if view.first_fixed is None:
        return _standing(view, width)
    date = view.first_fixed.committed_at[:10]
    sure = f", {units.share(view.belief.best.probability)}" if view.belief is not None else ""
    role = verdict_role(Verdict.NEW, view.direction)
    return [
        *_labelled("answer", [f"{view.first_fixed.short} is the first {view.terms.new} commit{sure}"], width, role),
        *_labelled("", [view.first_fixed.subject], width, Role.STRONG),
        *_labelled("", [date], width, Role.DIM),
    ]


def _narrowed(view: BisectionView, width: int) -> list[Line]:
    if view.is_no_change:
        return _labelled("answer", _sentences(view.message, width), width, Role.WEAK)
    count = units.plural(len(view.candidates), "commit")
    title = f"the first {view.terms.new} commit is one of {count}:"
    if view.belief is not None and not view.belief.one_change:
        title = f"not one change; if there were one, the first {view.terms.new} commit would be one of {count}:"
    over = _sentences(view.budget.why_over, width) if view.budget is not None and view.budget.is_over else []
    return [
        *_labelled("answer", [title], width, Role.WEAK),
        *_labelled("", _listed(candidate_lines(view)), width),
        *_labelled("in the way", _listed(f"skipped {quoted(one)}" for one in view.skips_in_the_way), width, Role.SKIP),
        *_labelled("out of time", over, width),
    ]


def _standing(view: BisectionView, width: int) -> list[Line]:
    left_over = [units.plural(len(view.candidates), "candidate") + " left"] if view.candidates else []
    lines = _labelled(view.state.value, left_over or ["no verdict on the range yet"], width, Role.STRONG)
    return [*lines, *_labelled("", _sentences(view.message, width), width)]


def _in_words(view: BisectionView, width: int) -> list[Line]:
    return _labelled(view.state.value, _sentences(view.message, width), width)


def _failed(view: BisectionView, width: int) -> list[Line]:
    return _labelled(view.state.value, _sentences(view.message, width), width, Role.WORSE)


_ANSWERS: dict[State, Callable[[BisectionView, int], list[Line]]] = {
    State.FOUND: _found,
    State.NARROWED: _narrowed,
    State.RUNNING: _standing,
    State.STOPPED: _standing,
    State.FAILED: _failed,
    State.IMPORTED: _in_words,
    State.MEASURED: _in_words,
}


def _host_clock(view: BisectionView, width: int) -> list[Line]:
    """What an answer of counted time is by the host's clock, and what measures it where that is left to do."""
    clock = view.host_clock
    if clock is None:
        return []
    command = (Span(left("", _LABEL_WIDTH)), Span(view.resume_command or "", Role.COMMAND))
    return [*_labelled("both clocks", _sentences(clock.sentence, width), width), *([command] if clock.waits else [])]


def _other_step(view: BisectionView, width: int) -> list[Line]:
    """That there is another one, and the command that looks for it, with the readings already there."""
    if not view.next_step_command:
        return []
    at = view.objective.text(view.other_steps[0])
    text = f"the readings lie on {len(view.levels)} levels; another commit brought them above, or below, {at}:"
    return [
        *_labelled("another step", _sentences(text, width), width, Role.WEAK),
        (Span(left("", _LABEL_WIDTH)), Span(view.next_step_command, Role.COMMAND)),
    ]


def _next(view: BisectionView) -> list[Line]:
    """The command is never shortened: it is there to be copied."""
    match view.state:
        case State.FOUND if view.first_fixed is not None:
            command = shlex.join(["git", "-C", view.repository or ".", "show", view.first_fixed.short])
        case State.NARROWED if view.budget is not None and view.budget.is_over:
            command = view.resume_command or ""
        case State.NARROWED if view.candidates:
            shas = [commit.short for commit in view.candidates[:_LISTED]]
            command = shlex.join(["git", "-C", view.repository or ".", "show", "--stat", *shas])
        case State.STOPPED | State.FAILED:
            command = view.resume_command or ""
        case _:
            command = ""
    return [(Span(left("next", _LABEL_WIDTH), Role.HEAD), Span(command, Role.COMMAND))] if command else []
