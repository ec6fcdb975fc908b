"""The input files of a bisection, kept with it: a resumed night measures with the same ones.

A job file or a configuration that is edited between two trials would make them incomparable.
"""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bisector.config import KernelSettings, Settings, options
from bisector.config.option_table import rows
from bisector.core import resources
from bisector.core.errors import InfraError

INPUTS = "inputs"
_KERNEL_FILES = ("kernel.base_config", "kernel.fragments")


def keep(settings: Settings, run_dir: Path) -> Settings:
    """Copy the workload's files, base .config and fragments into the run directory; the settings that name the copies.

    Raises :class:`InfraError` when they cannot be written.
    """
    directory = run_dir / INPUTS
    kernel, workload = settings.kernel, settings.workload
    try:
        directory.mkdir(exist_ok=True)
        base = kernel.base_config and _copy(kernel.base_config, directory / "base.config")
        fragments = tuple(
            str(_copy(_fragment(name), directory / f"{number}-{Path(name).stem}.config"))
            for number, name in enumerate(kernel.fragments, 1)
        )
        given = {field: _copy(path, directory / path.name) for field, path in workload.inputs.items()}
    except OSError as error:
        raise InfraError(f"cannot copy {error.filename}: {error.strerror}", f"df {run_dir}") from error
    return replace(
        settings,
        kernel=replace(kernel, base_config=base, fragments=fragments),
        workload=workload.with_inputs(given),
    )


def contents(kernel: KernelSettings) -> tuple[object, ...]:
    """What kernels are made from, whatever the files are called: two runs with equal ones build equal kernels.

    A file that is gone has no contents.
    """
    named = (kernel.base_config, *map(_fragment, kernel.fragments))
    return (kernel.compilers, *(path.read_bytes() if path and path.is_file() else None for path in named))


def fingerprint(settings: Settings) -> str:
    """The same for settings that measure alike, wherever their input files are."""
    files = [(path.name, path.read_bytes() if path.is_file() else None) for path in settings.workload.inputs.values()]
    whole = (sorted(compared(settings).items()), files, contents(settings.kernel))
    return hashlib.sha256(repr(whole).encode(errors="surrogateescape")).hexdigest()


def compared(settings: Settings) -> Mapping[str, object]:
    """The settings that have to be equal for trials to be alike: not those of mail, nor the paths of input files."""
    files = {*_KERNEL_FILES, *(f"workload.own.{settings.workload.kind}.{one}" for one in settings.workload.inputs)}
    looked_at = (one.key for one in rows() if one.field not in files and not one.key.startswith("mail."))
    written = options.written_values(settings)
    return {key: written[key] for key in looked_at}


def _fragment(name: str) -> Path:
    """A fragment of the tool by name; one of a person's own is written with a slash."""
    return Path(name) if "/" in name else resources.fragment(name)


def _copy(source: Path, target: Path) -> Path:
    shutil.copyfile(source, target)
    return target
