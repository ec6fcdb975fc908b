"""The form in which a job and its results travel between hosts, which need equal versions for it.

The versions have to be equal on all machines that measure together, since they exchange values as pickles.
dask.distributed only warns if its versions differ, and ignores the sources of bisector. Frozen dataclasses are pickled
field by field in order, so a value of another version may be read with its fields exchanged and without an error.

A job is sent as a value that can be pickled, with the files that its settings name. The value includes a digest of the
settings, since figures from other settings could not be compared. Files are sent by content, since their paths are
valid on the sending host only.

The files of a result are sent to the coordinator in an archive with its digest. An archive that arrives is untrusted
input. Only regular files with names of a trial's files are extracted, within bounds, into an empty directory, and moved
to their places when all are there. Python's own filter (tarfile, "data") lets more through; it came with 3.12, and with
later versions of 3.11 than some distributions have.
"""

import functools
import gzip
import hashlib
import importlib.util
import io
import os
import platform
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Self

from bisector.config import Settings
from bisector.core import resources
from bisector.core.errors import InfraError, UserError
from bisector.core.json_document import JsonObject
from bisector.executor.base import ControlRequest, Job, Request
from bisector.executor.local import kernels_of
from bisector.host.files import inside, our_files, scratch, sha256_of, sync, write_atomically
from bisector.host.identity import machine_id
from bisector.store.rundir import INPUTS, fingerprint
from bisector.trial.runner import TrialRequest

# msgpack carries distributed's messages, cloudpickle its functions and arguments.
_PACKAGES = ("distributed", "cloudpickle", "msgpack")
_RUN_LENGTH = 80  # characters of the readable part of a run's key
_RUN_DIGITS = 16
_DIGITS = 12  # digits of a hash in the name of a directory
_MOST_INPUT_BYTES = 64 << 20  # of all files together: configurations, job files, and a bundle that a workload may need
_BUILDS = 4  # each compiler that is tried has a deadline of its own, and a build that timed out is tried once more
_SPARE_S = 3600.0
# The directories, below its run directory, into which an executor writes files of jobs.
WRITTEN = ("trials", "controls", "compilers")
MOST_PACKED_BYTES = 256 << 20
_MOST_FILES = 10_000
_MOST_ARCHIVE_BYTES = 2 << 30
_MOST_DEPTH = 16
_WORD = re.compile(r"(?!\.\.?$)[^/\0]{1,255}")


class Versions(JsonObject, frozen=True, kw_only=True):
    """The versions that have to be equal on all machines that measure together."""

    python: Annotated[str, "major and minor version of Python"]
    bisector: Annotated[str, "version of bisector"]
    source: Annotated[str, "digest of bisector's own modules"]
    distributed: Annotated[str | None, "version of distributed; `null` where it is not installed"]
    cloudpickle: Annotated[str | None, "version of cloudpickle"]
    msgpack: Annotated[str | None, "version of msgpack"]


@functools.cache
def own_versions() -> Versions:
    """Return the versions of this process, by its files as of the first call, which is early in the process."""
    return Versions(
        python=".".join(platform.python_version_tuple()[:2]),
        bisector=metadata.version("bisector"),
        source=_source_digest(),
        **{name: metadata.version(name) if importlib.util.find_spec(name) else None for name in _PACKAGES},
    )


def version_differences(theirs: Versions, ours: Versions | None = None) -> str:
    """Tell people which versions differ on the other machine; empty if none does."""
    ours = ours or own_versions()
    apart = []
    for name in ("python", "bisector", "source", *_PACKAGES):
        here, there = getattr(ours, name), getattr(theirs, name)
        # If the versions of bisector differ, so do the sources.
        if here != there and (name != "source" or ours.bisector == theirs.bisector):
            apart.append(f"{name} is {there or 'not installed'} there and {here or 'not installed'} here")
    return "; ".join(apart)


def _source_digest() -> str:
    """The digest of all modules: two checkouts of one version may be of different commits."""
    digest = hashlib.sha256()
    for path in sorted(resources.PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(resources.PACKAGE)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


# A job


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
        if (size_bytes := sum(len(one.content) for one in inputs.values())) > _MOST_INPUT_BYTES:
            raise UserError(
                f"the input files have {size_bytes >> 20} MiB, and {_MOST_INPUT_BYTES >> 20} go to a host at most"
            )
        places = {path: Path(INPUTS, one.name) for path, one in inputs.items()}
        return cls(
            JobKey(run, job.id),
            _moved(settings, places),
            fingerprint(settings),
            _with_settings(request, lambda own: _moved(own, places)),
            tuple(inputs.values()),
            max(map(longest_s, used)),
            own_versions(),
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


# The files of a result


class DamagedArchive(InfraError):
    """An archive that was changed on its way, or that holds anything but files of a job."""


@dataclass(frozen=True, slots=True)
class ResultArchive:
    """A gzipped tar archive; ``left_out`` are the paths of the largest files, left out to keep it within bounds."""

    content: bytes
    sha256: str
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, place: Path, most_bytes: int = MOST_PACKED_BYTES) -> Self:
        """Pack the files that a job has written below ``place``, without times and owners.

        Raises :class:`InfraError` if a file cannot be read.
        """
        with our_files(place):
            found = {
                path.relative_to(place).as_posix(): path.stat().st_size
                for top in WRITTEN
                for path in (place / top).rglob("*")
                if path.is_file() and not path.is_symlink()
            }
            kept, left_out = sorted(found), list[str]()
            while (
                sum(map(found.__getitem__, kept)) > _MOST_ARCHIVE_BYTES
                or (content := _packed(place, kept, most_bytes)) is None
            ):
                left_out.append(largest := max(kept, key=found.__getitem__))
                kept.remove(largest)
        return cls(content, hashlib.sha256(content).hexdigest(), tuple(left_out))

    def unpack(self, run_dir: Path) -> None:
        """Put the files into a run directory, replacing those of the same name, and sync them to the disk.

        Raises :class:`DamagedArchive`, and :class:`InfraError` if the files cannot be written.
        """
        if hashlib.sha256(self.content).hexdigest() != self.sha256:
            raise DamagedArchive("the files of a result are not what was sent: their digest differs")
        with our_files(run_dir), scratch("arrived", run_dir) as directory:
            try:
                with tarfile.open(fileobj=io.BytesIO(self.content), mode="r:gz") as archive:
                    names = tuple(_taken_out(archive, directory))
            except (tarfile.TarError, zlib.error, EOFError, FileExistsError, NotADirectoryError) as error:
                raise DamagedArchive(f"the files of a result cannot be unpacked: {error}") from error
            for name in names:
                target = inside(run_dir, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                sync(directory / name)
                (directory / name).replace(target)
            for parent in {parent for name in names for parent in (run_dir / name).parents}:
                if parent.is_relative_to(run_dir):
                    sync(parent)


def _packed(place: Path, names: Sequence[str], most_bytes: int) -> bytes | None:
    """The archive of files, without owners and times, which mean nothing on another host; None if it is too large."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in names:
            with (place / name).open("rb") as file:
                member = tarfile.TarInfo(name)
                member.size = os.fstat(file.fileno()).st_size
                member.mode = 0o644
                archive.addfile(member, file)
            if buffer.tell() > most_bytes:
                return None
    return buffer.getvalue()


def _taken_out(archive: tarfile.TarFile, directory: Path) -> Iterator[str]:
    """Extract each file below a directory, within bounds, and yield its name."""
    left_bytes = _MOST_ARCHIVE_BYTES
    for number, member in enumerate(archive):
        left_bytes -= member.size
        if number >= _MOST_FILES or left_bytes < 0:
            raise DamagedArchive("a result has more files than any trial leaves, or larger ones")
        words = member.name.split("/")
        named = len(words) in range(2, _MOST_DEPTH) and words[0] in WRITTEN and all(map(_WORD.fullmatch, words))
        content = archive.extractfile(member) if member.isreg() and not member.issparse() and named else None
        if content is None:
            raise DamagedArchive(f"{member.name!r} is not among the files that a trial leaves")
        target = inside(directory, member.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("xb") as file:
            shutil.copyfileobj(content, file)
        yield member.name
