"""What has to be the same on all machines that measure together, since values travel between them as pickles.

dask.distributed only warns of other versions, and not at all of another source of bisector. Frozen dataclasses pickle
field by field in order, so that a value of another version is read with its fields exchanged, and without an error.
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
    """What has to be the same on all machines that measure together."""

    python: Annotated[str, "major and minor version of Python"]
    bisector: Annotated[str, "version of bisector"]
    source: Annotated[str, "digest of bisector's own modules"]
    distributed: Annotated[str | None, "version of distributed; `null` where it is not installed"]
    cloudpickle: Annotated[str | None, "version of cloudpickle"]
    msgpack: Annotated[str | None, "version of msgpack"]


@functools.cache
def own() -> Versions:
    """Those of this process: of the files as they were when it first asked, which is when it began."""
    return Versions(
        python=".".join(platform.python_version_tuple()[:2]),
        bisector=metadata.version("bisector"),
        source=_source_digest(),
        **{name: metadata.version(name) if importlib.util.find_spec(name) else None for name in _PACKAGES},
    )


def differences(theirs: Versions, ours: Versions | None = None) -> str:
    """What is another there than here, for people; empty when nothing is."""
    ours = ours or own()
    apart = []
    for name in ("python", "bisector", "source", *_PACKAGES):
        here, there = getattr(ours, name), getattr(theirs, name)
        # Of another version the source is another one anyway.
        if here != there and (name != "source" or ours.bisector == theirs.bisector):
            apart.append(f"{name} is {there or 'not installed'} there and {here or 'not installed'} here")
    return "; ".join(apart)


def check_installed(command: str) -> None:
    """Raise :class:`UserError` where a package of the extra ``fleet`` is missing; before anything imports it."""
    missing = [name for name in ("distributed", "cryptography") if importlib.util.find_spec(name) is None]
    if missing:
        install = f"{sys.executable} -m pip install 'bisector[fleet]', from where bisector was installed"
        raise UserError(f"{command} needs what is not installed: {', '.join(missing)}", install)


def _source_digest() -> str:
    """Of all modules: two checkouts of one version may be of two commits."""
    digest = hashlib.sha256()
    for path in sorted(resources.PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(resources.PACKAGE)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]
