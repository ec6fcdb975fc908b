"""What a report says, in which order: every section is a function from the document to blocks, or to nothing."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from bisector.analysis.judgement import judged_run
from bisector.core import units
from bisector.core.figures import run_words
from bisector.core.metric import Better
from bisector.core.printable import clean
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, State
from bisector.report import before_after
from bisector.report.blocks import Block, Fact, FactList, Listing, Page, Paragraph, Section
from bisector.report.document import STANDING, JobFile, MeasuringHost, Report
from bisector.report.figures import baseline_facts
from bisector.report.summary import (
    candidate_lines,
    config_facts,
    counted,
    evidence_facts,
    figure_facts,
    first_ones,
    kernel_facts,
    one_of,
    origin_text,
    quoted,
    range_facts,
    some,
)
from bisector.report.table import verdict_table

_LISTED = 20


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
    """A time of the record for people, who need no seconds."""
    return f"{at[:10]} {at[11:16]}{' UTC' if at.endswith('+00:00') else ''}"


def sections(report: Report) -> tuple[Section, ...]:
    """All there is to say; a section without content is left out."""
    made = ((name, heading, tuple(filter(_says, say(report)))) for name, heading, say in _SECTIONS)
    return tuple(Section(name, heading, blocks) for name, heading, blocks in made if blocks)


def _says(block: Block) -> bool:
    match block:
        case Paragraph(text):
            return bool(text)
        case FactList(facts):
            return any(any(fact.texts) for fact in facts)
        case _:
            return True


def answer_sentence(report: Report) -> str:
    """The outcome in one sentence."""
    view = report.bisection
    if view.first_fixed is not None:
        sure = f", with a probability of {units.share(view.belief.best.probability)}" if view.belief else ""
        return f"The first {view.terms.new} commit is {quoted(view.first_fixed)}{sure}."
    if view.is_no_change:
        return f"{_capital(view.message)}."
    if view.state is State.NARROWED:
        over = f"; {view.budget.why_over}" if view.budget is not None and view.budget.is_over else ""
        return f"{_capital(one_of(view))}{over}."
    left = f", {units.plural(len(view.candidates), 'candidate')} left" if view.candidates else ""
    why = f": {view.message}" if view.message else ""
    what = _NOT_SEARCHED.get(view.state, f"The bisection is {STANDING.get(view.state)}")
    return f"{what}{left}{why}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_NOT_SEARCHED = {
    State.MEASURED: "Nothing is searched",
    State.IMPORTED: "These results were imported, and do not tell the first commit with a change",
}


def terms_sentence(report: Report) -> str:
    """What the two words mean here; empty while no line is known, or nothing was measured."""
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
    """What the answer rests on, and what the figures do not show by the guests' clock."""
    view = report.bisection
    clocks = some(view.host_clock.sentence if view.host_clock is not None else "")
    unseen = some(view.clock.sentence if view.clock is not None else "")
    return FactList((*evidence_facts(view), Fact("both clocks", clocks), Fact("clock", unseen)))


def _answer(report: Report) -> Iterator[Block]:
    view = report.bisection
    yield Paragraph(answer_sentence(report))
    yield FactList((*_shown(report), *evidence(report).facts))
    if view.first_fixed is not None:
        yield Listing((f"git show {view.first_fixed.short}",))
    yield from candidates(report)
    yield Paragraph(terms_sentence(report))


def _shown(report: Report) -> Iterator[Fact]:
    """How much the change is, who made it, and where it was discussed."""
    compared, commit = report.before_after, report.answer
    if compared is not None:
        yield Fact(compared.objective.metric, (compared.effect,))
    if commit is not None:
        yield Fact("author", (f"{commit.author}, {commit.authored_at[:10]}",))
        yield from (Fact(name, (text,)) for name, text in commit.trailers)


def candidates(report: Report) -> Iterator[Block]:
    """The commits that a narrowed search is left with, and what stands in the way."""
    view = report.bisection
    if view.state is State.NARROWED and not view.is_no_change:
        yield Listing(first_ones(candidate_lines(view), _LISTED))
        if view.skips_in_the_way:
            yield Paragraph("These could not be tested and stand in the way:")
            yield Listing(first_ones(map(quoted, view.skips_in_the_way), _LISTED))


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
        yield Paragraph(said)


def _range(report: Report) -> Iterator[Block]:
    if report.asked.old_rev:
        view, asked = report.bisection, report.asked
        ended = (view.started_at, view.ended_at or "not yet")
        facts = (
            ("repository", " ".join(filter(None, (report.origin.name, report.origin.url)))),
            ("paths", " ".join(asked.paths)),
            ("history", "first parents only" if asked.first_parent else ""),
            ("known to be untestable", ", ".join(sha[:12] for sha in asked.skips[:_LISTED])),
            ("imported", view.started_at) if report.imported else ("started, ended", ", ".join(ended)),
        )
        yield FactList((*range_facts(view, (asked.old_rev, asked.new_rev)), *_facts(facts).facts))


def _config(report: Report) -> Iterator[Block]:
    lacking, *made = kernel_facts(report.bisection)
    yield FactList((*_facts(report.kernel).facts, lacking, *made))
    for sentence, options in config_facts(report.bisection):
        yield Paragraph(sentence)
        yield from [Listing(options)] if options else []


def _workload(report: Report) -> Iterator[Block]:
    if report.workload.name:
        yield from job_blocks(report.workload)


def job_blocks(job: JobFile) -> Iterator[Block]:
    """A job file with the variables that it was given."""
    given = " ".join(f"{name}={value}" for name, value in job.variables)
    yield Paragraph(f"{job.name}, with {given}:" if given else f"{job.name}:")
    if job.text:
        yield Listing(tuple(job.text.splitlines()))


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
    if found := baseline_facts(report.bisection.baselines, report.bisection.objective):
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
    return FactList(tuple(Fact(name, (text,)) for name, text in items if text))


_SECTIONS: tuple[tuple[str, str, Callable[[Report], Iterator[Block]]], ...] = (
    ("answer", "Answer", _answer),
    ("trials", "Verdicts", _trials),
    ("comparison", "Before and after", _before_after),
    ("origin", "Origin", _origin),
    ("range", "Range", _range),
    ("config", "Kernel", _config),
    ("job", "Workload", _workload),
    ("storage", "Storage", _storage),
    ("host", "Host", _hosts),
    ("baselines", "Baselines", _baselines),
    ("log", "git bisect log", _log),
    ("reproduce", "To reproduce", _reproduce),
)
