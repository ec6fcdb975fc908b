"""The form in which a job is sent to another host: a value that can be pickled, with the files that its settings name.

It includes a digest of the settings, since figures from other settings could not be compared. Files are sent by
content, since their paths are valid on the sending host only.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from bisector.config import Settings
from bisector.core.errors import InfraError, UserError
from bisector.executor.base import ControlRequest, Job, Request
from bisector.executor.local import kernels_of
from bisector.fleet import versions
from bisector.fleet.versions import Versions
from bisector.host.files import inside, sha256_of, write_atomically
from bisector.host.load import machine_id
from bisector.store.run_files import INPUTS, fingerprint
from bisector.trial.runner import TrialRequest

_RUN_LENGTH = 80  # characters of the readable part of a run's key
_RUN_DIGITS = 16
_DIGITS = 12  # digits of a hash in the name of a directory
_MOST_BYTES = 64 << 20  # of all files together: configurations, job files, and a bundle that a workload may need
_BUILDS = 4  # each compiler that is tried has a deadline of its own, and a build that timed out is tried once more
_SPARE_S = 3600.0


def run_key(run_dir: Path, created_at: str) -> str:
    """Return a name that no other run of any coordinator ever had, and that is a valid name of a directory.

    A run directory may be removed and made again under the same name, so the time of the record is part of the key.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_dir.name).lstrip("._-")[:_RUN_LENGTH] or "run"
    whole = "\0".join((machine_id(), os.path.realpath(run_dir), created_at))
    return f"{name}-{hashlib.sha256(os.fsencode(whole)).hexdigest()[:_RUN_DIGITS]}"


@dataclass(frozen=True, slots=True)
class JobKey:
    """The key of a job: ``run`` is a name that no other run ever had, and ``id`` the number of the job in the run."""

    run: str
    id: int

    def __str__(self) -> str:
        return f"{self.run}/{self.id}"


@dataclass(frozen=True, slots=True)
class Input:
    """A file that settings name: its path below the directory of inputs, and its content."""

    name: str
    content: bytes
    executable: bool


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything a host needs to do a job; ``settings`` name the files ``inputs`` by relative paths.

    ``deadline_s`` bounds the whole job, with the wait for its turn on the host. ``kernels`` are the cache keys of
    kernels that replace a build, in the order of looking; ``kept`` are those that the coordinator has in its cache, and
    ``kernel`` is the archive of the first one, for a host that lacks it. ``versions`` are the coordinator's.
    """

    key: JobKey
    settings: Settings
    settings_sha256: str
    request: Request
    inputs: tuple[Input, ...]
    deadline_s: float
    versions: Versions
    kernels: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    kernel: bytes | None = None

    @classmethod
    def of(cls, run: str, job: Job, settings: Settings, disks: Mapping[str, str]) -> Self:
        """Make the spec of a job, with the disks of its host.

        Raises :class:`UserError` for a kernel image, which is on this host alone and is not sent, or if the input files
        are too large; :class:`InfraError` if a file cannot be read.
        """
        request = job.request
        if isinstance(request, TrialRequest) and request.image is not None:
            raise UserError(f"{request.image} is an image on this host, which no other host has", "leave --hosts out")
        settings = settings.on_disks(disks)
        request = _with_settings(request, lambda own: own.on_disks(disks))
        own = None if isinstance(request, ControlRequest) else request.settings
        used = (settings,) if own is None else (settings, own)
        paths = {path for one in used for path in _named(one)}
        try:
            inputs = {path: _input(path) for path in sorted(paths)}
        except OSError as error:
            raise InfraError(f"cannot read {error.filename}: {error.strerror}", f"ls -l {error.filename}") from error
        if (size_bytes := sum(len(one.content) for one in inputs.values())) > _MOST_BYTES:
            raise UserError(
                f"the input files have {size_bytes >> 20} MiB, and {_MOST_BYTES >> 20} go to a host at most"
            )
        places = {path: Path(INPUTS, one.name) for path, one in inputs.items()}
        return cls(
            JobKey(run, job.id),
            _moved(settings, places),
            fingerprint(settings),
            _with_settings(request, lambda own: _moved(own, places)),
            tuple(inputs.values()),
            max(map(longest_s, used)),
            versions.own(),
            kernels_of(settings, request),
        )

    def unpack(self, place: Path) -> None:
        """Write the files below ``place``, where the previous job may still be reading them; raises ``OSError``.

        Raises :class:`InfraError` if the settings that arrived are not those that were sent.
        """
        for one in self.inputs:
            path = inside(place / INPUTS, one.name)
            if not path.exists() or path.read_bytes() != one.content:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, one.content, 0o755 if one.executable else 0o644)
        settings, _ = self.unpacked(place)
        if fingerprint(settings) != self.settings_sha256:
            raise InfraError(
                f"the settings of trial {self.key} are not what they were where they came from",
                "both hosts need the same version of bisector",
            )

    def unpacked(self, place: Path) -> tuple[Settings, Request]:
        """The settings and the request, which name the files below ``place``."""
        places = {Path(INPUTS, one.name): place / INPUTS / one.name for one in self.inputs}
        return _moved(self.settings, places), _with_settings(self.request, lambda own: _moved(own, places))


def longest_s(settings: Settings) -> float:
    """Seconds that exceed the time of any job with these settings."""
    kernel, machine = settings.kernel, settings.machine
    return machine.trial_deadline_s + _BUILDS * kernel.build_deadline_s + settings.contention.patience_s + _SPARE_S


def _with_settings(request: Request, change: Callable[[Settings], Settings]) -> Request:
    """The request with its own settings changed, if it has any."""
    if isinstance(request, ControlRequest) or request.settings is None:
        return request
    return replace(request, settings=change(request.settings))


def _named(settings: Settings) -> Iterator[Path]:
    """The files that settings name; a fragment without a slash belongs to the tool, and so is on each host."""
    kernel = settings.kernel
    if kernel.base_config is not None:
        yield kernel.base_config
    yield from (Path(name) for name in kernel.fragments if "/" in name)
    yield from settings.workload.inputs.values()


def _moved(settings: Settings, places: Mapping[Path, Path]) -> Settings:
    kernel, workload = settings.kernel, settings.workload
    fragments = tuple(str(places[Path(name)]) if "/" in name else name for name in kernel.fragments)
    base = None if kernel.base_config is None else places[kernel.base_config]
    return replace(
        settings,
        kernel=replace(kernel, base_config=base, fragments=fragments),
        workload=workload.with_inputs({name: places[path] for name, path in workload.inputs.items()}),
    )


def _input(path: Path) -> Input:
    # The file keeps its name, since results may name a workload by its job file.
    return Input(f"{sha256_of(path)[:_DIGITS]}/{path.name}", path.read_bytes(), bool(path.stat().st_mode & 0o100))
