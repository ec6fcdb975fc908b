"""What make does again for a commit, by what an earlier build read."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from bisector.core.subject import Change
from bisector.kernel.kconfig import set_anew
from bisector.kernel.sources import BuildEnds, Sources

FILES = frozenset(("init/main.c", "fs/dcache.c", "include/linux/fs.h", "include/linux/dcache.h", "fs/Kconfig"))
READ = Sources(
    FILES, targets=100, readers={"include/linux/fs.h": 90, "include/linux/dcache.h": 50, "CONFIG_X": 40, "CONFIG_Y": 10}
)


ENDS = BuildEnds((READ,))


def again(*commits: Iterable[str], ends: BuildEnds = ENDS) -> list[float]:
    """The shares of commits, each by the paths that it changes; those that do not count are -1."""
    changes = ((str(n), Change(path)) for n, paths in enumerate(commits) for path in paths)
    found = ends.mattering(len(commits), changes)
    assert found.commits == len(commits)
    assert found.shas == found.again.keys()
    return [found.again.get(str(n), -1.0) for n, _ in enumerate(commits)]


@pytest.mark.parametrize(
    ("paths", "share"),
    [
        pytest.param(["fs/dcache.c"], 0.01, id="a source is one target"),
        pytest.param(["include/linux/fs.h"], 0.9, id="a header is all that read it"),
        pytest.param(["include/linux/fs.h", "include/linux/dcache.h"], 0.95, id="half of the rest, by another"),
        pytest.param(["fs/dcache.c", "Documentation/x.rst"], 0.01, id="what is not read adds nothing"),
        pytest.param(["Documentation/x.rst"], -1.0, id="what does not count"),
        pytest.param(["fs/Makefile"], 0.01, id="what may add a target"),
    ],
)
def test_the_share_of_a_commit(paths: list[str], share: float) -> None:
    assert again(paths) == [pytest.approx(share)]


def test_what_either_end_read_counts_and_the_larger_share() -> None:
    other = Sources(frozenset(("init/main.c", "mm/slab.c")), targets=10, readers={"include/linux/fs.h": 2})
    ends = BuildEnds((READ, other))
    assert again(["mm/slab.c"], ["include/linux/fs.h"], ends=ends) == [pytest.approx(0.1), pytest.approx(0.9)]


def test_options_that_differ_are_spread_over_the_commits_that_touch_kconfig_files() -> None:
    ends = BuildEnds((READ,), frozenset(("CONFIG_X", "CONFIG_Y", "CONFIG_NOBODY_ASKS_FOR")))
    (alone,) = again(["fs/Kconfig"], ends=ends)
    assert alone == pytest.approx(1 - 0.99 * 0.6 * 0.9)
    first, second, source = again(["fs/Kconfig"], ["mm/Kconfig", "fs/Kconfig"], ["fs/dcache.c"], ends=ends)
    half = (0.6 * 0.9) ** 0.5
    assert [first, second, source] == pytest.approx([1 - 0.99 * half, 1 - 0.99**2 * half, 0.01])
    assert again(["fs/Kconfig"]) == [pytest.approx(0.01)]


def test_a_header_that_everything_reads_is_nearly_everything() -> None:
    whole = Sources(FILES, targets=2, readers={"include/linux/fs.h": 2})
    assert 0.98 < again(["include/linux/fs.h"], ends=BuildEnds((whole,)))[0] < 1


def test_of_a_build_that_did_not_count_only_what_matters_is_known() -> None:
    found = BuildEnds((READ, Sources(FILES))).mattering(1, [("0", Change("fs/dcache.c"))])
    assert (found.shas, found.again) == (frozenset(("0",)), {})


def test_options_differ_by_their_values_and_one_that_is_off_need_not_be_there(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text('CONFIG_SMP=y\n# CONFIG_MD is not set\nCONFIG_HZ=250\nCONFIG_NAME="x"\n')
    new.write_text('CONFIG_SMP=y\nCONFIG_HZ=1000\nCONFIG_NAME="x"\nCONFIG_MORE=m\n')
    assert set_anew(old, new) == {"CONFIG_HZ", "CONFIG_MORE"}
    assert set_anew(old, tmp_path / "gone") == frozenset()
