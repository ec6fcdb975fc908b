"""The command that a report gives asks for the same settings."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from bisector import cli
from bisector.commands.arguments import given_settings
from bisector.config import Settings, options
from bisector.report import reporting
from bisector.store.facts import RunHeader
from bisector.store.log import DATABASE
from bisector.store.rundir import keep_inputs
from bisector.store.store import Store
from tests import recorded_run
from tests.store import examples
from tests.workload.test_job_file import GOOD

SHA_A, SHA_B = "a" * 12, "b" * 12
Flags = dict[str, str | options.Given | tuple[str, ...]]


def command(settings: Settings, old: str = "v4.11", new: str = "v4.13-rc1") -> str:
    row = replace(examples.bisection(), old_rev=old, new_rev=new, paths=(), skips=())
    return reporting.command(row, settings)


def kept(tmp_path: Path, flags: Flags) -> Settings:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    return keep_inputs(options.load(flags, directory=tmp_path).settings, run_dir)


def test_a_further_disk_is_named_even_with_its_usual_size(tmp_path: Path) -> None:
    flags: Flags = {"storage.stack": "hdd2", "storage.hdd2.size": "1GiB", "storage.hdd2.iops_limit": "7"}
    (tmp_path / "bisector.toml").write_text('[storage.spare]\nsize = "2GiB"\n')
    assert command(kept(tmp_path, flags)).split()[4:] == [
        *("--stack", "hdd2", "--set", "storage.hdd2.size=1GiB", "--set", "storage.hdd2.iops_limit=7"),
    ]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, ""),
        ({"bisect.expect": "regression"}, "--regression"),
        ({"storage.stack": "ssd"}, "--stack ssd"),
        ({"workload.runtime": "90s"}, "--runtime 90s"),
        ({"mail.host": "smtp.example.org"}, ""),
        ({"kernel.sandbox": "false"}, ""),
        ({"contention.patience": "1h"}, ""),
        ({"storage.overwrite": ("WD-WX11A1234567",)}, ""),
    ],
)
def test_defaults_and_what_follows_from_a_setting_are_not_said(tmp_path: Path, flags: Flags, words: str) -> None:
    assert command(kept(tmp_path, flags)) == f"bisector start v4.11 v4.13-rc1 {words}".rstrip()


def test_branches_move_and_hashes_do_not(tmp_path: Path) -> None:
    assert command(kept(tmp_path, {}), "HEAD~3", "master") == f"bisector start {SHA_A} {SHA_B}"


def test_paths_and_skips(tmp_path: Path) -> None:
    row = replace(examples.bisection(), skips=("c" * 40,), paths=("drivers/md", "a b"))
    words = shlex.split(reporting.command(row, kept(tmp_path, {})))
    assert words[-5:] == ["--skip", "c" * 12, "--", "drivers/md", "a b"]
    assert cli.parsed(words[1:]).paths == ["drivers/md", "a b"]


def test_own_files_by_their_names(tmp_path: Path) -> None:
    for name, text in (("my.fio", GOOD), ("mine.config", "CONFIG_X=y\n"), ("base", "CONFIG_X=y\n")):
        (tmp_path / name).write_text(text)
    flags: Flags = {
        "workload.job": "my.fio", "kernel.fragments": ("auto", "./mine.config"), "kernel.base_config": "base",
    }  # fmt: skip
    assert command(kept(tmp_path, flags)).split()[4:] == [
        "--base-config", "base.config", "--fragment", "./mine.config", "--job", "my.fio",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "flags",
    [
        {"profile": "article", "bisect.expect": "regression", "bisect.terms": "fast:slow"},
        {"bisect.threshold": "2003.5", "bisect.first_parent": "true", "storage.stack": "ssd"},
        {"workload.runtime": "90s", "storage.hdd.iops_limit": "2000", "machine.append": "quiet nosmt",
         "contention.max_other_cores": "1.25", "storage.ssd.size": "1GiB"},
        {"kernel.fragments": ("tiny", "debug", "vm")},
        {"kernel.fragments": ("auto", "debug")},
        {"kernel.compiler": "gcc-12,clang", "kernel.jobs": "3", "machine.trial_deadline": "2h"},
        {"workload.gitgrep.pattern": "dm", "workload.gitgrep.commit": "v6.1"},
        {"workload.kind": "gitgrep", "workload.gitgrep.pattern": "dm", "workload.command.line": "sync"},
    ],
)  # fmt: skip
def test_command_means_the_same_settings(tmp_path: Path, flags: Flags, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = options.load(flags, directory=tmp_path).settings
    words = shlex.split(command(asked))
    parsed = cli.parsed(words[1:])
    again = options.load(given_settings(parsed), directory=tmp_path).settings
    assert again == asked
    assert len(words) > 4


def test_a_command_its_files_and_its_figures_are_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "bench.sh").touch()
    figures = ("tps=1/s,higher", "p99=ms,lower,regex:p99 = ([0-9]+)")
    carried = {"workload.command.carry": ("bench.sh",), "workload.command.figures": figures}
    settings = kept(tmp_path, {"workload.command.line": "sh bench.sh", "workload.command.size": "128MiB", **carried})
    arguments = cli.parsed(shlex.split(command(settings))[1:])
    again = options.load(given_settings(arguments), directory=tmp_path).settings
    assert [path.name for path in again.workload.inputs.values()] == ["bench.sh"]
    assert again.workload.with_inputs(settings.workload.inputs) == settings.workload
    assert again.bisect == settings.bisect


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{'3f' * 20}.bundle", []),
        (f"{'3f' * 32}.bundle", []),
        ("mine.bundle", ["--set", "workload.gitgrep.bundle=mine.bundle"]),
    ],
)
def test_a_clone_that_is_made_is_not_typed(tmp_path: Path, name: str, words: list[str]) -> None:
    (tmp_path / name).touch()
    flags: Flags = {
        "workload.gitgrep.pattern": "dm",
        "workload.gitgrep.commit": "v6.1",
        "workload.gitgrep.bundle": name,
    }
    said = shlex.split(command(kept(tmp_path, flags)))
    assert said[4:] == ["--grep", "dm", "--set", "workload.gitgrep.commit=v6.1", *words]


def test_a_command_is_told_as_it_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"workload.command.line": "tar -xf $CARRIED/x.tar", "workload.command.setup": "cat x"}
    found = recorded_run.found(tmp_path, {**given, "workload.command.size": "128MiB"})
    assert cli.main(["report", "--run-dir", str(found.run.path)]) == 0
    text = capsys.readouterr().out
    told = "    cat x   # once, not measured\n    tar -xf $CARRIED/x.tar   # 3 times, page cache dropped\n"
    assert f"Workload\n========\n\ncommand:\n\n{told}" in text
    assert "--command 'tar -xf $CARRIED/x.tar' --setup 'cat x'" in text
    assert "the workload is printed above" in " ".join(text.split())


def test_a_run_directory_that_was_moved_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.fio").write_text(GOOD)
    (tmp_path / "mine.config").write_text("CONFIG_X=y\n")
    found = recorded_run.found(tmp_path, {"workload.job": "mine.fio", "kernel.base_config": "mine.config"})
    run_dir = found.run.path
    with Store.open(found.run.database) as store:
        assert str(run_dir) not in store.facts(RunHeader)[0].settings
    moved = run_dir.rename(tmp_path / "elsewhere")
    with Store.open(moved / DATABASE, readonly=True) as store:
        settings = options.from_json(store.bisection().settings)
    assert [path.is_file() for path in settings.workload.inputs.values()] == [True]
    assert all(Path(name).is_file() for name in (settings.kernel.base_config or "", *settings.kernel.fragments))
    assert cli.main(["report", "--run-dir", str(moved)]) == 0
    assert "[one]\n    numjobs=2\n" in capsys.readouterr().out
    next(iter(settings.workload.inputs.values())).unlink()
    assert cli.main(["report", "--run-dir", str(moved)]) == 0
    said = capsys.readouterr().out
    assert "; the job file mine.fio is missing from the directory inputs of the run" in said
    assert "the workload is missing, as is said above" in " ".join(said.split())
