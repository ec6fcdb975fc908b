"""What a trial needs of a guest, and a guest of its hypervisor and of its connection.

The contract of each is in tests/vm/contract.py, which the fakes pass, too.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, Self

from bisector.config import Accelerator, StorageSettings
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError
from bisector.core.shell import Shell
from bisector.core.subject import Kernel
from bisector.core.trial import Era, Stage
from bisector.vm.definition import DomainSpec
from bisector.vm.image import GuestImage

CONSOLE_CHUNK_BYTES = 1 << 20  # the most that is read of a console at once


class Domain(Protocol):
    """A guest that was started; gone when its ``with`` block ends."""

    def is_running(self) -> bool:
        """Whether the guest is there; False means that it ended itself (panic, reset, power-off).

        Raises :class:`bisector.core.errors.InfraError` when its end, or its pause, is not the guest's doing.
        """

    def cpu_time_s(self) -> float:
        """CPU seconds of the host that the guest has used; after its end the last known."""

    def read_console(self) -> str:
        """What the guest has written to its console since the last call, at most :data:`CONSOLE_CHUNK_BYTES`."""

    def destroy(self) -> None:
        """End the guest at once; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Hypervisor(Protocol):
    """Starts guests; closing it leaves none of them running."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still be asked."""

    @property
    def embedded(self) -> bool:
        """Whether it runs in this process."""

    @property
    def run_as(self) -> tuple[int, int] | None:
        """User and group that QEMU is to have; None where it has those of this process anyway."""

    @property
    def qemu_version(self) -> str:
        """QEMU's version, as ``7.2.22``; raises :class:`bisector.core.errors.UserError` when there is none."""

    def offers(self, accelerator: Accelerator) -> bool:
        """Whether it would start an x86_64 guest in this way; whether the guest then runs is another question.

        Raises :class:`bisector.core.errors.InfraError` when it does not say.
        """

    def start(self, spec: DomainSpec) -> Domain:
        """Start a guest whose console file holds its first byte; raises :class:`bisector.core.errors.InfraError`."""

    def close(self) -> None:
        """End the guests that are left; idempotent."""


class GuestError(InfraError):
    """SSH to the guest did not work; :mod:`bisector.vm.machine` sees the console and decides who is to blame."""


class GuestLost(GuestError):
    """The connection could not be made, or broke."""


class GuestRefused(GuestError):
    """The guest is there and refuses the key of the image, or shows a host key that is not the pinned one."""


class GuestTimeout(GuestError):
    """The guest did not finish something in its time; a next command may be answered or not."""


class GuestCopyFailed(GuestError):
    """The guest is there and a file could not be copied to or from it."""


class GuestNonsense(GuestError):
    """The guest is there and sends what no sound one does: too much of it, or no answer to what was asked."""


class GuestLink(Shell, Protocol):
    """A root shell that is connected to one guest, and is never connected again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class GuestLogin(Protocol):
    """Connects to a guest."""

    def __call__(self, port: int, image: GuestImage, deadline: Deadline, watch: Callable[[], None]) -> GuestLink:
        """Log in as root on the loopback port; ``watch`` is called while the guest is waited for, then and later.

        Raises what ``watch`` raises, and :class:`GuestError`.
        """


class Machine(Protocol):
    """One guest from its definition to its end, as a trial sees it."""

    @property
    def guest(self) -> Shell:
        """The root shell; there is one once :meth:`boot` has returned."""

    def facts(self) -> dict[str, str]:
        """What bounds the figures of this guest, for the record: names and values for people."""

    def deadline(self, what: str, seconds: float) -> Deadline:
        """A deadline that counts only the time in which this guest is waited for, and could have run."""

    def boot(self) -> None:
        """Start the kernel and log in; raises ``KernelFault`` for a dead or silent kernel, else ``InfraError``."""

    def blamed(self, stage: Stage) -> AbstractContextManager[None]:
        """Sort out a guest that no longer answers: ``KernelFault`` when its kernel is dead, else ``InfraError``."""

    def cpu_time_s(self) -> float:
        """Host CPU seconds that the guest has used."""


class Machines(Protocol):
    """Makes the guests of one run."""

    def era(self, storage: StorageSettings) -> Era | None:
        """What figures on a stack depend on here; None until it is known what guests run under."""

    def prepared(
        self, name: str, kernel: Kernel, logs: Path, storage: StorageSettings, append: str, *, seed: int = 0
    ) -> AbstractContextManager[Machine]:
        """A guest that is defined and not started, with what the stack asks for: its disks, empty, and parameters.

        ``append`` are kernel parameters of the trial, in place of those of the settings. With another ``seed`` a guest
        whose time is counted does everything a little later and in other pages. Nothing of the guest outlives
        the block.
        """
