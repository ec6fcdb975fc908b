"""All runs with a stub in the place of bisector: what is run, what is not run again, and the page."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisector.core.deadline import Deadline
from scenarios.articles import sets
from scenarios.articles.planted import ALONE, CULPRIT, KERNELS, bisection, comparison
from scenarios.articles.run import Desk, again
from scenarios.articles.sets import BCACHE_0, BCACHE_4M, HDD, LVMCACHE, SSD
from tests.recorded_run import fio_json
from tests.stub_bisector import in_place

NAMES = (sets.STACKS, sets.GREP, sets.KERNELS, sets.BISECT, sets.SUBMIT, sets.CLOUD)
ENTRY = "from tests.scenarios.articles.test_run import driven; import sys; sys.exit(driven(sys.argv[1]))"


def driven(work: str) -> int:
    """``make articles`` in a process of its own, to be killed."""
    return again(Desk(Path(work), in_place), KERNELS)


def documents() -> dict[str, dict[str, Any]]:
    iops = {SSD: 8000.0, HDD: 250.0, BCACHE_4M: 2400.0, BCACHE_0: 7900.0, LVMCACHE: 251.0}
    stacks = comparison({stack: dict.fromkeys(ALONE, (value,)) for stack, value in iops.items()})
    arms = {KERNELS.slow_cache: 501.0, KERNELS.newest: 3600.0, KERNELS.older: 900.0}
    kernels = comparison({
        LVMCACHE: {arm: (value, value * 1.01) for arm, value in arms.items()},
        HDD: dict.fromkeys(arms, (500.0, 500.0)),
    })  # fmt: skip
    other = comparison({SSD: dict.fromkeys(ALONE, (1.0,))})
    return {
        **dict.fromkeys(NAMES, other),
        sets.STACKS: stacks,
        sets.KERNELS: kernels,
        sets.BISECT: bisection(CULPRIT.sha),
    }


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("PYTHONPATH", os.fspath(Path(__file__).parents[3]))
    (tmp_path / "documents.json").write_text(json.dumps(documents()), encoding="utf-8")
    (tmp_path / "statuses.json").write_text("{}", encoding="utf-8")
    return Desk(tmp_path, in_place)


def log(desk: Desk) -> list[str]:
    """What was run, but for builds and for what is asked afterwards."""
    lines = (desk.work / "log").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.split()[0] not in ("kernel", "status")]


def text(desk: Desk) -> str:
    return (desk.work / "articles.md").read_text(encoding="utf-8").replace("\\", "")


def test_everything_runs_once_after_every_kernel_is_built(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert again(desk, KERNELS) == 0
    lines = [line.split() for line in (desk.work / "log").read_text(encoding="utf-8").splitlines()]
    assert [words[:2] for words in lines[: len(KERNELS.built)]] == [["kernel", one] for one in KERNELS.built]
    wanted = [f"{'start' if name == sets.BISECT else 'compare'} {name}" for name in NAMES]
    assert log(desk) == wanted
    assert str(desk.work / "articles.html") in capsys.readouterr().out
    assert again(desk, KERNELS) == 0
    assert log(desk) == wanted


def test_one_that_fails_does_not_keep_the_others_from_running(desk: Desk) -> None:
    (desk.work / "statuses.json").write_text(json.dumps({sets.KERNELS: [4]}), encoding="utf-8")
    assert again(desk, KERNELS) == 1
    assert len(log(desk)) == len(NAMES)
    assert "bisector ended with exit status 4" in text(desk)
    assert again(desk, KERNELS) == 0
    assert log(desk)[len(NAMES) :] == [f"resume {sets.KERNELS}"]
    assert "exit status 4" not in text(desk)


def test_killed_it_goes_on(desk: Desk) -> None:
    """The whole session is killed, as by a power cut, while the second run measures."""
    (desk.work / f"hold.{sets.GREP}").touch()
    child = subprocess.Popen([sys.executable, "-c", ENTRY, str(desk.work)], start_new_session=True)
    Deadline("the second run", 60).poll(lambda: (desk.work / "held").exists() or None, 0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    (desk.work / f"hold.{sets.GREP}").unlink()
    assert again(desk, KERNELS) == 0
    assert log(desk)[:4] == [
        f"compare {sets.STACKS}", f"compare {sets.GREP}", f"resume {sets.GREP}", f"compare {sets.KERNELS}",
    ]  # fmt: skip
    times = json.loads(next(desk.work.glob(f"{sets.GREP}-*.times")).read_text(encoding="utf-8"))
    assert [len(attempt) for attempt in times] == [2, 2]


def test_a_patch_without_an_effect_is_not_measured(desk: Desk) -> None:
    assert again(desk, replace(KERNELS, no_patch="the patch has no effect")) == 0
    assert f"compare {sets.SUBMIT}" not in log(desk)
    page = text(desk)
    assert row(page, "On a RAM disk, submitting")[4:] == [
        "not shown",
        "read.slat.mean, RAM disk, before the patch: the patch has no effect.",
    ]


def row(page: str, sentence: str) -> list[str]:
    (line,) = (one for one in page.splitlines() if one.startswith(f"| {sentence}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page(desk: Desk) -> None:
    (planned, *_) = sets.runs(KERNELS)
    for n, iops in ((500, 4000.0), (501, 4400.0)):  # the trials of the fifth stack
        path = desk.run_dir(planned) / "trials" / f"0{n}-abc" / "empty" / "fio.json"
        path.parent.mkdir(parents=True)
        path.write_text(fio_json(iops / 2, iops / 2), encoding="utf-8")
    desk.document_path(planned).write_text(json.dumps(documents()[sets.STACKS]), encoding="utf-8")
    assert again(desk, KERNELS) == 0
    page = text(desk)
    assert row(page, "The SSD is many times")[1:5] == ["at least 10", "112", "32.0", "held"]
    assert row(page, "With a cutoff of 0 bcache is several")[2:5] == ["5.44", "3.29", "held"]
    assert row(page, "A full lvmcache is near the HDD.")[2:5] == ["1.58", "1.00", "held"]
    assert row(page, "An lvmcache comes near the SSD")[2:5] == ["0.88", "0.52 (0.50 to 0.55)", "held"]
    assert row(page, "With v6.1 it is not, either.")[2:5] == ["72.2", "1.81 (1.80 to 1.82)", "not held"]
    assert row(page, "With v6.1 it is not, either.")[5].startswith("The mean of 40 s")
    assert row(page, "The bisection names")[2:5] == ["6cf4cc8f8b3b in 16 kernels", "cccccccccccc in 3 trials", "held"]
    assert row(page, "On a RAM disk, submitting")[3:5] == ["–", "not shown"]  # noqa: RUF001 - the sign for no figure
    assert row(page, "lvmcache, full: 4.9.30-2")[1:] == ["657 IOPS", "–"]  # noqa: RUF001
    assert "Example CPU, 4 cores" in page
    assert f"bisector compare {KERNELS.slow_cache} --placebo" in page
    html = (desk.work / "articles.html").read_text(encoding="utf-8")
    assert "The SSD is many times as fast as the HDD." in html
    title = page.splitlines()[0]
    held, not_held = (sum(f"| {word} |" in line for line in page.splitlines()) for word in ("held", "not held"))
    assert f": {held - 1} held, {not_held - 1} not held, " in title  # but for the head of the first table


def test_builds_are_not_among_the_seconds_of_a_run(desk: Desk) -> None:
    again(desk, KERNELS)
    (planned,) = (one for one in sets.runs(KERNELS) if one.name == sets.BISECT)
    path = next(desk.work.glob(f"{sets.BISECT}-*.times"))
    path.write_text("[[1000.0, 1600.0], [2000.0, 2100.0]]", encoding="utf-8")
    spent = desk.spent(planned)
    assert (spent.seconds, spent.builds_s) == (700.0 - 90.0, 90.0)
