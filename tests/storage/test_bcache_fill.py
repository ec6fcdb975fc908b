"""The commands that fill a bcache, run on a directory that stands for sysfs: when they end, and what that tells."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.storage.layer import MountedStack, not_full_before
from tests import examples
from tests.guestshell import FakeShell
from tests.localshell import LocalShell
from tests.storage.guests import BCACHE_V6_12, GUESTS, laid_out

FAILS = "fails"
# What a read of 4 MiB leaves unused, of a cache of 64 MiB in a guest of v6.1 with the replacement fifo, percent.
FIFO = (86, 79, 69, 61, 51, 41, 36, 27, 26, 26, 26, 27)
# Reads the next piece of the device: the first line is what that leaves unused, and the last one is kept.
DD = """#!/bin/sh
read -r unused < {reads}
[ "$unused" != fails ] || exit 1
printf 'Unused:\\t\\t%s%%\\n' "$unused" > {stats}
[ "$(wc -l < {reads})" -eq 1 ] || sed -i 1d {reads}
"""


class Guest:
    """A bcache in a directory; ``reads`` is what each read of the device leaves unused of the cache, percent."""

    def __init__(self, place: Path, replacement: str, reads: Sequence[object]) -> None:
        device = place / "bcache"
        self.sysfs = Path(f"{device}-sysfs")
        self.stats = self.sysfs / "cache/cache0/priority_stats"
        for line in BCACHE_V6_12.replace("[lru]", "lru").replace(replacement, f"[{replacement}]").splitlines():
            name, _, content = line.partition(":")
            (file := self.sysfs / name).parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as shown:
                shown.write(f"{content}\n")
        (self.sysfs / "cache/internal").mkdir()
        self.leaves_unused(97)
        (place / "reads").write_text("".join(f"{one}\n" for one in reads), encoding="utf-8")
        programs = {"dd": DD.format(reads=place / "reads", stats=self.stats), "blockdev": "#!/bin/sh\necho 134217728\n"}
        for name, text in programs.items():
            (place / "bin").mkdir(exist_ok=True)
            (program := place / "bin" / name).write_text(text, encoding="utf-8")
            program.chmod(0o755)
        self.shell = LocalShell({"/dev/bisector-bcache": str(device), "sleep 0.5": "sleep 0"})

    def leaves_unused(self, percent: int) -> None:
        self.stats.write_text(f"Unused:\t\t{percent}%\n", encoding="utf-8")

    def before_a_run(self, stack: MountedStack) -> dict[str, float]:
        now = stack.read(self.shell)
        return dict(stack.counted(now, now))


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MountedStack:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return laid_out("bcache", FakeShell(GUESTS["bcache"]))


def why_weak(counters: dict[str, float]) -> list[str]:
    return list(not_full_before(replace(examples.run("full", 1.0, 1.0), counters=tuple(counters.items()))))


@pytest.mark.parametrize("replacement", ["fifo", "random"])
def test_a_cache_that_always_leaves_buckets_unused_is_full_when_nothing_more_comes_in(
    tmp_path: Path, stack: MountedStack, replacement: str
) -> None:
    guest = Guest(tmp_path, replacement, FIFO)
    stack.fill(guest.shell, 100)
    found = guest.before_a_run(stack)
    assert (found["cache.fills_up_to"], found["cache.filled_before"]) == (73, 100)
    assert why_weak(found) == []
    assert (guest.sysfs / "sequential_cutoff").read_text() == "4194304\n"
    guest.leaves_unused(29)
    assert why_weak(guest.before_a_run(stack)) == []
    guest.leaves_unused(40)  # it is not as full any more
    assert why_weak(guest.before_a_run(stack)) == ["the cache was not full before the full run: 82.2 %"]


@pytest.mark.parametrize(
    ("replacement", "reads", "seconds", "filled"),
    [
        ("lru", FIFO, 100, 73),  # uses what is unused first
        ("fifo", FIFO, 0, 3),
        ("fifo", (*FIFO[:6], FAILS), 100, 59),
        ("fifo", (95, 90, 80), 100, 20),  # a kernel that lets next to nothing in
        ("fifo", (95, 90, 51), 100, 49),
        ("fifo", (60, 30, 2), 100, 98),  # full, whatever its replacement
        ("lru", (60, 30, 2), 100, 98),
    ],
)
def test_how_full_a_cache_is_whose_filling_ended_otherwise(
    tmp_path: Path, stack: MountedStack, *, replacement: str, reads: Sequence[object], seconds: float, filled: int
) -> None:
    guest = Guest(tmp_path, replacement, reads)
    stack.fill(guest.shell, seconds)
    found = guest.before_a_run(stack)
    assert "cache.fills_up_to" not in found
    assert found["cache.filled_before"] == filled
    assert why_weak(found) == ([f"the cache was not full before the full run: {filled:.1f} %"] if filled < 95 else [])


def test_the_deadline_ends_it_although_more_comes_in(tmp_path: Path, stack: MountedStack) -> None:
    """A read that takes as long as there is time."""
    guest = Guest(tmp_path, "fifo", (45, 40, 35, 30, 27))
    program = tmp_path / "bin" / "dd"
    program.write_text(program.read_text() + "sleep 1.1\n")
    stack.fill(guest.shell, 1)
    found = guest.before_a_run(stack)
    assert "cache.fills_up_to" not in found
    assert 50 < found["cache.filled_before"] < 70


def test_a_look_amid_a_collection_of_garbage_is_not_the_end_of_filling(tmp_path: Path, stack: MountedStack) -> None:
    """What it has not come to yet counts as unused; the next look tells."""
    guest = Guest(tmp_path, "fifo", (*FIFO, *(26,) * 29, 64, 64))
    guest.shell.moved["sleep 0.5"] = f"printf 'Unused:\\t\\t27%%\\n' > {guest.stats}"
    stack.fill(guest.shell, 100)
    assert guest.before_a_run(stack)["cache.fills_up_to"] == 73
