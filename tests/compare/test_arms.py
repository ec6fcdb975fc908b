"""What is compared, on which setups: commits, a patch, a parameter or a fragment on top of one, and images."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.campaign.instructions import Done
from bisector.compare.plan import united, warnings
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.events import Note
from bisector.core.subject import Kind
from bisector.core.trial import AttemptFailed, TrialRefused
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest
from bisector.status.blocks import BlockState, result_of
from bisector.store.facts import Absent, BuildTry
from tests import fakes
from tests.compare.desk import Desk, changed, without_md
from tests.git import histories
from tests.kernel.test_image import bzimage


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


# Arms that are no commit alone


def patch_file(desk: Desk, name: str = "fix.patch", text: str = "c0") -> Path:
    """A patch of the driver, from what ``text`` says."""
    (desk.place / name).write_text(f"--- a/drivers/md/dm.c\n+++ b/drivers/md/dm.c\n@@ -1 +1 @@\n-{text}\n+better\n")
    return desk.place / name


def test_one_commit_is_compared_before_and_after_a_patch(desk: Desk) -> None:
    file = patch_file(desk)
    desk.begin("main", stacks=("hdd",), patches=(str(file),))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.unlink()
    held: set[str] = set()
    desk.bench.before = lambda _: held.update(desk.held())
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    before, after = desk.blocks().plan.arms
    assert (before.name, after.name) == ("main", "main + fix.patch")
    assert (after.subject.kind, after.subject.changed_by) == (Kind.PATCHED, digest)
    assert after.commit.sha != before.commit.sha
    assert {before.commit.sha, after.commit.sha} <= held  # garbage collection would take what no branch has
    assert desk.held() == set()
    built = [one.commit.sha for one in desk.bench.requests]
    assert sorted(built) == sorted([before.commit.sha, after.commit.sha] * 2)
    assert (desk.place / "run" / "inputs" / "fix.patch").read_text().endswith("+better\n")


def test_each_patch_is_an_arm_on_top_of_the_first_alone(desk: Desk) -> None:
    first, second = patch_file(desk, "one.patch"), desk.place / "two.patch"
    second.write_text(first.read_text().replace("better", "best"))
    plan = desk.plan("c1", "c3", patches=(str(first), str(second), desk.shas["c2"]), placebo=True)
    c1, c2, c3 = (desk.shas[name] for name in ("c1", "c2", "c3"))
    assert [arm.name for arm in plan.arms] == [
        c1, c3, f"{c1} + one.patch", f"{c1} + two.patch", f"{c1} + {c2}", f"{c1} (again)",
    ]  # fmt: skip


def test_commit_on_top_is_known_by_its_hash(desk: Desk) -> None:
    _, picked = desk.plan("c0", patches=("main",)).arms
    assert picked.name.endswith(" + main")
    assert (picked.subject.kind, picked.subject.changed_by) == (Kind.PATCHED, desk.shas["c3"])


def test_patch_that_does_not_apply_ends_the_command(desk: Desk) -> None:
    said = desk.refused("main", patches=(str(patch_file(desk, text="something else")),))
    assert "does not apply to" in said
    assert "patch failed: drivers/md/dm.c:1" in said


def test_patches_that_cannot_be_arms_are_refused(desk: Desk) -> None:
    file = patch_file(desk)
    assert desk.refused("main", patches=("v9",)).startswith("--patch v9: there is no such file, and unknown revision")
    assert "cannot be read" in desk.refused("main", patches=("./gone.patch",))
    assert "is not a regular file" in desk.refused("main", patches=(str(desk.place),))
    assert re.search("of the same sources|the same commit", desk.refused("main", patches=(str(file), str(file))))
    (desk.place / "other").mkdir()
    other = patch_file(desk, "other/fix.patch")
    other.write_text(other.read_text().replace("better", "best"))
    assert desk.refused("main", patches=(str(file), str(other))) == "two arms are called main + fix.patch"


def test_one_kernel_is_compared_without_and_with_a_parameter(desk: Desk) -> None:
    desk.begin("main", stacks=("hdd",), parameters=("mitigations=off", " a=1  b "), machine__append="quiet")
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    blocks = desk.blocks()
    assert [arm.name for arm in blocks.plan.arms] == ["main", "main + mitigations=off", "main + a=1 b"]
    trials = desk.bench.requests
    appended = [one.settings.machine.append for one in trials if one.settings is not None]
    assert sorted(appended) == sorted(["quiet", "quiet mitigations=off", "quiet a=1 b"] * 2)
    for request, append in zip(trials, appended, strict=True):
        assert append.removeprefix("quiet").strip() == request.cell.subject.parameters
    assert [one.trial.cell for one in blocks.placed] == [one.cell for one in trials]  # as it is on record
    assert desk.bench.tried == [("gcc", desk.shas["c3"])]
    result = result_of(blocks)
    assert not any(arm.placebo for arm in result.arms)
    assert result.equal == ()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (("a=1", " a=1"), "main + a=1 is asked for twice"),
        (("",), "--parameter '' is not a kernel parameter"),
        (("a\x00",), "is not a kernel parameter"),
    ],
)
def test_parameters_that_cannot_be_arms_are_refused(desk: Desk, parameters: tuple[str, ...], said: str) -> None:
    assert said in desk.refused("main", parameters=parameters)


def fragment_file(desk: Desk, name: str = "more.config", text: str = "CONFIG_DM_CACHE_SMQ=y\n") -> Path:
    (desk.place / name).parent.mkdir(exist_ok=True)
    (desk.place / name).write_text(text)
    return desk.place / name


def test_one_commit_is_compared_without_and_with_a_fragment(desk: Desk) -> None:
    file = fragment_file(desk)
    desk.begin("main", stacks=("lvmcache", "hdd"), fragments=(str(file),))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.unlink()  # what is resumed measures with the run's copy
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    blocks, copy = desk.blocks(), desk.place / "run/inputs/more.config"
    assert copy.is_file()
    before, after = blocks.plan.arms
    assert (before.name, before.subject.fragment, before.file) == ("main", "", None)
    assert (after.name, after.subject.fragment, after.file) == ("main + more.config", digest, copy)
    assert after.subject == replace(before.subject, fragment=digest)
    trials = desk.bench.requests
    for request in trials:
        assert request.settings is not None
        *_, last = request.settings.kernel.fragments
        assert (last == str(copy)) is bool(request.cell.subject.fragment)
    assert [one.trial.cell for one in blocks.placed] == [one.cell for one in trials]  # as it is on record
    assert {one.cell.subject for one in trials} == {before.subject, after.subject}
    result = result_of(blocks)
    assert not any(arm.placebo for arm in result.arms)
    assert result.equal == ()


def test_a_commit_with_two_configurations_is_built_twice(desk: Desk) -> None:
    file = fragment_file(desk)
    desk.begin("main", stacks=("lvmcache", "hdd"), fragments=(str(file),), parameters=("quiet",))
    desk.go_on()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert [one.fragment for one in desk.bench.builds] == ["", digest]
    kernels = [one.settings.kernel for one in desk.bench.builds if one.settings is not None]
    assert [len(one.fragments) for one in kernels] == [3, 4]
    sha = desk.shas["c3"]
    assert desk.facts(BuildTry) == (BuildTry(fakes.GCC, sha, ""), BuildTry(fakes.GCC, sha, "", digest))
    notes = [event.text for event in desk.told if isinstance(event, Note) and event.text.startswith("the kernel of")]
    assert [f"{sha[:12]} with more.config, by gcc" in note for note in notes] == [False, True]


def test_a_fragment_that_changes_nothing_ends_the_run_before_the_first_block(desk: Desk) -> None:
    def refuse(request: BuildRequest) -> None:
        if request.fragment:
            raise TrialRefused("more.config changes nothing")

    desk.bench.refuse_build = refuse
    desk.begin("main", stacks=("hdd",), fragments=(str(fragment_file(desk)),))
    with pytest.raises(UserError, match="changes nothing"):
        desk.go_on()
    assert desk.bench.requests == []
    assert desk.state() == (State.STOPPED, "main + more.config, build by gcc: more.config changes nothing")


def test_a_fragment_that_switches_off_what_the_stack_needs_has_no_cell_there(desk: Desk) -> None:
    file = fragment_file(desk, text="# CONFIG_DM_CACHE is not set\n")
    plan = desk.plan("main", fragments=(str(file),))
    assert plan.absent == (Absent(0, 1, "needs CONFIG_DM_CACHE, which is off in it"),)


def test_one_of_the_tools_own_fragments_is_found_by_its_name(desk: Desk) -> None:
    _, arm = desk.plan("main", fragments=("debug",)).arms
    assert (arm.name, arm.file) == ("main + debug.config", resources.fragment("debug"))
    assert desk.refused("main", fragments=("debugg",)).startswith("no kernel configuration fragment is named debugg")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "more.config has no options"),
        ("# CONFIG\n", "more.config has no options"),
        ("CONFIG_DM_CACHE=y\nCONFIG_B=y\nCONFIG_A=m\n", "main has no CONFIG_A, CONFIG_B in its Kconfig files, which"),
        ("\0\xff", "more.config: not a text file"),
    ],
)
def test_fragments_that_cannot_be_arms_are_refused(desk: Desk, text: str, said: str) -> None:
    assert said in desk.refused("main", fragments=(str(fragment_file(desk, text=text)),))


def test_what_a_tree_need_not_know_is_not_asked_of_it(desk: Desk) -> None:
    text = "CONFIG_DM_CACHE=y\n# CONFIG_NEW is not set\n#: optional\nCONFIG_NEWER=y\n"
    assert len(desk.plan("main", fragments=(str(fragment_file(desk, text=text)),)).arms) == 2


def test_fragments_are_told_apart(desk: Desk) -> None:
    file, other = fragment_file(desk), fragment_file(desk, "other/more.config", "CONFIG_MD=y\n")
    same = fragment_file(desk, "same.config")
    assert desk.refused("main", fragments=(str(file), str(file))) == "main + more.config is asked for twice"
    assert desk.refused("main", fragments=(str(file), str(same))) == "main + more.config is asked for twice"
    assert desk.refused("main", fragments=(str(file), str(other))) == "two arms are called main + more.config"
    assert "No such file" in desk.refused("main", fragments=("./gone.config",))
    assert "is not a regular file" in desk.refused("main", fragments=(str(desk.place),))


def test_a_patch_that_is_called_as_a_parameter_is_refused(desk: Desk) -> None:
    """Values are told apart by the names of the arms."""
    said = desk.refused("main", patches=(str(patch_file(desk, "quiet")),), parameters=("quiet",))
    assert said == "two arms are called main + quiet"


def test_an_image_is_measured_and_not_built(desk: Desk) -> None:
    file = bzimage(desk.place / "vmlinuz-6.1.0-13-amd64")
    desk.begin("main", f"image:{file}", stacks=("lvmcache", "hdd"))
    content = file.read_bytes()
    file.unlink()  # what is resumed measures with the run's copy
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    blocks, copy = desk.blocks(), desk.place / "run/inputs/vmlinuz-6.1.0-13-amd64"
    assert copy.read_bytes() == content
    _, arm = blocks.plan.arms
    assert (arm.name, arm.file, arm.subject.kind) == ("vmlinuz-6.1.0-13-amd64", copy, Kind.IMAGE)
    assert arm.commit.sha == hashlib.sha256(content).hexdigest()
    assert desk.bench.tried == [("gcc", desk.shas["c3"])]
    trials = desk.bench.requests
    assert {(one.cell.subject.kind, one.image) for one in trials} == {(Kind.COMMIT, None), (Kind.IMAGE, copy)}
    assert [one.trial.cell for one in blocks.placed] == [one.cell for one in trials]  # as it is on record


@pytest.mark.parametrize("killed_at", [{"kill_at": 3}, {"kill_at_build": 2}])
def test_a_killed_run_of_files_goes_on_without_them(desk: Desk, killed_at: dict[str, int]) -> None:
    image, fragment = bzimage(desk.place / "vmlinuz"), fragment_file(desk)
    desk.begin("main", f"image:{image}", stacks=("hdd",), fragments=(str(fragment),))
    image.unlink()
    fragment.unlink()
    for name, value in killed_at.items():
        setattr(desk.bench, name, value)
    with pytest.raises(fakes.Killed):
        desk.go_on()
    desk.bench.kill_at = desk.bench.kill_at_build = None
    before = len(desk.bench.requests)
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    blocks = desk.blocks()
    lost = max(before - 1, 0)  # in a block that was interrupted
    assert [one.n for one in blocks.placed] == list(range(1, 7 + lost))
    assert len(desk.bench.requests) - before == 6
    assert {arm.subject for arm in blocks.plan.arms} == {one.trial.subject for one in blocks.placed}
    assert blocks.count(BlockState.DONE) == 2
    assert blocks.count(BlockState.INTERRUPTED) == len(blocks.blocks) - 2 == bool(lost)


def test_an_image_that_was_given_first_may_have_parameters_and_a_placebo(desk: Desk) -> None:
    file = bzimage(desk.place / "vmlinuz")
    plan = desk.plan(f"image:{file}", parameters=("quiet",), placebo=True)
    assert [arm.name for arm in plan.arms] == ["vmlinuz", "vmlinuz + quiet", "vmlinuz (again)"]
    assert {arm.file for arm in plan.arms} == {file}
    assert plan.absent == ()


def test_images_alone_are_compared_with_whatever_compilers_there_are(desk: Desk) -> None:
    desk.bench.installed = (fakes.GCC, fakes.OLD_GCC)
    one, other = (bzimage(desk.place / name, f"6.1.{n}") for n, name in enumerate(("one", "other")))
    desk.begin(f"image:{one}", f"image:{other}", stacks=("hdd",))
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    assert desk.bench.tried == []


def test_an_image_that_does_not_boot_is_left_out_with_a_hint(desk: Desk) -> None:
    file = bzimage(desk.place / "vmlinuz")
    desk.bench.faults = {hashlib.sha256(file.read_bytes()).hexdigest(): fakes.PANIC}
    desk.begin("c0", "c3", f"image:{file}", stacks=("hdd",))
    assert desk.go_on() == Done(State.MEASURED, "2 blocks on each setup")
    why = desk.blocks().absent(0, 2)
    assert why.startswith(fakes.PANIC.sentence)
    assert "has to be built in" in why
    assert "virtio_blk" in why


def test_trouble_at_the_boot_of_an_image_says_what_it_may_lack(desk: Desk) -> None:
    desk.bench.infra_n = {1: 9}
    desk.begin(f"image:{bzimage(desk.place / 'vmlinuz')}", stacks=("hdd",), placebo=True)
    with pytest.raises(AttemptFailed, match="the network went away") as caught:
        desk.go_on()
    assert "has to be built in" in caught.value.hint


def test_images_that_cannot_be_arms_are_refused(desk: Desk) -> None:
    file = bzimage(desk.place / "vmlinuz")
    other = desk.place / "other"
    other.write_bytes(b"MZ")
    assert desk.refused(f"image:{file}") == "vmlinuz alone cannot be compared"
    assert "same image, " in desk.refused(f"image:{file}", f"image:{file}")
    assert desk.refused("main", f"image:{other}").endswith("other is not a bzImage: it has no boot header")
    assert "cannot be read: No such file" in desk.refused("main", "image:gone")
    assert "is not a regular file" in desk.refused("main", "image:")
    said = "vmlinuz is an image: nothing can be built on top of it"
    assert desk.refused(f"image:{file}", patches=("main",)) == said
    assert desk.refused(f"image:{file}", fragments=(str(fragment_file(desk)),)) == said
