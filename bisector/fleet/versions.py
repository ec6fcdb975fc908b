"""Versions that have to be equal on all machines that measure together, since they exchange values as pickles.

dask.distributed only warns if its versions differ, and ignores the sources of bisector. Frozen dataclasses are pickled
field by field in order, so a value of another version may be read with its fields exchanged and without an error.
"""

import functools
import hashlib
import importlib.util
import platform
import sys
from importlib import metadata
from typing import Annotated

from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.json_document import JsonObject

# msgpack carries distributed's messages, cloudpickle its functions and arguments.
_PACKAGES = ("distributed", "cloudpickle", "msgpack")


class Versions(JsonObject, frozen=True, kw_only=True):
    """The versions that have to be equal on all machines that measure together."""

    python: Annotated[str, "major and minor version of Python"]
    bisector: Annotated[str, "version of bisector"]
    source: Annotated[str, "digest of bisector's own modules"]
    distributed: Annotated[str | None, "version of distributed; `null` where it is not installed"]
    cloudpickle: Annotated[str | None, "version of cloudpickle"]
    msgpack: Annotated[str | None, "version of msgpack"]


@functools.cache
def own() -> Versions:
    """Return the versions of this process, by its files as of the first call, which is early in the process."""
    return Versions(
        python=".".join(platform.python_version_tuple()[:2]),
        bisector=metadata.version("bisector"),
        source=_source_digest(),
        **{name: metadata.version(name) if importlib.util.find_spec(name) else None for name in _PACKAGES},
    )


def differences(theirs: Versions, ours: Versions | None = None) -> str:
    """Tell people which versions differ on the other machine; empty if none does."""
    ours = ours or own()
    apart = []
    for name in ("python", "bisector", "source", *_PACKAGES):
        here, there = getattr(ours, name), getattr(theirs, name)
        # If the versions of bisector differ, so do the sources.
        if here != there and (name != "source" or ours.bisector == theirs.bisector):
            apart.append(f"{name} is {there or 'not installed'} there and {here or 'not installed'} here")
    return "; ".join(apart)


def check_installed(command: str) -> None:
    """Raise :class:`UserError` if a package of the extra ``fleet`` is missing; call this before importing one."""
    missing = [name for name in ("distributed", "cryptography") if importlib.util.find_spec(name) is None]
    if missing:
        install = f"{sys.executable} -m pip install 'bisector[fleet]', from where bisector was installed"
        raise UserError(f"{command} needs what is not installed: {', '.join(missing)}", install)


def _source_digest() -> str:
    """The digest of all modules: two checkouts of one version may be of different commits."""
    digest = hashlib.sha256()
    for path in sorted(resources.PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(resources.PACKAGE)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]
