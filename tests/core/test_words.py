"""The words cross process boundaries, and every trouble is one of four kinds."""

import dataclasses
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.core import deadline, errors, events, resources, subject, trial, verdict
from bisector.core.errors import BisectorError
from bisector.core.metric import Unit
from bisector.core.shell import CommandResult
from bisector.core.subject import Change, Commit, Compiler, Kind, Mattering, NotChanged, RebuildCheck, Relevance
from bisector.core.trial import Artifact, Control, Fault, FaultKind, KernelFault, Stage, Taken
from bisector.core.verdict import SideWords, Verdict
from bisector.host import process
from bisector.trial import runner
from tests import fakes
from tests.examples import EARLY, ERA, cell
from tests.store import examples

COMMIT = Commit("6" * 40, "7" * 40, "dm cache: x", "2017-05-14T21:54:33-04:00")
TRIALS = (
    fakes.trial(COMMIT),
    fakes.trial(COMMIT, fault=fakes.PANIC),
    fakes.trial(COMMIT, fault=fakes.BUILD_ERROR),
    fakes.trial(COMMIT, same_as="8" * 40),
    examples.imported(1),
    fakes.trial(COMMIT, stopped=EARLY),
)
EVENTS = (
    events.Planned(1, COMMIT, "the broken end", 0, 0),
    events.StageStarted(COMMIT, Stage.BOOT),
    events.LiveSample("full", 501.0, Unit.IOPS, 0.5),
    events.TrialJudged(1, TRIALS[0], Verdict.OLD, "slow", SideWords()),
    events.BuildStarted(COMMIT, "ahead"),
    events.BuildEnded(COMMIT),
    events.Note("x"),
    events.OnHost("bench1", events.Note("x")),
)
PLAIN = (
    SideWords(),
    Artifact("a", "b", "c", 1),
    ERA,
    *examples.queued(1).queues,
    CommandResult("true", 0, "", ""),
    Change("drivers/md/dm.c", added=True),
    Relevance(14565, 1012),
    Taken("/runs/one", 3),
    Mattering(14565, frozenset(("a" * 40,))),
    NotChanged(Kind.PICKED, "a" * 40, "b" * 40, "conflict in drivers/md/dm.c"),
    Control("2026-03-01T10:00:00+00:00", "box", "a" * 40, Stage.BOOT, (4, 5), "panic: VFS"),
    Compiler("gcc", "gcc 12.2.0, GNU ld 2.40"),
    RebuildCheck(("c" * 64,)),
    runner.TrialRequest(3, cell(COMMIT), {"c8": "8" * 40}, stop=StopRule(1_363.0, 40.0, 20.5)),
)


def classes_of(module: object) -> Iterator[type]:
    for _, found in inspect.getmembers(module, inspect.isclass):
        if found.__module__ == getattr(module, "__name__", ""):
            yield found


def all_errors() -> Iterator[type[BaseException]]:
    for module in (errors, trial, deadline, process):
        yield from (found for found in classes_of(module) if issubclass(found, BaseException))


EXAMPLES: dict[type[BaseException], tuple[object, ...]] = {
    trial.KernelFault: (Stage.BOOT, FaultKind.PANIC, "Kernel panic", ("line",)),
    trial.AttemptFailed: ("no network", "try again", Stage.BUILD, "host"),
    trial.AttemptCancelled: ("cancelled", "", Stage.BUILD, "host"),
    deadline.DeadlineExpired: ("the ready line", 3.0),
    process.CommandMissing: ("make",),
    process.CommandFailed: (CommandResult("make", 2, "", "error"),),
    process.CommandTimeout: (("make",), 3.0),
}


@pytest.mark.parametrize("kind", list(all_errors()))
def test_every_error_survives_a_process_boundary(kind: type[BaseException]) -> None:
    made = kind(*EXAMPLES.get(kind, ("message", "hint")))
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is kind
    assert (again.args, str(again), vars(again)) == (made.args, str(made), vars(made))


@pytest.mark.parametrize("record", [*TRIALS, *EVENTS, *PLAIN], ids=lambda record: type(record).__name__)
def test_every_record_survives_a_process_boundary(record: object) -> None:
    assert pickle.loads(pickle.dumps(record)) == record


def test_every_class_of_the_model_is_among_those_tried() -> None:
    tried: set[type] = set()

    def walk(value: object) -> None:
        tried.add(type(value))
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                walk(getattr(value, field.name))
        elif isinstance(value, tuple):
            for item in value:
                walk(item)

    for record in (*TRIALS, *EVENTS, *PLAIN):
        walk(record)
    modules = (subject, trial, verdict, events)
    wanted = {found for module in modules for found in classes_of(module) if dataclasses.is_dataclass(found)}
    assert wanted | {CommandResult} <= tried


EXIT_CODES: dict[type[BaseException], int] = {
    errors.BisectorError: 70,
    errors.UserError: 2,
    errors.EndsDoNotReproduce: 1,
    errors.InfraError: 4,
    trial.AttemptFailed: 4,
    trial.AttemptCancelled: 4,
    trial.TrialRefused: 2,
    errors.Interrupted: 130,
    trial.KernelFault: 4,
}


def test_exit_codes_are_those_of_the_contract() -> None:
    assert {kind: kind.exit_code for kind in all_errors() if issubclass(kind, BisectorError)} == EXIT_CODES


def test_fault_of_a_kernel_is_of_printable_words() -> None:
    said = "\x1b]52;c;c3Rvcnk=\x07boot\x9b2J\u202efault\tx" + "y" * 5000
    raised = KernelFault(Stage.BOOT, FaultKind.PANIC, said, (said, "\x1b[31mred\x1b[0m"))
    assert raised.reason.startswith("bootfault x")
    assert len(raised.reason) <= 4000
    assert raised.reason.isprintable()
    assert raised.tail == (raised.reason, "red")
    assert raised.fault == Fault(Stage.BOOT, FaultKind.PANIC, raised.reason, raised.tail)
    assert str(raised) == raised.reason
    assert pickle.loads(pickle.dumps(raised)).args == raised.args


def test_deadline_says_what_was_waited_for() -> None:
    answers = iter([None, None, "ready"])
    assert deadline.Deadline("the ready line", 5.0).poll(lambda: next(answers), every_s=0.001) == "ready"
    with pytest.raises(deadline.DeadlineExpired, match=r"the ready line not seen within 0\.01 s"):
        deadline.Deadline("the ready line", 0.01).poll(lambda: None, every_s=0.001)


def test_missing_program_and_failed_command_are_told_apart() -> None:
    with pytest.raises(process.CommandMissing, match="no-such-program: command not found"):
        process.run(["no-such-program"], deadline_s=10)
    with pytest.raises(process.CommandFailed, match="exit status 3: said why"):
        process.run(["sh", "-c", "echo said why >&2; exit 3"], deadline_s=10)


def test_caches_are_where_the_specification_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert resources.cache_home() == tmp_path / "bisector"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resources.cache_home() == tmp_path / ".cache" / "bisector"
