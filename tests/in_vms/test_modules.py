"""A kernel whose cache target and policy are modules: built, packed, mounted, loaded by their names, measured."""

from pathlib import Path

import pytest

from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool

pytestmark = pytest.mark.vm


def test_a_stack_of_modules(tool: Tool, demo: History) -> None:
    trial = tool.trial(demo.new, *SHORT)
    assert trial["stage"] == "done"
    (config,) = (Path(trial["run_dir"]) / "trials").glob("*/kernel.config")
    assert "CONFIG_DM_CACHE_SMQ=m\n" in config.read_text()
    # Neither the target nor its policy is in the image, so both came from the file system of the modules.
    assert trial["runs"][0]["cache_after"]["policy"] == "smq"
    assert trial["kernel"]["unmet"] == []
    assert trial["kernel"]["modules"].endswith("/modules.ext4")
