from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bisector.core.figures import JobFigures
from bisector.workload.fio.logs import parse_log, with_steady_parts
from tests.examples import job

DATA = Path(__file__).parent.parent / "data" / "fio"


def log_of(iops: Sequence[float], direction: int = 0, step_ms: int = 500) -> str:
    return "".join(f"{(n + 1) * step_ms}, {value:.0f}, {direction}, 4096\n" for n, value in enumerate(iops))


def split(*logs: str, runtime_s: float = 40.0, stopped: bool = False) -> tuple[JobFigures, ...]:
    """Of jobs that read, with fio's own figure of each."""
    jobs = [replace(job(f"job/{n}", _mean(text)), runtime_ms=_end_ms(text)) for n, text in enumerate(logs, 1)]
    return with_steady_parts(jobs, dict(enumerate(logs, 1)), runtime_s, stopped=stopped)


def _mean(text: str) -> float:
    series = parse_log(text)
    return float(np.sum(series.iops * (series.end_ms - series.start_ms)) / series.end_ms[-1])


def _end_ms(text: str) -> int:
    return int(parse_log(text).end_ms[-1])


def course(of: Callable[[float], float], noise: float = 0.02) -> list[float]:
    """80 values of half a second of a run of 40 s, by the second."""
    drawn = np.random.default_rng(1).normal(1.0, noise, 80)
    return [float(of(0.5 * n) * factor) for n, factor in enumerate(drawn)]


@pytest.mark.parametrize(
    ("kernel", "settled_after_s", "least", "most"), [("fixed", 18.0, 4_800, 4_850), ("broken", 12.0, 499.5, 500.5)]
)
def test_recorded_runs_on_a_full_cache(kernel: str, settled_after_s: float, least: float, most: float) -> None:
    """The fixed kernel was at the disk's 500 IOPS for 12 s and more, so that the mean over its run is 3,100."""
    texts = [(DATA / f"{kernel}-full_iops.{n}.log").read_text(encoding="utf-8") for n in (1, 2)]
    for one in split(*texts):
        assert one.settled_after_s == settled_after_s
        assert one.steady_iops is not None
        assert least < one.steady_iops < most


@pytest.mark.parametrize("at_s", [4, 12, 16, 20, 24, 26])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
def test_after_a_step_the_rest_is_steady(at_s: int, noise: float) -> None:
    (one,) = split(log_of(course(lambda s: 500 if s < at_s else 3000, noise)))
    assert one.steady_iops == pytest.approx(3000, rel=0.03)
    assert one.settled_after_s is not None
    assert at_s + 2 <= one.settled_after_s <= at_s + 8


@pytest.mark.parametrize(
    "of",
    [
        lambda s: 1000,
        lambda s: 1500 if int(s) % 2 else 500,
        lambda s: 1990 if int(s) // 10 % 2 == 0 else 10,  # its last quarter is quiet
    ],
)
def test_a_run_that_only_varies_is_steady_from_the_start(of: Callable[[float], float]) -> None:
    (one,) = split(log_of(course(of)))
    assert one.settled_after_s == 2.0
    assert one.steady_iops == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize(
    "of", [lambda s: 500 if s < 30 else 3000, lambda s: 3000 if s < 30 else 500, lambda s: 100 * s]
)
def test_what_changes_to_the_end_has_no_steady_part(of: Callable[[float], float]) -> None:
    (one,) = split(log_of(course(of)))
    assert (one.steady_iops, one.settled_after_s) == (None, 40.0)


def test_jobs_are_steady_when_the_last_one_is() -> None:
    four, sixteen = (log_of([500.0] * 2 * s + [3000.0] * (80 - 2 * s)) for s in (4, 16))
    early, late = split(four, sixteen)
    assert (early.settled_after_s, late.settled_after_s) == (18.0, 18.0)
    assert [one.settled_after_s for text in (four, sixteen) for one in split(text)] == [6.0, 18.0]
    early, late = split(log_of(course(lambda s: 1000)), log_of(course(lambda s: 500 if s < 30 else 3000)))
    assert (early.steady_iops, late.steady_iops) == (None, None)


def test_directions_are_split_by_themselves() -> None:
    reads, writes = [500.0] * 24 + [3000.0] * 56, [700.0] * 80
    log = log_of(reads) + log_of(writes, direction=1)
    jobs = (job("one", float(np.mean(reads))), job("one", float(np.mean(writes)), "write"))
    first, second = with_steady_parts(jobs, {1: log}, 40.0)
    assert (first.settled_after_s, second.settled_after_s) == (14.0, 2.0)


def test_a_run_of_15_min_is_looked_at_in_larger_pieces() -> None:
    values = [500.0 if 0.5 * n < 270 else 20_000.0 for n in range(1800)]
    (one,) = with_steady_parts([job("one", float(np.mean(values)))], {1: log_of(values)}, 900.0)
    assert one.settled_after_s == 315.0
    assert one.steady_iops == pytest.approx(20_000)


def test_intervals_of_a_log_are_not_divided() -> None:
    (one,) = split(log_of([500.0, *[3000.0] * 7], step_ms=5000))
    assert (one.settled_after_s, one.steady_iops) == (10.0, 3000.0)


@pytest.mark.parametrize(
    "log", ["", "garbage", log_of([1.0] * 40_000, step_ms=1), log_of(course(lambda s: 1000), direction=1)]
)
def test_without_a_log_of_its_own_figure_nothing_is_known(log: str) -> None:
    """One of them has a line for each I/O."""
    jobs = (job("one", 1000.0), job("other", 1000.0))
    assert with_steady_parts(jobs, {1: log_of([1000.0] * 80), 2: log}, 40.0) == jobs


def test_io_that_stops_is_steady_at_nothing() -> None:
    values = [1000.0] * 40
    (one,) = with_steady_parts([job("one", 500.0)], {1: log_of(values)}, 40.0)
    assert one.steady_iops == 0.0


def test_of_a_run_that_was_stopped_its_end_counts() -> None:
    values = course(lambda s: 500 if s < 13 else 3000)[:39]
    (one,) = split(log_of(values), stopped=True)
    assert one.steady_iops == pytest.approx(3000, rel=0.02)
    assert one.settled_after_s is None
