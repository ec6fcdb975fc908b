"""All histories with a stub in the place of bisector: what is run, what is not run again, and the table."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bisector import cli
from scenarios.histories.draw import HISTORIES as TEN
from scenarios.histories.draw import draw
from scenarios.histories.make import Histories
from scenarios.histories.pool import load
from scenarios.histories.run import MOST_S, bisected, runs
from scenarios.histories.run import SEED as DEFAULT_SEED
from scenarios.kept_runs import Desk
from tests.scenarios.histories.examples import HISTORIES, NOTHING, SEED, SINGLE, TWO, found, right, status
from tests.scenarios.histories.examples import made as example
from tests.stub_bisector import in_place

NAMES = [made.drawn.name for made in HISTORIES.made]


def plant(desk: Desk, statuses: dict[str, list[int]] | None = None, **documents: dict[str, Any]) -> None:
    """Right answers but for those given, and the exit statuses of the next attempts."""
    shown = {made.drawn.name: right(made) for made in HISTORIES.made} | documents
    ended = {NOTHING.drawn.name: [1]} | (statuses or {})
    (desk.work / "documents.json").write_text(json.dumps(shown), encoding="utf-8")
    (desk.work / "statuses.json").write_text(json.dumps(ended), encoding="utf-8")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path, in_place, name="histories", ends=frozenset({0, 1, 3}))
    plant(made)
    return made


def log(desk: Desk) -> list[str]:
    lines = (desk.work / "log").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.split()[0] != "status"]


def again(desk: Desk, *only: str) -> int:
    return bisected(desk, HISTORIES, SEED, only)


def row(desk: Desk, name: str) -> list[str]:
    text = (desk.work / "histories.md").read_text(encoding="utf-8").replace("\\", "")
    (line,) = (one for one in text.splitlines() if one.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_each_is_bisected_once_and_found_right(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert again(desk) == 0
    assert log(desk) == [f"start {name}" for name in NAMES]
    assert "10 histories: 10 right" in capsys.readouterr().out
    assert again(desk) == 0
    assert len(log(desk)) == TEN


def test_one_wrong_answer_is_told_and_fails(desk: Desk) -> None:
    name = SINGLE.drawn.name
    plant(desk, **{name: found("9" * 40)})
    assert again(desk) == 1
    assert row(desk, name)[5] == "wrong"
    assert "it is 111111111111" in row(desk, name)[-1]
    assert again(desk) == 1
    assert len(log(desk)) == TEN


def test_a_set_that_has_the_planted_one_does_not_fail(desk: Desk) -> None:
    name = SINGLE.drawn.name
    narrowed = status("narrowed", candidates=["9" * 40, SINGLE.planted[0].sha], probability=0.6)
    plant(desk, {name: [3]}, **{name: narrowed})
    assert again(desk) == 0
    assert row(desk, name)[4:7] == ["one of 2 commits", "narrowed", "–"]  # noqa: RUF001 - the sign for no figure


def test_one_that_stops_is_missing_and_gone_on_with(desk: Desk) -> None:
    name = NAMES[1]
    plant(desk, {name: [4]}, **{name: status("stopped")})
    assert again(desk) == 1
    assert row(desk, name)[5] == "missing"
    plant(desk)
    assert again(desk) == 0
    assert log(desk)[TEN:] == [f"resume {name}"]


def test_the_table(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    again(desk)
    cells = row(desk, TWO.drawn.name)
    assert cells[1] == TWO.drawn.setup.name
    first, second = TWO.drawn.changes
    assert cells[3] == f"{TWO.drawn.direction}: {first} (commit 1, main) and {second} (commit 2, main)"
    assert cells[4].endswith("and a hint of the other change")
    assert cells[5:9] == ["right", "99.7 %", "9", "1"]
    assert row(desk, NOTHING.drawn.name)[3:7] == ["nothing", "the ends do not differ", "right", "–"]  # noqa: RUF001
    page = (desk.work / "histories.md").read_text(encoding="utf-8").replace("\\", "")
    assert "9 of 9 named commits are right, claimed 99.7 %" in page
    assert f"bisector start {NAMES[0]}-old {NAMES[0]}-new" in page
    assert "the table is" in capsys.readouterr().out


@pytest.mark.parametrize("seed", [DEFAULT_SEED, *range(12)])
def test_all_of_a_seed_fit_into_three_hours(seed: int) -> None:
    asked = runs(Histories(Path("/linux"), tuple(map(example, draw(seed, load())))))
    assert sum(run.expected_s for run in asked) <= MOST_S - 600


def budgets(desk: Desk) -> list[float]:
    words = (line.split() for line in (desk.work / "words").read_text(encoding="utf-8").splitlines())
    return [float(line[line.index("--budget") + 1].removesuffix("s")) for line in words if line[0] == "start"]


def test_what_a_history_can_take_is_what_the_others_leave(desk: Desk) -> None:
    """Twice what is expected as long as there is time, and never less than that."""
    expected = [run.expected_s for run in runs(HISTORIES)]
    again(desk, NAMES[0])
    assert budgets(desk) == [2 * expected[0]]
    (times,) = desk.work.glob(f"{NAMES[0]}-*.times")
    left_s = MOST_S - 600 - sum(expected[1:])
    times.write_text(json.dumps([[0.0, left_s - 100.0]]), encoding="utf-8")
    again(desk, NAMES[1])
    assert budgets(desk)[1] == round(expected[1] + 100.0)
    times.write_text(json.dumps([[0.0, left_s + expected[1] + 100.0]]), encoding="utf-8")
    again(desk, NAMES[2])
    assert budgets(desk)[2] == round(expected[2])


def test_one_whose_time_is_over_has_ended(desk: Desk) -> None:
    """What it knows is its answer; it is not gone on with for ever."""
    name = SINGLE.drawn.name
    shas = (SINGLE.planted[0].sha, "9" * 40)
    plant(desk, {name: [3]}, **{name: status("narrowed", shas, budget={"is_over": True}, probability=0.6)})
    assert (again(desk), again(desk)) == (0, 0)
    assert len(log(desk)) == TEN


def test_other_work_comes_and_goes_beside_ends_that_do_not_differ_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []

    @contextmanager
    def drifting() -> Iterator[None]:
        began.append(len(log(desk)) if (desk.work / "log").exists() else 0)
        yield
        assert log(desk)[began[-1] :] == [f"start {NOTHING.drawn.name}"]

    monkeypatch.setattr("scenarios.histories.run.drifting", drifting)
    again(desk)
    assert began == [NAMES.index(NOTHING.drawn.name)]


def test_bisector_takes_each_command() -> None:
    for run in runs(HISTORIES):
        assert cli.parsed([*run.words, "--budget", "900s", "--run-dir", "/run"]).old == f"{run.name}-old"
