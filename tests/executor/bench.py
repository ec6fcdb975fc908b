"""The executor of this host with its real path of a trial, and with a builder, guests and fio that answer at once.

Guests and fio are tried for real in tests/in_vms.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.config import KernelSettings, Settings, StorageSettings, options
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError
from bisector.core.events import Listener
from bisector.core.figures import Run
from bisector.core.subject import Compiler, Kernel
from bisector.core.trial import Era, Fault, KernelFault, Stage
from bisector.executor.local import LocalExecutor
from bisector.storage import stack
from bisector.storage.layer import MountedStack
from bisector.trial.runner import Bench
from bisector.workload.base import RunSite
from bisector.workload.fio.fio import Fio
from tests import examples, fakes
from tests.examples import EARLY

COMMIT = examples.commit(7)
RULE = StopRule(1_363.0, 40.0, 20.5)
CONTENT = "5" * 64


@dataclass(frozen=True)
class Builder:
    """A builder that needs no time; the compilers whose builds fail, and whether it has every kernel already."""

    kernel: Kernel
    has_all: bool = False
    failing: frozenset[Compiler] = frozenset()
    compiler: Compiler = fakes.GCC

    def compilers(self) -> tuple[Compiler, ...]:
        return (fakes.GCC, fakes.OLD_GCC)

    def default_compilers(self) -> tuple[Compiler, ...]:
        return (fakes.GCC,)

    def using(self, compiler: Compiler) -> "Builder":
        return replace(self, compiler=compiler)

    def with_settings(self, settings: KernelSettings) -> "Builder":
        return self

    def find(self, tree: str) -> Kernel | None:
        return self.kernel if self.has_all else None

    def find_alike(self, tree: str, trees: object) -> None:
        return None

    def recall_failure(self, tree: str, logs: Path) -> None: ...

    def build(self, tree: str, places: object, trees: object) -> Kernel:
        if self.compiler in self.failing:
            raise as_raised(fakes.BUILD_ERROR)
        return self.kernel


class Source:
    """Sources that are there."""

    trees = None

    def checkout(self, commit: object) -> Path:
        return Path("/src")


@dataclass
class Machines:
    """Guests that boot, or raise ``at_boot``."""

    at_boot: Exception | None = None
    guest: object = None

    def era(self, storage: StorageSettings) -> Era:
        return examples.ERA

    @contextmanager
    def prepared(
        self, name: str, kernel: Kernel, logs: Path, storage: StorageSettings, append: str, *, seed: int = 0
    ) -> Iterator["Machines"]:
        yield self

    def facts(self) -> dict[str, str]:
        return {}

    def deadline(self, what: str, seconds: float) -> Deadline:
        return Deadline(what, seconds)

    def boot(self) -> None:
        if self.at_boot is not None:
            raise self.at_boot

    def blamed(self, stage: Stage) -> AbstractContextManager[None]:
        return nullcontext()


def at_once(patch: pytest.MonkeyPatch) -> None:
    """Stacks are made, and runs of fio end, at once; those that may end early do."""

    def run(workload: Fio, site: RunSite) -> Run:
        return examples.run(site.name, 1_002.0, 8_046.0, stopped_early=EARLY if site.stop else None)

    patch.setattr(stack, "lay_out", lambda *_, **__: MountedStack("/mnt", ("mkfs",)))
    patch.setattr(Fio, "run", run)


def as_raised(fault: Fault) -> KernelFault:
    return KernelFault(fault.stage, fault.kind, fault.reason, fault.tail)


@dataclass(frozen=True)
class Bad:
    """What goes wrong: a fault of the kernel at boot, trouble of the host, a compiler that is too new."""

    fault: Fault | None = None
    trouble: bool = False
    failing: frozenset[Compiler] = frozenset()


NOTHING = Bad()


def settings_of(stack: str) -> Settings:
    return options.load({"storage.stack": stack}, directory=Path("/")).settings


def local(run_dir: Path, settings: Settings, bad: Bad) -> LocalExecutor:
    (run_dir / "kernel.config").write_text("CONFIG_EXT4_FS=y\n", encoding="utf-8")
    kernel = replace(examples.kernel(content=CONTENT), config=run_dir / "kernel.config")
    at_boot = InfraError("the network went away") if bad.trouble else as_raised(bad.fault) if bad.fault else None
    parts = Source(), Builder(kernel, failing=bad.failing), Machines(at_boot)
    source, builder, machines = (cast("Any", one) for one in parts)
    return LocalExecutor(Bench(settings, run_dir, source, builder, machines, lambda event: None))


def bare(run_dir: Path, settings: Settings, tell: Listener = lambda event: None) -> LocalExecutor:
    """The executor where a test plays what is done; it has nothing to do it with."""
    nothing = cast("Any", None)
    return LocalExecutor(Bench(settings, run_dir, nothing, nothing, nothing, tell))
