"""JSON documents for scripts, printed from typed records.

A document is a :class:`Record`; the objects in it are records and dataclasses. A field's type is what its key holds,
and what it means, with the unit, stands beside the type: ``Annotated[float, "seconds of the build"]``. The schemas in
docs/schema/ are generated from these, and tests hold what commands print to them.
Objects that documents of several rooms have stand here, too.
"""

import json
import math
from pathlib import Path
from typing import Annotated, Self, TypeVar

import msgspec
from msgspec import UNSET as ABSENT
from msgspec import UnsetType as Absent

from bisector.core.metric import Better, Unit
from bisector.core.objective import Objective
from bisector.core.subject import Commit

__all__ = ["ABSENT", "SCHEMA", "Absent", "DecidingMetric", "NamedCommit", "Record", "parsed", "plain", "text"]

SCHEMA = "counts up when a key is renamed, removed or changes its meaning; new keys may come at any time"


Document = TypeVar("Document", bound="Record")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a document; its keys are its fields, in their order.

    A field that is :data:`ABSENT` has no key. A key that is a word of Python is named with ``rename``.
    """


def plain(value: object) -> object:
    """A record, or anything made of records, in JSON's own types; what JSON cannot say (NaN, infinity) is null.

    Strings stay as git, the kernel and fio gave them, halves of surrogate pairs included.
    """
    return _finite(msgspec.to_builtins(value, enc_hook=_other))


def text(document: Record) -> str:
    """The document as it is printed."""
    return json.dumps(plain(document), indent=2) + "\n"


def parsed(text: str, kind: type[Document]) -> Document:
    """The record that another bisector has printed; keys that it does not have yet are passed over.

    Raises ``ValueError`` for anything else.
    """
    try:
        return msgspec.convert(json.loads(text), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _other(value: object) -> object:
    """What msgspec has no form for."""
    match value:
        case Path():
            return str(value)
        case float():  # numpy's own
            return float(value)
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


def _finite(value: object) -> object:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


class NamedCommit(Record, frozen=True, kw_only=True):
    """A commit."""

    sha: Annotated[str, "hash; of an import as short as it was recorded, or the kernel's name"]
    subject: Annotated[str, "subject line"]
    committed_at: Annotated[str, "time of the commit"]

    @classmethod
    def of(cls, commit: Commit) -> Self:
        """Without its tree, which no script asks for."""
        return cls(sha=commit.sha, subject=commit.subject, committed_at=commit.committed_at)


class DecidingMetric(Record, frozen=True, kw_only=True):
    """What decides."""

    metric: Annotated[str, "the [metric](metrics.md)"]
    over: Annotated[str, "what several jobs amount to: `worst`, `sum`, `mean`, or the name of the job that counts"]
    unit: Annotated[Unit, "of its values"]
    better: Annotated[Better, "which of its values are better"]

    @classmethod
    def of(cls, objective: Objective) -> Self:
        """With what the metric's definition says."""
        unit = objective.definition.unit
        return cls(metric=objective.metric, over=objective.over, unit=unit, better=objective.better)
