"""The test disks that a run has labelled, by their own names (:mod:`bisector.vm.disk_name`).

Whoever named a disk to be overwritten knew what was on it then, and not what somebody puts there later. So that holds
for a run's first use of the disk, and from then on the run wants its label.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bisector.host.files import our_files

_FILE = "used-disks"


@dataclass(frozen=True, slots=True)
class UsedDisks:
    """One name a line in ``file``, which somebody may remove who knows better."""

    file: Path

    @classmethod
    def of(cls, run_dir: Path) -> Self:
        """Those of the run in this directory."""
        return cls(run_dir / _FILE)

    def __contains__(self, name: str) -> bool:
        with our_files(self.file.parent):
            return self.file.exists() and name in self.file.read_text(encoding="utf-8").splitlines()

    def add(self, name: str) -> None:
        """Note that a disk has its label; on the host's disk when this returns. Raises :class:`InfraError`."""
        if name in self:
            return
        with our_files(self.file.parent), self.file.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
