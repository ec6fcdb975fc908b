"""The entry point: parses the command line, runs one command and returns its exit code."""

import argparse
import importlib
import re
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from bisector.commands import catalogue
from bisector.commands.catalogue import CommandParser
from bisector.commands.output import note, note_turn, write
from bisector.core.errors import BisectorError, Interrupted, UserError

EXIT_CODES: Mapping[int, str] = {
    0: "found",
    1: "the ends do not differ, or not as expected",
    2: "invalid input or configuration",
    3: "narrowed to a set of commits, or nothing in the range changed",
    4: "infrastructure error of the host, the network or bisector; go on with: bisector resume",
    5: "the comparison has an outcome that --fail-on names",
    70: "a bug in bisector, with a traceback; what was measured is kept; go on with: bisector resume",
    130: "interrupted; go on with: bisector resume",
}

_DESCRIPTION = """\
Find the first commit that made a Linux storage stack slower, or faster: build, boot, measure
and classify commit after commit, unattended.
"""

_HELP_OPTIONS = """\
options:
  -h, --help  print this help; `bisector help COMMAND` prints that of a command
  --version   print the version of the tool
"""

_EXAMPLES = """\
examples:
  bisector doctor                            is everything here that a bisection needs?
  bisector start v4.11 v4.13-rc1             in a kernel tree: which commit made v4.13-rc1 fast?
  bisector start v6.1 v6.2 --regression      which commit made v6.2 slow?
  bisector compare v6.1 v6.2                 how far apart are two kernels, and how sure is that?
  bisector test v6.1                         one commit, measured
  bisector status                            where the newest run stands
  bisector resume                            go on after an interruption, a crash or a reboot
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Only a bug in bisector prints a traceback."""
    words = sys.argv[1:] if argv is None else argv
    try:
        if not words:
            write(parser("").summary())
            return UserError.exit_code  # so that a script that lost its command fails
        arguments = parsed(words)
        # A supervisor's SIGTERM ends a run as cleanly as a person's Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if getattr(arguments, "disturbs", False):
            note_turn()
        code: int = arguments.command(arguments)
    except BisectorError as error:
        return _complain(error)
    except KeyboardInterrupt:
        return _complain(Interrupted("interrupted"))
    except Exception:  # noqa: BLE001 - the last line of defence: say that it is our bug, and where
        note(traceback.format_exc() + "this is a bug in bisector; what was measured is kept: bisector resume")
        return BisectorError.exit_code
    return code


def _complain(error: BisectorError) -> int:
    note(f"bisector: {error}")
    if error.hint:
        note(f"  {error.hint}")
    return error.exit_code


# Words that stand for another command: only `compare` knows its arguments, so it estimates a comparison itself.
_ANOTHERS: Mapping[tuple[str, ...], tuple[str, ...]] = {("plan", "compare"): ("compare", "--plan")}


class Parser(CommandParser):
    """The top-level parser. argparse cannot group commands, so this class puts the help together."""

    commands: Mapping[str, argparse.ArgumentParser]

    def format_help(self) -> str:
        """The whole help: usage, commands grouped by purpose, options, examples, exit codes."""
        width = max(map(len, self.commands))
        groups = []
        for title, entries in catalogue.GROUPS.items():
            rows = [f"  {entry.name:{width}}  {catalogue.sentence(entry.name).rstrip('.')}" for entry in entries]
            groups.append("\n".join((f"{title}:", *rows, "")))
        codes = ("exit codes:", *(f"  {code:3}  {meaning}" for code, meaning in EXIT_CODES.items()), "")
        return "\n".join((self.format_usage(), _DESCRIPTION, *groups, _HELP_OPTIONS, _EXAMPLES, *codes))

    def summary(self) -> str:
        """The text that ``bisector`` without arguments prints."""
        return "\n".join((self.format_usage(), _DESCRIPTION, _EXAMPLES, "all commands: bisector --help\n"))


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; raises :class:`UserError` if it is invalid.

    What follows ``--`` is split off first as the range's paths. argparse would not accept arguments after a command's
    options if an earlier argument came before those options.
    """
    words = [*_ANOTHERS.get(tuple(argv[:2]), argv[:2]), *argv[2:]]
    if words[0] == "help":
        words = [*words[1:], "--help"]
    whole = parser(words[0])
    takes_paths = words[0] in whole.commands and whole.commands[words[0]].get_default("paths") == []
    at = words.index("--") if takes_paths and "--" in words else len(words)
    before, paths = words[:at], words[at + 1 :]
    whole.refuse_unknown(before[: before.index("--")] if "--" in before else before)
    span = _span(before, whole.commands[words[0]]) if takes_paths else None
    arguments, unknown = whole.parse_known_args(before)
    if unknown:
        raise UserError(f"{words[0]} does not take {' '.join(unknown)}", f"see bisector {words[0]} --help")
    if span is not None and arguments.paths:
        raise UserError(
            f"{span} is both ends of the range, and {arguments.paths[0]} is one word more",
            f"OLD NEW or OLD..NEW; paths come last, after two dashes: -- {arguments.paths[0]}",
        )
    if paths:
        arguments.paths = [*arguments.paths, *paths]
    return arguments


# ``A..B`` and ``A...B`` as in gitrevisions(7), but not ``:/text..``, ``A^{/text..}``, or ``../path``.
_SIDE = r"((?:\{[^{}]*\}|[^\s{}.]|\.(?!\.))*)"
_SPAN = re.compile(rf"(?!:|-|\.{{0,2}}/)(?=.*[^.]){_SIDE}(\.{{2,3}}){_SIDE}")


def _span(words: list[str], command: argparse.ArgumentParser) -> str | None:
    """Replace the word in ``words`` that names both ends by two words, and return it; None if there is no such word."""
    options = command._option_string_actions  # argparse has no public way to ask
    flags = {name for name, action in options.items() if action.nargs == 0}
    for place, word in enumerate(words[1:], 1):
        alone = words[place - 1] in flags or not words[place - 1].startswith("-")
        if alone and (found := _SPAN.fullmatch(word)):
            words[place : place + 1] = _ends_of(found)
            return word
    return None


def _ends_of(span: re.Match[str]) -> tuple[str, str]:
    """Both ends of ``A..B``; an omitted end is HEAD, as in git. Raises :class:`UserError` for ``A...B``."""
    old, dots, new = (side or "HEAD" for side in span.groups())
    if dots == "...":
        raise UserError(
            f"{span[0]}: three dots are the commits of both sides since their merge base, and no range of two ends",
            f"{old} {new}; where {old} is not an ancestor of {new}, their merge base is tried first",
        )
    return old, new


def parser(wanted: str | None = None) -> Parser:
    """The parser of the command line, with the arguments of the command ``wanted``, or of all commands if it is None.

    Only the modules of these commands are imported: importing all takes most of a second.
    """
    whole = Parser(prog="bisector", allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"bisector {version('bisector')}")
    verbs = whole.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)
    known = tuple(catalogue.entries())
    for module in dict.fromkeys(entry.module for entry in known if wanted in (None, entry.name)):
        importlib.import_module(f"bisector.commands.{module}").add(verbs)
    for entry in known:
        if entry.name not in verbs.choices:
            verbs.add_parser(entry.name)
    whole.commands = verbs.choices
    return whole
