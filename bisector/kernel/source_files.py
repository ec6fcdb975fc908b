"""Files of a checked-out tree, as this process reads them with all its rights: git checks out links to anywhere.

``include/linux/compiler.h`` may be a symbolic link to /dev/zero, which has no end, to a terminal, which is waited for,
or into a person's home. What make reads in its sandbox is the same link to nothing.
"""

import errno
from pathlib import Path

from bisector.host.inside import inside

# Beside what is missing: a link out of the tree, what is no regular file, links in a circle.
_NONE = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
)


def content(source: Path, file: str | Path) -> bytes | None:
    """What is in a file of the tree, links inside it followed; None where there is none. Raises ``OSError``."""
    try:
        return inside(source, file).read_bytes()
    except OSError as error:
        if error.errno in _NONE:
            return None
        raise


def text(source: Path, file: str | Path) -> str | None:
    """The same as text; old trees have files in Latin-1, and surrogates keep every byte as it is."""
    data = content(source, file)
    return None if data is None else data.decode(errors="surrogateescape")
