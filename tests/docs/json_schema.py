"""JSON schemas of what the commands print (docs/schema/), from the records that they print.

msgspec makes the schema of the types. To it is added what stands beside each type; and that each key is there, whatever
default the record has, unless it may be absent.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from jsonschema import Draft202012Validator

from bisector.commands.kernel import KernelBuild
from bisector.commands.runs import Runs
from bisector.commands.simulate import Simulation
from bisector.commands.upkeep import Caches
from bisector.compare.forecast import ComparisonForecast
from bisector.core.examination import Examination
from bisector.core.json_document import Absent, Record
from bisector.executor.fleet_status import FleetStatus
from bisector.fleet.documents import FleetMade, HostAdded, HostRemoved, HostsExamination
from bisector.nightly.documents import DryRun, History, OneNight
from bisector.plan.forecast import Forecast
from bisector.report.as_json import ReportDocument
from bisector.report.comparison_document import ComparisonDocument
from bisector.status.document import Baselines, Status, TestedCommit, VerdictTable

# What prints each, as a name of a file.
DOCUMENTS: Mapping[str, type[Record]] = {
    "status": Status,
    "runs": Runs,
    "report": ReportDocument,
    "table": VerdictTable,
    "baselines": Baselines,
    "test": TestedCommit,
    "plan": Forecast,
    "compare": ComparisonDocument,
    "compare --plan": ComparisonForecast,
    "simulate": Simulation,
    "doctor": Examination,
    "cache": Caches,
    "kernel build": KernelBuild,
    "history": History,
    "nightly": OneNight,
    "nightly --dry-run": DryRun,
    "doctor --hosts": HostsExamination,
    "fleet init": FleetMade,
    "fleet add": HostAdded,
    "fleet remove": HostRemoved,
    "fleet status": FleetStatus,
    "fleet drain": FleetStatus,
    "fleet release": FleetStatus,
}
Schema: TypeAlias = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = "#/$defs/"
_NULL: Schema = {"type": "null"}


@cache
def schema(name: str) -> Schema:
    """The schema of a document; it allows keys that are not there yet."""
    record = DOCUMENTS[name]
    objects = definitions((record,))
    top = objects.pop(record.__name__)
    return {"$schema": _DIALECT, **top, "title": command(name), "$defs": objects}


def command(name: str) -> str:
    """What prints a document."""
    return f"bisector {name} {'--format json' if name == 'report' else '--json'}"


def definitions(records: Iterable[type]) -> dict[str, Schema]:
    """The schema of each record that is in one of these, by its name, and of each enumeration."""
    _, found = msgspec.json.schema_components(tuple(records), ref_template=_REFERENCE + "{name}", schema_hook=_other)
    for one in within(records):
        if issubclass(one, Enum):
            found[one.__name__] |= {"description": _first_paragraph(one), "enum": [member.value for member in one]}
        else:
            _describe(found[one.__name__], one)
    return dict(sorted(found.items()))


def within(records: Iterable[type]) -> set[type]:
    """These records, and the records and enumerations that are in them."""
    return {inner for outer in records for inner in _types(outer)}


def objects_in(record: type) -> set[type]:
    """A record, and the records that are in it."""
    return {one for one in within((record,)) if not issubclass(one, Enum)}


def _other(hint: type) -> Schema:
    if hint is Path:
        return {"type": "string"}
    raise NotImplementedError(hint)


def _describe(shown: Schema, record: type) -> None:
    """A description of every key, and which keys are always there."""
    hints, absent = get_type_hints(record, include_extras=True), set()
    for field, key in _keys(record):
        part = shown["properties"][key]
        part.pop("default", None)
        part.get("anyOf", []).sort(key=_NULL.__eq__)  # null last, whichever version of msgspec made it
        (meaning,) = (text for text in getattr(hints[field], "__metadata__", ()) if isinstance(text, str))
        shown["properties"][key] = {"description": meaning, **part}
        if Absent in get_args(get_args(hints[field])[0]):
            absent.add(key)
    shown["required"] = [key for key in shown["properties"] if key not in absent]
    shown["description"] = _first_paragraph(record)


def _keys(record: type) -> Iterator[tuple[str, str]]:
    """Each field that is a key, and the key."""
    if dataclasses.is_dataclass(record):
        return ((field.name, field.name) for field in dataclasses.fields(record))
    assert issubclass(record, msgspec.Struct)
    return zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True)


def _types(hint: Any) -> Iterator[type]:
    """A record or an enumeration, and those that are in it."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        yield hint
    elif isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        yield hint
        hints = get_type_hints(hint)
        for field, _ in _keys(hint):
            yield from _types(hints[field])
    elif get_origin(hint) is Annotated:
        yield from _types(get_args(hint)[0])
    else:
        for part in get_args(hint):
            yield from _types(part)


def _first_paragraph(record: type) -> str:
    return " ".join((record.__doc__ or "").partition("\n\n")[0].split()).replace("``", "`")


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
