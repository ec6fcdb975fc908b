"""Edits of the checked-out sources for the time of one build; the next checkout undoes them.

Nothing here is committed, and nothing has to be remembered: an edited file has another inode, time
and size than git's index says, so that ``git checkout --force`` (git-checkout(1)) writes it anew,
and ``git clean`` removes what a kill left half-written beside it.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bisector.core.errors import InfraError
from bisector.host.inside import inside
from bisector.kernel import sources
from bisector.kernel.quirks import Edit

_STAMPS = "edits.json"
_NEW = ".bisector-new"
_Stamps = dict[str, tuple[str, int]]


def apply(edits: Iterable[Edit], source: Path, state: Path) -> None:
    """Edit the sources, which are as git checked them out; ``state`` is a directory beside the build.

    A file that is now the same as at the last build here gets that build's modification time back:
    otherwise each commit would compile anew all that includes it. Raises ``OSError``, and
    :class:`InfraError` when a text is not there as it was a moment ago.
    """
    before, now = _read(state / _STAMPS), _Stamps()
    # What is not edited this time may be compiled in its own form, so that its old time means nothing.
    _write(state / _STAMPS, {})
    for file, content in _edited(edits, source).items():
        digest = hashlib.sha256(content).hexdigest()
        known, mtime_ns = before.get(file, ("", 0))
        now[file] = (digest, _replace(inside(source, file), content, mtime_ns if known == digest else None))
    _write(state / _STAMPS, now)


def _edited(edits: Iterable[Edit], source: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for edit in edits:
        text = contents.get(edit.file) or sources.content(source, edit.file) or b""
        old = edit.old.encode()
        if text.count(old) != 1:
            raise InfraError(f"{source / edit.file} was changed by somebody else: {edit.old!r} is not there once")
        contents[edit.file] = text.replace(old, edit.new.encode())
    return contents


def _replace(path: Path, content: bytes, mtime_ns: int | None) -> int:
    """Put a new file in the place of ``path`` in one step; its modification time."""
    # Of a name that the tree has no link of.
    descriptor, name = tempfile.mkstemp(suffix=_NEW, prefix=path.name, dir=path.parent)
    os.close(descriptor)
    new = Path(name)
    new.write_bytes(content)
    shutil.copymode(path, new)
    if mtime_ns is not None:
        os.utime(new, ns=(mtime_ns, mtime_ns))
    new.replace(path)
    return path.stat().st_mtime_ns


def _read(path: Path) -> _Stamps:
    with suppress(FileNotFoundError, ValueError, TypeError):
        return {file: (str(digest), int(time)) for file, (digest, time) in json.loads(path.read_bytes()).items()}
    return {}


def _write(path: Path, stamps: _Stamps) -> None:
    new = path.with_name(path.name + _NEW)
    new.write_text(json.dumps(stamps), encoding="utf-8")
    new.replace(path)
