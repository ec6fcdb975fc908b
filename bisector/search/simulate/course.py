"""The course of a search over one made-up host or several: who does what, until when, and what comes of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bisector.core.verdict import Verdict
from bisector.search.building import Builds
from bisector.search.choice import Problem
from bisector.search.decision import Answer, Hold, Search, Try, Undo
from bisector.search.graph import Mask
from bisector.search.likelihood import Key
from bisector.search.posterior import Posterior
from bisector.search.readings import OLD_END, Facts, Reading
from bisector.search.simulate.host import Host
from bisector.search.simulate.world import World
from bisector.search.step import believe, decide_from, pointless


@dataclass(frozen=True, slots=True)
class _Flight:
    """What a host is at, until its clock says that it is done, and the reading that comes of it, if any does.

    ``before`` is what the host had built by then, ``built_min`` when the kernel is built.
    """

    step: Try | Undo
    reading: Reading | None
    before: tuple[Builds, Mask | None]
    built_min: float

    def landed(self, facts: Facts) -> Facts:
        """The facts when it is done."""
        step, reading = self.step, self.reading
        if reading is not None:
            return facts.with_reading(reading)
        return facts.with_failed(*step.of) if isinstance(step, Undo) else facts.with_skip(step.commit)


@dataclass(slots=True, eq=False)
class Course:
    """A search that goes on from ``facts``; each host is given work as soon as it is idle.

    ``steps_ms`` is how long each decision took.
    """

    world: World
    problem: Problem
    search: Search
    facts: Facts
    hosts: Sequence[Host]
    steps_ms: list[float] = field(default_factory=list)
    _flights: dict[int, _Flight] = field(default_factory=dict)

    def run(self) -> Answer:
        """Go on until there is an answer; what is in flight then is broken off."""
        while True:
            number = min(range(len(self.hosts)), key=self._turn)
            self.world.here = host = self.hosts[number]
            landed = self._flights.pop(number, None)
            if landed is not None:
                self.facts = landed.landed(self.facts)
            step = self._decided(told_more=landed is not None)
            if isinstance(step, Answer):
                self._break_off(host.minutes)
                return step
            if isinstance(step, Hold):
                host.wait(min(self.hosts[other].minutes for other in self._flights))
            else:
                before = host.builds, host.tree
                reading = self._measured(step)
                self._flights[number] = _Flight(step, reading, before, host.built_min)

    def _turn(self, number: int) -> tuple[float, bool]:
        """Whose turn it is: the host that is done first, and of several one that has something to tell."""
        return self.hosts[number].minutes, number not in self._flights

    def _decided(self, *, told_more: bool) -> Answer | Hold | Try | Undo:
        """The next step; what became pointless by what was told is cancelled first.

        Only then: what was cancelled may be chosen again, for the time that is expected of it.
        """
        start = time.perf_counter()
        world, search, minutes = self.world, self.search, self.world.minutes
        now = replace(search, costs=world.costs(search.costs), left_min=world.left_min)
        belief = believe(self.problem, self.facts, now)
        while told_more and (key := self._pointless(now, belief, minutes)) is not None:
            number = next(number for number, one in self._flights.items() if one.step.of == key)
            self._cancel(number, minutes)
        step = decide_from(self.problem, self._known, now, belief)
        self.steps_ms.append((time.perf_counter() - start) * 1000)
        return step

    @property
    def _known(self) -> Facts:
        return replace(self.facts, in_flight=tuple(one.step.of for one in self._flights.values()))

    def _pointless(self, now: Search, belief: Posterior, minutes: float) -> Key | None:
        left_min = {one.step.of: self.hosts[number].minutes - minutes for number, one in self._flights.items()}
        return pointless(self.problem, self._known, now, belief, left_min) if left_min else None

    def _cancel(self, number: int, minutes: float) -> None:
        """The host is idle at once; a kernel that is not built yet is none."""
        host, flight = self.hosts[number], self._flights.pop(number)
        if minutes < flight.built_min:
            host.builds, host.tree = flight.before
            self.world.forget(*flight.step.of)
        host.minutes = minutes

    def _measured(self, step: Try | Undo) -> Reading | None:
        if isinstance(step, Undo):
            return self.world.measure_undone(step.commit, step.kernel, whole=step.whole, beside_end=step.beside_end)
        if step.commit in (OLD_END, self.problem.graph.tip):
            return self.world.measure_end(Verdict.OLD if step.commit == OLD_END else Verdict.NEW)
        return self.world.measure(step.commit, whole=step.whole, beside=step.beside)

    def _break_off(self, minutes: float) -> None:
        """Nobody works or waits any longer than until then."""
        for number, host in enumerate(self.hosts):
            over_min = max(0.0, host.minutes - minutes)
            host.minutes -= over_min
            if number not in self._flights:
                host.waited_min -= over_min
