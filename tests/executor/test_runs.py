"""Which runs a trial has on this host, on which disks and layers, and with what each of them is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.shell import Step
from bisector.core.subject import Cell, Subject
from bisector.storage import layers
from bisector.storage.disks import kernel_fault
from bisector.storage.layer import Counters, Layer, LayerPlan, Phase, Readings, Site
from bisector.storage.stack import stack_of
from bisector.trial.runner import TrialRequest
from bisector.workload.fio.fio import Fio
from tests import fakes
from tests.executor.bench import COMMIT, RULE, Workload, local, settings_of
from tests.guestshell import Answer, FakeShell

PHASES = {"lvmcache": ["empty", "full"], "ssd": ["ssd"], "hdd": ["hdd"], "lvmcache(hdd,ssd)+ext4": ["empty", "full"]}


@pytest.mark.parametrize(
    ("stack", "on", "attached"),
    [("lvmcache", "lvmcache", ("ssd", "hdd")), ("ssd", "ssd", ("ssd",)), ("lvmcache", "hdd", ("hdd",))],
)
def test_only_the_disks_of_the_stack_are_attached(
    stack: str, on: str, attached: tuple[str, ...], tmp_path: Path, workload: Workload
) -> None:
    seen: list[tuple[str, ...]] = []
    request = TrialRequest(1, Cell(Subject(COMMIT), settings_of(on).setup), {})
    fakes.measured(local(tmp_path, settings_of(stack), attached=seen), request)
    assert seen == [attached]
    assert workload.laid_out == [on]


class Mirror(Layer):
    """A layer of another package: a mirror with a run before the judged one."""

    name = "mirror"
    needs = ("one half", "other half")
    tools = ("mirrorctl",)
    phases = (Phase("first", judged=False), Phase("second"))

    def make(self, site: Site) -> LayerPlan:
        one, other = site.below
        counters = Counters(lambda shell: 1, lambda before, after: [("cache.promotions", before + after)])
        return LayerPlan("/dev/mirror", (Step(f"mirrorctl {one.path} {other.path}", kernel_fault),), counters=counters)


def test_a_trial_runs_on_a_layer_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers.register(mirror := Mirror)
    try:
        settings = settings_of("mirror(ssd,hdd)+ext4")
        shell = FakeShell({"stat -L": Answer("fe:10\nfe:20\n"), "stat -f": Answer("235000 4096\n")})
        workload = Workload()
        monkeypatch.setattr(Fio, "run", lambda own, site: workload.run(own, site))  # noqa: PLW0108 - as a method it gets the workload
        seen: list[tuple[str, ...]] = []
        trial = fakes.measured(
            local(tmp_path, settings, attached=seen, guest=shell),
            TrialRequest(1, Cell(Subject(COMMIT), settings.setup), {}, stop=RULE),
        )
    finally:
        layers.forget(mirror.name)
    assert (trial.fault, [run.name for run in trial.runs]) == (None, ["first", "second"])
    assert seen == [("ssd", "hdd")]
    assert workload.rules == [None, RULE]
    (script,) = (one for one in tmp_path.rglob("storage.txt"))
    made = script.read_text(encoding="utf-8").splitlines()
    assert made[0] == "mirrorctl /dev/disk/by-id/virtio-ssd /dev/disk/by-id/virtio-hdd"
    assert made[1].endswith(" /dev/mirror")
    assert workload.stacks[0].counted(Readings((3,)), Readings((4,))) == (("cache.promotions", 7),)


def test_a_guest_has_the_parameters_of_the_trial(tmp_path: Path, workload: Workload) -> None:
    settings, seen = settings_of("hdd"), list[tuple[str, ...]]()
    own = replace(settings, machine=replace(settings.machine, append="mitigations=off"))
    request = TrialRequest(1, Cell(Subject(COMMIT), settings.setup), {}, settings=own)
    fakes.measured(local(tmp_path, settings, attached=seen), request)
    assert seen == [("hdd", "mitigations=off")]


@pytest.mark.parametrize("stack", PHASES)
def test_runs_are_those_of_the_stack(stack: str, tmp_path: Path, workload: Workload) -> None:
    settings = settings_of(stack)
    request = TrialRequest(1, Cell(Subject(COMMIT), settings.setup), {}, stop=RULE)
    trial = fakes.measured(local(tmp_path, settings), request)
    *filling, judged = PHASES[stack]
    assert [run.name for run in trial.runs] == [*filling, judged]
    assert workload.laid_out == [stack]
    assert workload.kept_files == [*(True for _ in filling), False]
    assert workload.rules == [*(None for _ in filling), RULE]


def test_only_a_cache_has_to_be_filled_by_a_run() -> None:
    for text, names in PHASES.items():
        phases = stack_of(text).phases
        assert [phase.name for phase in phases] == names
        assert [phase.judged for phase in phases] == [*(False for _ in names[1:]), True]
