"""What a trial raises: whose fault it is, at which stage, with the facts and files so far. Nothing is built."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from bisector.config import options
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Kernel
from bisector.core.trial import AttemptFailed, FaultKind, KernelFault, Stage, TrialRefused
from bisector.executor.base import ControlRequest
from bisector.executor.local import LocalExecutor
from bisector.host.files import our_files
from bisector.trial.runner import Bench, TrialRequest
from bisector.vm.base import GuestLost
from tests import examples, fakes
from tests.trial.place import Keeper


@dataclass
class Machines:
    """Guests that end as ``at_boot`` does; ``boots`` counts them."""

    at_boot: Callable[[], None]
    boots: int = 0

    def era(self, storage: object) -> None:
        return None

    @contextmanager
    def prepared(
        self, name: str, kernel: Kernel, logs: Path, storage: object, append: str, *, seed: int = 0
    ) -> Iterator["Machines"]:
        self.boots += 1
        (logs / "console.log").write_text("bisector-guest: ready\n", encoding="utf-8")
        yield self

    def facts(self) -> dict[str, str]:
        return {}

    def deadline(self, what: str, seconds: float) -> Deadline:
        return Deadline(what, seconds)

    def boot(self) -> None:
        self.at_boot()


def raising(error: BaseException) -> Callable[[], None]:
    def ends() -> None:
        raise error

    return ends


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config").write_text("CONFIG_EXT4_FS=y\n", encoding="utf-8")
    return tmp_path / "config"


def engine(run_dir: Path, config: Path, at_boot: Callable[[], None] = lambda: None) -> LocalExecutor:
    settings = options.load(directory=Path("/")).settings
    kernel = replace(examples.kernel(), config=config)
    builder, machines = cast("Any", Keeper(kernel)), cast("Any", Machines(at_boot))
    return LocalExecutor(Bench(settings, run_dir, cast("Any", None), builder, machines, lambda event: None))


REQUEST = TrialRequest(3, examples.cell(examples.commit(7)), {})


def test_trouble_of_ours_comes_with_facts_and_files(tmp_path: Path, config: Path) -> None:
    lost = GuestLost("the connection to the guest broke", "look at the console")
    with pytest.raises(AttemptFailed, match="connection to the guest broke") as caught:
        fakes.measured(engine(tmp_path, config, raising(lost)), REQUEST)
    assert (caught.value.stage, caught.value.hint) == (Stage.BOOT, "look at the console")
    trial = caught.value.trial
    assert trial is not None
    assert (trial.commit, trial.stage, trial.fault, trial.runs) == (REQUEST.commit, Stage.BOOT, None, ())
    assert trial.kernel is not None
    assert [artifact.name for artifact in trial.artifacts] == ["console.log", "host.json", "kernel.config"]


def test_input_at_fault_comes_with_facts_and_files(tmp_path: Path, config: Path) -> None:
    full = UserError("the guest's root disk is full", "the image needs some free space")
    with pytest.raises(TrialRefused) as caught:
        fakes.measured(engine(tmp_path, config, raising(full)), REQUEST)
    assert (str(caught.value), caught.value.hint, caught.value.exit_code) == (str(full), full.hint, 2)
    assert caught.value.trial is not None
    assert (caught.value.trial.stage, len(caught.value.trial.artifacts)) == (Stage.BOOT, 3)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_file_of_ours_that_cannot_be_written_is_no_bug(tmp_path: Path, config: Path, number: int) -> None:
    at_boot = raising(OSError(number, "no luck", str(tmp_path / "root.qcow2")))
    with pytest.raises(AttemptFailed, match=r"root\.qcow2: no luck") as caught:
        fakes.measured(engine(tmp_path, config, at_boot), REQUEST)
    assert caught.value.stage is Stage.BOOT
    assert caught.value.hint


def test_files_that_cannot_be_kept_are_an_attempt_that_failed(tmp_path: Path, config: Path) -> None:
    def removed() -> None:
        (tmp_path / "trials/0003-000000000000/console.log").unlink()
        (tmp_path / "trials/0003-000000000000/console.log").symlink_to("/dev/full")
        raise OSError(errno.ENOSPC, "No space left on device", "/dev/full")

    with pytest.raises(AttemptFailed, match="/dev/full: No space left") as caught:
        fakes.measured(engine(tmp_path, config, removed), REQUEST)
    assert "df -h" in caught.value.hint


def test_a_real_full_disk(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="No space left on device") as caught, our_files(tmp_path):
        Path("/dev/full").write_text("x", encoding="utf-8")
    assert caught.value.hint == f"make room: df -h {tmp_path}"


# A sound end tried again


def test_an_end_that_boots_again_goes_no_further(tmp_path: Path, config: Path) -> None:
    again = engine(tmp_path, config)
    assert fakes.faulted(again, ControlRequest(examples.commit(7), (), Stage.BOOT)) is None
    assert cast("Machines", again.bench.machines).boots == 1
    assert (tmp_path / "controls/boot-000000000000/console.log").exists()
    assert not (tmp_path / "trials").exists()


def test_an_end_that_panics_now_says_how(tmp_path: Path, config: Path) -> None:
    panic = KernelFault(Stage.BOOT, FaultKind.PANIC, "VFS: Unable to mount root fs")
    assert (
        fakes.faulted(engine(tmp_path, config, raising(panic)), ControlRequest(examples.commit(7), (), Stage.BOOT))
        == panic.fault
    )


def test_a_guest_that_cannot_even_be_prepared_is_no_kernels_doing(tmp_path: Path, config: Path) -> None:
    """Without facts nobody asks whether a sound end still works, and blames the commit when it does."""
    machines = Machines(lambda: None)
    unprepared = engine(tmp_path, config)
    unprepared = LocalExecutor(replace(unprepared.bench, machines=cast("Any", machines)))

    @contextmanager
    def full(
        name: str, kernel: Kernel, logs: Path, storage: object, append: str, *, seed: int = 0
    ) -> Iterator[Machines]:
        raise OSError(errno.ENOSPC, "No space left on device", "ssd.img")
        yield machines

    machines.prepared = full  # type: ignore[method-assign] # of these machines alone
    with pytest.raises(AttemptFailed) as caught:
        fakes.measured(unprepared, REQUEST)
    assert (caught.value.stage, caught.value.trial) == (Stage.BOOT, None)
