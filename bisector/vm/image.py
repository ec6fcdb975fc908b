"""A guest's root file system and its keys: the user's own, or built once from the recipe and kept.

A kept image is complete, is never written again, and has the checksums of its files beside it: on a damaged image the
guest panics, or its fio dies, at every commit alike, and that must not be blamed on the kernels.
"""

import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from shutil import which

from bisector.config import MachineSettings
from bisector.core.deadline import Deadline, DeadlineExpired, retried
from bisector.core.errors import InfraError, UserError
from bisector.host.files import abandoned, our_files, scratch, sync, write_atomically
from bisector.host.locks import locked
from bisector.host.packages import install, not_installed
from bisector.host.process import CommandFailed, CommandMissing, CommandTimeout, run

# Debian 12: its e2fsprogs 1.47.0 turns on no ext4 feature that a kernel of 2017 cannot mount. Later ones turn on
# orphan_file, which such a kernel does not know (Documentation/filesystems/ext4/orphan.rst, new in v5.15).
SUITE = "bookworm"

# The files of a kept image:
ROOT = "root.ext4"
CLIENT_KEY = "id_ed25519"
HOST_KEY = "ssh_host_ed25519_key"
SUMS = "sums"

_CHUNK_BYTES = 1 << 20  # the unit of sum_of()
_SUPERUSER_DIRECTORIES = ("/usr/sbin", "/sbin")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
_LOCAL_S = 300.0
_INSTALL_S = 900.0
_LOCK_S = 1800.0
_BETWEEN_TRIES_S = (2.0, 4.0)
# Programs that the recipe and the guests' disks need, each with its Debian package.
_PROGRAMS = {
    **{"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "ssh-keygen": "openssh-client", "unshare": "util-linux"},
    "qemu-img": "qemu-utils",
}

# QEMU's docs/interop/qcow2.txt
_QCOW2_MAGIC = b"QFI\xfb"
_QCOW2_HEADER = struct.Struct(">4sIQ56xQ")  # magic, version, offset of the backing file's name, incompatible features
_QCOW2_DATA_FILE = 1 << 2  # a bit of the incompatible features


@dataclass(frozen=True, slots=True)
class GuestImage:
    """A root file system (never written to), and the keys that authenticate guest and host to each other over SSH.

    ``ssh_key`` is the private key for the login as root; ``host_public_key`` is ``TYPE BASE64``. ``key`` identifies the
    image.
    """

    root: Path
    ssh_key: Path
    host_public_key: str
    key: str

    @classmethod
    def kept_in(cls, directory: Path, key: str) -> "GuestImage":
        """The image that was built in this directory; raises ``OSError`` or :class:`UserError` if it lacks its keys."""
        return cls(directory / ROOT, directory / CLIENT_KEY, _public_key(directory / f"{HOST_KEY}.pub"), key)

    @property
    def disk_format(self) -> str:
        """QEMU's name for the root file's format."""
        return "qcow2" if self.root.suffix == ".qcow2" else "raw"


def own_image(machine: MachineSettings) -> GuestImage:
    """The image that the settings name; raises :class:`UserError` if one of its files is not usable."""
    named = {
        "machine.image": machine.image,
        "machine.image_key": machine.image_key,
        "machine.image_host_key": machine.image_host_key,
    }
    paths = []
    for setting, path in named.items():
        if path is None:
            raise UserError(
                f"{setting} is not set",
                "an image of your own takes --image FILE --image-key PRIVATE_KEY --image-host-key PUBLIC_KEY",
            )
        if not path.is_file():
            raise UserError(f"{setting}: {path} is not a file")
        if not os.access(path, os.R_OK):
            raise UserError(f"{setting}: {path} is not readable for this user")
        paths.append(path.absolute())
    root, ssh_key, host_key = paths
    if root.suffix == ".qcow2":
        _check_alone(root)
    identity = f"{root}\n{root.stat().st_size}\n{root.stat().st_mtime_ns}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return GuestImage(root, ssh_key, _public_key(host_key), f"own-{key}")


def find_image(recipe: Path, cache_root: Path) -> GuestImage | None:
    """The image of this recipe, if it was built before, else None; it may be damaged (:func:`build_image`)."""
    key = recipe_key(recipe)
    try:
        return GuestImage.kept_in(cache_root / key, key) if (cache_root / key / ROOT).is_file() else None
    except (OSError, UserError):  # its keys are missing
        return None


def recipe_key(recipe: Path) -> str:
    """A hash of everything that the image is made from, without the notes for people (``*.md``)."""
    files = sorted(path for path in recipe.iterdir() if path.is_file() and path.suffix != ".md")
    parts = [SUITE.encode()] + [part for path in files for part in (path.name.encode(), path.read_bytes())]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()[:16]


def _check_alone(path: Path) -> None:
    """Raise :class:`UserError` for an image that makes QEMU read a second file.

    The image holds the name of that file. QEMU opens it with the rights of the user who starts QEMU, and the guest can
    read its content. The header is parsed here, because qemu-img(1) itself follows some names (CVE-2024-4467).
    """
    with path.open("rb") as file:
        header = file.read(_QCOW2_HEADER.size).ljust(_QCOW2_HEADER.size, b"\0")
    magic, version, backing, features = _QCOW2_HEADER.unpack(header)
    if magic != _QCOW2_MAGIC:
        return
    has_features = version > 2  # noqa: PLR2004 - "version 3" or higher
    if other := "backing" if backing else "data" if has_features and features & _QCOW2_DATA_FILE else "":
        raise UserError(
            f"machine.image: {path} names a {other} file, which QEMU would read with your rights",
            f"if you trust that file, make one of both: qemu-img convert -O qcow2 {path} NEW.qcow2",
        )


def _public_key(path: Path) -> str:
    """``TYPE BASE64`` from a public key file in the format of ssh-keygen(1)."""
    fields = path.read_text(encoding="utf-8", errors="replace").split()
    if len(fields) < 2 or not fields[0].startswith(("ssh-", "ecdsa-")):  # noqa: PLR2004 - type and key
        raise UserError(
            f"{path} is not a public SSH key",
            "name the guest's /etc/ssh/ssh_host_ed25519_key.pub; ssh-keygen -y makes it from the private one",
        )
    return " ".join(fields[:2])


@dataclass(frozen=True, slots=True)
class KeptImage:
    """A kept image: its key, its size on the disk (it has holes), and when it was last read, in seconds since 1970."""

    key: str
    size_bytes: int
    last_used: float


def kept_images(cache_root: Path) -> tuple[KeptImage, ...]:
    """The complete images, the most recently used first; raises :class:`InfraError` if they cannot be read."""
    found = []
    try:
        for root in cache_root.glob(f"*/{ROOT}"):
            if ".new-" not in (directory := root.parent).name:
                size_bytes = sum(path.stat().st_blocks * 512 for path in directory.iterdir())
                # Access times are updated at least once a day (mount(8), relatime); the image is never written again.
                found.append(KeptImage(directory.name, size_bytes, max(root.stat().st_atime, root.stat().st_mtime)))
    except OSError as error:
        raise InfraError(f"guest images {cache_root}: {error.strerror}") from error
    return tuple(sorted(found, key=lambda image: -image.last_used))


def remove_images(cache_root: Path) -> None:
    """Remove all complete images; the caller makes sure that no guest runs on one and that none is being built."""
    for image in kept_images(cache_root):
        try:
            shutil.rmtree(cache_root / image.key)
        except OSError as error:
            raise InfraError(f"guest image {cache_root / image.key}: {error.strerror}", "remove it by hand") from error


def seal(directory: Path) -> None:
    """Write the checksums of all files, and flush everything to the disk; raises :class:`OSError`."""
    files = sorted(path for path in directory.iterdir() if path.name != SUMS)
    lines = (f"{sum_of(path)}  {path.name}\n" for path in files)
    for path in files:
        sync(path)
    write_atomically(directory / SUMS, "".join(lines).encode())


def damage(directory: Path) -> str:
    """What is wrong with a kept image; empty if its files are as they were sealed, or if there is no image.

    It may be called while other processes seal or replace the image. Raises :class:`InfraError` if it cannot be read.
    """
    with our_files(directory):
        if not directory.exists():
            return ""
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
    """SHA-256 of a file's size, and of the offset and content of each MiB of it that is not all zeros.

    A root file system of 1 GiB has 220 MiB of data: 0.3 s instead of 1.4 s. A copy may have zeros instead of holes.
    """
    total = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        size, place = os.fstat(file.fileno()).st_size, 0
        total.update(b"%d" % size)
        while place < size:
            try:
                data = os.lseek(file.fileno(), place, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole up to the end
                break
            place = file.seek(max(place, data // _CHUNK_BYTES * _CHUNK_BYTES))
            chunk = file.read(_CHUNK_BYTES)
            if any(chunk):
                total.update(b"%d" % place + chunk)
            place += _CHUNK_BYTES
    return total.hexdigest()


def build_image(recipe: Path, cache_root: Path, run_marker: Path | None, on_note: Callable[[str], None]) -> GuestImage:
    """The image of this recipe, built now if need be; if another process is building it, wait for that.

    A damaged image is rebuilt, once, and the reason goes to ``on_note``. Raises :class:`UserError` if this machine is
    not set up to build images, and :class:`InfraError` if the packages do not arrive or the disk is full.
    """
    if (found := find_image(recipe, cache_root)) and not damage(found.root.parent):
        return found
    cache_root.mkdir(parents=True, exist_ok=True)
    key = recipe_key(recipe)
    with ExitStack() as stack:
        lock = cache_root / f"{key}.lock"
        wait = Deadline(f"the lock {lock}, held by another build of the guest image,", _LOCK_S)
        try:
            stack.enter_context(locked(lock, wait=wait, flags=os.O_RDWR | os.O_CREAT))
        except DeadlineExpired as error:
            raise InfraError(str(error)) from error
        directory = cache_root / key
        wrong = damage(directory)
        if not wrong and (found := find_image(recipe, cache_root)):
            return found
        check_programs()
        if os.geteuid() != 0:
            check_namespaces()
        if directory.exists():
            on_note(f"guest image: {wrong or f'{directory} is not whole'}; it is built anew")
            directory.rename(cache_root / f"{key}.new-damaged")
        # Leftovers of killed builders: this process holds the lock, and abandoned() locks each directory it yields.
        for stale in chain(cache_root.glob(f"{key}.new-*"), abandoned()):
            _as_root(("rm", "-rf", stale), run_marker)
        work = Path(tempfile.mkdtemp(prefix=f"{key}.new-", dir=cache_root))
        try:
            _fill(work, recipe.resolve(), run_marker, on_note)
            with our_files(work):
                seal(work)
                work.rename(directory)
                sync(cache_root)
        finally:
            if work.exists():
                _as_root(("rm", "-rf", work), run_marker)
    return GuestImage.kept_in(directory, key)


def _fill(work: Path, recipe: Path, run_marker: Path | None, on_note: Callable[[str], None]) -> None:
    """Make the keys and the file system. No mirror is named, so mmdebstrap chooses one, and checks its signatures."""
    for name, comment in ((CLIENT_KEY, "bisector"), (HOST_KEY, "bisector-guest")):
        _run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", work / name), run_marker)
    tar, root = work / "packages.tar", work / ROOT
    on_note(f"guest image: installing Debian {SUITE} packages; this is done once and takes about a minute")
    lines = (recipe / "packages").read_text(encoding="utf-8").splitlines()
    packages = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    mode = "root" if os.geteuid() == 0 else "unshare"
    options = ("--quiet", "--variant=minbase", f"--mode={mode}", f"--include={','.join(packages)}")
    try:
        # mmdebstrap unpacks half a gigabyte below TMPDIR, in a directory of its own; TMPDIR must let other users enter.
        with scratch("image", mode=0o755) as place:
            argv = ("env", f"TMPDIR={place}", "mmdebstrap", *options, SUITE, tar)
            retried(
                lambda: run(argv, deadline_s=_INSTALL_S, env=_environment(), run_marker=run_marker),
                (CommandFailed, CommandTimeout),
                _BETWEEN_TRIES_S,
                lambda failed: on_note(f"guest image: attempt {failed} failed, trying again"),
            )
    except (CommandFailed, CommandTimeout) as error:
        raise InfraError(
            f"the guest image's packages could not be installed: {error}",
            "the image is made once, and that needs the network: bisector image build",
        ) from error
    on_note("guest image: making the file system")
    _as_root(("sh", recipe / "make-ext4", recipe, tar, work, root), run_marker)
    root.chmod(0o444)
    tar.unlink()
    (work / HOST_KEY).unlink()  # the guest has it; only the public half is needed outside


def _environment() -> dict[str, str]:
    # mke2fs is in sbin, which an ordinary user's PATH lacks.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SUPERUSER_DIRECTORIES))
    return {"PATH": path, **{name: os.environ[name] for name in _PROXIES if name in os.environ}}


def _run(argv: Sequence[str | Path], run_marker: Path | None = None) -> None:
    """Run a program of this host; raises :class:`UserError` if it is missing, :class:`InfraError` if it fails."""
    try:
        run(argv, deadline_s=_LOCAL_S, env=_environment(), run_marker=run_marker)
    except CommandMissing as error:
        raise UserError(str(error), install(_PROGRAMS.get(error.program, error.program))) from error
    except (CommandFailed, CommandTimeout) as error:
        raise InfraError(str(error)) from error


def _as_root(argv: Sequence[str | Path], run_marker: Path | None = None) -> None:
    """Run as root, or as the root of a user namespace that also maps the subordinate ids."""
    _run((*(() if os.geteuid() == 0 else ("unshare", "--map-auto", "--map-root-user")), *argv), run_marker)


def check_programs() -> None:
    """Raise :class:`UserError` if a program for building images is missing."""
    path = _environment()["PATH"]
    missing = [one for program, one in _PROGRAMS.items() if program != "qemu-img" and which(program, path=path) is None]
    if missing:
        raise UserError(f"making the guest image needs {', '.join(missing)}", install(*missing))


def check_namespaces() -> None:
    """Raise :class:`UserError` if this user has no user namespaces with subordinate ids."""
    # A trial covers newuidmap, /etc/subuid, util-linux and the kernel's own settings at once.
    try:
        _as_root(("true",))
    except InfraError as error:
        raise UserError(
            f"making the guest image without root needs user namespaces: {error}",
            f"{install('uidmap')} && sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER",
        ) from error


def find_overlay_tool() -> str:
    """The path of the program for :func:`overlay`; raises :class:`UserError` if it is not installed."""
    if (found := which("qemu-img", path=_environment()["PATH"])) is None:
        raise not_installed("qemu-img", "qemu-utils")
    return found


def overlay(image: GuestImage, path: Path) -> Path:
    """Make an empty qcow2 file over the image at ``path``: the throw-away root disk of one guest."""
    _run(("qemu-img", "create", "-q", "-f", "qcow2", "-F", image.disk_format, "-b", image.root.resolve(), path))
    return path
