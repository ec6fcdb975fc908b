"""Asks the fio of this machine what it takes in a job file, as the table that job files are checked by.

``python -m tests.workload.fio_table`` writes the table anew; that has to be done with the fio of the guest image.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bisector.workload.fio import job_file

_NUMBERS = ("integer value", "boolean value", "empty or boolean", "string with time", "string with possible", "(null)")


def _asked(*argv: str) -> str:
    done = subprocess.run(["fio", *argv], capture_output=True, text=True, check=False, timeout=30)
    return done.stdout + done.stderr


def _parsed(line: str) -> str:
    """What fio says of a job with this line; nothing of one that it takes."""
    with tempfile.NamedTemporaryFile("w", suffix=".fio") as job:
        job.write(f"[x]\nrw=read\nsize=1m\n{line}\n")
        job.flush()
        return _asked("--parse-only", job.name)


def _names(listed: str) -> list[str]:
    return [line.split(":")[0].strip() for line in listed.splitlines() if line.strip()]


def _option(name: str) -> str:
    (told,) = (one for one in _asked(f"--cmdhelp={name}").split("\n\n") if one.strip().startswith(f"{name}:"))
    (kind,) = re.findall(r"^ *type: (.*)", told, re.MULTILINE)
    names = ",".join([name, *re.findall(r"alias: (\S+)", told)])
    bare = "?" if not _parsed(name) else ""
    refused = _parsed(f"{name}=xyzzy")
    values = re.findall(r"^ *(?:valid values)?: (\S+) ", told.partition("valid values")[2], re.MULTILINE)
    if values and "valid values" in refused:
        return f"{names}{bare} word {' '.join(values)}"
    if refused and kind.startswith(_NUMBERS):
        bounds = dict(re.findall(r"(min|max)=(-?\d+)", told))
        if "boolean" in kind:
            bounds = {"min": "0", "max": "1"}
        return f"{names}{bare} number {bounds.get('min', '')}..{bounds.get('max', '').replace('-1', '')}"
    return f"{names}{bare} text"


def table() -> Iterator[str]:
    """Its lines."""
    yield f"# What {job_file.VERSION} of the guest image takes in a job file. Written by tests/workload/fio_table.py."
    yield from sorted(map(_option, _names(_asked("--cmdhelp=all"))))
    for engine in sorted(_names(_asked("--enghelp").partition("\n")[2])):
        own = [] if "no options" in (told := _asked(f"--enghelp={engine}")) else sorted(_names(told))
        yield f"engine {' '.join([engine, *own])}"


if __name__ == "__main__":
    Path(job_file.TABLE).write_text("".join(f"{line}\n" for line in table()), encoding="utf-8")
