"""The kernels that are compared: the distribution's own, and with edits that stand for what older kernels did.

They are commits of one repository, which borrows the sources of the repositories of the demonstration. The same sources
give the same hashes at each making.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios.demo import history
from scenarios.demo.commits import EDITS, Entry, digest, load_entries
from scenarios.demo.fast_import import on_top
from scenarios.demo.history import History
from scenarios.demo.repository import Repository, borrowing
from scenarios.demo.run import SOURCES, history_of, number, tarballs, version

OWN_EDITS = Path(__file__).parent / "edits.toml"
SLOW_CACHE, SLOW_SUBMIT, WORKER = "slow-cache", "slow-submit", "submit-in-worker"
# Tags of commits on top of the newest kernel, and the keys of their edits: that of the demonstration which keeps a full
# dm-cache from taking anything in, and two of which the second is on top of the first.
_BRANCHES = ({SLOW_CACHE: "spoil"}, {SLOW_SUBMIT: "waits", WORKER: "worker"})
# Before e03ad4ee2783 ("iov_iter: convert import_single_range() to ITER_UBUF", v6.4) each request has its iovec on the
# stack of io_submit(2), and the edit leaves none of those to a worker.
_WORKS_SINCE = (6, 4)


@dataclass(frozen=True, slots=True)
class Kernels:
    """A repository with tags, a patch in a file, and the demonstration's history of the newest kernel.

    ``newest`` is the distribution's newest kernel, ``older`` another one, which a machine need not have; ``slow_cache``
    is the newest with the demonstration's edit of dm-cache, ``slow_submit`` with one that makes submissions wait.
    ``patch`` goes on top of that, and ``patched`` has it; ``no_patch`` says why it has no effect on these sources, and
    is empty where it has one.
    """

    repo: Path
    newest: str
    older: str
    slow_cache: str
    slow_submit: str
    patched: str
    patch: Path
    demo: History
    no_patch: str = ""

    @property
    def built(self) -> tuple[str, ...]:
        """What is built before anything is timed; the demonstration builds its own."""
        of_patch = () if self.no_patch else (self.slow_submit, self.patched)
        return tuple(filter(None, (self.newest, self.older, self.slow_cache, *of_patch)))


def make(home: Path, work: Path, sources: Path = SOURCES) -> Kernels:
    """Make the repository below ``home``, and the patch in ``work``, of tarballs in ``sources``.

    What is there already is not made again.

    Raises :class:`bisector.core.errors.UserError` without a tarball of the sources, and
    :class:`bisector.core.errors.InfraError` when git fails.
    """
    newest, *others = reversed(tarballs(sources))
    demo = history.make(newest, history_of(newest, home))
    lenders = {_name(newest): Path(demo.repo)}
    for other in others[:1]:
        lenders[_name(other)] = Path(history.make(other, history_of(other, home)).repo)
    repo = _made(home, lenders)
    name, older = (*lenders, "")[:2]
    patch = work / f"{WORKER}.patch"
    work.mkdir(parents=True, exist_ok=True)
    slow_submit, patched = f"{name}-{SLOW_SUBMIT}", f"{name}-{WORKER}"
    patch.write_bytes(repo.output("diff", "--no-color", "--no-ext-diff", slow_submit, patched))
    works = version(newest) >= _WORKS_SINCE
    no_patch = "" if works else f"the patch has an effect on Linux 6.4 and later alone, and the newest source is {name}"
    return Kernels(repo.path, name, older, f"{name}-{SLOW_CACHE}", slow_submit, patched, patch, demo, no_patch)


def _made(home: Path, lenders: Mapping[str, Path]) -> Repository:
    """The repository of just these sources and edits; one of others stays, since a run may need it."""
    texts = [path.read_text("utf-8") for path in (EDITS, OWN_EDITS, Path(__file__), *history.MAKERS)]
    roots = {tag: Repository(lender).root(history.NEW_TAG) for tag, lender in lenders.items()}
    path = home / f"articles-{digest(*(text.encode() for text in (*texts, *roots, *roots.values())))}"
    edits = {entry.key: entry for text in texts[:2] for entry in load_entries(text)}
    return borrowing(path, lenders.values(), lambda repo: _fill(repo, roots, edits))


def _fill(repo: Repository, roots: Mapping[str, str], edits: Mapping[str, Entry]) -> None:
    for tag, root in roots.items():
        repo.tag(tag, root)
    name, root = next(iter(roots.items()))
    for branch in _BRANCHES:
        entries = [replace(edits[key].alone, tag=f"{name}-{tag}") for tag, key in branch.items()]
        on_top(repo, root, entries, next(iter(branch)))
    repo.git("update-ref", "refs/heads/main", root)


def _name(tarball: Path) -> str:
    return f"v{number(tarball)}"
