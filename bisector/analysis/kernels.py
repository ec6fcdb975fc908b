"""Which commits have equal kernels, as far as they were built: what is known of one holds for the others.

That kernels are equal is seen by their content (:class:`bisector.core.subject.Kernel`).
"""

from collections.abc import Callable, Iterable, Sequence

from bisector.analysis.judgement import Numbered, Untestable
from bisector.analysis.verdicts import Judging
from bisector.core.subject import Commit, Kernel
from bisector.core.trial import Trial


def kernel_of(trials: Sequence[Numbered], sha: str) -> Kernel | None:
    """The kernel that was built of a commit; None when none was."""
    kernels = (trial.kernel for _, trial in trials if trial.commit.sha == sha)
    return next(filter(None, kernels), None)


def possible(
    trials: Sequence[Numbered], candidates: Iterable[Commit], parents_of: Callable[[str], Iterable[str]]
) -> tuple[Commit, ...]:
    """Those of the candidates that can have made the change: not the ones that have a parent's kernel."""
    contents = {trial.commit.sha: trial.kernel.content_sha256 for _, trial in trials if trial.kernel is not None}

    def has_a_parents(commit: Commit) -> bool:
        content = contents.get(commit.sha)
        return content is not None and any(contents.get(parent) == content for parent in parents_of(commit.sha))

    return tuple(commit for commit in candidates if not has_a_parents(commit))


def measured(judging: Judging) -> dict[str, str]:
    """Content of each kernel that has figures that count, or surely is at fault itself, and the commit it is of."""
    return {
        trial.kernel.content_sha256: trial.commit.sha
        for _, trial in judging.trials
        if trial.kernel is not None and trial.subject.is_commit and _holds_for_equals(judging, trial)
    }


def measured_whole(judging: Judging) -> dict[str, str]:
    """Those that are measured by trials that an answer may rest on alone, or need no such trial any more."""
    early = {trial.commit.sha for _, trial in judging.trials if trial.runs and not trial.bears_answer}
    return {
        content: sha
        for content, sha in measured(judging).items()
        if sha not in early or judging.to_measure_whole(sha) is None
    }


def _holds_for_equals(judging: Judging, trial: Trial) -> bool:
    """Whether what is known of a trial's commit holds for any commit with an equal kernel.

    A panic that was believed does; a host that was too busy each time says nothing of the kernel.
    """
    if trial.fault is None:
        return bool(trial.runs) and judging.is_sound(trial)
    sha = trial.commit.sha
    all_faults = all(other.fault is not None for _, other in judging.trials if other.commit.sha == sha)
    return all_faults and isinstance(judging.settlement(sha), Untestable)
