"""The places of bisector's own data files (kernel configuration fragments, fio jobs, the image recipe) and of a user's.

In a checkout (and an editable installation) they are the top-level directories beside the package; a wheel has them
inside the package, under the names that ``tool.setuptools.package-dir`` gives them.
"""

import difflib
import os
from pathlib import Path

from bisector.core.errors import InfraError, UserError

PACKAGE = Path(__file__).parent.parent
ROOT = PACKAGE.parent
_JOB = ".fio"


def kconfigs() -> Path:
    """The directory of configuration fragments, each ``NAME.config``."""
    return _directory("kconfigs", "_kconfigs")


def jobs() -> Path:
    """The directory of fio job files."""
    return _directory("fio", "_fio")


def vm_images() -> Path:
    """The directory of the guest image's recipe."""
    return _directory("vm-images", "_vm_images")


def cache_home() -> Path:
    """The directory for data that can be made again (XDG Base Directory Specification, XDG_CACHE_HOME)."""
    return home("XDG_CACHE_HOME", ".cache")


def config_home() -> Path:
    """The directory for a user's choices for all runs (XDG Base Directory Specification, XDG_CONFIG_HOME)."""
    return home("XDG_CONFIG_HOME", ".config")


def home(variable: str, default: str) -> Path:
    """The directory that an environment variable names, or the default one below the user's home."""
    given = Path(os.environ.get(variable, ""))
    # "All paths set in these environment variables must be absolute"; others are ignored.
    return (given if given.is_absolute() else Path.home() / default) / "bisector"


def fragment(name: str) -> Path:
    """The file of a fragment: of a person's own, if the name has a slash, or else of bisector's own of that name.

    Raises :class:`UserError` with the known names if bisector has none of it.
    """
    if "/" in name:
        return Path(name)
    own = f"{name.removesuffix('.config')}.config"
    return _one_of(kconfigs(), own, f"no kernel configuration fragment is named {name}")


def job(name: str) -> Path:
    """Return one of bisector's fio job files, with its ending or without; raises :class:`UserError` with their names.

    The caller prefers a user's own file of the same name (:mod:`bisector.workload.fio.fio`).
    """
    complaint = f"there is no fio job file {name}, here or among the tool's own"
    return _one_of(jobs(), name if name.endswith(_JOB) else f"{name}{_JOB}", complaint)


def _one_of(directory: Path, name: str, complaint: str) -> Path:
    entries = {entry.name: entry for entry in directory.iterdir()}
    if name in entries and entries[name].is_file():  # a typed name may be too long for the file system
        return entries[name]
    files = (one for one, entry in entries.items() if entry.is_file())
    known = sorted(one.removesuffix(".config").removesuffix(_JOB) for one in files)
    near = difflib.get_close_matches(name.removesuffix(".config").removesuffix(_JOB), known, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise UserError(
        complaint, f"{meant}known: {', '.join(known)}; a file of your own is written with a slash: ./{name}"
    )


def _directory(in_checkout: str, in_wheel: str) -> Path:
    """Return the directory in the wheel, or in the checkout; beside an installed package lie other packages."""
    for directory in (PACKAGE / in_wheel, ROOT / in_checkout):
        if directory.is_dir():
            return directory
    raise InfraError(
        f"the installation is incomplete: {ROOT / in_checkout} is missing",
        "install again, from a complete checkout: pip install --editable DIRECTORY",
    )
