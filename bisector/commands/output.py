"""What commands write."""

import json
import sys


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
