"""The search through a clone: unpacked and repeated here for real, but for the caches that are dropped."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisector.config import options
from bisector.core.errors import UserError
from bisector.core.figures import Run
from bisector.core.objective import Objective
from bisector.core.trial import KernelFault
from bisector.host.process import run_here
from tests.git.histories import Node, build, git, root
from tests.workload.test_repetitions import MNT, Place, place

__all__ = ["place"]  # a fixture

HERE = Path("/")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    nodes = (root("r"), Node("a", ("r",), files={f"file{n}": f"line {n}\n" for n in range(20)}))
    build(tmp_path / "linux", nodes)
    git(tmp_path / "linux", "bundle", "create", "-q", str(tmp_path / "x.bundle"), "HEAD", "main")
    return tmp_path / "x.bundle"


USUAL: Any = options.load({"workload.kind": "gitgrep"}, directory=HERE).settings.workload.workload


def run(place: Place, **own: Any) -> Run:
    place.shell.moved = {MNT + "/": f"{place.path}/mnt/", **place.shell.moved}
    run: Run = replace(USUAL, runs=2, **own).run(place.site)
    return run


def test_it_searches_a_clone_on_the_stack(place: Place, bundle: Path) -> None:
    values = dict(run(place, bundle=bundle, pattern="line 1").counters)
    assert set(values) == {"cache.promotions", "elapsed", "user", "system", "cpu", "prepared", "interrupts"}
    assert values["elapsed"] > 0
    assert (place.path / "mnt/full/clone/file7").read_text() == "line 7\n"
    assert (place.path / "dropped").read_text() == "3\n"
    assert not list((place.path / "carried").iterdir())
    assert (place.path / "logs/output.1.txt").read_text() == (place.path / "logs/output.2.txt").read_text()


def test_pattern_of_the_shells_and_of_gits_options_is_a_pattern(place: Place, bundle: Path) -> None:
    with pytest.raises(UserError, match=r"git grep: it found no line with '--help; \$\(exit 9\)'"):
        run(place, bundle=bundle, pattern="--help; $(exit 9)")


@pytest.mark.parametrize(
    ("instead", "expected", "message"),
    [
        ({"git clone -q": "echo 'fatal: No space left on device' >&2; false"}, UserError, "does not fit on the stack"),
        ({"git clone -q": "echo 'fatal: Input/output error' >&2; false"}, KernelFault, "Input/output error"),
        ({"command -v git": "false"}, UserError, "the guest image lacks git"),
        ({"git --no-pager grep": "sh -c 'exit 128'"}, KernelFault, "git grep: exit 1"),
        ({"| cksum": "| cat"}, UserError, "cksum printed"),
        ({"| cksum": "| cksum; echo x >>file1"}, KernelFault, "repetition 2, unlike .* it found other lines"),
    ],
)
def test_what_goes_wrong(
    place: Place, bundle: Path, instead: dict[str, str], expected: type[Exception], message: str
) -> None:
    place.shell.moved |= instead
    with pytest.raises(expected, match=message):
        run(place, bundle=bundle, pattern="line 1\\|x")


def test_no_clone_is_told(place: Place) -> None:
    with pytest.raises(UserError, match="no clone was made"):
        run(place)


def test_bundle_that_is_none_is_refused_before(bundle: Path, tmp_path: Path) -> None:
    replace(USUAL, bundle=bundle).check(Objective("elapsed"), run_here)
    (tmp_path / "text").write_text("x\n")
    with pytest.raises(UserError, match="text is not a git bundle"):
        replace(USUAL, bundle=tmp_path / "text").check(Objective("elapsed"), run_here)
    git(tmp_path / "linux", "bundle", "create", "-q", str(tmp_path / "headless"), "main")
    with pytest.raises(UserError, match="headless has no HEAD"):
        replace(USUAL, bundle=tmp_path / "headless").check(Objective("elapsed"), run_here)


def test_settings() -> None:
    effective = options.load(
        {"workload.gitgrep.pattern": "mutex_lock", "workload.gitgrep.commit": "v6.1"}, directory=HERE
    )
    settings = effective.settings
    assert settings.workload.text == "gitgrep(mutex_lock in v6.1:fs)"
    assert settings.bisect.objective == Objective("elapsed")
    assert settings.bisect.objective.label == "elapsed"
    assert options.from_json(options.to_json(settings)) == settings
    settings.workload.workload.check(settings.bisect.objective, run_here)
    with pytest.raises(UserError, match=r"no run of gitgrep has read\.iops"):
        settings.workload.workload.check(Objective(), run_here)
    with pytest.raises(UserError, match="a whole number from 1 to 1,000"):
        options.load({"workload.kind": "gitgrep", "workload.gitgrep.runs": "1001"}, directory=HERE)
    with pytest.raises(UserError, match=r"workload\.gitgrep\.size = 32MiB .*never fills the cache"):
        options.load({"workload.kind": "gitgrep", "workload.gitgrep.size": "32MiB"}, directory=HERE)
