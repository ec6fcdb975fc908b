"""The facts about a bisection, one list for terminals, reports and letters, and the contents of a report, in order.

In a terminal all facts stand below the table (:func:`footer`): the circumstances first, and last the answer, which is
then what the reader sees. A report has each group of facts in a section of its own (:func:`sections`).
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from bisector.analysis.judgement import judged_run
from bisector.analysis.verdicts import in_era
from bisector.core import units
from bisector.core.figures import run_words
from bisector.core.metric import Better
from bisector.core.objective import WORST
from bisector.core.printable import clean
from bisector.core.subject import Commit, Kernel, Kind
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, State, Verdict
from bisector.report import document
from bisector.report.blocks import (
    Block,
    Fact,
    FactList,
    Listing,
    Page,
    Paragraph,
    Role,
    Section,
    fact,
    facts,
    listing,
    sections_of,
    verdict_role,
)
from bisector.report.document import STANDING, JobFile, MeasuringHost, Report
from bisector.report.table import EARLY, baseline_facts, early_note, filling_note, tail_note, verdict_table, words
from bisector.status.view import BisectionView

_LABEL_WIDTH = 12
_LISTED = 8
_WORTH_SAYING = 0.01  # the least probability of "nothing changed" that is told; above it no commit is named
_LISTED_IN_REPORT = 20
_OF_GUESTS = ("guest", "accelerator")
_NOT_SEARCHED = {
    State.MEASURED: "Nothing is searched",
    State.IMPORTED: "These results were imported, and do not tell the first commit with a change",
}


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
    if view.is_unreadable:
        yield fact(view.state.value, view.message or "no commit is left", role=Role.STRONG)
        next_command = shlex.join(("git", "-C", view.repository or ".", "status"))
    elif view.state is State.FOUND and view.first_fixed is not None:
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
    is_alone = len(view.candidates) == 1
    which = "this one" if is_alone else f"one of {units.plural(len(view.candidates), 'commit')}"
    if view.belief is not None and not view.belief.one_change:
        return f"not one change; if there were one, the first {view.terms.new} commit would be {which}"
    return f"the first {view.terms.new} commit is {'most likely ' if is_alone else ''}{which}"


def candidate_lines(view: BisectionView) -> Iterator[str]:
    """The commits that can still be the first new one, each with its probability if that is known."""
    odds = {one.commit.sha: f"{units.share(one.probability)}  " for one in view.belief.likely} if view.belief else {}
    yield from (odds.get(commit.sha, "") + quoted(commit) for commit in view.candidates)


def first_ones(texts: Iterable[str], count: int) -> tuple[str, ...]:
    """The first ``count`` texts, and the number of the others."""
    whole = tuple(texts)
    return (*whole[:count], *([f"and {len(whole) - count} more"] if len(whole) > count else []))


# The report


def page(report: Report) -> Page:
    """The report of a bisection for a renderer."""
    view = report.bisection
    ended = f"ended {minute(view.ended_at)}" if view.ended_at else "not ended yet"
    lead = f"{measured_on(report.hosts)}started {minute(view.started_at)}, {ended}."
    if report.imported:
        lead = f"Measured by others; imported {minute(view.started_at)}."
    return Page(report.title, sections(report), report.tool_version, lead)


def measured_on(hosts: Sequence[MeasuringHost]) -> str:
    """The hosts that measured, as the beginning of a sentence."""
    return f"Measured on {', '.join(clean(host.name) for host in hosts)}; " if hosts else "The run "


def minute(at: str) -> str:
    """A recorded time for people, without seconds."""
    return f"{at[:10]} {at[11:16]}{' UTC' if at.endswith('+00:00') else ''}"


def sections(report: Report) -> tuple[Section, ...]:
    """All sections of the report."""
    view, compared, baselines = report.bisection, report.before_after, ""
    disks = facts(baseline_facts(view.baselines, view.objective))
    if disks.facts:
        baselines = "The same job on each disk without a cache:"
    reproduce = ""
    if report.asked.command:
        workload = "is missing, as is said above" if report.workload.missing else "is printed above"
        reproduce = f"bisector {report.tool_version}, in a clone of the tree above; the workload {workload}."
    sides: list[Block] = []
    if compared is not None:
        sides = [Listing(tuple(document.lines(compared, axes(report)))), Paragraph(document.note(compared))]
    return sections_of(
        {
            ("answer", "Answer"): _answer_blocks(report),
            ("trials", "Verdicts"): _trials(report),
            ("comparison", "Before and after"): sides,
            ("origin", "Origin"): [Paragraph(origin_text(view))],
            ("range", "Range"): _range(report),
            ("config", "Kernel"): _kernels(report),
            ("job", "Workload"): job_blocks(report.workload),
            ("storage", "Storage"): [facts(queues(one.trial for one in view.trials)), Listing(report.storage)],
            ("host", "Host"): map(host_facts, report.hosts),
            ("baselines", "Baselines"): [Paragraph(baselines), disks],
            ("log", "git bisect log"): [listing(report.bisect_log)],
            ("reproduce", "To reproduce"): [listing(report.asked.command), Paragraph(reproduce)],
        }
    )


def answer_sentence(report: Report) -> str:
    """The outcome in one sentence."""
    view = report.bisection
    if view.first_fixed is not None:
        sure = f", with a probability of {units.share(view.belief.best.probability)}" if view.belief else ""
        return f"The first {view.terms.new} commit is {quoted(view.first_fixed)}{sure}."
    if view.state is State.NARROWED and not view.is_unreadable:
        over = f"; {view.budget.why_over}" if view.budget is not None and view.budget.is_over else ""
        said = view.message if view.is_no_change else one_of(view) + over
        return f"{said[:1].upper()}{said[1:]}."
    left = f", {units.plural(len(view.candidates), 'candidate')} left" if view.candidates else ""
    why = f": {view.message}" if view.message else ""
    what = _NOT_SEARCHED.get(view.state, f"The bisection is {STANDING.get(view.state)}")
    return f"{what}{left}{why}."


def terms_sentence(report: Report) -> str:
    """The meaning of the two words for the sides; empty if the direction is not known or nothing was measured."""
    view = report.bisection
    if not view.trials or view.direction is None:
        return ""
    names = [judged_run(one.trial).name for one in view.trials if one.trial.runs]
    last = run_words(names[-1]) if names else "last run"
    better, worse = view.terms.new, view.terms.old
    if view.direction is Direction.REGRESSION:
        better, worse = worse, better
    line = view.objective.text(view.threshold) if view.threshold is not None else "the threshold"
    origin = f" ({view.threshold_origin})" if view.threshold_origin else ""
    side = {Better.HIGHER: "above", Better.LOWER: "below"}[view.objective.better]
    return (
        f'Below, "{better}" means that {view.objective.label} in the {last} was {side} {line}{origin},'
        f' and "{worse}" that it was not.'
    )


def evidence(report: Report) -> FactList:
    """What the answer rests on, and what values by the guests' clock do not show."""
    view = report.bisection
    both, clock = (one.sentence if one is not None else "" for one in (view.host_clock, view.clock))
    return FactList((*evidence_facts(view), fact("both clocks", both), fact("clock", clock)))


def _answer_blocks(report: Report) -> Iterator[Block]:
    """The answer, the size of the change, its author and discussion, and the evidence."""
    view, compared, commit = report.bisection, report.before_after, report.answer
    about = [] if compared is None else [(compared.objective.metric, compared.effect)]
    if commit is not None:
        about += [("author", f"{commit.author}, {commit.authored_at[:10]}"), *commit.trailers]
    yield Paragraph(answer_sentence(report))
    yield FactList((*facts(about).facts, *evidence(report).facts))
    if view.first_fixed is not None:
        yield Listing((f"git show {view.first_fixed.short}",))
    yield from candidates(report)
    yield Paragraph(terms_sentence(report))


def candidates(report: Report) -> Iterator[Block]:
    """The commits left by a narrowed search, and the skipped commits in the way."""
    view = report.bisection
    if view.state is State.NARROWED and not view.is_no_change:
        yield Listing(first_ones(candidate_lines(view), _LISTED_IN_REPORT))
        if view.skips_in_the_way:
            yield Paragraph("These could not be tested and stand in the way:")
            yield Listing(first_ones(map(quoted, view.skips_in_the_way), _LISTED_IN_REPORT))


def _trials(report: Report) -> Iterator[Block]:
    if report.rows:
        view, places = report.bisection, [row.place for row in report.rows]
        yield verdict_table(view, [row.shown for row in report.rows], places)
        order = "the order of history, place counts commits from the old end"
        if all(place is None for place in places):
            order = "the order of their dates, for no repository tells that of history"
        yield Paragraph(f"Rows are in {order}; n is the order of measuring.")
        yield FactList(tuple(figure_facts(view, each_job=True)))


def axes(report: Report) -> list[tuple[str, str]]:
    """The names and values of what both sides have in common."""
    workload = report.workload
    common = [("testcase", report.testcase.partition(" ")[0]), ("job", workload.name), *workload.variables]
    return [(name, clean(value)) for name, value in common if value]


def _range(report: Report) -> Iterator[Block]:
    view, asked = report.bisection, report.asked
    if asked.old_rev:
        when = ("started, ended", f"{view.started_at}, {view.ended_at or 'not yet'}")
        typed = (
            ("repository", " ".join(filter(None, (report.origin.name, report.origin.url)))),
            ("paths", " ".join(asked.paths)),
            ("history", "first parents only" if asked.first_parent else ""),
            ("known to be untestable", ", ".join(sha[:12] for sha in asked.skips[:_LISTED_IN_REPORT])),
            ("imported", view.started_at) if report.imported else when,
        )
        yield FactList((*range_facts(view, (asked.old_rev, asked.new_rev)), *facts(typed).facts))


def _kernels(report: Report) -> Iterator[Block]:
    yield FactList((*facts(report.kernel).facts, *kernel_facts(report.bisection)))
    for sentence, options in config_facts(report.bisection):
        yield from (Paragraph(sentence), Listing(options))


def job_blocks(job: JobFile) -> Iterator[Block]:
    """A job file with the variables that it was given; nothing if there is no job."""
    if job.name:
        given = " ".join(f"{name}={value}" for name, value in job.variables)
        yield Paragraph(f"{job.name}, with {given}:" if given else f"{job.name}:")
        yield listing(job.text)


def queues(trials: Iterable[Trial]) -> list[tuple[str, str]]:
    """Each disk with the queue settings that the guests' kernels had, and their counts if they differ."""
    of_disks: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for trial in trials:
        for queue in trial.queues:
            of_disks[queue.disk][queue.text] += 1
    return [(disk, "; ".join(counted(texts, "trials", texts.total()))) for disk, texts in of_disks.items()]


def circumstances(report: Report) -> list[tuple[str, str]]:
    """What readers of a storage report ask first: the disks, how the file system was made and mounted, guest, tree."""
    made = (line for line in report.storage if line.startswith(("mkfs", "mount ")))
    machines = [dict(host.facts) for host in report.hosts]
    guests = dict.fromkeys(", ".join(known[name] for name in _OF_GUESTS if name in known) for known in machines)
    seen = dict(queues(shown.trial for shown in report.bisection.trials))
    return [
        *((f"disk {disk}", "; ".join(filter(None, (text, seen.get(disk))))) for disk, text in report.disks),
        ("file system", "; ".join(made)),
        ("guest", "; ".join(filter(None, guests))),
        ("tree", ", ".join(filter(None, (report.origin.name, report.asked.span if report.asked.old_rev else "")))),
    ]


def host_facts(host: MeasuringHost) -> FactList:
    """The facts about a host, and its other load."""
    known = [("host", f"{host.name}, {units.plural(host.trials, 'trial')}"), *host.facts]
    if loads := host.contention:
        cores = _from_to(f"{one.other_busy_cores:.2f}" for one in loads)
        steal = _from_to(f"{100 * one.steal_share:.1f}" for one in loads)
        waited = _from_to(f"{100 * one.psi_some_share:.1f}" for one in loads)
        said = f"{cores} cores of other work, {steal} % of CPU time stolen"
        known.append(("during the runs", f"{said}, somebody waited for a CPU {waited} % of the time"))
        speeds = [f"{one:.0f}" for load in loads for one in (load.mib_s_before, load.mib_s_after) if one is not None]
        known += [("before and after", f"each core hashed {_from_to(speeds)} MiB a second")] if speeds else []
    return facts(known)


def _from_to(figures: Iterable[str]) -> str:
    """The least and the greatest value, or one if both are written alike."""
    ends = sorted(figures, key=float)
    return " to ".join(dict.fromkeys((ends[0], ends[-1])))
