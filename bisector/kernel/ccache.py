"""How ccache is called, so that what it answers follows from the compiler, its options and the sources alone.

A person's ccache.conf may say otherwise (``compiler_check = none``, ``sloppiness``, ``prefix_command``,
``ignore_options``, ``hard_link``; ccache(1)): then an object of another compiler is a hit, and a kernel has
other code than its key says. So no file of settings is read. How large the cache may be, and for what runs
without a sandbox where it is, are taken from theirs.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bisector.core.errors import InfraError
from bisector.core.resources import cache_home
from bisector.host import files, process

PROGRAM = "ccache"
DIRECTORY = "CCACHE_DIR"
_DEADLINE_S = 60.0
_NO_SETTINGS = {"CCACHE_CONFIGPATH": "/dev/null", "CCACHE_CONFIGPATH2": "/dev/null"}  # the person's, the system's
_DISABLED = {"CCACHE_DISABLE": "1"}
# The variables for a command that is only asked what it is.
UNUSED: Mapping[str, str] = MappingProxyType({**_NO_SETTINGS, **_DISABLED})


def environment(base: Path, *, anew: bool = False, sandboxed: bool = False) -> dict[str, str]:
    """The variables for a build below ``base``, to which ccache takes paths relative: another run's objects are hits.

    ``sandboxed`` builds have a cache of their own. Where a person's cannot be written nothing is kept. With ``anew``
    nothing kept is believed, and what is compiled takes its place. Raises :class:`InfraError` when ccache does not
    answer.
    """
    directory = own_directory() if sandboxed else Path(_setting("cache_dir"))
    if not sandboxed and not os.access(files.nearest(directory), os.W_OK | os.X_OK):
        return dict(_DISABLED)
    return {
        **_NO_SETTINGS,
        DIRECTORY: str(directory),
        "CCACHE_MAXSIZE": _setting("max_size"),
        "CCACHE_BASEDIR": str(base),
        "CCACHE_NOHASHDIR": "1",
        # The default, by time and size, takes an upgrade for the same compiler where times are pinned, as in Nix.
        "CCACHE_COMPILERCHECK": "content",
        **({"CCACHE_RECACHE": "1"} if anew else {}),
    }


def empty(directory: Path) -> dict[str, str]:
    """The variables for a trial of ccache itself, which keeps what it has to below ``directory``."""
    return {**_NO_SETTINGS, DIRECTORY: str(directory / PROGRAM)}


def own_directory() -> Path:
    """Where sandboxed builds keep what they compiled.

    What a tree can write to is read outside of its sandbox by nobody: ccache runs what a file of settings beside the
    objects names, and an object that a tree has put there could come to be part of a program of the person's.
    """
    return cache_home() / "ccache"


def _setting(key: str) -> str:
    try:
        return process.run([PROGRAM, "--get-config", key], deadline_s=_DEADLINE_S).stdout.strip()
    except (process.CommandMissing, process.CommandFailed, process.CommandTimeout) as error:
        raise InfraError(str(error)) from error
