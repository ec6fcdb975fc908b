"""A sound end tried again: where that is due, and where what presents as ours may be a commit's doing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import NoReturn

from bisector.analysis.controls import Due, can_be_vouched_for, reach, speaks_for
from bisector.bisect.retry import Attempts
from bisector.core.errors import AttemptFailed, InfraError, TrialRefused
from bisector.core.events import Note, Planned
from bisector.core.model import Commit, Control, Fault, FaultKind, Stage, Trial
from bisector.executor.base import Engine
from bisector.host.load import host_id
from bisector.store.store import Store

# A commit is tried so often before a sound end is: while that answers, waiting longer is of no use.
_TRIED_FIRST = 2
_WHAT_CHANGED = (
    "the host has changed since that end was measured: an upgrade of QEMU, the compiler or a header, the guest image,"
    " a disk, memory; its logs are in {logs}. What failed meanwhile is tried again by resume"
)


@dataclass(frozen=True, slots=True)
class Controls:
    """Tries ``end``, which was measured soundly and is called the ``word`` end."""

    end: Commit
    word: str
    engine: Engine
    store: Store
    attempts: Attempts

    def make(self, due: Due) -> None:
        """Try the end again, and record how it fared.

        Raises :class:`InfraError` when it fails now: the faults that it was asked about are doubted from then on.
        """
        count = len(due.trials)
        faults = "a fault" if count == 1 else f"{count} faults"
        self._note(f"{faults} at stage {due.stage}: does {self._name} still work?")
        fault = self._tried(due.stage)
        self.store.add_control(self._control(due.stage, fault, due.trials))
        if fault is not None:
            raise InfraError(
                f"{self._name}, which was measured before, fails now: {fault.sentence};"
                f" so {faults} before it may well be this host's",
                self._what_changed(due.stage),
            )
        self._note(f"{self._name} still works: {'that is' if count == 1 else 'those are'} of the commits themselves")

    def measured(self, commit: Commit, attempt: Callable[[], Trial]) -> tuple[Trial, Control | None]:
        """The facts of a trial; with a control, its fault is what presented as ours, and no end shows it.

        Between two attempts that fail a sound end answers: trouble that has passed meanwhile is not put down to the
        commit. No end answers for a checkout, or for an attempt without facts: those are tried again as any trouble of
        ours is, and then raised. Raises what an attempt raised also when the end fails as well.
        """
        answered: list[Control] = []
        attempts, all_tried = self.attempts.at_most(_TRIED_FIRST), False
        while True:
            try:
                trial = attempts.at(commit, attempt)
            except (AttemptFailed, TrialRefused) as error:
                facts = error.trial
                if facts is None or not can_be_vouched_for(facts.stage):
                    if all_tried:
                        raise
                    attempts, all_tried = self.attempts, True
                    continue
                control = next((one for one in answered if speaks_for(one.stage, facts.stage)), None)
                if control is not None:
                    return replace(facts, fault=_blamed(facts.stage, str(error))), control
                answered.append(self._answer(commit, error, reach(facts.stage)))
                attempts = self.attempts.at_most(1)
            else:
                for control in answered:
                    self.store.add_control(control)
                return trial, None

    def _answer(self, commit: Commit, error: AttemptFailed | TrialRefused, stage: Stage) -> Control:
        """How the end fares through ``stage``, where a commit failed; raises when it fails, too."""
        self._note(f"{commit.short}: {error}; does {self._name} still work?")
        try:
            fault = self._tried(stage)
        except (AttemptFailed, TrialRefused) as alike:
            self._raise_alike(error, stage, str(alike))
        control = self._control(stage, fault, ())
        if fault is not None:
            self.store.add_control(control)
            self._raise_alike(error, stage, fault.sentence)
        self._plan(commit, f"once more, {self._name} still works")
        return control

    def _raise_alike(self, error: AttemptFailed | TrialRefused, stage: Stage, alike: str) -> NoReturn:
        if isinstance(error, TrialRefused):
            raise error
        told = "alike" if alike == str(error) else f"now, too: {alike}"
        raise AttemptFailed(
            f"{error}; {self._name}, which was measured before, fails {told}",
            error.hint or self._what_changed(stage),
            error.stage,
            error.host,
            error.trial,
        ) from error

    def _tried(self, stage: Stage) -> Fault | None:
        """What the end ends in; a fault that can be chance counts when it is seen twice, as any kernel's does."""
        self._plan(self.end, "measured before; does it still work?")
        attempt = partial(self.engine.control, self.end, self.store.compilers(), stage)
        fault = self.attempts.at(self.end, attempt)
        if fault is not None and not fault.kind.of_compiling:
            fault = self.attempts.at(self.end, attempt)
        return fault

    def _control(self, stage: Stage, fault: Fault | None, trials: tuple[int, ...]) -> Control:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        return Control(at, host_id(), self.end.sha, stage, trials, fault.sentence if fault else "")

    @property
    def _name(self) -> str:
        return f"the {self.word} end {self.end.short}"

    def _what_changed(self, stage: Stage) -> str:
        logs = self.store.path.parent / "controls" / f"{stage}-{self.end.short}"
        return _WHAT_CHANGED.format(logs=logs)

    def _plan(self, commit: Commit, purpose: str) -> None:
        """What is tried is no trial to count on: its number is that of the next one."""
        self.attempts.tell(Planned(self.store.next_n, commit, purpose, 0, 0))

    def _note(self, text: str) -> None:
        self.attempts.tell(Note(text))


def _blamed(stage: Stage, reason: str) -> Fault:
    """The kernel's fault that looked like an infrastructure error."""
    return Fault(stage, FaultKind.NO_SSH if stage is Stage.BOOT else FaultKind.COMMAND_FAILED, reason)
