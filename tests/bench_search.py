"""How long a step of the search takes, and the memory it takes; ``make bench`` runs it, pytest does not."""

import resource
import sys
from dataclasses import dataclass
from statistics import fmean

from bisector.core.verdict import Strategy
from bisector.search.noise import Noise
from bisector.search.simulate.runs import search_for, simulate
from bisector.search.simulate.world import Conditions
from tests.search.graphs import kernel_like

GOAL_MB = 300
SEARCHES = 10


@dataclass(frozen=True, slots=True)
class Goal:
    """The most milliseconds of a step among so many commits."""

    commits: int
    step_ms: float


def main() -> None:
    noise = Noise()
    world = Conditions(noise.old_as_new, noise.new_as_old, noise.sticky, skip=0.03)
    for goal in (Goal(15_000, 10), Goal(30_000, 100)):
        graph = kernel_like(goal.commits)
        drawn = simulate(graph, Strategy.BAYES, world, search_for(world), seed=1, trials=SEARCHES)
        steps = [ms for result in drawn for ms in result.steps_ms]
        sys.stdout.write(
            f"{len(graph):,} commits in {graph.reach.count:,} segments: a step {fmean(steps):.1f} ms,"
            f" {max(steps):.1f} ms at most   (goal: {goal.step_ms:g} ms)\n"
        )
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"memory at most {peak_mb:.0f} MB   (goal: {GOAL_MB} MB)\n")


if __name__ == "__main__":
    main()
