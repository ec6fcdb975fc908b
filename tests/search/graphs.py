"""Graphs without names: random ones, and the shape of a real kernel-style history."""

import math
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from bisector.core.verdict import Verdict
from bisector.git.ranges import read_graph
from bisector.search.choice import SearchProblem
from bisector.search.graph import Kernel, RangeGraph, Reading, SearchFacts
from bisector.search.likelihood import HostScale, Weighing
from bisector.search.noise import Noise, Rates
from bisector.search.posterior import prior
from bisector.search.step import ChangedEndToRead, CommitToRead, Hold, Rules, Search, SearchAnswer, decide

RECORDED = Path(__file__).parent.parent / "data" / "graphs" / "merge-graph-14565.txt.gz"
QUIET = Search(Weighing(Rates.known(Noise(old_as_new=0.001, new_as_old=0.001, sticky=0.002))))
LINE = RangeGraph.of([(), *((n,) for n in range(199))])


def plain(graph: RangeGraph) -> SearchProblem:
    """Every commit is as likely as another."""
    return SearchProblem(graph, prior(len(graph)))


# A change of a tenth in LINE, read with a little noise by a host on which next to no run misleads
TENTH = math.log(1.1)
NOISE = (0.012, -0.012, 0.008, -0.008, 0.01, -0.01)
TIP = LINE.tip


def read(commit: int, score: float, kernel: Kernel = Kernel.COMMIT, *, hour: float = 0.0, host: str = "") -> Reading:
    """A figure."""
    return Reading(commit, kernel, Verdict.NEW if score > TENTH / 2 else Verdict.OLD, score, hour=hour, host=host)


def of_figures(*hosts: str, apart: float = TENTH, rules: Rules | None = None) -> Search:
    """A search by figures of these hosts, whose ends are so far apart."""
    rates = Rates.known(Noise(old_as_new=0.001, new_as_old=0.001, sticky=0.002))
    scales = {host: HostScale((0.0, apart), apart / 2) for host in hosts or ("",)}
    return Search(Weighing(rates, scales), rules=rules or Rules())


def answer_of(facts: SearchFacts, search: Search, graph: RangeGraph = LINE) -> SearchAnswer:
    """What a search says that is at its end."""
    found = decide(plain(graph), facts, search)
    assert isinstance(found, SearchAnswer)
    return found


def trial_of(facts: SearchFacts, search: Search, graph: RangeGraph = LINE) -> CommitToRead:
    """The trial of a commit that a search makes next."""
    found = decide(plain(graph), facts, search)
    assert isinstance(found, CommitToRead)
    return found


@cache
def recorded() -> RangeGraph:
    """14,565 commits, 933 merges of old branches."""
    return read_graph(RECORDED)


def kernel_like(count: int, seed: int = 0) -> RangeGraph:
    """About ``count`` commits: branches of a few commits off older ones, merged late."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, ...]] = [()]
    main = [0]
    while len(rows) < count:
        base = main[int(rng.integers(max(0, len(main) - 20), len(main)))]
        for parent in (base, *range(len(rows), len(rows) + int(rng.integers(1, 12)))):
            rows.append((parent,))
        branch = len(rows) - 1
        rows.append((main[-1],))
        rows.append((len(rows) - 1, branch))
        main += [len(rows) - 2, len(rows) - 1]
    return RangeGraph.of(rows)


@st.composite
def graphs(draw: st.DrawFn, largest: int = 24) -> RangeGraph:
    """Up to ``largest`` commits; each has up to three parents, near or far, or hangs on the old end."""
    rows: list[tuple[int, ...]] = []
    for number in range(draw(st.integers(1, largest - 1))):
        near = st.integers(max(0, number - 3), number - 1) if number else st.nothing()
        far = st.integers(0, number - 1) if number else st.nothing()
        parents = draw(st.one_of(near.map(lambda one: [one]), st.lists(far, max_size=3, unique=True))) if number else []
        rows.append(tuple(parents))
    inner = {parent for row in rows for parent in row}
    return RangeGraph.of((*rows, tuple(number for number in range(len(rows)) if number not in inner)))


def brute_ancestors(graph: RangeGraph, commit: int) -> frozenset[int]:
    """By walking."""
    seen, todo = set(), [commit]
    while todo:
        if (one := todo.pop()) not in seen:
            seen.add(one)
            todo.extend(graph.parents[one])
    return frozenset(seen)


def truth(graph: RangeGraph, culprit: int, commit: int, kernel: Kernel) -> Verdict:
    """What a kernel is."""
    match kernel:
        case Kernel.COMMIT:
            return Verdict.NEW if culprit in brute_ancestors(graph, commit) else Verdict.OLD
        case Kernel.REVERTED:
            return Verdict.OLD if commit == culprit else Verdict.NEW
        case Kernel.PICKED:
            return Verdict.NEW if commit == culprit else Verdict.OLD
        case Kernel.PATCHED | Kernel.IMAGE:
            raise ValueError("no search measures a commit with a patch on top, or an image")


def oracle(
    graph: RangeGraph,
    culprit: int,
    facts: SearchFacts,
    step: CommitToRead | ChangedEndToRead | Hold,
    *,
    untestable: frozenset[int],
    stuck: frozenset[int],
) -> SearchFacts:
    """The facts with a noiseless answer to a step; commits can be untestable, or neither revert nor pick."""
    assert not isinstance(step, Hold)  # with nothing in flight there is nothing to wait for
    if isinstance(step, CommitToRead):
        if step.commit in untestable:
            return facts.with_skip(step.commit)
        verdict = truth(graph, culprit, step.commit, Kernel.COMMIT)
        return facts.with_reading(Reading(step.commit, Kernel.COMMIT, verdict, full=step.whole))
    if step.commit in stuck:
        return facts.with_failed(step.commit, step.kernel)
    verdict = truth(graph, culprit, step.commit, step.kernel)
    return facts.with_reading(Reading(step.commit, step.kernel, verdict, full=step.whole))
