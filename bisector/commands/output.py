"""What commands write."""

import json
import sys
from pathlib import Path

from bisector.errors import UserError


def write(text: str) -> None:
    """Text as it is."""
    sys.stdout.write(text)


def note(text: str) -> None:
    """A line for the person beside what is written, on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def write_json(document: object) -> None:
    """One document for scripts."""
    write(json.dumps(document, indent=2) + "\n")


def save(path: Path, content: bytes) -> None:
    """Write a file that a person named, and the directories it is in. Raises :class:`UserError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "name another place") from error
