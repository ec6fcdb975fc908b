"""Ten histories from a seed: what is planted in each, where it stands, and what stands around it; pure.

Each has two ends with some twenty to thirty commits between them, on a main line and topic branches that are merged.
Most of the commits change no figure, and many no kernel; some do not build or boot until they are taken back. One
history has no change between its ends, one has two, and three have one of 10 to 30 %.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from random import Random

from scenarios.demo.commits import Entry
from scenarios.histories.pool import CODE, MERGE, NO_BUILD, PANIC, Pool
from scenarios.histories.setups import DRIFTING, SETUPS, SMALL, Family, Setup

HISTORIES = 10
_FEWEST, _MOST = 16, 30  # commits between the ends, merges not counted
_BUILT = (6, 10)  # of the harmless ones, how many change the kernel
_TOPIC = (2, 5)  # commits of a topic branch
_BROKEN_SHARE = {NO_BUILD: 0.6, PANIC: 0.4}  # of the histories that have a commit that does not build, or boot
_BETWEEN_SHARE = 0.5  # of those, how many have a harmless commit before they are taken back
_PLANTED = "planted-"


class Direction(StrEnum):
    """What a planted change does to the figure."""

    REGRESSION = "regression"
    FIX = "fix"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A history: the keys of what is planted, in its order, and the commits with their lines and keys."""

    name: str
    setup: Setup
    direction: Direction
    changes: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def old_tag(self) -> str:
        """The tag of the old end."""
        return f"{self.name}-old"

    @property
    def new_tag(self) -> str:
        """The tag of the new end."""
        return f"{self.name}-new"

    @property
    def in_range(self) -> tuple[Entry, ...]:
        """The commits between the ends, the new one among them: a topic branch is made after the old end."""
        tags = [entry.tag for entry in self.entries]
        return self.entries[tags.index(self.old_tag) + 1 :]

    @property
    def planted(self) -> tuple[Entry, ...]:
        """Those between the ends that make the changes, in the order of ``changes``."""
        return tuple(entry for entry in self.entries if entry.key.startswith(_PLANTED))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is planted in a history, and where it shows."""

    setup: Setup
    direction: Direction
    changes: tuple[str, ...] = ()


def draw(seed: int, pool: Pool) -> tuple[Drawn, ...]:
    """The histories of a seed."""
    rng = Random(seed)
    return tuple(_history(rng, f"h{number:02d}", plan, pool) for number, plan in enumerate(_plans(rng), start=1))


def _plans(rng: Random) -> list[_Plan]:
    """Single changes: large ones, on a stack of every family, and all small ones; two on one stack; and nothing."""
    of = {family: [setup for setup in SETUPS if setup.family is family] for family in Family}
    first = [found.pop(rng.randrange(len(found))) for found in of.values()]
    rest = [setup for found in of.values() for setup in found]
    rng.shuffle(rest)
    single = [*first, *rest[: HISTORIES - 2 - len(first) - len(SMALL)], *SMALL]
    sides = [side for side in Direction for _ in range(len(single) // 2)]
    rng.shuffle(sides)
    plans = [_Plan(setup, side, (rng.choice(setup.changes),)) for setup, side in zip(single, sides, strict=True)]
    paired = rng.choice([setup for setup in SETUPS if setup.pair])
    plans.append(_Plan(paired, rng.choice(list(Direction)), paired.pair or ()))
    plans.append(_Plan(DRIFTING, Direction.REGRESSION))
    rng.shuffle(plans)
    return plans


def _history(rng: Random, name: str, plan: _Plan, pool: Pool) -> Drawn:
    """One history; a fix takes back what was planted before its old end, the last first."""
    changes, before = plan.changes, [replace(pool.changes[key], key="") for key in plan.changes]
    plants = before
    if plan.direction is Direction.FIX:
        changes, plants = changes[::-1], [_taken_back(entry) for entry in reversed(before)]
    else:
        before = []
    plants = [replace(entry, key=f"{_PLANTED}{place}") for place, entry in enumerate(plants)]
    none = rng.sample(pool.none, len(pool.none))
    started = [*before, *(none.pop() for _ in range(rng.randint(2, 3)))]
    items = _items(rng, pool, none, plants)
    entries = tuple(_placed(rng, name, len(before), started, items))
    return Drawn(name, plan.setup, plan.direction, changes, entries)


def _taken_back(entry: Entry) -> Entry:
    return replace(entry, subject=f'Revert "{entry.subject}"', body="", edits=entry.taken_back, key="")


@dataclass(frozen=True, slots=True)
class _Item:
    """Commits that stay together, in their order; as a topic branch, which is merged, or on the main line."""

    commits: tuple[Entry, ...]
    topic: bool = False


def _items(rng: Random, pool: Pool, none: Sequence[Entry], plants: Sequence[Entry]) -> list[_Item]:
    """What is between the ends, in the order of the main line: what is planted stands on it if it is two changes."""
    code = rng.sample(pool.code, len(pool.code))
    blocks = [_stretch(rng, pool, effect, code) for effect, share in _BROKEN_SHARE.items() if rng.random() < share]
    built = [code.pop() for _ in range(rng.randint(*_BUILT))]
    fewest = len(built) + sum(map(len, blocks)) + len(plants)
    more = rng.randint(_FEWEST, _MOST) - fewest
    blocks += [(entry,) for entry in (*built, *none[: max(0, more)])]
    rng.shuffle(blocks)
    for place, plant in zip(sorted(rng.sample(range(1, len(blocks)), len(plants))), plants, strict=True):
        blocks.insert(place + plants.index(plant), (plant,))
    return _branched(rng, blocks, plants if len(plants) > 1 else ())


def _stretch(rng: Random, pool: Pool, effect: str, code: list[Entry]) -> tuple[Entry, ...]:
    """A commit that breaks the kernel, perhaps another one, and what takes the first back."""
    broken = rng.choice(pool.broken[effect])
    between = [replace(code.pop(), effect=effect)] if rng.random() < _BETWEEN_SHARE else []
    return (broken, *between, replace(_taken_back(broken), effect=CODE))


def _branched(rng: Random, blocks: Sequence[tuple[Entry, ...]], kept: Sequence[Entry]) -> list[_Item]:
    """One or two runs of the blocks as topic branches; ``kept`` stay on the main line."""
    items = [_Item(block) for block in blocks]
    for _ in range(rng.randint(1, 2)):
        length = rng.randint(*_TOPIC)
        starts = [
            start
            for start in range(len(items) - length)
            if not any(item.topic or set(item.commits) & set(kept) for item in items[start : start + length])
        ]
        if starts:
            start = rng.choice(starts)
            run = items[start : start + length]
            items[start : start + length] = [_Item(tuple(one for item in run for one in item.commits), topic=True)]
    return items


def _placed(rng: Random, name: str, spoils: int, started: Sequence[Entry], items: Sequence[_Item]) -> Iterator[Entry]:
    """All commits with lines, keys and tags; a topic branch begins anywhere before, but where the kernel is broken."""
    number = count(1)

    def keyed(entry: Entry) -> Entry:
        return entry if entry.key.startswith(_PLANTED) else replace(entry, key=f"c{next(number)}")

    begin = [keyed(entry) for entry in started]
    yield from (*begin[:-1], replace(begin[-1], tag=f"{name}-old"))
    forks = [entry.key for entry in begin[max(0, spoils - 1) :]]
    for place, item in enumerate(items):
        commits = [keyed(entry) for entry in item.commits]
        if item.topic:
            line = f"topic-{place}"
            commits = [replace(entry, line=line) for entry in commits]
            commits[0] = replace(commits[0], base=rng.choice(forks))
            merge = Entry(f"Merge branch '{name}-{line}'", MERGE, merge=line)
            commits.append(keyed(merge))
        if place == len(items) - 1:
            commits[-1] = replace(commits[-1], tag=f"{name}-new")
        yield from commits
        forks.append(commits[-1].key)
