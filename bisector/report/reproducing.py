"""The command that asks for the same bisection again: what differs from the defaults, and nothing else."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bisector.config import Settings, options
from bisector.config.option_table import PROFILES, by_key
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.option import Option
from bisector.report.document import Asked
from bisector.store.rows import BisectionRow

_RELEASE = re.compile(r"v\d+\.\d+[\w.-]*")
# What says nothing of the measurement; --overwrite is one person's word for the content of a disk with that serial.
_NO_MATTER = ("mail.", "kernel.sandbox", "storage.overwrite", "contention.patience")
_NUMBERED = re.compile(r"\d+-")


def asked(row: BisectionRow, settings: Settings) -> Asked:
    """What was typed, as far as it is on record, and the command."""
    return Asked(row.old_rev, row.new_rev, row.paths, row.skips, row.first_parent, command(row, settings))


def command(row: BisectionRow, settings: Settings) -> str:
    """``bisector start OLD NEW`` with its flags; the names of files are without their directories."""
    words = ["bisector", "start", _end(row.old_rev, row.old_sha), _end(row.new_rev, row.new_sha)]
    words += [word for one in _flags(_with_own_files(settings)) for word in one]
    words += [word for sha in row.skips for word in ("--skip", sha[:12])]
    words += ["--", *row.paths] if row.paths else []
    return shlex.join(words)


def _end(rev: str, sha: str) -> str:
    """A release's tag means the same everywhere; a branch, tomorrow, does not even here."""
    return rev if _RELEASE.fullmatch(rev) else sha[:12]


def _with_own_files(settings: Settings) -> Settings:
    """The run's copies of files of ours by our names, a person's own by theirs."""
    kernel, workload = settings.kernel, settings.workload
    base = kernel.base_config
    return replace(
        settings,
        kernel=replace(
            kernel,
            base_config=Path(base.name) if base else None,
            fragments=tuple(fragment_name(Path(name)) for name in kernel.fragments),
        ),
        workload=replace(workload, job=_own_job(workload.job)),
    )


def fragment_name(copy: Path) -> str:
    """Of a copy of a fragment of ours its name, else the file's own with a slash."""
    stem = _NUMBERED.sub("", copy.stem, count=1)
    try:
        own = resources.fragment(stem)
    except UserError:
        return f"./{stem}.config"
    return stem if _same(own, copy) else f"./{stem}.config"


def _own_job(copy: Path) -> Path:
    try:
        own = resources.job(copy.name)
    except UserError:
        return Path(copy.name)
    return own if _same(own, copy) else Path(copy.name)


def _same(one: Path, other: Path) -> bool:
    """A copy that is gone was the same: its name alone is what is left."""
    return not other.is_file() or one.read_bytes() == other.read_bytes()


def _flags(settings: Settings) -> Iterator[tuple[str, ...]]:
    """For each setting that has not its default (of this profile, on this machine), the words that set it."""
    usual, known = {**options.usual(settings), "profile": PROFILES[0]}, by_key()
    for key, value in options.written_values(settings).items():
        if value != usual[key] and not key.startswith(_NO_MATTER):
            yield from _words(known[key], value)


def _words(option: Option, value: object) -> Iterator[tuple[str, ...]]:
    """A flag where there is one, once for each item of a list; ``--set`` where there is none."""
    if option.const and str(value).lower() == option.const:
        yield (option.short or option.flag,)
    elif option.flag and (option.short or not option.const):
        items = value if isinstance(value, list) and option.repeat else [value]
        yield from ((option.flag, _typed(item)) for item in items)
    else:
        yield ("--set", f"{option.key}={_typed(value)}")


def _typed(value: object) -> str:
    """A value as it is typed on a command line."""
    return ",".join(map(str, value)) if isinstance(value, list) else options.shown(value).replace('""', "")
