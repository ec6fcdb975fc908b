"""What a report says, in which order: every section is a function from the document to blocks, or to nothing."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from bisector.analysis.judgement import judged_run
from bisector.core import units
from bisector.core.figures import run_words
from bisector.core.metric import Better
from bisector.core.objective import WORST, Objective
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, State
from bisector.report import before_after
from bisector.report.document import STANDING, Block, FactList, Listing, MeasuringHost, Page, Paragraph, Report, Section
from bisector.report.figures import EARLY, baseline_facts, early_note, filling_note, tail_note, words
from bisector.report.summary import (
    candidate_lines,
    config_facts,
    confirmed,
    counted,
    evaluations,
    kernel_facts,
    origin_text,
    quoted,
)
from bisector.report.table import trial_table
from bisector.status.view import BeliefView

_LISTED = 20


def page(report: Report) -> Page:
    """The report of a bisection for a renderer."""
    return Page(report.title, sections(report), report.tool_version, _lead(report))


def _lead(report: Report) -> str:
    """Where it was measured, and when; of what others measured that is not known."""
    view = report.bisection
    if report.imported:
        return f"Measured by others; imported {minute(view.started_at)}."
    ended = f"ended {minute(view.ended_at)}" if view.ended_at else "not ended yet"
    return f"{measured_on(report.hosts)}started {minute(view.started_at)}, {ended}."


def measured_on(hosts: Sequence[MeasuringHost]) -> str:
    """The hosts that measured, as the beginning of a sentence."""
    return f"Measured on {', '.join(clean(host.name) for host in hosts)}; " if hosts else "The run "


def minute(at: str) -> str:
    """A time of the record for people, who need no seconds."""
    return f"{at[:10]} {at[11:16]}{' UTC' if at.endswith('+00:00') else ''}"


def sections(report: Report) -> tuple[Section, ...]:
    """All there is to say; a section without content is left out."""
    made = ((name, heading, tuple(filter(_says, say(report)))) for name, heading, say in _SECTIONS)
    return tuple(Section(name, heading, blocks) for name, heading, blocks in made if blocks)


def _says(block: Block) -> bool:
    return not isinstance(block, FactList) or bool(block.items)


def answer_sentence(report: Report) -> str:
    """The outcome in one sentence."""
    view = report.bisection
    if view.first_fixed is not None:
        sure = f", with a probability of {units.share(view.belief.best.probability)}" if view.belief else ""
        return f"The first {view.terms.new} commit is {quoted(view.first_fixed)}{sure}."
    if view.is_no_change:
        return f"{clean(view.message[:1].upper() + view.message[1:])}."
    if view.state is State.NARROWED:
        count = units.plural(len(view.candidates), "commit")
        if view.belief is not None and not view.belief.one_change:
            return f"This is not one change; if it were, the first {view.terms.new} commit would be one of {count}."
        over = f"; {view.budget.why_over}" if view.budget is not None and view.budget.is_over else ""
        return f"The first {view.terms.new} commit is one of {count}{over}."
    left = f", {units.plural(len(view.candidates), 'candidate')} left" if view.candidates else ""
    why = f": {clean(view.message)}" if view.message else ""
    what = _NOT_SEARCHED.get(view.state, f"The bisection is {STANDING.get(view.state)}")
    return f"{what}{left}{why}."


def confirmation(report: Report) -> str:
    """What the answer rests on beside the search; empty without an answer."""
    view, belief = report.bisection, report.bisection.belief
    if view.first_fixed is None:
        return ""
    clocks = f" By both clocks: {clean(view.host_clock.sentence)}." if view.host_clock is not None else ""
    if belief is None:
        return f"Verdicts are those of single measurements; no probability is given.{clocks}"
    made = " ".join(f"{text}." for text in confirmed(view, view.first_fixed.short))
    if belief.effect is not None:
        effect = f"{belief.effect.text(view.objective)}: {belief.effect.raw(view.objective)}"
        clocks = f" Its effect: {clean(effect)}.{clocks}"
    return f"{made or 'It was not confirmed by reverting it, or adding it.'} {_against(belief)}{clocks}"


def _against(belief: BeliefView) -> str:
    if not belief.contradictions:
        return "No reading contradicts it."
    against = units.plural(belief.contradictions, "reading contradicts", "readings contradict")
    return f"{against} it; the noise alone would make about {belief.expected_contradictions:.1f}."


def terms_sentence(report: Report) -> str:
    """What the two words mean here."""
    view = report.bisection
    names = [judged_run(one.trial).name for one in view.trials if one.trial.runs]
    last = clean(run_words(names[-1])) if names else "last run"
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


def clock_sentence(report: Report) -> str:
    """What the figures do not show by the guests' clock; empty by the host's."""
    clock = report.bisection.clock
    return clock.sentence if clock is not None else ""


_NOT_SEARCHED = {
    State.MEASURED: "Nothing is searched",
    State.IMPORTED: "These results were imported, and do not tell the first commit with a change",
}


def _answer(report: Report) -> Iterator[Block]:
    view = report.bisection
    yield Paragraph(" ".join(filter(None, (answer_sentence(report), confirmation(report)))))
    yield _facts(_shown(report))
    if view.first_fixed is not None:
        yield Listing((f"git show {view.first_fixed.short}",))
    if view.first_fixed is None and view.state is State.NARROWED and not view.is_no_change:
        yield Listing(tuple(candidate_lines(view))[:_LISTED] + _more(view.candidates))
    if view.skips_in_the_way:
        yield Paragraph("These could not be tested and stand in the way:")
        yield Listing(tuple(quoted(commit) for commit in view.skips_in_the_way[:_LISTED]))
    if view.trials and view.direction is not None:
        yield Paragraph(terms_sentence(report))
    if said := clock_sentence(report):
        yield Paragraph(said)
    if view.seen_again:
        yield Paragraph(f"Seen again {view.seen_again}.")


def _shown(report: Report) -> Iterator[tuple[str, str]]:
    """How much the change is, who made it, and where it was discussed."""
    compared, commit = report.before_after, report.answer
    if compared is not None:
        yield compared.objective.metric, before_after.effect(compared)
    if commit is not None:
        yield "author", f"{commit.author}, {commit.authored_at[:10]}"
        yield from commit.trailers


def _more(commits: Sequence[Commit]) -> tuple[str, ...]:
    return (f"and {len(commits) - _LISTED} more",) if len(commits) > _LISTED else ()


def _trials(report: Report) -> Iterator[Block]:
    if report.rows:
        yield trial_table(report)
        yield Paragraph(_evaluations(report))


def _what_figures_are(objective: Objective) -> str:
    if not objective.is_of_jobs:
        return ""
    what, first, _ = words(objective)
    if objective.over != WORST:
        return f" Figures are {objective.label}."
    return f" Figures are the {what} of each job, the {first} first."


def _evaluations(report: Report) -> str:
    view = report.bisection
    early = early_note(view.trials)
    order = "the order of history, place counts commits from the old end"
    if all(row.place is None for row in report.rows):
        order = "the order of their dates, for no repository tells that of history"
    return (
        f"{evaluations(view)}. Rows are in {order}; n is the order of measuring."
        + _what_figures_are(view.objective)
        + (f" A run with {EARLY} was {early}; the others are full runs." if early else "")
        + f" {tail_note(view)}".rstrip(" ")
        + filling_note(view.trials)
    )


def axes(report: Report) -> list[tuple[str, str]]:
    """What both sides had in common, by name."""
    workload = report.workload
    common = [("testcase", report.testcase.partition(" ")[0]), ("job", workload.name), *workload.variables]
    return [(name, clean(value)) for name, value in common if value]


def _before_after(report: Report) -> Iterator[Block]:
    compared = report.before_after
    if compared is not None:
        yield Listing(tuple(before_after.lines(compared, axes(report))))
        yield Paragraph(before_after.note(compared))


def _origin(report: Report) -> Iterator[Block]:
    if said := origin_text(report.bisection):
        yield Paragraph(clean(said))


def _range(report: Report) -> Iterator[Block]:
    if not report.asked.old_rev:
        return
    view, asked = report.bisection, report.asked
    facts = [
        (f"{view.terms.old} end", _end(asked.old_rev, view.old)),
        (f"{view.terms.new} end", _end(asked.new_rev, view.new)),
        ("size", view.relevance.sentence if view.relevance else ""),
        ("repository", " ".join(filter(None, (report.origin.name, report.origin.url)))),
        ("paths", " ".join(asked.paths)),
        ("history", "first parents only" if asked.first_parent else ""),
        ("known to be untestable", ", ".join(sha[:12] for sha in asked.skips[:_LISTED])),
        ("imported", view.started_at if report.imported else ""),
        ("started, ended", "" if report.imported else f"{view.started_at}, {view.ended_at or 'not yet'}"),
    ]
    yield _facts(facts)


def _end(rev: str, commit: Commit) -> str:
    return quoted(commit) if commit.sha.startswith(rev) else f"{rev}, {quoted(commit)}"


def _config(report: Report) -> Iterator[Block]:
    lacking, *_ = kernel_facts(report.bisection)
    yield _facts([*report.kernel, (lacking.label, "; ".join(lacking.texts))])
    for sentence, options in config_facts(report.bisection):
        yield Paragraph(sentence)
        yield from [Listing(options)] if options else []


def _compiler(report: Report) -> Iterator[Block]:
    _, *made = kernel_facts(report.bisection)
    yield _facts((fact.label, "; ".join(fact.texts)) for fact in made)


def _workload(report: Report) -> Iterator[Block]:
    if not report.workload.name:
        return
    values = " ".join(f"{name}={value}" for name, value in report.workload.variables)
    yield Paragraph(f"{report.workload.name}{', with ' if values else ''}{values}:")
    yield Listing(tuple(report.workload.text.splitlines()))


def _storage(report: Report) -> Iterator[Block]:
    yield _facts(queues(shown.trial for shown in report.bisection.trials))
    if report.storage:
        yield Listing(report.storage)


def queues(trials: Iterable[Trial]) -> list[tuple[str, str]]:
    """Each disk by its name with what the guests' kernels had of it, and how many of them where they differ."""
    of_disks: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for trial in trials:
        for queue in trial.queues:
            of_disks[queue.disk][queue.text] += 1
    return [(disk, "; ".join(counted(texts, "trials", texts.total()))) for disk, texts in of_disks.items()]


def circumstances(report: Report) -> list[tuple[str, str]]:
    """What readers of a report on storage ask first: disks, how the file system was made and mounted, guest, tree."""
    made = (line for line in report.storage if line.startswith(("mkfs", "mount ")))
    machines = [dict(host.facts) for host in report.hosts]
    guests = dict.fromkeys(", ".join(facts[name] for name in _OF_GUESTS if name in facts) for facts in machines)
    seen = dict(queues(shown.trial for shown in report.bisection.trials))
    return [
        *((f"disk {disk}", "; ".join(filter(None, (text, seen.get(disk))))) for disk, text in report.disks),
        ("file system", "; ".join(made)),
        ("guest", "; ".join(filter(None, guests))),
        ("tree", ", ".join(filter(None, (report.origin.name, report.asked.span if report.asked.old_rev else "")))),
    ]


_OF_GUESTS = ("guest", "accelerator")


def _hosts(report: Report) -> Iterator[Block]:
    yield from map(host_facts, report.hosts)


def host_facts(host: MeasuringHost) -> FactList:
    """What is known of a host, and what else it did."""
    return _facts([("host", f"{host.name}, {units.plural(host.trials, 'trial')}"), *host.facts, *_contention(host)])


def _contention(host: MeasuringHost) -> list[tuple[str, str]]:
    loads = host.contention
    if not loads:
        return []
    cores = _from_to([f"{one.other_busy_cores:.2f}" for one in loads])
    steal, waited = (
        f"{_from_to([f'{100 * share:.1f}' for share in shares])} %"
        for shares in ([one.steal_share for one in loads], [one.psi_some_share for one in loads])
    )
    words = f"{cores} cores of other work, {steal} of CPU time stolen, somebody waited for a CPU {waited} of the time"
    speeds = [f"{one:.0f}" for load in loads for one in (load.mib_s_before, load.mib_s_after) if one is not None]
    read = [("before and after", f"each core hashed {_from_to(speeds)} MiB a second")] if speeds else []
    return [("during the runs", words), *read]


def _from_to(figures: Sequence[str]) -> str:
    """The least and the greatest figure; one where they are written alike."""
    ends = sorted(figures, key=float)
    return " to ".join(dict.fromkeys((ends[0], ends[-1])))


def _baselines(report: Report) -> Iterator[Block]:
    found = baseline_facts(report.bisection.baselines, report.bisection.objective)
    if found:
        yield Paragraph("The same job on each disk without a cache:")
        yield _facts(found)


def _log(report: Report) -> Iterator[Block]:
    if report.bisect_log:
        yield Listing(tuple(report.bisect_log.splitlines()))


def _reproduce(report: Report) -> Iterator[Block]:
    if not report.asked.command:
        return
    yield Listing((report.asked.command,))
    workload = "is missing, as is said above" if report.workload.missing else "is printed above"
    yield Paragraph(f"bisector {report.tool_version}, in a clone of the tree above; the workload {workload}.")


def _facts(items: Iterable[tuple[str, str]]) -> FactList:
    return FactList(tuple((name, clean(text)) for name, text in items if text))


_SECTIONS: tuple[tuple[str, str, Callable[[Report], Iterator[Block]]], ...] = (
    ("answer", "Answer", _answer),
    ("trials", "Verdicts", _trials),
    ("comparison", "Before and after", _before_after),
    ("origin", "Origin", _origin),
    ("range", "Range", _range),
    ("config", "Kernel configuration", _config),
    ("compiler", "Compiler", _compiler),
    ("job", "Workload", _workload),
    ("storage", "Storage", _storage),
    ("host", "Host", _hosts),
    ("baselines", "Baselines", _baselines),
    ("log", "git bisect log", _log),
    ("reproduce", "To reproduce", _reproduce),
)
