"""``bisector nightly`` and ``bisector history`` at the command line."""

from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from bisector.cli import main
from bisector.nightly import timer
from bisector.store.log import DATABASE
from bisector.store.nights import nights_home
from tests import fakes
from tests.docs.json_schema import valid
from tests.nightly.conftest import World


@pytest.fixture
def console(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Console":
    monkeypatch.setattr("bisector.commands.measuring.here", world.equip)
    return Console(world, capsys)


class Console:
    """What a person types, and reads."""

    def __init__(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        self._capsys.readouterr()
        assert main(words) == code
        seen = self._capsys.readouterr()
        assert "Traceback" not in seen.err
        return seen.err if code == 2 else seen.out

    def nightly(self, *words: str, code: int = 0) -> str:
        return self("nightly", "--config", str(self.world.config()), *words, code=code)

    def json(self, *words: str) -> Any:
        return valid("history", self(*words))


def test_nights_of_an_older_bisector_are_told_of(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    nights_home().mkdir(parents=True)
    (nights_home() / "history.sqlite").touch()
    assert "there was no night yet" in console("history", code=2)
    assert main(["history"]) == 2
    assert "history.sqlite are of an older bisector" in capsys.readouterr().err


def test_a_night_as_json(console: Console) -> None:
    console.nightly()
    console.world.push("cache", "c5")
    night = valid("nightly", console.nightly("--json"))
    (job,) = night["jobs"]
    assert (night["schema"], night["night"], night["ending"]) == (2, 2, "done")
    assert (job["name"], job["class"], job["value"]) == ("cache", "same", fakes.FAST_IOPS)
    assert job["tip"]["sha"] == console.world.shas["c5"]
    assert job["compared_with"] == {"sha": console.world.shas["c2"], "rev": "main", "value": fakes.FAST_IOPS}
    assert {one["run"] for one in job["jobs"]} == {"empty", "full"}


def test_a_job_that_fails_is_the_exit_code(console: Console) -> None:
    console.world.extra = {"cache": 'remote = "nowhere"'}
    console.nightly("--notify", f"printenv BISECTOR_EXIT_CODE BISECTOR_ANSWER > '{nights_home()}/told'", code=1)
    code, answer = (nights_home() / "told").read_text().splitlines()
    assert code == "1"
    assert "nowhere does not answer" in answer
    (path,) = (nights_home() / "letters").iterdir()
    letter = message_from_bytes(path.read_bytes())
    assert letter["Subject"] == "bisector nightly: cache: fetch failed"
    assert "nowhere does not answer" in str(letter.get_payload())


def test_night_that_cannot_begin_is_told_once(console: Console) -> None:
    def notices() -> list[str]:
        return [path.name for path in (nights_home() / "letters").glob("*")]

    console.nightly()
    history = nights_home() / DATABASE
    sound = history.read_bytes()
    history.write_bytes(b"no database" * 100)
    console.nightly(code=4)
    (letter,) = notices()
    (nights_home() / "letters" / letter).unlink()
    console.nightly(code=4)
    assert not notices()
    history.write_bytes(sound)
    console.nightly()
    history.write_bytes(b"no database" * 100)
    console.nightly(code=4)
    assert notices() == [letter]


def test_check(console: Console) -> None:
    assert "1 job, 8 h" in console.nightly("--check")
    assert "nightly needs --config FILE" in console("nightly", code=2)
    console.world.top = "bugdet_hours = 3"
    assert "nightly.toml: there is no key bugdet_hours here" in console.nightly("--check", code=2)


def test_dry_run_records_nothing(console: Console) -> None:
    tip = console.world.shas["c2"][:12]
    assert f"cache: fetch main of origin, which is at {tip}, and measure it" in console.nightly("--dry-run")
    assert not nights_home().exists()
    said = console.nightly()
    assert "cache: fetching main from origin" in said
    assert "measured at 4,000 / 8,000 IOPS" in said
    assert "as the last time" in console.nightly("--dry-run")
    console.world.extra = {"cache": 'remote = "nowhere"'}
    (job,) = valid("nightly --dry-run", console.nightly("--dry-run", "--json", code=1))["jobs"]
    assert "nowhere does not answer" in job["problem"]


def test_history(console: Console) -> None:
    assert "there was no night yet" in console("history", code=2)
    console.nightly()
    console.world.slow_from["cache"] = "c6"
    console.world.push("cache", "c9")
    console.nightly(code=1)  # the fake bench leaves no files that a letter could be checked against
    lines = console("history").splitlines()
    assert lines[0].startswith("cache: origin main of ")
    first, second = (line for line in lines if " / 8,000" in line)
    assert "4,000 / 8,000" in first
    assert first.split()[-2:] == ["8,000", "first"]
    assert "slower" in second
    assert "no night had a job other" in console("history", "--job", "other", code=2)
    file = console.world.config()
    assert console("history", "--config", str(file)).splitlines() == lines
    file.write_text(file.read_text().replace('"cache"', '"other"'))
    assert f"no night had a job of {file} yet: other" in console("history", "--config", str(file), code=2)
    (job,) = console.json("history", "--json", "--job", "cache")["jobs"]
    found = job["nights"][1]["bisection"]
    assert (found["state"], found["first_new"]) == ("found", console.world.shas["c6"])


def test_history_as_a_picture(console: Console, tmp_path: Path) -> None:
    console.nightly()
    picture = tmp_path / "new" / "nights.png"
    assert "4,000 / 8,000" in console("history", "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    console("history", "--json", "--plot", str(tmp_path / "nights.SVG"))
    assert console.world.path.name in (tmp_path / "nights.SVG").read_text()
    assert "a picture ends in .png or .svg" in console("history", "--plot", "nights.pdf", code=2)
    assert "cannot write" in console("history", "--plot", str(picture / "a.png"), code=2)


def test_timer_without_systemd_is_a_line_for_cron(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer, "_RUNNING", Path("/nowhere"))
    assert console.nightly("--install-timer", "--at", "02:15").startswith("15 2 * * * ")


def test_timer_with_systemd(console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The manager is a script that writes down what it is told; the units are what `systemd-analyze` has seen."""
    monkeypatch.setattr(timer, "_RUNNING", tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    units = tmp_path / "config" / "systemd" / "user"
    assert str(units / "bisector-nightly.timer") in console.nightly("--install-timer")
    assert "removed" in console("nightly", "--remove-timer")
    assert not list(units.iterdir())
    assert (tmp_path / "told").read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now bisector-nightly.timer",
        "--user disable --now bisector-nightly.timer",
        "--user daemon-reload",
    ]
    assert "bisector has no timer" in console("nightly", "--remove-timer", code=2)
