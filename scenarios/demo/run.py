"""``make demo``: the real ``bisector start`` on a history whose answer is known, and whether it finds it.

The exit status is 0 for the right commit, 1 for another answer, else that of ``bisector``.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bisector.core.errors import UserError
from bisector.core.resources import cache_home
from bisector.store.log import DATABASE
from bisector.store.rundir import state_home
from scenarios.demo import compare, history
from scenarios.demo.history import NEW_TAG, OLD_TAG, History
from scenarios.kept_runs import bisector, exit_status, waited_for

SOURCES = Path("/usr/src")
_WRONG_ANSWER = 1


def tarballs(directory: Path = SOURCES) -> list[Path]:
    """The linux-source tarballs, that of the lowest version first; raises :class:`UserError` when there is none."""
    found = sorted(directory.glob("linux-source-*.tar.xz"), key=version)
    if not found:
        raise UserError(f"no linux-source-*.tar.xz in {directory}", "apt-get install linux-source")
    return found


def newest_tarball(directory: Path = SOURCES) -> Path:
    """The linux-source tarball with the highest version; raises :class:`UserError` when there is none."""
    return tarballs(directory)[-1]


def number(tarball: Path) -> str:
    """Its version, as in "6.12"."""
    return ".".join(map(str, version(tarball)))


def history_of(tarball: Path, home: Path) -> Path:
    """Where the history that is made of a tarball is kept: of the newest beside it, it is the demonstration's."""
    return home / ("linux" if tarball == newest_tarball(tarball.parent) else f"linux-{number(tarball)}")


def version(path: Path) -> tuple[int, ...]:
    """That in the name of a tarball."""
    return tuple(int(number) for number in re.findall(r"\d+", path.name.removesuffix(".tar.xz")))


def verdict(wanted: History, status: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the answer in ``status --json`` is the commit that was made to be found, and the sentence about it."""
    found = status["first_fixed"]
    culprit = f'{wanted.culprit.sha[:12]} ("{wanted.culprit.subject}")'
    if found is None:
        return False, f"WRONG: no single commit found ({status['state']}); it is {culprit}"
    if found["sha"] != wanted.culprit.sha:
        return False, f'WRONG: found {found["sha"][:12]} ("{found["subject"]}"); it is {culprit}'
    return True, f"RIGHT: {culprit} is the commit that was made to be found"


def demonstrate(tarball: Path, extra: Sequence[str]) -> int:
    """Make the history, bisect it, compare; the exit status."""
    began = time.monotonic()
    _say(f"making the history from {tarball}")
    made = history.make(tarball, history_of(tarball, cache_home() / "demo"))
    _say(f"{len(made.commits)} commits in {made.repo} ({time.monotonic() - began:.0f} s)")
    run_dir = state_home() / "demo"
    if (run_dir / DATABASE).is_file():
        subprocess.run(bisector("reset", "--delete", "--run-dir", run_dir), check=False)
    start = bisector("start", OLD_TAG, NEW_TAG, "--repo", made.repo, "--run-dir", run_dir, *extra)
    if ended := waited_for(start):
        return ended
    report = subprocess.run(bisector("status", "--json", "--run-dir", run_dir), stdout=subprocess.PIPE, check=False)
    if report.returncode != 0:
        return report.returncode
    status = json.loads(report.stdout)
    right, sentence = verdict(made, status)
    _say(compare.sentence(made, status))
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    _say(f"{sentence}; {minutes} min {seconds} s in all")
    return 0 if right else _WRONG_ANSWER


def _say(text: str) -> None:
    sys.stdout.write(f"demo: {text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(
        prog="python -m scenarios.demo.run", description="Bisect a history with a known answer."
    )
    parser.add_argument("--tarball", type=Path, help="a linux-source-VERSION.tar.xz (default: the newest in /usr/src)")
    parser.add_argument("rest", nargs="*", metavar="FLAG", help="after --: more flags for bisector start")
    options = parser.parse_args(arguments)
    return exit_status(lambda: demonstrate(options.tarball or newest_tarball(), options.rest))


if __name__ == "__main__":
    sys.exit(main())
