"""Make the report of a bisection from its store, its run directory and git.

It only reads and decides nothing; if a repository was moved or a file removed, its contents are left out. The command
that asks for the same bisection again has the settings that differ from their defaults, and no others.
"""

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from bisector.analysis.verdicts import host_of
from bisector.config import PROFILES, DiskSettings, Settings, options
from bisector.config.option_table import FRAGMENTS, by_key, further, unused
from bisector.core import resources, units
from bisector.core.errors import BisectorError, UserError
from bisector.core.objective import Objective
from bisector.core.setting import Option
from bisector.core.subject import Commit
from bisector.core.trial import Trial, difference
from bisector.git import transfer
from bisector.git.repository import Repository, ShownCommit, shown
from bisector.git.transfer import origin
from bisector.host.files import inside
from bisector.report.document import JobFile, MeasuringHost, PlacedTrial, Report, Request, TreeOrigin
from bisector.status import from_record
from bisector.status.view import BisectionView
from bisector.store.facts import Budget, RunHeader
from bisector.store.rundir import GIT_LOG, INPUTS, RunDirectory
from bisector.store.store import Store
from bisector.workload.workloads import WORKLOADS

_HOST_FACTS = "host.json"
STORAGE = "storage.txt"
_RELEASE = re.compile(r"v\d+\.\d+[\w.-]*")
# Settings that do not affect the measurement, and --overwrite, by which a person gave up the content of one disk, named
# by its serial.
_NOT_REPRODUCED = ("mail.", "notify.", "kernel.sandbox", "kernel.recheck", "storage.overwrite", "contention.patience")
_KIND = "workload.kind"
_NUMBERED = re.compile(r"\d+-")


def report(run: RunDirectory, store: Store, by: Objective | None = None) -> Report:
    """Make the document of a run, whether it goes on or not; ``by`` as for :func:`from_record.view`."""
    asked = store.bisection()
    settings = store.settings
    view = from_record.view(run, store, by)
    trials = [one.trial for one in view.trials]
    # The settings apply to commits measured here; how others measured theirs is unknown.
    measured_here = not store.by_others
    places, parents, where, answer = _of_history(asked, view, run.job)
    request = Request(view.old.short, view.new.short, (), (), first_parent=False, command="")
    if store.is_search:
        again = command(asked, settings, *store.facts(Budget)[-1:])
        request = Request(asked.old_rev, asked.new_rev, asked.paths, asked.skips, asked.first_parent, again)
    workload, testcase = JobFile("", "", ()), "fio"
    if measured_here:
        workload = workload_of(settings, run.path)
        program = settings.workload.workload.testcase(workload.text)
        testcase = f"{program} on {settings.storage.stack}"
    return Report(
        bisection=view,
        rows=tuple(sorted((PlacedTrial(places.get(one.trial.commit.sha), one) for one in view.trials), key=_order)),
        asked=request,
        origin=where,
        workload=workload,
        storage=first_text(run.path, trials, STORAGE),
        kernel=_kernel(settings) if measured_here else (),
        hosts=hosts_of(run.path, trials) if measured_here else (),
        bisect_log=_read(run.path, GIT_LOG),
        tool_version=asked.tool_version,
        parents=parents,
        answer=answer,
        testcase=testcase,
        disks=tuple((name, _disk(one)) for name, one in settings.storage.used_disks.items()) if measured_here else (),
    )


def _of_history(
    asked: RunHeader, view: BisectionView, job: str
) -> tuple[dict[str, int], tuple[Commit, ...], TreeOrigin, ShownCommit | None]:
    """Each commit's place, the answer's parents, the tree's origin, and the answer itself, all from git."""
    first, old, new = view.first_fixed, view.old.sha, view.new.sha
    if asked.repository is None:
        return {}, (), TreeOrigin(""), None
    with suppress(BisectorError):
        repository = Repository.open(asked.repository)
        parents = repository.commits(repository.parents(first.sha)) if first is not None else ()
        where = TreeOrigin(*origin(repository, (first or view.new).sha, job))
        # The place of a commit is its distance from the old end in this order, parents before children.
        words = ("rev-list", "--topo-order", "--reverse", *(("--first-parent",) if asked.first_parent else ()))
        shas = repository.ask(*words, new, "--not", old, "--", *asked.paths).lines
        places = {sha: place for place, sha in enumerate(dict.fromkeys((old, *shas, new)))}
        return places, parents, where, shown(repository, first) if first is not None else None
    return {}, (), TreeOrigin(asked.repository.name), None


def _order(row: PlacedTrial) -> tuple[bool, int, str, int]:
    """The key for history order: commits outside the range (merge bases) come first, subjects without one last."""
    date = row.shown.trial.commit.committed_at if row.place is None else ""
    return not row.shown.trial.subject.is_commit, -1 if row.place is None else row.place, date, row.shown.n


def workload_of(settings: Settings, run_dir: Path) -> JobFile:
    """The job with its text: the workload's recipe, bisector's own job file, or the copy in the run directory."""
    workload = settings.workload
    variables = tuple(workload.workload.variables().items())
    if (recipe := workload.workload.recipe()) is not None:
        return JobFile(workload.kind, recipe, variables)
    job = next(iter(workload.inputs.values()), None)
    if job is None:
        return JobFile(workload.kind, "", variables)
    text = _read(resources.jobs() if job.parent == resources.jobs() else run_dir, job)
    said = f"; the job file {job.name} is missing from the directory {INPUTS} of the run"
    return JobFile(job.name, said if text is None else text, variables, missing=text is None)


def _disk(chosen: DiskSettings) -> str:
    """What a disk is made of; no setting tells the size of a disk of the host."""
    if chosen.guest.bus.in_guest:
        what = f"{units.size(chosen.size_bytes)} of the guest's memory"
    elif chosen.path is not None and Path(chosen.path).is_relative_to("/dev"):
        what = f"the host's {chosen.path}"
    else:
        what = f"{units.size(chosen.size_bytes)}, a file on the host"
    limits = (
        f"{chosen.iops_limit:,} IOPS at most" if chosen.iops_limit else "",
        f"{units.size(chosen.bytes_per_s_limit)}/s at most" if chosen.bytes_per_s_limit else "",
        f"{units.duration_text(chosen.latency_s)} added to each request" if chosen.latency_s else "",
    )
    return ", ".join(filter(None, (what, *limits)))


def _kernel(settings: Settings) -> tuple[tuple[str, str], ...]:
    base = settings.kernel.base_config
    fragments = ", ".join(fragment_name(Path(name)) for name in settings.kernel.fragments)
    sandbox = "" if settings.kernel.sandbox else "none: make ran what the trees bring along with network and home"
    return (("kconfig", f"{base.name if base else 'everything off'}, then {fragments}"), ("sandbox", sandbox))


def _read(directory: Path, name: str | Path) -> str | None:
    """The text of a file; None if it is gone or lies outside the directory."""
    with suppress(OSError):
        return inside(directory, name).read_text(encoding="utf-8", errors="replace")
    return None


def first_text(run_dir: Path, trials: Iterable[Trial], name: str) -> tuple[str, ...]:
    """The lines of the first artifact of that name that still exists."""
    artifacts = (trial.artifact(name) for trial in trials)
    texts = (_read(run_dir, artifact.path) for artifact in artifacts if artifact is not None)
    return tuple(next((text for text in texts if text is not None), "").splitlines())


def hosts_of(run_dir: Path, trials: Iterable[Trial]) -> tuple[MeasuringHost, ...]:
    """Each host that measured, with its facts and its other load."""
    by_host: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_host[trial.host].append(trial)
    return tuple(
        MeasuringHost(
            name,
            len(mine),
            tuple(_host_facts(run_dir, mine)),
            tuple(run.contention for trial in mine for run in trial.runs if run.contention is not None),
        )
        for name, mine in by_host.items()
    )


def _host_facts(run_dir: Path, trials: Sequence[Trial]) -> Iterator[tuple[str, str]]:
    """The facts that :meth:`bisector.vm.machine.VirtualMachine.facts` recorded at a guest's first start, and the eras.

    The eras say how often the host changed between its trials, and in what.
    """
    with suppress(ValueError, AttributeError):
        told = json.loads("\n".join(first_text(run_dir, trials, _HOST_FACTS)))
        yield from ((str(name), str(value)) for name, value in told.items())
    firsts = [next(each) for _, each in groupby(trials, host_of)]
    if any(first.era is not None for first in firsts):
        said = []
        for before, first in zip((None, *firsts), firsts, strict=False):
            changed = f": {difference(before.era, first.era)}" if before is not None else ""
            digest = first.era.digest if first.era is not None else units.UNKNOWN
            said.append(f"{digest}, since {first.started_at}{changed}")
        yield "era", "; ".join(said)


def command(row: RunHeader, settings: Settings, budget: Budget | None = None) -> str:
    """``bisector start OLD NEW`` with its flags; files are named without their directories.

    The budget is all the time that the run was given in the end.
    """
    words = ["bisector", "start", end_word(row.old_rev, row.old_sha), end_word(row.new_rev, row.new_sha)]
    words += [word for one in flags(settings) for word in one]
    words += ["--budget", str(units.duration_text(budget.end_s))] if budget is not None else []
    words += [word for sha in row.skips for word in ("--skip", sha[:12])]
    words += ["--", *row.paths] if row.paths else []
    return shlex.join(words)


def flags(settings: Settings, without: tuple[str, ...] = ()) -> tuple[tuple[str, ...], ...]:
    """The words that set each setting which differs from its default (of this profile, on this machine).

    Keys that begin with one of ``without`` are left out.
    """
    settings = _with_own_files(settings)
    usual, written = {**options.usual(settings), "profile": PROFILES[0]}, options.written_values(settings)
    known, found = by_key(written), list[tuple[str, ...]]()
    choosing = [one for one in WORKLOADS.values() if written.get(one.chosen_by) != usual.get(one.chosen_by)]
    chosen = (_KIND,) if choosing == [type(settings.workload.workload)] else ()
    left_out = (*_NOT_REPRODUCED, *without, *chosen, *unused(written, settings.storage.used_disks))
    for key, value in written.items():
        # A further disk exists only because one of its settings is given.
        names_disk = key.endswith(".size") and bool(further([key]))
        is_made = isinstance(value, str) and transfer.is_made(Path(value))
        if (value == usual[key] and not names_disk) or key.startswith(left_out) or is_made:
            continue
        if key == FRAGMENTS:
            found += fragment_words(settings.kernel.fragments, usual_fragments(settings))
        else:
            found += _words(known[key], value)
    return tuple(found)


def end_word(rev: str, sha: str) -> str:
    """A release's tag, which means the same everywhere, or the hash, since a branch moves even in this repository."""
    return rev if _RELEASE.fullmatch(rev) else sha[:12]


def _with_own_files(settings: Settings) -> Settings:
    """The settings with bisector's own files by their original names, and a person's files by the name alone."""
    kernel, workload = settings.kernel, settings.workload
    base, fragments = kernel.base_config, tuple(fragment_name(Path(name)) for name in kernel.fragments)
    inputs = {field: _own(path, resources.job, path.name) or Path(path.name) for field, path in workload.inputs.items()}
    return replace(
        settings,
        kernel=replace(kernel, base_config=Path(base.name) if base else None, fragments=fragments),
        workload=workload.with_inputs(inputs),
    )


def fragment_name(copy: Path) -> str:
    """The name of bisector's own fragment that a file is a copy of, else the file's own name after ``./``."""
    stem = _NUMBERED.sub("", copy.stem, count=1)
    return f"./{stem}.config" if _own(copy, resources.fragment, stem) is None else stem


def _own(copy: Path, find: Callable[[str], Path], name: str) -> Path | None:
    """The file of bisector's own that a copy equals; if the copy is gone, the file of that name."""
    with suppress(UserError):
        own = find(name)
        if not copy.is_file() or own.read_bytes() == copy.read_bytes():
            return own
    return None


def usual_fragments(settings: Settings) -> tuple[str, ...]:
    """The fragments that a guest needs with these settings."""
    needed = options.usual(settings)[FRAGMENTS]
    return tuple(map(str, needed)) if isinstance(needed, list) else ()


def fragment_words(names: Sequence[str], needed: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Flags for the fragments after those that a guest needs, or for all of them if one of these is missing."""
    further = [name for name in names if name not in needed]
    if not set(needed) <= set(names) or list(names[len(names) - len(further) :]) != further:
        yield ("--fragments-only",)
        further = list(names)
    yield from (("--fragment", name) for name in further)


def _words(option: Option, value: object) -> Iterator[tuple[str, ...]]:
    """The flag of an option, once for each item of a list; ``--set`` if it has no flag."""
    if option.const and str(value).lower() == option.const:
        yield (option.short or option.flag,)
    elif option.flag and (option.short or not option.const):
        items = value if isinstance(value, list) and option.repeat else [value]
        yield from ((option.flag, _typed(item)) for item in items)
    else:
        yield ("--set", f"{option.key}={_typed(value)}")


def _typed(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else options.shown(value).replace('""', "")
