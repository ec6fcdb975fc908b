"""What commands write to standard output."""

import json
import sys


def write(text: str) -> None:
    """Text as it is."""
    sys.stdout.write(text)


def write_json(document: object) -> None:
    """One document for scripts."""
    write(json.dumps(document, indent=2) + "\n")
