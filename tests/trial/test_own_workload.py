"""A workload of another package: registered with one call, set, checked, run, and judged by what it measures."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from bisector.analysis.judgement import judged_run
from bisector.config import options
from bisector.core.deadline import Deadline
from bisector.core.errors import UserError
from bisector.core.figures import Run
from bisector.core.metric import Better, Metric, Unit
from bisector.core.objective import Objective
from bisector.core.setting import Meta, Option, Problem, Size
from bisector.core.trial import Stage
from bisector.host.process import run_here
from bisector.nightly.plan import conditions
from bisector.storage.layer import Files
from bisector.workload import workloads
from bisector.workload.base import RunSite, Workload, timed, watched
from tests.guestshell import Answer
from tests.trial.place import Place, sound_but

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Untar(Workload):
    """How long it takes to unpack an archive onto the stack."""

    name = "untar"
    metrics = (Metric("untar.elapsed", Unit.SECONDS, Better.LOWER, "time until all of it is on disk"),)
    archive: Annotated[Path, Option("workload.untar.archive", "/", "archive to unpack")]
    size_bytes: Annotated[Size, Meta(ge=1), Option("workload.untar.size", "64MiB", "what it unpacks to, bytes")]

    def inputs(self) -> dict[str, Path]:
        return {"archive": self.archive}

    def files(self) -> Files:
        return Files(self.size_bytes, "what the archive has", self.size_bytes, ("workload.untar.size",))

    def problems(self) -> Iterator[Problem]:
        if self.archive.suffix != ".tar":
            yield Problem(("workload.untar.archive",), "it is no archive of tar")

    def run(self, site: RunSite) -> Run:
        deadline = Deadline("the end of tar", site.deadline_s)
        unpack = f"mkdir {site.stack.mountpoint}/{site.name} && tar -xf - && sync"
        ran = watched(site, timed(unpack), lambda line: None, deadline)
        return ran.run(values=[("untar.elapsed", ran.clocks.host_and_guest_s(())[1])])


@pytest.fixture
def untar() -> Iterator[type[Untar]]:
    workloads.register(Untar)
    yield Untar
    workloads.forget("untar")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "linux.tar"
    path.write_text("an archive", encoding="utf-8")
    return path


UNPACKED = Answer("", "\n@uptime 10.00\ntar: a warning\n\n@uptime 52.50\n", takes_s=42.5)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.usefixtures("untar")
def test_a_trial_runs_it_in_each_phase_and_has_its_metric(place: Place, archive: Path) -> None:
    place.play(sound_but({"tar -xf": UNPACKED}))
    given = {"workload.kind": "untar", "workload.untar.archive": str(archive), "bisect.metric": "untar.elapsed"}
    trial = place.measure(given=given)
    assert (trial.fault, trial.stage, [run.name for run in trial.runs]) == (None, Stage.DONE, ["empty", "full"])
    assert [dict(run.counters)["untar.elapsed"] for run in trial.runs] == [42.5, 42.5]
    assert [command.count("tar -xf") for command in place.commands if "tar -xf" in command] == [1, 1]
    assert not any("fio" in command for command in place.commands)
    run, objective = judged_run(trial), Objective("untar.elapsed")
    assert (objective.deciding_text(run), run.aside_s) == ("42.5 s (untar.elapsed)", 0.0)
    assert objective.score(objective.value(run)) < objective.score(40.0)
    assert run.cache_after is not None
    assert run.contention is not None


def loaded(archive: Path, **more: str) -> options.Effective:
    given = {"workload.kind": "untar", "workload.untar.archive": str(archive)}
    return options.load(given | more, directory=Path("/"))


@pytest.mark.usefixtures("untar")
def test_figures_of_nights_are_comparable_as_long_as_its_input_is_the_same(archive: Path) -> None:
    before = conditions(loaded(archive).settings)
    assert conditions(loaded(archive).settings) == before
    archive.write_text("another archive", encoding="utf-8")
    assert conditions(loaded(archive).settings) != before


@pytest.mark.usefixtures("untar")
def test_its_settings_are_read_checked_recorded_and_shown(archive: Path) -> None:
    settings = loaded(archive).settings
    assert settings.workload.workload == Untar(archive, 64 * MIB)
    assert (settings.workload.runtime_s, settings.machine.trial_deadline_s) == (0.0, 1200.0)
    assert options.from_json(options.to_json(settings)) == settings
    assert {row.key: row.value for row in options.describe(loaded(archive))}["workload.untar.size"] == "64MiB"
    with pytest.raises(UserError, match=r"workload\.untar\.archive = .*: it is no archive of tar"):
        loaded(Path("/etc/passwd"))
    with pytest.raises(UserError, match=r"workload\.untar\.size = 16MiB.*which never fills the cache"):
        loaded(archive, **{"workload.untar.size": "16MiB"})
    with pytest.raises(UserError, match=r"workload\.kind: there is no workload tar: expected one of .*, untar"):
        options.load({"workload.kind": "tar"}, directory=Path("/"))


def test_a_metric_that_it_has_not_is_refused_before_the_search(untar: type[Untar], archive: Path) -> None:
    own = loaded(archive).settings.workload.workload
    own.check(Objective("untar.elapsed"), run_here)
    with pytest.raises(UserError, match=r"no run of untar has read\.iops") as caught:
        own.check(Objective(), run_here)
    assert caught.value.hint == "its metrics are: untar.elapsed"


def test_a_name_and_a_setting_are_of_one_workload_alone(untar: type[Untar]) -> None:
    with pytest.raises(ValueError, match="a workload called untar already"):
        workloads.register(untar)

    class Other(Untar):
        name = "other"

    with pytest.raises(ValueError, match=r"another workload has the setting workload\.untar\.archive"):
        workloads.register(Other)
    assert [*workloads.WORKLOADS][-1] == "untar"
