"""Find where a series of figures changed its level, by a test with a stated rate of false alarms (docs/nightly.md).

Circular binary segmentation (Olshen and others, Biostatistics 2004, 5:557) on ranks, against random orders of the same
series: exact for any distribution of the noise, ties and outliers included. Each change is tested again between its own
neighbours, and the parts are searched in turn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
import numpy.typing as npt

from bisector.core.json_keys import Key

Floats = npt.NDArray[np.float64]

ALPHA = 0.01
LEAST = 3  # the fewest figures that make a level; two in a row are not rare among many
_ORDERS = 999
_SEED = 20170727  # fixed, so that the same history always shows the same changes


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level; ``at`` is the place of the new level's first figure, from 0."""

    at: int
    before: Annotated[float, Key("from"), "median of the values before it"]
    after: Annotated[float, Key("to"), "median of the values from it on"]
    p: Annotated[float, "probability of so clear a change in nights without one"]


def changes(figures: Floats) -> tuple[LevelChange, ...]:
    """Return every change of level in a series, oldest first; figures are positive."""
    series = np.asarray(figures, dtype=np.float64)
    found = _search(series, 0, np.random.default_rng(_SEED))
    places = sorted(found)
    while places:
        pairs = _neighbours(series, places)
        p, worst = max((_two_sample_p(*pair), place) for place, pair in zip(places, pairs, strict=True))
        if p <= ALPHA:
            break
        places.remove(worst)
    placed = {}
    for place, start, end in _windows(series, places):
        # The place at which a single change divides the stretch best: the search looked for both ends of a level at
        # once
        ranks = _ranks(series[start:end])
        lengths = np.arange(LEAST, len(ranks) - LEAST + 1)
        sums = np.cumsum(ranks - ranks.mean())[lengths - 1]
        best = lengths[np.argmax(np.abs(sums) / np.sqrt(lengths * (len(ranks) - lengths)))]
        placed[start + int(best)] = found[place]
    pairs = _neighbours(series, list(placed))
    return tuple(
        LevelChange(place, float(np.median(before)), float(np.median(after)), p)
        for (place, p), (before, after) in zip(placed.items(), pairs, strict=True)
    )


def _windows(series: Floats, places: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each place with its neighbouring places, or the ends of the series."""
    edges = [0, *places, len(series)]
    yield from zip(places, edges, edges[2:], strict=False)


def _neighbours(series: Floats, places: list[int]) -> list[tuple[Floats, Floats]]:
    return [(series[start:place], series[place:end]) for place, start, end in _windows(series, places)]


def _search(series: Floats, offset: int, random: np.random.Generator) -> dict[int, float]:
    """Return the places where levels begin, with their p-values, in a series and in its parts."""
    if len(series) < 2 * LEAST:
        return {}
    ranks = _ranks(series)
    statistic, start, end = _largest(ranks)
    reached = 1  # p is the share of orders that reach it, the given order included
    for _ in range(_ORDERS):
        reached += _largest(random.permutation(ranks))[0] >= statistic
        if reached > ALPHA * (_ORDERS + 1):
            return {}
    p = reached / (_ORDERS + 1)
    places = [place for place in (start, end) if 0 < place < len(series)]
    edges = [0, *places, len(series)]
    parts = [_search(series[a:b], offset + a, random) for a, b in pairwise(edges)]
    return {offset + place: p for place in places} | {place: one for part in parts for place, one in part.items()}


def _largest(ranks: Floats) -> tuple[float, int, int]:
    """Return the stretch [start, end) whose ranks deviate most from the rest's, after its standardised deviation."""
    count = len(ranks)
    sums = np.concatenate(([0.0], np.cumsum(ranks - ranks.mean())))
    deviation = np.abs(sums[None, :] - sums[:, None])
    place = np.arange(count + 1)
    length = place[None, :] - place[:, None]
    allowed = (length >= LEAST) & (length <= count - LEAST)
    # The levels on both sides of the stretch, if any, have to be long enough, too.
    allowed &= ((place == 0) | (place >= LEAST))[:, None] & ((place == count) | (place <= count - LEAST))[None, :]
    variance = np.where(allowed, length * (count - length), 1) / count * ranks.var(ddof=1)
    standardised = np.where(allowed, deviation / np.sqrt(np.maximum(variance, 1e-12)), 0.0)
    best = int(standardised.argmax())
    start, end = divmod(best, count + 1)
    return float(standardised.flat[best]), start, end


def _two_sample_p(one: Floats, other: Floats) -> float:
    """The two-sided p-value of the Mann-Whitney test of two neighbours, by random orders."""
    ranks = _ranks(np.concatenate((one, other)))
    centred = ranks - ranks.mean()
    seen = abs(centred[: len(one)].sum())
    random = np.random.default_rng(_SEED)
    orders = random.permuted(np.tile(centred, (_ORDERS, 1)), axis=1)[:, : len(one)]
    return float((1 + np.count_nonzero(np.abs(orders.sum(axis=1)) >= seen - 1e-9)) / (_ORDERS + 1))


def _ranks(series: Floats) -> Floats:
    """The ranks of a series, from 1; equal figures share their mean rank."""
    _, inverse, counts = np.unique(series, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2.0)[inverse]
    return ranks
