"""A kernel in a running guest: started, watched from the first byte of its console, gone afterwards.

This module decides who is to blame when the guest no longer answers, as it sees console, domain and connection.
"""

import math
import os
import platform
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

from bisector.config import Accelerator, DiskSettings, MachineSettings, Settings, StorageSettings
from bisector.core import resources
from bisector.core.deadline import SYSTEM_CLOCK, AttentiveClock, Clock, Deadline
from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.shell import Shell
from bisector.core.subject import Kernel, build_id_in
from bisector.core.trial import HOST_CLOCK, Era, FaultKind, KernelFault, Stage
from bisector.host.files import our_files, remove_abandoned, scratch, write_atomically
from bisector.host.identity import machine_id
from bisector.host.load import host_facts
from bisector.vm.accelerator import choose_accelerator
from bisector.vm.base import (
    Domain,
    GuestError,
    GuestLink,
    GuestLogin,
    GuestLost,
    GuestNonsense,
    GuestTimeout,
    Hypervisor,
)
from bisector.vm.console import Watch
from bisector.vm.definition import (
    DiskSpec,
    DiskUnavailable,
    DomainSpec,
    InstructionClock,
    attached,
    command_line,
    delayed,
    domain_prefix,
    free_port,
    own_names,
    serving_s,
)
from bisector.vm.driver import open_hypervisor
from bisector.vm.guest import Guest
from bisector.vm.image import GuestImage, build_image, overlay, own_image, sum_of
from bisector.vm.mailbox import Mailbox, Wire, wire

_QUESTION_S = 60.0
_NOTES_BYTES = 65536
_NOTES = f"head -c {_NOTES_BYTES} /sys/kernel/notes | od -An -v -tx1"


def running_release(shell: Shell) -> str:
    """The release of the running kernel, as ``uname -r``."""
    return _answer(shell, "uname -r")


def running_build_id(shell: Shell) -> str:
    """The GNU build-id of the running vmlinux in hex; empty if the kernel has none or hides it."""
    answer = _answer(shell, _NOTES)
    try:
        return build_id_in(bytes.fromhex(answer))
    except ValueError as error:
        raise GuestNonsense(f"`{_NOTES}` in the guest printed no bytes in hex: {answer[:100]!r}") from error


def _answer(shell: Shell, command: str) -> str:
    result = shell.run(command, _QUESTION_S)
    if result.exit_status != 0:
        raise GuestError(f"`{command}` in the guest: exit status {result.exit_status}: {result.stderr.strip()}")
    return result.stdout.strip()


ACCELERATOR = "accelerator"  # in the run directory: the accelerator that the run began with on this host
CONSOLE = "console.log"
_LOGIN_S = 30.0
_LAST_WORDS_S = 3.0
_PING_S = 15.0


def guest_image(machine: MachineSettings, run_marker: Path | None, on_note: Callable[[str], None]) -> GuestImage:
    """The image of the settings: the user's own, or the recipe's, which is built if it does not exist yet."""
    if machine.image is not None:
        return own_image(machine)
    return build_image(resources.vm_images(), resources.cache_home() / "images", run_marker, on_note)


class VirtualMachine:
    """One guest from its definition to its end; ``guest`` is available once :meth:`boot` has returned."""

    _domain: Domain | None = None
    _guest: GuestLink | None = None

    def __init__(
        self,
        hypervisor: Hypervisor,
        spec: DomainSpec,
        kernel: Kernel,
        bench: "VirtualMachines",
        wire: Wire | None = None,
    ) -> None:
        self._hypervisor = hypervisor
        self._spec = spec
        self._kernel = kernel
        self._wire = wire
        self._image = bench.image
        self._settings = bench.settings.machine
        self._log_in = bench.log_in
        self._clock = AttentiveClock(bench.clock)
        self._stack = ExitStack()

    @property
    def guest(self) -> GuestLink:
        """The root shell."""
        if self._guest is None:
            raise RuntimeError("boot() comes first")
        return self._guest

    def cpu_time_s(self) -> float:
        """The host's CPU seconds that QEMU and the processes serving its disks have used."""
        served_s = math.fsum(map(serving_s, self._spec.disks))
        return served_s + (self._domain.cpu_time_s() if self._domain is not None else 0.0)

    def deadline(self, what: str, seconds: float) -> Deadline:
        """A deadline that counts only the time in which this guest is waited for."""
        return Deadline.by(self._clock, what, seconds)

    def facts(self) -> dict[str, str]:
        """Facts that limit this guest's figures, for the record: names and values for people."""
        host, spec = host_facts(), self._spec
        return {
            "CPU": f"{host.cpu_model}, {host.cores} cores",
            "memory": f"{host.memory_bytes / (1 << 30):.1f} GiB",
            "host kernel": platform.release(),
            "accelerator": f"{spec.accelerator}, QEMU {self._hypervisor.qemu_version}",
            "guest": f"{spec.vcpus} CPUs, {spec.memory_bytes >> 20} MiB",
        }

    def boot(self) -> None:
        """Start the guest, wait until it reports to be ready, log in, and check that it runs the kernel that was built.

        Raises :class:`KernelFault` for a panic, a hang or silence, and :class:`InfraError` for another kernel: cache,
        QEMU's arguments and port decide which one is started, never the commit.
        """
        self._domain = self._stack.enter_context(self._hypervisor.start(self._spec))
        pulse = self._settings.image is None  # given by the init of the built image
        # A counted guest gives a sign of life every ten seconds of its own time, which take minutes on a busy host.
        now = self._clock.now_s if self._wire is None else self._domain.cpu_time_s
        self._watch = Watch(self._domain, self._settings.silence_deadline_s, now, pulse=pulse)
        deadline = self.deadline("the guest", self._settings.boot_deadline_s)
        with self.blamed(Stage.BOOT):
            self._guest = self._stack.enter_context(self._connected(deadline))
            self._watch.console.ready = True  # the user's own image does not print the ready line
            self._check_kernel()

    def _connected(self, deadline: Deadline) -> GuestLink:
        if (wire := self._wire) is not None:
            while wire.told() is None:  # until the guest has reported for the first time
                self._look(deadline)
            return Mailbox(wire, self._watch, clock=self._clock)
        if self._settings.image is None:
            # Poll the console: user networking accepts a connection long before sshd listens.
            while not self._watch.console.ready:
                self._look(deadline, self._settings.silence_deadline_s)
            return self._login("SSH to the guest", _LOGIN_S)
        while True:  # the user's own image prints nothing when it is ready
            self._watch()
            try:
                return self._login("SSH to the guest", min(_LOGIN_S, max(deadline.remaining_s, 1.0)))
            except (GuestLost, GuestTimeout):
                if deadline.expired:
                    raise self._watch.silent() from None
                self._clock.sleep(0.5)

    def _look(self, deadline: Deadline, silence_s: float = math.inf) -> None:
        self._watch()
        if deadline.expired or self._watch.silence_s > silence_s:
            raise self._watch.silent()
        self._clock.sleep(0.02)

    def _login(self, what: str, seconds: float) -> GuestLink:
        return self._log_in(self._spec.ssh_port, self._image, self.deadline(what, seconds), self._watch)

    def _check_kernel(self) -> None:
        release, build_id = running_release(self.guest), running_build_id(self.guest)
        if release != self._kernel.release or (self._kernel.build_id and build_id not in ("", self._kernel.build_id)):
            raise InfraError(
                f"the guest runs {release} (build id {build_id[:12]}), and not the kernel that was built, "
                f"{self._kernel.release} ({self._kernel.build_id[:12]})",
                f"was {self._kernel.image} replaced, or does another guest answer on port {self._spec.ssh_port}?",
            )

    @contextmanager
    def blamed(self, stage: Stage) -> Iterator[None]:
        """Decide who is to blame for a guest that did not answer: a dead or stuck kernel, or else the infrastructure.

        The first is raised as :class:`KernelFault`, a lost connection as the :class:`GuestError` that it is. Only a
        kernel known to be good tells whether the kernel under test lost the connection
        (:mod:`bisector.bisect.failures`).
        """
        self._watch.stage = stage
        silence_s = self._settings.silence_deadline_s
        try:
            yield
        except KernelFault:
            if self._domain is not None:
                self._domain.is_running()  # raises if the host's disk is to blame
            raise
        except GuestNonsense as error:  # the guest answers: no host and no network makes a file endless
            raise KernelFault(stage, FaultKind.COMMAND_FAILED, str(error), self._watch.console.tail()) from error
        except GuestError as error:
            # A panic may reach the console a moment after the connection broke.
            deadline = self.deadline("last words", _LAST_WORDS_S)
            while not deadline.expired:
                self._watch()
                self._clock.sleep(0.1)
            # If the guest accepts a new connection, or has given a sign of life, its kernel is alive.
            alive = self._watch.silence_s < silence_s if self._wire is not None else False
            if self._wire is None:
                with suppress(GuestError), self._login("an answer", _PING_S) as guest:
                    alive = guest.run("true", _PING_S).exit_status == 0
            if alive and isinstance(error, GuestTimeout):  # the kernel answers, but the command never ends
                raise KernelFault(stage, FaultKind.HANG, str(error), self._watch.console.tail()) from error
            if not alive and self._watch.silence_s > silence_s:
                raise self._watch.silent() from error
            raise

    def close(self) -> None:
        """End the connection and the guest."""
        if self._wire is not None:
            self._wire.let_go()
        self._stack.close()


class VirtualMachines:
    """Makes the guests of one run: hypervisor, image, accelerator and disks."""

    def __init__(
        self,
        settings: Settings,
        image: GuestImage,
        run_dir: Path,
        connect: Callable[[], Hypervisor],
        on_note: Callable[[str], None],
        *,
        log_in: GuestLogin = Guest.connect,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.settings = settings
        self.image = image
        self.log_in = log_in
        self.clock = clock
        self._run_dir = run_dir
        self._connect = connect
        self._hypervisor = connect()
        self._connecting = threading.Lock()  # guests may be prepared by several threads
        self._on_note = on_note
        self._choosing, self._guests_on = threading.Lock(), Counter[int]()
        self._had: set[str] = set()  # the disks that earlier trials had, by their serial numbers in the guest

    @classmethod
    def open(cls, settings: Settings, image: GuestImage, run_dir: Path, on_note: Callable[[str], None]) -> Self:
        """Connect to the hypervisor, and end the guests that a killed process of this run left running."""
        cache = resources.cache_home() / "libvirt"
        remove_abandoned(run_dir)

        def connect() -> Hypervisor:
            hypervisor = open_hypervisor(settings.machine.connect, run_dir, cache)
            try:
                hypervisor.reap(domain_prefix(run_dir))
            except BaseException:
                hypervisor.close()
                raise
            return hypervisor

        return cls(settings, image, run_dir, connect, on_note)

    def _stay_connected(self) -> None:
        """Reconnect after a restart of the daemon; raises :class:`InfraError` while it is down."""
        with self._connecting:
            if not self._hypervisor.is_alive:
                self._on_note("the connection to libvirt is lost; it is opened again")
                # The old connection no longer reaches its guests; the new one finds them by their names.
                with suppress(BisectorError):
                    self._hypervisor.close()
                try:
                    self._hypervisor = self._connect()
                except UserError as error:  # the daemon was there when the run began
                    raise InfraError(error.message, error.hint) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hypervisor.close()

    def era(self, storage: StorageSettings) -> Era | None:
        """The era of figures measured on this stack now; None until the accelerator of the guests is known."""
        self._stay_connected()
        if (accelerator := self._accelerator()) is None:
            return None
        host, machine = host_facts(), self.settings.machine
        return Era(
            accelerator=accelerator.value,
            qemu=self._hypervisor.qemu_version,
            host_kernel=platform.release(),
            cpu=host.cpu_model,
            cores=host.cores,
            memory_gib=round(host.memory_bytes / (1 << 30)),  # kernels reserve different amounts of it
            image=self._image_sum,
            disks=tuple(own_names(storage, self._run_dir)),
            boot=host.boot_id,
            clock=f"{machine.instruction_ns} ns an instruction" if machine.is_counted else HOST_CLOCK,
        ).sealed

    @cached_property
    def _image_sum(self) -> str:
        with our_files(self.image.root.parent):
            return sum_of(self.image.root)[:16]

    @contextmanager
    def _own_cpu(self) -> Iterator[int]:
        """A CPU of the host: the one that the fewest guests use."""
        with self._choosing:
            cpu = min(sorted(os.sched_getaffinity(0)), key=self._guests_on.__getitem__)
            self._guests_on[cpu] += 1
        try:
            yield cpu
        finally:
            with self._choosing:
                self._guests_on[cpu] -= 1

    @contextmanager
    def prepared(
        self, name: str, kernel: Kernel, logs: Path, storage: StorageSettings, append: str, *, seed: int = 0
    ) -> Iterator[VirtualMachine]:
        """A guest that is defined but not started, for this stack and trial; it does not outlive the block."""
        self._stay_connected()
        machine = self.settings.machine
        with ExitStack() as stack:
            place = stack.enter_context(scratch("guest", self._run_dir, mode=0o711))  # a daemon's QEMU enters it
            prefix = domain_prefix(self._run_dir)
            chosen = storage.attached_disks.items()
            disks = tuple(stack.enter_context(self._attached(serial, one, prefix)) for serial, one in chosen)
            spec = DomainSpec(
                name=f"{prefix}{name}",
                kernel=kernel.image,
                modules=kernel.modules,
                console=logs / CONSOLE,
                ssh_port=free_port(),
                accelerator=machine.accelerator,
                command_line=command_line(
                    append,
                    own_init=machine.image is not None,
                    of_storage=storage.parameters,
                    counted=machine.is_counted,
                    seed=seed,
                ),
                root=overlay(self.image, place / "root.qcow2"),
                root_base=self.image.root if self.image.disk_format == "raw" else None,
                vcpus=machine.vcpus,
                memory_bytes=machine.memory_bytes + sum(one.size_bytes for one in storage.in_memory.values()),
                run_as=self._hypervisor.run_as,
            )
            own_wire = stack.enter_context(wire(place)) if machine.is_counted else None
            if own_wire is not None:
                with our_files(self.image.root.parent):
                    self.image.root.chmod(0o644)  # QEMU opens it for writing, although it keeps writes to itself
                shift = machine.instruction_ns.bit_length() - 1
                counted = InstructionClock(shift, own_wire.memory, own_wire.bells, stack.enter_context(self._own_cpu()))
                spec = replace(spec, root=None, counted=counted)
            # If nothing boots, it is still unknown; emulation shows as well as KVM that a kernel boots nowhere.
            accelerator = self._accelerator(spec) or Accelerator.TCG
            guest = VirtualMachine(
                self._hypervisor, replace(spec, disks=disks, accelerator=accelerator), kernel, self, own_wire
            )
            stack.callback(guest.close)
            yield guest

    def _accelerator(self, spec: DomainSpec | None = None) -> Accelerator | None:
        """The accelerator of all guests of this run here, chosen once; None while only a boot of ``spec`` can tell.

        Raises :class:`InfraError` if it is KVM, and KVM is no longer available.
        """
        record, machine = self._run_dir / ACCELERATOR, machine_id()  # a run may be taken to another host
        with our_files(self._run_dir):
            words = record.read_text(encoding="utf-8", errors="replace").split() if record.exists() else []
        if words == [Accelerator.TCG.value, machine]:
            return Accelerator.TCG
        if words == [Accelerator.KVM.value, machine]:
            why = "libvirt does not offer that any more"
            try:
                if self._hypervisor.offers(Accelerator.KVM):
                    return Accelerator.KVM
            except InfraError as error:
                why = str(error)
            raise InfraError(
                f"this run began under {Accelerator.KVM} on this host: {why}",
                "ls -l /dev/kvm; bisector doctor; then bisector resume. To go on under emulation all the same, where"
                f" both ends are measured again: rm {record}; bisector resume",
            )
        chosen = choose_accelerator(self.settings.machine.accelerator, self._hypervisor, spec)
        if chosen is not None:
            with our_files(self._run_dir):
                write_atomically(record, f"{chosen} {machine}\n".encode())
        return chosen

    @contextmanager
    def _attached(self, serial: str, chosen: DiskSettings, prefix: str) -> Iterator[DiskSpec]:
        """A disk of the settings; raises :class:`InfraError` if it is gone, but was there for an earlier trial."""
        with ExitStack() as stack:
            try:
                overwrite = self.settings.storage.overwrite
                spec = stack.enter_context(attached(serial, chosen, self._run_dir, prefix, overwrite=overwrite))
            except DiskUnavailable as error:
                if serial not in self._had:
                    raise
                raise InfraError(error.message, error.hint) from error
            self._had.add(serial)
            if chosen.latency_s:
                spec = stack.enter_context(delayed(spec, chosen.latency_s, self._run_dir))
            yield spec
