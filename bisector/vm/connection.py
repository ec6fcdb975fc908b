"""How libvirt is reached.

Two kinds of hypervisor, one code. The *embedded* driver (``qemu:///embed``, the default) is libvirt's QEMU
driver inside this process: no daemon, nothing to configure (https://libvirt.org/drvqemu.html,
"Embedded driver"). Everything else is a URI of a libvirt daemon on this host, ``qemu:///system``.
"""

import atexit
import functools
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import libvirt

from bisector.config import EMBEDDED
from bisector.core.errors import UserError
from bisector.vm.embedded import configure, embedded_root, hold, make_private, remove_if_idle
from bisector.vm.hypervisor import LibvirtHypervisor, version_text

_LOCAL_SCHEMES = ("qemu", "qemu+unix")


def open_hypervisor(uri: str, root: Path, cache: Path | None = None) -> LibvirtHypervisor:
    """Connect to ``uri``: ``qemu:///embed`` for the embedded driver, else a libvirt daemon of this host.

    ``root`` is the directory of the run: the embedded driver's own directory is found again through
    it after a crash. ``cache`` keeps what that driver learns about QEMU (seconds) between runs.
    Raises :class:`UserError` when there is nothing at the other end.
    """
    _start_library()
    directory = None
    if uri == EMBEDDED:
        directory = _embedded_directory(root, cache)
        uri = f"qemu:///embed?root={directory}"
    elif urlsplit(uri).scheme not in _LOCAL_SCHEMES or urlsplit(uri).netloc:
        raise UserError(
            f"{uri}: the guest is reached over this host's loopback, so libvirt must be local",
            "use --connect qemu:///embed, or --connect qemu:///system",
        )
    try:
        connection = _embedded_driver().connected(uri) if directory else libvirt.open(uri)
    except libvirt.libvirtError as error:
        hint = (
            "`make setup` installs libvirt's QEMU driver and the user it wants"
            if directory
            else f"is libvirtd running, and are you in its group? virsh -c '{uri}' version; or --connect {EMBEDDED}"
        )
        raise UserError(f"{uri}: {error}", hint) from error
    return LibvirtHypervisor(connection, directory)


def library_version() -> str:
    """The version of the libvirt library in this process."""
    return version_text(libvirt.getVersion())


class _EmbeddedDriver:
    """libvirt keeps the first directory of its embedded driver for the life of the process; so do we.

    The connection, too: each one that is opened registers the driver again, and the 22nd is refused
    ("Too many drivers", MAX_DRIVERS in libvirt's src/libvirt.c).
    """

    def __init__(self) -> None:
        self.directory: Path | None = None
        self._connection: Any = None

    def connected(self, uri: str) -> Any:
        """The one connection; raises libvirt's error when it cannot be made."""
        if self._connection is None:
            self._connection = libvirt.open(uri)
        return self._connection


@functools.cache
def _embedded_driver() -> _EmbeddedDriver:
    return _EmbeddedDriver()


def _embedded_directory(root: Path, cache: Path | None) -> Path:
    """The directory of this process's embedded driver, the one that ``root`` had before if possible."""
    driver = _embedded_driver()
    directory = embedded_root(root, driver.directory)
    make_private(directory)  # it may have been cleaned up meanwhile
    if driver.directory is None:
        driver.directory = directory
        configure(directory, cache)
        atexit.register(remove_if_idle, directory)
        atexit.register(hold(directory))  # the last one registered is called first
    return directory


@functools.cache  # libvirt's event loop and error handler exist once in a process
def _start_library() -> None:
    libvirt.registerErrorHandler(_ignore_error, None)  # printed otherwise; the exception says the same
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_run_events, name="libvirt-events", daemon=True).start()


def _ignore_error(_opaque: Any, _error: Any) -> None:
    return


def _run_events() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()
