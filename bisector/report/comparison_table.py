"""What the figures of a comparison say, as tables and sentences.

One table for each figure that decides, with the direction in its head (as benchstat's, golang.org/x/perf). A row that
is not different is never called the same: that takes an interval inside of the band.
"""

import math
from collections.abc import Iterator, Sequence

from bisector.analysis.comparison import ALPHA, Decision, Effect, Outcome, Scale, blocks_for_exact, least_exact_p
from bisector.core import units
from bisector.core.metric import Better
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.report.document import Block, Column, Paragraph, Table
from bisector.status.comparison import Change, MeanChange, Result, Row, Side

_LISTED = 20
_LEAST_P = 1e-4
_TIMES_FROM = 10.0
_PAIR = 2


def deciding_tables(result: Result) -> Iterator[Block]:
    """A table for each figure that decides, and what is to be known beside them."""
    for objective in dict.fromkeys(row.objective for row in result.rows):
        yield _table(result, [row for row in result.rows if row.objective == objective])
    if result.rows:
        yield Paragraph(_LEGEND.format(first=result.arms[0].name))
    for sentence in sentences(result):
        yield Paragraph(sentence)


_LEGEND = (
    "* decides. Figures are means over blocks; the change is that of the geometric mean against {first}, within blocks,"
    " with its 95 % interval by Student's t. p is adjusted for all rows that decide (Holm); exact p is of the"
    " permutations within blocks, H-L the change by Hodges and Lehmann's estimate, and neither of them decides."
)


def _table(result: Result, rows: Sequence[Row]) -> Table:
    """Of two kernels each has a column, of more of them each has a row."""
    pair = len(result.arms) == _PAIR
    first = result.arms[0].name
    columns = [Column(f"{rows[0].objective.label} * ({direction(rows[0])})"), Column(first, figures=True)]
    columns += (
        [Column(result.arms[1].name, figures=True)] if pair else [Column("kernel"), Column("figure", figures=True)]
    )
    columns += [Column(name, figures=True) for name in ("change", "95 % interval", "H-L", "p", "exact p", "blocks")]
    cells = [(row, place, change) for row in rows for place, change in enumerate(row.changes, 1)]
    return Table(
        columns=tuple(clean_column(column) for column in (*columns, Column("verdict"))),
        rows=tuple(tuple(map(clean, _cells(row, place, change, result, pair))) for row, place, change in cells),
        remarks=("",) * len(cells),
    )


def clean_column(column: Column) -> Column:
    """A name that a person typed may have anything in it."""
    return Column(clean(column.title), column.figures)


def direction(row: Row) -> str:
    """Which side is better, for the head of a table."""
    return {Better.HIGHER: "higher is better", Better.LOWER: "lower is better", None: "neither is better"}[row.better]


def _cells(row: Row, place: int, change: Change, result: Result, pair: bool) -> Iterator[str]:
    yield row.label
    yield mean_text(row.sides[0], row.objective)
    if not pair:
        yield change.arm
    yield mean_text(row.sides[place], row.objective)
    yield from _of_effect(change, row.objective)
    yield verdict(change, result.delta)


def mean_text(side: Side, objective: Objective) -> str:
    """The mean of a side as it stands in a table."""
    return "n/a" if side.mean is None else objective.cell(side.mean)


def _of_effect(change: Change, objective: Objective) -> Iterator[str]:
    one = change.effect
    if one is None:
        yield from (units.UNKNOWN,) * 6
        return
    yield change_text(one.estimate, one, objective)
    yield interval_text(one, objective)
    yield change_text(one.hodges_lehmann, one, objective)
    yield p_text(change.adjusted_p)
    yield p_text(one.exact_p)
    yield str(one.blocks)


def change_text(value: float, one: Effect, objective: Objective) -> str:
    """A ratio in percent, from ten times on as a factor; a difference with its unit."""
    if not math.isfinite(value):
        return units.UNKNOWN
    if one.scale is Scale.DIFFERENCE:
        return f"{'-' if value < 0 else '+'}{objective.text(abs(value))}"
    return f"{value:.1f}x" if value >= _TIMES_FROM else _percent(value - 1)


def _percent(share: float) -> str:
    """With its sign; nothing has none."""
    text = f"{100 * share:+.1f}"
    return f"{text.lstrip('+-') if float(text) == 0 else text} %"


def interval_text(one: Effect, objective: Objective) -> str:
    """Both ends; a dash of one block, which has none."""
    if math.isinf(one.half_width):
        return units.UNKNOWN
    low, high = (change_text(end, one, objective) for end in one.interval)
    return f"[{low}, {high}]"


def p_text(p: float) -> str:
    """Two digits, down to a ten-thousandth."""
    if math.isnan(p):
        return units.UNKNOWN
    return f"<{_LEAST_P:.4f}" if p < _LEAST_P else f"{p:.2g}"


def verdict(change: Change, delta: float) -> str:
    """The word, and what goes with it; why there is none, or will be none of more blocks."""
    if change.decision is None:
        return f"n/a ({change.absent})"
    word = _word(change, change.decision, f"{100 * delta:g} %")
    return f"{word}; n/a {change.absent}" if change.absent else word


def _word(change: Change, decision: Decision, band: str) -> str:
    if decision.outcome is Outcome.SAME:
        return f"the same within ±{band}"
    if decision.outcome is Outcome.UNCLEAR:
        return f"unclear ({_needed(change, decision.needed)})"
    marks = [f"by less than {band}" if decision.small else "", "fragile" if decision.fragile else ""]
    return ", ".join(filter(None, (str(decision.outcome), *marks)))


def _needed(change: Change, needed: int | None) -> str:
    if change.effect is None or change.effect.blocks < _PAIR:
        return "one block has no interval"
    return (
        "more than 1,000 blocks would tell" if needed is None else f"about {units.plural(needed, 'block')} would tell"
    )


# What is to be known beside them


def sentences(result: Result) -> Iterator[str]:
    """The gravest first."""
    yield from (
        f"{one} and {other} are the same kernel: only noise differs between them." for one, other in result.equal
    )
    yield from _of_placebo(result)
    yield from _of_blocks(result)
    changes = [(row, change) for row in result.rows for change in row.changes]
    differences = dict.fromkeys(
        f"{row.objective.metric} on {row.label}"
        for row, change in changes
        if change.effect is not None and change.effect.scale is Scale.DIFFERENCE
    )
    if differences:
        yield f"Zero or negative in some run, so that differences are given and not ratios: {', '.join(differences)}."
    if any(change.decision is not None and change.decision.fragile for _, change in changes):
        yield (
            "A fragile row differs by the interval, and not by the exact test at 5 %: one wild run or too few blocks"
            " may have made the difference."
        )
    if result.void:
        yield f"{units.plural(result.void, 'block')} with a weak or failed run did not count{_instead(result)}."


def _instead(result: Result) -> str:
    """Whether sound blocks took the place of those that are void: time or patience may be at an end."""
    if not result.missing:
        return "; others took their place"
    of = "" if result.missing == result.void else f" after {result.missing} of them"
    return f"; no sound one was measured{of or ' since'}"


def _of_placebo(result: Result) -> Iterator[str]:
    found = [(row, change) for row in result.rows for change in row.changes if change.placebo]
    for row, change in found:
        if change.decision is not None and change.decision.outcome in (Outcome.FASTER, Outcome.SLOWER):
            yield (
                f"{change.arm} is the kernel {result.arms[0].name}, and {change.decision.outcome} on {row.label}:"
                " something besides the kernel makes a difference there."
            )
    floors = [
        f"{half_width_text(change.effect, row.objective)} on {row.label}"
        for row, change in found
        if change.effect is not None and change.effect.blocks >= _PAIR
    ]
    if floors:
        yield f"Noise floor, half of the interval between two measurements of one kernel: {', '.join(floors)}."


def half_width_text(one: Effect, objective: Objective) -> str:
    """How far the interval reaches to either side."""
    if one.scale is Scale.DIFFERENCE:
        return f"±{objective.text(one.half_width)}"
    return (
        f"±{100 * math.expm1(one.half_width):.1f} %" if one.half_width < math.log(_TIMES_FROM) else "more than tenfold"
    )


def _of_blocks(result: Result) -> Iterator[str]:
    counts = [one.effect.blocks for row in result.rows for one in row.changes if one.effect is not None]
    least, needed = min(counts, default=0), blocks_for_exact(result.tested)
    if least and least_exact_p(least) > ALPHA:
        yield few_blocks(least)
    elif least and least < needed:
        yield (
            f"In a family of {result.tested} tests the exact test by itself could reach 5 % from {needed} blocks on;"
            " the interval decides."
        )


def few_blocks(blocks: int) -> str:
    """What is to be known of fewer blocks than six."""
    return (
        f"With {units.plural(blocks, 'block')} the exact test cannot reach 5 %: its least p-value is"
        f" {100 * least_exact_p(blocks):.1f} %. It takes {blocks_for_exact(1)} blocks."
    )


def mean_sentence(one: MeanChange) -> str:
    """How much better or worse a kernel is over all matched rows."""
    low, high = one.effect.interval
    interval = f", [{low:.3f}, {high:.3f}]" if one.effect.blocks >= _PAIR else " (one block has no interval)"
    return (
        f"{one.effect.estimate:.3f} times as good as the first kernel{interval}, geometric mean over"
        f" {units.plural(one.rows, 'row')} that every kernel has, of {units.plural(one.effect.blocks, 'block')}"
    )


def exploratory(result: Result) -> Iterator[Block]:
    """How many of the other figures differ, and the surest of them."""
    if not result.explored:
        return
    found = result.different
    yield Paragraph(
        f"{len(found):,} of {units.plural(result.explored, 'other figure')} of the judged runs differ; of those that"
        " do, 5 % may be false (Benjamini and Hochberg). Nothing is concluded from them."
    )
    if found:
        rows = tuple(tuple(map(clean, _explored_cells(row, change))) for row, change in found[:_LISTED])
        yield Table(_EXPLORED, rows, ("",) * len(rows))
    if len(found) > _LISTED:
        yield Paragraph(f"and {len(found) - _LISTED:,} more, which the JSON document has.")


_EXPLORED = (
    Column("figure"), Column("better"), Column("on"), Column("kernel"), Column("first", figures=True),
    Column("figure of it", figures=True), Column("change", figures=True), Column("95 % interval", figures=True),
    Column("p", figures=True), Column("blocks", figures=True),
)  # fmt: skip


def _explored_cells(row: Row, change: Change) -> Iterator[str]:
    one, objective = change.effect, row.objective
    side = next(side for side in row.sides if side.arm == change.arm)
    yield from (objective.label, str(row.better or units.UNKNOWN), row.label, change.arm)
    yield from (mean_text(row.sides[0], objective), mean_text(side, objective))
    if one is not None:
        yield from (change_text(one.estimate, one, objective), interval_text(one, objective), p_text(change.adjusted_p))
        yield str(one.blocks)
