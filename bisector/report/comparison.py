"""The report of a comparison as one document of facts, and what it says in which order, as sections for every renderer.

Made from the record by :mod:`bisector.report.comparison_record`; what the figures say is
:mod:`bisector.report.comparison_table`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from bisector.analysis.comparison import Outcome
from bisector.core import units
from bisector.core.json_keys import FLAT, PAIRS, SCHEMA, Key
from bisector.core.printable import clean
from bisector.core.verdict import State
from bisector.report import comparison_table
from bisector.report.comparison_table import deciding_tables, sentences
from bisector.report.document import (
    Block,
    Column,
    Envelope,
    FactList,
    JobFile,
    Listing,
    MeasuringHost,
    Page,
    Paragraph,
    Section,
    Table,
)
from bisector.report.sections import host_facts, measured_on, minute
from bisector.status.comparison import ComparisonResult, StackContrast, stack_contrasts
from bisector.status.progress import TimeSpent


@dataclass(frozen=True, slots=True)
class ComparedKernel:
    """What was compared under a name; what no trial has shown yet is empty. ``config`` is the digest of the .config."""

    name: Annotated[str, "name, as it was typed"]
    commit: Annotated[str, "commit and its subject line; empty where no kernel was built"]
    release: Annotated[str, "release of the kernel, as `uname -r` prints it"]
    config: Annotated[str, Key("config_sha256"), "hash of the effective .config"]
    compiler: Annotated[str, "compiler and linker"]
    placebo: Annotated[bool, "whether it is the first kernel, measured a second time"] = False


@dataclass(frozen=True, slots=True)
class MeasuredBlock:
    """A block as it was measured: the arms with the numbers of their trials, in order; ``counts`` is empty or why not.

    ``round`` counts the blocks of a setup, ``seed`` is the workload's. ``host`` has measured it, if anybody has yet, in
    the ``era`` with this digest.
    """

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
    """All that is told of a comparison, whether it goes on or not.

    ``storage`` has the commands that made the stack of each setup, ``workloads`` the job files, ``versions`` names and
    versions of what ran in the guest. ``seed`` is that of the order. ``standing`` is a sentence on ``state``, and
    ``resume_command`` goes on; empty where nothing is left to do. ``time`` is None while nothing is measured.
    """

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
    def title(self) -> Annotated[str, "one line"]:
        """The kernels, and what became of them against the first one."""
        first, *others = (arm.name for arm in self.result.arms if not arm.placebo)
        compared = f"{' and '.join(others)} with {first}" if others else f"{first} with itself"
        return clean(f"Comparison of {compared}: {_counted(self.result)}")

    @property
    def sentences(self) -> Annotated[tuple[str, ...], "what is to be known beside the values"]:
        """What is to be known beside the values."""
        return tuple(sentences(self.result))

    @property
    def stacks(
        self,
    ) -> Annotated[tuple[StackContrast, ...], "exploratory: each kernel and stack but the first one"]:
        """Whether a kernel changes a metric on a stack as much as on the first one."""
        return stack_contrasts(self.result.rows)


def page(report: ComparisonReport) -> Page:
    """The report of a comparison for a renderer."""
    lead = f"{measured_on(report.hosts)}started {minute(report.started_at)}." if report.started_at else ""
    return Page(report.title, sections(report), report.tool_version, lead)


def _counted(result: ComparisonResult) -> str:
    """How often each of the words is said."""
    changes = [change for row in result.rows for change in row.changes]
    found = [change for change in changes if not change.placebo] or changes
    words = Counter(change.decision.outcome for change in found if change.decision is not None)
    if len(found) == 1:
        return _WORDS[next(iter(words))] if words else "no result yet"
    return (
        ", ".join(f"{_WORDS[one]} in {words[one]} of {len(found)}" for one in Outcome if words[one]) or "no result yet"
    )


_WORDS = {one: "the same" if one is Outcome.SAME else str(one) for one in Outcome}


def sections(report: ComparisonReport) -> tuple[Section, ...]:
    """All there is to say; a section without content is left out."""
    made = ((name, heading, tuple(say(report))) for name, heading, say in _SECTIONS)
    return tuple(Section(name, heading, blocks) for name, heading, blocks in made if blocks)


# What it says


def _result(report: ComparisonReport) -> Iterator[Block]:
    yield from deciding_tables(report.result)
    if report.standing:
        yield Paragraph(report.standing)


# What was compared, and how


def _kernels(report: ComparisonReport) -> Iterator[Block]:
    yield FactList(tuple((clean(one.name), clean(_kernel_text(one))) for one in report.kernels))


def _kernel_text(one: ComparedKernel) -> str:
    built = (one.release, f".config {one.config[:12]}" if one.config else "", one.compiler)
    return "; ".join(filter(None, (one.commit, *built)))


def _blocks(report: ComparisonReport) -> Iterator[Block]:
    """Every value that decides, with the number of its trial, setup by setup."""
    if not report.blocks:
        return
    values = {one.n: row.objective.cell(one.value) for row in report.result.rows for one in row.in_run_order}
    labels = list(dict.fromkeys(row.label for row in report.result.rows))
    blocks = sorted(report.blocks, key=lambda block: (labels.index(block.label), block.n))
    arms = [arm.name for arm in report.result.arms]
    several = len({block.host for block in blocks if block.host}) > 1
    of_host = [(block.host or units.UNKNOWN,) if several else () for block in blocks]
    yield Table(
        columns=(*_BLOCKS, *([_HOST] if several else []), *(Column(clean(name), figures=True) for name in arms)),
        rows=tuple(
            tuple(map(clean, _block_cells(one, host, arms, values))) for one, host in zip(blocks, of_host, strict=True)
        ),
        remarks=tuple(clean(block.why_void) for block in blocks),
        grouped=True,
    )
    yield Paragraph(
        f"In brackets: the number of the trial. The order was drawn from the seed {report.seed}; the seed of a block is"
        " the workload's."
    )


_HOST = Column("host")
_BLOCKS = (
    Column("setup"), Column("block", figures=True), Column("round", figures=True), Column("seed", figures=True)
)  # fmt: skip


def _block_cells(
    block: MeasuredBlock, host: Sequence[str], arms: Sequence[str], values: Mapping[int, str]
) -> Iterator[str]:
    yield from (block.label, str(block.n), units.UNKNOWN if block.why_void else str(block.round), str(block.seed))
    yield from host
    numbers = dict(block.order)
    for arm in arms:
        n = numbers.get(arm)
        yield units.UNKNOWN if n is None else f"{values.get(n, units.UNKNOWN)} ({n})"


def _workload(report: ComparisonReport) -> Iterator[Block]:
    for one in report.workloads:
        given = " ".join(f"{name}={value}" for name, value in one.variables)
        yield Paragraph(clean(f"{one.name}, with {given}:" if given else f"{one.name}:"))
        if one.text:
            yield Listing(tuple(one.text.splitlines()))


def _storage(report: ComparisonReport) -> Iterator[Block]:
    for label, lines in report.storage:
        yield Paragraph(clean(f"{label}:"))
        yield Listing(lines)


def _hosts(report: ComparisonReport) -> Iterator[Block]:
    for host in report.hosts:
        yield host_facts(host)
    if report.versions:
        yield FactList(tuple((clean(name), clean(text)) for name, text in report.versions))
    if report.time is not None:
        yield FactList((("time", _time_text(report.time)),))


def _time_text(time: TimeSpent) -> str:
    """What the hours went to."""
    parts = {"boots": time.boot_s, "layouts": time.storage_s, "workloads": time.workload_s, "all else": time.other_s}
    told = ", ".join(f"{name} {units.duration(seconds)}" for name, seconds in parts.items())
    builds = f"; builds {units.duration(time.build_s)} beside that" if time.build_s else ""
    return f"{units.duration(time.total_s - time.build_s)}: {told} ({100 * time.other_share:.1f} %){builds}"


def _reproduce(report: ComparisonReport) -> Iterator[Block]:
    if report.command:
        yield Listing((report.command,))
        yield Paragraph(f"bisector {report.tool_version}, in a clone of the same tree.")


_SECTIONS: tuple[tuple[str, str, Callable[[ComparisonReport], Iterator[Block]]], ...] = (
    ("result", "Result", _result),
    ("tests", "Tests", lambda report: comparison_table.tests(report.result)),
    ("means", "All setups together", lambda report: comparison_table.means(report.result)),
    ("stacks", "Exploratory: between stacks", lambda report: comparison_table.stacks(report.result)),
    ("exploratory", "Exploratory: other figures", lambda report: comparison_table.exploratory(report.result)),
    ("kernels", "Kernels", _kernels),
    ("blocks", "Blocks", _blocks),
    ("job", "Workload", _workload),
    ("storage", "Storage", _storage),
    ("host", "Host", _hosts),
    ("reproduce", "To reproduce", _reproduce),
)
