"""One directory of the kernel cache: a kernel, or why its source makes none."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bisector.core.subject import Kernel
from bisector.core.trial import Fault, FaultKind, Stage
from bisector.host.files import sha256_of
from bisector.kernel.sources import Sources

_SCHEMA = 1
IMAGE, CONFIG, DEFCONFIG, MODULES = "bzImage", "kernel.config", "kernel.defconfig", "modules.ext4"
_SOURCES, _UNKNOWN, _KERNEL = "sources.gz", "unknown-options.json", "kernel.json"
_CHECKED = "checked.json"  # of this machine alone: a kernel that goes to another one goes without
# All that an entry of a kernel may have, and how large each may be: product.py has the reasons.
KERNEL_FILES: Mapping[str, int] = {
    IMAGE: 1 << 30,
    CONFIG: 16 << 20,
    DEFCONFIG: 16 << 20,
    MODULES: 18 << 30,
    _SOURCES: 256 << 20,
    _UNKNOWN: 16 << 20,
    _KERNEL: 16 << 20,
}
_DIGEST, _OF_CONFIG = "sha256", "config_sha256"
_LONGEST_LOG_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """A source that does not build: the fault, and the log of the build that found it."""

    key: str
    fault: Fault
    log: Path


Entry = Kernel | BuildFailure


@dataclass(frozen=True, slots=True)
class Origin:
    """What else is known of a kernel's build; None is what is not.

    ``sources`` are what it read, ``unknown`` the options that it was asked for and its tree does not know, and
    ``defconfig`` is its .config as ``make savedefconfig`` writes it.
    """

    sources: Sources | None = None
    unknown: frozenset[str] | None = None
    defconfig: bytes | None = None


def write(directory: Path, entry: Entry, origin: Origin | None = None) -> None:
    """Copy an entry into an empty directory and on to the disk, with what is known of its build; raises ``OSError``."""
    origin = origin or Origin()
    if origin.sources is not None:
        (directory / _SOURCES).write_bytes(origin.sources.packed())
    if origin.unknown is not None:
        (directory / _UNKNOWN).write_text(json.dumps(sorted(origin.unknown)), encoding="utf-8")
    if origin.defconfig is not None:
        (directory / DEFCONFIG).write_bytes(origin.defconfig)
    if isinstance(entry, Kernel):
        _write_kernel(directory, entry)
    else:
        _write_failure(directory, entry)
    settle(directory)


def settle(directory: Path) -> None:
    """Bring an entry to the disk before it appears; raises ``OSError``."""
    for path in directory.iterdir():
        _sync(path)  # a rename that outlives its data would be a damaged entry
    directory.chmod(0o755)


def read(directory: Path, key: str) -> Entry | None:
    """What the directory holds, or None for anything that a complete entry of this key is not."""
    try:
        if (directory / "failure.json").exists():
            return _read_failure(directory, key)
        return _read_kernel(directory, key)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def release(directory: Path) -> str:
    """The release of the kernel that is kept here; empty when there is none to be read."""
    try:
        return str(json.loads((directory / _KERNEL).read_text(encoding="utf-8"))["kernel"]["release"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""


def read_sources(directory: Path) -> Sources | None:
    """What the build of a kernel read, or None when the directory does not say; raises ``OSError``."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return Sources.unpacked((directory / _SOURCES).read_bytes())
    return None


def read_unknown(directory: Path) -> frozenset[str] | None:
    """The options that a kernel was asked for and its tree does not know, or None; raises ``OSError``."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return frozenset(map(str, json.loads((directory / _UNKNOWN).read_text(encoding="utf-8"))))
    return None


def write_checked(directory: Path, content_sha256: str) -> None:
    """Keep that a kernel of this content came of its sources once more, apart from all others; raises ``OSError``."""
    new = directory / f"{_CHECKED}.new"
    _write_record(new, {"schema": _SCHEMA, "content_sha256": content_sha256})
    _sync(new)
    new.rename(directory / _CHECKED)


def read_checked(directory: Path) -> str:
    """The content of which :func:`write_checked` was told last; empty where it was not. Raises ``OSError``."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return str(_read_record(directory / _CHECKED)["content_sha256"])
    return ""


def _write_kernel(directory: Path, kernel: Kernel) -> None:
    facts = asdict(kernel)
    places = _places(directory, modular=kernel.modules is not None)
    for field, path in places.items():
        shutil.copyfile(facts[field], path)
        facts[field] = path.name
    _write_record(directory / _KERNEL, {"schema": _SCHEMA, **_digests(places), "kernel": facts})


def _read_kernel(directory: Path, key: str) -> Kernel | None:
    record = _read_record(directory / _KERNEL)
    facts = record["kernel"]
    places = _places(directory, modular=facts.get("modules") is not None)
    digests = _digests(places)
    # Earlier records have none of the configuration, on which nothing that boots depends.
    if record["schema"] != _SCHEMA or not digests.items() <= {_OF_CONFIG: digests[_OF_CONFIG], **record}.items():
        return None
    lists = {name: tuple(facts[name]) for name in ("quirks", "unmet")}
    kernel = Kernel(**{**facts, **places, **lists, "cached": True, "build_s": 0.0})
    return kernel if kernel.key == key else None


def _places(directory: Path, *, modular: bool) -> dict[str, Path]:
    """The files of a kernel by their field."""
    places = {"image": directory / IMAGE, "config": directory / CONFIG}
    return {**places, "modules": directory / MODULES} if modular else places


def _digests(places: Mapping[str, Path]) -> dict[str, str]:
    return {f"{field}_sha256": sha256_of(path) for field, path in places.items()}


def _write_record(path: Path, record: Mapping[str, Any]) -> None:
    """A document with a digest of its own."""
    path.write_text(json.dumps({**record, _DIGEST: _record_sha256(record)}, indent=1), encoding="utf-8")


def _read_record(path: Path) -> dict[str, Any]:
    """The document; raises ``ValueError`` where it is not what was written. Earlier ones have no digest."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if record.pop(_DIGEST, None) not in (None, _record_sha256(record)):
        raise ValueError(f"{path} was changed since it was written")
    return record


def _record_sha256(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _write_failure(directory: Path, failure: BuildFailure) -> None:
    log = failure.log.read_bytes()
    if len(log) > _LONGEST_LOG_BYTES:  # make's last words are at the end, and the error itself is in the fault
        log = b"[the beginning was not kept]\n" + log[-_LONGEST_LOG_BYTES:].partition(b"\n")[2]
    (directory / "build.log").write_bytes(log)
    record = {
        "schema": _SCHEMA,
        "key": failure.key,
        "log_sha256": sha256_of(directory / "build.log"),
        "fault": asdict(failure.fault),
    }
    _write_record(directory / "failure.json", record)


def _read_failure(directory: Path, key: str) -> BuildFailure | None:
    record = _read_record(directory / "failure.json")
    log = directory / "build.log"
    if record["schema"] != _SCHEMA or record["key"] != key or record["log_sha256"] != sha256_of(log):
        return None
    facts = record["fault"]
    fault = Fault(Stage(facts["stage"]), FaultKind(facts["kind"]), facts["reason"], tuple(facts["tail"]), cached=True)
    return BuildFailure(key, fault, log)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
