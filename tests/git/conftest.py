"""git as on a machine where nobody has configured it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bisector.git.repository import Repository
from tests.git.histories import Node, build

Made = tuple[Repository, dict[str, str]]
Make = Callable[..., Made]


@pytest.fixture(autouse=True, scope="session")
def unconfigured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text("[user]\n\tname = A U Thor\n\temail = author@example.com\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        for name in ("XDG_CONFIG_HOME", "GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_CONFIG_GLOBAL"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Builds a history and opens it."""
    opened: list[Repository] = []

    def make_(nodes: tuple[Node, ...], *, bare: bool = False, checkout: bool = False) -> Made:
        names = build(tmp_path / "linux", nodes, bare=bare, checkout=checkout)
        opened.append(Repository.open(tmp_path / "linux"))
        return opened[-1], names

    yield make_
    for repository in opened:
        repository.close()
