"""A comparison in counted time: several guests of one host measure at a time, also of one block."""

import random

from bisector.campaign.instructions import Crew, Done
from bisector.compare import session
from bisector.core.events import OnHost, Planned
from bisector.core.verdict import State
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests import fakes
from tests.bisect.crew import Guests
from tests.compare import planted
from tests.compare.desk import Desk

RUNS = 3


def test_each_trial_is_measured_once_whatever_ends_first(desk: Desk) -> None:
    desk.begin("c0", "c3", stacks=("lvmcache", "hdd"), runs=RUNS)
    values = planted.by_name(desk.shas, {"c0": 1_000.0, "c3": 1_300.0})
    guests = Guests(planted.Bench(value=values), 2, random.Random(1))
    equip = fakes.equipped(guests, Crew(guests=2))
    run = RunDirectory.open(desk.place / "run")
    with run.lock(), Store.open(run.database) as store:
        assert session.go_on(run, store, desk.told.append, equip) == Done(
            State.MEASURED, f"{RUNS} blocks on each setup"
        )
    blocks = desk.blocks()
    assert [len(blocks.counted(setup)) for setup in (0, 1)] == [RUNS, RUNS]
    assert len(blocks.blocks) == 2 * RUNS
    assert guests.most == 2
    places = {event.host for event in desk.told if isinstance(event, OnHost) and isinstance(event.event, Planned)}
    assert places == {"guest 1", "guest 2"}
