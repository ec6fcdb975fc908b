"""What the fio of the guest image takes in a job file: its options, their values, its engines.

The image is of Debian 12, which has fio 3.33. The table is what that prints of itself (``--cmdhelp``, ``--enghelp``)
and how it answers (``--parse-only``); ``python -m tests.workload.fio_table`` writes it anew. A job file is held against
it before anything is built. What the table does not tell, the guest's own fio says when it runs.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VERSION = "fio-3.33"
TABLE = Path(__file__).parent / "options.txt"
# What load_ioengine() in fio's ioengines.c takes for libaio.
_ENGINE_ALIASES = {"linuxaio": "libaio", "aio": "libaio"}
_USUAL_ENGINE = "psync"
_WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class _Option:
    """``words`` are all that it takes, before a colon or a comma; where it is ``numeric``, a number between bounds."""

    bare: bool
    words: tuple[str, ...]
    numeric: bool
    least: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class _Table:
    names: Mapping[str, str]
    options: Mapping[str, _Option]
    engines: Mapping[str, frozenset[str]]


@cache
def _table() -> _Table:
    names: dict[str, str] = {}
    options: dict[str, _Option] = {}
    engines: dict[str, frozenset[str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        first, kind, *rest = line.split()
        if first == "engine":
            engines[kind] = frozenset(rest)
            continue
        bare, spellings = first.endswith("?"), first.removesuffix("?").split(",")
        least, most = rest[0].split("..") if kind == "number" else ("", "")
        options[spellings[0]] = _Option(
            bare,
            tuple(rest) if kind == "word" else (),
            kind == "number",
            int(least) if least else None,
            int(most) if most else None,
        )
        names |= dict.fromkeys(spellings, spellings[0])
    return _Table(names, options, engines)


def canonical(name: str) -> str:
    """One name for each option, whichever of its names is written."""
    return _table().names.get(name, name)


def engine_called(name: str | None) -> str:
    """One name for each engine; fio's usual one where none is named."""
    word = (name or _USUAL_ENGINE).partition(":")[0]
    return _ENGINE_ALIASES.get(word, word)


def lacks_engine(name: str) -> tuple[str, str] | None:
    """Why a job has no such engine there, and what may be meant; None where it has."""
    engines = _table().engines
    if "$" in name or engine_called(name) in {*engines, "external"}:
        return None
    return f"the guest's {VERSION} has no I/O engine {name}", _near(name, engines)


def objection(name: str, value: str | None, engine: str) -> tuple[str, str] | None:
    """Why fio does not take an option, ``value`` of which is None where it stands bare, and what to write instead."""
    table = _table()
    option = table.options.get(canonical(name))
    if option is None:
        return _unknown(name, engine)
    if value is None:
        return None if option.bare else (f"{name} needs a value", f"{name}={' or '.join(option.words[:2]) or '1'}")
    if not value:
        return f"{name}= has no value", "give it one, or leave it out"
    if "$" in value:  # what fio itself puts there
        return None
    word = re.split("[:,]", value)[0]
    if option.words and word not in option.words:
        hint = _near(word, option.words) or f"{name} is one of: {', '.join(option.words)}"
        return f"{VERSION} does not take {word!r} for {name}", hint
    return _of_number(name, value, option) if option.numeric else None


def _unknown(name: str, engine: str) -> tuple[str, str] | None:
    table = _table()
    if name in table.engines.get(engine, ()):
        return None
    able = [one for one, own in table.engines.items() if name in own]
    if able and engine in table.engines:
        return f"the engine {engine} has no option {name}", f"leave it out; engines that have it: {', '.join(able)}"
    if able:  # of an engine that is not there, which is said of its own line
        return None
    known = (*table.names, *table.engines.get(engine, ()))
    return f"{VERSION} has no option {name}", _near(name, known) or "leave it out; fio(1) lists the options"


def _of_number(name: str, value: str, option: _Option) -> tuple[str, str] | None:
    if not any(char.isdigit() for char in value):
        return f"{VERSION} does not take {value!r} for {name}", "expected a number"
    if not _WHOLE.fullmatch(value):
        return None
    if option.least is not None and int(value) < option.least:
        return f"{name} is {option.least} or more", f"{name}={option.least}"
    if option.most is not None and int(value) > option.most:
        return f"{name} is {option.most} or less", f"{name}={option.most}"
    return None


def _near(word: str, known: Iterable[str]) -> str:
    names = difflib.get_close_matches(word, tuple(known), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(names)}?" if names else ""
