"""The figures of a comparison as tables and sentences.

Each deciding figure has a table of its own, with the better direction in its caption (as in benchstat,
golang.org/x/perf), narrow enough to be pasted into a mail. A row that does not differ is not called the same: that
takes an interval inside the band. The rest (tests, means over setups, stacks, other figures) decides nothing.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bisector.analysis.comparison import ALPHA, Effect, Outcome, Scale, blocks_for_exact, least_exact_p
from bisector.core import units
from bisector.core.metric import Better, Unit, short
from bisector.core.objective import Objective
from bisector.core.verdict import State
from bisector.report.blocks import Block, Column, Fact, FactList, Paragraph, Role, Row, Table
from bisector.status.blocks import Blocks, BlockState, comparable, left_s, result_of
from bisector.status.comparison import (
    ComparedChange,
    ComparedRow,
    ComparisonResult,
    stack_contrasts,
)
from bisector.status.from_record import run_command
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store, state_of

_LEAST_P = 1e-4
_TIMES_FROM = 10.0
_THREE_DIGITS = 3
_PAIR, _NARROW, _SMALL = 2, 0.001, 0.01
_SPARE = 1.1  # so that a block that takes a little longer than earlier ones still fits
_LISTED = 20
_SIDES = {Better.HIGHER: "higher is better", Better.LOWER: "lower is better", None: "neither is better"}
_ROLES = {Outcome.FASTER: Role.BETTER, Outcome.SLOWER: Role.WORSE}


def deciding_tables(result: ComparisonResult) -> Iterator[Block]:
    """A table for each deciding figure, the meaning of its words, and the notes on it."""
    for objective in dict.fromkeys(row.objective for row in result.rows):
        yield _table(result, [row for row in result.rows if row.objective == objective])
    if result.rows:
        family = f" over the {result.tested} tests together (Holm)" if result.tested > 1 else ""
        blocks = "blocks" if len(result.hosts) <= 1 else "the blocks of one host, the one that has the most of a setup"
        yield Paragraph(
            f"Figures are means over {blocks}. The change is the geometric mean of the ratios to"
            f" {result.arms[0].name} within blocks, with its 95 % interval by Student's t. Faster, slower:"
            f" the difference is significant at 5 %{family}. Same ±{100 * result.delta:g} %: the whole interval lies in"
            " this band. Unclear: neither."
        )
    yield from map(Paragraph, sentences(result))


def _table(result: ComparisonResult, rows: Sequence[ComparedRow]) -> Table:
    """With two kernels, each has a column; with more, each has a row, the reference first."""
    shown: list[Row] = []
    is_pair = len(result.arms) == _PAIR
    for row in rows:
        first, *others = row.sides
        means = ["n/a" if side.mean is None else row.objective.cell(side.mean) for side in row.sides]
        if not is_pair:
            rest = ("", "", "reference") if first.figures else (units.UNKNOWN, units.UNKNOWN, "n/a")
            lost = f"n/a {first.absent}" if first.figures and first.absent else first.absent
            shown.append(Row((row.label, first.arm, means[0], *rest), lost))
        for side, change, mean in zip(others, row.changes, means[1:], strict=True):
            told = [units.UNKNOWN] * 2
            if (one := change.effect) is not None:
                # One block has no interval.
                ends = (change_text(end, one, row.objective) for end in one.interval)
                interval = units.UNKNOWN if math.isinf(one.half_width) else span(*ends)
                told = [change_text(one.estimate, one, row.objective), interval]
            figures = means if is_pair else (side.arm, mean)
            cells = (row.label, *figures, *told, word(change, result.delta))
            shown.append(Row(cells, _remark(change, result.delta), change_role(change)))
    kernels = [Column(arm.name, figures=True) for arm in result.arms]
    return Table(
        columns=(
            Column("setup"),
            *(kernels if is_pair else (Column("kernel"), Column("figure", figures=True))),
            Column("change", figures=True),
            Column("95 % interval", figures=True),
            Column("verdict", verdict=True),
        ),
        rows=tuple(shown),
        caption=caption(rows[0]),
        grouped=True,
    )


def caption(row: ComparedRow) -> str:
    """A figure and its better side."""
    return f"{row.objective.label} ({_SIDES[row.objective.better_side]})"


def change_role(change: ComparedChange) -> Role:
    """The role that a change is shown in."""
    return Role.PLAIN if change.decision is None else _ROLES.get(change.decision.outcome, Role.PLAIN)


def change_text(value: float, one: Effect, objective: Objective) -> str:
    """A ratio as by :func:`ratio_text`, a difference as by :func:`difference_text`."""
    if one.scale is Scale.RATIO:
        return ratio_text(value, one.estimate, one.half_width)
    return difference_text(value, objective)


def difference_text(value: float, objective: Objective) -> str:
    """A difference with its sign and unit: ``+12 IOPS``, ``-3.0 points``."""
    return f"{'-' if value < 0 else '+'}{_difference(abs(value), objective)}"


def _difference(value: float, objective: Objective) -> str:
    """The unsigned difference; shares differ by percentage points, since a percent sign would read as a ratio."""
    text = objective.text(value)
    return f"{text.removesuffix(' %')} points" if objective.definition.unit is Unit.PERCENT else text


def ratio_text(ratio: float, estimate: float, half_width: float = math.inf) -> str:
    """``+20.3 %``, or ``12.3x`` for an interval whose ``estimate`` is at least tenfold or at most a tenth.

    A change of less than 1 % has two decimals in a narrow interval, as counted time gives: with one it may seem none.
    """
    if math.isinf(ratio):
        return "no end"
    if not 1 / _TIMES_FROM < estimate < _TIMES_FROM:
        return f"{digits(ratio)}x"
    text = f"{100 * (ratio - 1):+,.{2 if half_width < _NARROW and abs(estimate - 1) < _SMALL else 1}f}"
    return f"{text if text.strip('+-0.') else text[1:]} %"


def digits(ratio: float) -> str:
    """A ratio with three digits, or with all digits before the point: ``1.29``, ``0.0837``, ``1,234``."""
    before_point = len(f"{ratio:.0f}")
    return f"{ratio:#.3g}" if before_point < _THREE_DIGITS else f"{ratio:,.0f}"


def span(low: str, high: str) -> str:
    """``+18.5 to +22.0 %``: a unit that both share is written once."""
    figure, blank, unit = low.rpartition(" ")
    return f"{figure if high.endswith(blank + unit) else low} to {high}"


def p_text(p: float) -> str:
    """A p-value with two digits, down to a ten-thousandth."""
    if math.isnan(p):
        return units.UNKNOWN
    return f"<{_LEAST_P:.4f}" if p < _LEAST_P else f"{p:.2g}"


def word(change: ComparedChange, delta: float) -> str:
    """The verdict on a change, in a word."""
    if change.decision is None:
        return "n/a"
    outcome = change.decision.outcome
    return f"same ±{100 * delta:g} %" if outcome is Outcome.SAME else str(outcome)


def _remark(change: ComparedChange, delta: float) -> str:
    """The remark beside the verdict: why there is none, how sure it is, or how many blocks would tell."""
    decision, one = change.decision, change.effect
    if decision is None or one is None:
        return change.absent
    marks = [f"n/a {change.absent}" if change.absent else ""]
    if decision.outcome is Outcome.UNCLEAR:
        needed = "more than 1,000 blocks would tell"
        if one.blocks < _PAIR:
            needed = "one block has no interval"
        elif decision.needed is not None:
            needed = f"about {units.plural(decision.needed, 'block')} would tell"
        by_itself = one.p <= ALPHA and one.blocks >= _PAIR
        marks = ["it differs by itself, and not in its family" if by_itself else "", needed, *marks]
    else:
        fragile = "fragile: the exact test does not show it" if decision.fragile else ""
        marks = [f"by less than {100 * delta:g} %" if decision.small else "", fragile, *marks]
    return "; ".join(filter(None, marks))


def sentences(result: ComparisonResult) -> Iterator[str]:
    """The notes below the tables, the gravest first."""
    for one in result.several:
        yield f"{one} was not one kernel all the time: it was built anew on the way, and another one came of it."
    for one, other in result.unlike:
        yield (
            f"{one} and {other} were not built in the same way: the compiler, or what bisector adds to a build, had"
            " changed in between, and may be a part of what differs."
        )
    for one, other in result.equal:
        yield f"{one} and {other} are the same kernel: only noise differs between them."
    if result.clock.sentence:
        yield result.clock.sentence
    yield from _of_placebo(result)
    if len(result.hosts) > 1:
        counts = ", ".join(f"{units.plural(count, 'block')} on {host}" for host, count in sorted(result.hosts.items()))
        yield f"Each block is of one host, and its ratios are within it: {counts}."
    effects = [(row, change.effect) for row in result.rows for change in row.changes if change.effect is not None]
    least, needed = min((one.blocks for _, one in effects), default=0), blocks_for_exact(result.tested)
    if least and least_exact_p(least) > ALPHA:
        yield few_blocks(least)
    elif least and least < needed:
        yield (
            f"In a family of {result.tested} tests the exact test by itself could reach 5 % from {needed} blocks on;"
            " the interval decides."
        )
    yield from (f"Too few I/Os {sentence}." for sentence in result.thin)
    differences = dict.fromkeys(
        f"{row.objective.metric} on {row.label}" for row, one in effects if one.scale is Scale.DIFFERENCE
    )
    if differences:
        yield f"Zero or negative in some run, so that differences are given and not ratios: {', '.join(differences)}."
    if any(change.decision is not None and change.decision.fragile for row in result.rows for change in row.changes):
        yield (
            "A fragile row differs by the interval, and not by the exact test at 5 %: one wild run or too few blocks"
            " may have made the difference."
        )
    if result.void:
        # The run may have ended before sound blocks could take their place.
        instead = "others took their place"
        if result.missing:
            after = " since" if result.missing == result.void else f" after {result.missing} of them"
            instead = f"no sound one was measured{after}"
        yield f"{units.plural(result.void, 'block')} did not count (weak, failed or interrupted); {instead}."


def _of_placebo(result: ComparisonResult) -> Iterator[str]:
    floors = []
    placebos = [(row, change) for row in result.rows for change in row.changes if change.placebo]
    for row, change in placebos:
        if change.decision is not None and change.decision.outcome in (Outcome.FASTER, Outcome.SLOWER):
            yield (
                f"{change.arm} is the kernel {result.arms[0].name}, and {change.decision.outcome} on {row.label}:"
                " something besides the kernel makes a difference there."
            )
        if (one := change.effect) is not None and one.blocks >= _PAIR:
            half = f"±{_difference(one.half_width, row.objective)}"
            if one.scale is Scale.RATIO:
                tenfold = one.half_width >= math.log(_TIMES_FROM)
                half = ratio_text(math.exp(one.half_width), 1.0, one.half_width).lstrip("+")
                half = "more than tenfold" if tenfold else f"±{half}"
            floors.append(f"{half} on {row.label}")
    if floors:
        yield f"Noise floor, half of the interval between two measurements of one kernel: {', '.join(floors)}."


def few_blocks(blocks: int) -> str:
    """The note on fewer than six blocks."""
    return (
        f"With {units.plural(blocks, 'block')} the exact test cannot reach 5 %: its least p-value is"
        f" {100 * least_exact_p(blocks):.1f} %. It takes {blocks_for_exact(1)} blocks."
    )


def _plain_table(names: Sequence[str], figures: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table:
    columns = (*map(Column, names), *(Column(title, figures=True) for title in figures))
    return Table(columns, tuple(map(Row, rows)), grouped=True)


def tests(result: ComparisonResult) -> Iterator[Block]:
    """The p-values behind the verdicts, and a second estimate."""
    found = [(row, change, one) for row in result.rows for change in row.changes if (one := change.effect) is not None]
    if not found:
        return
    yield _plain_table(
        ("setup", "kernel"),
        ("p", "exact p", "H-L", "blocks"),
        (
            (
                row.label,
                change.arm,
                p_text(change.adjusted_p),
                p_text(one.exact_p),
                change_text(one.hodges_lehmann, one, row.objective),
                str(one.blocks),
            )
            for row, change, one in found
        ),
    )
    adjusted = f", adjusted for the {result.tested} tests together (Holm)" if result.tested > 1 else ""
    yield Paragraph(
        f"p: by Student's t{adjusted}; at most 5 % is faster or slower. Exact p: by the permutations within blocks, not"
        " adjusted. H-L: the change by Hodges and Lehmann's estimate. The last two decide nothing."
    )
    if any(one.alpha != ALPHA for *_, one in found):
        yield Paragraph(
            "An interval that ends the measurements once it is narrow may be so too early by chance. Where a setup has"
            " one alone, it reaches to the 98 % point of t instead of the 97.5 % point, and p is 1.25 times as large."
        )


def means(result: ComparisonResult) -> Iterator[Block]:
    """The mean change of each kernel over the setups that every kernel has."""
    if not result.means:
        return
    rows = []
    for one in result.means:
        estimate = one.effect.estimate
        ends = span(*(ratio_text(end, estimate, one.effect.half_width) for end in one.effect.interval))
        ends = ends if one.effect.blocks >= _PAIR else units.UNKNOWN  # one block has no interval
        rows.append((one.arm, ratio_text(estimate, estimate, one.effect.half_width), ends, str(one.effect.blocks)))
    yield _plain_table(("kernel",), ("change", "95 % interval", "blocks"), rows)
    yield Paragraph(
        f"Geometric mean of the changes on {result.means[0].rows} of {units.plural(len(result.rows), 'setup')}, those"
        " that every kernel has, turned so that + is better: a latency that falls to half counts as IOPS that double."
        " No verdict is made of it."
    )


def stacks(result: ComparisonResult) -> Iterator[Block]:
    """How much more, or less, each kernel changes on another stack than on the first one."""
    found = stack_contrasts(result.rows)
    if not found:
        return
    rows = []
    for one in found:
        on_first, on_other = (
            change_text(effect.estimate, effect, row.objective) for row, effect in (one.first, one.other)
        )
        first = f"{one.arm} on {one.first[0].label}: {on_first}"
        ratio, ends = digits(one.contrast.estimate), span(*map(digits, one.contrast.interval))
        rows.append((first, one.stack, on_other, ratio, ends, p_text(one.adjusted_p)))
    titles = ("kernel and its change on the first stack", "stack")
    yield _plain_table(titles, ("change", "ratio", "95 % interval", "p"), rows)
    rest = f" p is adjusted for all {len(found)} rows (Benjamini and Hochberg): of those up to 5 %, 5 % may be false."
    yield Paragraph(
        "Whether a kernel changes more, or less, on a stack than on the first one. The ratio is that of both ratios to"
        f" {result.arms[0].name}, with its interval by Welch's t.{rest if len(found) > 1 else ''} No verdict is made of"
        " it, and a larger p does not show that the changes are equal."
    )


def exploratory(result: ComparisonResult) -> Iterator[Block]:
    """How many of the other figures differ, and the surest of them, by setup."""
    if not result.explored:
        return
    found = result.different
    yield Paragraph(
        f"{len(found):,} of {units.plural(result.explored, 'other figure')} of the judged runs differ; of those that"
        " do, 5 % may be false (Benjamini and Hochberg). Nothing is concluded from them. Figures of several jobs are"
        " made one as in the result."
    )
    places = {id(row): place for place, row in enumerate(result.exploratory)}
    rows = []
    for row, change in sorted(found[:_LISTED], key=lambda one: places[id(one[0])]):
        sides = row.sides[0], next(side for side in row.sides if side.arm == change.arm)
        figures = ("n/a" if side.mean is None else row.objective.cell(side.mean) for side in sides)
        if (one := change.effect) is not None:
            told = (change_text(one.estimate, one, row.objective), p_text(change.adjusted_p))
            rows.append((row.label, short(row.objective.metric), change.arm, *figures, *told))
    if rows:
        titles = (result.arms[0].name, "its figure", "change", "p")
        yield _plain_table(("setup", "figure", "kernel"), titles, rows)
    if len(found) > _LISTED:
        yield Paragraph(f"{len(found) - _LISTED:,} more are in the JSON document.")


# In a terminal


def told(run: RunDirectory, store: Store, blocks: Blocks) -> Iterator[Block]:
    """The deciding tables with their notes, and the state of the run."""
    yield from deciding_tables(result_of(blocks))
    state, message = state_of(run, store)
    said = [_counts(blocks), f"{state}{f': {message}' if message else ''}"]
    if state is State.MEASURED and blocks.unbuilt:
        said.append(f"{', '.join(blocks.unbuilt)} did not build; resume tries it again")
    if state is State.MEASURED and (takes_s := left_s(blocks)):  # it ended by its budget
        about = "about" if blocks.plan.extent.until is None else "at least"
        said.append(f"what is left takes {about} {units.duration(takes_s)}; to give it as much time:")
    goes_on = state in (State.MEASURED, State.STOPPED)
    command = to_go_on(run.path, state, blocks) if goes_on else ""
    yield FactList((Fact("", tuple(said), command=command),))


def to_go_on(run_dir: Path, state: State, blocks: Blocks) -> str:
    """The command that goes on, with more time if the budget ended the run; empty if nothing is left to do."""
    resume = run_command("resume", run_dir)
    if state is not State.MEASURED:
        return resume
    if takes_s := left_s(blocks):
        return f"{resume} --budget {math.ceil(_SPARE * takes_s / 60)}min"
    return resume if blocks.unbuilt else ""


def measured(blocks: Blocks) -> Iterator[Block]:
    """The result so far: the deciding tables and the number of blocks."""
    yield from deciding_tables(result_of(blocks))
    yield Paragraph(_counts(blocks))


def _counts(blocks: Blocks) -> str:
    """One line: the arms, the setups, and the number of blocks."""
    plan = blocks.plan
    first, *others = (arm.name for arm in plan.arms)
    void = blocks.count(BlockState.WEAK) + blocks.count(BlockState.FAILED)
    interrupted = blocks.count(BlockState.INTERRUPTED)
    lost = sum(not (comparable(blocks, setup) or blocks.counted(setup)) for setup in range(len(plan.setups)))
    setups = units.plural(len(plan.setups), "setup") + (f", {lost} of them n/a" if lost else "")
    done = f"{units.plural(blocks.count(BlockState.DONE), 'block')} measured"
    besides = (f", {void} weak or failed" if void else "") + (f", {interrupted} interrupted" if interrupted else "")
    return f"{', '.join(others)} against {first} on {setups}: {done}{besides}"
