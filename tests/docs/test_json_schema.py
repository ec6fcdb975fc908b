"""Every document that a command prints has a schema, and the schema refuses what it does not name."""

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import numpy as np
import pytest

from bisector import cli
from bisector.core.json_document import ABSENT, Absent, JsonObject, plain, text
from bisector.core.trial import Stage
from tests.docs import json_schema

# Documents that ``--json`` alone does not print.
MORE = {"compare --plan", "doctor --hosts", "nightly --dry-run", "report"}


def commands_with_json(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from commands_with_json(inner, (*words, word))
        elif "--json" in action.option_strings:
            yield " ".join(words)


def test_every_command_with_json_has_a_schema() -> None:
    assert {*commands_with_json(cli.parser())} == (json_schema.DOCUMENTS.keys() | json_schema.SAME) - MORE


@pytest.mark.parametrize("name", json_schema.DOCUMENTS)
def test_schemas_are_valid_and_name_each_record_once(name: str) -> None:
    whole = json_schema.schema(name)
    jsonschema.Draft202012Validator.check_schema(whole)
    for part in (whole, *whole["$defs"].values()):
        for key, value in part.get("properties", {}).items():
            assert value["description"], key
            assert "default" not in value, key


@dataclasses.dataclass(frozen=True, slots=True)
class Inner:
    """An inner object, with ``code`` in its words.

    What only a reader of the source has to know.
    """

    stage: Annotated[Stage, "how far it came"]
    seconds: Annotated[float | None, "seconds, or `null`"] = None
    pairs: Annotated[tuple[tuple[str, float], ...], "pairs"] = ()


class Outer(JsonObject, frozen=True, kw_only=True, rename={"before": "from"}):
    """A document."""

    before: Annotated[int, "a number"]
    path: Annotated[Path, "a path"]
    inner: Annotated[tuple[Inner, ...], "objects"] = ()
    named: Annotated[dict[str, float], "by name"]
    extra: Annotated[str | Absent, "only sometimes"] = ABSENT


@pytest.fixture
def outer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "DOCUMENTS", {"outer": Outer})
    json_schema.schema.cache_clear()
    json_schema.closed.cache_clear()


@pytest.mark.usefixtures("outer")
def test_a_document_and_its_schema() -> None:
    made = Outer(
        before=1,
        path=Path("/x"),
        inner=(Inner(Stage.BUILD, float("nan"), (("a", 1.0),)),),
        named={"b": np.float64(2.0)},
    )
    shown = {
        "from": 1,
        "path": "/x",
        "inner": [{"stage": "build", "seconds": None, "pairs": [["a", 1.0]]}],
        "named": {"b": 2.0},
    }
    assert plain(made) == shown == json_schema.valid("outer", text(made))
    whole = json_schema.schema("outer")
    assert whole["required"] == ["from", "path", "inner", "named"]
    assert whole["$defs"]["Inner"]["required"] == ["stage", "seconds", "pairs"]
    assert whole["$defs"]["Inner"]["description"] == "An inner object, with `code` in its words."
    assert "additionalProperties" not in whole


INNER: dict[str, Any] = {"stage": "build", "seconds": None, "pairs": []}
GOOD: dict[str, Any] = {"from": 1, "path": "/x", "inner": [INNER], "named": {}}
BAD = {
    "a key too many": GOOD | {"more": 1},
    "a key too many inside": GOOD | {"inner": [INNER | {"more": 1}]},
    "a key that is missing": {key: value for key, value in GOOD.items() if key != "path"},
    "a key with a default that is missing": GOOD | {"inner": [{"stage": "build", "pairs": []}]},
    "null where nothing says so": GOOD | {"path": None},
    "another type": GOOD | {"from": "1"},
    "a word that is none": GOOD | {"inner": [INNER | {"stage": "built"}]},
    "a name of the record": {"before": 1, **GOOD},
}


@pytest.mark.usefixtures("outer")
@pytest.mark.parametrize("why", BAD)
def test_what_the_schema_refuses(why: str) -> None:
    assert json_schema.valid("outer", json.dumps(GOOD)) == GOOD
    with pytest.raises(jsonschema.ValidationError):
        json_schema.valid("outer", json.dumps(BAD[why]))


def test_a_schema_has_one_definition_for_each_name() -> None:
    names = [record.__name__ for record in json_schema.within(json_schema.DOCUMENTS.values())]
    assert len(names) == len(set(names))
