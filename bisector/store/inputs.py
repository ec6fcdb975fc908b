"""The input files of a bisection, kept with it: a resumed night measures with the same ones.

A job file or a configuration that is edited between two trials would make them incomparable.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from bisector.config import KernelSettings, Settings
from bisector.core import resources
from bisector.core.errors import InfraError

INPUTS = "inputs"


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


def _fragment(name: str) -> Path:
    """A fragment of the tool by name; one of a person's own is written with a slash."""
    return Path(name) if "/" in name else resources.fragment(name)


def _copy(source: Path, target: Path) -> Path:
    shutil.copyfile(source, target)
    return target
