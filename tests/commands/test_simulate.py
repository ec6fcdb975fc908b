"""The contract of ``bisector simulate``: options in, keys out."""

from functools import partial
from pathlib import Path

import pytest

from bisector.cli import main
from tests.docs.json_schema import valid
from tests.git.histories import build, linear
from tests.search.graphs import RECORDED

RATES = {
    "flip": 0.01,
    "flip-fixed": 0.03,
    "flip-broken": 0.002,
    "sticky": 0.005,
    "skip": 0.05,
    "relevant": 0.07,
    "suspects": 0.7,
}


@pytest.mark.parametrize("strategy", ["bayes", "git"])
def test_the_contract(strategy: str, capsys: pytest.CaptureFixture[str]) -> None:
    rates = [word for flag, rate in RATES.items() for word in (f"--{flag}", str(rate))]
    words = ("--graph", str(RECORDED), "--strategy", strategy, *rates, "--seed", "4", "--trials", "2", "--budget", "6h")
    assert main(["simulate", *words, "--json"]) == 0
    document = valid("simulate", capsys.readouterr().out)
    asked = {
        "strategy": strategy,
        "commits": 14_565,
        "trials": 2,
        "seed": 4,
        "early_stop": "second" if strategy == "bayes" else None,
        "fill": "short" if strategy == "bayes" else "whole",
        "budget_s": 6 * 3600.0,
        "hosts": 1,
        "kept_levels": False,
        "speed_up": None,
    }
    assert {key: document[key] for key in asked} == asked
    assert all(isinstance(value, float) for key, value in document.items() if key not in asked)


def test_a_real_range_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shas = build(tmp_path / "linux", linear(12))
    words = ["--range", shas["c0"], shas["c11"], "--repo", str(tmp_path / "linux"), "--trials", "5", "--seed", "9"]
    assert main(["simulate", *words]) == 0
    shown = capsys.readouterr().out
    assert "5 by bayes among 11 commits, seed 9" in shown
    assert "100.0% right" in shown


def minutes(line: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[float, object]:
    main(["simulate", "--graph", str(line), "--trials", "20", "--json", *words])
    document = valid("simulate", capsys.readouterr().out)
    return document["vm_hours_mean"] * 60, (document["early_stop"], document["fill"])


def line(path: Path, commits: int) -> Path:
    path.write_text("0\n" + "".join(f"{n} {n - 1}\n" for n in range(1, commits)), encoding="ascii")
    return path


def test_which_runs_are_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Minutes of a trial's runs: 30 whole, 21 when the second is stopped, 9 when the first is, too."""
    git = partial(minutes, line(tmp_path / "two", 2), capsys, "--strategy", "git")
    # One trial tells two commits apart; git ends no run early unless asked to, and then measures that one again, whole:
    # the later one at its full length, and the earlier one until it is clear of the new end's, at 8 of 15 minutes.
    whole, stopped = git("--full-runs")
    assert stopped == (None, "whole")
    assert git() == git("--full-runs", "--fill", "short") == (whole, (None, "whole"))
    assert git("--early-stop") == git("--early-stop", "second")
    second, stopped = git("--early-stop")
    assert whole - 9 + 3 + 23 <= second <= whole - 9 + 3 + 30
    assert stopped == ("second", "whole")  # two trials more would not pay here
    both_ends = 2 * (3 + 3 + 7)  # each run ends once it is like the whole one
    short, stopped = git("--early-stop", "--fill", "short")
    assert short == pytest.approx(second - 12 + both_ends)
    assert stopped == ("second", "short")


@pytest.mark.rare
def test_the_search_stops_runs_as_start_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bayes = partial(minutes, line(tmp_path / "line", 300), capsys)
    assert bayes() == bayes("--early-stop") == bayes("--fill", "short")
    assert bayes("--relevant", "0.05")[1] == ("second", "whole")
    assert bayes()[0] < bayes("--fill", "whole")[0] < bayes("--full-runs")[0]


def test_hosts_share_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--graph", str(line(tmp_path / "line", 300)), "--trials", "8", "--hosts", "3"]
    found = []
    for more in ([], ["--kept-levels"]):
        assert main([*words, *more, "--json"]) == 0
        found.append(valid("simulate", capsys.readouterr().out))
    both, one = found
    assert (both["hosts"], both["kept_levels"], one["kept_levels"]) == (3, False, True)
    assert both["success_rate"] == one["success_rate"] == 1.0
    assert 1.2 < both["speed_up"] < one["speed_up"]
    assert both["wall_hours_mean"] - one["wall_hours_mean"] > 33 / 60  # an end, and fewer ends by short fills
    assert main(words) == 0
    assert "3, each measures both ends: " in capsys.readouterr().out


def test_git_tries_one_commit_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--graph", str(RECORDED), "--hosts", "2", "--strategy", "git"]) == 2
    assert "--strategy bayes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--hosts", "0"], id="no host"),
        pytest.param(["--early-stop", "first"], id="not to be stopped"),
        pytest.param(["--fill", "half"], id="no fill"),
        pytest.param(["--flip", "1.5"], id="no probability"),
        pytest.param(["--trials", "0"], id="no trial"),
        pytest.param(["--seed", "-1"], id="negative seed"),
        pytest.param(["--strategy", "luck"], id="no strategy"),
        pytest.param(["--range", "a", "b"], id="graph and range"),
    ],
)
def test_bad_input(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--graph", str(RECORDED), *words]) == 2
    assert capsys.readouterr().err.startswith(f"bisector: {words[0]}: ")
