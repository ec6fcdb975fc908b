"""A guest's root file system and its keys: a person's own, or one that was built from the recipe and is kept.

A kept image is complete, is never written again, and has the sums of its files beside it: a bit may flip, and a power
cut may leave a file empty. A guest on a damaged image panics, or its fio dies, on every commit alike; that must not
look like the kernels' fault.
"""

import fcntl
import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import which
from typing import BinaryIO

from bisector.config import MachineSettings
from bisector.core.deadline import Deadline, DeadlineExpired, retried
from bisector.core.errors import InfraError, UserError
from bisector.host.files import abandoned, our_files, scratch, sync, write_whole
from bisector.host.packages import install, not_installed
from bisector.host.process import CommandFailed, CommandMissing, CommandTimeout, FinishedCommand, run

# Debian 12: its e2fsprogs 1.47.0 turns on no ext4 feature that a kernel of 2017 cannot mount. Later ones turn on
# orphan_file, which such a kernel does not know (Documentation/filesystems/ext4/orphan.rst, new in v5.15).
SUITE = "bookworm"

# Of a kept image:
ROOT = "root.ext4"
CLIENT_KEY = "id_ed25519"
HOST_KEY = "ssh_host_ed25519_key"
SUMS = "sums"

_CHUNK_BYTES = 1 << 20  # of a sum
_SUPERUSER_DIRECTORIES = ("/usr/sbin", "/sbin")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
_LOCAL_S = 300.0
_INSTALL_S = 900.0
_LOCK_S = 1800.0
_BETWEEN_TRIES_S = (2.0, 4.0)
# What the recipe calls, and the Debian package that has it.
_PROGRAMS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "ssh-keygen": "openssh-client", "unshare": "util-linux"}

# QEMU's docs/interop/qcow2.txt
_QCOW2_MAGIC = b"QFI\xfb"
_QCOW2_HEADER = struct.Struct(">4sIQ56xQ")  # magic, version, offset of the backing file's name, incompatible features
_QCOW2_DATA_FILE = 1 << 2  # of the incompatible features


@dataclass(frozen=True, slots=True)
class GuestImage:
    """A root file system (never written to) and the keys that make its SSH trusted both ways.

    ``ssh_key`` is the private key that logs in as root; ``host_public_key`` is ``TYPE BASE64``.
    ``key`` identifies the image.
    """

    root: Path
    ssh_key: Path
    host_public_key: str
    key: str

    @classmethod
    def kept_in(cls, directory: Path, key: str) -> "GuestImage":
        """The image that was built in this directory; raises ``OSError`` and :class:`UserError` without its keys."""
        return cls(directory / ROOT, directory / CLIENT_KEY, _public_key(directory / f"{HOST_KEY}.pub"), key)

    @property
    def disk_format(self) -> str:
        """QEMU's name of the root file's format."""
        return "qcow2" if self.root.suffix == ".qcow2" else "raw"


def own_image(machine: MachineSettings) -> GuestImage:
    """The image that the settings name; raises :class:`UserError` when a file of it is not usable."""
    named = {
        "machine.image": machine.image,
        "machine.image_key": machine.image_key,
        "machine.image_host_key": machine.image_host_key,
    }
    root, ssh_key, host_key = (_readable(setting, path) for setting, path in named.items())
    if root.suffix == ".qcow2":
        _check_alone(root)
    identity = f"{root}\n{root.stat().st_size}\n{root.stat().st_mtime_ns}"
    return GuestImage(root, ssh_key, _public_key(host_key), f"own-{_digest(identity.encode())}")


def find_image(recipe: Path, cache_root: Path) -> GuestImage | None:
    """The image of this recipe, if it was built before; it may be damaged.

    :func:`bisector.vm.image.build_image` looks whether it is.
    """
    key = recipe_key(recipe)
    try:
        return GuestImage.kept_in(cache_root / key, key) if (cache_root / key / ROOT).is_file() else None
    except (OSError, UserError):  # it has lost its keys
        return None


def recipe_key(recipe: Path) -> str:
    """A hash of everything the image is made from; the notes for people are no part of it."""
    files = sorted(path for path in recipe.iterdir() if path.is_file() and path.suffix != ".md")
    parts = [SUITE.encode()] + [part for path in files for part in (path.name.encode(), path.read_bytes())]
    return _digest(b"".join(len(part).to_bytes(8, "big") + part for part in parts))


def _check_alone(path: Path) -> None:
    """Raise :class:`UserError` for an image that QEMU would read together with another file.

    The name of that file is in the image. QEMU follows it with the rights of whoever starts it, and the guest reads
    what is there. The header is read here, because qemu-img(1) itself follows some names (CVE-2024-4467).
    """
    with path.open("rb") as file:
        header = file.read(_QCOW2_HEADER.size).ljust(_QCOW2_HEADER.size, b"\0")
    magic, version, backing, features = _QCOW2_HEADER.unpack(header)
    if magic != _QCOW2_MAGIC:
        return
    has_features = version > 2  # noqa: PLR2004 - "version 3" or higher
    other = "backing" if backing else "data" if has_features and features & _QCOW2_DATA_FILE else ""
    if other:
        raise UserError(
            f"machine.image: {path} names a {other} file, which QEMU would read with your rights",
            f"if you trust that file, make one of both: qemu-img convert -O qcow2 {path} NEW.qcow2",
        )


def _readable(setting: str, path: Path | None) -> Path:
    if path is None:
        raise UserError(
            f"{setting} is not set",
            "an image of your own takes --image FILE --image-key PRIVATE_KEY --image-host-key PUBLIC_KEY",
        )
    if not path.is_file():
        raise UserError(f"{setting}: {path} is no file")
    if not os.access(path, os.R_OK):
        raise UserError(f"{setting}: {path} is not readable for this user")
    return path.absolute()


def _public_key(path: Path) -> str:
    """``TYPE BASE64`` of a public key file as ssh-keygen(1) writes it."""
    fields = path.read_text(encoding="utf-8", errors="replace").split()
    if len(fields) < 2 or not fields[0].startswith(("ssh-", "ecdsa-")):  # noqa: PLR2004 - type and key
        raise UserError(
            f"{path} is not a public SSH key",
            "name the guest's /etc/ssh/ssh_host_ed25519_key.pub; ssh-keygen -y makes it from the private one",
        )
    return " ".join(fields[:2])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class KeptImage:
    """An image: its key, what it takes of the disk (it has holes), and when it was last read, in seconds since 1970."""

    key: str
    size_bytes: int
    last_used: float


def kept_images(cache_root: Path) -> tuple[KeptImage, ...]:
    """The complete images, the last used first; raises :class:`InfraError` when they cannot be read."""
    try:
        found = [_kept_image(root.parent) for root in cache_root.glob(f"*/{ROOT}") if ".new-" not in root.parent.name]
    except OSError as error:
        raise InfraError(f"guest images {cache_root}: {error.strerror}") from error
    return tuple(sorted(found, key=lambda image: -image.last_used))


def remove_images(cache_root: Path) -> None:
    """Remove all complete images; the caller knows that no guest runs on one and that none is being built."""
    for image in kept_images(cache_root):
        try:
            shutil.rmtree(cache_root / image.key)
        except OSError as error:
            raise InfraError(f"guest image {cache_root / image.key}: {error.strerror}", "remove it by hand") from error


def _kept_image(directory: Path) -> KeptImage:
    files = [path.stat() for path in directory.iterdir()]
    root = (directory / ROOT).stat()
    # Access times are written once a day at least (mount(8), relatime); the image itself is never written again.
    return KeptImage(directory.name, sum(file.st_blocks * 512 for file in files), max(root.st_atime, root.st_mtime))


def seal(directory: Path) -> None:
    """Write the sums of all files, and have all of it on the disk; raises :class:`OSError`."""
    files = sorted(path for path in directory.iterdir() if path.name != SUMS)
    lines = (f"{sum_of(path)}  {path.name}\n" for path in files)
    for path in files:
        sync(path)
    write_whole(directory / SUMS, "".join(lines).encode())


def damage(directory: Path) -> str:
    """What is wrong with the files, nothing if they are as they were sealed; raises :class:`OSError`."""
    if not (directory / SUMS).is_file():
        return f"{directory} has no sums of its files"
    for line in (directory / SUMS).read_text(encoding="utf-8", errors="replace").splitlines() or ["  sums"]:
        known, _, name = line.partition("  ")
        path = directory / Path(name).name
        if not path.is_file():
            return f"{path} is gone"
        if sum_of(path) != known:
            return f"{path} is not as it was made"
    return ""


def sum_of(path: Path) -> str:
    """SHA-256 of a file's size and of each MiB of it that is not all zeros, with its place.

    A root file system of 1 GiB has 220 MiB of data: 0.3 s instead of 1.4 s, and holes may become zeros in a copy.
    """
    total = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        total.update(b"%d" % size)
        for place in _places(file, size):
            file.seek(place)
            chunk = file.read(_CHUNK_BYTES)
            if any(chunk):
                total.update(b"%d" % place + chunk)
    return total.hexdigest()


def _places(file: BinaryIO, size: int) -> Iterator[int]:
    """Where each MiB begins that is not wholly in a hole (lseek(2), SEEK_DATA)."""
    place = 0
    while place < size:
        try:
            data = os.lseek(file.fileno(), place, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole up to the end
            return
        place = max(place, data // _CHUNK_BYTES * _CHUNK_BYTES)
        yield place
        place += _CHUNK_BYTES


def build_image(recipe: Path, cache_root: Path, run_marker: Path | None, on_note: Callable[[str], None]) -> GuestImage:
    """The image of this recipe, built now if need be; another process that builds it is waited for.

    One that is damaged is built anew, once, and ``on_note`` is told why. Raises :class:`UserError` when this machine
    cannot build images as it is set up, and :class:`InfraError` when the packages do not arrive or the disk is full.
    """
    if (found := find_image(recipe, cache_root)) and not _damage(found.root.parent):
        return found
    cache_root.mkdir(parents=True, exist_ok=True)
    key = recipe_key(recipe)
    with _lock(cache_root / f"{key}.lock"):
        directory = cache_root / key
        wrong = _damage(directory)
        if not wrong and (found := find_image(recipe, cache_root)):
            return found
        tools = _Tools(run_marker)
        tools.check()
        if directory.exists():
            on_note(f"guest image: {wrong or f'{directory} is not whole'}; it is built anew")
            directory.rename(cache_root / f"{key}.new-damaged")
        for stale in cache_root.glob(f"{key}.new-*"):  # of a killed builder: this process holds the lock
            tools.as_root("rm", "-rf", stale)
        for stale in abandoned():
            tools.as_root("rm", "-rf", stale)
        work = Path(tempfile.mkdtemp(prefix=f"{key}.new-", dir=cache_root))
        try:
            _build(recipe.resolve(), work, tools, on_note)
            with our_files(work):
                seal(work)
                work.rename(directory)
                sync(cache_root)
        finally:
            if work.exists():
                tools.as_root("rm", "-rf", work)
    return GuestImage.kept_in(directory, key)


def _damage(directory: Path) -> str:
    """What is wrong with a kept image, if it is there; may be asked while others seal or replace it."""
    with our_files(directory):
        return damage(directory) if directory.exists() else ""


def check_programs() -> None:
    """Raise :class:`UserError` when a program that the building of images takes is missing."""
    _Tools(None).check_programs()


def check_namespaces() -> None:
    """Raise :class:`UserError` when this user has no user namespaces with subordinate ids."""
    _Tools(None).check_namespaces()


def find_overlay_tool() -> str:
    """Where :func:`overlay`'s program is; raises :class:`UserError` when it is not installed."""
    if (found := _Tools(None).find("qemu-img")) is None:
        raise not_installed("qemu-img", "qemu-utils")
    return found


def overlay(image: GuestImage, path: Path) -> Path:
    """Make an empty qcow2 file over the image at ``path``: the throw-away root disk of one guest."""
    _Tools(None).run(
        *("qemu-img", "create", "-q", "-f", "qcow2", "-F", image.disk_format, "-b", image.root.resolve(), path),
        package="qemu-utils",
    )
    return path


class _Tools:
    """The programs that make an image, as root or as an ordinary user in a user namespace."""

    def __init__(self, run_marker: Path | None) -> None:
        self._run_marker = run_marker
        self._superuser = os.geteuid() == 0
        # An ordinary user's PATH has no sbin, where mke2fs is.
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SUPERUSER_DIRECTORIES))
        proxies = {name: os.environ[name] for name in _PROXIES if name in os.environ}
        self._environment = {"PATH": path, **proxies}

    @property
    def mmdebstrap_mode(self) -> str:
        return "root" if self._superuser else "unshare"

    def check(self) -> None:
        """Raise :class:`UserError` when a program is missing or user namespaces are not to be had."""
        self.check_programs()
        if not self._superuser:
            self.check_namespaces()

    def check_programs(self) -> None:
        """Raise :class:`UserError` when a program is missing."""
        missing = [package for program, package in _PROGRAMS.items() if self.find(program) is None]
        if missing:
            raise UserError(f"making the guest image needs {', '.join(missing)}", install(*missing))

    def find(self, program: str) -> str | None:
        """Where a program is, also one that only root's PATH has."""
        return which(program, path=self._environment["PATH"])

    def check_namespaces(self) -> None:
        """Raise :class:`UserError` when user namespaces with subordinate ids are not to be had."""
        # One question instead of many: newuidmap, /etc/subuid, util-linux and the kernel's own settings.
        try:
            self.as_root("true")
        except InfraError as error:
            raise UserError(
                f"making the guest image without root needs user namespaces: {error}",
                f"{install('uidmap')} && sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER",
            ) from error

    def as_root(self, *argv: str | Path) -> FinishedCommand:
        """Run as root, or as what is root inside a namespace and owns the subordinate ids too."""
        return self.run(*(() if self._superuser else ("unshare", "--map-auto", "--map-root-user")), *argv)

    def run(self, *argv: str | Path, deadline_s: float = _LOCAL_S, package: str = "") -> FinishedCommand:
        """Run a program of this host; a missing one is :class:`UserError`, its failure :class:`InfraError`."""
        try:
            return self.run_raw(argv, deadline_s)
        except CommandMissing as error:
            raise UserError(str(error), install(package or _PROGRAMS.get(error.program, error.program))) from error
        except (CommandFailed, CommandTimeout) as error:
            raise InfraError(str(error)) from error

    def run_raw(self, argv: Sequence[str | Path], deadline_s: float) -> FinishedCommand:
        """Run a program; raises the errors of :mod:`bisector.host.process`."""
        return run(argv, deadline_s=deadline_s, env=self._environment, run_marker=self._run_marker)


def _build(recipe: Path, work: Path, tools: _Tools, on_note: Callable[[str], None]) -> None:
    for name, comment in ((CLIENT_KEY, "bisector"), (HOST_KEY, "bisector-guest")):
        tools.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", work / name)
    tar = work / "packages.tar"
    on_note(f"guest image: installing Debian {SUITE} packages; this is done once and takes about a minute")
    _install(recipe, tar, tools, on_note)
    on_note("guest image: making the file system")
    root = work / ROOT
    tools.as_root("sh", recipe / "make-ext4", recipe, tar, work, root)
    root.chmod(0o444)
    tar.unlink()
    (work / HOST_KEY).unlink()  # the guest has it; outside only its public half is of use


def _install(recipe: Path, tar: Path, tools: _Tools, on_note: Callable[[str], None]) -> None:
    """Have mmdebstrap make the tar; no mirror is named, so its own choice and its checks of signatures hold."""
    lines = (recipe / "packages").read_text(encoding="utf-8").splitlines()
    packages = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    options = ("--variant=minbase", f"--mode={tools.mmdebstrap_mode}", f"--include={','.join(packages)}")

    def tell(failed: int) -> None:
        on_note(f"guest image: attempt {failed} failed, trying again")

    try:
        # It unpacks in a directory of its own in TMPDIR, half a gigabyte, which others must be able to enter.
        with scratch("image", mode=0o755) as place:
            argv = ("env", f"TMPDIR={place}", "mmdebstrap", "--quiet", *options, SUITE, tar)
            attempt = partial(tools.run_raw, argv, _INSTALL_S)
            retried(attempt, (CommandFailed, CommandTimeout), _BETWEEN_TRIES_S, tell)
    except (CommandFailed, CommandTimeout) as error:
        raise InfraError(
            f"the guest image's packages could not be installed: {error}",
            "the image is made once, and that needs the network: bisector image build",
        ) from error


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the file's lock; the kernel frees it when its holder dies."""
    with path.open("w", encoding="utf-8") as file:

        def attempt() -> bool | None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            return True

        try:
            Deadline(f"the lock {path}, held by another build of the guest image,", _LOCK_S).poll(attempt, every_s=0.2)
        except DeadlineExpired as error:
            raise InfraError(str(error)) from error
        yield
