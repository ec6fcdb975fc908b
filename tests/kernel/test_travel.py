"""A kernel on its way from one cache to another: whole, or not at all."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.core.subject import Kernel
from bisector.kernel.cache import KernelCache, KernelOrigin
from bisector.kernel.sources import Sources
from tests.kernel.test_cache import kernel, with_modules

KEY = f"{'a' * 32}-{'b' * 40}"
READ = Sources(frozenset({"kernel/fork.c", "init/main.c"}), frozenset({".S"}))
Members = dict[str, bytes]


@pytest.fixture
def here(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "here", 1 << 30)


@pytest.fixture
def there(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "there", 1 << 30)


def travelled(here: KernelCache, there: KernelCache, file: Path) -> Kernel:
    here.pack(KEY, file)
    there.unpack(KEY, file)
    found = there.find(KEY)
    assert found is not None
    return found


def content(cache: KernelCache) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (cache.root / KEY).iterdir()}


@pytest.mark.parametrize("make", [kernel, with_modules])
def test_all_that_is_known_of_a_kernel_goes_with_it(
    here: KernelCache, there: KernelCache, tmp_path: Path, make: Callable[[Path, str], Kernel]
) -> None:
    here.store(make(tmp_path, KEY), KernelOrigin(READ, frozenset({"CONFIG_B"}), b"CONFIG_A=y\n"))
    found = travelled(here, there, tmp_path / "file")
    assert content(there) == content(here)
    assert there.sources(KEY) == READ
    assert there.unknown(KEY) == frozenset({"CONFIG_B"})
    assert found.image == there.root / KEY / "bzImage"
    assert (found.modules is None) == (make is kernel)
    assert there.content(KEY) == here.content(KEY) == found.content_sha256
    assert [path.name for path in there.root.iterdir()] == [KEY]


def test_the_same_kernel_is_the_same_file(here: KernelCache, tmp_path: Path) -> None:
    """What has arrived of it is known by its digest."""
    here.store(kernel(tmp_path, KEY))
    for name in ("one", "other"):
        here.find(KEY)
        here.pack(KEY, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_what_is_not_kept_cannot_travel(here: KernelCache, tmp_path: Path) -> None:
    here.store(kernel(tmp_path, "k1"))
    for key in (KEY, "", "..", "../here", "k1"):
        assert here.content(key) == ""
        with pytest.raises(InfraError, match="no kernel of the key"):
            here.pack(key, tmp_path / "file")
    assert here.keys("") == ("k1",)


def archived(members: Members, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(data), kind, "/etc/passwd"
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def without(members: Members, name: str) -> Members:
    return {key: value for key, value in members.items() if key != name}


BAD: dict[str, Callable[[Members], bytes]] = {
    "nothing": lambda members: b"",
    "no archive": lambda members: b"x" * 2000,
    "an empty archive": lambda members: archived({}),
    "no image": lambda members: archived(without(members, "bzImage")),
    "no record": lambda members: archived(without(members, "kernel.json")),
    "a changed image": lambda members: archived({**members, "bzImage": b"x" * 1000}),
    "a changed configuration": lambda members: archived({**members, "kernel.config": b"CONFIG_A=n\n"}),
    "a changed record": lambda members: archived(
        {**members, "kernel.json": members["kernel.json"].replace(b"6.1.0", b"6.1.1")}
    ),
    "cut off": lambda members: archived(members)[:-12000],
    "another file": lambda members: archived({**members, "x": b"x"}),
    "a file elsewhere": lambda members: archived({**members, "../x": b"x"}),
    "a link": lambda members: archived({"bzImage": b""}, tarfile.SYMTYPE),
    "a failure": lambda members: archived({"failure.json": b"{}"}),
    "too large a list": lambda members: archived({**members, "unknown-options.json": bytes(17 << 20)}),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_whole_kernel_is_not_kept(here: KernelCache, there: KernelCache, tmp_path: Path, bad: str) -> None:
    here.store(kernel(tmp_path, KEY))
    members = {path.name: path.read_bytes() for path in (here.root / KEY).iterdir()}
    (tmp_path / "file").write_bytes(archived(members))
    there.unpack(KEY, tmp_path / "file")
    before = content(there)
    (tmp_path / "file").write_bytes(BAD[bad](members))
    with pytest.raises(InfraError):
        there.unpack(KEY, tmp_path / "file")
    assert content(there) == before
    assert [path.name for path in there.root.iterdir()] == [KEY]
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (f"{'a' * 32}-{'c' * 40}", "no whole kernel of the key"),
        ("../there", "is no key"),
        ("", "is no key"),
        (KEY.upper(), "is no key"),
    ],
)
def test_a_kernel_is_not_kept_under_another_key(
    here: KernelCache, there: KernelCache, tmp_path: Path, key: str, why: str
) -> None:
    here.store(kernel(tmp_path, KEY))
    here.pack(KEY, tmp_path / "file")
    with pytest.raises(InfraError, match=why):
        there.unpack(key, tmp_path / "file")
    assert there.keys("") == ()
