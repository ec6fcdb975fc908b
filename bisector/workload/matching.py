"""Finds what the one group of a regular expression matches in the lines of a text.

Run as a program (``matching.py EXPRESSION FILE``) it prints the matches as JSON. An expression may take far too long,
such as ``(a+)+$`` on a line of thirty letters, and only a separate process can be ended then. So this module imports
nothing of bisector.
"""

import json
import re
import sys
from pathlib import Path

LONGEST_LINE = 4096


def matched(expression: str, text: str) -> list[str]:
    """What the group matched in each match, in order; an empty string if it took no part in the match."""
    pattern = re.compile(expression)
    lines = (line[:LONGEST_LINE] for line in text.splitlines())
    return [found[1] or "" for line in lines for found in pattern.finditer(line)]


if __name__ == "__main__":
    _, _expression, _file = sys.argv
    print(json.dumps(matched(_expression, Path(_file).read_text(encoding="utf-8"))))  # noqa: T201 - what it is for
