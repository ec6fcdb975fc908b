"""A repository that is made of others' sources, and git in it without a person's settings."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bisector.core.errors import InfraError
from scenarios.kept_runs import write


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository by its path; git in it raises :class:`InfraError` when it fails."""

    path: Path

    @classmethod
    def new(cls, path: Path) -> Self:
        """One without a commit, at a path where nothing is."""
        path.mkdir()
        repository = cls(path)
        repository.git("init", "--quiet", "--template=", "--object-format=sha1", "--initial-branch=main")
        return repository

    def borrow(self, lenders: Iterable[Path]) -> None:
        """Use the objects of other repositories (gitrepository-layout(5), "objects/info/alternates")."""
        info = self.path / ".git" / "objects" / "info"
        info.mkdir(exist_ok=True)
        lines = (f"{lender.absolute() / '.git' / 'objects'}\n" for lender in lenders)
        write(info / "alternates", "".join(lines))

    def root(self, revision: str) -> str:
        """The first commit of a history."""
        return self.git("rev-list", "--max-parents=0", revision)

    def tag(self, name: str, commit: str) -> None:
        """Give a commit a name."""
        self.git("update-ref", f"refs/tags/{name}", commit)

    def git(self, *arguments: str) -> str:
        """What git prints, without the last newline."""
        return self.output(*arguments).decode().strip()

    def output(self, *arguments: str) -> bytes:
        """What git prints."""
        command = ["git", "-C", str(self.path), *arguments]
        done = subprocess.run(command, capture_output=True, env=environment(), check=False)
        if done.returncode != 0:
            raise InfraError(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout


def borrowing(path: Path, lenders: Iterable[Path], fill: Callable[[Repository], None]) -> Repository:
    """The repository at a path, or a new one there that uses the objects of ``lenders`` and that ``fill`` has filled.

    It appears whole or not at all. One that is there is left as it is, since a run may have references in it; only the
    lenders may be at another place than before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f"{path.name}.lock")):
        if path.exists():
            Repository(path).borrow(lenders)
        else:
            aside = path.with_name(f"{path.name}.making")
            shutil.rmtree(aside, ignore_errors=True)  # of a making that was killed
            repository = Repository.new(aside)
            repository.borrow(lenders)
            fill(repository)
            aside.rename(path)
    return Repository(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time, which waits for the others."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def environment() -> dict[str, str]:
    """Without the person's git settings: a template, a hook or a default branch would change what is made."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
