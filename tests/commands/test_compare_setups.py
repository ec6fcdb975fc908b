"""What ``compare`` is asked to measure on: no word that chooses a workload or a stack is lost."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from bisector import cli
from bisector.commands import compare
from bisector.config import Settings
from bisector.core.figures import Run
from bisector.core.setting import Meta, Option
from bisector.workload import workloads
from bisector.workload.base import RunSite, Workload


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("one", "other"):
        job = "[j]\nrw=randread\nsize=${FILE_SIZE}\ndirectory=${DIRECTORY}\ntime_based\nruntime=${RUNTIME}\n"
        (tmp_path / f"{name}.fio").write_text(job)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(*words: str) -> tuple[Settings, ...]:
    return compare.settings_of(cli.parsed(["compare", "v6.1", "v6.2", *words]))


def test_files_are_as_large_on_each_stack() -> None:
    found = asked("--stack", "hdd", "--stack", "lvmcache", "--job", "rand-read-iops")
    fio: list[Any] = [one.workload.workload for one in found]
    assert [one.file_bytes for one in fio] == [64 << 20, 64 << 20]


def workload_texts(*words: str) -> list[str]:
    return [one.workload.text for one in asked("--stack", "hdd", *words)]


FS = "HEAD:fs"


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ((), ["fio(partial.fio)"]),
        (("--command", "a", "--command", "b"), ["command(a)", "command(b)"]),
        (("--job", "one.fio", "--command", "b"), ["fio(one.fio)", "command(b)"]),
        (("--command", "b", "--job", "one.fio"), ["command(b)", "fio(one.fio)"]),
        (("--grep", "x", "--job", "partial"), [f"gitgrep(x in {FS})", "fio(partial.fio)"]),
        (("--grep", "x", "--grep", "y"), [f"gitgrep(x in {FS})", f"gitgrep(y in {FS})"]),
        (
            ("--job", "one.fio", "--workload", "gitgrep", "--job", "other.fio"),
            ["fio(one.fio)", f"gitgrep(EXPORT_SYMBOL_GPL in {FS})", "fio(other.fio)"],
        ),
        # A name says nothing more where the workload's own flag is typed, too: so it is with `start`.
        (("--workload", "command", "--command", "a"), ["command(a)"]),
        (("--grep", "x", "--workload", "gitgrep"), [f"gitgrep(x in {FS})"]),
        (("--workload", "gitgrep", "--set", "workload.gitgrep.pattern=x"), [f"gitgrep(x in {FS})"]),
        # What --set chooses is one more.
        (("--command", "a", "--set", "workload.gitgrep.pattern=x"), ["command(a)", f"gitgrep(x in {FS})"]),
        (("--job", "one.fio", "--set", "workload.job=other.fio"), ["fio(one.fio)", "fio(other.fio)"]),
        (("--set", "workload.kind=gitgrep"), [f"gitgrep(EXPORT_SYMBOL_GPL in {FS})"]),
        (
            ("--set", "workload.kind=gitgrep", "--job", "one.fio"),
            ["fio(one.fio)", f"gitgrep(EXPORT_SYMBOL_GPL in {FS})"],
        ),
    ],
)
def test_every_workload_that_is_typed_is_measured_in_the_order_typed(words: tuple[str, ...], texts: list[str]) -> None:
    assert workload_texts(*words) == texts


def test_every_stack_that_is_typed_is_measured_with_every_workload() -> None:
    words = ("--stack", "hdd", "--stack", "ssd", "--command", "a", "--command", "b")
    assert [str(one.setup) for one in asked(*words)] == [
        "command(a) on hdd+ext4", "command(a) on ssd+ext4", "command(b) on hdd+ext4", "command(b) on ssd+ext4"
    ]  # fmt: skip
    assert [one.storage.stack.text for one in asked("--stack", "hdd", "--set", "storage.stack=ssd")] == [
        "hdd+ext4", "ssd+ext4"
    ]  # fmt: skip


def test_what_commands_have_besides_is_common_to_all(directory: Path) -> None:
    (directory / "x.tar").write_text("")
    words = ("--carry", "x.tar", "--figure", "tps=1/s,higher", "--setup", "mkdir d", "--command", "a", "--command", "b")
    for one in asked("--stack", "hdd", *words):
        own: Any = one.workload.workload
        assert [path.name for path in own.carry] == ["x.tar"]
        assert [figure.metric for figure in own.figures] == ["custom:tps:1/s:higher"]
        assert own.setup == "mkdir d"
        assert one.bisect.metric == "custom:tps:1/s:higher"


def test_the_file_of_settings_says_what_is_measured_where_no_word_does(directory: Path) -> None:
    (directory / "bisector.toml").write_text("[workload.command]\nline = 'from the file'\n")
    assert workload_texts() == ["command(from the file)"]
    assert workload_texts("--grep", "x") == [f"gitgrep(x in {FS})"]


@dataclass(frozen=True, slots=True)
class Sleep(Workload):
    """A workload of another package that a flag of its own chooses."""

    name = "sleep"
    chosen_by = "workload.sleep.time"
    time: Annotated[
        str, Option("workload.sleep.time", "1", "100 % of the time", flag="--sleep", metavar="S"), Meta(description="t")
    ]

    def label(self) -> str:
        return self.time

    def run(self, site: RunSite) -> Run:
        raise AssertionError("these tests measure nothing")


@pytest.fixture
def sleep() -> Iterator[None]:
    workloads.register(Sleep)
    yield
    workloads.forget("sleep")


def test_the_flag_of_a_workload_of_another_package_can_be_repeated(
    sleep: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert workload_texts("--sleep", "1", "--metric", "cpu.user", "--sleep", "2") == ["sleep(1)", "sleep(2)"]
    with pytest.raises(SystemExit):
        workload_texts("--help-all")
    assert "100 % of the time; repeatable" in capsys.readouterr().out
