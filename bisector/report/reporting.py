"""From the record of a bisection to its report: what the store, the run directory and git know of it.

Everything is read, nothing is decided; what a moved repository or a removed file would tell is left out.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bisector.config import Settings
from bisector.config.options import from_json
from bisector.core import resources
from bisector.core.commit import Commit
from bisector.core.errors import BisectorError
from bisector.core.objective import Objective
from bisector.core.trial import Trial
from bisector.git.origin import origin
from bisector.git.repository import Repository
from bisector.host.inside import inside
from bisector.report import reproducing
from bisector.report.document import Asked, Host, Origin, Report, Row, Workload
from bisector.status import from_record
from bisector.status.view import BisectionView, TrialView
from bisector.store.rows import BisectionRow
from bisector.store.rundir import GIT_LOG, RunDirectory
from bisector.store.store import Store

HOST_FACTS = "host.json"
STORAGE = "storage.txt"


def report(run: RunDirectory, store: Store, by: Objective | None = None) -> Report:
    """The document of a run, whether it goes on or not; ``by`` as of :func:`from_record.view`."""
    asked = store.bisection()
    settings = from_json(asked.settings)
    view = from_record.view(run, store, by)
    trials = [shown.trial for shown in view.trials]
    # Settings say how commits are measured here; how others measured theirs is not known.
    measured_here = not asked.imported
    places, parents, where = _of_history(asked, view)
    return Report(
        bisection=view,
        rows=_rows(view.trials, places),
        asked=reproducing.asked(asked, settings) if measured_here else _asked_of_others(view),
        origin=where,
        workload=_workload(settings, run.path) if measured_here else Workload("", "", ()),
        storage=_first_text(run.path, trials, STORAGE),
        kernel=_kernel(settings) if measured_here else (),
        hosts=_hosts(run.path, trials) if measured_here else (),
        bisect_log=_text(run.path, GIT_LOG),
        tool_version=asked.tool_version,
        parents=parents,
    )


def _of_history(asked: BisectionRow, view: BisectionView) -> tuple[dict[str, int], tuple[Commit, ...], Origin]:
    """What only git knows: each commit's place, the culprit's parents, where it all comes from."""
    first = view.first_fixed
    if asked.repository is None:
        return {}, (), Origin("")
    with suppress(BisectorError), Repository.open(asked.repository) as repository:
        parents = repository.commits(repository.parents(first.sha)) if first is not None else ()
        where = Origin(*origin(repository, (first or view.new).sha))
        return _places(repository, asked, view), parents, where
    return {}, (), Origin(asked.repository.name)


def _asked_of_others(view: BisectionView) -> Asked:
    """An import has the ends that its people's words give, and no command measures it again."""
    return Asked(view.old.short, view.new.short, (), (), first_parent=False, command="")


def _places(repository: Repository, asked: BisectionRow, view: BisectionView) -> dict[str, int]:
    """How many commits from the old end each one of the range is, parents before children."""
    words = ("rev-list", "--topo-order", "--reverse", *(("--first-parent",) if asked.first_parent else ()))
    old, new = view.old.sha, view.new.sha
    lines = repository.ask(*words, new, "--not", old, "--", *asked.paths).lines
    last = {new: len(lines) + 1} if new not in lines else {}
    return {old: 0, **{sha: place for place, sha in enumerate(lines, 1)}, **last}


def _rows(trials: Iterable[TrialView], places: dict[str, int]) -> tuple[Row, ...]:
    """In history order; what is not in the range (a merge base) is older than it, and stands first."""
    rows = (Row(places.get(shown.trial.commit.sha), shown) for shown in trials)
    return tuple(sorted(rows, key=_order))


def _order(row: Row) -> tuple[bool, int, str, int]:
    """What is no commit of the history, an end without one or with one, stands last."""
    place = row.place
    return (
        not row.shown.trial.is_of_commit,
        -1 if place is None else place,
        _date(row) if place is None else "",
        row.shown.n,
    )


def _date(row: Row) -> str:
    return row.shown.trial.commit.committed_at


def _workload(settings: Settings, run_dir: Path) -> Workload:
    """With the text of the job file that is kept in the run directory, or is the tool's own."""
    job, workload = settings.workload.job, settings.workload
    text = _text(resources.jobs() if job.parent == resources.jobs() else run_dir, job)
    return Workload(
        job.name, text, (("FILE_SIZE", str(workload.file_bytes)), ("RUNTIME", f"{workload.runtime_s}"))
    )  # fmt: skip


def _kernel(settings: Settings) -> tuple[tuple[str, str], ...]:
    base = settings.kernel.base_config
    fragments = ", ".join(reproducing.fragment_name(Path(name)) for name in settings.kernel.fragments)
    kconfig = f"{base.name if base else 'everything off'}, then {fragments}"
    sandbox = "none: make ran what the trees bring along with network and home" if not settings.kernel.sandbox else ""
    return (("kconfig", kconfig), ("sandbox", sandbox))


def _text(directory: Path, name: str | Path) -> str:
    """Nothing of a file that is gone, or is none of the directory's."""
    try:
        return _read(directory, name)
    except OSError:
        return ""


def _read(directory: Path, name: str | Path) -> str:
    return inside(directory, name).read_text(encoding="utf-8", errors="replace")


def _first_text(run_dir: Path, trials: Iterable[Trial], name: str) -> tuple[str, ...]:
    """The lines of the first such file of a trial that is still there."""
    for trial in trials:
        for artifact in trial.artifacts:
            if artifact.name == name:
                with suppress(OSError):
                    return tuple(_read(run_dir, artifact.path).splitlines())
    return ()


def _hosts(run_dir: Path, trials: Iterable[Trial]) -> tuple[Host, ...]:
    by_host: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_host[trial.host].append(trial)
    return tuple(
        Host(
            name,
            len(mine),
            _host_facts(_first_text(run_dir, mine, HOST_FACTS)),
            tuple(run.contention for trial in mine for run in trial.runs if run.contention is not None),
        )
        for name, mine in by_host.items()
    )


def _host_facts(lines: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """What :meth:`bisector.vm.machine.VirtualMachine.facts` wrote down at the first start of a guest."""
    with suppress(ValueError, AttributeError):
        return tuple((str(name), str(value)) for name, value in json.loads("\n".join(lines)).items())
    return ()
