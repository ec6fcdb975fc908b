"""Small and large histories with names, made by one ``git fast-import`` each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from bisector.host.process import run

# What the layers of the tests' stacks need, by name and not as kconfigs/ has it: each new fragment would change the
# hashes of all commits here, and by them git decides between commits that are equally good to try.
_OPTIONS = """
    BLOCK BLK_DEV BLK_DEV_LOOP BLK_DEV_RAM XFS_FS BTRFS_FS
    MD BLK_DEV_MD MD_RAID1 MD_RAID456 BCACHE
    BLK_DEV_DM DM_CACHE DM_CACHE_SMQ DM_WRITECACHE DM_CRYPT
    CRYPTO_AES CRYPTO_XTS CRYPTO_CBC CRYPTO_SHA256
"""
KERNEL_TREE = {
    **dict.fromkeys(("Kbuild", "Kconfig", "Makefile", "arch/x86/Kconfig", "init/Kconfig"), "\n"),
    "drivers/Kconfig": "".join(f"config {name}\n\tbool\n" for name in _OPTIONS.split()),
}
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Node:
    """A commit: its parents' names (none: a root), the files it writes (none: one of its own), tags on it.

    Its subject is its name, unless it says another one.
    """

    name: str
    parents: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    subject: str = ""


def root(name: str) -> Node:
    """A root with the tree of a kernel."""
    return Node(name, files={**KERNEL_TREE, "drivers/md/dm.c": f"{name}\n"})


def chain(prefix: str, count: int, parent: str) -> tuple[Node, ...]:
    """``count`` commits in a row on top of ``parent``, named ``prefix1``, ``prefix2``…"""
    names = [parent, *(f"{prefix}{number}" for number in range(1, count + 1))]
    return tuple(Node(name, (before,)) for before, name in pairwise(names))


def linear(count: int) -> tuple[Node, ...]:
    """``c0`` (a kernel tree) to ``c{count - 1}``."""
    return (root("c0"), *chain("c", count - 1, "c0"))


def old_base_merge() -> tuple[Node, ...]:
    """``c0`` to ``c5``, where ``m`` merges ``c3`` with a branch ``b1 b2 b3`` off ``c0``, and ``c4 c5`` follow."""
    return (*linear(4), *chain("b", 3, "c0"), Node("m", ("c3", "b3")), Node("c4", ("m",)), Node("c5", ("c4",)))


def stable_tags() -> tuple[Node, ...]:
    """``c0`` to ``c5``; stable branches ``s1 s2`` (tag ``v1.0.2``) off ``c2`` and ``n1 n2`` (``v1.1.2``) off ``c5``."""
    tips = (Node("s2", ("s1",), tags=("v1.0.2",)), Node("n2", ("n1",), tags=("v1.1.2",)))
    return (*linear(6), Node("s1", ("c2",)), Node("n1", ("c5",)), *tips)


def criss_cross() -> tuple[Node, ...]:
    """``x`` and ``y``, two merges of both ``a`` and ``b``: two merge bases; ``p`` and ``q`` are their tips."""
    sides = (root("r"), Node("a", ("r",)), Node("b", ("r",)))
    return (*sides, Node("x", ("a", "b")), Node("y", ("b", "a")), Node("p", ("x",)), Node("q", ("y",)))


def subsystems(count: int, branch_length: int = 9) -> Iterator[Node]:
    """About ``count`` commits as a kernel's: branches off older commits, merged, some 6 % of them merges."""
    yield root("c0")
    tip, made, merge = "c0", 1, 0
    while made < count:
        merge += 1
        mainline = list(chain(f"l{merge}.", 6, tip))
        yield from mainline
        branch = list(chain(f"b{merge}.", branch_length, tip))
        yield from branch
        yield Node(f"m{merge}", (mainline[-1].name, branch[-1].name))
        tip, made = f"m{merge}", made + 7 + branch_length


def build(path: Path, nodes: Iterable[Node], *, bare: bool = False, checkout: bool = False) -> dict[str, str]:
    """Make or extend the repository at ``path``; the hash of each name. ``main`` is the last node."""
    if not path.exists():
        kind = ["--bare"] if bare else []
        run(["git", "init", "-q", "--template=", "-b", "main", *kind, path], deadline_s=DEADLINE_S)
    made = list(nodes)
    marks = path.resolve() / "marks"
    words: list[str | Path] = ["git", "-C", path, "fast-import", "--quiet", "--force", f"--export-marks={marks}"]
    run(words, stdin="".join(_stream(made)), deadline_s=DEADLINE_S)
    by_mark = dict(line.split() for line in marks.read_text(encoding="ascii").splitlines())
    marks.unlink()
    if checkout:
        run(["git", "-C", path, "reset", "-q", "--hard", "main"], deadline_s=DEADLINE_S)
    return {node.name: by_mark[f":{number}"] for number, node in enumerate(made, 1)}


def git(path: Path, *words: str) -> str:
    """A git command of the test's own, as the user would type it."""
    return run(["git", "-C", path, *words], deadline_s=DEADLINE_S).stdout.strip()


def ancestors(nodes: Sequence[Node]) -> dict[str, frozenset[str]]:
    """Each name's ancestors, itself included."""
    known: dict[str, frozenset[str]] = {}
    for node in nodes:
        known[node.name] = frozenset({node.name}).union(*(known[parent] for parent in node.parents))
    return known


def _stream(nodes: Sequence[Node]) -> Iterator[str]:
    marks = {node.name: number for number, node in enumerate(nodes, 1)}
    for node in nodes:
        yield _commit(node, marks, 1_500_000_000 + 60 * marks[node.name])
        for tag in node.tags:
            yield f"reset refs/tags/{tag}\nfrom :{marks[node.name]}\n\n"


def _commit(node: Node, marks: Mapping[str, int], seconds: int) -> str:
    lines = ["commit refs/heads/main"] if node.parents else ["reset refs/heads/main", "commit refs/heads/main"]
    lines += [
        f"mark :{marks[node.name]}",
        f"committer A U Thor <author@example.com> {seconds} +0000",
        _data(node.subject or node.name),
    ]
    lines += [f"{word} :{marks[name]}" for word, name in zip(("from", *("merge",) * 9), node.parents, strict=False)]
    files = node.files or {f"files/{node.name[:1]}/{marks[node.name] % 50}": f"{node.name}\n"}
    lines += [f"M 100644 inline {name}\n{_data(text)}" for name, text in files.items()]
    return "\n".join(lines) + "\n"


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}"
