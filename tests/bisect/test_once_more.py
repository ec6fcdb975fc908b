"""The kernels that an answer rests on are built once more before it is given."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import Settings
from bisector.core.errors import InfraError
from bisector.core.events import Note
from bisector.core.subject import RebuildCheck
from bisector.core.verdict import State
from bisector.store.facts import KernelCheck
from tests import fakes
from tests.bisect.lab import BY_GIT, DEFAULTS, Lab
from tests.git import histories

OTHER = "e" * 64


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return Lab(tmp_path, histories.linear(9), "c0", "c8", BY_GIT)


def bench(lab: Lab, **more: object) -> fakes.FakeExecutor:
    return lab.far_engine("c5", **{"keyed": True, **more})


def rests_on(lab: Lab) -> set[str]:
    """The commit found, its parent, and what was made of the new end without it."""
    changed = [trial.commit.sha for trial in lab.trials() if trial.subject.changed_by == lab.shas["c5"]]
    return {lab.shas["c5"], lab.shas["c4"], *changed}


def checks(lab: Lab) -> tuple[KernelCheck, ...]:
    with lab._store() as store:
        return store.facts(KernelCheck)


@pytest.mark.parametrize("settings", [BY_GIT, DEFAULTS], ids=["git", "bayes"])
def test_each_is_built_once_and_what_passed_is_on_record(line: Lab, settings: Settings) -> None:
    line.settings = settings
    engine = bench(line, kill_at_build=2)
    with pytest.raises(fakes.Killed):
        line.bisect(engine)
    resumed = bench(line)
    outcome = line.bisect(resumed)
    assert line.found(outcome) == "c5"
    assert "once more" not in outcome.message
    assert resumed.measured == []
    assert {*engine.once_more, *resumed.once_more} == rests_on(line)
    assert len(engine.once_more) + len(resumed.once_more) == len(rests_on(line)) + 1  # the one at which it was killed
    assert {(one.sha, one.why_not) for one in checks(line)} == {(sha, "") for sha in rests_on(line)}
    again = bench(line)
    assert line.found(line.bisect(again)) == "c5"
    assert again.once_more == []


def test_what_passed_in_an_earlier_run_is_told_as_such(line: Lab) -> None:
    name = line.shas["c5"][:12]
    for check, told in (
        (RebuildCheck((line.shas["c5"],), earlier=True), f"{name}, built once more in an earlier run, is the kernel"),
        (RebuildCheck((line.shas["c5"],)), f"{name}, built once more, is the kernel"),
    ):
        lab = Lab(line.path / str(check.earlier), line.nodes, "c0", "c8", line.settings)
        assert lab.found(lab.bisect(bench(lab, check_by_rebuild={lab.shas["c5"]: check}))) == "c5"
        assert any(told in one.text for one in lab.events if isinstance(one, Note))


def test_another_kernel_gives_no_answer(line: Lab) -> None:
    engine = bench(line, check_by_rebuild={line.shas["c4"]: RebuildCheck((OTHER, OTHER))})
    for _ in range(2):  # it is no verdict, and the next process tries it again
        with pytest.raises(InfraError) as caught:
            line.bisect(engine)
        for said in (line.shas["c4"][:12], OTHER[:16], f"instead of {line.shas['c4'][:16]}"):
            assert said in caught.value.message
        assert "bisector cache clear" in caught.value.hint
    assert line.shas["c4"] not in {one.sha for one in checks(line)}
    assert engine.once_more.count(line.shas["c4"]) == 2
    assert line.found(line.bisect(bench(line))) == "c5"


@pytest.mark.parametrize(
    ("check", "why_not"),
    [
        (RebuildCheck((OTHER, "d" * 64)), "each build makes another kernel"),
        (
            RebuildCheck((), why_not="this bisector builds kernels in another way"),
            "this bisector builds kernels in another",
        ),
        (fakes.BUILD_TIMEOUT, "build timeout: kernel build not done after 3600 s"),
    ],
)
def test_what_cannot_be_told_is_said_with_the_answer(tmp_path: Path, check: RebuildCheck, why_not: str) -> None:
    line = Lab(tmp_path, histories.linear(9), "c0", "c8", BY_GIT)
    outcome = line.bisect(bench(line, check_by_rebuild={line.shas["c5"]: check}))
    assert line.found(outcome) == "c5"
    assert f"could not be built once more to check it: {line.shas['c5'][:12]} ({why_not}" in outcome.message


@pytest.mark.parametrize(("recheck", "keyed"), [(False, True), (True, False)])
def test_it_is_asked_for_by_a_setting_and_of_kernels_whose_sources_are_known(
    tmp_path: Path, recheck: bool, keyed: bool
) -> None:
    settings = replace(BY_GIT, kernel=replace(BY_GIT.kernel, recheck=recheck))
    line = Lab(tmp_path, histories.linear(9), "c0", "c8", settings)
    engine = bench(line, keyed=keyed)
    assert line.bisect(engine).state is State.FOUND
    assert engine.once_more == []
