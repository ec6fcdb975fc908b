"""Bisections of named histories."""

from collections.abc import Callable

from bisector.core.verdict import Verdict
from bisector.git.bisect import Bisect, CommitToTry, FirstNewCommit, Step
from bisector.git.repository import Repository
from tests.git.checks import assert_git_agrees
from tests.git.histories import Node, ancestors

OLD, NEW, SKIP = Verdict.OLD, Verdict.NEW, Verdict.SKIP


class Search:
    """A bisection of a named history, driven by the names."""

    def __init__(self, repository: Repository, names: dict[str, str], bisect: Bisect) -> None:
        self.repository = repository
        self.names = {sha: name for name, sha in names.items()}
        self.shas = names
        self.bisect = bisect
        self.tried: list[str] = []

    def run(self, verdict_of: Callable[[str], Verdict]) -> Step:
        """To the end, by an oracle."""
        while isinstance(step := self.bisect.next(), CommitToTry):
            name = self.names[step.commit.sha]
            self.tried.append(name)
            assert step.is_merge_base or step.commit.sha in self.bisect.candidates()
            assert self.bisect.tell(step.commit.sha, verdict_of(name))
        if isinstance(step, FirstNewCommit):
            assert_git_agrees(self.bisect, step)
        return step

    def to(self, culprit: str, nodes: tuple[Node, ...], *skipped: str) -> Step:
        """To the end, without noise: a commit is new if the culprit is its ancestor or itself."""
        known = ancestors(nodes)
        return self.run(lambda name: SKIP if name in skipped else NEW if culprit in known[name] else OLD)


Begin = Callable[..., Search]
