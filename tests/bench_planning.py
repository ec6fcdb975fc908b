"""How long planning a range of 28,000 commits takes, wall seconds by part; ``make bench`` runs it, pytest does not."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bisector.core.verdict import SideWords, Verdict
from bisector.git.bisect import Bisect, CommitToTry
from bisector.git.ranges import Range, check_range
from bisector.git.repository import Repository
from bisector.git.trees import Trees
from bisector.kernel.sources import Sources, mattering
from tests.git.histories import build, subsystems

COMMITS = 28_000
GOAL_S = 3.0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


@contextmanager
def timed(what: str) -> Iterator[None]:
    before = time.monotonic()
    yield
    say(f"{what:<40}{time.monotonic() - before:7.2f} s")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch)
        with timed(f"(making a history of {COMMITS:,} commits)"):
            names = build(where / "linux", subsystems(COMMITS))
        before = time.monotonic()
        with ExitStack() as stack:
            with timed("open and resolve"):
                repository = Repository.open(where / "linux")
                wanted = Range(repository.resolve(names["c0"]), repository.resolve("main"))
                repository.check_kernel_tree(wanted.old)
            with timed("check the range"):
                commits = check_range(repository, wanted)
            with timed("git bisect start, and the first commit"):
                bisect = stack.enter_context(Bisect(repository, where / "run", wanted, SideWords()))
                bisect.start()
                step = bisect.next()
            with timed("how many commits can matter"):
                read = Sources(frozenset(("init/main.c", *(f"files/b/{number}" for number in range(3)))))
                walk = Trees(repository).along(wanted)
                assert walk is not None
                relevance = mattering((read,), *walk).relevance
            planning_s = time.monotonic() - before
            say(f"{'planning, all of it':<40}{planning_s:7.2f} s   (goal: {GOAL_S:g} s)")
            assert isinstance(step, CommitToTry)
            with timed("a verdict, and the next commit"):
                bisect.tell(step.commit.sha, Verdict.OLD)
                step = bisect.next()
            assert isinstance(step, CommitToTry)
            with timed("a skip, and the next commit"):
                bisect.tell(step.commit.sha, Verdict.SKIP)
                bisect.next()
            with timed("the list of candidates"):
                bisect.candidates()
            say(relevance.sentence)
            say(f"{commits:,} candidates")


if __name__ == "__main__":
    main()
