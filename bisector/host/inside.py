"""Names from elsewhere that must not lead out of a directory: one door for everything that a record names.

A record may have been made by somebody else. What it calls the console of trial 3 is shown in a report, and a report
is sent to other people; so it has to be a file of that run, also after links have been followed.
"""

import errno
import os
from pathlib import Path


def inside(directory: Path, name: str | Path) -> Path:
    """The file ``name`` of ``directory``, links followed; one that is still to be made may be missing.

    Raises :class:`OSError` when it is elsewhere or no regular file, so that it is treated like one that cannot be read.
    """
    named = directory / name
    try:
        path = Path(os.path.realpath(named))
        if not path.is_relative_to(os.path.realpath(directory)):
            raise OSError(errno.EXDEV, "it leads out of the run directory", str(named))
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is not a regular file", str(named))
    except ValueError as error:  # a NUL
        raise OSError(errno.EINVAL, "it is no name of a file", str(named)) from error
    return path
