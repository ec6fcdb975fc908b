"""What files with an output of fio have around it: other encodings, colours, and what each line begins with.

A letter quotes with ``> ``, a log of a container or of continuous integration has times, a page indents. Every line
keeps its number.
"""

import codecs
import html
import json
import re

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What fio writes at the beginning of a line; the first of these that is there shows what stands before each line.
_ANCHORS = (
    re.compile(r"(.+?)\s*Run status group \d+ \(all jobs\):"),
    re.compile(r'([^{"]+?)\s*"fio version"'),
    re.compile(r"(.+?)\s*fio-\d+\.[\w.-]+$"),
)
# Where a log that is JSON itself has its text: docker's json-file driver, and others.
_LOGGED = ("log", "message", "msg", "line")


def bare(data: bytes) -> str:
    """The text of a file without all of that."""
    lines = [_line(line) for line in _decoded(data).split("\n")]
    for anchor in _ANCHORS:
        if found := next(filter(None, map(anchor.match, lines)), None):
            prefix = _alike(found[1])
            return "\n".join(line[begin.end() :] if (begin := prefix.match(line)) else line for line in lines)
    return "\n".join(lines)


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    text = data.decode("utf-8-sig", "replace")
    return text if "\n" in text else text.replace("\r", "\n")


def _line(line: str) -> str:
    """As a terminal shows it: what a carriage return goes back over is gone."""
    line = _logged(line) if line.startswith("{") else line
    line = html.unescape(line) if "&gt;" in line else line
    return re.sub(r"[\t\xa0]", " ", _ESCAPE.sub("", line)).rstrip().rpartition("\r")[2]


def _logged(line: str) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return line
    texts = (entry[name] for name in _LOGGED if name in entry) if isinstance(entry, dict) else ()
    return next((text.rstrip("\n") for text in texts if isinstance(text, str)), line)


def _alike(prefix: str) -> re.Pattern[str]:
    """What begins the other lines: with another time, of another stream, or without the blanks at its end."""
    of_a_log = re.search(r"\d", prefix) and re.search(r"[:|\]]", prefix)
    words = re.sub(r"[A-Za-z]+", "A", prefix) if of_a_log else prefix
    pattern = re.sub(r"(?:\\\s)+|\s+", r"\\s*", re.sub(r"\d+", r"\\d+", re.escape(words)))
    return re.compile(pattern.replace("A", "[A-Za-z]+") if of_a_log else pattern)
