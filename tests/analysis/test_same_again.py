"""Whether trials in counted time are the same again, by the files that came out of their guests."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.analysis.verdicts import Judging, repeats
from bisector.config import options
from bisector.core.trial import Artifact, Era, Trial
from tests import examples, fakes

COUNTED = replace(examples.ERA, clock="8 ns an instruction").sealed
FILES = {"console.log": "c", "full/fio.json": "f", "host.json": "h"}


def counted(files: Mapping[str, str] = FILES, *, seed: int = 0, era: Era | None = COUNTED, of: int = 1) -> Trial:
    artifacts = tuple(Artifact(name, name, text, 1) for name, text in {**FILES, **files}.items())
    return replace(fakes.trial(examples.commit(of)), era=era, guest_seed=seed, artifacts=artifacts)


def test_equal_files_of_the_guest_are_the_same_to_the_last_bit() -> None:
    (found,) = repeats([(3, counted()), (5, counted({"host.json": "another", "build.log": "new"}))])
    assert (found.first, found.again, found.is_exact) == (3, 5, True)
    assert found.sentence.endswith("are the same to the last bit: counted time is exact here")


def test_what_differs_is_named() -> None:
    (found,) = repeats([(3, counted()), (5, counted({"console.log": "x", "more.log": "m"}))])
    assert (found.is_exact, found.unlike) == (False, ("console.log", "more.log"))
    assert "differ in console.log, more.log" in found.sentence


@pytest.mark.parametrize(
    "other",
    [
        counted(seed=1),
        counted(of=2),
        counted(era=replace(COUNTED, qemu="9").sealed),
        counted(era=examples.ERA),
        replace(counted(), runs=()),
        replace(counted(), cell=replace(counted().cell, setup=examples.alone("ssd"))),
    ],
)
def test_others_are_not_to_be_equal(other: Trial) -> None:
    assert list(repeats([(1, counted()), (2, other)])) == []
    assert list(repeats([(1, other), (2, counted())])) == []


def test_a_trial_that_is_the_same_again_is_no_further_reading() -> None:
    settings = options.load({"machine.clock": "instructions"}, directory=Path("/")).settings
    old, again, other = counted(), counted(), counted({"console.log": "o"}, seed=1)
    new = replace(counted(of=2), runs=fakes.trial(examples.commit(2), fakes.FAST_IOPS).runs)
    judging = Judging(settings, tuple(enumerate((old, new, again, other), 1)), old.commit.sha, new.commit.sha)
    assert judging.is_exact
    assert len(judging.scores[old.commit.sha]) == 2
    assert [trial for trial, _ in judging.readings()] == [old, new, other]
    assert len(judging.sound()) == 4
