"""How far the blocks of a comparison have come, and what is left to measure. Pure, like all that is derived.

A setup has as many blocks as were asked for, or as many as make its intervals narrow, looked at after some numbers of
them. One on which nothing can be compared (any more) is n/a, and has no more.
"""

import math

from bisector.analysis.comparison import LOOKS, Effect, effect
from bisector.status.blocks import Blocks
from bisector.status.durations import block_s

_LEAST_ARMS = 2


def comparable(blocks: Blocks, setup: int) -> bool:
    """Whether there is anything to compare the first arm with on a setup, and the first arm itself."""
    present = blocks.present(setup)
    return 0 in present and len(present) >= _LEAST_ARMS


def blocks_left(blocks: Blocks, setup: int) -> int:
    """How many blocks a setup is still to have; where its intervals say so, how many until they are looked at."""
    if not comparable(blocks, setup):
        return 0
    extent, count = blocks.plan.extent, complete(blocks, setup)
    if extent.until is None:
        return max(extent.runs - count, 0)
    narrow = count in LOOKS and all(one.is_narrow(extent.until) for one in effects(blocks, setup))
    return 0 if narrow else next((look - count for look in LOOKS if look > count), 0)


def complete(blocks: Blocks, setup: int) -> int:
    """How many blocks count of which any arm of a setup can be compared: one that did not build has missed some."""
    others = [arm for arm in blocks.present(setup) if arm != 0]
    return min(sum({0, arm} <= set(block.arms) for block in blocks.counted(setup)) for arm in others)


def effects(blocks: Blocks, setup: int) -> tuple[Effect, ...]:
    """How each arm differs from the first one on a setup, as far as there are blocks with both."""
    pairs = (blocks.pairs(setup, arm) for arm in blocks.present(setup) if arm != 0)
    figures = (zip(*one, strict=True) for one in pairs if one)
    return tuple(effect(first, other, blocks.alpha(setup)) for first, other in figures)


def left_s(blocks: Blocks) -> float:
    """How long the blocks take that all setups are still to have."""
    left = {setup: blocks_left(blocks, setup) for setup in range(len(blocks.plan.setups))}
    return math.fsum(count * block_s(blocks, setup) for setup, count in left.items() if count)
