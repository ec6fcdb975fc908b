"""How ccache is called, so that what it answers follows from the compiler, its options and the sources alone.

A person's ccache.conf may say otherwise (``compiler_check = none``, ``sloppiness``, ``prefix_command``,
``ignore_options``, ``hard_link``; ccache(1)): then an object of another compiler is a hit, and a kernel has
other code than its key says. So no file of settings is read. Where the person keeps the cache and how large
it may be are taken from theirs.
"""

from pathlib import Path

from bisector.core.errors import InfraError
from bisector.core.resources import cache_home
from bisector.host import process
from bisector.host.build_user import build_user

PROGRAM = "ccache"
DIRECTORY = "CCACHE_DIR"
_DEADLINE_S = 60.0
_NO_FILE = "/dev/null"
# The variables that carry what a person may choose, by ccache's own names.
_CHOSEN = {"cache_dir": DIRECTORY, "max_size": "CCACHE_MAXSIZE"}


def environment(base: Path, *, anew: bool = False, sandboxed: bool = False) -> dict[str, str]:
    """The variables for a build below ``base``, to which ccache takes paths relative: another run's objects are hits.

    Root's ``sandboxed`` builds, which are another user's, have a cache of their own. With ``anew`` nothing kept is
    believed, and what is compiled takes its place. Raises :class:`InfraError` when ccache does not answer.
    """
    own = {DIRECTORY: str(own_directory())} if sandboxed and build_user() is not None else {}
    return {
        "CCACHE_CONFIGPATH": _NO_FILE,
        "CCACHE_CONFIGPATH2": _NO_FILE,  # the system's file
        **{variable: _setting(key) for key, variable in _CHOSEN.items()},
        **own,
        "CCACHE_BASEDIR": str(base),
        "CCACHE_NOHASHDIR": "1",
        # The default, by time and size, takes an upgrade for the same compiler where times are pinned, as in Nix.
        "CCACHE_COMPILERCHECK": "content",
        **({"CCACHE_RECACHE": "1"} if anew else {}),
    }


def own_directory() -> Path:
    """Where root's sandboxed builds keep what they compiled: root's own cache would have to be given away."""
    return cache_home() / "ccache"


def _setting(key: str) -> str:
    try:
        return process.run([PROGRAM, "--get-config", key], deadline_s=_DEADLINE_S).stdout.strip()
    except (process.CommandMissing, process.CommandFailed, process.CommandTimeout) as error:
        raise InfraError(str(error)) from error
