"""Where a commit comes from, in the words of kernel robots: a tree's short name and a branch of it."""

import re
from collections.abc import Iterable, Iterator

from bisector.git.fetch import NAMESPACE, source
from bisector.git.remotes import without_secrets
from bisector.git.repository import Repository

_MAIN_BRANCHES = ("master", "main")
# Trees that have a name of their own, by owner and repository; others are OWNER-NAME.
_KNOWN = {
    "torvalds/linux": "linus",
    "next/linux-next": "linux-next",
    "stable/linux": "stable",
    "stable/linux-stable": "stable",
}
_PREFERRED = tuple(_KNOWN.values())
_PATH = re.compile(r"(?:^|[/:])([^/:]+)/([^/:]+?)(?:\.git)?/*$")


def origin(repository: Repository, sha: str) -> tuple[str, str, str]:
    """Tree, branch and address of what has a commit: of a remote where one does, else the directory's name.

    What nights fetched is in no remote-tracking branch; they write down where it is from.
    """
    urls = dict(_urls(repository.ask("config", "--get-regexp", r"^remote\..*\.url$", ok=(0, 1)).lines))
    refs = repository.ask("for-each-ref", "--format=%(refname:lstrip=2)", f"--contains={sha}", "refs/remotes").lines
    found = [(remote, ref[len(remote) + 1 :]) for ref in refs for remote in urls if ref.startswith(f"{remote}/")]
    branches = [(tree_name(urls[remote], remote), branch, urls[remote]) for remote, branch in found if branch != "HEAD"]
    branches += [(tree_name(url, remote), branch, url) for remote, branch, url in _fetched(repository, sha)]
    if not branches:
        return repository.top.name.removesuffix(".git"), "", ""
    return min(branches, key=lambda one: (_rank(one[0], _PREFERRED), _rank(one[1], _MAIN_BRANCHES)))


def _fetched(repository: Repository, sha: str) -> Iterator[tuple[str, str, str]]:
    words = ("for-each-ref", "--format=%(refname)", f"--contains={sha}", f"{NAMESPACE}/*/tip")
    for ref in repository.ask(*words).lines:
        if (found := source(repository, ref.removesuffix("/tip"))) is not None:
            remote, url, branch = found
            yield remote, branch, without_secrets(url)


def tree_name(url: str, remote: str) -> str:
    """``linus`` for Linus Torvalds' tree from wherever it was cloned; a remote's own name where that says more."""
    path = _PATH.search(url)
    if path is None or path[1] in (".", ".."):
        return remote
    owner, name = path[1], path[2]
    if f"{owner}/{name}" in _KNOWN:
        return _KNOWN[f"{owner}/{name}"]
    if remote != "origin":
        return remote
    return owner if name == "linux" else f"{owner}-{name}"


def _rank(name: str, first: tuple[str, ...]) -> int:
    return first.index(name) if name in first else len(first)


def _urls(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        key, _, url = line.partition(" ")
        yield key.removeprefix("remote.").removesuffix(".url"), without_secrets(url)
