"""What git shows of a commit: author, trailers that lead somewhere, and its patch within bounds."""

from pathlib import Path

from bisector.git.repository import Repository, ShownCommit, shown
from tests.git import histories
from tests.git.histories import Node

MESSAGE = """\
dm cache: wait

Link: https://lore.example.org/r/1
not a trailer in the middle

Signed-off-by: A U Thor <author@example.com>
Link: https://lore.example.org/r/2
  and more
Closes: https://bugs.example.org/3
"""


def of(path: Path, *nodes: Node, name: str) -> ShownCommit:
    shas = histories.build(path, (histories.root("r"), *nodes))
    repository = Repository.open(path)
    return shown(repository, repository.resolve(shas[name]))


def test_author_trailers_and_patch(tmp_path: Path) -> None:
    found = of(tmp_path / "linux", Node("a", ("r",), {"drivers/md/dm.c": "two\n"}, subject=MESSAGE), name="a")
    assert (found.author, found.authored_at[:10]) == ("A U Thor", "2017-07-14")
    assert found.trailers == (
        ("Link", "https://lore.example.org/r/2 and more"),
        ("Closes", "https://bugs.example.org/3"),
    )
    assert found.stat == "1 file changed, 1 insertion(+), 1 deletion(-)"
    assert found.patch[-2:] == ("-r", "+two")
    assert not found.cut


def test_of_a_large_patch_the_beginning_is_shown(tmp_path: Path) -> None:
    many = Node("a", ("r",), {"x.c": "a line\n" * 5000})
    long = Node("b", ("a",), {"y.c": "x" * 1_000_000})
    found = of(tmp_path / "linux", many, long, name="a")
    assert (found.cut, len(found.patch)) == (True, 400)
    assert "5000 insertions(+)" in found.stat
    found = of(tmp_path / "other", many, long, name="b")
    assert found.cut
    assert sum(map(len, found.patch)) <= 65536
