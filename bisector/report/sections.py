"""The contents of a bisection's report, in order."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from bisector.analysis.judgement import judged_run
from bisector.core import units
from bisector.core.figures import run_words
from bisector.core.metric import Better
from bisector.core.printable import clean
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, State
from bisector.report import before_after
from bisector.report.blocks import Block, FactList, Listing, Page, Paragraph, Section, fact, facts, listing, sections_of
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
)
from bisector.report.table import verdict_table

_LISTED = 20
_OF_GUESTS = ("guest", "accelerator")
_NOT_SEARCHED = {
    State.MEASURED: "Nothing is searched",
    State.IMPORTED: "These results were imported, and do not tell the first commit with a change",
}


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
        sides = [Listing(tuple(before_after.lines(compared, axes(report)))), Paragraph(before_after.note(compared))]
    return sections_of(
        {
            ("answer", "Answer"): _answer(report),
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
    if view.state is State.NARROWED:
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


def _answer(report: Report) -> Iterator[Block]:
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
            ("known to be untestable", ", ".join(sha[:12] for sha in asked.skips[:_LISTED])),
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
