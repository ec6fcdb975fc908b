"""Arguments in, exit code out; nothing else."""

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from bisector import commands, options
from bisector.errors import BisectorError, Interrupted

_EXIT_CODES = """\
exit codes:
  0 found    1 the ends do not reproduce    2 mend the input    3 narrowed to a set of commits
  4 trouble of this tool or its host: bisector resume    130 interrupted: bisector resume
"""

_EXAMPLES = {
    "": """\
examples:
  bisector start v4.11 v4.13-rc1             in a kernel tree: which commit made v4.13-rc1 fast?
  bisector start v6.1 v6.2 --regression      which commit made v6.2 slow?
  bisector status                            where the newest run stands
  bisector resume                            go on after an interruption, a crash or a reboot
""",
    "start": """\
examples:
  bisector start v4.11 v4.13-rc1
  bisector start v4.11 v4.13-rc1 --profile article --ssd /dev/nvme0n1p4 --hdd /dev/sdb1
  bisector start v6.1 v6.2 --regression --terms fast:slow
  bisector start v4.11 v4.13-rc1 --skip 0123abcd --skip v4.12-rc1..4567cdef -- drivers/md
""",
    "test": """\
examples:
  bisector test v6.1                         measure one commit
  bisector test HEAD --threshold 2000 --json
exit codes: 0 measured, 3 this kernel cannot be judged, else as `bisector --help` says
""",
    "settings": """\
examples:
  bisector settings
  bisector settings --profile article --set storage.hdd.iops_limit=200
  bisector settings --toml > bisector.toml
""",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Only a bug of ours ends in a traceback."""
    arguments = _parser().parse_args(argv)
    # A supervisor's SIGTERM ends a run as cleanly as a person's Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code: int = arguments.command(arguments)
    except BisectorError as error:
        return _complain(error)
    except KeyboardInterrupt:
        return _complain(Interrupted("interrupted"))
    except BrokenPipeError:  # `bisector table | head`
        sys.stderr.close()
        return 0
    except Exception:  # noqa: BLE001 - the last line of defence: say that it is our bug, and where
        traceback.print_exc()
        print("this is a bug in bisector; what was measured is kept: bisector resume", file=sys.stderr)  # noqa: T201
        return BisectorError.exit_code
    return code


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _complain(error: BisectorError) -> int:
    print(f"bisector: {error}", file=sys.stderr)  # noqa: T201 - the door to the person
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)  # noqa: T201
    return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bisector",
        epilog=_epilog(""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description="Find the first commit that made a Linux storage stack slower, or faster: "
        "build, boot, measure and classify commit after commit, unattended.",
    )
    parser.add_argument("--version", action="version", version=f"bisector {version('bisector')}")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_start(verbs)
    _add_resume(verbs)
    for name, command, help_line in (
        ("status", commands.status, "how a run stands: one paragraph, or everything with --json"),
        ("table", commands.table, "the verdict table"),
    ):
        shown = _verb(verbs, name, command, help_line)
        _add_run_dir(shown)
        shown.add_argument("--json", action="store_true", help="for scripts; README.md documents it")
    _add_run_dir(_verb(verbs, "log", commands.log, "git's own bisect log"))
    _add_test(verbs)
    settings = _verb(verbs, "settings", commands.settings, "the effective settings and where each comes from")
    settings.add_argument("--toml", action="store_true", help="as a bisector.toml")
    options.add_flags(settings)
    image = _verb(verbs, "image", commands.image, "the guest's root image")
    image.add_argument("action", choices=("build",), help="build it, unless it is there already")
    reset = _verb(verbs, "reset", commands.reset, "end a run: remove its worktrees, guests, disks and build")
    _add_run_dir(reset)
    reset.add_argument("--delete", action="store_true", help="remove its record and all its files, too")
    return parser


def _add_start(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    start = _verb(verbs, "start", commands.start, "bisect a range")
    start.add_argument("old", metavar="OLD", help="a commit on the old side (broken)")
    start.add_argument("new", metavar="NEW", help="a commit on the new side (fixed)")
    start.add_argument("paths", metavar="PATH", nargs="*", help="after --: only commits that touch these")
    start.add_argument("--skip", action="append", default=[], metavar="REV", help="known to be untestable; repeatable")
    _add_repo(start)
    start.add_argument("--run-dir", type=Path, metavar="DIR", help="where the run is kept (default: under XDG state)")
    _add_quiet(start)
    options.add_flags(start)


def _add_resume(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    resume = _verb(verbs, "resume", commands.resume, "go on with a run; nothing is measured twice")
    _add_run_dir(resume)
    _add_quiet(resume)


def _add_test(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    test = _verb(verbs, "test", commands.test, "one trial of one commit")
    test.add_argument("commit", metavar="COMMIT")
    _add_repo(test)
    test.add_argument("--run-dir", type=Path, metavar="DIR", help="where its files are kept (default: under XDG state)")
    test.add_argument("--json", action="store_true", help="for scripts; README.md documents it")
    _add_quiet(test)
    options.add_flags(test)


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, command: object, help_line: str
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        name,
        help=help_line,
        description=help_line[0].upper() + help_line[1:] + ".",
        epilog=_epilog(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.set_defaults(command=command)
    return verb


def _epilog(name: str) -> str:
    return "\n".join(filter(None, (_EXAMPLES.get(name, ""), "" if name else _EXIT_CODES)))


def _add_repo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the kernel repository (default: .)")


def _add_run_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="which run (default: the newest)")


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="only the answer")
