"""What stands beside the figures that decide and decides nothing: tests, means over setups, stacks, other figures."""

from collections.abc import Iterator, Sequence

from bisector.analysis.comparison import ALPHA
from bisector.core import units
from bisector.core.metric import short
from bisector.core.printable import clean
from bisector.report.comparison_table import change_text, digits, mean_text, p_text, ratio_text, span
from bisector.report.document import Block, Column, Paragraph, Table
from bisector.status.compared import ComparedChange, ComparedMean, ComparedRow, ComparisonResult
from bisector.status.stack_contrasts import StackContrast, stack_contrasts

_LISTED = 20
_LEAST_BLOCKS = 2  # of an interval


def tests(result: ComparisonResult) -> Iterator[Block]:
    """The p-values behind the words, and a second estimate."""
    found = [(row, change) for row in result.rows for change in row.changes if change.effect is not None]
    if not found:
        return
    yield _table(_TESTS, [tuple(_test_cells(row, change)) for row, change in found])
    adjusted = f", adjusted for the {result.tested} tests together (Holm)" if result.tested > 1 else ""
    yield Paragraph(
        f"p: by Student's t{adjusted}; at most 5 % is faster or slower. Exact p: by the permutations within blocks, not"
        " adjusted. H-L: the change by Hodges and Lehmann's estimate. The last two decide nothing."
    )
    if any(change.effect is not None and change.effect.alpha != ALPHA for _, change in found):
        yield Paragraph(
            "An interval that ends the measurements once it is narrow may be so too early by chance. Where a setup has"
            " one alone, it reaches to the 98 % point of t instead of the 97.5 % point, and p is 1.25 times as large."
        )


_TESTS = (
    Column("setup"), Column("kernel"), Column("p", figures=True), Column("exact p", figures=True),
    Column("H-L", figures=True), Column("blocks", figures=True),
)  # fmt: skip


def _test_cells(row: ComparedRow, change: ComparedChange) -> Iterator[str]:
    yield from (row.label, change.arm)
    if (one := change.effect) is not None:
        yield from (p_text(change.adjusted_p), p_text(one.exact_p))
        yield from (change_text(one.hodges_lehmann, one, row.objective), str(one.blocks))


def means(result: ComparisonResult) -> Iterator[Block]:
    """How much better or worse each kernel is over the setups that every kernel has."""
    if not result.means:
        return
    yield _table(_MEANS, [tuple(_mean_cells(one)) for one in result.means])
    yield Paragraph(
        f"Geometric mean of the changes on {result.means[0].rows} of {units.plural(len(result.rows), 'setup')}, those"
        " that every kernel has, turned so that + is better: a latency that falls to half counts as IOPS that double."
        " No verdict is made of it."
    )


_MEANS = (
    Column("kernel"), Column("change", figures=True), Column("95 % interval", figures=True),
    Column("blocks", figures=True),
)  # fmt: skip


def _mean_cells(one: ComparedMean) -> Iterator[str]:
    estimate = one.effect.estimate
    yield from (one.arm, ratio_text(estimate, estimate))
    ends = [ratio_text(end, estimate) for end in one.effect.interval]
    yield span(*ends) if one.effect.blocks >= _LEAST_BLOCKS else units.UNKNOWN
    yield str(one.effect.blocks)


def stacks(result: ComparisonResult) -> Iterator[Block]:
    """Which kernels change more on one stack than on the first one."""
    found = stack_contrasts(result.rows)
    if not found:
        return
    yield _table(_STACKS, [tuple(_stack_cells(one)) for one in found])
    family = (
        f" p is adjusted for all {len(found)} rows (Benjamini and Hochberg): of those up to 5 %, 5 % may be false."
        if len(found) > 1
        else ""
    )
    yield Paragraph(
        "Whether a kernel changes more, or less, on a stack than on the first one. The ratio is that of both ratios to"
        f" {clean(result.arms[0].name)}, with its interval by Welch's t.{family} No verdict is made of it, and a larger"
        " p does not show that the changes are equal."
    )


_STACKS = (
    Column("kernel and its change on the first stack"), Column("stack"), Column("change", figures=True),
    Column("ratio", figures=True), Column("95 % interval", figures=True), Column("p", figures=True),
)  # fmt: skip


def _stack_cells(one: StackContrast) -> Iterator[str]:
    on_first, on_other = (
        change_text(side.effect.estimate, side.effect, side.row.objective) for side in (one.first, one.other)
    )
    yield from (f"{one.arm} on {one.first.row.label}: {on_first}", one.other.row.setup.stack, on_other)
    yield digits(one.contrast.estimate)
    yield span(*map(digits, one.contrast.interval))
    yield p_text(one.adjusted_p)


def exploratory(result: ComparisonResult) -> Iterator[Block]:
    """How many of the other figures differ, and the surest of them, setup by setup."""
    if not result.explored:
        return
    found = result.different
    yield Paragraph(
        f"{len(found):,} of {units.plural(result.explored, 'other figure')} of the judged runs differ; of those that"
        " do, 5 % may be false (Benjamini and Hochberg). Nothing is concluded from them. Figures of several jobs are"
        " made one as in the result."
    )
    if found:
        places = {id(row): place for place, row in enumerate(result.exploratory)}
        listed = sorted(found[:_LISTED], key=lambda one: places[id(one[0])])
        columns = (*_EXPLORED, Column(clean(result.arms[0].name), figures=True), *_EXPLORED_FIGURES)
        yield _table(columns, [tuple(_explored_cells(row, change)) for row, change in listed])
    if len(found) > _LISTED:
        yield Paragraph(f"{len(found) - _LISTED:,} more are in the JSON document.")


_EXPLORED = (Column("setup"), Column("figure"), Column("kernel"))
_EXPLORED_FIGURES = (Column("its figure", figures=True), Column("change", figures=True), Column("p", figures=True))


def _explored_cells(row: ComparedRow, change: ComparedChange) -> Iterator[str]:
    side = next(side for side in row.sides if side.arm == change.arm)
    yield from (row.label, short(row.objective.metric), change.arm)
    yield from (mean_text(row.sides[0], row.objective), mean_text(side, row.objective))
    if (one := change.effect) is not None:
        yield from (change_text(one.estimate, one, row.objective), p_text(change.adjusted_p))


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Table:
    return Table(tuple(columns), tuple(tuple(map(clean, row)) for row in rows), ("",) * len(rows), grouped=True)
