"""Invented comparisons; ``python -m tests.report.comparison_examples`` writes the golden files anew."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bisector.core.figures import Contention
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.report.comparison import ComparedKernel, ComparisonReport, MeasuredBlock, page
from bisector.report.document import JobFile, MeasuringHost
from bisector.report.page import markdown
from bisector.report.terminal import plain
from bisector.status.comparison import ComparedArm, MeasuredSetup, SoundBlock, result
from tests.examples import commit, run, trial

GOLDEN = Path(__file__).parent.parent / "data" / "report"
OLD, NEW, AGAIN = ComparedArm("v6.10"), ComparedArm("v6.11"), ComparedArm("v6.10 (again)", placebo=True)
LVMCACHE, WRITECACHE = (Setup(f"{name}(ssd,hdd)+ext4", "fio(partial.fio)") for name in ("lvmcache", "lvmwritecache"))
BCACHE = Setup("bcache(ssd,hdd)+ext4", "fio(partial.fio)")


def measured(
    figures: Mapping[str, Sequence[float]],
    setup: Setup = LVMCACHE,
    objective: Objective | None = None,
    start: int = 1,
    absent: Mapping[str, str] | None = None,
) -> MeasuredSetup:
    """A setup of one job whose IOPS are given for each arm and block; its mean latency is what a depth of 1 has."""
    blocks, n = [], start
    for round_, row in enumerate(zip(*figures.values(), strict=True), 1):
        numbered = {}
        for arm, iops in zip(figures, row, strict=True):
            full = run("full", iops)
            full = replace(full, jobs=(replace(full.jobs[0], clat_mean_ns=1e9 / iops),))
            numbered[arm] = (n, trial(commit(n), full))
            n += 1
        blocks.append(SoundBlock(round_, numbered, seed=1000 + round_))
    return MeasuredSetup(setup, objective or Objective(), tuple(blocks), absent or {}, setup.stack)


def with_counter(one: Trial, name: str, value: float) -> Trial:
    """A trial whose layers counted something."""
    return replace(one, runs=tuple(replace(run_, counters=((name, value),)) for run_ in one.runs))


FASTER = {"v6.10": (412.0, 398, 431, 405, 420, 409), "v6.11": (491.0, 488, 515, 480, 502, 499)}
SAME = {"v6.10": (2004.0, 1990, 2011, 2003, 1998, 2010), "v6.11": (2010.0, 1994, 2003, 2005, 2001, 2002)}
ALONE = {"v6.11": (800.0, 790, 811, 805, 800, 802)}
UNCLEAR = {"v6.10": (412.0, 398, 431, 405, 420, 409), "v6.11": (391.0, 448, 415, 480, 402, 399)}


def report(*setups: MeasuredSetup, arms: Sequence[ComparedArm] = (OLD, NEW)) -> ComparisonReport:
    blocks = [(one, block) for one in setups for block in one.blocks]
    return ComparisonReport(
        result=result(arms, setups),
        kernels=(
            ComparedKernel("v6.10", 'aaaaaaaaaaaa ("Linux 6.10")', "6.10.0", "0123456789abcdef" * 4, "gcc 12.2.0"),
            ComparedKernel("v6.11", 'bbbbbbbbbbbb ("Linux 6.11")', "6.11.0", "fedcba9876543210" * 4, "gcc 12.2.0"),
        ),
        blocks=tuple(
            MeasuredBlock(
                n,
                one.label,
                block.round,
                block.seed or 0,
                tuple((a, t) for a, (t, _) in block.trials.items()),
                host=block.host,
            )
            for n, (one, block) in enumerate(blocks, 1)
        ),
        storage=tuple((one.label, (f"mkfs.ext4 /dev/test/{place}",)) for place, one in enumerate(setups)),
        workloads=(JobFile("partial.fio", "[partial]\nrw=randread\n", (("RUNTIME", "40"),)),),
        hosts=(MeasuringHost("box", 12, (("CPU", "Example CPU, 4 cores"),), (Contention(0.02, 0.0, 0.015),)),),
        seed=7,
        standing="6 blocks on each setup.",
        state=State.MEASURED,
        run_dir=Path("/runs/a b"),
        resume_command=None,
        command="bisector compare v6.10 v6.11 --stack lvmcache --stack bcache",
        tool_version="0.1.0",
        versions=(("fio", "fio-3.33"),),
    )


def usual() -> ComparisonReport:
    lacks = {"v6.10": "needs CONFIG_DM_WRITECACHE"}
    return report(
        measured(FASTER), measured(SAME, BCACHE, start=20), measured(ALONE, WRITECACHE, start=40, absent=lacks)
    )


def with_placebo() -> ComparisonReport:
    lvmcache = {**FASTER, AGAIN.name: (409.0, 401, 428, 409, 421, 406)}
    return report(measured(lvmcache), arms=(OLD, NEW, AGAIN))


def of_two_hosts() -> ComparisonReport:
    """Two of six blocks are those of a host that is three times as fast."""
    fast = measured({name: [3 * value for value in values] for name, values in FASTER.items()})
    blocks = zip(measured(FASTER).blocks, fast.blocks, strict=True)
    mixed = [on_host(two, "bench2") if n in (2, 5) else on_host(one, "bench1") for n, (one, two) in enumerate(blocks)]
    return report(replace(fast, blocks=tuple(mixed)))


def on_host(block: SoundBlock, host: str) -> SoundBlock:
    """A block as it is on this host."""
    return replace(block, trials={arm: (n, replace(one, host=host)) for arm, (n, one) in block.trials.items()})


READAHEAD = ComparedArm("v6.11 + readahead.patch")
_NOISE = (0.004, -0.011, 0.013, -0.006, 0.009, -0.009, 0.002, 0.012, -0.003, -0.014, 0.006, 0.001, -0.008)


def planted(level: float, *ratios: float, start: int = 0) -> list[list[float]]:
    """Six blocks for each ratio, with a noise of 1 % that is always the same."""
    noise = iter(_NOISE[(start + one) % len(_NOISE)] for one in range(6 * len(ratios)))
    return [[level * ratio * (1 + next(noise)) for _ in range(6)] for ratio in ratios]


def matrix() -> ComparisonReport:
    """Three kernels on four stacks by two workloads: one cache gains, and one kernel cannot have a stack."""
    arms = (OLD, NEW, READAHEAD)
    names = [arm.name for arm in arms]
    stacks = {"hdd+ext4": (1.01, 1.0), "lvmcache(ssd,hdd)+ext4": (1.3, 1.28), "bcache(ssd,hdd)+ext4": (0.7, 12.0),
              "lvmwritecache(ssd,hdd)+ext4": (1.02, 1.5)}  # fmt: skip
    setups: list[MeasuredSetup] = []
    for workload, level, objective in (
        ("fio(partial.fio)", 412.0, Objective()),
        ("fio(rand-read-latency.fio)", 8100.0, Objective("read.clat.mean")),
    ):
        for place, (stack, ratios) in enumerate(stacks.items()):
            figures = dict(zip(names, planted(level * (1 + place), 1.0, *ratios, start=place), strict=True))
            lacks = {names[2]: "needs CONFIG_DM_WRITECACHE"} if stack.startswith("lvmwritecache") else {}
            present = {name: values for name, values in figures.items() if name not in lacks}
            one = measured(present, Setup(stack, workload), objective, 1 + 18 * len(setups), lacks)
            setups.append(replace(one, name=f"{workload} on {stack}"))
    return report(*setups, arms=arms)


def of_few_blocks() -> ComparisonReport:
    few = {arm: values[:3] for arm, values in FASTER.items()}
    return report(measured(few), measured(SAME, BCACHE, Objective("read.clat.mean"), start=20))


def unclear() -> ComparisonReport:
    return report(measured(UNCLEAR))


DOCUMENTS = {
    "comparison": usual,
    "comparison-placebo": with_placebo,
    "comparison-few": of_few_blocks,
    "comparison-matrix": matrix,
}
RENDERERS = {"txt": plain, "md": markdown}


def golden(name: str, suffix: str) -> Path:
    return GOLDEN / f"{name}.{suffix}"


if __name__ == "__main__":
    for name, made in DOCUMENTS.items():
        for suffix, render in RENDERERS.items():
            golden(name, suffix).write_text(render(page(made())), encoding="utf-8")
