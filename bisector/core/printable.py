"""Make text of commits, kernels, guests and mail servers fit to be shown: one printable line of bounded length.

All text that leaves bisector for a terminal, a log or a letter has passed :func:`clean`, so that no subject line moves
the cursor, recolours the screen or turns the rest of a line around.
"""

import re
import unicodedata

ELLIPSIS = "…"
# Fifty rows of a terminal of 80 columns. Longer text was not written for people.
LONGEST = 4000
# ECMA-48: CSI sequences, OSC strings (titles, hyperlinks), other two-character escapes. The beginning of a sequence is
# never part of another one, so that the search takes time in proportion to the length.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\x9d]*(?:\x07|\x1b\\|\x9c)|\x1b[ -/]*[0-~]"
)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean(text: str) -> str:
    """Return one printable line: without escape sequences, with plain white space, and invisible characters replaced.

    Control characters (C0 and C1) and the lone surrogates of subjects that are not UTF-8 are replaced, bidirectional
    overrides removed. Of more than :data:`LONGEST` characters the beginning is kept, with an ellipsis.
    """
    if not text.isprintable():
        text = "".join(map(_visible, _ESCAPES.sub("", text)))
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + ELLIPSIS


def clean_lines(text: str) -> str:
    """Make each line of a text printable; tabs stay, and lines may have any length."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    lines = (_ESCAPES.sub("", line) for line in text.split("\n"))
    return "\n".join("".join(char if char == "\t" else _visible(char) for char in line) for line in lines)


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    if char.isspace():
        return " "
    # Format characters (joiners, directions) have no width, so nothing replaces them.
    return "" if unicodedata.category(char) == "Cf" else _REPLACEMENT
