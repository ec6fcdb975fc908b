"""Input files are kept with the run, and what its trials left is known by its content."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.errors import InfraError, UserError
from bisector.core.trial import Artifact
from bisector.host.files import inside
from bisector.store.rundir import adopt, collect, keep_inputs, remove_unfinished, trial_directory
from tests.examples import commit, trial
from tests.workload.test_job_file import GOOD

COMMIT = commit(0x6CF4CC8F8B3B << (28 * 4))


def test_directory_of_a_trial_is_new_and_empty(tmp_path: Path) -> None:
    directory = trial_directory(tmp_path, 3, COMMIT)
    assert directory == tmp_path / "trials" / "0003-6cf4cc8f8b3b"
    (directory / "console.log").write_text("of an attempt that failed")
    assert list(trial_directory(tmp_path, 3, COMMIT).iterdir()) == []


def test_every_file_is_collected_with_its_sum(tmp_path: Path) -> None:
    directory = trial_directory(tmp_path, 1, COMMIT)
    (directory / "full").mkdir()
    (directory / "full" / "fio.json").write_bytes(b"{}")
    (directory / "console.log").write_bytes(b"")
    (directory / "link").symlink_to("console.log")
    assert collect(directory, tmp_path) == (
        Artifact("console.log", "trials/0001-6cf4cc8f8b3b/console.log", hashlib.sha256(b"").hexdigest(), 0),
        Artifact("full/fio.json", "trials/0001-6cf4cc8f8b3b/full/fio.json", hashlib.sha256(b"{}").hexdigest(), 2),
    )


def test_only_leftovers_are_removed(tmp_path: Path) -> None:
    finished = trial_directory(tmp_path, 1, COMMIT)
    (finished / "console.log").write_text("Linux version")
    unfinished = trial_directory(tmp_path, 2, commit(2))
    (unfinished / "console.log").write_text("Linux ver")
    own = tmp_path / "trials" / "notes"
    own.mkdir()
    assert remove_unfinished(tmp_path, collect(finished, tmp_path)) == 1
    assert sorted(path.name for path in (tmp_path / "trials").iterdir()) == [finished.name, "notes"]
    assert (finished / "console.log").exists()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside of the run directory ``tmp_path/run``."""
    path = tmp_path / "id_ed25519"
    path.write_text("private")
    (tmp_path / "run").mkdir()
    return path


def test_files_of_the_directory_are_inside(secret: Path) -> None:
    run_dir = secret.parent / "run"
    (run_dir / "trials").mkdir()
    (run_dir / "trials/console.log").write_text("Linux version")
    (run_dir / "link").symlink_to("trials/console.log")
    (secret.parent / "other-name").symlink_to(run_dir)
    for name in ("trials/console.log", "link", run_dir / "link", "trials/../link"):
        assert inside(secret.parent / "other-name", name) == run_dir / "trials/console.log"
    assert inside(run_dir, "trials/not-made-yet") == run_dir / "trials/not-made-yet"


@pytest.mark.parametrize("name", ["{secret}", "../id_ed25519", "link", "directory/id_ed25519", "pipe", ".", "a\0b"])
def test_what_leads_out_of_the_directory_is_no_file_of_it(secret: Path, name: str) -> None:
    """Nor what is no file: nobody writes to a pipe that was in an archive."""
    run_dir = secret.parent / "run"
    (run_dir / "link").symlink_to(secret)
    (run_dir / "directory").symlink_to(secret.parent)
    os.mkfifo(run_dir / "pipe")
    with pytest.raises(OSError, match=r"it (leads out|is not a regular|is not the name)"):
        inside(run_dir, name.format(secret=secret))


@pytest.mark.parametrize(("name", "path"), [("console.log", "../id_rsa"), ("../../../id_rsa", "console.log")])
def test_a_trial_that_names_files_elsewhere_is_not_adopted(secret: Path, name: str, path: str) -> None:
    """Neither is a file of somebody's taken into the run, nor one of the run's put among somebody's."""
    source, target = secret.parent / "run", secret.parent / "new"
    (source / "console.log").write_text("Linux version")
    artifact = Artifact(name, path, "", 0)
    with pytest.raises(InfraError, match="leads out of the run directory"):
        adopt(source, replace(trial(COMMIT), artifacts=(artifact,)), target, 1)
    assert not (secret.parent / "id_rsa").exists()


def test_nothing_is_removed_where_a_link_leads(secret: Path) -> None:
    photos = secret.parent / "photos"
    (photos / "2019-Paris").mkdir(parents=True)
    (secret.parent / "run/trials").symlink_to(photos)
    for use in (lambda run_dir: remove_unfinished(run_dir, ()), lambda run_dir: trial_directory(run_dir, 1, COMMIT)):
        with pytest.raises(UserError, match="trials is a link"):
            use(secret.parent / "run")
    (secret.parent / "run/trials").unlink()
    (secret.parent / "run/trials").mkdir()
    (secret.parent / "run/trials/0001-abc").symlink_to(photos / "2019-Paris")
    assert remove_unfinished(secret.parent / "run", ()) == 0
    assert (photos / "2019-Paris").is_dir()


def test_a_later_edit_of_an_input_changes_nothing(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    mine = {name: tmp_path / name for name in ("my.fio", "mine.config", "base")}
    for name, path in mine.items():
        path.write_text(GOOD if name == "my.fio" else f"# CONFIG_{name.upper()} is not set\nCONFIG_X86_64=y\n")
    flags = {
        "workload.job": str(mine["my.fio"]),
        "kernel.base_config": str(mine["base"]),
        "kernel.fragments": ("vm", str(mine["mine.config"])),
    }
    asked = options.load(flags, directory=tmp_path).settings
    kept = keep_inputs(asked, run_dir)
    for path in mine.values():
        path.write_text("edited\n")
    assert kept.workload.inputs["job"].read_text() == GOOD
    assert kept.kernel.base_config is not None
    assert "CONFIG_X86_64=y" in kept.kernel.base_config.read_text()
    texts = [Path(name).read_text() for name in kept.kernel.fragments]
    assert texts[0].startswith("# vm:")
    assert "MINE.CONFIG" in texts[1]
    assert options.from_json(options.to_json(kept)) == kept


def test_inputs_of_several_settings_with_one_name_are_all_kept(tmp_path: Path) -> None:
    """As of a comparison, whose setups are kept in one run directory."""
    usual = options.load(directory=Path("/")).settings
    jobs = [tmp_path / name / "mine.fio" for name in ("a", "b")]
    for job in jobs:
        job.parent.mkdir()
        job.write_text(f"[{job.parent.name}]\n", encoding="utf-8")
    (run := tmp_path / "run").mkdir()
    for _ in range(2):  # a night keeps them again
        each = [replace(usual, workload=usual.workload.with_inputs({"job": job})) for job in jobs]
        kept = [keep_inputs(one, run).workload.inputs["job"] for one in each]
        assert [path.read_text(encoding="utf-8") for path in kept] == ["[a]\n", "[b]\n"]
        assert {path.name for path in kept} == {"mine.fio"}
    assert len(list((run / "inputs").rglob("mine.fio"))) == 2
