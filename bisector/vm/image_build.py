"""The guest's image is made once, from the recipe in vm-images, as root or in a user namespace.

The recipe's README says how and why. An image is kept under the hash of its recipe; it appears under that name by one
rename, complete or not at all, and is on the disk before. A guest boots from an :func:`overlay`. An image that does not
agree with its sums is built anew.
"""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import which

from bisector.core.deadline import Deadline, DeadlineExpired, retried
from bisector.core.errors import InfraError, UserError
from bisector.host.files import abandoned, our_files, scratch
from bisector.host.packages import install, not_installed
from bisector.host.process import CommandFailed, CommandMissing, CommandTimeout, Finished, run
from bisector.vm.image import (
    CLIENT_KEY,
    HOST_KEY,
    ROOT,
    SUITE,
    SUMS,
    GuestImage,
    damage,
    find_image,
    recipe_key,
    seal,
    sync,
)

_SUPERUSER_DIRECTORIES = ("/usr/sbin", "/sbin")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
_LOCAL_S = 300.0
_INSTALL_S = 900.0
_LOCK_S = 1800.0
_BETWEEN_TRIES_S = (2.0, 4.0)
# What the recipe calls, and the Debian package that has it.
_PROGRAMS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "ssh-keygen": "openssh-client", "unshare": "util-linux"}

Note = Callable[[str], None]


def build_image(recipe: Path, cache_root: Path, run_marker: Path | None, on_note: Note) -> GuestImage:
    """The image of this recipe, built now if need be; another process that builds it is waited for.

    One that is damaged is built anew, once, and ``on_note`` is told why. Raises :class:`UserError` when this machine
    cannot build images as it is set up, and :class:`InfraError` when the packages do not arrive or the disk is full.
    """
    if (found := find_image(recipe, cache_root)) and _is_as_sealed(found.root.parent):
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
        for stale in cache_root.glob(f"{key}.new-*"):  # of a builder that was killed: we hold the lock
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


def _is_as_sealed(directory: Path) -> bool:
    """Whether a kept image has its sums and agrees with them; may be asked while others seal or replace it."""
    with our_files(directory):
        return (directory / SUMS).exists() and not damage(directory)


def _damage(directory: Path) -> str:
    """What is wrong with a kept image; one that an earlier version built, without sums, is taken as it is.

    The caller holds the image's lock: sums are written here.
    """
    with our_files(directory):
        if (directory / ROOT).is_file() and not (directory / SUMS).exists():
            seal(directory)
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

    def as_root(self, *argv: str | Path) -> Finished:
        """Run as root, or as what is root inside a namespace and owns the subordinate ids too."""
        return self.run(*(() if self._superuser else ("unshare", "--map-auto", "--map-root-user")), *argv)

    def run(self, *argv: str | Path, deadline_s: float = _LOCAL_S, package: str = "") -> Finished:
        """Run a program of this host; a missing one is :class:`UserError`, its failure :class:`InfraError`."""
        try:
            return self.run_raw(argv, deadline_s)
        except CommandMissing as error:
            raise UserError(str(error), install(package or _PROGRAMS.get(error.program, error.program))) from error
        except (CommandFailed, CommandTimeout) as error:
            raise InfraError(str(error)) from error

    def run_raw(self, argv: Sequence[str | Path], deadline_s: float) -> Finished:
        """Run a program; raises the errors of :mod:`bisector.host.process`."""
        return run(argv, deadline_s=deadline_s, env=self._environment, run_marker=self._run_marker)


def _build(recipe: Path, work: Path, tools: _Tools, on_note: Note) -> None:
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


def _install(recipe: Path, tar: Path, tools: _Tools, on_note: Note) -> None:
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
