"""Arguments in, exit code out; nothing else."""

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from types import FrameType

from bisector.commands import bisect, doctor, kernel, measure, settings, show, upkeep
from bisector.errors import BisectorError, Interrupted

_EXIT_CODES = """\
exit codes:
  0 found    1 the ends do not reproduce    2 mend the input    3 narrowed to a set of commits
  4 trouble of this tool or its host: bisector resume    130 interrupted: bisector resume
"""

_EXAMPLES = """\
examples:
  bisector start v4.11 v4.13-rc1             in a kernel tree: which commit made v4.13-rc1 fast?
  bisector start v6.1 v6.2 --regression      which commit made v6.2 slow?
  bisector status                            where the newest run stands
  bisector resume                            go on after an interruption, a crash or a reboot
"""

_COMMANDS = (bisect, show, measure, kernel, settings, doctor, upkeep)


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
        epilog=f"{_EXAMPLES}\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description="Find the first commit that made a Linux storage stack slower, or faster: "
        "build, boot, measure and classify commit after commit, unattended.",
    )
    parser.add_argument("--version", action="version", version=f"bisector {version('bisector')}")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _COMMANDS:
        module.add(verbs)
    return parser
