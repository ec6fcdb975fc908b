"""The report of a comparison from a real record: every format, the command that asks again, the plots."""

import json
import shlex
from email import message_from_string
from email.policy import default
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core.trial import Trial
from bisector.trial.runner import TrialRequest
from tests.compare import planted
from tests.compare.test_session import Desk, desk
from tests.docs.json_schema import valid
from tests.report.comparison_examples import with_counter

__all__ = ["desk"]  # the fixture


def shown(output: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints of the run."""
    output.readouterr()
    assert main([*words, "--run-dir", "run"]) == 0
    return output.readouterr().out


@pytest.fixture
def done(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Two stacks in three blocks, and a placebo; main is faster by 30 %."""
    monkeypatch.chdir(desk.place)
    desk.bench.value = planted.by_name(desk.shas, {"c0": 1_000.0, "c3": 1_300.0})
    desk.begin("main~3", "main", runs=3, placebo=True, workload__file_size="64MiB")
    desk.go_on()
    return desk


def test_text_has_everything(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, "report")
    assert said.startswith("Comparison of main with main~3: faster in 2 of 2\n")
    assert "read.iops of the worst job * (higher is better)" in said
    assert "main~3 (again)" in said
    assert "With 3 blocks the exact test cannot reach 5 %" in said
    assert "It is finished: 3 blocks on each setup." in said
    assert f"{done.shas['c3'][:12]} (" in said
    assert "gcc 12.2.0, GNU ld 2.40" in said
    assert "[partial]" in said
    assert "The order was drawn from the seed 7" in said


def test_command_compares_the_same_again(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(shown(capsys, "report", "--format", "json"))
    assert shlex.split(made["command"]) == [
        "bisector", "compare", done.shas["c0"][:12], done.shas["c3"][:12],
        "--stack", "lvmcache(ssd,hdd)+ext4", "--stack", "hdd+ext4", "--job", "partial.fio",
        "--placebo", "--runs", "3", "--delta", "5%", "--seed", "7", "--file-size", "64MiB",
    ]  # fmt: skip


def test_json_is_of_its_schema(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "report", "--format", "json")
    printed = valid("compare", text)
    assert [arm["placebo"] for arm in printed["arms"]] == [False, False, True]
    assert len(printed["blocks"]) == 6
    assert len(printed["rows"][0]["values"]) == 9


def test_letter_can_be_sent_by_hand(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "report", "--format", "mail")
    letter = message_from_string(text, policy=default)
    assert letter["Subject"] == "Comparison of main with main~3: faster in 2 of 2"
    assert letter["To"] is None
    assert (
        letter["Message-ID"]
        == message_from_string(shown(capsys, "report", "--format", "mail"), policy=default)["Message-ID"]
    )
    body = letter.get_content()
    assert "higher is better" in body
    assert "they will differ." in body
    assert "\n-- \nbisector " in body


def test_markdown_and_html(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "report", "--format", "markdown").startswith("# Comparison of main")
    html = shown(capsys, "report", "--format", "html")
    assert html.count("<img ") == 2
    assert "Plot: Ratio to main~3, with 95 % intervals." in html


def test_plots_are_files(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    paths = shown(capsys, "plot").split()
    assert [Path(path).name for path in paths] == ["ratios.png", "runs.png"]
    assert shown(capsys, "plot", "--kind", "runs", "-o", "one.svg") == "one.svg\n"
    assert Path("one.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("plot", "--kind", "commits"), "there is nothing of that to plot"),
        (("plot", "-o", "all.png"), "is one file, and there are 2 plots"),
        (("report", "--metric", "read.bw"), "a comparison has each metric in its report"),
    ],
)
def test_what_a_comparison_has_not(
    done: Desk, words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--run-dir", "run"]) == 2
    assert why in capsys.readouterr().err


def test_fio_version_and_commands_are_as_the_first_trial_left_them(
    done: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"storage.txt": "mkfs.ext4 /dev/vdb", "full/fio.json": '{"fio version": "fio-3.33"}'}
    monkeypatch.setattr(
        "bisector.report.reporting.first_text",
        lambda run_dir, trials, name: (files[name],) if name in files else (),
    )
    said = shown(capsys, "report")
    assert "mkfs.ext4 /dev/vdb" in said
    assert done.bench.requests


def test_a_metric_that_is_zero_is_compared_by_differences(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, ratios = desk.bench.measure, {desk.shas["c0"]: 0.0, desk.shas["c3"]: 40.0}

    def counted(request: TrialRequest) -> Trial:
        return with_counter(usual(request), "cache.hit_ratio", ratios[request.commit.sha])

    monkeypatch.setattr(desk.bench, "measure", counted)
    monkeypatch.chdir(desk.place)
    desk.begin("main~3", "main", stacks=("hdd",), bisect__metric="cache.hit_ratio")
    desk.go_on()
    said = " ".join(shown(capsys, "report").split())
    assert "cache.hit_ratio * (higher is better)" in said
    assert "hdd+ext4 0.0 % 40.0 % +40.0 % [+40.0 %, +40.0 %]" in said
    assert "differences are given and not ratios: cache.hit_ratio on hdd+ext4." in said
