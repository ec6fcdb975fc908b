"""Remotes: what is shown of one, and the names that robots give to trees."""

from pathlib import Path

import pytest

from bisector.git.repository import Repository
from bisector.git.transfer import Branch, origin, tree_name, without_secrets
from tests.git import histories


@pytest.mark.parametrize(
    ("url", "remote", "name"),
    [
        ("https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git", "origin", "linus"),
        ("git@github.com:torvalds/linux", "upstream", "linus"),
        ("git://git.kernel.org/pub/scm/linux/kernel/git/next/linux-next.git/", "origin", "linux-next"),
        ("https://git.kernel.org/pub/scm/linux/kernel/git/davem/net.git", "origin", "davem-net"),
        ("https://example.org/axboe/linux.git", "origin", "axboe"),
        ("https://git.kernel.org/pub/scm/linux/kernel/git/davem/net.git", "net", "net"),
        ("linux.git", "origin", "origin"),
        ("../linux.git", "origin", "origin"),
    ],
)
def test_tree_name(url: str, remote: str, name: str) -> None:
    assert tree_name(url, remote) == name


@pytest.mark.parametrize(
    ("remote", "shown"),
    [
        ("origin", "origin"),
        ("../odd?name#1", "../odd?name#1"),
        ("git@example.org:a/linux.git", "git@example.org:a/linux.git"),
        ("https://me:se@cret@example.org:8443/a.git", "https://example.org:8443/a.git"),
        ("https://example.org/a.git?private_token=secret", "https://example.org/a.git"),
        ("https://me@example.org/a.git#secret", "https://example.org/a.git"),
        ("git+ssh://example.org?secret@example.org", "git+ssh://example.org"),
        ("hg::https://me:secret@example.org/a", "hg::https://example.org/a"),
        ("gcrypt::hg::https://me:secret@example.org/a#secret", "gcrypt::hg::https://example.org/a"),
        ("https://example.org/~me@home/a.git", "https://example.org/~me@home/a.git"),
    ],
)
def test_remote_as_it_may_be_shown(remote: str, shown: str) -> None:
    assert without_secrets(remote) == shown


def test_no_remote_is_the_directory(tmp_path: Path) -> None:
    shas = histories.build(tmp_path / "my-linux.git", histories.linear(2), bare=True)
    repository = Repository.open(tmp_path / "my-linux.git")
    assert origin(repository, shas["c1"]) == ("my-linux", "", "")


def test_the_best_known_branch_that_has_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "linux"
    shas = histories.build(path, histories.linear(4))
    urls = {
        "a": "https://example.org/dm/dm.git",
        "b": "https://me:secret@example.org/torvalds/linux.git?private_token=secret",
    }
    for name, url in urls.items():
        histories.git(path, "config", f"remote.{name}.url", url)
    for ref, at in (("a/for-next", "c3"), ("a/master", "c3"), ("b/HEAD", "c1"), ("b/topic", "c1"), ("b/master", "c1")):
        histories.git(path, "update-ref", f"refs/remotes/{ref}", shas[at])
    repository = Repository.open(path)
    assert origin(repository, shas["c1"]) == ("linus", "master", "https://example.org/torvalds/linux.git")
    assert origin(repository, shas["c2"]) == ("a", "master", "https://example.org/dm/dm.git")
    histories.git(path, "config", "remote.a.url", "https://example.org/next/linux-next.git")
    assert origin(repository, shas["c1"])[0] == "linus"  # linux-next has what he has
    assert origin(repository, shas["c2"])[0] == "linux-next"


@pytest.mark.parametrize("remote", ["korg", "https://me:secret@example.org/torvalds/linux.git?private_token=secret"])
def test_what_a_night_fetched_is_in_no_remote_tracking_branch(tmp_path: Path, remote: str) -> None:
    """A configured remote or an address; git is told to go to a directory instead."""
    url, here = "https://me:secret@example.org/torvalds/linux.git?private_token=secret", tmp_path / "clone"
    shas = histories.build(tmp_path / "remote.git", histories.linear(3), bare=True)
    histories.build(here, histories.linear(1))
    histories.git(here, "config", "remote.korg.url", url)
    histories.git(here, "config", f"url.{tmp_path}/remote.git.insteadOf", url)
    repository = Repository.open(here)
    Branch(repository, "cache", remote, "main").fetch()
    assert "secret" not in histories.git(here, "cat-file", "blob", "refs/by-bisector/nightly/cache/source")
    assert origin(repository, shas["c2"]) == ("linus", "main", "https://example.org/torvalds/linux.git")
    histories.git(here, "update-ref", "-d", "refs/by-bisector/nightly/cache/source")
    assert origin(repository, shas["c2"]) == ("clone", "", "")
