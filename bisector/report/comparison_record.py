"""From the record of a comparison to its report.

Everything is read, nothing is decided; what a removed file would tell is left out.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from bisector.config import Settings
from bisector.core import units
from bisector.core.printable import clean
from bisector.core.subject import Kind
from bisector.core.trial import Artifact, Trial
from bisector.core.verdict import State
from bisector.report import reporting
from bisector.report.comparison import ComparedKernel, ComparisonReport, MeasuredBlock
from bisector.report.comparison_lines import to_go_on
from bisector.report.document import JobFile
from bisector.report.sections import queues
from bisector.report.summary import quoted
from bisector.status.blocks import Blocks, names, result_of
from bisector.status.conclusion import CONFIG_ARTIFACT
from bisector.status.progress import TimeSpent
from bisector.store.comparison import Arm, Block, Budget, Plan, on_top
from bisector.store.rundir import RunDirectory, state_of
from bisector.store.store import Store
from bisector.workload.workloads import WORKLOADS, chooser

_SHA256_DIGITS = 64
_FIO_OUTPUT = "fio.json"
_FIO_VERSION = "fio version"
# What the stacks and workloads of a comparison have each for itself, or all of them together.
_OF_SETUPS = ("storage.stack", "workload.kind", "kernel.fragments", "bisect.least_effect")


def report(run: RunDirectory, store: Store, blocks: Blocks) -> ComparisonReport:
    """The document of a run that compares, whether it goes on or not."""
    plan = blocks.plan
    trials = [one.trial for one in blocks.placed]
    state, asked = state_of(run, store), store.bisection()
    return ComparisonReport(
        result=result_of(blocks),
        kernels=tuple(_kernels(plan, blocks)),
        blocks=tuple(_measured(block, blocks) for block in blocks.blocks),
        storage=tuple(_storage(plan, blocks, run.path)),
        workloads=tuple(_workloads(plan, run.path)),
        hosts=reporting.hosts_of(run.path, trials),
        seed=plan.extent.seed,
        standing=_standing(*state) + _budgets(plan, store.facts(Budget)),
        state=state[0],
        run_dir=run.path,
        resume_command=to_go_on(run.path, state[0], blocks) or None,
        command=_command(plan, *store.facts(Budget)[-1:]),
        tool_version=asked.tool_version,
        started_at=asked.created_at,
        versions=tuple(_versions(run.path, trials)),
        time=TimeSpent.of(store, trials),
    )


def _standing(state: State, message: str) -> str:
    how = {State.MEASURED: "It is finished", State.RUNNING: "It goes on"}.get(state, f"It is {state}")
    return clean(f"{how}{f': {message}' if message else ''}.")


def _budgets(plan: Plan, given: Sequence[Budget]) -> str:
    """A sentence, where more time was given than at first."""
    if not given:
        return ""
    first = "none" if plan.extent.budget_s is None else units.duration(plan.extent.budget_s)
    more = (f"{units.duration(one.budget_s)} more after {units.duration(one.spent_s)}" for one in given)
    return f" Budgets: {', '.join((f'{first} at first', *more))}."


def _kernels(plan: Plan, blocks: Blocks) -> Iterator[ComparedKernel]:
    """As the first trial that has a kernel shows them."""
    for n, arm in enumerate(plan.arms):
        trial = next((one.trial for one in blocks.placed if one.place.arm == n and one.trial.kernel is not None), None)
        kernel = trial.kernel if trial is not None else None
        yield ComparedKernel(
            name=arm.name,
            commit=quoted(arm.commit),
            release=kernel.release if kernel is not None else "",
            config=_config(trial.artifacts) if trial is not None else "",
            compiler=kernel.toolchain if kernel is not None else "",
            placebo=n > 0 and arm.subject == plan.arms[0].subject,
        )


def _config(artifacts: Iterable[Artifact]) -> str:
    return next((one.sha256 for one in artifacts if one.name == CONFIG_ARTIFACT), "")


def _measured(block: Block, blocks: Blocks) -> MeasuredBlock:
    arms, trials = [blocks.plan.arms[arm].name for arm in block.arms], blocks.trials(block)
    order = tuple((arm, trials[arm][0] if arm in trials else None) for arm in arms)
    setup, host = names(blocks.plan)[block.setup], blocks.host(block)
    era = next((trial.era.digest for _, trial in trials.values() if trial.era is not None), "")
    return MeasuredBlock(block.n, setup, block.round, block.seed, order, blocks.why(block), host, era)


def _of_setup(blocks: Blocks, setup: int) -> list[Trial]:
    return [trial for block in blocks.of_setup(setup) for _, trial in blocks.trials(block).values()]


def _storage(plan: Plan, blocks: Blocks, run_dir: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What made each stack once: setups of one stack have it in common."""
    stacks = {one.setup.stack: n for n, one in reversed(tuple(enumerate(plan.setups)))}
    for stack, setup in reversed(stacks.items()):
        trials = _of_setup(blocks, setup)
        lines = reporting.first_text(run_dir, trials, reporting.STORAGE)
        if lines:
            yield stack, (*(f"# {disk}: {text}" for disk, text in queues(trials)), *lines)


def _workloads(plan: Plan, run_dir: Path) -> Iterator[JobFile]:
    yield from dict.fromkeys(reporting.workload_of(one.settings, run_dir) for one in plan.setups)


def _versions(run_dir: Path, trials: Iterable[Trial]) -> Iterator[tuple[str, str]]:
    """That of fio, as the first output says that is still there."""
    outputs = ({one.name for one in trial.artifacts if Path(one.name).name == _FIO_OUTPUT} for trial in trials)
    listed = list(trials)
    for name in dict.fromkeys(name for found in outputs for name in sorted(found)):
        with suppress(ValueError, AttributeError, RecursionError):
            version = json.loads("\n".join(reporting.first_text(run_dir, listed, name))).get(_FIO_VERSION)
            if version:
                yield "fio", clean(str(version))
                return


def _command(plan: Plan, given: Budget | None = None) -> str:
    """What compares the same again, with all the time that it was given."""
    extent, (first, *others) = plan.extent, plan.arms
    typed = [first, *(arm for arm in others if arm.subject != first.subject)]
    alone = [arm for arm in typed if not (arm.subject.parameters or arm.subject.fragment)]
    words = ["bisector", "compare", *(_word(arm) for arm in alone if arm.subject.kind is not Kind.PATCHED)]
    words += _each("--patch", (_patch(first, arm) for arm in typed if arm.subject.kind is Kind.PATCHED))
    words += _each("--config-fragment", (f"./{arm.file.name}" for arm in typed if arm.subject.fragment and arm.file))
    words += _each("--parameter", (arm.subject.parameters for arm in typed if arm.subject.parameters))
    words += _each("--stack", (one.setup.stack for one in plan.setups))
    workloads = dict.fromkeys(_workload_words(one.settings) for one in plan.setups)
    words += [word for one in workloads for word in one]
    words += ["--placebo"] if len(typed) < len(plan.arms) else []
    words += ["--until", _percent(extent.until)] if extent.until is not None else ["--runs", str(extent.runs)]
    budget = given or extent.budget
    words += ["--budget", str(units.duration_text(budget.end_s))] if budget is not None else []
    words += ["--least-effect", _percent(extent.delta), "--seed", str(extent.seed)]
    words += _own_fragments([one.settings for one in plan.setups])
    # Each setup has settings of disks that another one does not use.
    of_setups = (*_OF_SETUPS, *(one.chosen_by for one in WORKLOADS.values() if one.chosen_by))
    flags = dict.fromkeys(flag for one in plan.setups for flag in reporting.flags(one.settings, of_setups))
    return shlex.join((*words, *(word for flag in flags for word in flag)))


def _word(arm: Arm) -> str:
    return reporting.end_word(arm.name, arm.commit.sha) if arm.subject.is_built else f"image:./{arm.name}"


def _patch(first: Arm, arm: Arm) -> str:
    """The hash of a commit; of a file its name, which the run's copy has, too."""
    given, name = arm.subject.changed_by or "", arm.name.removeprefix(on_top(first.name, ""))
    return f"./{name}" if len(given) == _SHA256_DIGITS else reporting.end_word(name, given)


def _own_fragments(given: Sequence[Settings]) -> list[str]:
    """Those that do not follow from the stacks: a kernel is built once for all of these."""
    names = [reporting.fragment_name(Path(name)) for name in given[0].kernel.fragments]
    needed = {name for settings in given for name in reporting.usual_fragments(settings)}
    return [word for words in reporting.fragment_words(names, needed) for word in words]


def _workload_words(settings: Settings) -> tuple[str, str]:
    """By the flag that chooses it, of a file with the name alone; without such a flag by its name."""
    workload = settings.workload
    row = chooser(workload.workload)
    if row is None or not row.flag:
        return "--workload", workload.kind
    file = workload.inputs.get(row.field)
    return row.flag, file.name if file is not None else str(row.write(getattr(workload.values, row.field)))


def _each(flag: str, values: Iterable[str]) -> list[str]:
    return [word for value in dict.fromkeys(values) for word in (flag, value)]


def _percent(share: float) -> str:
    return f"{100 * share:g}%"
