"""One cache and several processes: killed at every step of a store, and at work all at once."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from bisector.core.subject import Kernel
from bisector.kernel.cache import KernelCache, read_entry
from bisector.kernel.sources import Sources
from tests.kernel.test_cache import LONG_AGO_S, age, kernel

READ = Sources(frozenset(("init/main.c", "fs/dcache.c")))
LIMIT_BYTES = 100_000
ROOT = Path(__file__).parents[2]

WRITER = """
import os, signal, sys
from pathlib import Path
from tests.kernel import test_cache_shared as shared

work, name, last_step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
steps = 0

def watch(event, arguments):
    # Everything that a store does to files passes here (Python's table of audit events).
    global steps
    watched = ("open", "os.rename", "os.mkdir", "os.chmod", "shutil.copyfile")
    if event in watched and str(work / "cache") in str(arguments):
        steps += 1
        if steps == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

if last_step:
    sys.addaudithook(watch)
    shared.store(work, name, 1)
else:
    shared.be_busy(work, name)
print(steps)
"""


def cache(work: Path) -> KernelCache:
    return KernelCache(work / "cache", LIMIT_BYTES)


def store(work: Path, writer: str, number: int) -> Kernel:
    """Each writer builds in a place of its own, and what it builds depends on the key alone."""
    place = work / writer
    place.mkdir(exist_ok=True)
    return cache(work).store(kernel(place, f"k{number}", 30_000), READ, b"CONFIG_A=y\n")


def be_busy(work: Path, writer: str) -> None:
    """Store, find and damage the same few kernels as others do; what is found has to be whole."""
    for turn in range(40):
        number = turn % 7
        stored = store(work, writer, number)
        found = cache(work).find(stored.key)
        with suppress(FileNotFoundError):  # somebody has met it damaged since, and dropped it
            assert found is None or found.image.read_bytes() == f"k{number}".encode() * 15_000
        if turn % 10 == 3:  # as a disk does
            (stored.image.parent / "entry.json").unlink(missing_ok=True)
        if turn % 10 == 6:  # so that the limit finds what is not in use, unless somebody has dropped it
            with suppress(FileNotFoundError):
                age(stored.image.parent, LONG_AGO_S)


def start(work: Path, writer: str, last_step: int = 0) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", WRITER, str(work), writer, str(last_step)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def broken(work: Path) -> list[str]:
    """The keys whose entries are not whole."""
    kept = [path for path in (work / "cache").glob("*") if not path.name.startswith(".tmp-")]
    return [path.name for path in kept if read_entry(path, path.name) is None]


def leftovers(work: Path) -> list[Path]:
    return list((work / "cache").glob(".tmp-*"))


@pytest.mark.parametrize("last_step", [1, 5, 9])
def test_killed_at_any_step_of_a_store_it_leaves_a_whole_entry_or_none(tmp_path: Path, last_step: int) -> None:
    with start(tmp_path, "killed", last_step) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors
    assert broken(tmp_path) == []
    assert cache(tmp_path).find("k1") is None
    again = store(tmp_path, "again", 1)
    found = cache(tmp_path).find("k1")
    assert found is not None
    assert found.image == again.image
    assert cache(tmp_path).sources("k1") == READ
    for left in leftovers(tmp_path):
        age(left, LONG_AGO_S)
    store(tmp_path, "again", 2)
    assert leftovers(tmp_path) == []


def test_writers_at_once_see_whole_entries_and_leave_nothing(tmp_path: Path) -> None:
    processes = [start(tmp_path, f"w{number}") for number in range(3)]
    results = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 3, [errors for _, errors in results]
    assert leftovers(tmp_path) == []
    for path in (tmp_path / "cache").iterdir():
        assert cache(tmp_path).find(path.name) is not None or not path.exists()


def test_a_clearing_beside_a_run_spares_what_it_may_boot(tmp_path: Path) -> None:
    for number in range(3):
        store(tmp_path, "w", number)
    age(tmp_path / "cache/k1", LONG_AGO_S)
    assert cache(tmp_path).clear(spare_used=True) == 1
    assert [entry.key for entry in cache(tmp_path).contents()].count("k1") == 0
    assert cache(tmp_path).clear(spare_used=False) == 2
    assert cache(tmp_path).contents() == ()
    assert list((tmp_path / "cache").iterdir()) == []


def test_contents_are_told_by_last_use(tmp_path: Path) -> None:
    assert cache(tmp_path).contents() == ()
    for number in range(3):
        age(store(tmp_path, "w", number).image.parent, 100.0 * (number + 1))
    cache(tmp_path).find("k2")
    first, *rest = cache(tmp_path).contents()
    assert [first.key, *(entry.key for entry in rest)] == ["k2", "k0", "k1"]
    assert first.release == "5.0.0-test"
    assert first.size_bytes > 30_000
    assert abs(first.last_used - time.time()) < 60
    assert cache(tmp_path).keys("k") == ("k2", "k0", "k1")
    assert cache(tmp_path).keys("x") == ()


def test_what_a_build_read_is_kept_beside_its_kernel(tmp_path: Path) -> None:
    stored = store(tmp_path, "w", 1)
    assert cache(tmp_path).sources("k1") == READ
    (stored.image.parent / "sources.gz").write_bytes(b"damaged")
    assert cache(tmp_path).sources("k1") is None
    assert cache(tmp_path).sources("k2") is None
    without = cache(tmp_path).store(kernel(tmp_path, "k3"))
    assert cache(tmp_path).sources("k3") is None
    assert without.image.exists()
