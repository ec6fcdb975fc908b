"""From sound blocks to what is said of kernels; the statistics themselves are in tests/analysis/test_comparison.py."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from bisector.analysis.comparison import Outcome, Scale
from bisector.core.figures import Latency
from bisector.core.metric import LatencyKind
from bisector.core.objective import MEAN, SUM, Objective
from bisector.core.subject import Setup
from bisector.core.trial import Trial
from bisector.status.comparison import (
    ComparedArm,
    ComparedRow,
    ComparisonResult,
    MeasuredSetup,
    SoundBlock,
    figure,
    result,
)
from tests.examples import commit, run, trial

OLD, NEW, AGAIN = ComparedArm("v6.10"), ComparedArm("v6.11"), ComparedArm("v6.10 (again)", placebo=True)
LVMCACHE = Setup("lvmcache(ssd,hdd)+ext4", "fio(partial.fio)")
BCACHE = Setup("bcache(ssd,hdd)+ext4", "fio(partial.fio)")


def measured(
    figures: Mapping[str, Sequence[float]], setup: Setup = LVMCACHE, objective: Objective | None = None, n: int = 1
) -> MeasuredSetup:
    """A setup of one job, whose IOPS are given for each arm and block."""
    blocks = []
    for round_, row in enumerate(zip(*figures.values(), strict=True), 1):
        numbered = {
            arm: (n + place, of_iops(value)) for place, (arm, value) in enumerate(zip(figures, row, strict=True))
        }
        blocks.append(SoundBlock(round_, numbered, seed=round_))
        n += len(row)
    return MeasuredSetup(setup, objective or Objective(), tuple(blocks), {})


def of_iops(*iops: float) -> Trial:
    return trial(commit(1), run("full", *iops))


FASTER = {"v6.10": (100.0, 102, 98, 101, 99, 100), "v6.11": (120.0, 123, 117, 122, 119, 121)}
SAME = {"v6.10": (100.0, 102, 98, 101, 99, 100), "v6.11": (101.0, 101, 98.5, 100, 99.5, 100)}


def outcomes(found: ComparisonResult) -> list[Outcome]:
    return [change.decision.outcome for row in found.rows for change in row.changes if change.decision]


def only(found: ComparisonResult) -> ComparedRow:
    (row,) = found.rows
    return row


def test_deciding_figure_of_each_setup_is_compared_with_the_first_arm() -> None:
    found = result((OLD, NEW), (measured(FASTER), measured(SAME, BCACHE)))
    assert [row.setup for row in found.rows] == [LVMCACHE, BCACHE]
    assert outcomes(found) == [Outcome.FASTER, Outcome.SAME]
    assert found.tested == 2
    assert found.rows[0].sides[1].mean == pytest.approx(120.333, abs=1e-3)
    effect = found.rows[0].changes[0].effect
    assert effect is not None
    assert effect.scale is Scale.RATIO
    assert effect.estimate == pytest.approx(1.2033, abs=1e-4)
    values = found.rows[0].in_run_order
    assert [(one.n, one.arm) for one in values] == [(n, ("v6.11", "v6.10")[n % 2]) for n in range(1, 13)]


@pytest.mark.parametrize(("lacks", "said"), [("v6.10", "v6.10: "), ("v6.11", "")])
def test_arm_that_a_setup_cannot_have_is_absent_with_the_reason(lacks: str, said: str) -> None:
    """Also before the first block."""
    has, iops = next(one for one in FASTER.items() if one[0] != lacks)
    for blocks in (measured({has: iops}), MeasuredSetup(LVMCACHE, Objective(), (), {})):
        row = only(result((OLD, NEW), (replace(blocks, absent={lacks: "needs CONFIG_MD"}),)))
        assert {side.arm: side.absent for side in row.sides}[lacks] == "needs CONFIG_MD"
        assert [len(side.figures) for side in row.sides if side.arm == has] == [len(blocks.blocks)]
        (change,) = row.changes
        assert (change.effect, change.decision, change.absent) == (None, None, f"{said}needs CONFIG_MD")


def test_others_are_still_compared_where_one_arm_is_absent() -> None:
    third = ComparedArm("v4.9")
    blocks = replace(measured(FASTER), absent={"v4.9": "needs CONFIG_DM_WRITECACHE"})
    found = result((OLD, third, NEW), (blocks,))
    assert [change.absent for change in only(found).changes] == ["needs CONFIG_DM_WRITECACHE", ""]
    assert found.tested == 1


@pytest.mark.parametrize(("late", "said"), [("v6.11", ""), ("v6.10", "v6.10: ")])
def test_arm_that_is_lost_keeps_what_it_measured_in_sound_blocks(late: str, said: str) -> None:
    whole = measured({**FASTER, "v4.9": FASTER["v6.10"]})
    rest = tuple(
        replace(one, trials={arm: trial for arm, trial in one.trials.items() if arm != late})
        for one in whole.blocks[4:]
    )
    blocks = replace(whole, blocks=(*whole.blocks[:4], *rest), absent={late: "panic: no more"})
    row = only(result((OLD, NEW, ComparedArm("v4.9")), (blocks,)))
    side = next(one for one in row.sides if one.arm == late)
    assert (len(side.figures), side.absent) == (4, "after block 4: panic: no more")
    change = row.changes[0]
    assert change.effect is not None
    assert change.effect.blocks == 4
    assert (change.decision is not None, change.absent) == (True, f"{said}after block 4: panic: no more")
    if late == "v6.11":
        assert (row.changes[1].absent, row.changes[1].effect and row.changes[1].effect.blocks) == ("", 6)


def test_only_blocks_that_both_have_are_compared() -> None:
    whole = measured(FASTER)
    odd = replace(whole.blocks[0], trials={"v6.10": whole.blocks[0].trials["v6.10"]})
    row = only(result((OLD, NEW), (replace(whole, blocks=(odd, *whole.blocks[1:])),)))
    assert row.changes[0].effect is not None
    assert row.changes[0].effect.blocks == 5


def test_placebo_is_no_test_of_the_family() -> None:
    """So the p-value of the kernel stays what it is."""
    figures = {**FASTER, AGAIN.name: (100.0, 101, 99, 100, 99, 101)}
    row = only(found := result((OLD, NEW, AGAIN), (measured(figures),)))
    kernel, placebo = row.changes
    assert found.tested == 1
    assert placebo.placebo
    assert kernel.effect is not None
    assert kernel.adjusted_p == kernel.effect.p
    assert placebo.decision is not None
    assert placebo.decision.outcome is Outcome.SAME


def test_holm_is_over_all_setups() -> None:
    weak = {"v6.10": (100.0,) * 6, "v6.11": (110.0, 102, 112, 101, 111, 103)}
    assert outcomes(result((OLD, NEW), (measured(weak),))) == [Outcome.FASTER]
    setups = [measured(weak, Setup(f"{n}", "w")) for n in range(4)]
    assert outcomes(result((OLD, NEW), setups)) == [Outcome.UNCLEAR] * 4


def test_geometric_mean_is_over_matched_rows_and_above_one_is_better() -> None:
    """A latency that falls to half counts like IOPS that double."""
    rate = measured({"v6.10": (100.0, 100), "v6.11": (200.0, 200)})
    latency = measured({"v6.10": (100.0, 100), "v6.11": (50.0, 50)}, BCACHE, Objective("read.clat.mean"))
    latency = replace(latency, blocks=tuple(map(with_latency, latency.blocks)))
    (mean,) = result((OLD, NEW), (rate, latency)).means
    assert (mean.arm, mean.rows) == ("v6.11", 2)
    assert mean.effect.estimate == pytest.approx(2.0)
    lacking = replace(latency, blocks=(), absent={"v6.11": "needs CONFIG_BCACHE"})
    assert result((OLD, NEW), (rate, lacking)).means == (), "one row is no mean"


def test_mean_of_every_kernel_leaves_out_the_stack_that_one_of_them_lacks() -> None:
    """A kernel that doubles where another one cannot be measured is not the better of the two for that."""
    same, doubled = (100.0, 101, 99), (200.0, 202, 198)
    both = [measured({"v6.10": same, "v6.11": same, "v5.4": doubled}, setup) for setup in (LVMCACHE, BCACHE)]
    third = measured({"v6.10": same, "v6.11": doubled}, Setup("lvmwritecache(ssd,hdd)+ext4", "w"))
    lacking = replace(third, absent={"v5.4": "needs CONFIG_DM_WRITECACHE"})
    found = result((OLD, NEW, ComparedArm("v5.4")), (*both, lacking))
    assert [(one.arm, one.rows, round(one.effect.estimate, 9)) for one in found.means] == [
        ("v6.11", 2, 1.0),
        ("v5.4", 2, 2.0),
    ]


def with_latency(block: SoundBlock) -> SoundBlock:
    """The IOPS of the job become its mean latency."""

    def of(one: Trial) -> Trial:
        (only_run,) = one.runs
        (job,) = only_run.jobs
        return replace(one, runs=(replace(only_run, jobs=(replace(job, clat_mean_ns=job.iops_mean),)),))

    return replace(block, trials={arm: (n, of(one)) for arm, (n, one) in block.trials.items()})


def test_every_other_value_is_exploratory_and_gets_no_verdict() -> None:
    found = result((OLD, NEW), (measured(FASTER),))
    names = {row.objective.metric for row in found.exploratory}
    assert {"read.bw", "read.clat.mean", "read.iops.stddev", "elapsed"} <= names
    assert "read.iops" not in names
    assert all(change.decision is None for row in found.exploratory for change in row.changes)
    assert [row.objective.metric for row, _ in found.different] == ["read.bw"], "bandwidth goes with IOPS"
    assert found.explored == len(found.exploratory)


def counted(round_: int, *arms: Mapping[str, float]) -> SoundBlock:
    """A block of both arms that counted this."""
    trials = [trial(commit(1), replace(run("full", 100.0), counters=tuple(of.items()))) for of in arms]
    return SoundBlock(round_, {"v6.10": (2 * round_, trials[0]), "v6.11": (2 * round_ + 1, trials[1])})


def test_figure_that_is_always_zero_is_not_explored() -> None:
    block = counted(1, *[{"cache.dirty_blocks": 0.0, "cache.promotions": 7.0}] * 2)
    found = result((OLD, NEW), (MeasuredSetup(LVMCACHE, Objective(), (block,), {}),))
    names = {row.objective.metric for row in found.exploratory}
    assert "cache.promotions" in names
    assert "cache.dirty_blocks" not in names


def test_no_block_yet_is_no_error() -> None:
    row = only(result((OLD, NEW), (measured({"v6.10": (), "v6.11": ()}),)))
    assert row.changes[0].absent == "no block yet"
    assert result((OLD,), (measured({"v6.10": (1.0,)}),)).tested == 0


def test_figures_of_several_jobs() -> None:
    two = run("full", 100.0, 300.0)
    assert figure(two, Objective()) == 100.0
    assert figure(two, Objective(over=SUM)) == 400.0
    assert figure(two, Objective(over=MEAN)) == 200.0
    assert figure(two, Objective(over="job1")) == 300.0
    assert figure(two, Objective(over="job7")) is None
    assert figure(two, Objective("write.iops")) is None
    assert figure(two, Objective("read.clat.mean")) == two.jobs[0].clat_mean_ns


def test_zero_is_a_figure_and_has_a_difference() -> None:
    blocks = tuple(counted(n, {"cache.hit_ratio": 0.0}, {"cache.hit_ratio": 40.0}) for n in range(3))
    row = only(result((OLD, NEW), (MeasuredSetup(LVMCACHE, Objective("cache.hit_ratio"), blocks, {}),)))
    assert row.changes[0].effect is not None
    assert (row.changes[0].effect.scale, row.changes[0].effect.estimate) == (Scale.DIFFERENCE, 40.0)


def test_percentiles_that_one_run_lacks() -> None:
    long = Latency(LatencyKind.COMPLETION, 1.0, 2.0, 3.0, 4.0, ((99.9, 5.0),))
    with_one = run("full", 100.0)
    with_one = replace(with_one, jobs=(replace(with_one.jobs[0], latencies=(long,)),))
    blocks = (SoundBlock(1, {"v6.10": (1, trial(commit(1), with_one)), "v6.11": (2, of_iops(100.0))}),)
    found = result((OLD, NEW), (MeasuredSetup(LVMCACHE, Objective(), blocks, {}),))
    (row,) = (row for row in found.exploratory if row.objective.metric == "read.clat.p99.9")
    assert row.changes[0].absent == "no read.clat.p99.9"
    assert math.isnan(row.changes[0].adjusted_p)
