"""The kernels that are compared: the distribution's own, and with edits that stand for what older kernels did.

They are commits of one repository, which borrows the sources of the repositories of the demonstration. The same sources
give the same hashes at each making.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bisector.core.errors import InfraError
from tests.demo import history
from tests.demo.commits import EDITS, Entry, digest, load_entries
from tests.demo.history import History
from tests.demo.run import SOURCES, tarballs, version

OWN_EDITS = Path(__file__).parent / "edits.toml"
SLOW_CACHE, SLOW_SUBMIT, WORKER = "slow-cache", "slow-submit", "submit-in-worker"
_SPOIL = "spoil"  # the key of the demonstration's edit that keeps a full dm-cache from taking anything in
_WAITS, _IN_WORKER = "waits", "worker"
_DATE = "2024-01-01T00:00:00Z"
_NOBODY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Articles"), ("EMAIL", "articles@example.org"), ("DATE", _DATE))
}


@dataclass(frozen=True, slots=True)
class Kernels:
    """A repository with tags, a patch in a file, and the demonstration's history of the newest kernel.

    ``newest`` is the distribution's newest kernel, ``older`` another one, which a machine need not have; ``slow_cache``
    is the newest with the demonstration's edit of dm-cache, ``slow_submit`` with one that makes submissions wait.
    ``patch`` goes on top of that, and ``patched`` has it.
    """

    repo: Path
    newest: str
    older: str
    slow_cache: str
    slow_submit: str
    patched: str
    patch: Path
    demo: History

    @property
    def built(self) -> tuple[str, ...]:
        """What is built before anything is timed; the demonstration builds its own."""
        return tuple(filter(None, (self.newest, self.older, self.slow_cache, self.slow_submit, self.patched)))


def make(home: Path, work: Path, sources: Path = SOURCES) -> Kernels:
    """Make the repository below ``home``, and the patch in ``work``, of tarballs in ``sources``.

    What is there already is not made again.

    Raises :class:`bisector.core.errors.UserError` without a tarball of the sources, :class:`InfraError` when git fails.
    """
    newest, *others = reversed(tarballs(sources))
    demo = history.make(newest, home / "linux")
    lenders = {_name(newest): Path(demo.repo)}
    for other in others[:1]:
        lenders[_name(other)] = Path(history.make(other, home / f"linux-{_number(other)}").repo)
    repo = _made(home, lenders)
    name, older = (*lenders, "")[:2]
    patch = work / f"{WORKER}.patch"
    work.mkdir(parents=True, exist_ok=True)
    slow_submit, patched = f"{name}-{SLOW_SUBMIT}", f"{name}-{WORKER}"
    patch.write_bytes(repo.output("diff", "--no-color", "--no-ext-diff", slow_submit, patched))
    return Kernels(repo.path, name, older, f"{name}-{SLOW_CACHE}", slow_submit, patched, patch, demo)


def _made(home: Path, lenders: Mapping[str, Path]) -> "_Repository":
    """The repository of just these sources and edits; one of others stays, since a run may need it."""
    texts = [path.read_text("utf-8") for path in (EDITS, OWN_EDITS, Path(__file__))]
    roots = {tag: _Repository(lender).root() for tag, lender in lenders.items()}
    path = home / f"articles-{digest(*(text.encode() for text in (*texts, *roots, *roots.values())))}"
    with (home / "articles.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            aside = path.with_name(f"{path.name}.making")
            shutil.rmtree(aside, ignore_errors=True)  # of a making that was killed
            edits = {entry.key: entry for text in texts[:2] for entry in load_entries(text)}
            _make(_Repository(aside), lenders, roots, edits)
            aside.rename(path)
    return _Repository(path)


def _make(
    repo: "_Repository", lenders: Mapping[str, Path], roots: Mapping[str, str], edits: Mapping[str, Entry]
) -> None:
    repo.path.mkdir(parents=True)
    repo.git("init", "--quiet", "--template=", "--object-format=sha1", "--initial-branch=main")
    repo.borrow(lenders.values())
    for tag, root in roots.items():
        repo.tag(tag, root)
    name = next(iter(roots))
    repo.tag(f"{name}-{SLOW_CACHE}", repo.commit(roots[name], edits[_SPOIL]))
    slow = repo.commit(roots[name], edits[_WAITS])
    repo.tag(f"{name}-{SLOW_SUBMIT}", slow)
    repo.tag(f"{name}-{WORKER}", repo.commit(slow, edits[_IN_WORKER]))
    repo.git("update-ref", "refs/heads/main", roots[name])


def _number(tarball: Path) -> str:
    return ".".join(map(str, version(tarball)))


def _name(tarball: Path) -> str:
    return f"v{_number(tarball)}"


@dataclass(frozen=True, slots=True)
class _Repository:
    """A repository without a work tree, and git in it, without a person's settings."""

    path: Path

    def root(self) -> str:
        """The first commit of a history of the demonstration: the distribution's source as it is."""
        return self.git("rev-list", "--max-parents=0", history.NEW_TAG)

    def borrow(self, lenders: Iterable[Path]) -> None:
        """Use the objects of other repositories (gitrepository-layout(5), "objects/info/alternates")."""
        info = self.path / ".git" / "objects" / "info"
        info.mkdir(exist_ok=True)
        lines = (f"{lender.absolute() / '.git' / 'objects'}\n" for lender in lenders)
        (info / "alternates").write_text("".join(lines), encoding="utf-8")

    def commit(self, parent: str, entry: Entry) -> str:
        """A commit with the edits of an entry on top of another one."""
        index = {"GIT_INDEX_FILE": str(self.path / ".git" / "index.making")}
        self.git("read-tree", parent, more=index)
        files: dict[str, bytes] = {}
        for edit in entry.edits:
            content = files.get(edit.path) or self.output("cat-file", "blob", f"{parent}:{edit.path}")
            files[edit.path] = edit.apply(content)
        for path, content in files.items():
            blob = self.output("hash-object", "-w", "--stdin", given=content).decode().strip()
            self.git("update-index", "--cacheinfo", f"100644,{blob},{path}", more=index)
        tree = self.git("write-tree", more=index)
        message = f"{entry.subject}\n\n{entry.body.strip()}\n"
        made = self.output("commit-tree", "-p", parent, tree, given=message.encode(), more=_NOBODY)
        return made.decode().strip()

    def tag(self, name: str, commit: str) -> None:
        """Give a commit a name."""
        self.git("update-ref", f"refs/tags/{name}", commit)

    def git(self, *arguments: str, more: dict[str, str] | None = None) -> str:
        """What git prints, without the last newline."""
        return self.output(*arguments, more=more).decode().strip()

    def output(self, *arguments: str, given: bytes | None = None, more: dict[str, str] | None = None) -> bytes:
        """What git prints; raises :class:`InfraError` when it fails."""
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments],
            input=given, capture_output=True, env={**history._environment(), **(more or {})}, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise InfraError(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout
