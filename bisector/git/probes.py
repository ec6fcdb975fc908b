"""What git on this machine is good for, found out by having it bisect."""

from pathlib import Path

from bisector.core.errors import Finding, Grade, InfraError
from bisector.core.verdict import Terms, Verdict
from bisector.git.bisect import Bisect, CommitToTry
from bisector.git.command import GitRunner
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.host.packages import install

_COMMITS = 5
_TERMS = Terms("before", "after")


def git(scratch: Path) -> Finding:
    """Git's version, and whether it goes on after a skip under terms that are not its own.

    git 2.31 did not know them there: 4cd66e7d6b42 ("bisect--helper: use BISECT_TERMS in 'bisect skip'
    command") (in v2.32). Raises :class:`bisector.core.errors.UserError` when git is not installed.
    """
    door = GitRunner()
    try:
        works = _goes_on_after_skip(door, scratch / "git")
        trouble = "" if works else "`git bisect skip` ends the search"
    except InfraError as error:
        trouble = error.message
    finally:
        door.close()
    if trouble:
        what = f"git {door.version} cannot bisect with terms of its user's choice, as 2.32 can: {trouble}"
        return Finding("git", Grade.MISSING, what, install("git"))
    return Finding("git", Grade.OK, f"{door.version}; tried: bisects and skips with other terms than good and bad")


def mail(directory: Path) -> Finding:
    """Whether `git send-email` is set up; the server alone is told, never a password."""
    door = GitRunner()
    answer = door("config", "--get", "sendemail.smtpserver", at=directory, ok=None)
    door.close()
    server = answer.stdout.strip()
    state = f"git's sendemail.smtpServer is {server}" if server else "git's sendemail.smtpServer is not set"
    return Finding("git send-email", Grade.INFO, state)


def _goes_on_after_skip(door: GitRunner, directory: Path) -> bool:
    """Bisect a tiny history as a run does, and skip the first commit that is proposed."""
    directory.mkdir()
    door("init", "--quiet", "--template=", "--", "linux", at=directory)
    door("fast-import", "--quiet", at=directory / "linux", stdin="".join(map(_commit, range(_COMMITS))))
    with Repository.open(directory / "linux") as repository:
        new, *_, old = repository.ask("rev-list", "main").lines
        wanted = Range(repository.resolve(old), repository.resolve(new))
        with Bisect(repository, directory / "run", wanted, _TERMS) as bisect:
            bisect.start()
            first = bisect.next()
            if not isinstance(first, CommitToTry):
                return False
            bisect.tell(first.commit.sha, Verdict.SKIP)
            second = bisect.next()
            return isinstance(second, CommitToTry) and second.commit != first.commit


def _commit(number: int) -> str:
    return (
        f"commit refs/heads/main\ncommitter bisector <bisector@localhost> {1_500_000_000 + number} +0000\n"
        f"data 0\nM 100644 inline file\ndata {len(str(number))}\n{number}\n"
    )
