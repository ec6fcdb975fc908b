"""What has to be the same on all machines of a fleet, since values travel between them as pickles.

dask.distributed only warns of other versions (``versions.error_message`` never fills its "error"), and not at all of
another source of bisector. So we compare, before a host is added and whenever it is looked at, and refuse by name.
"""

import functools
import hashlib
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from bisector.core import resources
from bisector.fleet.documents import Versions
from bisector.fleet.extra import Source

# msgpack carries distributed's messages, cloudpickle its functions and arguments.
_PACKAGES = ("distributed", "cloudpickle", "msgpack")
_SOURCE = "the source of bisector"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is another there; None where it is not installed."""

    what: str
    ours: str | None
    theirs: str | None

    def __str__(self) -> str:
        if self.theirs is None:
            return f"{self.what} is not installed there, and {self.ours} here"
        return f"{self.what} is {self.theirs} there and {self.ours or 'not installed'} here"


@functools.cache
def own() -> Versions:
    """Those of this process."""
    return Versions(
        python=".".join(platform.python_version_tuple()[:2]),
        bisector=metadata.version("bisector"),
        source=_source_digest(),
        **{package: _version(package) for package in _PACKAGES},
        executable=sys.executable,
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _source_digest() -> str:
    """Of our own modules: two checkouts of one version may be of two commits."""
    digest = hashlib.sha256()
    for path in sorted(resources.PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(resources.PACKAGE)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def compared(of: Versions | None = None) -> tuple[tuple[str, str], ...]:
    """What has to be equal on two machines, by name; empty for what is not installed."""
    versions = of or own()
    packages = ((package, getattr(versions, package) or "") for package in _PACKAGES)
    named = (("Python", versions.python), ("bisector", versions.bisector), *packages)
    return (*named, (_SOURCE, versions.source))


def differences(theirs: Versions, ours: Versions | None = None) -> tuple[Difference, ...]:
    """What is another there than here."""
    return tuple(_differences(theirs, ours or own()))


def _differences(theirs: Versions, ours: Versions) -> Iterator[Difference]:
    for (what, here), (_, there) in zip(compared(ours), compared(theirs), strict=True):
        # Of another version the source is another one anyway.
        if here != there and (what != _SOURCE or ours.bisector == theirs.bisector):
            yield Difference(what, here or None, there or None)


def remedy(found: tuple[Difference, ...], theirs: Versions, login: str) -> str:
    """What is typed to make them the same: at the host, as it is here."""
    named = {one.what: one for one in found}
    if "Python" in named:
        return f"install bisector on the host with Python {named['Python'].ours}, in a virtual environment of its own"
    if "bisector" in named:
        return Source.known().install_there(login, theirs.executable)
    wanted = [f"'{package}=={named[package].ours}'" for package in _PACKAGES if package in named]
    if not wanted:
        return "install the same commit of bisector on both machines"
    return f"ssh {login} {theirs.executable} -m pip install {' '.join(wanted)}"
