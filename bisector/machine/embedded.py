"""The directory of libvirt's embedded QEMU driver: where it is, what it is told, what runs in it."""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bisector.errors import InfraError, UserError

# sockaddr_un has 108 bytes (unix(7)); libvirt adds "/lib/qemu/domain-ID-NAME(20)/monitor.sock".
_LONGEST_ROOT = 50


def embedded_root(root: Path, opened: Path | None = None) -> Path:
    """A short private directory for the embedded driver, remembered as the link ``root/libvirt``.

    Under $XDG_RUNTIME_DIR or /tmp, because a run directory is too long for a socket's name. The link is
    followed first: a resumed run may have another environment than the one that was killed. Once this
    process has ``opened`` one, there can be no other; guests of the linked one are then out of reach.
    """
    link = root / "libvirt"
    linked = link.readlink() if link.is_symlink() and _is_private(link.readlink()) else None
    if linked is not None and opened in (None, linked):
        return linked
    if linked is not None and any(guest_pids(linked, "")):
        raise InfraError(f"guests of {root} are left over, and this process works in {opened}", "start it anew")
    made = opened or _make(root)
    root.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(made)
    return made


def _make(root: Path) -> Path:
    name = f"bisector-{os.getuid()}-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:10]}"
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")  # noqa: S108 - made private, and checked
    parent = runtime if runtime.is_dir() and len(str(runtime / name)) <= _LONGEST_ROOT else Path("/tmp")  # noqa: S108
    made = parent / name
    with suppress(FileExistsError):
        made.mkdir(mode=0o700)
    if not _is_private(made):
        raise UserError(f"{made} exists and is not a private directory of yours", f"remove it: rm -rf {made}")
    return made


def remove_if_idle(directory: Path) -> None:
    """Remove the driver's directory when nothing runs in it; what is left is found by the next process."""
    if not any(guest_pids(directory, "")):
        shutil.rmtree(directory, ignore_errors=True)


def _is_private(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def configure(embedded_root: Path, cache: Path | None) -> None:
    """qemu.conf of the embedded driver: no daemons, QEMU as ourselves, and nobody's files change owner."""
    (embedded_root / "etc").mkdir(exist_ok=True)
    lines = (
        'stdio_handler = "file"',
        'security_driver = "none"',
        f'user = "+{os.getuid()}"',
        f'group = "+{os.getgid()}"',
        "dynamic_ownership = 0",
        "remember_owner = 0",
        "namespaces = []",
        "cgroup_controllers = []",
    )
    (embedded_root / "etc/qemu.conf").write_text("\n".join(lines) + "\n", encoding="ascii")
    link = embedded_root / "cache"
    if cache is not None and not link.exists():
        cache.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(cache.resolve())


def runs_guest(pid: int, name: str) -> bool:
    """Whether ``pid`` is QEMU with this guest, and not a process that got its number later."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith(b"guest=" + os.fsencode(name) + b",") for word in words)


def guest_pids(root: Path, prefix: str) -> Iterator[tuple[str, int]]:
    """Name and process of each running guest of this directory whose name starts with ``prefix``."""
    for file in (root / "run/qemu").glob(f"{prefix}*.pid"):
        with suppress(OSError, ValueError):  # libvirt removes it when the guest ends
            pid = int(file.read_text(encoding="ascii"))
            if runs_guest(pid, file.stem):
                yield file.stem, pid
