"""Both ends with a short fill, too, before other commits have one; what an answer rests on has whole fills."""

from dataclasses import replace

import pytest

from bisector.config import FillMode, Settings
from bisector.core.events import TrialJudged
from bisector.core.subject import Mattering
from bisector.core.trial import Fill
from bisector.core.verdict import State, Verdict
from bisector.storage.filling import Settling
from bisector.storage.lvmcache import LvmCache
from tests import fakes
from tests.bisect.filler import ENDS_BOTH_WAYS, asked, filler, notes, settles_quickly
from tests.bisect.lab import BY_GIT, DEFAULTS, FAR_IOPS, Lab


@pytest.fixture(autouse=True)
def _settling(monkeypatch: pytest.MonkeyPatch) -> None:
    settles_quickly(monkeypatch)


@pytest.mark.parametrize(("settings", "least"), [(BY_GIT, 4), (DEFAULTS, 1)], ids=["git", "bayes"])
def test_a_fill_that_changes_neither_end_is_used_and_the_answer_rests_on_whole_ones(
    line: Lab, settings: Settings, least: int
) -> None:
    line.settings = settings
    engine = filler(line, "c7")
    engine.fast_iops = FAR_IOPS
    outcome = line.bisect(engine)
    assert line.found(outcome) == "c7"
    found = asked(line, engine)
    assert found[:4] == ENDS_BOTH_WAYS
    assert all(is_whole for _, _, is_whole in engine.asked[:4])
    searched = [name for name, fill in found[4:] if fill is Fill.SHORT]
    assert len(searched) >= least
    assert {"c6", "c7"} <= {name for name, fill in found[4:] if fill is Fill.WHOLE}
    # A run that may stop early has a short fill, and one that may not has a whole one.
    assert all((fill is Fill.WHOLE) is is_whole for _, fill, is_whole in engine.asked[4:])
    assert "caches are filled until they are settled, which changes neither end" in notes(line)
    # What is read of an end without the commit after its whole run is its side only.
    undone = [fill for name, fill in found if name == "changed"]
    assert undone[:1] == ([] if settings is BY_GIT else [Fill.WHOLE])
    told = [(event.n, event.verdict) for event in line.events if isinstance(event, TrialJudged) and event.n in (3, 4)]
    assert told == [(3, Verdict.MEASURED), (4, Verdict.NEW), (3, Verdict.OLD)]


def test_one_that_changes_an_end_is_used_for_nothing_else(line: Lab) -> None:
    engine = filler(line, "c7")
    engine.after_short = {line.shas["c16"]: 1_100.0}
    assert line.found(line.bisect(engine)) == "c7"
    found = asked(line, engine)
    assert found[:4] == ENDS_BOTH_WAYS
    assert {fill for _, fill in found[4:]} == {Fill.WHOLE}
    assert [name for name, _ in found].count("c16") == 2
    why = "with it an end is on the other side of the threshold"
    assert f"caches are filled by whole runs: {why}" in notes(line)
    view = line.view()
    shown = {one.n: one for one in view.trials}
    assert [shown[n].verdict for n in (1, 2, 3, 4)] == [Verdict.OLD, Verdict.NEW, Verdict.WEAK, Verdict.WEAK]
    assert shown[4].why.endswith(why)


def test_caches_that_do_not_settle_are_tried_once(line: Lab) -> None:
    engine = filler(line, "c7")
    engine.settles = False
    assert line.found(line.bisect(engine)) == "c7"
    found = asked(line, engine)
    assert found[:4] == ENDS_BOTH_WAYS
    assert {fill for _, fill in found[4:]} == {Fill.WHOLE}
    why = "the caches of both ends were not settled before the end of a whole run"
    assert f"caches are filled by whole runs: {why}" in notes(line)


def test_a_disturbed_one_is_repeated_and_given_up_at_last(line: Lab) -> None:
    engine = filler(line, "c7")
    engine.busy_fills = {line.shas["c0"]: 2, line.shas["c16"]: 9}
    assert line.found(line.bisect(engine)) == "c7"
    found = asked(line, engine)
    assert found[2:5] == [("c0", Fill.SHORT)] * 3
    assert found[5:9] == [("c16", Fill.SHORT)] * 4
    assert {fill for _, fill in found[9:]} == {Fill.WHOLE}


def test_killed_between_both_ways_it_goes_on_with_the_other_end(line: Lab) -> None:
    engine = filler(line, "c7")
    engine.kill_at = 4
    with pytest.raises(fakes.Killed):
        line.bisect(engine)
    engine.kill_at = None
    assert line.found(line.bisect(engine)) == "c7"
    assert asked(line, engine)[:5] == [*ENDS_BOTH_WAYS, ("c16", Fill.SHORT)]


def test_it_is_not_tried_where_too_few_trials_are_left_to_save_as_much(line: Lab) -> None:
    line.known = Mattering(16, frozenset({line.shas["c7"], line.shas["c9"]}))
    engine = filler(line, "c7")
    outcome = line.bisect(engine)
    assert outcome.state is State.FOUND
    assert {fill for _, fill in asked(line, engine)} == {Fill.WHOLE}


def test_it_is_tried_whatever_it_takes_where_it_is_asked_for(line: Lab) -> None:
    line.known = Mattering(16, frozenset({line.shas["c7"], line.shas["c9"]}))
    line.settings = replace(BY_GIT, storage=replace(BY_GIT.storage, fill=FillMode.SHORT))
    engine = filler(line, "c7")
    assert line.found(line.bisect(engine)) == "c7"
    assert asked(line, engine)[:4] == ENDS_BOTH_WAYS


@pytest.mark.parametrize("given", ["whole fills", "full runs", "runs that are too short"])
def test_it_is_not_tried_where_it_cannot_be(line: Lab, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if given == "whole fills":
        line.settings = replace(DEFAULTS, storage=replace(DEFAULTS.storage, fill=FillMode.WHOLE))
    if given == "full runs":
        line.settings = replace(DEFAULTS, workload=replace(DEFAULTS.workload, full_runs=True))
    if given == "runs that are too short":
        empty, full = LvmCache.phases
        monkeypatch.setattr(LvmCache, "phases", (replace(empty, settling=Settling(60.0)), full))
    engine = filler(line, "c7")
    assert line.found(line.bisect(engine)) == "c7"
    assert {fill for _, fill in asked(line, engine)} == {Fill.WHOLE}


@pytest.mark.parametrize("fill", [FillMode.AUTO, FillMode.SHORT])
def test_who_asks_for_it_is_told_why_it_cannot_be(line: Lab, fill: FillMode, monkeypatch: pytest.MonkeyPatch) -> None:
    empty, full = LvmCache.phases
    monkeypatch.setattr(LvmCache, "phases", (replace(empty, settling=Settling(60.0)), full))
    line.settings = replace(BY_GIT, storage=replace(BY_GIT.storage, fill=fill))
    assert line.found(line.bisect(filler(line, "c7"))) == "c7"
    why = "a short fill is for runs of 2 min and more"
    assert notes(line).count(f"caches are filled by whole runs: {why}") == (fill is FillMode.SHORT)
