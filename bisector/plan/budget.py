"""What a search can reach in the hours there are: simulated searches that end with the budget."""

from collections.abc import Iterable
from typing import Annotated

from bisector.core import units
from bisector.core.json_document import Record
from bisector.search.simulate.runs import Result, Summary, simulate_from
from bisector.search.simulate.world import Conditions, Durations
from bisector.search.step import believe
from bisector.status.evidence import Case

_MIN_S = 60.0
_SEARCHES = 30


class Reach(Record, frozen=True, kw_only=True):
    """What the searches of a forecast reach within a budget."""

    budget_s: Annotated[float, "seconds of measuring that there are"]
    searches: Annotated[int, "number of simulated searches"]
    named: Annotated[int, "how many of them name a commit in that time"]
    named_right: Annotated[float, "share of these that name the right one; 0 if there are none"]
    candidates: Annotated[float, "median number of commits that the others are left with; 0 if there are none"]

    @classmethod
    def of(cls, results: Iterable[Result], budget_s: float) -> "Reach":
        """What came of searches that had so much time."""
        found = tuple(results)
        summary = Summary.of(found)
        return cls(
            budget_s=budget_s,
            searches=len(found),
            named=round(summary.named_rate * len(found)),
            named_right=summary.named_right_rate,
            candidates=summary.left_median,
        )

    @property
    def sentence(self) -> str:
        """For a person."""
        budget = units.duration(self.budget_s)
        named = f"{self.named} of {self.searches} simulated searches name a commit in {budget}"
        if self.named == self.searches:
            return named
        which = "the others" if self.named else "they"
        return f"{named}; {which} narrow it down to {units.plural(round(self.candidates), 'commit')} (median)"


def reach_from(case: Case, budget_s: float) -> Reach:
    """What is reached from where a search stands, by what its trials have taken so far."""
    costs, misleads = case.search.costs, believe(case.problem, case.facts, case.search).fresh
    conditions = Conditions(
        old_as_new=misleads.looks_new,
        new_as_old=misleads.looks_old,
        skip=costs.skip_share,
        durations=Durations(
            build_least_min=costs.build_min,
            build_most_min=costs.build_min,
            setup_min=costs.setup_min,
            whole_run_min=costs.whole_run_min,
            early_old_min=costs.old_run_min,
            early_new_min=costs.new_run_min,
            unclear_min=costs.whole_run_min,
            apart_min=costs.whole_run_min,
            both_ways_min=0.0,
        ),
        budget_min=budget_s / _MIN_S,
    )
    results = simulate_from(case.problem, case.facts, conditions, case.search, seed=1, trials=_SEARCHES)
    return Reach.of(results, budget_s)
