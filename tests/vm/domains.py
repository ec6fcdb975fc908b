"""Guests of a kernel of a few bytes (tiny_kernel.py), for libvirt, and a libvirt that is only asked what it offers."""

import os
from pathlib import Path

from bisector.config import Accelerator
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError
from bisector.vm.base import Domain
from bisector.vm.definition import DomainSpec, free_port
from bisector.vm.driver import LibvirtHypervisor
from tests.vm.tiny_kernel import End, tiny_kernel

PREFIX = f"bisector-test-{os.getpid()}-"
WORDS = "Linux version 0.0.0 (a stand-in)\r\nbisector-guest: ready\r\n"


def spec_of(place: Path, end: End, name: str = "guest") -> DomainSpec:
    return DomainSpec(
        name=f"{PREFIX}{name}",
        kernel=tiny_kernel(place / f"kernel-{name}", WORDS, end),
        console=place / f"{name}.log",
        ssh_port=free_port(),
        accelerator=Accelerator.TCG,
        vcpus=1,
        memory_bytes=64 << 20,
    )


def wait_for_words(domain: Domain) -> str:
    text = ""

    def probe() -> str | None:
        nonlocal text
        text += domain.read_console()
        return text if "ready" in text else None

    return Deadline("the kernel's words", 30.0).poll(probe)


def ended(domain: Domain) -> None:
    Deadline("the guest's end", 30.0).poll(lambda: None if domain.is_running() else True)


class Offering(LibvirtHypervisor):
    """Offers KVM or emulation, or does not; or says, by ``kvm``, why it does not know."""

    embedded = True
    is_alive = True
    qemu_version = "7.2.22"

    def __init__(self, kvm: bool | str = True, *, tcg: bool = True) -> None:
        self.kvm, self._tcg = kvm, tcg

    def offers(self, accelerator: Accelerator) -> bool:
        if isinstance(self.kvm, str):
            raise InfraError(self.kvm)
        return self.kvm if accelerator is Accelerator.KVM else self._tcg

    def close(self) -> None:
        return
