"""Whether the record says what the files say: the verdicts again, from fio's own output.

Done before anything is told to other people. The figures of every run are read again from fio's JSON, or from the
repetitions of a command; the file's SHA-256 has to be the recorded one, and the verdicts of those figures have to be
the recorded figures' verdicts, and what git was told of each commit.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from bisector.analysis.judgement import Numbered
from bisector.analysis.verdicts import Judging
from bisector.core.errors import InfraError
from bisector.core.figures import Run, run_words
from bisector.core.objective import Objective
from bisector.core.trial import Artifact, Trial
from bisector.core.verdict import Strategy, Terms, Verdict
from bisector.host.files import inside
from bisector.store.run_files import artifacts_of_run
from bisector.store.rundir import GIT_LOG
from bisector.workload import repetitions
from bisector.workload.fio import output
from bisector.workload.fio.text import read

RAW = "fio.json"
_SERIES = ".log"
# SHA-1 has 40 digits, SHA-256 64 (gitrepository-layout(5), "objectFormat").
_TOLD = re.compile(r"^git bisect (\S+) '?([0-9a-f]{40}(?:[0-9a-f]{24})?)'?$", re.MULTILINE)


def check(run_dir: Path, judging: Judging, baselines: Iterable[Numbered] = ()) -> None:
    """Raise :class:`InfraError` with the first difference; nothing when all is as recorded."""
    for numbered in baselines:
        _read_again(run_dir, numbered, judging.objective)  # no verdict is derived of them
    again = replace(
        judging, trials=tuple(_read_again(run_dir, numbered, judging.objective) for numbered in judging.trials)
    )
    for (n, trial, recorded), (_, _, judgement) in zip(judging.judged_trials(), again.judged_trials(), strict=True):
        if recorded != judgement:
            raise _different(f"trial {n} of {trial.commit.short} is {judgement.verdict} by its files ({judgement.why})"
                             f" and {recorded.verdict} by the record ({recorded.why})")  # fmt: skip
    for commit, verdict, told in _told(run_dir, again):
        if verdict is not told:
            raise _different(f"{commit[:12]} is {verdict} by its files, and git was told {told}")


def _read_again(run_dir: Path, numbered: Numbered, objective: Objective) -> Numbered:
    n, trial = numbered
    return n, replace(trial, runs=tuple(_run(run_dir, n, trial, run, objective) for run in trial.runs))


def _run(run_dir: Path, n: int, trial: Trial, run: Run, objective: Objective) -> Run:
    what = f"trial {n} of {trial.commit.short}, {run_words(run.name)}"
    if not run.jobs and (kept := _own(trial, run, repetitions.KEPT)) is not None:
        _check_repeated(run, kept, _content(run_dir, kept, what), what)
        return run
    artifact = _raw(trial, run)
    if artifact is None:
        raise _different(f"{what}: there is no {run.name}/{RAW} that its figures could be read from again")
    try:
        jobs = read(_content(run_dir, artifact, what)).jobs
    except output.OutputUnreadable as error:
        raise _different(f"{what}: {artifact.path}:{error.line}: {error}") from error
    again = replace(run, jobs=jobs)
    if _decisive(again, objective) != _decisive(run, objective):
        raise _different(f"{what}: {artifact.path} has other figures than the record")
    return again


def _check_repeated(run: Run, kept: Artifact, text: bytes, what: str) -> None:
    """A command has no jobs: its figures are medians over its repetitions, each of which is kept."""
    try:
        first, *others = found = json.loads(text)
        names = [name for name in first if name != "n" and all(name in one for one in others)]
        again = {(name, median(one[name] for one in found)) for name in names}
    except (ValueError, TypeError, RecursionError) as error:
        raise _different(f"{what}: {kept.path} has no repetitions: {error}") from error
    if not again <= set(run.counters):
        raise _different(f"{what}: {kept.path} has other figures than the record")


def _own(trial: Trial, run: Run, name: str) -> Artifact | None:
    files = artifacts_of_run(trial.artifacts, run.name)
    return next((one for one in files if one.name.endswith(f"/{name}")), None)


def _raw(trial: Trial, run: Run) -> Artifact | None:
    """What fio wrote of a run; of an imported trial it has the name that others gave it."""
    own = _own(trial, run, RAW)
    if own is not None or trial.origin is None:
        return own
    files = artifacts_of_run(trial.artifacts, run.name)
    theirs = [one for one in files if not one.name.endswith(_SERIES)]
    return theirs[0] if len(theirs) == 1 else None


def _decisive(run: Run, objective: Objective) -> tuple[object, ...]:
    """What verdicts are made of; what else is read from fio's output grows with our versions."""
    jobs = tuple((job.name, job.direction, job.total_ios, job.runtime_ms, job.error) for job in run.jobs)
    return jobs, objective.of_jobs(run)


def _content(run_dir: Path, artifact: Artifact, what: str) -> bytes:
    path = run_dir / artifact.path
    try:
        content = inside(run_dir, artifact.path).read_bytes()
    except OSError as error:
        raise _different(f"{what}: cannot read {path}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != artifact.sha256:
        raise _different(f"{what}: {path} has been changed: its SHA-256 is not the recorded one")
    return content


def _told(run_dir: Path, judging: Judging) -> Iterator[tuple[str, Verdict, Verdict]]:
    """Each measured commit in git's log with its verdict, and the last one that git was told of it.

    Where readings are weighed git is told what all of them together say, which one of them may contradict.
    """
    if judging.settings.bisect.strategy is not Strategy.GIT or not (run_dir / GIT_LOG).is_file():
        return
    words = _verdicts(judging.terms)
    told = {sha: words[word] for word, sha in _TOLD.findall(_log(run_dir)) if word in words}
    for sha, verdict in told.items():
        judgement = judging.judge(sha)
        if judgement is not None and any(trial.commit.sha == sha for _, trial in judging.trials):
            yield sha, judgement.verdict, verdict


def _log(run_dir: Path) -> str:
    try:
        return inside(run_dir, GIT_LOG).read_text(encoding="utf-8")
    except OSError as error:
        raise _different(f"cannot read {run_dir / GIT_LOG}: {error.strerror}") from error


def _verdicts(terms: Terms) -> dict[str, Verdict]:
    return {terms.word(verdict): verdict for verdict in (Verdict.OLD, Verdict.NEW, Verdict.SKIP)}


def _different(what: str) -> InfraError:
    return InfraError(
        f"the record cannot be confirmed from its files, so no letter is written: {what}",
        "measure again: bisector start with another --run-dir; the files are in trials/ of the run directory",
    )
