"""The files that settings name: lines of bisector.toml, job files, and those that bisector brings."""

from pathlib import Path

import pytest

from bisector.config import options
from bisector.core import resources
from bisector.core.errors import InfraError, UserError
from tests.config.given import from_argv, load_toml


def test_incomplete_installation(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setattr(resources, "ROOT", directory)
    with pytest.raises(InfraError, match=r"the installation is incomplete: .*kconfigs is missing"):
        resources.kconfigs()


def own_file(text: str) -> Path:
    """A person's own settings, for all runs."""
    path = resources.config_home() / "bisector.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.usefixtures("home")
def test_a_persons_own_file_counts_below_that_of_the_directory() -> None:
    own = own_file("[machine]\nvcpus = 3\n[workload]\nruntime = '50s'\n[storage.hdd]\npath = '.'\n")
    found = load_toml("[workload]\nruntime = '60s'\n")
    assert (found.settings.machine.vcpus, found.settings.workload.runtime_s) == (3, 60)
    assert found.settings.storage.disks["hdd"].path == str(own.parent)
    assert found.origins["machine.vcpus"] == str(own)
    assert found.origins["workload.runtime"] == "bisector.toml"
    assert from_argv("--runtime", "70s").settings.workload.runtime_s == 70
    Path("other.toml").write_text("")
    other = options.load(config=Path("other.toml")).settings
    assert (other.machine.vcpus, other.workload.runtime_s) == (3, 50)


@pytest.mark.usefixtures("home")
def test_a_workload_of_the_directory_takes_the_place_of_a_persons_usual_one() -> None:
    own_file("[workload]\nkind = 'command'\n[workload.command]\nline = 'sync'\n")
    assert load_toml("[workload]\njob = 'partial'\n").settings.workload.kind == "fio"


@pytest.mark.usefixtures("home")
def test_what_is_wrong_in_a_persons_own_file_is_told_with_its_path() -> None:
    own = own_file("[machine]\nvpcus = 3\n")
    with pytest.raises(UserError, match=f"^{own}: there is no setting machine.vpcus"):
        options.load()
