"""Findings on planted documents, and what is recorded against the index of the recorded runs."""

import csv
import re
from collections.abc import Iterable

import pytest

from bisector.core.objective import SUM, Objective
from scenarios.articles import sets
from scenarios.articles.articles import articles
from scenarios.articles.findings import RECORDED, Cell, Finding, Measured, Named, Quotient, Verdict, figure, run_of
from scenarios.articles.planted import ALONE, CULPRIT, KERNELS, bisection, comparison
from scenarios.articles.sets import HDD, LVMCACHE, SSD
from tests.examples import run

ARTICLES = articles(KERNELS)
FINDINGS = [one for article in ARTICLES for one in article.findings if isinstance(one, Finding)]
CELLS = [cell for article in ARTICLES for cell in article.cells]
INDEX = list(csv.DictReader((RECORDED / "index.csv").read_text(encoding="utf-8").splitlines()))


def cell(label: str, stack: str, *, arm: str = "", phase: str = "", metric: str = "read.iops") -> Cell:
    return Cell(label, sets.STACKS, "", "run", stack, arm=arm, phase=phase, metric=metric)


FAST, SLOW = cell("SSD", SSD), cell("HDD", HDD)


def indexed(file: str, direction: str) -> list[float]:
    return [float(row["iops"]) for row in INDEX if row["file"] == file and row["direction"] == direction]


@pytest.mark.parametrize("one", [cell for cell in CELLS if cell.recorded and cell.metric.endswith(".iops")])
def test_recorded_iops_are_those_of_the_index(one: Cell) -> None:
    figures = indexed(f"{one.article}/{one.recorded}.txt", one.metric.partition(".")[0])
    assert one.recorded_value == pytest.approx(sum(figures) if one.over == SUM else min(figures))


@pytest.mark.parametrize("one", [cell for cell in CELLS if ".slat." in cell.metric or ".clat." in cell.metric])
def test_recorded_latencies_are_those_that_fio_printed(one: Cell) -> None:
    text = (RECORDED / one.article / f"{one.recorded}.txt").read_text(encoding="utf-8")
    of_direction = text[text.index(f"  {one.metric.partition('.')[0]}") :]
    if one.metric.endswith(".mean"):
        found = re.search(rf"{one.metric.split('.')[1]} \((\w+)\).*avg=\s*([\d.]+)", of_direction)
    else:
        found = re.search(r"clat percentiles \((\w+)\).*?50\.00th=\[\s*(\d+)\]", of_direction, re.DOTALL)
    assert found is not None
    assert one.recorded_value == pytest.approx(float(found[2]) * {"nsec": 1, "usec": 1e3, "msec": 1e6}[found[1]])


@pytest.mark.parametrize("one", FINDINGS, ids=lambda one: f"{one.article}: {one.sentence}")
def test_what_was_recorded_is_as_it_is_wanted(one: Finding) -> None:
    """A limit that the record itself does not keep is none of the article's."""
    if one.recorded is None:
        assert one.over.run == sets.GREP
    else:
        assert one.holds(one.recorded)
    assert one.wanted


def test_the_recorded_bisection() -> None:
    rows = list(csv.DictReader((RECORDED / "expected-verdicts.csv").read_text(encoding="utf-8").splitlines()))
    verdicts = {row["commit"]: row["verdict"] for row in rows}
    assert (verdicts["6cf4cc8f8b3b"], verdicts["4d44ec5ab751"]) == ("fixed", "broken")
    (named,) = (one for article in ARTICLES for one in article.findings if isinstance(one, Named))
    assert named.recorded == f"6cf4cc8f8b3b in {len(rows)} kernels"


def test_every_cell_is_one_of_the_runs() -> None:
    names = {sets.STACKS, sets.GREP, sets.KERNELS, sets.BISECT, sets.SUBMIT, sets.CLOUD}
    assert {one.run for one in CELLS if one.run} == names
    assert {one.article for one in CELLS} == {article.name for article in ARTICLES}


def with_figures(ssd: Iterable[float], hdd: Iterable[float]) -> Measured:
    figures = {SSD: [[one] for one in ssd], HDD: [[one] for one in hdd]}
    stacks = {stack: dict(zip(ALONE, values, strict=True)) for stack, values in figures.items()}
    return Measured({"run": comparison(stacks)})


@pytest.mark.parametrize(
    ("hdd", "verdict", "why"),
    [
        pytest.param((250.0, 240.0), Verdict.HELD, "", id="all of it"),
        pytest.param((2000.0, 2100.0), Verdict.NOT_HELD, "It is small.", id="none of it"),
        pytest.param((700.0, 900.0), Verdict.NOT_HELD, "lies on both sides", id="some of it"),
    ],
)
def test_a_finding_is_held_when_every_value_says_so(hdd: tuple[float, float], verdict: Verdict, why: str) -> None:
    shown = Finding("x", "Faster.", FAST, SLOW, 10, otherwise="It is small.").shown(with_figures((8000, 7900), hdd))
    assert shown.verdict is verdict
    assert why in shown.why
    assert bool(why) == bool(shown.why)


class Contrary(Measured):
    """Everything is as it is not wanted."""

    def quotient(self, over: Cell, under: Cell) -> Quotient:
        (finding,) = (one for one in FINDINGS if (one.over, one.under) == (over, under))
        value = finding.least / 2 if finding.least else finding.most * 2
        return Quotient(value, value, value)


@pytest.mark.parametrize("one", FINDINGS, ids=lambda one: f"{one.article}: {one.sentence}")
def test_what_is_not_held_is_never_without_a_reason(one: Finding) -> None:
    shown = one.shown(Contrary({}))
    assert shown.verdict is Verdict.NOT_HELD
    assert shown.why.endswith(".")
    assert shown.why == (one.otherwise or shown.why)


def test_the_least_favourable_values_stand_behind_a_quotient() -> None:
    found = with_figures((8000, 7000), (250, 200)).quotient(FAST, SLOW)
    assert found is not None
    assert (found.low, found.high, found.of_interval) == (7000 / 250, 8000 / 200, False)
    assert found.text == "33.5 (28.0 to 40.0)"


def test_an_upper_limit() -> None:
    finding = Finding("x", "Near.", FAST, SLOW, 0.8, 1.25)
    assert finding.wanted == "at least 0.8 and at most 1.25"
    assert finding.shown(with_figures((100, 101), (99, 100))).verdict is Verdict.HELD
    assert finding.shown(with_figures((200, 201), (99, 100))).verdict is Verdict.NOT_HELD


def test_two_kernels_on_one_setup_are_compared_by_bisector() -> None:
    rows = {"before": (100.0, 103, 98, 101), "after": (410.0, 400, 395, 402)}
    measured = Measured({"run": comparison({HDD: rows})})
    before, after = (cell(arm, HDD, arm=arm) for arm in rows)
    found, turned = measured.quotient(after, before), measured.quotient(before, after)
    assert found is not None
    assert turned is not None
    assert found.of_interval
    assert 3.8 < found.low < found.value < found.high < 4.2
    assert (turned.value, turned.low, turned.high) == pytest.approx((1 / found.value, 1 / found.high, 1 / found.low))
    assert "95 %" in found.text


def test_an_exploratory_figure_is_measured_too() -> None:
    latency = cell("latency", HDD, metric="read.clat.mean")
    assert with_figures((100, 101), (200, 250)).values(latency) == (5e6, 4e6)


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        pytest.param(Measured({}), "no value", id="nothing"),
        pytest.param(Measured({}, missing={"run": "it was not run"}), "it was not run", id="not run"),
        pytest.param(
            Measured({"run": comparison({SSD: {"a": (1.0,), "b": (2.0,)}})}),
            "HDD: bisector shows no value",
            id="no row",
        ),
    ],
)
def test_what_is_missing_is_said(measured: Measured, why: str) -> None:
    shown = Finding("x", "Faster.", FAST, SLOW, 10, otherwise="It is small.").shown(measured)
    assert (shown.verdict, shown.measured) == (Verdict.NOT_SHOWN, "–")  # noqa: RUF001 - the sign for no figure
    assert why in shown.why


def test_why_a_block_does_not_count_is_said() -> None:
    document = comparison({SSD: {"a": (1.0,), "b": (2.0,)}})
    document["blocks"][0] |= {"setup": HDD, "void": "a: the cache was not full"}
    why = Finding("x", "Faster.", FAST, SLOW, 10).shown(Measured({"run": document})).why
    assert why == "HDD: no block counts: a: the cache was not full."


def test_a_zero_is_no_quotient() -> None:
    measured = with_figures((8000, 7900), (250, 240))
    measured.documents["run"]["rows"][1]["values"][0]["value"] = 0.0
    assert measured.quotient(FAST, SLOW) is None


def test_the_run_that_fills_a_cache_is_found_by_the_numbers_of_the_trials() -> None:
    stacks = {LVMCACHE: dict.fromkeys(ALONE, (100.0,))}
    phases = {"run": {(100, "empty"): run_of(run("empty", 7000).jobs), (101, "empty"): run_of(run("empty", 7200).jobs),
                      (999, "empty"): run_of(run("empty", 1).jobs)}}  # fmt: skip
    measured = Measured({"run": comparison(stacks)}, phases)
    assert measured.values(cell("empty", LVMCACHE, phase="empty")) == (7000.0, 7200.0)
    assert measured.values(cell("full", LVMCACHE)) == (100.0, 100.0)
    assert figure(cell("empty", LVMCACHE, phase="empty"), measured)[1] == "7,000 IOPS, 7,200 IOPS"


@pytest.mark.parametrize(
    ("first_fixed", "verdict"), [(CULPRIT.sha, Verdict.HELD), ("d" * 40, Verdict.NOT_HELD), (None, Verdict.NOT_HELD)]
)
def test_the_bisection_has_to_name_its_commit(first_fixed: str | None, verdict: Verdict) -> None:
    (article,) = (one for one in ARTICLES if one.name == sets.BISECT)
    named, ends = (one.shown(Measured({sets.BISECT: bisection(first_fixed)})) for one in article.findings)
    assert named.verdict is verdict
    assert CULPRIT.sha[:12] in named.why
    assert (ends.verdict, ends.measured) == (Verdict.HELD, "7.09")


def test_a_bisection_that_has_not_ended_names_nothing() -> None:
    (article,) = (one for one in ARTICLES if one.name == sets.BISECT)
    measured = Measured({sets.BISECT: bisection(CULPRIT.sha)}, missing={sets.BISECT: "it was not run"})
    assert article.findings[0].shown(measured).verdict is Verdict.NOT_SHOWN


def test_the_objective_of_a_cell() -> None:
    assert {one.objective for one in CELLS if one.run == sets.STACKS} == {Objective("read.iops", SUM)}
