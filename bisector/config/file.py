"""The text of ``bisector.toml``: read into dotted keys, and written.

tomlkit's writer is not used: it would still need the nine lines of :func:`write` (6 ms for all settings instead of 0.1
ms) and a :func:`literal`, to keep values on one line and for values that TOML lacks.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from bisector.core.errors import UserError


def read(path: Path) -> dict[str, object]:
    """Parse the file; raises :class:`UserError` with file, line and column."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "name another file with --config FILE") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: not UTF-8, which TOML has to be") from error
    try:
        return tomllib.loads(text)
    # tomllib's messages end in "(at line 3, column 7)" or in "(at end of document)". It raises ValueError for a number
    # of thousands of digits (sys.set_int_max_str_digits).
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML: {error}", "see https://toml.io for how it is written") from error


def flatten(table: Mapping[str, object], known: frozenset[str], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield dotted keys and values; a table whose own key is ``known`` is a value (of the wrong type)."""
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and value and key not in known:
            yield from flatten(value, known, key + ".")
        else:
            yield key, value


def write(values: Mapping[str, object]) -> str:
    """TOML with one table per dotted prefix; the inverse of :func:`read` and :func:`flatten`."""
    tables: dict[str, list[str]] = {"": []}
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {literal(value)}")
    blocks = [(f"[{table}]\n" if table else "") + "\n".join(lines) for table, lines in tables.items() if lines]
    return "\n\n".join(blocks) + "\n"


def literal(value: object) -> str:
    """One value in TOML, which is as in JSON except for infinity and DEL (TOML 1.0, "String")."""
    match value:
        case float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(literal(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")
