"""What cannot be compared, and what is told before anything is measured."""

from dataclasses import replace

import pytest

from bisector.campaign.instructions import Done
from bisector.compare.plan import united, warnings
from bisector.core.verdict import State
from bisector.store.facts import Absent
from tests.compare.desk import Desk, changed, without_md
from tests.git import histories


def test_commits_of_equal_sources_are_refused(desk: Desk) -> None:
    same = histories.git(desk.place / "linux", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit-tree",
                         "main^{tree}", "-p", "main", "-m", "nothing")  # fmt: skip
    assert desk.refused("main", same) == f"main and {same} are of the same sources"


def test_a_cell_whose_tree_lacks_an_option_is_not_measured_and_says_so(desk: Desk) -> None:
    lacks = without_md(desk)
    desk.begin("c0", lacks, "c3")
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    blocks = desk.blocks()
    assert blocks.absent(0, 1).startswith("needs CONFIG_MD, CONFIG_BLK_DEV_DM")
    assert blocks.absent(1, 1) == ""
    measured = {(request.cell.setup.stack, request.commit.sha) for request in desk.bench.requests}
    assert ("lvmcache(ssd,hdd)+ext4", lacks) not in measured
    assert ("hdd+ext4", lacks) in measured
    assert len(measured) == 5


def test_a_cell_whose_tree_lacks_what_a_setting_asks_for_is_told_with_the_version_that_has_it(desk: Desk) -> None:
    """The options are there all the same: Kconfig does not tell of it, and neither does the version of a tree."""
    has = changed(desk, "drivers/md/dm-cache-target.c", 'if (!strcasecmp(arg, "metadata2"))\n')
    plan = desk.plan(has, "c3", storage__cache_metadata_format="2")
    assert plan.absent == (Absent(0, 1, "needs v4.11 (metadata of format 2)"),)
    assert desk.plan(has, "c3").absent == ()
    said = desk.refused("c0", "c3", stacks=("lvmcache(ssd,hdd,cache_metadata_format=2)+ext4",))
    assert said.count("needs v4.11 (metadata of format 2)") == 2


def test_where_nothing_is_left_to_compare_nothing_is_begun(desk: Desk) -> None:
    said = desk.refused("c0", without_md(desk), stacks=("lvmcache",))
    assert said.startswith("there is nothing to compare: ")
    assert " on lvmcache(ssd,hdd)+ext4 needs CONFIG_MD, CONFIG_BLK_DEV_DM" in said


def test_fragments_of_all_stacks_make_one_kernel_and_those_of_a_person_win() -> None:
    rows = ("tiny", "vm", "storage-lvmcache", "mine"), ("tiny", "vm", "mine"), ("tiny", "vm", "storage-bcache", "mine")
    assert united(rows) == ("tiny", "vm", "storage-bcache", "storage-lvmcache", "mine")
    assert united(()) == ()


def test_what_only_a_search_has_is_no_part_of_it(desk: Desk) -> None:
    plan = desk.plan("c0", "c3", bisect__threshold="2000", bisect__expect="regression")
    assert {(one.bisect.threshold, one.bisect.expect) for one in plan.setups} == {(None, None)}


@pytest.mark.parametrize(
    ("runs", "stacks", "said"),
    [
        (6, 1, ""),
        (5, 1, "With 5 blocks the exact test cannot reach 5 %: its least p-value is 6.2 %. It takes 6 blocks."),
        (
            6,
            2,
            "In a family of 2 tests the exact test by itself could reach 5 % from 7 blocks on; the interval decides.",
        ),
        (7, 2, ""),
    ],
)
def test_too_few_blocks_are_told_beforehand(desk: Desk, runs: int, stacks: int, said: str) -> None:
    plan = desk.plan("c0", "c3", runs=runs, stacks=("hdd", "ssd")[:stacks])
    assert "".join(warnings(plan)).startswith(said)
    assert bool(list(warnings(plan))) is bool(said)


def test_the_family_beforehand_is_that_of_the_cells_that_can_be_compared(desk: Desk) -> None:
    """Without the first arm a setup has no test, however many arms it has."""
    plan = desk.plan("c0", "c2", "c3", runs=6, stacks=("hdd", "ssd"))
    assert "In a family of 4 tests" in "".join(warnings(plan))
    said, left_out = warnings(replace(plan, absent=(Absent(1, 0, "needs CONFIG_MD"),)))
    assert said.startswith("In a family of 2 tests")
    assert left_out == f"ssd+ext4: {desk.shas['c0']} needs CONFIG_MD: nothing is measured there"


def test_a_cell_that_a_tree_cannot_have_is_told_beforehand(desk: Desk) -> None:
    (said,) = warnings(desk.plan("c0", lacks := without_md(desk), "c3", runs=8))
    assert said.startswith(f"lvmcache(ssd,hdd)+ext4: {lacks} needs CONFIG_MD, ")
    assert "nothing is measured" not in said
