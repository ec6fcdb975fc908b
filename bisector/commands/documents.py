"""What commands print with ``--json``, where no room below has a record of it already."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from bisector.commands.output import write_document
from bisector.core.json_document import ABSENT, SCHEMA, Absent, NamedCommit, Record, text
from bisector.core.subject import Kernel
from bisector.core.verdict import Strategy

Early: TypeAlias = Literal["second", "both"]


def write_json(document: Record) -> None:
    """One document for scripts."""
    write_document(text(document))


class CacheEntry(Record, frozen=True, kw_only=True):
    """What is kept under a key."""

    key: Annotated[str, "name of its directory"]
    size_bytes: Annotated[int, "what it takes of the disk"]
    last_used: Annotated[str, "time"]


class KernelEntry(CacheEntry, frozen=True, kw_only=True):
    """A kernel that is kept, or a source that is known not to build."""

    release: Annotated[str | None, "release of the kernel; `null` for a source that is known not to build"]


class CachedKernels(Record, frozen=True, kw_only=True):
    """The kernels that are kept."""

    path: Annotated[Path, "directory"]
    limit_bytes: Annotated[int, "size beyond which the least recently used are removed"]
    size_bytes: Annotated[int, "of all together"]
    entries: Annotated[tuple[KernelEntry, ...], "the last used first"]


class CachedImages(Record, frozen=True, kw_only=True):
    """The guest images that are kept."""

    path: Annotated[Path, "directory"]
    size_bytes: Annotated[int, "of all together"]
    entries: Annotated[tuple[CacheEntry, ...], "the last used first"]


class Caches(Record, frozen=True, kw_only=True):
    """What ``bisector cache --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    kernels: Annotated[CachedKernels, "kernels"]
    images: Annotated[CachedImages, "guest images"]


class Simulation(Record, frozen=True, kw_only=True):
    """What ``bisector simulate --json`` prints: what was asked for, and shares, means and ninetieth percentiles."""

    strategy: Annotated[Strategy, "of the searches"]
    commits: Annotated[int, "number of commits in the history"]
    trials: Annotated[int, "number of searches"]
    seed: Annotated[int, "seed of the simulation"]
    early_stop: Annotated[Early | None, "which runs of a kernel stop early; `null` if none does"]
    success_rate: Annotated[float, "share of the searches whose first answer is right"]
    in_set_rate: Annotated[float, "share of the searches whose candidates hold the culprit"]
    set_size_mean: Annotated[float, "mean number of candidates"]
    claimed_mean: Annotated[float, "mean probability that the searches claim"]
    evaluations_mean: Annotated[float, "mean number of completed runs after the ends"]
    evaluations_p90: Annotated[float, "nine of ten searches take at most so many"]
    skips_mean: Annotated[float, "mean number of commits that cannot be tested"]
    vm_hours_mean: Annotated[float, "mean hours of building and measuring"]
    vm_hours_p90: Annotated[float, "nine of ten searches take at most so many"]
    step_ms_mean: Annotated[float, "mean milliseconds in which a commit is chosen"]
    step_ms_max: Annotated[float, "the most milliseconds in which a commit was chosen"]
    not_one_change_rate: Annotated[float, "share of the searches that end because no single change explains the runs"]


class KernelFiles(Record, frozen=True, kw_only=True):
    """The files of a kernel: in the cache, or copies of them."""

    image: Annotated[str, "path of the image that boots"]
    config: Annotated[str, "path of the effective .config"]
    modules: Annotated[str | Absent, "path of a file system for /lib/modules; only of a kernel with modules"] = ABSENT


class KernelBuild(NamedCommit, frozen=True, kw_only=True):
    """What ``bisector kernel build --json`` prints."""

    kernel: Annotated[Kernel, "the kernel"]
    files: Annotated[KernelFiles, "its files, copied with `-o`"]
