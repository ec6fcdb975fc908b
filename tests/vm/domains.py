"""Guests of a kernel of a few bytes (tiny_kernel.py), for libvirt."""

import os
from pathlib import Path

from bisector.config import Accelerator
from bisector.core.deadline import Deadline
from bisector.vm.base import Domain
from bisector.vm.definition import DomainSpec, free_port
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
