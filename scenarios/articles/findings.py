"""A finding of an article as a quotient of two figures: as recorded, as measured here, and whether it holds.

Everything here is a function of the recorded texts, and of the documents that bisector prints. What is wanted of a
quotient is stated with the finding, before anything is measured.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from bisector.core import units
from bisector.core.figures import JobFigures, Run
from bisector.core.objective import WORST, Objective
from bisector.workload.fio.output import parse_text

RECORDED = Path(__file__).parents[2] / "tests/data/recorded-runs"
OLD, NEW = "old", "new"  # the ends of a bisection, as its document calls them
_UNKNOWN = "It did not show here; no reason for that was written down beforehand, and none is known."


class Verdict(StrEnum):
    """What became of a finding."""

    HELD = "held"
    NOT_HELD = "not held"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure: where it is recorded, and where it is measured.

    ``recorded`` is a file of the recorded set, without its ending; empty where nothing is recorded. Of a comparison
    ``stack`` and ``job`` say which row, ``arm`` which kernel (empty for all), ``phase`` which run of a trial (empty for
    the judged one). Of a bisection ``arm`` is an end.
    """

    label: str
    article: str
    recorded: str
    run: str
    stack: str = ""
    job: str = ""
    arm: str = ""
    phase: str = ""
    metric: str = "read.iops"
    over: str = WORST

    @property
    def objective(self) -> Objective:
        """The metric, and over which jobs."""
        return Objective(self.metric, self.over)

    @property
    def recorded_value(self) -> float | None:
        """What fio printed; None where nothing is recorded."""
        if not self.recorded:
            return None
        return self.objective.value(run_of(_recorded_jobs(RECORDED / self.article / f"{self.recorded}.txt")))


@cache
def _recorded_jobs(path: Path) -> tuple[JobFigures, ...]:
    return parse_text(path.read_text(encoding="utf-8")).jobs


def run_of(jobs: Iterable[JobFigures], name: str = "") -> Run:
    """A run with these figures, of which nothing else is known."""
    return Run(name, "", 0.0, tuple(jobs), None, None, None, None)


@dataclass(frozen=True, slots=True)
class Quotient:
    """``low`` and ``high`` are of a 95 % interval, or of the least and the greatest of two measured values each."""

    value: float
    low: float
    high: float
    of_interval: bool = False

    @property
    def text(self) -> str:
        """For a person: ``5.4 (5.1 to 5.7)``."""
        if self.low == self.high:
            return digits(self.value)
        how = "95 %: " if self.of_interval else ""
        return f"{digits(self.value)} ({how}{digits(self.low)} to {digits(self.high)})"


def digits(value: float) -> str:
    """Two digits at least: ``0.66``, ``5.4``, ``112``, ``3,983``."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.{1 if value >= 10 else 2}f}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What bisector printed of each run, by its name, and the figures of the runs of trials by number and phase.

    ``missing`` says of a run that has not ended why; what it measured until then is among the documents.
    """

    documents: Mapping[str, Mapping[str, Any]]
    phases: Mapping[str, Mapping[tuple[int, str], Run]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def values(self, cell: Cell) -> tuple[float, ...]:
        """Every value of a cell, in the order of measuring."""
        document = self.documents.get(cell.run)
        if document is None:
            return ()
        if "trials" in document:
            return tuple(_of_end(document, cell.arm))
        row = _row(document, cell)
        if row is None:
            return ()
        of_arm = [one for one in row["values"] if cell.arm in ("", one["arm"])]
        if not cell.phase:
            return tuple(float(one["value"]) for one in of_arm)
        phases = self.phases.get(cell.run, {})
        runs = (phases.get((one["n"], cell.phase)) for one in of_arm)
        return tuple(cell.objective.value(run) for run in runs if run is not None)

    def why_absent(self, cell: Cell) -> str:
        """Why there is no value of a cell."""
        document = self.documents.get(cell.run, {})
        absent = _absent(document, cell)
        return absent or self.missing.get(cell.run) or "bisector shows no value of it"

    def quotient(self, over: Cell, under: Cell) -> Quotient | None:
        """Of two cells; with the interval of the comparison where it compares just these; None without values."""
        compared = self._compared(over, under)
        if compared is not None:
            return compared
        above, below = self.values(over), self.values(under)
        if not above or not below or min(*above, *below, math.inf) <= 0:
            return None
        return Quotient(_mean(above) / _mean(below), min(above) / max(below), max(above) / min(below))

    def _compared(self, over: Cell, under: Cell) -> Quotient | None:
        """Two kernels on one setup: what bisector says of them."""
        document, row = self.documents.get(over.run), None
        if document is not None and "rows" in document and over.arm != under.arm and not over.phase:
            row = _row(document, over)
        if row is None or _row(document or {}, under) is not row:
            return None
        first = document["arms"][0]["name"] if document is not None else ""
        other = over.arm if under.arm == first else under.arm
        change = next((one for one in row["changes"] if one["arm"] == other), None)
        if change is None or first not in (over.arm, under.arm) or change["scale"] != "ratio" or change["low"] is None:
            return None
        found = (change["estimate"], change["low"], change["high"])
        if other != over.arm:
            value, high, low = (1 / one for one in found)
            found = (value, low, high)
        return Quotient(*found, of_interval=True)


def _row(document: Mapping[str, Any], cell: Cell) -> Mapping[str, Any] | None:
    """The row of a cell; of a phase that of the judged run, which has the numbers of the trials."""
    for row in (*document.get("rows", ()), *document.get("exploratory", ())):
        if row["stack"] == cell.stack and cell.job in row["workload"] and row["metric"] == cell.metric:
            return row  # type: ignore[no-any-return] # of JSON
    return None


def _absent(document: Mapping[str, Any], cell: Cell) -> str:
    """Why bisector has no value of it, as it says."""
    row = _row(document, cell)
    reasons = row["absent"] if row is not None else {}
    if cell.arm in reasons or (not cell.arm and reasons):
        return f"not measured: {reasons.get(cell.arm) or next(iter(reasons.values()))}"
    void = [one["void"] for one in document.get("blocks", ()) if one["void"] and cell.stack in one["setup"]]
    return f"no block counts: {void[-1]}" if void and row is None else ""


def _of_end(status: Mapping[str, Any], end: str) -> Iterable[float]:
    """The values of whole runs of an end of a bisection."""
    sha = status[end]["sha"]
    for trial in status["trials"]:
        whole = not any(run["stopped_early"] for run in trial["runs"])
        if trial["sha"] == sha and trial["kind"] == "commit" and trial["value"] is not None and whole:
            yield float(trial["value"])


def _mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    return math.exp(fmean(map(math.log, values)))


@dataclass(frozen=True, slots=True)
class Shown:
    """What is said of a finding; ``why`` is a sentence, empty of one that is held."""

    sentence: str
    wanted: str
    recorded: str
    measured: str
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """``over`` divided by ``under`` is at least ``least`` and at most ``most``.

    ``otherwise`` says why that may not be so in a small virtual machine; empty where no reason is known beforehand.
    """

    article: str
    sentence: str
    over: Cell
    under: Cell
    least: float = 0.0
    most: float = math.inf
    otherwise: str = ""

    @property
    def wanted(self) -> str:
        """The condition, for a person."""
        bounds = [f"at least {self.least:g}"] * (self.least > 0)
        bounds += [f"at most {self.most:g}"] * (self.most < math.inf)
        return " and ".join(bounds)

    @property
    def recorded(self) -> float | None:
        """The quotient that was recorded."""
        over, under = self.over.recorded_value, self.under.recorded_value
        return None if over is None or under is None else over / under

    def holds(self, value: float) -> bool:
        """Whether a quotient is as it is wanted."""
        return self.least <= value <= self.most

    def shown(self, measured: Measured) -> Shown:
        """What came of it. It is held where the whole interval is as it is wanted."""
        recorded = "not on record" if self.recorded is None else digits(self.recorded)
        found = measured.quotient(self.over, self.under)
        if found is None:
            lacking = next((one for one in (self.over, self.under) if not measured.values(one)), self.under)
            why = f"{lacking.label}: {measured.why_absent(lacking)}."
            return Shown(self.sentence, self.wanted, recorded, units.UNKNOWN, Verdict.NOT_SHOWN, why)
        if self.holds(found.low) and self.holds(found.high):
            return Shown(self.sentence, self.wanted, recorded, found.text, Verdict.HELD)
        crosses = self.holds(found.value) or self.holds(found.low) or self.holds(found.high)
        why = "What was measured lies on both sides of the limit." if crosses else self.otherwise or _UNKNOWN
        return Shown(self.sentence, self.wanted, recorded, found.text, Verdict.NOT_HELD, why)


@dataclass(frozen=True, slots=True)
class Named:
    """A bisection names the commit that it has to."""

    article: str
    run: str
    sentence: str
    recorded: str
    judge: Callable[[Mapping[str, Any]], tuple[bool, str]]

    def shown(self, measured: Measured) -> Shown:
        """What came of it."""
        wanted, status = "the planted commit", measured.documents.get(self.run)
        if status is None or self.run in measured.missing:
            why = measured.missing.get(self.run, "it was not run")
            return Shown(self.sentence, wanted, self.recorded, units.UNKNOWN, Verdict.NOT_SHOWN, f"{why}.")
        right, sentence = self.judge(status)
        answer = status["first_fixed"]
        named = f"{answer['sha'][:12]} in {len(status['trials'])} trials" if answer else status["state"]
        return Shown(self.sentence, wanted, self.recorded, named, Verdict.HELD if right else Verdict.NOT_HELD, sentence)


def figure(cell: Cell, measured: Measured) -> tuple[str, str]:
    """What a cell was recorded with, and each value that was measured, for a person."""
    recorded = cell.recorded_value
    values = measured.values(cell)
    text = cell.objective.text
    return (units.UNKNOWN if recorded is None else text(recorded)), ", ".join(map(text, values)) or units.UNKNOWN
