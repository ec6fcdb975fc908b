"""Commits for git-fast-import(1): the same commits have the same hashes, whoever makes them, and whenever."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bisector.core.errors import InfraError, UserError
from scenarios.demo.commits import FIRST_MARK, Entry, Step, plan, touched_paths
from scenarios.demo.repository import Repository, environment

MAIN = "refs/heads/main"
MARKS = "bisector-marks"
_IDENTITY = "Demonstration <demo@example.org>"
_FIRST_DATE_S = 1_704_067_200  # 2024-01-01T00:00:00Z
_STEP_S = 3600
# Level 1 makes a quarter of level 0's size in the same time; deltas would cost time at each checkout.
_FAST = ("-c", "core.compression=1", "-c", "fastimport.unpackLimit=0")
_FILE = b"100644"
_NONE: Mapping[int, str] = {}


@contextmanager
def fast_import(repository: Path, marks: Path, known: Mapping[int, str] = _NONE) -> Iterator[IO[bytes]]:
    """git fast-import's standard input; nothing is kept unless the block ends well. ``marks`` gets the hashes.

    ``known`` are the marks of commits that are there already.
    """
    if known:
        marks.write_text("".join(f":{mark} {sha}\n" for mark, sha in known.items()))
    command = ["git", "-C", str(repository), *_FAST, "fast-import", "--quiet", "--done", "--depth=0"]
    both = (f"--import-marks-if-exists={marks}", f"--export-marks={marks}")
    process = subprocess.Popen([*command, *both], stdin=subprocess.PIPE, env=environment(), start_new_session=True)
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


def read_marks(marks: Path) -> dict[int, str]:
    """The hash of each mark; the file goes."""
    shas = {int(mark[1:]): sha for mark, sha in map(str.split, marks.read_text().splitlines())}
    marks.unlink()
    return shas


def on_top(repository: Repository, root: str, entries: Sequence[Entry], branch: str) -> list[str]:
    """Make commits on top of one that is there, as a branch; their hashes, in their order.

    Raises :class:`bisector.core.errors.UserError` when a text that is edited is not there.
    """
    originals = {path: _original(repository, root, path) for path in sorted(touched_paths(entries))}
    steps = list(plan(entries, originals))
    marks = repository.path / ".git" / MARKS
    with fast_import(repository.path, marks, {FIRST_MARK: root}) as out:
        for step in steps:
            write_step(step, out, f"refs/heads/{branch}")
    shas = read_marks(marks)
    return [shas[step.mark] for step in steps]


def _original(repository: Repository, root: str, path: str) -> bytes:
    if not repository.git("ls-tree", "--name-only", root, "--", path):
        raise UserError(f"the source has no {path}", "these edits are of other versions of Linux")
    return repository.output("cat-file", "blob", f"{root}:{path}")


def header(mark: int, entry: Entry, branch: str = MAIN) -> bytes:
    """The head of a commit; dates follow the order of making."""
    message = f"{entry.subject}\n\n{entry.body}\n" if entry.body else f"{entry.subject}\n"
    who = f"{_IDENTITY} {_FIRST_DATE_S + _STEP_S * mark} +0000"
    head = f"commit {branch}\nmark :{mark}\nauthor {who}\ncommitter {who}\ndata {len(message.encode())}\n"
    return (head + message).encode()


def file(path: str, content: bytes, mode: bytes = _FILE) -> bytes:
    """A file of the commit whose head was written last."""
    return b"M %s inline %s\ndata %d\n%s\n" % (mode, path.encode(), len(content), content)


def write_step(step: Step, out: IO[bytes], branch: str = MAIN) -> None:
    """A commit with its parents, its files and its tag."""
    out.write(header(step.mark, step.entry, branch))
    for keyword, parent in zip(("from", "merge"), step.parents, strict=False):
        out.write(f"{keyword} :{parent}\n".encode())
    for path, content in sorted(step.files.items()):
        out.write(file(path, content))
    if step.entry.tag:
        out.write(f"reset refs/tags/{step.entry.tag}\nfrom :{step.mark}\n\n".encode())
