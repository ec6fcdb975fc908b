"""A kernel history with a known answer, made from Debian's linux-source package.

The tarball's tree becomes the first commit; the rest are the small edits of ``edits/commits.toml``. The same
tarball gives the same hashes at each making: authors, dates and order are fixed, and nothing of the machine's
git configuration takes part.
``python -m scenarios.demo.history --tarball FILE --repo DIR`` prints what was made as JSON.
"""

import argparse
import hashlib
import json
import lzma
import shutil
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from bisector.core.errors import InfraError, UserError
from scenarios.demo import commits
from scenarios.demo import fast_import as maker
from scenarios.demo.commits import EDITS, FIRST_MARK, Entry, Step, digest, load_entries, plan, touched_paths
from scenarios.demo.fast_import import MARKS, fast_import, file, header, read_marks, write_step
from scenarios.demo.repository import Repository, locked
from scenarios.kept_runs import exit_status

OLD_TAG, NEW_TAG = "demo-old", "demo-new"
CULPRIT_KEY = "fix"
STAMP = "bisector-demo.json"
# The code that decides what a commit of a history is.
MAKERS = tuple(Path(str(module.__file__)) for module in (commits, maker))


@dataclass(frozen=True, slots=True)
class MadeCommit:
    """A commit of the history; see :class:`Step` for ``kernel``."""

    sha: str
    subject: str
    effect: str
    kernel: str


@dataclass(frozen=True, slots=True)
class History:
    """What was made: the ends, the commit to be found, all commits in the order of their making."""

    repo: str
    old: str
    new: str
    culprit: MadeCommit
    commits: tuple[MadeCommit, ...]


def make(tarball: Path, repo: Path) -> History:
    """Make the history in ``repo``, or do nothing when just that history is there.

    The repository appears whole or not at all. Raises :class:`UserError` when the tarball cannot be used or the
    directory holds something else, :class:`InfraError` when git fails.
    """
    if not tarball.is_file():
        raise UserError(f"{tarball}: no such file", "apt-get install linux-source")
    repo = repo.absolute()
    origin = {
        "tarball_sha256": _file_digest(tarball),
        "generator": digest(*(part.read_bytes() for part in (Path(__file__), *MAKERS, EDITS))),
    }
    repo.parent.mkdir(parents=True, exist_ok=True)
    with locked(repo.with_name(repo.name + ".lock")):
        if (kept := _kept(repo, origin)) is not None:
            return kept
        _refuse_others(repo)
        aside = repo.with_name(repo.name + ".making")
        shutil.rmtree(aside, ignore_errors=True)  # of a making that was killed
        try:
            history = _build(tarball, aside, repo)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        (aside / ".git" / STAMP).write_text(json.dumps({"origin": origin, "history": asdict(history)}, indent=1))
        discarded = repo.with_name(repo.name + ".old")  # a kill amid its removal must not leave half of one in place
        shutil.rmtree(discarded, ignore_errors=True)
        if repo.exists():
            repo.rename(discarded)
        aside.rename(repo)
        shutil.rmtree(discarded, ignore_errors=True)
    return history


def _build(tarball: Path, aside: Path, repo: Path) -> History:
    entries = load_entries(EDITS.read_text(encoding="utf-8"))
    Repository.new(aside)
    marks = aside / ".git" / MARKS
    steps: list[Step] = []
    with fast_import(aside, marks) as out:
        originals = _write_first(tarball, touched_paths(entries), out)
        for step in plan(entries, originals):
            write_step(step, out)
            steps.append(step)
    shas = read_marks(marks)
    made = {
        step.mark: MadeCommit(shas[step.mark], step.entry.subject, step.entry.effect, step.kernel) for step in steps
    }
    by_tag = {step.entry.tag: made[step.mark].sha for step in steps if step.entry.tag}
    culprit = next(made[step.mark] for step in steps if step.entry.key == CULPRIT_KEY)
    return History(str(repo), by_tag[OLD_TAG], by_tag[NEW_TAG], culprit, tuple(made.values()))


def _write_first(tarball: Path, wanted: frozenset[str], out: IO[bytes]) -> dict[str, bytes]:
    """Write the whole tree as the first commit; the contents of the wanted files."""
    originals: dict[str, bytes] = {}
    try:
        with tarfile.open(tarball, mode="r|*") as archive:
            first = archive.next()
            name = first.name.partition("/")[0] if first else tarball.name
            out.write(header(FIRST_MARK, Entry(f"{name}: import", "code")))
            for member in archive:
                _, _, path = member.name.partition("/")
                if not path or member.isdir():
                    continue
                content = _content(archive, member)
                out.write(file(path, content, _mode(member)))
                if path in wanted:
                    originals[path] = content
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{tarball}: {error}", "reinstall the linux-source package") from error
    if missing := sorted(wanted - originals.keys()):
        raise UserError(f"{tarball}: it has no {missing[0]}", "give a tarball of Linux 6.1 or 6.12 with --tarball")
    return originals


def _mode(member: tarfile.TarInfo) -> bytes:
    if member.issym():
        return b"120000"
    return b"100755" if member.mode & 0o100 else b"100644"


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.issym():
        return member.linkname.encode()
    file = archive.extractfile(member) if member.isreg() else None
    if file is None:
        raise UserError(f"{member.name}: neither a file, a directory nor a symbolic link")
    return file.read()


def _kept(repo: Path, origin: Mapping[str, str]) -> History | None:
    """The history of that origin when it is there and whole."""
    try:
        stamp = json.loads((repo / ".git" / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if stamp["origin"] != origin:
        return None
    rows = stamp["history"]
    commits = tuple(MadeCommit(**row) for row in rows["commits"])
    history = History(str(repo), rows["old"], rows["new"], MadeCommit(**rows["culprit"]), commits)
    try:
        tags = Repository(repo).git("rev-list", "--no-walk=unsorted", OLD_TAG, NEW_TAG)
    except InfraError:
        return None
    return history if tags.split() == [history.old, history.new] else None


def _refuse_others(repo: Path) -> None:
    """An earlier history is ours to replace; anything else at that place is somebody's own."""
    ours = (repo / ".git" / STAMP).exists()
    if not ours and repo.exists() and (not repo.is_dir() or any(repo.iterdir())):
        raise UserError(f"{repo}: there is something else already", "name another directory with --repo")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the history and print it as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m scenarios.demo.history", description="Make the demonstration's history."
    )
    parser.add_argument("--tarball", type=Path, required=True, help="Debian's linux-source-VERSION.tar.xz")
    parser.add_argument("--repo", type=Path, required=True, help="where the repository is to stand")
    options = parser.parse_args(arguments)
    return exit_status(lambda: _print(make(options.tarball, options.repo)))


def _print(history: History) -> int:
    sys.stdout.write(json.dumps(asdict(history), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
