"""What the trials of a made-up world take, in minutes.

The figures without another source are those of a bisect by hand of a dm-cache regression on 2017's kernels: two fio
runs of 15 minutes for each kernel, an incremental build of 2 to 12 minutes.
"""

import math
from dataclasses import dataclass

from bisector.search.choice import pays_both_ways

SETUP_MIN = 3.0  # boot, storage stack, files
RUN_MIN = 15.0
WHOLE_RUN_MIN = 2 * RUN_MIN  # the first fills the cache, the second counts
# When a run of 15 min that fills an lvmcache is expected to end, and how much shorter it is at most: expected_s and
# most_saved_s of FillRule in bisector.analysis.settled.
SHORT_FILL_MIN = 3.0
MOST_SAVED_MIN = 13.0
# The run that counts is stopped as soon as the class is clear: by the rule in use a fixed kernel's after 4.4 to 8.4 min
# and a broken one's after 4.0 to 10.0, by how a fixed one gets up to speed; 6 min on average.
CLEAR_MIN = 6.0
# One that the answer rests on goes on until it is clear of its counterpart's whole run, too: that is at half of the run
# on average where the kernels are twice as fast as each other, or more (tests/analysis/test_paired.py).
APART_MIN = 8.0
APART_FACTOR = 2.0
# An end's after a short fill goes on until it is like that end's whole run, where the ends are 2.5 times apart or more:
# that is at 45 % of the run on average (the same tests).
ALIKE_MIN = 7.0
ALIKE_FACTOR = 2.5
EARLY_NEW_MIN = SHORT_FILL_MIN + CLEAR_MIN
EARLY_OLD_MIN = SHORT_FILL_MIN + CLEAR_MIN
# An incremental build from one tree to another.
BUILD_LEAST_MIN = 2.0
BUILD_MOST_MIN = 12.0
# What it takes to make an object that ccache has, of what it takes to compile it: 17 s for one file of a small kernel,
# 49 s for all files with a full ccache and 236 s with an empty one (docs/kernels.md).
CACHED_SHARE = (49 - 17) / (236 - 17)


@dataclass(frozen=True, slots=True)
class Durations:
    """Minutes of the parts of a trial: a build (the least, the most), what comes before the runs, the runs.

    Of a build ``cached_share`` tells what an object takes that some build has made before, of what it takes to compile
    it; 1 without ccache.

    The runs are whole, stopped early, or those of a trial that the answer rests on, ``apart_min``: a whole fill, and a
    run that is stopped once it is clear of its counterpart's; ``unclear_min`` those of one that may be stopped early
    and is not. ``both_ways_min`` is what it takes to measure both ends with a short fill, too, and ``alike_min`` that
    where their runs end once they are like the whole ones.
    """

    build_least_min: float = BUILD_LEAST_MIN
    build_most_min: float = BUILD_MOST_MIN
    cached_share: float = CACHED_SHARE
    setup_min: float = SETUP_MIN
    whole_run_min: float = WHOLE_RUN_MIN
    early_old_min: float = EARLY_OLD_MIN
    early_new_min: float = EARLY_NEW_MIN
    unclear_min: float = SHORT_FILL_MIN + RUN_MIN
    apart_min: float = RUN_MIN + APART_MIN
    both_ways_min: float = 2 * (SETUP_MIN + SHORT_FILL_MIN + RUN_MIN)
    alike_min: float = 2 * (SETUP_MIN + SHORT_FILL_MIN + ALIKE_MIN)

    @property
    def usual_build_min(self) -> float:
        """What to expect of the next build, before it is known how far away it is."""
        return self.build_least_min + 0.4 * (self.build_most_min - self.build_least_min)

    @property
    def usual_skip_min(self) -> float:
        """What to expect of a commit that turns out to be untestable, at its build or at its boot."""
        return self.usual_build_min + self.setup_min * 2 / 3


_AFTER_A_WHOLE_FILL_MIN = RUN_MIN + CLEAR_MIN
WHOLE_FILLS = Durations(
    early_old_min=_AFTER_A_WHOLE_FILL_MIN,
    early_new_min=_AFTER_A_WHOLE_FILL_MIN,
    unclear_min=WHOLE_RUN_MIN,
    both_ways_min=0.0,
)


def usual_durations(commits: float, left_min: float = math.inf) -> Durations:
    """Those of ``start`` where so many commits can matter, and so much time is left: with short fills, if they pay."""
    pays = pays_both_ways(commits, MOST_SAVED_MIN, SETUP_MIN + WHOLE_RUN_MIN, left_min)
    return Durations() if pays else WHOLE_FILLS
