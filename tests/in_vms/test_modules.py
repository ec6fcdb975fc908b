"""A kernel whose cache target and policy are modules: built, packed, mounted, loaded by their names, measured."""

from pathlib import Path

import pytest

from tests.demo.history import History
from tests.docs.json_schema import valid
from tests.in_vms.conftest import MODULES, SHORT, Tool

pytestmark = pytest.mark.vm


def test_a_stack_of_modules(tool: Tool, demo: History, tmp_path: Path) -> None:
    fragment = tmp_path / "modules.config"
    fragment.write_text(MODULES)
    tested = tool(
        *("test", demo.new, "--repo", tool.repo, "--json", "--quiet"),
        *("--fragment", "auto", "--fragment", fragment, *SHORT),
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    trial = valid("test", tested.stdout)
    assert trial["stage"] == "done"
    config = (Path(trial["run_dir"]) / "trials").glob("*/kernel.config")
    assert all("CONFIG_DM_CACHE_SMQ=m\n" in path.read_text() for path in config)
    # Neither the target nor its policy is in the image, so both came from the file system of the modules.
    assert trial["runs"][0]["cache"]["after"]["policy"] == "smq"
    assert trial["kernel"]["unmet"] == []
    assert trial["kernel"]["modules"].endswith("/modules.ext4")
