"""Where a series of figures changed its level, by a test whose rate of false alarms is stated (docs/nightly.md).

Circular binary segmentation (Olshen and others, Biostatistics 2004, 5:557) on ranks, against random orders of the same
series: exact for any distribution of the noise, ties and outliers included. Each change is tested again between its
own neighbours, and the parts are searched in turn.
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
LEAST = 3  # figures that make a level; two in a row are not rare among many
_ORDERS = 999
_SEED = 20170727  # the same history always shows the same changes


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level, which begins with the figure ``at`` this place from 0."""

    at: int
    before: Annotated[float, Key("from"), "median of the values before it"]
    after: Annotated[float, Key("to"), "median of the values from it on"]
    p: Annotated[float, "probability of so clear a change in nights without one"]


def changes(figures: Floats) -> tuple[LevelChange, ...]:
    """Every change of level in a series, oldest first; figures are positive."""
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
        # Where one change divides the stretch best; the search has looked for the two ends of a level at once
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
    """Each place with the places before and after it."""
    edges = [0, *places, len(series)]
    yield from zip(places, edges, edges[2:], strict=False)


def _neighbours(series: Floats, places: list[int]) -> list[tuple[Floats, Floats]]:
    return [(series[start:place], series[place:end]) for place, start, end in _windows(series, places)]


def _search(series: Floats, offset: int, random: np.random.Generator) -> dict[int, float]:
    """The places where levels begin, with their p-values, in a series and in its parts."""
    if len(series) < 2 * LEAST:
        return {}
    ranks = _ranks(series)
    statistic, start, end = _largest(ranks)
    reached = 1  # the share of random orders that reach it, the given one included, is p
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
    """The largest standardised deviation of a stretch's ranks from the rest's, and the stretch [start, end)."""
    count = len(ranks)
    sums = np.concatenate(([0.0], np.cumsum(ranks - ranks.mean())))
    deviation = np.abs(sums[None, :] - sums[:, None])
    place = np.arange(count + 1)
    length = place[None, :] - place[:, None]
    allowed = (length >= LEAST) & (length <= count - LEAST)
    # A level has to be long enough on either side of the stretch, too, unless there is none.
    allowed &= ((place == 0) | (place >= LEAST))[:, None] & ((place == count) | (place <= count - LEAST))[None, :]
    variance = np.where(allowed, length * (count - length), 1) / count * ranks.var(ddof=1)
    standardised = np.where(allowed, deviation / np.sqrt(np.maximum(variance, 1e-12)), 0.0)
    best = int(standardised.argmax())
    start, end = divmod(best, count + 1)
    return float(standardised.flat[best]), start, end


def _two_sample_p(one: Floats, other: Floats) -> float:
    """The Mann-Whitney test of two neighbours, two-sided, by random orders."""
    ranks = _ranks(np.concatenate((one, other)))
    centred = ranks - ranks.mean()
    seen = abs(centred[: len(one)].sum())
    random = np.random.default_rng(_SEED)
    orders = random.permuted(np.tile(centred, (_ORDERS, 1)), axis=1)[:, : len(one)]
    return float((1 + np.count_nonzero(np.abs(orders.sum(axis=1)) >= seen - 1e-9)) / (_ORDERS + 1))


def _ranks(series: Floats) -> Floats:
    """Ranks from 1; equal figures share their mean rank."""
    _, inverse, counts = np.unique(series, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2.0)[inverse]
    return ranks
