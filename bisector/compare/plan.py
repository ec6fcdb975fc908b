"""The plan of a comparison, made from a person's request and checked without building anything."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path

from bisector.analysis.comparison import ALPHA, LOOKS, blocks_for_exact, least_exact_p
from bisector.config import Settings
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.subject import Commit, Kind, Subject
from bisector.doctor.tree import needs, required, undefined, unsupported
from bisector.git.patches import with_commit, with_file
from bisector.git.repository import Repository
from bisector.git.source_tree import check_attributes
from bisector.host.files import sha256_of
from bisector.kernel.kconfig import NOT_SET, own_fragment, read_fragment
from bisector.kernel.product import commit_of
from bisector.report.comparison_table import few_blocks
from bisector.status.blocks import Blocks, names
from bisector.status.progress import comparable
from bisector.storage.layer import Feature
from bisector.store.comparison import Absent, Arm, Extent, Plan, on_top

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
    file = Path(text).absolute() if _is_file(text) or "/" in text else own_fragment(resources.kconfigs(), text)
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
