"""Which end is read again before the search, and why: until it is known how far the levels are apart.

Where the first figures of both ends lie many usual spreads apart, the search learns the rest by itself. Where they lie
close, or spread, each reading of an end tells of its level for sure, which no reading of a commit does.
"""

from bisector.core.verdict import Verdict
from bisector.search.graph import RangeGraph
from bisector.search.posterior import Posterior
from bisector.search.readings import OLD_END, Facts, Kernel

# An end is read again while more than this share of the figures is expected on the wrong side of the line, and at most
# so often in all: levels that really overlap do not come apart by knowing them.
_OVERLAP = 0.03
_AT_MOST = 4


def end_to_read(graph: RangeGraph, facts: Facts, belief: Posterior) -> Verdict | None:
    """The side whose end is to be read again; None when the search can begin, or has begun."""
    ends = {Verdict.OLD: (OLD_END, Kernel.COMMIT), Verdict.NEW: (graph.tip, Kernel.COMMIT)}
    counts = {side: sum(one.of == end for one in facts.readings) for side, end in ends.items()}
    begun = sum(counts.values()) < len(facts.readings)
    if begun or not belief.levels or belief.overlap <= _OVERLAP:
        return None
    fewest = min(counts, key=counts.__getitem__)
    return fewest if counts[fewest] < _AT_MOST else None
