"""git as on a machine where nobody has configured it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bisector.core.verdict import SideWords
from bisector.git.bisect import Bisect
from bisector.git.ranges import Range, check_range
from bisector.git.repository import Repository
from tests.git.histories import Node, build
from tests.git.searches import Begin, Search

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
def make(tmp_path: Path) -> Make:
    """Builds a history and opens it."""

    def make_(nodes: tuple[Node, ...], *, bare: bool = False, checkout: bool = False) -> Made:
        names = build(tmp_path / "linux", nodes, bare=bare, checkout=checkout)
        return Repository.open(tmp_path / "linux"), names

    return make_


@pytest.fixture
def begin(make: Make, tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as stack:

        def begin_(
            nodes: tuple[Node, ...],
            old: str,
            new: str,
            *paths: str,
            first_parent: bool = False,
            terms: SideWords | None = None,
            skips: tuple[str, ...] = (),
        ) -> Search:
            repository, names = make(nodes, checkout=True)
            wanted = Range(repository.resolve(names[old]), repository.resolve(names[new]), first_parent, paths)
            check_range(repository, wanted)
            bisect = stack.enter_context(Bisect(repository, tmp_path / "run", wanted, terms or SideWords()))
            bisect.start([names[name] for name in skips])
            return Search(repository, names, bisect)

        yield begin_
