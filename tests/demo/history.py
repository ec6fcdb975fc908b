"""A kernel history with a known answer, made from Debian's linux-source package.

The tarball's tree becomes the first commit; the rest are the small edits of ``edits/commits.toml``. The same
tarball gives the same hashes at each making: authors, dates and order are fixed, and nothing of the machine's
git configuration takes part. ``python -m tests.demo.history --tarball FILE --repo DIR`` prints what was made as JSON.
"""

import argparse
import fcntl
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from bisector.core.errors import BisectorError, InfraError, UserError
from tests.demo import commits
from tests.demo.commits import EDITS, Step, digest, load_entries, plan, touched_paths

OLD_TAG, NEW_TAG = "demo-old", "demo-new"
CULPRIT_KEY = "fix"
STAMP = "bisector-demo.json"
_IDENTITY = "Demonstration <demo@example.org>"
_FIRST_DATE_S = 1_704_067_200  # 2024-01-01T00:00:00Z
_STEP_S = 3600
# Level 1 makes a quarter of level 0's size in the same time; deltas would cost time at each checkout.
_FAST = ("-c", "core.compression=1", "-c", "fastimport.unpackLimit=0")


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
        "generator": digest(Path(__file__).read_bytes(), Path(commits.__file__).read_bytes(), EDITS.read_bytes()),
    }
    repo.parent.mkdir(parents=True, exist_ok=True)
    with _locked(repo.with_name(repo.name + ".lock")):
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
    _git(None, "init", "--quiet", "--template=", "--object-format=sha1", "--initial-branch=main", str(aside))
    marks = aside / ".git" / "bisector-marks"
    steps: list[Step] = []
    with _fast_import(aside, marks) as out:
        originals = _write_first(tarball, touched_paths(entries), out)
        for step in plan(entries, originals):
            _write_step(step, out)
            steps.append(step)
    shas = {int(mark[1:]): sha for mark, sha in map(str.split, marks.read_text().splitlines())}
    marks.unlink()
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
            out.write(_header(1, f"{first.name.partition('/')[0] if first else tarball.name}: import", ""))
            for member in archive:
                _, _, path = member.name.partition("/")
                if not path or member.isdir():
                    continue
                content = _content(archive, member)
                out.write(_file(path, content, _mode(member)))
                if path in wanted:
                    originals[path] = content
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{tarball}: {error}", "reinstall the linux-source package") from error
    if missing := sorted(wanted - originals.keys()):
        raise UserError(f"{tarball}: it has no {missing[0]}", "give a tarball of Linux 6.1 or 6.12 with --tarball")
    return originals


def _write_step(step: Step, out: IO[bytes]) -> None:
    out.write(_header(step.mark, step.entry.subject, step.entry.body))
    for keyword, parent in zip(("from", "merge"), step.parents, strict=False):
        out.write(f"{keyword} :{parent}\n".encode())
    for path, content in sorted(step.files.items()):
        out.write(_file(path, content, b"100644"))
    if step.entry.tag:
        out.write(f"reset refs/tags/{step.entry.tag}\nfrom :{step.mark}\n\n".encode())


def _header(mark: int, subject: str, body: str) -> bytes:
    """The head of a commit for git-fast-import(1); dates follow the order of making."""
    message = f"{subject}\n\n{body}\n" if body else f"{subject}\n"
    who = f"{_IDENTITY} {_FIRST_DATE_S + _STEP_S * mark} +0000"
    head = f"commit refs/heads/main\nmark :{mark}\nauthor {who}\ncommitter {who}\ndata {len(message.encode())}\n"
    return (head + message).encode()


def _file(path: str, content: bytes, mode: bytes) -> bytes:
    return b"M %s inline %s\ndata %d\n%s\n" % (mode, path.encode(), len(content), content)


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


@contextmanager
def _fast_import(repo: Path, marks: Path) -> Iterator[IO[bytes]]:
    """git fast-import's standard input; nothing is kept unless the block ends well."""
    command = ["git", "-C", str(repo), *_FAST, "fast-import", "--quiet", "--done", "--depth=0"]
    process = subprocess.Popen(
        [*command, f"--export-marks={marks}"], stdin=subprocess.PIPE, env=_environment(), start_new_session=True
    )
    assert process.stdin is not None
    try:
        with process.stdin as out:
            yield out
            out.write(b"done\n")
    except BrokenPipeError:
        pass  # git says on standard error why it ended; its status tells below
    except BaseException:
        process.kill()
        raise
    finally:
        status = process.wait()
    if status != 0:
        raise InfraError(f"git fast-import ended with status {status}", "is there room on the disk?")


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
    tags = _git(repo, "rev-list", "--no-walk=unsorted", OLD_TAG, NEW_TAG)
    return history if tags.split() == [history.old, history.new] else None


def _refuse_others(repo: Path) -> None:
    """An earlier history is ours to replace; anything else at that place is somebody's own."""
    ours = (repo / ".git" / STAMP).exists()
    if not ours and repo.exists() and (not repo.is_dir() or any(repo.iterdir())):
        raise UserError(f"{repo}: there is something else already", "name another directory with --repo")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _git(repo: Path | None, *arguments: str) -> str:
    """The output of a git command; empty when it fails, which the caller then finds out."""
    where = ["-C", str(repo)] if repo else []
    done = subprocess.run(
        ["git", *where, *arguments], stdout=subprocess.PIPE, env=_environment(), text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def _environment() -> dict[str, str]:
    """Without the person's git settings: a template, a hook or a default branch would change what is made."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the history and print it as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.demo.history", description="Make the demonstration's history."
    )
    parser.add_argument("--tarball", type=Path, required=True, help="Debian's linux-source-VERSION.tar.xz")
    parser.add_argument("--repo", type=Path, required=True, help="where the repository is to stand")
    options = parser.parse_args(arguments)
    try:
        history = make(options.tarball, options.repo)
    except BisectorError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code
    sys.stdout.write(json.dumps(asdict(history), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
