"""Text of commits, kernels, guests and mail servers, made fit to be shown: one printable line of bounded length.

Whatever leaves this program for a terminal, a log or a letter has passed :func:`clean`, so that no subject line moves
the cursor, recolours the screen or turns the rest of a line around.
"""

import re
import unicodedata

ELLIPSIS = "…"
# Fifty rows of a terminal of 80 columns. What people read is shorter; what is longer was not written for them.
LONGEST = 4000
# ECMA-48: CSI sequences, OSC strings (titles, hyperlinks), other two-character escapes. No beginning of a sequence is
# part of another one, so that the time to find them grows with the length alone.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\x9d]*(?:\x07|\x1b\\|\x9c)|\x1b[ -/]*[0-~]"
)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean(text: str) -> str:
    """One printable line: escape sequences gone, white space plain, all else invisible replaced.

    That covers control characters (C0 and C1), bidirectional overrides and the lone surrogates of subjects that are
    not UTF-8. Of more than :data:`LONGEST` characters the beginning is kept, with an ellipsis.
    """
    if not text.isprintable():
        text = "".join(map(_visible, _ESCAPES.sub("", text)))
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + ELLIPSIS


def clean_lines(text: str) -> str:
    """Text of several lines with each line made printable; tabs stay, and lines may be of any length."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    lines = (_ESCAPES.sub("", line) for line in text.split("\n"))
    return "\n".join("".join(char if char == "\t" else _visible(char) for char in line) for line in lines)


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    if char.isspace():
        return " "
    # Format characters (joiners, directions) have no width of their own: nothing replaces them.
    return "" if unicodedata.category(char) == "Cf" else _REPLACEMENT
