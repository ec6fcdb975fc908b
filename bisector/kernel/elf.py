"""What a built vmlinux is: its build-id, and a digest of what is loaded into memory."""

import hashlib
import re
import tempfile
from pathlib import Path

from bisector import process
from bisector.errors import InfraError

_DEADLINE_S = 120.0
_BUILD_ID = re.compile(r"Build ID: ([0-9a-f]+)")


def build_id(vmlinux: Path) -> str:
    """The GNU build-id note (ld(1), ``--build-id``), as /sys/kernel/notes shows it; empty when there is none."""
    notes = _tool("readelf", "-n", vmlinux)
    match = _BUILD_ID.search(notes)
    return match[1] if match else ""


def content_sha256(vmlinux: Path) -> str:
    """The digest of the loaded sections, notes left out.

    The build-id is taken over the whole file, debugging sections included, so it differs between
    kernels that run the same; what is loaded does not.
    """
    with tempfile.TemporaryDirectory(prefix="content-", dir=vmlinux.parent) as directory:
        image = Path(directory) / "loaded.bin"
        _tool("objcopy", "-O", "binary", "-R", ".notes", "-R", ".note.*", vmlinux, image)
        with image.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _tool(*argv: str | Path) -> str:
    """The output of a binutils program; of a kernel that was just linked, its failure is the host's."""
    try:
        return process.run(argv, deadline_s=_DEADLINE_S).stdout
    except (process.CommandMissing, process.CommandFailed, process.CommandTimeout) as error:
        raise InfraError(str(error)) from error
