"""The report of a comparison in each of its forms, and what scripts read of it."""

import json
import math
import shlex
import shutil
import subprocess
from dataclasses import replace

import pytest

from bisector.analysis.comparison import LOOKED_ALPHA
from bisector.core import json_document, resources, units
from bisector.core.deadline import GuestTime
from bisector.core.json_document import text
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.report.blocks import Section, Table
from bisector.report.comparison import ComparisonReport, page
from bisector.report.comparison_table import (
    deciding_tables,
    digits,
    ratio_text,
    sentences,
    span,
)
from bisector.report.page import html
from bisector.report.terminal import plain
from bisector.status.blocks import TimeSpent
from bisector.status.comparison import ComparedArm
from tests.docs.json_schema import valid
from tests.report import comparison_examples as examples
from tests.report.test_html import HOSTILE, Page


@pytest.mark.parametrize("name", examples.DOCUMENTS)
@pytest.mark.parametrize("suffix", examples.RENDERERS)
def test_golden(name: str, suffix: str) -> None:
    """``python -m tests.report.comparison_examples`` writes them anew; read the difference before it is committed."""
    made = examples.RENDERERS[suffix](page(examples.DOCUMENTS[name]()))
    assert made == examples.golden(name, suffix).read_text(encoding="utf-8")


def table(report: ComparisonReport) -> Table:
    return next(block for block in deciding_tables(report.result) if isinstance(block, Table))


def cells_of(shown: Table) -> list[tuple[str, ...]]:
    return [row.cells for row in shown.rows]


def remarks_of(shown: Table) -> tuple[str, ...]:
    return tuple(row.remark for row in shown.rows)


def test_cell_that_a_tree_cannot_have_is_na_with_the_reason() -> None:
    lacks = {"v6.10": "needs CONFIG_DM_WRITECACHE"}
    alone = {**examples.ALONE, examples.AGAIN.name: examples.ALONE["v6.11"]}
    three = table(
        examples.report(examples.measured(alone, absent=lacks), arms=(examples.OLD, examples.NEW, examples.AGAIN))
    )
    assert (cells_of(three)[0][1:3], cells_of(three)[0][-1]) == (("v6.10", "n/a"), "n/a")
    assert remarks_of(three) == ("needs CONFIG_DM_WRITECACHE", *["v6.10: needs CONFIG_DM_WRITECACHE"] * 2)


def test_kernel_that_is_lost_has_its_values_its_word_and_the_reason() -> None:
    lost = replace(examples.measured(examples.FASTER), absent={"v6.11": "panic: Kernel panic"})
    made = examples.report(lost)
    found = table(made)
    assert (cells_of(found)[0][2], cells_of(found)[0][-1]) == ("496", "faster")
    assert remarks_of(found) == ("n/a after block 6: panic: Kernel panic",)
    written = json_document.plain(made)["rows"][0]
    assert written["absent"] == {"v6.11": "after block 6: panic: Kernel panic"}
    assert (written["changes"][0]["absent"], written["changes"][0]["blocks"]) == (
        "after block 6: panic: Kernel panic",
        6,
    )
    assert len(written["values"]) == 12


@pytest.mark.parametrize(
    ("void", "missing", "said"),
    [
        (2, 0, "2 blocks did not count (weak, failed or interrupted); others took their place."),
        (1, 1, "1 block did not count (weak, failed or interrupted); no sound one was measured since."),
        (4, 3, "4 blocks did not count (weak, failed or interrupted); no sound one was measured after 3 of them."),
    ],
)
def test_blocks_that_did_not_count(void: int, missing: int, said: str) -> None:
    made = examples.report(replace(examples.measured(examples.FASTER), void=void, missing=missing))
    assert said in list(sentences(made.result))


def test_unclear_row_says_how_many_blocks_would_tell() -> None:
    """The golden files have the other words."""
    unclear = table(examples.unclear())
    assert [row[-1] for row in cells_of(unclear)] == ["unclear"]
    assert remarks_of(unclear) == ("about 52 blocks would tell",)


def test_row_that_differs_by_itself_and_not_in_its_family_says_so() -> None:
    """Else its interval, which leaves out 0, contradicts the word."""
    weak = {"v6.10": (100.0,) * 6, "v6.11": (110.0, 102, 112, 101, 111, 103)}
    setups = [examples.measured(weak, Setup(f"{n}", "w"), start=20 * n) for n in range(4)]
    found = table(examples.report(*setups))
    assert {row[-1] for row in cells_of(found)} == {"unclear"}
    assert cells_of(found)[0][4] == "+1.3 to +11.8 %"
    assert remarks_of(found)[0].startswith("it differs by itself, and not in its family; about ")


def test_one_block_has_no_interval() -> None:
    one = {arm: values[:1] for arm, values in examples.FASTER.items()}
    made = examples.report(examples.measured(one), examples.measured(one, examples.BCACHE))
    found = table(made)
    assert cells_of(found)[0][3:] == ("+19.2 %", units.UNKNOWN, "unclear")
    assert remarks_of(found) == ("one block has no interval",) * 2
    assert rows_of(made, "means") == [("v6.11", "+19.2 %", units.UNKNOWN, "1")]
    (change,) = json.loads(text(made))["rows"][0]["changes"]
    assert (change["low"], change["high"], change["p"], change["exact_p"]) == (None, None, 1.0, 1.0)
    assert change["estimate"] == pytest.approx(491 / 412)


def test_title_counts_the_words() -> None:
    """The golden files have those of several kernels."""
    nothing = dict.fromkeys(examples.FASTER, ())
    assert examples.report(examples.measured(nothing)).title.endswith("no result yet")
    twice = {"v6.10": examples.FASTER["v6.10"], examples.AGAIN.name: (409.0, 401, 428, 409, 421, 406)}
    made = examples.report(examples.measured(twice), arms=(examples.OLD, examples.AGAIN))
    assert made.title == "Comparison of v6.10 with itself: the same"


def rows_of(report: ComparisonReport, name: str) -> list[tuple[str, ...]]:
    """The rows of the tables of a section."""
    found: list[Section] = [section for section in page(report).sections if section.name == name]
    return [row for section in found for block in section.blocks if isinstance(block, Table) for row in cells_of(block)]


def test_wider_interval_of_a_lone_look_is_told() -> None:
    looked = replace(examples.measured(examples.FASTER), alpha=LOOKED_ALPHA)
    said = " ".join(plain(page(examples.report(looked))).split())
    assert "it reaches to the 98 % point of t" in said
    assert "98 %" not in plain(page(examples.usual()))


def test_values_of_a_block_are_in_the_columns_of_their_kernels() -> None:
    """Whatever the order was that they were measured in: the number of the trial tells it."""
    made = examples.with_placebo()
    (first, *others) = made.blocks
    turned = replace(first, order=(("v6.11", 99), ("v6.10", None)), why_void="the host was busy")
    assert rows_of(replace(made, blocks=(turned, *others)), "blocks")[0][2:] == (
        units.UNKNOWN, "1001", units.UNKNOWN, f"{units.UNKNOWN} (99)", units.UNKNOWN,
    )  # fmt: skip


def test_of_several_hosts_the_figures_are_those_of_one_and_the_change_is_of_all() -> None:
    made = examples.of_two_hosts()
    (row,) = cells_of(table(made))
    (alone,) = cells_of(table(examples.report(examples.measured(examples.FASTER))))
    assert row[1:3] == ("409", "490")  # of all six they would be 685 and 829
    assert row[3:] == alone[3:]
    blocks = next(block for one in page(made).sections if one.name == "blocks" for block in one.blocks)
    assert isinstance(blocks, Table)
    assert [column.title for column in blocks.columns][:5] == ["setup", "block", "round", "seed", "host"]
    assert [one[4] for one in cells_of(blocks)] == ["bench1", "bench1", "bench2", "bench1", "bench1", "bench2"]
    said = " ".join(plain(page(made)).split())
    assert "Figures are means over the blocks of one host, the one that has the most of a setup." in said
    assert "Each block is of one host, and its ratios are within it: 4 blocks on bench1, 2 blocks on bench2." in said
    assert "host" not in [column.title for column in table(examples.usual()).columns]


def test_a_small_change_that_is_beyond_doubt_does_not_seem_to_be_none() -> None:
    """As in counted time: with one decimal the interval of what is faster would begin at 0.0 %."""
    counted = {"v6.10": (14_303.0,) * 6, "v6.11": (14_309.0, 14_310, 14_309, 14_310, 14_309, 14_310)}
    made = examples.report(examples.measured(counted))
    (row,) = cells_of(table(made))
    assert row[3:] == ("+0.05 %", "+0.04 to +0.05 %", "faster")


def test_ratios() -> None:
    assert [ratio_text(one, one) for one in (1.2034, 0.9996, 0.5, 9.9, 12.04, 0.08374, 5234.0)] == [
        "+20.3 %", "0.0 %", "-50.0 %", "+890.0 %", "12.0x", "0.0837x", "5,234x",
    ]  # fmt: skip
    assert ratio_text(math.inf, 3.0) == "no end"
    assert [ratio_text(one, 1.0, 0.0002) for one in (1.0006, 1.00004, 0.9988)] == ["+0.06 %", "0.00 %", "-0.12 %"]
    assert [digits(one) for one in (0.00012345, 0.999, 9.999, 99.96, 123.4)] == [
        "0.000123", "0.999", "10.0", "100", "123",
    ]  # fmt: skip
    assert (span("+18.5 %", "+22.0 %"), span("9.5x", "12.0x"), span("0.0 %", "no end"), span("+9 ms", "+1 s")) == (
        "+18.5 to +22.0 %", "9.5x to 12.0x", "0.0 % to no end", "+9 ms to +1 s",
    )  # fmt: skip


@pytest.mark.parametrize("name", examples.DOCUMENTS)
def test_tables_can_be_pasted_into_a_mail(name: str) -> None:
    lines = plain(page(examples.DOCUMENTS[name]())).splitlines()
    for until, width in (("Exploratory: other figures", 80), ("Kernels", 86)):
        assert max(map(len, lines[: lines.index(until)])) <= width


def test_placebo_that_differs_is_said_first() -> None:
    drifted = {**examples.FASTER, examples.AGAIN.name: [one * 1.1 for one in examples.FASTER["v6.10"]]}
    made = examples.report(examples.measured(drifted), arms=(examples.OLD, examples.NEW, examples.AGAIN))
    said = examples.RENDERERS["txt"](page(made))
    assert "v6.10 (again) is the kernel v6.10, and faster on" in " ".join(said.split())


def test_html_has_the_tables_with_their_groups_and_no_trials() -> None:
    made = page(examples.usual())
    found = Page(html(made, {"ratios": b"<svg/>"}))
    assert len(found.all("table")) == len([one for section in made.sections for one in section.blocks
                                           if isinstance(one, Table)])  # fmt: skip
    assert len(found.all("caption")) == 1
    assert found.all("details") == []
    assert [image["alt"] for image in found.all("img")] == ["ratios"]
    assert "same ±5 %" in found.text
    # A group of rows is named once.
    found = Page(html(page(examples.with_placebo())))
    heads = [one for one in found.all("th") if one.get("scope") == "rowgroup"]
    assert len(heads) == 4, "of the result, the tests, the other figures and the blocks"


def test_hostile_words_are_text() -> None:
    made = examples.usual()
    arms = (ComparedArm(HOSTILE), examples.NEW)
    result = replace(made.result, arms=arms)
    kernels = tuple(replace(one, commit=HOSTILE, compiler=HOSTILE) for one in made.kernels)
    text_ = html(page(replace(made, result=result, kernels=kernels, storage=((HOSTILE, (HOSTILE,)),))))
    assert len(Page(text_).all("script")) == 1
    for render_ in examples.RENDERERS.values():
        assert "\x1b" not in render_(page(replace(made, result=result, kernels=kernels)))


def test_what_the_hours_went_to_is_told() -> None:
    made = replace(examples.usual(), time=TimeSpent(2_100.0, 280.0, 120.0, 60.0, 1_590.0))
    said = " ".join(examples.RENDERERS["txt"](page(made)).split())
    assert (
        "time 30 min 20 s: boots 2 min, layouts 1 min, workloads 26 min 30 s, all else 50 s (2.7 %); builds 4 min 40 s"
        " beside that"
    ) in said
    printed = json.loads(text(made))["time"]
    assert (printed["other_s"], printed["other_share"]) == (50.0, pytest.approx(50 / 1820))
    assert json.loads(text(examples.usual()))["time"] is None


def test_a_percentile_of_few_ios_is_told_of() -> None:
    def few(one: Trial) -> Trial:
        runs = (replace(run, jobs=tuple(replace(job, total_ios=312) for job in run.jobs)) for run in one.runs)
        return replace(one, runs=tuple(runs))

    usual = replace(examples.measured(examples.FASTER), objective=Objective("read.clat.p99"))
    assert examples.report(usual).result.thin == ()
    blocks = (
        replace(block, trials={arm: (n, few(one)) for arm, (n, one) in block.trials.items()}) for block in usual.blocks
    )
    made = examples.report(replace(usual, blocks=tuple(blocks)))
    said = " ".join(examples.RENDERERS["txt"](page(made)).split())
    assert "Too few I/Os on lvmcache(ssd,hdd)+ext4: read.clat.p99 of 312 I/Os of job " in said
    assert "10 take 1,000 I/Os." in said


def test_what_counted_time_does_not_show_is_said_below_the_tables() -> None:
    counted = GuestTime(kind="instructions", instruction_ns=8)
    made = examples.usual()
    made = replace(made, result=replace(made.result, clock=counted))
    assert counted.sentence in sentences(made.result)
    told = json.loads(text(made))
    assert told["clock"] == {"kind": "instructions", "instruction_ns": 8}
    assert counted.sentence in told["sentences"]


def test_json_has_every_value_what_was_said_and_how_it_stands() -> None:
    printed = valid("compare", text(examples.usual()))
    assert [one["value"] for one in printed["rows"][0]["values"][:2]] == [412.0, 491.0]
    (change,) = printed["rows"][0]["changes"]
    assert (change["outcome"], change["blocks"], change["scale"]) == ("faster", 6, "ratio")
    assert change["low"] < change["estimate"] < change["high"]
    assert printed["rows"][2]["absent"] == {"v6.10": "needs CONFIG_DM_WRITECACHE"}
    assert printed["rows"][2]["changes"][0]["outcome"] is None
    assert {row["deciding"] for row in printed["exploratory"]} == {False}
    assert {change["outcome"] for row in printed["exploratory"] for change in row["changes"]} == {None}
    assert printed["arms"][0]["config_sha256"] == "0123456789abcdef" * 4
    assert len(printed["blocks"]) == 18
    assert (printed["state"], printed["run_dir"], printed["resume_command"]) == ("measured", "/runs/a b", None)
    typed = "bisector resume --run-dir '/runs/a b'"
    stopped = json.loads(text(replace(examples.usual(), state=State.STOPPED, resume_command=typed)))
    assert (stopped["state"], stopped["resume_command"]) == ("stopped", typed)
    # What a kernel changes on either stack.
    (one,) = printed["stacks"]
    assert (one["arm"], one["first"], one["stack"], one["metric"]) == (
        "v6.11", "lvmcache(ssd,hdd)+ext4", "bcache(ssd,hdd)+ext4", "read.iops",
    )  # fmt: skip
    assert one["low"] < one["estimate"] < one["high"] < 1
    assert one["p"] <= one["adjusted_p"] < 0.0001
    assert printed["tested"] == 2


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq here")
@pytest.mark.parametrize(("example", "code"), [("usual", 0), ("matrix", 1), ("unclear", 0)])
def test_jq_of_the_page_about_json_fails_what_is_slower(example: str, code: int) -> None:
    """The command of docs/json.md as it stands there."""
    docs = (resources.ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    (line,) = (line for line in docs.splitlines() if "| jq -e " in line and "slower" in line)
    words = shlex.split(line.partition(" | ")[2].partition("    #")[0])
    found = subprocess.run(words, input=text(getattr(examples, example)()), text=True, capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (code, "")
