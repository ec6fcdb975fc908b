"""The plan of a comparison, made and checked without building anything, and the forecast of its hours."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Literal

from bisector.analysis.comparison import ALPHA, LOOKS, blocks_for_exact, least_exact_p
from bisector.compare.schedule import wanted
from bisector.config import Settings
from bisector.core import resources, units
from bisector.core.deadline import GuestTime
from bisector.core.errors import UserError
from bisector.core.json_document import SCHEMA, JsonObject
from bisector.core.subject import Commit, Kind, Subject
from bisector.doctor.checks import needs, required, undefined, unsupported
from bisector.git.repository import Repository
from bisector.git.source_tree import check_attributes
from bisector.git.trees import with_commit, with_file
from bisector.host.files import sha256_of
from bisector.kernel.build import KernelBuilder
from bisector.kernel.kconfig import NOT_SET, read_fragment
from bisector.kernel.product import commit_of
from bisector.plan.experience import Experience, experience
from bisector.plan.forecast import SMALL_BUILD_S, Quantity
from bisector.report.comparison_table import few_blocks
from bisector.status.blocks import Blocks, asked_s, comparable, longest_planned_trial_s, names
from bisector.storage.layer import Feature
from bisector.store.facts import Absent, Arm, Extent, Plan, on_top

_AGAIN = "(again)"
_IMAGE = "image:"


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """A comparison that a person asks for: subjects as typed, the settings of each setup, and its extent.

    Each of ``patches``, files or commits, makes an arm of the first subject with that patch on top; so does each of the
    configuration ``fragments``, and each of ``parameters`` on the kernel's command line. A placebo is the first arm,
    measured a second time under another name.
    """

    repository: Path
    subjects: tuple[str, ...]
    settings: tuple[Settings, ...]
    extent: Extent
    placebo: bool = False
    patches: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    fragments: tuple[str, ...] = ()

    @property
    def patch_files(self) -> tuple[Path, ...]:
        """The patches that are files."""
        return tuple(Path(text) for text in self.patches if _is_file(text))


def planned(repository: Repository, asked: CompareRequest) -> Plan:
    """Return the plan; raises :class:`UserError` if the request cannot be compared."""
    check_attributes(repository)
    arms = tuple(_arms(repository, asked))
    if len(arms) == 1:
        raise UserError(
            f"{arms[0].name} alone cannot be compared",
            "name another commit, a --patch, a --config-fragment or a --parameter, or measure it twice: --placebo",
        )
    setups = tuple(_settings(asked.settings))
    twice = next((one.setup for one, other in combinations(setups, 2) if one.setup == other.setup), None)
    if twice is not None:
        raise UserError(f"{twice} is asked for twice", "leave one out; of two job files, call one by another name")
    absent = tuple(_absent(repository, arms, setups))
    plan = Plan(arms, setups, asked.extent, absent)
    if not any(comparable(Blocks(plan), setup) for setup in range(len(setups))):
        cells = "; ".join(f"{arms[one.arm].name} on {setups[one.setup].setup.stack} {one.reason}" for one in absent)
        raise UserError(f"there is nothing to compare: {cells}", "choose another --stack, or newer commits")
    return plan


def is_image(text: str) -> bool:
    """Whether a subject, as typed, is the image of a kernel that is built already."""
    return text.startswith(_IMAGE)


def _arms(repository: Repository, asked: CompareRequest) -> Iterator[Arm]:
    named = [_named(repository, text) for text in asked.subjects]
    first, *_ = named
    if not first.subject.is_built and (asked.patches or asked.fragments):
        raise UserError(
            f"{first.name} is an image: nothing can be built on top of it", "name a commit first, the image after it"
        )
    named += [_patched(repository, first, text) for text in asked.patches]
    named += [_with_fragment(repository, first, text) for text in asked.fragments]
    named += [_with_parameters(first, text) for text in asked.parameters]
    for one, other in combinations(named, 2):
        _check_differ(one, other)
    yield from named
    if asked.placebo:
        yield replace(first, name=f"{first.name} {_AGAIN}")


def _named(repository: Repository, text: str) -> Arm:
    if is_image(text):
        file = Path(text.removeprefix(_IMAGE)).absolute()
        _check_regular(file)
        return Arm(file.name, Subject(commit_of(file), Kind.IMAGE), file)
    commit = repository.resolve(text)
    repository.check_kernel_tree(commit)
    return Arm(text, Subject(commit))


def _check_differ(one: Arm, other: Arm) -> None:
    """Raise :class:`UserError` if two arms measure the same, or have the same name."""
    (*on_top, tree), (*on_other, other_tree) = (
        (arm.subject.parameters, arm.subject.fragment, arm.commit.tree) for arm in (one, other)
    )
    if on_top == on_other and any(on_top):
        raise UserError(f"{one.name} is asked for twice", "leave one of them out")
    if on_top == on_other and tree == other_tree:
        same = one.commit.sha == other.commit.sha
        what = f"the same {'commit' if one.subject.is_built else 'image'}, {one.commit.short}"
        raise UserError(
            f"{one.name} and {other.name} are {what if same else 'of the same sources'}",
            "to measure one kernel twice: --placebo",
        )
    if one.name == other.name:
        raise UserError(f"two arms are called {one.name}", "give one of the files another name")


def _with_fragment(repository: Repository, base: Arm, text: str) -> Arm:
    file = Path(text).absolute() if _is_file(text) or "/" in text else resources.fragment(text)
    _check_regular(file)
    fragment = read_fragment(file)
    if not fragment.options:
        raise UserError(f"{file} has no options", "a line of it is CONFIG_X=y, or # CONFIG_X is not set")
    if unknown := undefined(repository, base.commit.sha, required(fragment)):
        raise UserError(
            f"{base.name} has no {', '.join(sorted(unknown))} in its Kconfig files, which {file.name} asks for",
            "choose another commit, or leave the option out",
        )
    return Arm(on_top(base.name, file.name), replace(base.subject, fragment=sha256_of(file)), file)


def _with_parameters(base: Arm, text: str) -> Arm:
    words = " ".join(text.split())
    if not words or not words.isprintable():
        raise UserError(f"--parameter {text!r} is not a kernel parameter", "for example: --parameter mitigations=off")
    return replace(base, name=on_top(base.name, words), subject=replace(base.subject, parameters=words))


def _patched(repository: Repository, base: Arm, text: str) -> Arm:
    if _is_file(text):
        return Arm(on_top(base.name, Path(text).name), with_file(repository, base.commit, Path(text)))
    try:
        commit = repository.resolve(text)
    except UserError as error:
        raise UserError(f"--patch {text}: there is no such file, and {error.message}", error.hint) from error
    return Arm(on_top(base.name, text), with_commit(repository, base.commit, commit))


def _is_file(text: str) -> bool:
    # An existing file takes precedence over a revision of the same name.
    return Path(text).is_file() or text.startswith(("./", "/", "../"))


def _check_regular(file: Path) -> None:
    """Raise :class:`UserError` if a file is a pipe or the like: it is read again later, to be kept with the run."""
    if file.exists() and not file.is_file():
        raise UserError(f"{file} is not a regular file", f"ls -l {file}")


def _absent(repository: Repository, arms: Sequence[Arm], setups: Sequence[Settings]) -> Iterator[Absent]:
    """The cells whose tree lacks a feature or option that the stack needs."""

    @cache
    def missing(commit: Commit, needed: tuple[str, ...], features: tuple[tuple[str, Feature], ...]) -> str:
        options = sorted(undefined(repository, commit.sha, needed), key=needed.index)
        later = (f"{one.since.version} ({one.what})" for _, one in unsupported(repository, commit, features))
        return ", ".join((*options, *later))

    for setup, one in enumerate(setups):
        storage = one.storage
        needed = tuple(needs(storage.stack, storage.layers))
        features = (*storage.stack.features(storage.layers), *one.further_features)
        for place, arm in enumerate(arms):
            if arm.subject.is_built and (what := missing(arm.commit, needed, features)):
                yield Absent(setup, place, f"needs {what}")
            elif off := _switched_off(arm, needed):
                yield Absent(setup, place, f"needs {off}, which is off in it")


def _switched_off(arm: Arm, needed: Iterable[str]) -> str:
    """The needed options that an arm's own fragment switches off, as a text."""
    if not arm.subject.fragment or arm.file is None:
        return ""
    asked = read_fragment(arm.file).options
    return ", ".join(option for option in needed if asked.get(option) == NOT_SET)


def _settings(given: Sequence[Settings]) -> Iterator[Settings]:
    """The settings of each setup without those of a search; all have the same fragments, so one build does for all."""
    fragments = united([one.kernel.fragments for one in given])
    for one in given:
        bisect = replace(one.bisect, threshold=None, expect=None, terms=None, baselines=False)
        yield replace(one, bisect=bisect, kernel=replace(one.kernel, fragments=fragments))


def united(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Merge rows of names, each name once and in the order of its row, since the last of several fragments wins."""
    found: list[str] = []
    for row in rows:
        place = 0
        for name in row:
            if name in found:
                place = found.index(name) + 1
            else:
                found.insert(place, name)
                place += 1
    return tuple(found)


def warnings(plan: Plan) -> Iterator[str]:
    """Sentences that a person should read before a comparison spends hours."""
    blocks = plan.extent.runs if plan.extent.until is None else LOOKS[-1]
    absent, first = {(one.setup, one.arm) for one in plan.absent}, plan.arms[0].subject
    others = [arm for arm, one in enumerate(plan.arms) if one.subject != first]
    tests = sum(absent.isdisjoint({(n, 0), (n, arm)}) for n in range(len(plan.setups)) for arm in others)
    needed = blocks_for_exact(tests)
    if least_exact_p(blocks) > ALPHA:
        yield few_blocks(blocks)
    elif blocks < needed:
        yield (
            f"In a family of {tests} tests the exact test by itself could reach 5 % from {needed} blocks on;"
            " the interval decides."
        )
    labels = names(plan)
    for one in plan.absent:
        said = f"{plan.arms[one.arm].name} {one.reason}"
        yield f"{labels[one.setup]}: {said}" + ("" if one.arm else ": nothing is measured there")
    for workload in {one.workload.text: one.workload for one in plan.setups}.values():
        yield from (f"{workload.text}: {sentence}" for sentence in workload.workload.unseeded())


# The forecast, by the times of earlier runs on this host


class SetupForecast(JsonObject, frozen=True, kw_only=True):
    """The time that a trial on one setup takes."""

    stack: Annotated[str, "storage stack"]
    workload: Annotated[str, "workload"]
    metric: Annotated[str, "the [metric](metrics.md) that decides"]
    trial_s: Annotated[Quantity, "seconds of a trial without its build; where they are assumed, its cache is full soon"]
    trial_most_s: Annotated[float, "the same if its cache takes as long to fill as it may, where they are assumed"]


class ComparisonForecast(JsonObject, frozen=True, kw_only=True):
    """The output of ``bisector compare --plan --json``."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    arms: Annotated[tuple[str, ...], "what is compared, the reference first"]
    setups: Annotated[tuple[SetupForecast, ...], "what it is measured on"]
    blocks: Annotated[int, "least number of blocks on each setup"]
    blocks_most: Annotated[int, "greatest number"]
    trials: Annotated[int, "least number of trials, if none is weak"]
    trials_most: Annotated[int, "greatest number, if none is weak"]
    builds: Annotated[int, "number of kernels that are not kept from earlier builds"]
    build_s: Annotated[Quantity, "seconds of a build"]
    hours: Annotated[float, "hours of the least number of blocks, builds included; not more than the budget"]
    hours_most: Annotated[
        float, "hours of the greatest number, caches taking as long to fill as they may; not more than the budget"
    ]
    clock: Annotated[GuestTime, "what makes the guests' time pass"]
    clock_note: Annotated[
        str | None, "what this clock does not show, or what counted time would do; `null` if there is nothing to say"
    ] = None
    warnings: Annotated[tuple[str, ...], "sentences"]


def forecast(
    plan: Plan, builder: KernelBuilder, host: str, run_dirs: Sequence[Path], *, could_count: bool = False
) -> ComparisonForecast:
    """Return the forecast; quantities that are unknown on this machine are assumed, and marked so."""
    blocks_of = Blocks(plan)
    compared = [setup for setup in range(len(plan.setups)) if comparable(blocks_of, setup)]
    known = [experience(plan.setups[setup], host, run_dirs) for setup in compared]
    setups = tuple(_setup(plan.setups[setup], it) for setup, it in zip(compared, known, strict=True))
    builds_s = known[0].builds_s
    build_s = (
        _quantity(max(builds_s), len(builds_s), "build")
        if builds_s
        else Quantity(SMALL_BUILD_S[1], "assumed", measured=False)
    )
    to_build = (arm for arm in wanted(blocks_of) if plan.arms[arm].subject.is_built)
    built = ((plan.arms[arm].commit.tree, plan.settings(0, arm).kernel) for arm in to_build)
    builders = ((builder.with_settings(kernel), tree) for tree, kernel in dict.fromkeys(built))
    builds = sum(all(one.using(by).find(tree) is None for by in one.default_compilers()) for one, tree in builders)
    arms = [len(blocks_of.present(setup)) for setup in compared]
    rounds_s = (
        sum(count * one.trial_s.value for count, one in zip(arms, setups, strict=True)),
        sum(count * one.trial_most_s for count, one in zip(arms, setups, strict=True)),
    )
    least, most = (plan.extent.runs,) * 2 if plan.extent.until is None else (LOOKS[0], LOOKS[-1])
    of_rounds = zip((least, most), rounds_s, strict=True)
    hours = [(builds * build_s.value + blocks * round_s) / 3600 for blocks, round_s in of_rounds]
    budget, time = plan.extent.budget_s, plan.setups[0].machine.time
    hours = hours if budget is None else [min(one, budget / 3600) for one in hours]
    return ComparisonForecast(
        arms=tuple(arm.name for arm in plan.arms),
        setups=setups,
        blocks=least,
        blocks_most=most,
        trials=least * sum(arms),
        trials_most=most * sum(arms),
        builds=builds,
        build_s=build_s,
        hours=hours[0],
        hours_most=hours[1],
        clock=time,
        clock_note=time.note(could_count=could_count) or None,
        warnings=(*warnings(plan), *_unknown([plan.setups[setup] for setup in compared], setups)),
    )


def _setup(planned: Settings, known: Experience) -> SetupForecast:
    trial_s = Quantity(asked_s(planned), "assumed", measured=False)
    if known.workloads_s:
        took_s = median(known.setups_s) + fmean(known.workloads_s)
        trial_s = _quantity(took_s, len(known.workloads_s), "trial")
    return SetupForecast(
        stack=planned.setup.stack,
        workload=planned.setup.workload,
        metric=planned.bisect.objective.label,
        trial_s=trial_s,
        trial_most_s=trial_s.value if trial_s.measured else longest_planned_trial_s(planned),
    )


def _unknown(setups: Sequence[Settings], forecasts: Sequence[SetupForecast]) -> Iterator[str]:
    """A sentence for each workload whose run time is unknown until its first block."""
    pairs = zip(setups, forecasts, strict=True)
    unknown = (one for one, told in pairs if not (told.trial_s.measured or one.workload.runtime_s))
    for workload in dict.fromkeys(one.setup.workload for one in unknown):
        yield (
            f"{workload}: how long it runs is known from its first block on; until then its runs count for nothing,"
            " here and in a budget"
        )


def _quantity(value: float, count: int, what: str) -> Quantity:
    return Quantity(value, f"of {units.plural(count, what)} here", measured=True)


def forecast_rows(expected: ComparisonForecast) -> Iterator[tuple[str, str]]:
    """Yield a name and a text for each line of the forecast as a person reads it."""
    first, *others = expected.arms
    yield "compared", f"{', '.join(others)} against {first}"
    blocks = _range(str(expected.blocks), str(expected.blocks_most))
    yield "blocks", f"{blocks} on each of {units.plural(len(expected.setups), 'setup')}"
    yield "trials", _range(f"{expected.trials:,}", f"{expected.trials_most:,}")
    yield "builds", f"{expected.builds} of {units.duration(expected.build_s.value)} ({expected.build_s.source})"
    for one in expected.setups:
        trial = _range(*map(units.duration, (one.trial_s.value, one.trial_most_s)))
        yield "a trial", f"{trial} ({one.trial_s.source}) of {one.workload} on {one.stack}, by {one.metric}"
    yield "time", _range(*(units.duration(hours * 3600) for hours in (expected.hours, expected.hours_most)))
    if expected.clock_note is not None:
        yield "clock", expected.clock_note
    for warning in expected.warnings:
        yield "warning", warning


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"
