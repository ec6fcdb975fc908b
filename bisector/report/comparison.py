"""The report of a comparison: its document, made from the record, and the order of its sections.

It only reads the record and decides nothing; if a file was removed, its contents are left out. The tables and sentences
are made in :mod:`bisector.report.comparison_table`.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from bisector.analysis.comparison import Outcome
from bisector.config import Settings
from bisector.core import units
from bisector.core.json_document import FLAT, PAIRS, SCHEMA, Key
from bisector.core.printable import clean
from bisector.core.subject import Kind
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.report import comparison_table, reporting
from bisector.report.blocks import Block, Column, Listing, Page, Paragraph, Row, Table, facts, listing, sections_of
from bisector.report.comparison_table import deciding_tables, sentences, to_go_on
from bisector.report.document import Envelope, JobFile, MeasuringHost
from bisector.report.reporting import end_word
from bisector.report.sections import host_facts, job_blocks, measured_on, minute, queues, quoted
from bisector.status.blocks import Blocks, TimeSpent, names, result_of
from bisector.status.comparison import ComparisonResult, StackContrast, stack_contrasts
from bisector.status.conclusion import CONFIG_ARTIFACT
from bisector.store.facts import Block as PlannedBlock
from bisector.store.facts import Budget, Plan, on_top
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store, state_of
from bisector.workload.workloads import WORKLOADS, chooser

_SHA256_DIGITS = 64
_FIO_OUTPUT = "fio.json"
# Settings that _command writes itself: each setup has its own, or all setups share one.
_OF_SETUPS = ("storage.stack", "workload.kind", "kernel.fragments", "bisect.least_effect")


@dataclass(frozen=True, slots=True)
class ComparedKernel:
    """A kernel by its name; what no trial has shown yet is empty. ``config`` is the hash of the effective .config."""

    name: Annotated[str, "name, as it was typed"]
    commit: Annotated[str, "commit and its subject line; empty where no kernel was built"]
    release: Annotated[str, "release of the kernel, as `uname -r` prints it"] = ""
    config: Annotated[str, Key("config_sha256"), "hash of the effective .config"] = ""
    compiler: Annotated[str, "compiler and linker"] = ""
    placebo: Annotated[bool, "whether it is the first kernel, measured a second time"] = False

    @property
    def text(self) -> str:
        """All fields but the name, in a line."""
        config = f".config {self.config[:12]}" if self.config else ""
        return "; ".join(filter(None, (self.commit, self.release, config, self.compiler)))


@dataclass(frozen=True, slots=True)
class MeasuredBlock:
    """A block as it was measured: its arms with the numbers of their trials, in order of measuring."""

    n: Annotated[int, "number of the block"]
    label: Annotated[str, Key("setup"), "the setup, as the report names it"]
    round: Annotated[int, "which block of its setup, from 1"]
    seed: Annotated[int, "seed of the workload"]
    order: Annotated[
        tuple[tuple[str, int | None], ...],
        "pairs of a kernel and the number of its trial, in the order of measuring; `null` where it was not measured",
    ]
    why_void: Annotated[str, Key("void"), "why it does not count; empty if it does"] = ""
    host: Annotated[str, "name of the host that has measured it; empty before its first trial"] = ""
    era: Annotated[str, "digest of that host's era, which the facts of `hosts` tell of; empty if not known"] = ""


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """The document of a comparison, whether it goes on or not."""

    result: Annotated[ComparisonResult, FLAT]
    kernels: Annotated[
        tuple[ComparedKernel, ...],
        Key("arms"),
        "what was compared; the first one is what the others are compared with",
    ]
    blocks: Annotated[tuple[MeasuredBlock, ...], "every block, also those that do not count"]
    storage: Annotated[
        tuple[tuple[str, tuple[str, ...]], ...],
        PAIRS,
        "of each setup what its guests had of the disks, as comments, and the commands that made the stack",
    ]
    workloads: Annotated[tuple[JobFile, ...], "the job files"]
    hosts: Annotated[tuple[MeasuringHost, ...], "the hosts that measured"]
    seed: Annotated[int, "seed that the order was drawn from"]
    standing: Annotated[str, "whether it goes on, or why it ended"]
    state: Annotated[State, "how it stands: `running`, `stopped`, `failed`, or `measured` when it has ended"]
    run_dir: Annotated[Path, "path of the run directory"]
    resume_command: Annotated[str | None, "what to type to go on; `null` if there is nothing to do"]
    command: Annotated[str, "command that compares the same again"]
    tool_version: Annotated[str, "version of bisector"]
    versions: Annotated[
        tuple[tuple[str, str], ...], PAIRS, "versions of what ran in the guest, as far as they are on record"
    ] = ()
    time: Annotated[TimeSpent | None, "what the hours went to; `null` while nothing is measured"] = None
    envelope: Envelope | None = None
    started_at: str = ""
    schema: Annotated[Literal[2], SCHEMA] = 2

    @property
    def title(self) -> Annotated[str, Key()]:
        """The kernels, and the verdicts on them against the first one, in one line."""
        first, *others = (arm.name for arm in self.result.arms if not arm.placebo)
        compared = f"{' and '.join(others)} with {first}" if others else f"{first} with itself"
        return clean(f"Comparison of {compared}: {_counted(self.result)}")

    @property
    def sentences(self) -> Annotated[tuple[str, ...], Key()]:
        """What is to be known beside the values."""
        return tuple(sentences(self.result))

    @property
    def stacks(self) -> Annotated[tuple[StackContrast, ...], Key()]:
        """Exploratory: how the change of each kernel on another stack compares with that on the first stack."""
        return stack_contrasts(self.result.rows)


# From the record


def report(run: RunDirectory, store: Store, blocks: Blocks) -> ComparisonReport:
    """Make the document of a run that compares, whether it goes on or not."""
    plan, trials = blocks.plan, [one.trial for one in blocks.placed]
    (state, message), asked, budgets = state_of(run, store), store.bisection(), store.facts(Budget)
    how = {State.MEASURED: "It is finished", State.RUNNING: "It goes on"}.get(state, f"It is {state}")
    standing = clean(f"{how}{f': {message}' if message else ''}.")
    if budgets:  # more time was given than at first
        first = "none" if plan.extent.budget_s is None else units.duration(plan.extent.budget_s)
        more = (f"{units.duration(one.budget_s)} more after {units.duration(one.spent_s)}" for one in budgets)
        standing += f" Budgets: {', '.join((f'{first} at first', *more))}."
    return ComparisonReport(
        result=result_of(blocks),
        kernels=tuple(_compared_kernel(blocks, arm) for arm in range(len(plan.arms))),
        blocks=tuple(_measured(block, blocks) for block in blocks.blocks),
        storage=tuple(_made_stacks(blocks, run.path)),
        workloads=tuple(dict.fromkeys(reporting.workload_of(one, run.path) for one in plan.setups)),
        hosts=reporting.hosts_of(run.path, trials),
        seed=plan.extent.seed,
        standing=standing,
        state=state,
        run_dir=run.path,
        resume_command=to_go_on(run.path, state, blocks) or None,
        command=_command(plan, *budgets[-1:]),
        tool_version=asked.tool_version,
        started_at=asked.created_at,
        versions=_versions(run.path, trials),
        time=TimeSpent.of(store, trials),
    )


def _compared_kernel(blocks: Blocks, n: int) -> ComparedKernel:
    """A kernel as its first trial with a build shows it."""
    arm, first = blocks.plan.arms[n], blocks.plan.arms[0]
    made = ComparedKernel(arm.name, quoted(arm.commit), placebo=n > 0 and arm.subject == first.subject)
    for trial in (one.trial for one in blocks.placed if one.place.arm == n):
        if (kernel := trial.kernel) is not None:
            config = trial.artifact(CONFIG_ARTIFACT)
            digest = config.sha256 if config is not None else ""
            return replace(made, release=kernel.release, config=digest, compiler=kernel.toolchain)
    return made


def _measured(block: PlannedBlock, blocks: Blocks) -> MeasuredBlock:
    arms, trials = [blocks.plan.arms[arm].name for arm in block.arms], blocks.trials(block)
    order = tuple((arm, trials[arm][0] if arm in trials else None) for arm in arms)
    setup, host = names(blocks.plan)[block.setup], blocks.host(block)
    era = next((trial.era.digest for _, trial in trials.values() if trial.era is not None), "")
    return MeasuredBlock(block.n, setup, block.round, block.seed, order, blocks.why(block), host, era)


def _made_stacks(blocks: Blocks, run_dir: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The commands that made each stack, from the first setup with that stack."""
    stacks = [one.setup.stack for one in blocks.plan.setups]
    for stack in dict.fromkeys(stacks):
        of_setup = blocks.of_setup(stacks.index(stack))
        trials = [trial for block in of_setup for _, trial in blocks.trials(block).values()]
        if lines := reporting.first_text(run_dir, trials, reporting.STORAGE):
            yield stack, (*(f"# {disk}: {text}" for disk, text in queues(trials)), *lines)


def _versions(run_dir: Path, trials: Sequence[Trial]) -> tuple[tuple[str, str], ...]:
    """The version of fio, from the first of its output files that still exists."""
    outputs = dict.fromkeys(
        one.name for trial in trials for one in trial.artifacts if Path(one.name).name == _FIO_OUTPUT
    )
    for name in outputs:
        with suppress(ValueError, AttributeError, RecursionError):
            if version := json.loads("\n".join(reporting.first_text(run_dir, trials, name))).get("fio version"):
                return (("fio", clean(str(version))),)
    return ()


def _command(plan: Plan, given: Budget | None = None) -> str:
    """The command that compares the same again, with all the time that the run was given."""
    extent, (first, *others), setups = plan.extent, plan.arms, plan.setups
    typed = [first, *(arm for arm in others if arm.subject != first.subject)]
    words = ["bisector", "compare"]
    for arm in typed:
        if arm.subject.kind is not Kind.PATCHED and not (arm.subject.parameters or arm.subject.fragment):
            words.append(end_word(arm.name, arm.commit.sha) if arm.subject.is_built else f"image:./{arm.name}")
    flags: list[tuple[str, ...]] = []
    for arm in typed:
        if arm.subject.kind is Kind.PATCHED:  # a commit's hash, or the name of a file, which the run's copy keeps
            given_patch, name = arm.subject.changed_by or "", arm.name.removeprefix(on_top(first.name, ""))
            is_file = len(given_patch) == _SHA256_DIGITS
            flags.append(("--patch", f"./{name}" if is_file else end_word(name, given_patch)))
    flags += [("--config-fragment", f"./{arm.file.name}") for arm in typed if arm.subject.fragment and arm.file]
    flags += [("--parameter", arm.subject.parameters) for arm in typed if arm.subject.parameters]
    flags += [("--stack", one.setup.stack) for one in setups]
    flags += [_workload_words(one) for one in setups]
    flags += [("--placebo",)] if len(typed) < len(plan.arms) else []
    flags += [("--runs", str(extent.runs)) if extent.until is None else ("--until", units.percent_text(extent.until))]
    budget = given or extent.budget
    flags += [("--budget", str(units.duration_text(budget.end_s)))] if budget is not None else []
    flags += [("--least-effect", units.percent_text(extent.delta)), ("--seed", str(extent.seed))]
    # Only the fragments that the stacks do not imply. A kernel is built once for all stacks.
    fragments = [reporting.fragment_name(Path(name)) for name in setups[0].kernel.fragments]
    needed = {name for one in setups for name in reporting.usual_fragments(one)}
    flags += reporting.fragment_words(fragments, needed)
    # Each setup may have disk settings that others do not use.
    of_setups = (*_OF_SETUPS, *(one.chosen_by for one in WORKLOADS.values() if one.chosen_by))
    flags += (flag for one in setups for flag in reporting.flags(one, of_setups))
    return shlex.join((*words, *(word for flag in dict.fromkeys(flags) for word in flag)))


def _workload_words(settings: Settings) -> tuple[str, str]:
    """The flag that chooses the workload, with a file's name alone; ``--workload`` if it has no such flag."""
    workload = settings.workload
    row = chooser(type(workload.workload))
    if row is None or not row.flag:
        return "--workload", workload.kind
    file = workload.inputs.get(row.field)
    return row.flag, file.name if file is not None else str(row.write(getattr(workload.workload, row.field)))


# The page


def page(report: ComparisonReport) -> Page:
    """The report of a comparison for a renderer."""
    result, time = report.result, report.time
    lead = f"{measured_on(report.hosts)}started {minute(report.started_at)}." if report.started_at else ""
    in_guests = [*report.versions]
    if time is not None:
        parts = (("boots", time.boot_s), ("layouts", time.storage_s), ("workloads", time.workload_s))
        shown = ", ".join(f"{name} {units.duration(seconds)}" for name, seconds in (*parts, ("all else", time.other_s)))
        builds = f"; builds {units.duration(time.build_s)} beside that" if time.build_s else ""
        whole = units.duration(time.total_s - time.build_s)
        in_guests.append(("time", f"{whole}: {shown} ({100 * time.other_share:.1f} %){builds}"))
    version = f"bisector {report.tool_version}, in a clone of the same tree." if report.command else ""
    sections = sections_of(
        {
            ("result", "Result"): (*deciding_tables(result), Paragraph(report.standing)),
            ("tests", "Tests"): comparison_table.tests(result),
            ("means", "All setups together"): comparison_table.means(result),
            ("stacks", "Exploratory: between stacks"): comparison_table.stacks(result),
            ("exploratory", "Exploratory: other figures"): comparison_table.exploratory(result),
            ("kernels", "Kernels"): [facts((one.name, one.text) for one in report.kernels)],
            ("blocks", "Blocks"): _blocks(report) if report.blocks else (),
            ("job", "Workload"): chain.from_iterable(map(job_blocks, report.workloads)),
            ("storage", "Storage"): (
                block for stack, lines in report.storage for block in (Paragraph(f"{stack}:"), Listing(lines))
            ),
            ("host", "Host"): (*map(host_facts, report.hosts), facts(in_guests)),
            ("reproduce", "To reproduce"): [listing(report.command), Paragraph(version)],
        }
    )
    return Page(report.title, sections, report.tool_version, lead)


def _counted(result: ComparisonResult) -> str:
    """How many changes have each verdict."""
    changes = [change for row in result.rows for change in row.changes]
    found = [change for change in changes if not change.placebo] or changes
    words = Counter(change.decision.outcome for change in found if change.decision is not None)
    said = {one: "the same" if one is Outcome.SAME else str(one) for one in Outcome if words[one]}
    if len(found) == 1:
        return next(iter(said.values()), "no result yet")
    return ", ".join(f"{word} in {words[one]} of {len(found)}" for one, word in said.items()) or "no result yet"


def _blocks(report: ComparisonReport) -> Iterator[Block]:
    """All deciding values by setup, each with the number of its trial."""
    values = {one.n: row.objective.cell(one.value) for row in report.result.rows for one in row.in_run_order}
    labels = list(dict.fromkeys(row.label for row in report.result.rows))
    arms = [arm.name for arm in report.result.arms]
    several = len({block.host for block in report.blocks if block.host}) > 1
    rows = []
    for block in sorted(report.blocks, key=lambda block: (labels.index(block.label), block.n)):
        numbers = dict(block.order)
        found = ((numbers.get(arm), values.get(numbers.get(arm) or 0, units.UNKNOWN)) for arm in arms)
        figures = (units.UNKNOWN if n is None else f"{value} ({n})" for n, value in found)
        round_ = units.UNKNOWN if block.why_void else str(block.round)
        host = (block.host or units.UNKNOWN,) if several else ()
        rows.append(Row((block.label, str(block.n), round_, str(block.seed), *host, *figures), block.why_void))
    numbered = (Column(title, figures=True) for title in ("block", "round", "seed"))
    hosts = [Column("host")] if several else []
    columns = (Column("setup"), *numbered, *hosts, *(Column(name, figures=True) for name in arms))
    yield Table(columns, tuple(rows), grouped=True)
    yield Paragraph(
        f"In brackets: the number of the trial. The order was drawn from the seed {report.seed}; the seed of a block is"
        " the workload's."
    )
