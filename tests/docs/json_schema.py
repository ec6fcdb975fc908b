"""JSON schemas of what the commands print (docs/schema/), from the records that they print.

Each key is there, whatever default its field has, unless it may be absent.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin

from jsonschema import Draft202012Validator

from bisector.commands.kernel import KernelBuild
from bisector.commands.machine import Caches
from bisector.commands.show import Runs
from bisector.commands.simulate import Simulation
from bisector.compare.plan import ComparisonForecast
from bisector.core.examination import Examination
from bisector.core.json_document import FLAT, PAIRS, Absent, members, sentence
from bisector.fleet.status import FleetStatus, HostsExamination
from bisector.nightly.night import DryRun
from bisector.nightly.trend import History, OneNight
from bisector.plan.forecast import Forecast
from bisector.report.comparison import ComparisonReport
from bisector.report.document import Report
from bisector.status.view import BisectionView, MeasuredCommit

# What prints each, as a name of a file.
DOCUMENTS: Mapping[str, type] = {
    "status": BisectionView,
    "runs": Runs,
    "report": Report,
    "test": MeasuredCommit,
    "plan": Forecast,
    "compare": ComparisonReport,
    "compare --plan": ComparisonForecast,
    "simulate": Simulation,
    "doctor": Examination,
    "cache": Caches,
    "kernel build": KernelBuild,
    "history": History,
    "nightly": OneNight,
    "nightly --dry-run": DryRun,
    "doctor --hosts": HostsExamination,
    "fleet status": FleetStatus,
}
# Commands that print the document of another one.
SAME = {"table": "status", "baselines": "status"}
Schema: TypeAlias = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = "#/$defs/"


@cache
def schema(name: str) -> Schema:
    """The schema of a document; it allows keys that are not there yet."""
    record = DOCUMENTS[SAME.get(name, name)]
    objects = {one.__name__: _definition(one) for one in sorted(within((record,)), key=lambda one: one.__name__)}
    top = objects.pop(record.__name__)
    return {"$schema": _DIALECT, **top, "title": command(name), "$defs": objects}


def command(name: str) -> str:
    """What prints a document."""
    return f"bisector {name} {'--format json' if name == 'report' else '--json'}"


def within(records: Iterable[type]) -> set[type]:
    """These objects, and the objects and enumerations that are in them."""
    found, left = set[type](), list(records)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += [] if issubclass(one, Enum) else [inner for _, hint, _ in keys(one) for inner in _named_in(hint)]
    return found


def keys(record: type) -> Iterator[tuple[str, Any, str]]:
    """Each key of an object, with the type of its value and its meaning."""
    for one in members(record):
        if FLAT not in one.markers:
            pairs = PAIRS in one.markers  # which are an object
            kind = dict.__class_getitem__(get_args(get_args(one.hint)[0])) if pairs else one.hint
            yield one.key, kind, one.meaning
        elif type(None) in get_args(one.hint):
            (inner,) = (kind for kind in get_args(one.hint) if kind is not type(None))
            yield from ((key, hint | None, meaning) for key, hint, meaning in keys(inner))
        else:
            yield from keys(one.hint)


def _definition(one: type) -> Schema:
    said = sentence(one)
    if issubclass(one, Enum):
        return {"description": said, "enum": [member.value for member in one]}
    shown = {key: {"description": meaning, **_schema(hint)} for key, hint, meaning in keys(one)}
    required = [key for key, hint, _ in keys(one) if Absent not in get_args(hint)]
    return {"type": "object", "description": said, "properties": shown, "required": required}


def _schema(hint: Any) -> Schema:
    """What a value is, by its type."""
    origin, inner = get_origin(hint), tuple(one for one in get_args(hint) if one is not Absent)
    if origin in (dict, Mapping):
        shown: Schema = {"type": "object", "additionalProperties": _schema(inner[1])}
    elif origin is tuple and inner[-1] is Ellipsis:
        shown = {"type": "array", "items": _schema(inner[0])}
    elif origin is tuple:
        sizes = {"minItems": len(inner), "maxItems": len(inner), "items": False}
        shown = {"type": "array", "prefixItems": [_schema(one) for one in inner], **sizes}
    elif origin is Literal:
        shown = {"enum": sorted(inner)}
    elif inner:
        kinds = [_schema(one) for one in sorted(inner, key=lambda one: one is type(None))]  # null last
        shown = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    else:
        shown = {"type": _TYPES[hint]} if hint in _TYPES else {"$ref": f"{_REFERENCE}{hint.__name__}"}
    return shown


_TYPES = {str: "string", Path: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _named_in(hint: Any) -> list[type]:
    """The objects and enumerations that a type names."""
    if inner := get_args(hint):
        return [one for part in inner for one in _named_in(part)]
    is_named = isinstance(hint, type) and hint not in _TYPES and hint is not Absent
    return [hint] if is_named else []


def valid(name: str, printed: str) -> Any:
    """The document that a command printed; raises :class:`ValidationError`, for a key too many, too."""
    document = json.loads(printed)
    Draft202012Validator(closed(name)).validate(document)
    return document


@cache
def closed(name: str) -> Schema:
    """The schema without room for further keys."""
    whole = schema(name)
    closed = {key: _without_room(part) for key, part in whole["$defs"].items()}
    return {**_without_room(whole), "$defs": closed}


def _without_room(part: Schema) -> Schema:
    return {**part, "additionalProperties": False} if "properties" in part else part


def file_name(name: str) -> str:
    """The name of a document's file in docs/schema/."""
    return f"{name.replace(' --', ' ').replace(' ', '-')}.json"


def text(name: str) -> str:
    """The schema as it is in docs/schema/."""
    return json.dumps(schema(name), indent=2) + "\n"
