"""What scripts read of a comparison."""

import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.json_document import text
from bisector.core.verdict import State
from tests.docs.json_schema import valid
from tests.report import comparison_examples as examples


def test_json_has_every_value_and_what_was_said() -> None:
    printed = valid("compare", text(examples.usual()))
    assert [one["value"] for one in printed["rows"][0]["values"][:2]] == [412.0, 491.0]
    (change,) = printed["rows"][0]["changes"]
    assert (change["outcome"], change["blocks"], change["scale"]) == ("faster", 6, "ratio")
    assert change["low"] < change["estimate"] < change["high"]
    assert printed["rows"][2]["absent"] == {"v6.10": "needs CONFIG_DM_WRITECACHE"}
    assert printed["rows"][2]["changes"][0]["outcome"] is None
    assert {row["deciding"] for row in printed["exploratory"]} == {False}
    assert {change["outcome"] for row in printed["exploratory"] for change in row["changes"]} == {None}
    assert printed["arms"][0]["config_sha256"] == "0123456789abcdef" * 4
    assert len(printed["blocks"]) == 18


def test_json_says_how_it_stands_and_what_to_type() -> None:
    """A script does not read sentences; only a comparison's document has the key ``arms``."""
    made = examples.usual()
    printed = json.loads(text(made))
    assert (printed["state"], printed["run_dir"], printed["resume_command"]) == ("measured", "/runs/a b", None)
    typed = "bisector resume --run-dir '/runs/a b'"
    stopped = json.loads(text(replace(made, state=State.STOPPED, resume_command=typed)))
    assert (stopped["state"], stopped["resume_command"]) == ("stopped", typed)


def test_json_has_what_a_kernel_changes_on_either_stack() -> None:
    printed = json.loads(text(examples.usual()))
    (one,) = printed["stacks"]
    assert (one["arm"], one["first"], one["stack"], one["metric"]) == (
        "v6.11", "lvmcache(ssd,hdd)+ext4", "bcache(ssd,hdd)+ext4", "read.iops",
    )  # fmt: skip
    assert one["low"] < one["estimate"] < one["high"] < 1
    assert one["p"] <= one["adjusted_p"] < 0.0001
    assert printed["tested"] == 2


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq here")
@pytest.mark.parametrize(("example", "code"), [("usual", 0), ("matrix", 1), ("unclear", 0)])
def test_jq_of_the_page_about_json_fails_what_is_slower(example: str, code: int) -> None:
    """The command of docs/json.md as it stands there."""
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if "| jq -e " in line and "slower" in line)
    words = shlex.split(line.partition(" | ")[2].partition("    #")[0])
    found = subprocess.run(words, input=text(getattr(examples, example)()), text=True, capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (code, "")


def test_json_of_one_block_has_no_interval() -> None:
    one = {arm: values[:1] for arm, values in examples.FASTER.items()}
    (change,) = json.loads(text(examples.report(examples.measured(one))))["rows"][0]["changes"]
    assert (change["low"], change["high"], change["p"], change["exact_p"]) == (None, None, 1.0, 1.0)
    assert change["estimate"] == pytest.approx(491 / 412)
