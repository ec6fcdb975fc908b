"""Whether a kernel changes more on one stack than on another."""

from dataclasses import replace

import pytest

from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.status.comparison import MeasuredSetup, StackContrast, result, stack_contrasts
from tests.status.test_comparison import AGAIN, BCACHE, LVMCACHE, NEW, OLD, measured

LEVEL = (100.0, 102, 98, 101, 99, 100)
MORE = (130.0, 133, 127, 131, 130, 129)  # +30 %
ALIKE = (101.0, 103, 98.5, 102, 99.5, 101)  # +1 %
HDD = Setup("hdd+ext4", LVMCACHE.workload)


def found(*setups: MeasuredSetup) -> tuple[StackContrast, ...]:
    return stack_contrasts(result((OLD, NEW), setups).rows)


def test_change_of_the_cache_is_the_caches() -> None:
    (one,) = found(measured({"v6.10": LEVEL, "v6.11": ALIKE}, HDD), measured({"v6.10": LEVEL, "v6.11": MORE}))
    assert (one.arm, one.first[0].setup, one.other[0].setup) == ("v6.11", HDD, LVMCACHE)
    assert one.contrast.estimate == pytest.approx(1.3 / 1.0083, abs=0.002)
    assert one.contrast.interval[0] > 1.25
    assert one.adjusted_p < 1e-6


def test_equal_changes_do_not_differ() -> None:
    here, there = (measured({"v6.10": LEVEL, "v6.11": MORE}, setup) for setup in (HDD, LVMCACHE))
    (one,) = found(here, there)
    assert one.contrast.estimate == pytest.approx(1.0)
    assert one.adjusted_p == 1.0


def test_first_stack_that_a_kernel_has_is_the_one() -> None:
    lacking = replace(measured({"v6.10": LEVEL}, HDD), absent={"v6.11": "needs CONFIG_X"})
    setups = [measured({"v6.10": LEVEL, "v6.11": MORE}, setup) for setup in (LVMCACHE, BCACHE)]
    assert [(one.first[0].setup, one.other[0].setup) for one in found(lacking, *setups)] == [(LVMCACHE, BCACHE)]


def test_only_one_figure_of_one_workload_is_compared_and_no_placebo() -> None:
    figures = {"v6.10": LEVEL, "v6.11": MORE, AGAIN.name: ALIKE}
    other_workload = measured(figures, Setup("bcache(ssd,hdd)+ext4", "fio(randrw.fio)"))
    other_figure = measured(figures, BCACHE, Objective("read.bw"))
    rows = result((OLD, NEW, AGAIN), (measured(figures), other_workload, other_figure)).rows
    assert stack_contrasts(rows) == ()
    rows = result((OLD, NEW, AGAIN), (measured(figures), measured(figures, HDD))).rows
    assert [one.arm for one in stack_contrasts(rows)] == ["v6.11"]
    assert stack_contrasts(()) == ()


def test_all_of_them_are_one_family() -> None:
    """Benjamini and Hochberg: of two, the surer p is doubled."""
    setups = [measured({"v6.10": LEVEL, "v6.11": row}, setup)
              for row, setup in ((ALIKE, HDD), (MORE, LVMCACHE), (LEVEL, BCACHE))]  # fmt: skip
    by_stack = {one.other[0].setup: one for one in found(*setups)}
    assert by_stack[LVMCACHE].adjusted_p == pytest.approx(2 * by_stack[LVMCACHE].contrast.p)
    assert by_stack[BCACHE].adjusted_p == by_stack[BCACHE].contrast.p
