"""Programs that a test puts in the place of real ones."""

from pathlib import Path


def program(path: Path, script: str) -> Path:
    """A program that is a script of the shell."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
