"""What the .configs on both sides of the answer differ in, on real git and files as trials leave them."""

import dataclasses
from pathlib import Path

from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.status.conclusion import CONFIG_ARTIFACT, config_changes
from bisector.status.view import ConfigChanges
from bisector.store.rundir import collect, trial_directory
from tests import fakes
from tests.git import histories
from tests.git.histories import Node

CONFIGS = {
    "c3": 'CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_CC_VERSION_TEXT="gcc 12"\nCONFIG_HZ=250\n',
    "b3": "CONFIG_A=m\nCONFIG_B=y\n",
    "m": 'CONFIG_A=m\nCONFIG_CC_VERSION_TEXT="gcc 13"\nCONFIG_HZ=250\n',
}


class Lab:
    """A history, and a run directory with trials of some of its commits."""

    def __init__(self, path: Path) -> None:
        self.repository, self.run_dir = path / "linux", path / "run"
        self.shas = histories.build(self.repository, histories.old_base_merge())
        self.names = {sha: name for name, sha in self.shas.items()}
        self.trials = [self.trial(n, name, text) for n, (name, text) in enumerate(CONFIGS.items(), 1)]

    def commit(self, name: str) -> Commit:
        return Commit(self.shas[name], "t", name, "2026-01-01T00:00:00Z")

    def trial(self, n: int, name: str, config: str | None) -> Trial:
        commit = self.commit(name)
        directory = trial_directory(self.run_dir, n, commit)
        if config is not None:
            (directory / CONFIG_ARTIFACT).write_text(config)
        (directory / "build.log").write_text("CONFIG_LOG=y\n")
        return dataclasses.replace(fakes.trial(commit), artifacts=collect(directory, self.run_dir))

    def changes(self, first: str = "m", paths: tuple[str, ...] = ()) -> dict[str, ConfigChanges]:
        found = config_changes(self.repository, paths, self.run_dir, self.trials, self.commit(first))
        return {self.names[one.parent.sha]: one for one in found}


def options(changes: ConfigChanges) -> list[tuple[str, str, str]]:
    return [(one.option, one.parent, one.child) for one in changes.options]


def test_a_merge_is_compared_with_each_parent_that_has_one(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    found = lab.changes()
    assert list(found) == ["c3", "b3"]
    assert options(found["c3"]) == [
        ("CONFIG_A", "y", "m"),
        ("CONFIG_CC_VERSION_TEXT", '"gcc 12"', '"gcc 13"'),  # what cannot matter is not hidden
    ]
    assert options(found["b3"]) == [
        ("CONFIG_B", "y", "n"),
        ("CONFIG_CC_VERSION_TEXT", "n", '"gcc 13"'),
        ("CONFIG_HZ", "n", "250"),
    ]
    lab.trials.append(lab.trial(8, "c4", CONFIGS["m"]))
    assert options(lab.changes("c4")["m"]) == []  # equal configurations are said to be equal
    lab.trials[1] = lab.trial(7, "b3", None)
    assert list(lab.changes()) == ["c3"]  # a parent that was never configured is left out


def test_of_paths_the_parent_is_the_one_before_on_these_paths(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    nodes = [
        histories.root("c0"),
        Node("c3", ("c0",), {"a": "1"}),
        Node("b3", ("c3",), {"z": "1"}),
        Node("m", ("b3",), {"a": "2"}),
    ]
    lab.repository = tmp_path / "other"
    lab.shas = histories.build(lab.repository, nodes)
    lab.names = {sha: name for name, sha in lab.shas.items()}
    lab.trials = [lab.trial(n, name, text) for n, (name, text) in enumerate(CONFIGS.items(), 11)]
    assert list(lab.changes(paths=("a",))) == ["c3"]
    assert list(lab.changes()) == ["b3"]


def test_what_is_gone_is_not_told(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    (lab.run_dir / lab.trials[0].artifacts[1].path).unlink()
    assert lab.trials[0].artifacts[1].name == CONFIG_ARTIFACT
    assert list(lab.changes()) == ["b3"]
    lab.repository.rename(tmp_path / "elsewhere")
    assert lab.changes() == {}
