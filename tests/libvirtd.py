"""A libvirt daemon of the tests' own, beside whatever runs on this machine, gone without a trace afterwards."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline

# As in bisector.vm: else it logs to standard error, whoever loads it first.
os.environ.setdefault("LIBVIRT_LOG_OUTPUTS", "4:file:/dev/null")


# Its state is in directories that are fixed when it is compiled. In a mount namespace of its own (unshare(1)) they are
# empty ones, so that it neither meets nor leaves anything; what it learns about QEMU (seconds) goes there, too.
_STATE = ("/run/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt", "/etc/libvirt")

# Its children are adopted and reaped by this parent: QEMU daemonizes itself, and libvirtd waits until the process
# is gone; the first process of a container may reap what it inherits late, or never (prctl(2), PR_SET_CHILD_SUBREAPER).
_REAPER = textwrap.dedent(
    """
    import ctypes, os, signal, subprocess, sys
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    daemon = subprocess.Popen(sys.argv[1:]).pid
    signal.signal(signal.SIGTERM, lambda *_: os.kill(daemon, signal.SIGTERM))
    while os.wait()[0] != daemon:
        pass
    """
)


@contextmanager
def libvirtd(hidden: Sequence[Path] = ()) -> Iterator[str]:
    """The daemon's URI; anybody may use it. It sees nothing of the directories ``hidden``."""
    if shutil.which("libvirtd") is None:
        pytest.skip("libvirtd is not installed")
    if os.getuid() != 0:
        pytest.skip("libvirtd needs root")
    with tempfile.TemporaryDirectory(prefix="bisector-libvirtd-") as name:
        root = Path(name)
        root.chmod(0o755)
        sockets = f'unix_sock_dir = "{root}"\nunix_sock_rw_perms = "0777"\nauth_unix_rw = "none"\n'
        (root / "libvirtd.conf").write_text(f'{sockets}log_outputs = "3:stderr"\n')
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-ec", _script(root, hidden)], stdout=log, stderr=log
            )
            try:
                Deadline("libvirtd's socket", 20.0).poll(lambda: _answers(root / "libvirt-sock") or None)
                yield f"qemu+unix:///system?socket={root}/libvirt-sock"
            finally:
                process.terminate()
                process.wait(20)


def _script(root: Path, hidden: Sequence[Path]) -> str:
    mounts = [f"mkdir -p {state}; mount -t tmpfs -o mode=755 none {state}" for state in (*_STATE, *map(str, hidden))]
    # file: without virtlogd, a second daemon
    configured = "echo 'stdio_handler = \"file\"' > /etc/libvirt/qemu.conf"
    # As udev would have it. libvirt probes QEMU as its user with CAP_DAC_OVERRIDE, and while that user may not open the
    # device itself, does so again each time it looks (0.7 s, a dozen times in a start).
    kvm = "test ! -e /dev/kvm || { mknod -m 666 /etc/libvirt/kvm c 10 232; mount --bind /etc/libvirt/kvm /dev/kvm; }"
    (root / "reaper.py").write_text(_REAPER)
    daemon = f"exec {sys.executable} {root}/reaper.py libvirtd -f {root}/libvirtd.conf -p {root}/libvirtd.pid"
    return "; ".join((*mounts, configured, kvm, daemon))


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
