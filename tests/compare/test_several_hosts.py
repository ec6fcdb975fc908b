"""A comparison on several hosts or guests: each block on one host, and whatever one of them does."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from bisector.analysis.comparison import LOOKS
from bisector.campaign.instructions import Crew, Done
from bisector.compare import session
from bisector.config import RetryPolicy, Settings
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Note, OnHost, Planned
from bisector.core.trial import AttemptFailed, Stage, Trial
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest, Job, News
from bisector.status.blocks import BlockState, result_of
from bisector.store.facts import Extent, InfraFault
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.crew import Fleet, Guests
from tests.compare import planted
from tests.compare.desk import Desk
from tests.kernel.test_image import bzimage

RUNS = 6
VALUES = {"c0": 1_000.0, "c3": 1_300.0}


def bench(desk: Desk, times: float = 1.0) -> planted.Bench:
    return planted.Bench(value=planted.by_name(desk.shas, {name: times * value for name, value in VALUES.items()}))


@dataclass
class Hosts(Fleet):
    """Hosts that come and go: ``leaves`` says after how many jobs a host is gone, ``returns`` after how many more."""

    benches: Mapping[str, planted.Bench]
    leaves: dict[str, int] = field(default_factory=dict)
    returns: dict[str, int] = field(default_factory=dict)
    jobs: list[tuple[str, Job]] = field(default_factory=list)

    def submit(self, job: Job, host: str = "") -> None:
        super().submit(job, host)
        self.jobs.append((host, job))

    def next(self) -> News:
        news = super().next()
        for host, count in self.leaves.items():
            if sum(name == host for name, _ in self.jobs) >= count and host not in self.open:
                self.gone.add(host)
        self._return()
        return news

    def wait(self, within_s: float | None) -> bool:
        if self.open:
            return True
        self.returns = dict.fromkeys(self.returns, 0)  # nobody has anything to do until they are back
        self._return()
        return False

    def _return(self) -> None:
        for host in [one for one in self.returns if one in self.gone]:
            self.returns[host] -= 1
            if self.returns[host] < 0:
                del self.returns[host]
                self.leaves.pop(host, None)
                self.gone.remove(host)

    def of(self, host: str, kind: type) -> list[Job]:
        return [job for name, job in self.jobs if name == host and isinstance(job.request, kind)]


@dataclass
class Room:
    """A desk whose comparison is measured by hosts."""

    desk: Desk
    builders: frozenset[str] = frozenset()

    def go_on(self, fleet: Fleet) -> Done:
        equip = fakes.equipped(fleet, Crew(len(fleet.benches) - len(self.builders), self.builders))
        run = RunDirectory.open(self.desk.place / "run")
        with run.lock(), Store.open(run.database) as store:
            return session.go_on(run, store, self.desk.told.append, equip)

    def compare(self, fleet: Fleet, **how: object) -> Done:
        self.desk.begin("c0", "c3", **{"stacks": ("lvmcache", "hdd"), "runs": RUNS, **how})
        return self.go_on(fleet)

    def hosts(self) -> dict[int, set[str]]:
        """Which hosts have measured anything of each block."""
        blocks = self.desk.blocks()
        return {one.n: {trial.host for _, trial in blocks.trials(one).values()} for one in blocks.blocks}

    def notes(self) -> list[str]:
        events = (one.event if isinstance(one, OnHost) else one for one in self.desk.told)
        return [one.text for one in events if isinstance(one, Note)]

    def check(self, runs: int = RUNS) -> None:
        """Each setup has its blocks, each of them one host's, and no two are one round of a setup."""
        blocks = self.desk.blocks()
        for setup in range(len(blocks.plan.setups)):
            counted = blocks.counted(setup)
            assert len(counted) == runs
            assert len({one.round for one in counted}) == runs
        assert all(len(hosts) <= 1 for hosts in self.hosts().values())
        for row in result_of(blocks).rows:
            effect = row.changes[0].effect
            assert effect is not None
            assert effect.estimate == pytest.approx(1.3, rel=1e-3)
        with Store.open(self.desk.place / "run" / "record.sqlite", readonly=True) as store:
            assert not store.in_flight()


@pytest.fixture
def room(desk: Desk) -> Room:
    return Room(desk)


def three(room: Room) -> dict[str, planted.Bench]:
    return {"one": bench(room.desk), "two": bench(room.desk, 4.0), "three": bench(room.desk, 0.5)}


def test_blocks_go_on_at_the_same_time_each_on_a_host_whatever_ends_first(room: Room) -> None:
    fleet = Hosts(three(room), random.Random(1))
    assert room.compare(fleet) == Done(State.MEASURED, f"{RUNS} blocks on each setup")
    room.check()
    assert fleet.most == 3
    assert len(room.desk.blocks().blocks) == 2 * RUNS  # none was begun that was not needed
    assert set.union(*room.hosts().values()) == {"one", "two", "three"}
    planned = {one.host for one in room.desk.told if isinstance(one, OnHost) and isinstance(one.event, Planned)}
    assert planned == {"one", "two", "three"}


def test_figures_that_are_shown_are_those_of_one_host(room: Room) -> None:
    room.compare(Hosts(three(room)))
    result = result_of(room.desk.blocks())
    assert sum(result.hosts.values()) == 2 * RUNS
    for row in result.rows:
        main = row.sides[0].main_host
        times = {"one": 1.0, "two": 4.0, "three": 0.5}[main]
        assert [side.mean for side in row.sides] == pytest.approx([1_000.0 * times, 1_300.0 * times], rel=1e-3)


def test_each_kernel_is_built_once_and_they_are_built_at_the_same_time(room: Room) -> None:
    fleet = Hosts(three(room))
    room.desk.begin("c0", "c1", "c2", "c3", runs=1, placebo=True)
    for one in fleet.benches.values():
        one.value = planted.by_name(room.desk.shas, {f"c{n}": 1_000.0 for n in range(4)})
    room.go_on(fleet)
    builds = [(host, job.request.commit.sha) for host, job in fleet.jobs if isinstance(job.request, BuildRequest)]
    assert Counter(sha for _, sha in builds) == Counter(room.desk.shas[f"c{n}"] for n in range(4))
    assert len({host for host, _ in builds}) == 3


def test_a_host_that_only_builds_measures_nothing(room: Room) -> None:
    fleet, builders = Hosts(three(room)), frozenset({"three"})
    Room(room.desk, builders).compare(fleet)
    room.check()
    assert fleet.of("three", BuildRequest)
    assert not fleet.of("three", TrialRequest)


@pytest.mark.parametrize("seed", [0, 1])
def test_of_a_block_whose_host_is_gone_another_one_takes_the_place(room: Room, seed: int) -> None:
    """The host leaves in the middle of a block, and comes back, or does not, at any time."""
    draw = random.Random(seed)
    fleet = Hosts(three(room), draw, leaves={"two": draw.randint(2, 7), "three": draw.randint(2, 7)})
    fleet.returns = {"two": draw.randint(0, 30)} if seed % 2 else {}
    room.compare(fleet)
    room.check()


def test_a_block_that_was_replaced_is_not_gone_on_with(room: Room) -> None:
    """It has one trial; the host is back when all is measured."""
    fleet = Hosts({"one": bench(room.desk), "two": bench(room.desk)}, leaves={"two": 2}, returns={"two": 1_000})
    room.compare(fleet, stacks=("hdd",))
    room.check()
    blocks = room.desk.blocks()
    assert blocks.count(BlockState.OPEN) == 1
    (left,) = (one for one in blocks.blocks if blocks.state(one) is BlockState.OPEN)
    assert blocks.host(left) == "two"
    assert room.go_on(Hosts({"two": bench(room.desk)})) == Done(State.MEASURED, f"{RUNS} blocks on each setup")


def test_a_host_on_which_everything_fails_is_excluded(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "retries", RetryPolicy(waits_s=(0.0, 0.0, 0.0)))
    fleet = Hosts({"good": bench(room.desk), "broken": bench(room.desk)})

    def fails(request: TrialRequest) -> None:
        raise AttemptFailed("no space left on the device", "df", Stage.CHECKOUT, "broken")

    fleet.benches["broken"].before = fails
    room.compare(fleet)
    room.check()
    (said,) = (text for text in room.notes() if text.startswith("broken is excluded from this run: "))
    assert "block 2, stage checkout: no space left on the device" in said
    assert len(fleet.of("broken", TrialRequest)) == 4
    assert len(room.desk.facts(InfraFault)) == 4


def test_failures_between_which_it_works_do_not_set_a_host_aside(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "retries", RetryPolicy(waits_s=(0.0, 0.0, 0.0)))
    fleet = Hosts({name: bench(room.desk) for name in ("one", "two")})
    for one in fleet.benches.values():
        one.infra_n = dict.fromkeys(range(1, 99, 3), 1)
    room.compare(fleet)
    room.check()
    assert not any("is excluded" in text for text in room.notes())
    assert sum(text.startswith("not the kernel's fault") for text in room.notes()) > 4


def test_the_last_host_is_not_excluded(room: Room) -> None:
    fleet = Hosts({name: bench(room.desk) for name in ("one", "two")})
    for one in fleet.benches.values():
        one.infra_n = dict.fromkeys(range(1, 99), 99)
    with pytest.raises(InfraError, match="the network went away"):
        room.compare(fleet)


def test_a_host_that_lacks_something_is_excluded_and_input_that_is_refused_ends_it(room: Room) -> None:
    fleet = Hosts({"good": bench(room.desk), "bare": bench(room.desk)})

    def lacks(request: TrialRequest) -> None:
        raise UserError("there is no disk /dev/nvme1n1", "lsblk")

    fleet.benches["bare"].before = lacks
    room.compare(fleet)
    room.check()
    assert "bare is excluded from this run: there is no disk /dev/nvme1n1" in room.notes()


def test_a_kernel_that_panics_on_one_host_alone_is_measured_on_the_others(room: Room) -> None:
    """The host is used no more for that stack; the kernel is not absent."""
    fleet = Hosts({name: bench(room.desk) for name in ("one", "two", "odd")})
    stack = room.desk.plan("c0", "c3").setups[0].setup.stack

    def panics(request: TrialRequest, made: Trial) -> Trial:
        is_it = request.commit.sha == room.desk.shas["c3"] and request.cell.setup.stack == stack
        return replace(made, fault=replace(fakes.PANIC, stage=Stage.STORAGE), runs=()) if is_it else made

    fleet.benches["odd"].also = panics
    room.compare(fleet)
    room.check()
    blocks = room.desk.blocks()
    assert not blocks.absent(0, 1)
    assert [one.startswith("odd is excluded for ") and one.endswith("which works on other hosts")
            for one in room.notes() if "is excluded" in one] == [True]  # fmt: skip
    assert {blocks.host(one) for one in blocks.counted(1)} >= {"odd"}
    assert blocks.count(BlockState.FAILED) == 2


class Early(Hosts):
    """A host has nothing to do as soon as it has measured, though nobody has heard of that yet."""

    @property
    def idle(self) -> tuple[str, ...]:
        return tuple(self.benches)

    def submit(self, job: Job, host: str = "") -> None:
        assert host not in self.open
        self.open[host] = job
        self.jobs.append((host, job))


def test_nothing_is_measured_twice_where_a_host_is_idle_before_its_trial_is_heard(room: Room) -> None:
    fleet = Early(three(room))
    room.compare(fleet)
    room.check()
    assert sum(isinstance(job.request, TrialRequest) for _, job in fleet.jobs) == 2 * 2 * RUNS


@dataclass
class Killed(Hosts):
    """After so many news the coordinator dies."""

    dies_after: int = 0

    def next(self) -> News:
        if not self.dies_after:
            raise fakes.Killed
        self.dies_after -= 1
        return super().next()


@pytest.mark.parametrize("after", [2, 9])
def test_what_a_killed_coordinator_had_under_way_is_measured_again(room: Room, after: int) -> None:
    first = Killed({name: bench(room.desk) for name in ("one", "two")}, dies_after=after)
    with pytest.raises(fakes.Killed):
        room.compare(first, runs=2)
    assert first.open
    room.go_on(Hosts(first.benches))
    room.check(2)


def test_the_width_of_intervals_is_looked_at_after_whole_rounds(room: Room) -> None:
    """However many hosts there are: a look after some other number of blocks would be one look more."""
    looked = set[int]()
    values = planted.by_name(room.desk.shas, {"c0": 1_000.0, "c3": 1_000.0})
    fleet = Hosts({name: planted.Bench(value=values) for name in ("one", "two", "three", "four")}, random.Random(1))
    asked = room.desk.asked("c0", "c3", stacks=("hdd",))
    asked = replace(asked, extent=Extent(7, RUNS, until=0.05))
    with session.begun(asked, room.desk.place / "run", lambda _: None):
        pass
    submit = fleet.submit

    def watched(job: Job, host: str = "") -> None:
        blocks = room.desk.blocks()
        looked.add(len(blocks.counted(0)) + blocks.count(BlockState.OPEN))
        submit(job, host)

    fleet.submit = watched  # type: ignore[method-assign] # watched
    room.go_on(fleet)
    assert len(room.desk.blocks().counted(0)) == LOOKS[0]
    assert max(looked) == LOOKS[0]


def test_an_image_that_no_other_host_has_is_refused_before_anything_is_made(room: Room) -> None:
    image = bzimage(room.desk.place / "bzImage")
    asked = room.desk.asked("c0", f"image:{image}")
    begun = session.begun(asked, room.desk.place / "run", lambda _: None, measures_here=False)
    with pytest.raises(UserError, match="which no other host has"), begun:
        pass
    assert not (room.desk.place / "run").exists()


COUNTED_RUNS = 3


def test_each_trial_is_measured_once_whatever_ends_first(desk: Desk) -> None:
    desk.begin("c0", "c3", stacks=("lvmcache", "hdd"), runs=COUNTED_RUNS)
    values = planted.by_name(desk.shas, {"c0": 1_000.0, "c3": 1_300.0})
    guests = Guests(planted.Bench(value=values), 2, random.Random(1))
    equip = fakes.equipped(guests, Crew(guests=2))
    run = RunDirectory.open(desk.place / "run")
    with run.lock(), Store.open(run.database) as store:
        assert session.go_on(run, store, desk.told.append, equip) == Done(
            State.MEASURED, f"{COUNTED_RUNS} blocks on each setup"
        )
    blocks = desk.blocks()
    assert [len(blocks.counted(setup)) for setup in (0, 1)] == [COUNTED_RUNS, COUNTED_RUNS]
    assert len(blocks.blocks) == 2 * COUNTED_RUNS
    assert guests.most == 2
    places = {event.host for event in desk.told if isinstance(event, OnHost) and isinstance(event.event, Planned)}
    assert places == {"guest 1", "guest 2"}
