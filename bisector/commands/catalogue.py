"""The list of commands, and the parser of one: help that fits a screen, and usage errors as one sentence."""

import argparse
import difflib
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from bisector.commands.output import note, write
from bisector.core.errors import UserError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_PROGRAM = "bisector "
_ALL = "--help-all"
_EXAMPLES = 5
_LEAST_WIDTH = 60
_REQUIRED = "the following arguments are required: "


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: its name, the one module of this package that is imported for it, and the sentence of help."""

    name: str
    module: str
    sentence: str


# In the order in which a person comes across them.
GROUPS: Mapping[str, tuple[Verb, ...]] = {
    "a bisection": (
        Verb("start", "measure", "build, boot and measure the kernels of a range until the commit is found"),
        Verb("resume", "measure", "go on with a run; nothing is measured twice"),
        Verb("next-step", "measure", "bisect the second change that a run's readings show"),
        Verb("runs", "show", "list the runs, with their answers"),
        Verb("status", "show", "show where a run stands, in one paragraph or as JSON"),
        Verb("table", "show", "show the table of trials and verdicts"),
        Verb("log", "show", "print git's bisect log of a run"),
        Verb("report", "report", "print the full report of a run: text, mail, markdown, json or html"),
        Verb("plot", "report", "draw a run: IOPS over time, figures by commit"),
        Verb("mail", "report", "draft a letter with the report; --send sends it"),
        Verb("baselines", "measure", "measure each disk of a run's stack alone"),
        Verb("import", "importing", "import fio results that others measured, by an index or one by one"),
        Verb("reset", "machine", "end a run, and remove its worktrees, references, guests, disks and build"),
    ),
    "a comparison": (
        Verb("compare", "compare", "measure kernels on storage stacks and workloads, and tell how they differ"),
    ),
    "every night": (
        Verb("nightly", "nightly", "measure the tips of branches, and bisect what changed"),
        Verb("history", "nightly", "show what the nights measured"),
    ),
    "beforehand": (
        Verb("plan", "plan", "estimate a bisection or comparison on this machine: trials, hours, confidence"),
        Verb("simulate", "simulate", "search simulated histories many times, to see how often the answer is right"),
    ),
    "a single commit": (
        Verb("test", "measure", "measure one commit"),
        Verb("kernel", "kernel", "make the .config or the kernel of a commit, without measuring"),
    ),
    "this machine": (
        Verb("doctor", "machine", "check what this machine lacks, and print the commands that fix it"),
        Verb("settings", "settings", "print the effective settings, and where each comes from"),
        Verb("image", "machine", "build the guest's root image"),
        Verb("cache", "machine", "list or clear the kernels and guest images that are kept for later runs"),
    ),
    "several hosts": (Verb("fleet", "fleet", "show what the hosts of hosts.toml do now, and their versions"),),
}


@dataclass(frozen=True, slots=True)
class Brief:
    """The short ``--help`` of a command with many flags: its arguments, and the flags that a person needs first."""

    usage: str
    flags: str


_OF_A_SEARCH = "stack ssd hdd job command metric runtime"
# The keys are the words of the command.
FIRST_FLAGS: Mapping[str, Brief] = {
    "start": Brief("OLD NEW [-- PATH…]", f"{_OF_A_SEARCH} budget skip config set run-dir"),
    "plan": Brief("OLD NEW [-- PATH…]", f"{_OF_A_SEARCH} budget hosts calibrate config set json"),
    "compare": Brief("SUBJECT…", "stack job command metric runs budget patch parameter plan config set run-dir"),
    "test": Brief("COMMIT", f"{_OF_A_SEARCH} threshold config set json run-dir"),
    "kernel config": Brief("COMMIT", "base-config fragment compiler stack config set repo output"),
    "kernel build": Brief("COMMIT", "base-config fragment compiler stack jobs config set repo output json run-dir"),
    "doctor": Brief("", f"{_OF_A_SEARCH} base-config hosts config set json run-dir"),
    "import": Brief("[FILE…]", "index only-set verdicts commit kernel run verdict old new threshold repo run-dir"),
    "settings": Brief("[KEY…]", f"{_OF_A_SEARCH} profile config set changed toml"),
    "simulate": Brief(
        "(--range OLD NEW | --graph FILE)", "repo strategy flip skip sticky effect spread budget hosts trials seed json"
    ),
}


def entries() -> Iterator[Verb]:
    """Yield every command once."""
    for group in GROUPS.values():
        yield from group


def sentence(name: str) -> str:
    """The purpose of a command, as a sentence."""
    (line,) = (entry.sentence for entry in entries() if entry.name == name)
    return f"{line[0].upper()}{line[1:]}."


# The parser


class CommandParser(argparse.ArgumentParser):
    """A parser whose ``--help`` fits a screen (:data:`FIRST_FLAGS`), and whose errors are :class:`UserError`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.command = self.prog.removeprefix(_PROGRAM)
        if self.command in FIRST_FLAGS:
            self.usage = f"%(prog)s [options] {FIRST_FLAGS[self.command].usage}"
            self.add_argument(_ALL, action=_HelpAll, nargs=0, help="print the help of all flags")

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        """Print the short help if there is one, else the full help."""
        self._print_message(self.brief() if self.command in FIRST_FLAGS else self.format_help(), file or sys.stdout)

    def brief(self) -> str:
        """The short help: usage, the flags that a person needs first, and some examples."""
        width = max(_LEAST_WIDTH, shutil.get_terminal_size().columns)
        known = {word: action for action in self._actions for word in action.option_strings}
        rows = []
        for action in (known[f"--{name}"] for name in FIRST_FLAGS[self.command].flags.split()):
            value = "" if action.nargs == 0 else f" {action.metavar or '|'.join(map(str, action.choices or ()))}"
            meaning = (action.help or "").replace("%%", "%").partition(";")[0]
            rows.append((f"  {', '.join(action.option_strings)}{value}", meaning))
        column = max(len(flag) for flag, _ in rows) + 2
        lines = []
        for flag, meaning in rows:
            lines += textwrap.wrap(meaning, width, initial_indent=flag.ljust(column), subsequent_indent=" " * column)
        # The first few examples that take one line and fit the width.
        told = (self.epilog or "").splitlines()
        goes_on = {one for one, after in pairwise(told) if after.startswith("    ")}
        fit = (one for one in told if one.startswith(f"  {_PROGRAM}") and len(one) <= width and one not in goes_on)
        above = (*textwrap.wrap(self.format_usage().strip(), width), *textwrap.wrap(self.description or "", width))
        last = f"all {len(set(known.values()))} flags: {self.prog} {_ALL}"
        return "\n".join((*above, "", *lines, "examples:", *islice(fit, _EXAMPLES), last, ""))

    def error(self, message: str) -> NoReturn:
        """Raise :class:`UserError` instead of printing the usage."""
        if message.startswith(_REQUIRED):
            message = f"{self.command} needs {message.removeprefix(_REQUIRED)}"
        raise UserError(message.removeprefix("argument "), f"see {self.prog} --help")

    def refuse_unknown(self, words: Iterable[str]) -> None:
        """Raise :class:`UserError` for a flag that neither this command nor the named subcommand has."""
        words = list(words)
        subcommands = (one.choices for one in self._actions if isinstance(one, argparse._SubParsersAction))
        parts: dict[str, CommandParser] = {name: part for choices in subcommands for name, part in choices.items()}
        if (name := next((word for word in words if word in parts), None)) is not None:
            parts[name].refuse_unknown(words[words.index(name) + 1 :])
            return
        known = self._option_string_actions
        for word in (one.partition("=")[0] for one in words if " " not in one.partition("=")[0]):
            # A flag is not "-" (standard input), "--", a negative number, or a word without a dash.
            flag = word.startswith("-") and word not in ("-", "--") and not self._negative_number_matcher.match(word)
            if flag and word not in known and (word.startswith("--") or word[:2] not in known):
                raise UserError(f"{self.prog} has no flag {word}", self._meant(word, known))

    def _meant(self, typed: str, known: Iterable[str]) -> str:
        near = difflib.get_close_matches(typed, list(known), n=1, cutoff=0.7)
        return f"did you mean {near[0]}?" if near else f"see {self.prog} --help"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            raise UserError(f"there is no command {_PROGRAM}{f'{self.command} {value}'.removeprefix(_PROGRAM)}",
                            self._meant(value, known))  # fmt: skip
        name = action.option_strings[-1] if action.option_strings else self.prog
        raise UserError(f"{name}: expected one of {', '.join(known)}, not {value}", self._meant(value, known))

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        """Print help by :func:`write`: argparse itself, as of Python 3.11.2, raises if its reader has gone away."""
        if file is sys.stdout:
            write(message)
        else:
            note(message.removesuffix("\n"))


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        write(parser.format_help())
        parser.exit()
