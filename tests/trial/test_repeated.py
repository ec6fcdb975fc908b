"""Trials of the workloads that repeat a command, from the settings to the figure that decides."""

from pathlib import Path

import pytest

from bisector.analysis.judgement import judged_run
from bisector.core.objective import Objective
from bisector.core.trial import Stage, TrialRefused
from bisector.workload.repetitions import CARRIED, OUTPUTS
from tests.guestshell import Answer
from tests.trial.place import Place, sound_but
from tests.vm.fake_guest import Script

SCRIPT = f"bash {OUTPUTS}/script"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def repetitions(*outputs: str, status: int = 0) -> Answer:
    """What the script of repetitions tells of as many as there are outputs; the last one ends with the status."""
    lines, files = ["", "@uptime 10.00"], {}
    for n, output in enumerate(outputs, 1):
        ended = status if n == len(outputs) else 0
        lines += [f"@time {n}.250 0.500 0.125", f"@exit {n} {ended} {len(output)} 0"]
        files[f"{OUTPUTS}/out.{n}"] = output
    lines += ["", "@uptime 20.00"]
    return Answer("", "\n".join(lines) + "\n", 1 if status else 0, 10.0, files)


def script(ran: Answer) -> Script:
    made = {
        f"mkdir {OUTPUTS} {CARRIED}": Answer(files={OUTPUTS: None, CARRIED: None}),
        f"stat -f -c '%a %S' {CARRIED}": Answer("100000 4096\n"),
    }
    return sound_but({SCRIPT: ran, **made})


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bench.sh").write_text("echo tps=1\n", encoding="utf-8")
    return {
        "workload.command.line": "sh $CARRIED/bench.sh",
        "workload.command.carry": f"{tmp_path}/bench.sh",
        "workload.command.figures": "tps=1/s,higher",
        "workload.command.size": "128MiB",
    }


def test_command_is_measured_in_each_phase(place: Place, given: dict[str, str]) -> None:
    place.play(script(repetitions("tps=7\n", "tps=9\n", "tps=8\n")))
    trial = place.measure(given=given)
    assert (trial.fault, trial.stage, [run.name for run in trial.runs]) == (None, Stage.DONE, ["empty", "full"])
    values = dict(judged_run(trial).counters)
    assert (values["custom:tps:1/s:higher"], values["elapsed"]) == (8.0, 2.25)
    assert values["cpu"] == pytest.approx(100 * 0.625 / 2.25)
    assert Objective("custom:tps:1/s:higher").deciding_text(judged_run(trial)) == "8.00 /s (custom:tps)"
    kept = {artifact.name for artifact in trial.artifacts}
    assert {"full/repetitions.json", "full/output.1.txt", "full/output.3.txt"} <= kept
    assert place.hypervisor.computers[-1].files.joinpath(CARRIED[1:], "bench.sh").read_text() == "echo tps=1\n"


def test_command_that_fails_is_the_kernels_fault_and_what_it_printed_is_kept(
    place: Place, given: dict[str, str]
) -> None:
    place.play(script(repetitions("tps=7\n", "cannot read\n", status=5)))
    trial = place.measure(given=given)
    assert trial.fault is not None
    assert trial.fault.reason == "the command: exit 5: cannot read in repetition 2"
    assert "empty/output.2.txt" in {artifact.name for artifact in trial.artifacts}


def test_command_without_a_figure_stops_the_bisection(place: Place, given: dict[str, str]) -> None:
    place.play(script(repetitions("done\n", "done\n", "done\n")))
    with pytest.raises(TrialRefused, match="it ended well and printed no figure tps") as caught:
        place.measure(given=given)
    assert caught.value.exit_code == 2
