"""Student's t distribution with whole degrees of freedom, without SciPy.

For whole degrees of freedom the distribution is a finite sum (Abramowitz and Stegun, Handbook of Mathematical
Functions, 26.7.3 and 26.7.4; the incomplete beta function of half a whole number in another form), so nothing is
approximated but by rounding. Tests hold it to values of R.
"""

import math
from functools import cache

_LEAST_STEP = 1e-14  # of a quantile: what rounding leaves


def within(t: float, freedom: int) -> float:
    """The probability that the distance from 0 is at most ``t``, with ``freedom`` degrees of freedom."""
    if math.isinf(t):
        return 1.0
    angle = math.atan2(abs(t), math.sqrt(freedom))
    odd, square = freedom % 2, math.cos(angle) ** 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= square * (power - 1) / power
        total += term
    total *= math.sin(angle)
    return min(1.0, 2 / math.pi * (angle + total) if odd else total)


def p_value(t: float, freedom: int) -> float:
    """The two-sided p-value; differences below 1e-15 are lost to rounding."""
    return max(0.0, 1.0 - within(t, freedom))


@cache
def quantile(share: float, freedom: int) -> float:
    """The distance from 0 within which that share of the distribution lies: 2.571 for 0.95 and 5."""
    low, high = 0.0, 1.0
    while within(high, freedom) < share:
        low, high = high, 2 * high
    while high - low > _LEAST_STEP * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if within(middle, freedom) < share else (low, middle)
    return (low + high) / 2
