"""What the effective configurations on both sides of the answer differ in, from the files of its trials.

A changed default in a Kconfig file is a frequent reason for a changed figure, and then the diff of
the first new commit does not show what the compiler was given.
"""

from collections.abc import Iterable
from pathlib import Path

from bisector.core.errors import BisectorError
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.git.repository import Repository
from bisector.host.files import inside
from bisector.kernel import kconfig
from bisector.status.view import ConfigChanges, OptionChange

ARTIFACT = "kernel.config"


def config_changes(
    repository: Path, paths: Iterable[str], run_dir: Path, trials: Iterable[Trial], first: Commit
) -> tuple[ConfigChanges, ...]:
    """One for each parent of ``first`` whose .config was kept, with or without a kernel that could be measured.

    With ``paths`` the parents are those that git's history of these paths shows. Nothing when the
    repository or the files are gone: this is told beside the answer and does not decide it.
    """
    files = {trial.commit.sha: path for trial in trials if (path := _file(trial)) is not None}
    child = _options(run_dir, files.get(first.sha))
    if child is None:
        return ()
    found = ((parent, _options(run_dir, files.get(parent.sha))) for parent in _parents(repository, paths, first))
    return tuple(
        ConfigChanges(parent, tuple(OptionChange(*one) for one in kconfig.differences(options, child)))
        for parent, options in found
        if options is not None
    )


def _parents(repository: Path, paths: Iterable[str], commit: Commit) -> tuple[Commit, ...]:
    try:
        with Repository.open(repository) as opened:
            answer = opened.ask("rev-list", "--parents", "--max-count=1", commit.sha, "--", *paths)
            return opened.commits(sha for line in answer.lines for sha in line.split()[1:])
    except BisectorError:
        return ()


def _file(trial: Trial) -> str | None:
    return next((artifact.path for artifact in trial.artifacts if artifact.name == ARTIFACT), None)


def _options(run_dir: Path, file: str | None) -> kconfig.Options | None:
    try:
        return kconfig.read_effective(inside(run_dir, file)) if file is not None else None
    except OSError:
        return None
