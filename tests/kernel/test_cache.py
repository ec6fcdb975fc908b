import hashlib
import io
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.core.subject import Kernel
from bisector.core.trial import Fault, FaultKind, Stage
from bisector.kernel.cache import BuildFailure, KernelCache
from bisector.kernel.sources import Sources
from tests import examples

LONG_AGO_S = 3 * 24 * 3600


def kernel(tmp_path: Path, key: str, size: int = 1000) -> Kernel:
    built = tmp_path / "built"
    built.mkdir(exist_ok=True)
    (built / "bzImage").write_bytes(key.encode() * (size // len(key)))
    (built / ".config").write_text("CONFIG_A=y\n")
    made = examples.kernel(("CONFIG_B=y",), ("max-page-size",), content="cd34")
    return replace(made, image=built / "bzImage", config=built / ".config", key=key)


def with_modules(tmp_path: Path, key: str) -> Kernel:
    plain = kernel(tmp_path, key)
    modules = plain.image.with_name("modules.ext4")
    modules.write_bytes(b"of " + key.encode())
    return replace(plain, modules=modules)


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "cache", limit_bytes=1_000_000)


def test_a_stored_kernel_is_found_whole(cache: KernelCache, tmp_path: Path) -> None:
    built = kernel(tmp_path, "k1")
    stored = cache.store(built)
    built.image.write_bytes(b"the next commit's")
    found = cache.find("k1")
    assert found == replace(stored, cached=True, build_s=0.0)
    assert found is not None
    assert found.image.read_bytes() == b"k1" * 500
    assert found.config.read_text() == "CONFIG_A=y\n"
    assert not stored.cached


def test_the_newest_image_is_that_of_the_kernel_used_last(cache: KernelCache, tmp_path: Path) -> None:
    assert cache.newest_image() is None
    images = [cache.store(kernel(tmp_path, key)).image for key in ("k1", "k2")]
    (cache.root / ".tmp-x").mkdir()
    (cache.root / ".tmp-x" / "bzImage").write_text("half of one")
    for image, seconds in zip(images, (10, 20), strict=True):
        age(image.parent, seconds)
    assert cache.newest_image() == images[0]


def flipped(text: str = "") -> Callable[[Path], object]:
    """One bit of a file is another one: in the text, or in the middle."""

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[content.rindex(text.encode()) + 2 if text else len(content) // 2] ^= 1
        path.write_bytes(content)

    return flip


def written(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


FILES = ("bzImage", "modules.ext4", "kernel.config", "entry.json")
FACTS = ('"cd34"', '"0f0f', '"5.0.0-test"', '"gcc 12', '"max-page-size"', '"CONFIG_B=y"')
DAMAGES: list[tuple[str, Callable[[Path], object]]] = [
    *((name, Path.unlink) for name in FILES),
    *((name, flipped()) for name in FILES[:3]),
    *(("entry.json", flipped(text)) for text in FACTS),
    *(("entry.json", written(text)) for text in (b"{", b"[]", b'"k1"', b'{"key": "k1", "kernel": 7}')),
    ("bzImage", written(b"k1k1")),
    ("", lambda path: path.rename(path.with_name("k2"))),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_damaged_entry_is_dropped(
    cache: KernelCache, tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    damage(cache.store(with_modules(tmp_path, "k1")).image.parent / name)
    assert (cache.find("k1"), cache.find("k2")) == (None, None)
    assert list(cache.root.iterdir()) == []


def test_the_second_to_store_gets_the_first_ones(cache: KernelCache, tmp_path: Path) -> None:
    first = cache.store(kernel(tmp_path, "k1"))
    second = cache.store(replace(kernel(tmp_path, "k1", size=500), content_sha256="ef56", release="6.1.1"))
    assert second == first  # what is on record is what boots
    assert first.image.read_bytes() == b"k1" * 500
    assert [path.name for path in cache.root.iterdir()] == ["k1"]


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    roomy = KernelCache(tmp_path / "cache", limit_bytes=1_000_000)
    for number, key in enumerate(("k1", "k2", "k3")):
        age(roomy.store(kernel(tmp_path, key, size=20_000)).image.parent, LONG_AGO_S + number)
    assert roomy.find("k3") is not None  # the oldest, but used now
    cache = KernelCache(roomy.root, limit_bytes=45_000)
    cache.store(kernel(tmp_path, "k4", size=20_000))
    assert {path.name for path in cache.root.iterdir()} == {"k3", "k4"}


def test_what_may_be_about_to_boot_outlives_the_limit(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "cache", limit_bytes=1)
    cache.store(kernel(tmp_path, "k1"))
    cache.store(kernel(tmp_path, "k2"))
    assert cache.find("k1") is not None
    assert cache.find("k2") is not None


def test_what_another_process_drops_while_it_is_measured_takes_no_room(
    cache: KernelCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = cache.store(kernel(tmp_path, "dropped")).image.parent

    def dropped_before(real: Callable[..., object]) -> Callable[..., object]:
        def read(directory: object) -> object:
            if directory == kept:
                shutil.rmtree(kept, ignore_errors=True)
            return real(directory)

        return read

    monkeypatch.setattr(os, "listdir", dropped_before(os.listdir))
    monkeypatch.setattr(os, "scandir", dropped_before(os.scandir))
    stored = cache.store(kernel(tmp_path, "stored"))
    assert not kept.exists()
    assert stored.image.exists()


def test_what_a_clock_that_was_ahead_has_dated_grows_old_as_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = KernelCache(tmp_path / "cache", limit_bytes=45_000)
    age(cache.store(kernel(tmp_path, "k1", size=20_000)).image.parent, -LONG_AGO_S)
    (cache.root / ".tmp-left").mkdir()
    age(cache.root / ".tmp-left", -LONG_AGO_S)
    cache.store(kernel(tmp_path, "k2", size=20_000))
    assert {path.name for path in cache.root.iterdir()} == {".tmp-left", "k1", "k2"}  # it may be about to boot
    later = time.time() + 2 * 24 * 3600
    monkeypatch.setattr("bisector.kernel.cache.time.time", lambda: later)
    cache.store(kernel(tmp_path, "k3", size=30_000))
    assert not {".tmp-left", "k1"} & {path.name for path in cache.root.iterdir()}


def test_a_cache_that_cannot_be_made_is_the_hosts_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfraError, match=r"kernel cache .*Not a directory"):
        KernelCache(tmp_path / "file" / "cache", 1).store(kernel(tmp_path, "k1"))


FAULT = Fault(Stage.BUILD, FaultKind.BUILD_ERROR, "x.c:1:1: error: no", ("x.c:1:1: error: no", "cc1: all"))


def failure(tmp_path: Path, key: str, log: str = "  CC x.o\nx.c:1:1: error: no\n") -> BuildFailure:
    path = tmp_path / f"{key}.log"
    path.write_text(log)
    return BuildFailure(key, FAULT, path)


def test_a_stored_failure_is_found_whole(cache: KernelCache, tmp_path: Path) -> None:
    stored = failure(tmp_path, "k1")
    cache.store_failure(stored)
    found = cache.find_failure("k1")
    assert found is not None
    assert found.fault == replace(FAULT, cached=True)
    assert found.log.read_text() == stored.log.read_text()
    assert cache.find("k1") is None
    assert cache.find_failure("k1") == found
    assert cache.find_failure("k2") is None


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("build.log", Path.unlink),
        ("build.log", written(b"another")),
        ("entry.json", Path.unlink),
        *(("entry.json", written(text)) for text in (b"{", b"[]", b"7")),
        *(("entry.json", flipped(text)) for text in ("key", '"k1"', "build error", "error: no")),
    ],
)
def test_a_damaged_failure_is_dropped(
    cache: KernelCache, tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    cache.store_failure(failure(tmp_path, "k1"))
    damage(cache.root / "k1" / name)
    assert cache.find_failure("k1") is None
    assert list(cache.root.iterdir()) == []


def test_a_kernel_disproves_a_failure_and_never_the_reverse(cache: KernelCache, tmp_path: Path) -> None:
    cache.store_failure(failure(tmp_path, "k1"))
    cache.store(kernel(tmp_path, "k1"))
    assert cache.find_failure("k1") is None
    assert cache.find("k1") is not None
    cache.store_failure(failure(tmp_path, "k1"))
    assert cache.find_failure("k1") is None
    assert cache.find("k1") is not None


def test_a_log_without_measure_is_kept_from_its_end(
    cache: KernelCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.kernel.cache._LONGEST_LOG_BYTES", 1000)
    cache.store_failure(failure(tmp_path, "k1", "".join(f"line {n}\n" for n in range(1000))))
    found = cache.find_failure("k1")
    assert found is not None
    lines = found.log.read_text().splitlines()
    assert lines[0] == "[the beginning was not kept]"
    assert lines[1].startswith("line ")
    assert lines[-1] == "line 999"
    assert len(found.log.read_bytes()) < 1050


def test_kernels_are_told_from_failures(cache: KernelCache, tmp_path: Path) -> None:
    assert cache.kernels("k") == frozenset()
    for key in ("k1", "k2", "other"):
        cache.store(kernel(tmp_path, key))
    cache.store_failure(failure(tmp_path, "k3"))
    assert set(cache.keys("k")) == {"k1", "k2", "k3"}
    assert cache.kernels("k") == {"k1", "k2"}


KEY = f"{'a' * 32}-{'b' * 40}"
READ = Sources(frozenset({"kernel/fork.c", "init/main.c"}), frozenset({".S"}))
Members = dict[str, bytes]


@pytest.fixture
def here(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "here", 1 << 30)


@pytest.fixture
def there(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "there", 1 << 30)


def content(cache: KernelCache) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (cache.root / KEY).iterdir()}


@pytest.mark.parametrize("make", [kernel, with_modules])
def test_all_that_is_known_of_a_kernel_goes_with_it(
    here: KernelCache, there: KernelCache, tmp_path: Path, make: Callable[[Path, str], Kernel]
) -> None:
    here.store(make(tmp_path, KEY), READ, b"CONFIG_A=y\n")
    there.unpack(KEY, here.pack(KEY))
    found = there.find(KEY)
    assert found is not None
    assert content(there) == content(here)
    assert there.sources(KEY) == READ
    assert found.image == there.root / KEY / "bzImage"
    assert (found.modules is None) == (make is kernel)
    assert there.content(KEY) == here.content(KEY) == found.content_sha256
    assert [path.name for path in there.root.iterdir()] == [KEY]


def test_what_is_not_kept_cannot_travel(here: KernelCache, tmp_path: Path) -> None:
    here.store(kernel(tmp_path, "k1"))
    for key in (KEY, "", "..", "../here", "k1"):
        assert here.content(key) == ""
        with pytest.raises(InfraError, match="no kernel of the key"):
            here.pack(key)
    assert here.keys("") == ("k1",)


def archived(members: Members, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(data), kind, "/etc/passwd"
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


BAD: dict[str, Callable[[Members], bytes]] = {
    "nothing": lambda members: b"",
    "no archive": lambda members: b"x" * 2000,
    "an empty archive": lambda members: archived({}),
    "no image": lambda members: archived({name: members[name] for name in members if name != "bzImage"}),
    "no record": lambda members: archived({name: members[name] for name in members if name != "entry.json"}),
    "a changed image": lambda members: archived({**members, "bzImage": b"x" * 1000}),
    "a changed configuration": lambda members: archived({**members, "kernel.config": b"CONFIG_A=n\n"}),
    "a changed record": lambda members: archived(
        {**members, "entry.json": members["entry.json"].replace(b"5.0.0", b"5.0.1")}
    ),
    "cut off": lambda members: archived(members)[:-12000],
    "another file": lambda members: archived({**members, "x": b"x"}),
    "a file elsewhere": lambda members: archived({**members, "../x": b"x"}),
    "a link": lambda members: archived({"bzImage": b""}, tarfile.SYMTYPE),
    "a failure": lambda members: archived({"entry.json": b"{}"}),
    "too large a list": lambda members: archived({**members, "kernel.defconfig": bytes(17 << 20)}),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_whole_kernel_is_not_kept(here: KernelCache, there: KernelCache, tmp_path: Path, bad: str) -> None:
    here.store(kernel(tmp_path, KEY))
    members = {path.name: path.read_bytes() for path in (here.root / KEY).iterdir()}
    there.unpack(KEY, archived(members))
    before = content(there)
    with pytest.raises(InfraError):
        there.unpack(KEY, BAD[bad](members))
    assert content(there) == before
    assert [path.name for path in there.root.iterdir()] == [KEY]
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (f"{'a' * 32}-{'c' * 40}", "not a whole kernel of the key"),
        ("../there", "is not a key"),
        ("", "is not a key"),
        (KEY.upper(), "is not a key"),
    ],
)
def test_a_kernel_is_not_kept_under_another_key(
    here: KernelCache, there: KernelCache, tmp_path: Path, key: str, why: str
) -> None:
    here.store(kernel(tmp_path, KEY))
    with pytest.raises(InfraError, match=why):
        there.unpack(key, here.pack(KEY))
    assert there.keys("") == ()
