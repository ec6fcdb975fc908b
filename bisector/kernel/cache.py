"""Built kernels kept by what they were made from, the least recently used dropped first.

One directory for each key, holding ``bzImage``, ``kernel.config`` and ``kernel.json``. An entry
appears and disappears by one rename, so any number of processes may share a cache without a lock.
"""

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bisector.errors import InfraError
from bisector.model import Kernel

_SCHEMA = 1
_TEMPORARY = ".tmp-"
_ABANDONED_AFTER_S = 24 * 3600.0
# A kernel somebody found or stored this recently may be about to boot: it outlives the limit.
_IN_USE_S = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class KernelCache:
    """The kernels under ``root``, ``limit_bytes`` in all; :class:`InfraError` when it cannot be read or written."""

    root: Path
    limit_bytes: int

    def find(self, key: str) -> Kernel | None:
        """The kernel of this key, its image checked against its digest; a damaged one is dropped."""
        entry = self.root / key
        with self._troubles():
            if not entry.exists():
                return None
            kernel = _read(entry, key)
            if kernel is None:
                self._drop(entry)
                return None
            try:
                os.utime(entry)
            except FileNotFoundError:  # another process dropped it this moment
                return None
            return kernel

    def store(self, kernel: Kernel) -> Kernel:
        """Copy a kernel in and answer the kept one; when another process was first, its own."""
        with self._troubles():
            self.root.mkdir(parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.root))
            try:
                _write(new, kernel)
                kept = self._publish(new, kernel.key)
            finally:
                shutil.rmtree(new, ignore_errors=True)
            self._sweep()
        return replace(kernel, image=kept / "bzImage", config=kept / "kernel.config")

    @contextmanager
    def _troubles(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InfraError(
                f"kernel cache {self.root}: {error.strerror}", "it may be removed whole; kernels are built again"
            ) from error

    def _publish(self, new: Path, key: str) -> Path:
        entry = self.root / key
        while True:
            try:
                return new.rename(entry)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if self.find(key) is not None:
                return entry

    def _sweep(self) -> None:
        """Drop what killed processes left and, above the limit, the least recently used."""
        now = time.time()
        for left in self.root.glob(f"{_TEMPORARY}*"):
            if _age_s(left, now) > _ABANDONED_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)
        by_age = sorted(self._entries(), key=lambda entry: _age_s(entry, now))
        total = 0
        for entry in by_age:
            total += _size_bytes(entry)
            if total > self.limit_bytes and _age_s(entry, now) > _IN_USE_S:
                self._drop(entry)

    def _entries(self) -> Iterator[Path]:
        return (path for path in self.root.iterdir() if path.is_dir() and not path.name.startswith(_TEMPORARY))

    def _drop(self, entry: Path) -> None:
        grave = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.root))
        with suppress(FileNotFoundError):
            entry.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)


def _write(directory: Path, kernel: Kernel) -> None:
    shutil.copyfile(kernel.image, directory / "bzImage")
    shutil.copyfile(kernel.config, directory / "kernel.config")
    facts = {**asdict(kernel), "image": "bzImage", "config": "kernel.config"}
    record = {"schema": _SCHEMA, "image_sha256": _sha256(directory / "bzImage"), "kernel": facts}
    (directory / "kernel.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    for name in ("bzImage", "kernel.config", "kernel.json"):
        _sync(directory / name)  # a rename that outlives its data would be a damaged entry
    directory.chmod(0o755)


def _read(entry: Path, key: str) -> Kernel | None:
    """The entry's kernel, or None for anything that a complete entry of this key is not."""
    try:
        record: dict[str, Any] = json.loads((entry / "kernel.json").read_text(encoding="utf-8"))
        if record["schema"] != _SCHEMA or record["image_sha256"] != _sha256(entry / "bzImage"):
            return None
        facts = record["kernel"]
        places = {"image": entry / "bzImage", "config": entry / "kernel.config"}
        lists = {name: tuple(facts[name]) for name in ("quirks", "unmet")}
        kernel = Kernel(**{**facts, **places, **lists, "cached": True, "build_s": 0.0})
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return kernel if kernel.key == key and kernel.config.is_file() else None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _age_s(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size_bytes(entry: Path) -> int:
    total = 0
    for path in entry.glob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
