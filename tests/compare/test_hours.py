"""What a comparison takes, told beforehand: `bisector compare --plan`."""

import json
from typing import Any

import pytest

from tests import fakes
from tests.compare.desk import Desk, compare, shown, without_md

pytestmark = pytest.mark.usefixtures("at_the_desk")


def test_the_hours_are_told_beforehand(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(
        capsys, "compare", "main~3", "main", "--plan", "--stack", "hdd", "--stack", "lvmcache", "--repo", "linux"
    )
    assert "blocks    6 on each of 2 setups" in said
    assert "trials    24\n" in said
    assert "builds    2 of 4 min 40 s (assumed)" in said
    assert "a trial   1 min 10 s (assumed) of fio(partial.fio) on hdd+ext4, by read.iops of the worst job" in said
    assert "a trial   1 min 50 s to 6 min 10 s (assumed) of fio(partial.fio) on lvmcache(ssd,hdd)+ext4, by" in said
    assert "time      45 min 20 s to 1 h 37 min" in said
    hours = [(2 * 280 + 12 * (30 + 40) + 12 * (30 + 40 + filling)) / 3600 for filling in (40, 300)]
    expected = json.loads(shown(capsys, "compare", "main~3", "main", "--plan", "--json", "--stack", "hdd", "--stack",
                                "lvmcache", "--repo", "linux"))  # fmt: skip
    assert [expected["hours"], expected["hours_most"]] == pytest.approx(hours)
    words = ("main~3", "main", "--stack", "hdd", "--stack", "lvmcache", "--repo", "linux")
    assert shown(capsys, "plan", "compare", *words) == said
    assert desk.bench.requests == []


def test_a_command_whose_length_nobody_knows_is_told_of(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", "main~3", "main", "--plan", "--stack", "hdd", "--command", "a", "--command", "b")
    said = shown(capsys, *words, "--repo", "linux")
    assert [line.partition(" (assumed) of ")[2] for line in said.splitlines() if line.startswith("a trial")] == [
        "command(a) on hdd+ext4, by elapsed", "command(b) on hdd+ext4, by elapsed"
    ]  # fmt: skip
    assert "warning   command(b): how long it runs is known from its first block on" in said


def test_what_cannot_be_compared_takes_no_time(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel that only a stack could have that the first one lacks is not built either."""
    words = ("--plan", "--json", "--stack", "hdd", "--stack", "lvmcache", "--repo", "linux")
    expected = json.loads(shown(capsys, "compare", without_md(desk), desk.shas["c3"], *words))
    assert [one["stack"] for one in expected["setups"]] == ["hdd+ext4"]
    assert (expected["trials"], expected["builds"]) == (12, 2)
    assert expected["hours"] == pytest.approx((2 * 280 + 12 * (30 + 40)) / 3600)
    assert "nothing is measured there" in " ".join(expected["warnings"])


def test_hours_come_from_what_earlier_comparisons_took(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.commands.compare.host_id", lambda: fakes.HOST)
    compare(desk, "main~3", "main", "--stack", "lvmcache", "--stack", "hdd", "--runs", "1", "--quiet")
    words = ("--plan", "--until", "5%", "--json", "--stack", "lvmcache", "--stack", "hdd", "--budget", "30min")
    expected: dict[str, Any] = json.loads(shown(capsys, "compare", "main~3", "main", *words, "--repo", "linux"))
    assert [one["stack"] for one in expected["setups"]] == ["lvmcache(ssd,hdd)+ext4", "hdd+ext4"]
    assert expected["setups"][1]["trial_s"] == {
        "value": pytest.approx(5.7 + 4.2 + 84.0),
        "source": "of 2 trials here",
        "measured": True,
    }
    assert (expected["blocks"], expected["blocks_most"], expected["trials_most"]) == (6, 20, 80)
    assert expected["hours_most"] == 0.5


def test_the_clock_is_told_of_and_takes_its_time(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.vm.accelerator.KVM_DEVICE", desk.place / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk.place / "cache"))
    words = ("compare", "main~3", "main", "--plan", "--stack", "ram+ext4", "--repo", "linux")
    assert "clock     guests are emulated here, as fast as this host" in shown(capsys, *words)
    counted = json.loads(shown(capsys, *words, "--clock", "instructions", "--json"))
    assert counted["clock"] == {"kind": "instructions", "instruction_ns": 8}
    assert counted["clock_note"].startswith("the guests' clock counts instructions")
    assert counted["setups"][0]["trial_s"]["value"] == pytest.approx(30 + 40 * 125 / 120)
