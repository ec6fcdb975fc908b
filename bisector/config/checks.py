"""Combinations of settings that cannot work, all in one place, before anything expensive."""

from collections.abc import Callable, Iterator
from pathlib import Path

from bisector.config import EMBEDDED, STACKS, DiskSettings, Security, Settings, job_file, usable_bytes
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.kinds import duration_text, size_text
from bisector.core.option import Problem

LVM_EXTENT_BYTES = 4 << 20  # vgcreate(8): the default physical extent size, to which LVs are rounded up
_LVM_METADATA_LEAST_BYTES = 8 << 20  # lvmcache(7): cache metadata "with a minimum size of 8MiB"
_FILESYSTEM_SHARE = 0.9  # what ext4 leaves for data beside journal, inode tables and bitmaps, rounded down


def first_problem(settings: Settings) -> Problem | None:
    """The first combination that cannot work, if there is one."""
    return next((problem for check in _CHECKS for problem in check(settings)), None)


def first_size_problem(settings: Settings) -> Problem | None:
    """The first thing that does not fit on the disks."""
    return next((problem for check in (_cache_fits_ssd, _files_fit) for problem in check(settings)), None)


def _own_image_has_keys(settings: Settings) -> Iterator[Problem]:
    machine = settings.machine
    keys = {"machine.image_key": machine.image_key, "machine.image_host_key": machine.image_host_key}
    for key, path in keys.items():
        if (machine.image is None) is not (path is None):
            yield Problem(
                ("machine.image", key),
                "an image of your own, its SSH key and its host key are given together or not at all",
                "--image FILE --image-key PRIVATE_KEY --image-host-key PUBLIC_KEY",
            )


def _files_exist(settings: Settings) -> Iterator[Problem]:
    files = {
        "workload.job": settings.workload.job,
        "kernel.base_config": settings.kernel.base_config,
        "machine.image": settings.machine.image,
        "machine.image_key": settings.machine.image_key,
        "machine.image_host_key": settings.machine.image_host_key,
    }
    for key, path in files.items():
        if path is not None and not path.is_file():
            yield Problem((key,), "there is no such file")
    for fragment in settings.kernel.fragments:
        if "/" not in fragment:
            try:
                resources.fragment(fragment)
            except UserError as error:
                yield Problem(("kernel.fragments",), error.message, error.hint)
        elif not Path(fragment).is_file():
            yield Problem(("kernel.fragments",), f"there is no file {fragment}")


def _some_configuration(settings: Settings) -> Iterator[Problem]:
    if settings.kernel.base_config is None and not settings.kernel.fragments:
        yield Problem(("kernel.base_config", "kernel.fragments"), "a kernel needs one of the two")


def _disks_exist(settings: Settings) -> Iterator[Problem]:
    for name, disk in _disks(settings).items():
        key = f"storage.{name}.path"
        if disk.is_volume:
            if settings.machine.connect == EMBEDDED:
                sentence = "a volume needs a libvirt daemon, the embedded driver knows no pools"
                yield Problem((key, "machine.connect"), sentence, "--connect qemu:///system, or give a path")
        elif disk.path and not Path(disk.path).exists():
            yield Problem((key,), "there is no such directory or block device")
        elif disk.path and not (Path(disk.path).is_dir() or Path(disk.path).is_block_device()):
            yield Problem((key,), "it is a file, which would be overwritten", "name the directory to make a file in")


def _disks_are_two(settings: Settings) -> Iterator[Problem]:
    ssd, hdd = settings.storage.ssd, settings.storage.hdd
    if _identity(ssd) is not None and _identity(ssd) == _identity(hdd):
        yield Problem(("storage.ssd.path", "storage.hdd.path"), "both name the same disk")


def _identity(disk: DiskSettings) -> object:
    """What two names of one disk have in common; None for a directory, where each makes its own file."""
    if disk.path is None or disk.is_volume:
        return disk.path
    return Path(disk.path).stat().st_rdev if Path(disk.path).is_block_device() else None


def _cache_fits_ssd(settings: Settings) -> Iterator[Problem]:
    storage = settings.storage
    ssd_bytes = disk_bytes(storage.ssd)
    if not STACKS[storage.stack].cached:
        return
    if storage.metadata_bytes < _LVM_METADATA_LEAST_BYTES:
        yield Problem(("storage.metadata_size",), f"LVM wants {size_text(_LVM_METADATA_LEAST_BYTES)} or more for it")
    # One extent more: the volume group's own header comes first on the disk.
    needed = _extents(storage.cache_bytes) + _extents(storage.metadata_bytes) + LVM_EXTENT_BYTES
    if ssd_bytes is not None and needed > ssd_bytes:
        yield Problem(
            ("storage.cache_size", "storage.metadata_size", "storage.ssd.size"),
            f"the cache and its metadata need {size_text(needed)} on the SSD, which has {size_text(ssd_bytes)}",
        )


def _files_fit(settings: Settings) -> Iterator[Problem]:
    storage, workload = settings.storage, settings.workload
    traits = STACKS[storage.stack]
    try:
        jobs = job_count(workload.job)
    except UserError as error:
        yield Problem(("workload.job",), error.message, error.hint)
        return
    total = workload.file_bytes * jobs
    size = disk_bytes(_disks(settings)[traits.files_on])
    written = f"{jobs} jobs of {size_text(workload.file_bytes)} are {size_text(total)}"
    kept = len(traits.runs)  # the files of a run that fills the cache stay
    over = f", {kept} times over" if kept > 1 else ""
    if size is not None and total * kept > size * _FILESYSTEM_SHARE:
        yield Problem(
            ("workload.file_size", f"storage.{traits.files_on}.size"),
            f"{written}{over}; a file system on {size_text(size)} has no room for that",
        )
    yield from _baselines_fit(settings, written, total)
    if traits.cached and total < storage.cache_bytes:
        yield Problem(
            ("workload.file_size", "storage.cache_size"),
            f"{written}, which never fills the cache; the run that tells is the one with a full cache",
        )


def _baselines_fit(settings: Settings, written: str, total_bytes: int) -> Iterator[Problem]:
    """One run's files have room on the SSD alone; on the HDD there is room for those of two."""
    if not settings.bisect.baselines:
        return
    if not STACKS[settings.storage.stack].cached:
        sentence = "a stack without a cache is one disk alone, and needs no other figure of it"
        yield Problem(("bisect.baselines", "storage.stack"), sentence)
    size = disk_bytes(settings.storage.ssd)
    if size is not None and total_bytes > size * _FILESYSTEM_SHARE:
        yield Problem(
            ("bisect.baselines", "workload.file_size", "storage.ssd.size"),
            f"{written}; a file system on the SSD alone, of {size_text(size)}, has no room for that",
        )


def _deadlines_leave_time(settings: Settings) -> Iterator[Problem]:
    runs = len(STACKS[settings.storage.stack].runs)
    runs_s = runs * settings.workload.runtime_s
    if settings.machine.trial_deadline_s <= runs_s:
        what = f"the {runs} runs of a trial alone take" if runs > 1 else "the run of a trial alone takes"
        yield Problem(("machine.trial_deadline", "workload.runtime"), f"{what} {duration_text(runs_s)}")


def mail_is_private(settings: Settings) -> Iterator[Problem]:
    """Whether a letter and a login go over a network unencrypted."""
    mail = settings.mail
    if mail.security is Security.NONE and mail.host not in ("", "localhost", "127.0.0.1", "::1"):
        sentence = "an unencrypted connection is for a server on this host alone"
        yield Problem(("mail.security", "mail.host"), sentence, "mail.security = starttls or tls")


_CHECKS: tuple[Callable[[Settings], Iterator[Problem]], ...] = (
    _own_image_has_keys,
    _files_exist,
    _some_configuration,
    _disks_exist,
    _disks_are_two,
    _cache_fits_ssd,
    _files_fit,
    _deadlines_leave_time,
    mail_is_private,
)


def _disks(settings: Settings) -> dict[str, DiskSettings]:
    return {"ssd": settings.storage.ssd, "hdd": settings.storage.hdd}


def _extents(size_bytes: int) -> int:
    return -(-size_bytes // LVM_EXTENT_BYTES) * LVM_EXTENT_BYTES


def disk_bytes(disk: DiskSettings) -> int | None:
    """The size that the guest will see; None when only libvirt knows it (a volume)."""
    if disk.path is None:
        return disk.size_bytes
    if disk.is_volume:
        return None
    path = Path(disk.path)
    if not path.is_block_device():
        return disk.size_bytes
    # In sectors of 512 bytes whatever the device's own are (kernel: Documentation/ABI/stable/sysfs-block).
    sectors = Path("/sys/class/block") / path.resolve().name / "size"
    return usable_bytes(int(sectors.read_text(encoding="ascii")) * 512)


def job_count(job: Path) -> int:
    """How many jobs an fio job file starts; raises :class:`UserError`.

    fio itself checks the rest; this is needed before there is a guest.
    """
    try:
        count = job_file.processes(job.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the fio job file {job}: {error}") from error
    except job_file.NumberUnread as error:
        raise UserError(f"{job}: {error}") from error
    if not count:
        raise UserError(f"the fio job file {job} has no job: no [section] beside [global]")
    return count
