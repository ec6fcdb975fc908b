"""The units of systemd: as its own checker likes them, and with the command that they are for."""

import shutil
import tomllib
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.host import process
from bisector.nightly import plan, timer
from bisector.nightly.timer import Timer


@pytest.fixture
def wanted(tmp_path: Path) -> plan.NightPlan:
    path = tmp_path / "my 100% $nights.toml"
    path.write_text('[[job]]\nname = "one"\nrepository = "linux"\nbranch = "main"\n')
    return plan.load(path)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("system", [True, False])
def test_systemd_finds_no_fault(wanted: plan.NightPlan, tmp_path: Path, system: bool) -> None:
    paths = timer.write(Timer(wanted, "01:30", system), tmp_path / "units")
    assert [path.name for path in paths] == ["bisector-nightly.service", "bisector-nightly.timer"]
    words: list[str | Path] = ["systemd-analyze", "--man=no", *([] if system else ["--user"]), "verify", *paths]
    found = process.run(words, deadline_s=60, env={"XDG_RUNTIME_DIR": str(tmp_path)}, check=False)
    # It reads the machine's other units, too, whose sockets find a long XDG_RUNTIME_DIR too long.
    assert not [line for line in found.stderr.splitlines() if "bisector-nightly" in line]


def test_what_the_units_say(wanted: plan.NightPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Timer(wanted, "23:05", system=False, hosts=tmp_path / "hosts.toml")
    service, times = (made.files()[f"bisector-nightly.{kind}"].splitlines() for kind in ("service", "timer"))
    path = f"{wanted.path.parent}/my 100%% $nights.toml"
    (line,) = [line for line in service if line.startswith("ExecStart=")]
    quoted = path.replace("$", "$$")
    assert line.endswith(f'-m bisector nightly --config "{quoted}" --hosts {tmp_path}/hosts.toml')
    assert {f"Environment=XDG_STATE_HOME={tmp_path}/state", f"Description=bisector: a night of {path}"} <= set(service)
    with pytest.raises(UserError, match="--at 24:00"):
        Timer(wanted, "24:00", system=False)
    # Missed nights are made up for.
    assert {"OnCalendar=*-*-* 23:05:00", "Persistent=yes"} <= set(times)
    assert made.crontab().startswith("5 23 * * * ")
    assert made.crontab().endswith(rf"my 100\% $nights.toml' --hosts {tmp_path}/hosts.toml")


@pytest.mark.parametrize("system", [True, False])
def test_a_process_killed_for_want_of_memory_ends_no_night(wanted: plan.NightPlan, system: bool) -> None:
    settings = Timer(wanted, "01:30", system).files()["bisector-nightly.service"].splitlines()
    assert "OOMPolicy=continue" in settings
    assert "LimitCORE=0" in settings
    # Nothing that makes a guest wait for other processes.
    assert not [one for one in settings if one.startswith(("Nice", "CPU", "IO", "Memory"))]


def test_a_daemon_sees_our_temporary_files(wanted: plan.NightPlan) -> None:
    def private_tmp() -> str:
        text = Timer(plan.load(wanted.path), "01:30", system=True).files()["bisector-nightly.service"]
        return next(line for line in text.splitlines() if line.startswith("PrivateTmp="))

    assert private_tmp() == "PrivateTmp=yes"
    with wanted.path.open("a") as file:
        file.write('[job.settings]\nmachine.connect = "qemu:///system"\n')
    assert private_tmp() == "PrivateTmp=no"


def test_units_of_another_file_stay(wanted: plan.NightPlan, tmp_path: Path) -> None:
    timer.write(Timer(wanted, "01:30", system=False), tmp_path / "units")
    timer.write(Timer(wanted, "02:30", system=False), tmp_path / "units")
    other = tmp_path / "other.toml"
    shutil.copy(wanted.path, other)
    with pytest.raises(UserError, match="for the nights of another file"):
        timer.write(Timer(plan.load(other), "01:30", system=False), tmp_path / "units")
    assert len(timer.remove(tmp_path / "units")) == 2
    assert not list((tmp_path / "units").iterdir())


def test_example_of_the_docs_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/nightly.md").read_text(encoding="utf-8")
    (example,) = [
        block.partition("```")[0] for block in page.split("```toml\n")[1:] if "[[job]]" in block.partition("```")[0]
    ]
    assert tomllib.loads(example)["job"]
    path = tmp_path / "nightly.toml"
    path.write_text(example, encoding="utf-8")
    assert plan.load(path).jobs
