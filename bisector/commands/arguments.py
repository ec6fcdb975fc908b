"""What commands have in common: how one is registered, flags that mean the same everywhere, documents for scripts."""

import argparse
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from bisector.commands.catalogue import sentence
from bisector.commands.output import write_document
from bisector.config.option_table import DISK_HELP, FRAGMENTS, are_among, from_words, rows
from bisector.config.options import CONFIG_FILE, Given, shown
from bisector.core import json_document, units
from bisector.core.errors import UserError
from bisector.core.metric import named
from bisector.core.objective import WORST, Objective
from bisector.core.setting import AUTO, Option
from bisector.store.rundir import Index, RunDirectory

Command: TypeAlias = Callable[[argparse.Namespace], int]
Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

T = TypeVar("T")
Word = TypeVar("Word", bound=StrEnum)

# What is run when a command has ended is of those that take long.
NOTIFY = "notify.command"
# The settings of a search, which mean nothing where none is made.
OF_A_SEARCH = frozenset(
    f"bisect.{name}"
    for name in (
        *("first_parent", "strategy", "suspect", "calibrate", "baselines", "confirm_by"),
        *("least_effect", "most_pairs"),
    )
) | {"workload.full_runs"}
OF_TWO_SIDES = frozenset(("bisect.threshold", "bisect.expect", "bisect.terms"))
_PERSONS = f"below it counts $XDG_CONFIG_HOME/bisector/{CONFIG_FILE}, for all your runs"
_SETTING = "setting "  # no other argument's destination begins like this


def add_verb(
    verbs: Verbs, name: str, command: Command, *, help_line: str = "", examples: str = "", disturbs: bool = False
) -> argparse.ArgumentParser:
    """The parser of a new command, whose ``command`` takes the parsed arguments and returns the exit code.

    ``help_line`` is for the parts of a command; what a command itself is for stands in the catalogue.

    One that ``disturbs`` works long enough to make a measurement weak that is under way, and does not wait for it.
    """
    verb = verbs.add_parser(
        name,
        help=help_line,
        description=f"{help_line[0].upper()}{help_line[1:]}." if help_line else sentence(name),
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.set_defaults(command=command, disturbs=disturbs)
    return verb


def add_repo(parser: argparse.ArgumentParser) -> None:
    """``--repo``: the person's kernel repository."""
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the kernel repository (default: .)")


def add_run(parser: argparse.ArgumentParser) -> None:
    """``--run-dir`` of a command that looks at a run, or goes on with it; :func:`run_directory` opens what it names."""
    meaning = "which run: its directory, or its number or name in `bisector runs` (default: the newest)"
    parser.add_argument("-r", "--run-dir", type=Path, metavar="RUN", help=meaning)


def add_run_dir(parser: argparse.ArgumentParser, meaning: str) -> None:
    """``--run-dir`` of a command that makes a run."""
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help=meaning)


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``: one document for scripts."""
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts; see docs/json.md")


def typed(expected: str, read: Callable[[str], T], holds: Callable[[T], bool] = lambda _: True) -> Callable[[str], T]:
    """What argparse reads a value with; it says what was expected where ``read`` fails, or ``holds`` does not."""

    def value(text: str) -> T:
        with suppress(ValueError):
            if holds(found := read(text)):
                return found
        raise argparse.ArgumentTypeError(f"expected {expected}, not {text!r}")

    return value


def one_of(words: type[Word]) -> Callable[[str], Word]:
    """What argparse reads one of a few words with."""
    return typed(f"one of {', '.join(words)}", words)


duration = typed("a duration such as 4h, 90min or 1h30m", units.duration_s, lambda seconds: seconds > 0)
count = typed("a whole number, 1 or more", int, lambda number: number >= 1)
seed = typed("a whole number, 0 or more", int, lambda number: number >= 0)


def write_json(document: object) -> None:
    """One document for scripts."""
    write_document(json_document.text(document))


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """``--quiet``: no progress."""
    parser.add_argument("--quiet", action="store_true", help="no progress, only the answer")


def run_directory(arguments: argparse.Namespace) -> RunDirectory:
    """The run that ``--run-dir`` names, else the newest; raises :class:`UserError` when there is none."""
    path = Index().latest() if arguments.run_dir is None else known_run(arguments.run_dir)
    if path is None:
        raise UserError("there is no run yet", "bisector start OLD NEW")
    return RunDirectory.open(path)


def known_run(given: Path) -> Path:
    """The directory of the run with this number or name; of anything else, and where there is such a file, the path."""
    is_path = len(given.parts) != 1 or os.path.lexists(given)
    return given if is_path else Index().named(str(given)) or given


def add_metric(verb: argparse.ArgumentParser) -> None:
    """``--metric`` and ``--over``: look at the runs on record again."""
    verb.add_argument(
        "--metric", metavar="NAME", help="judge the recorded runs by this metric instead, such as read.clat.p99"
    )
    verb.add_argument("--over", metavar="worst|sum|mean|JOB", help="with --metric: over jobs (default: worst)")


def objective_of(arguments: argparse.Namespace) -> Objective | None:
    """What :func:`add_metric` was given; raises :class:`UserError` for what orders nothing."""
    if arguments.metric is None:
        if arguments.over is not None:
            raise UserError("--over goes with --metric")
        return None
    found = Objective(named(arguments.metric).name, arguments.over or WORST)
    found.check()
    return found


def add_settings(parser: argparse.ArgumentParser, keys: Collection[str] | None = None) -> None:
    """A flag for each setting that has one, or for some ``keys``; ``--config FILE``; ``--set KEY=VALUE`` for all."""
    group = parser.add_argument_group("settings", f"override {CONFIG_FILE}; `bisector settings` lists all of them")
    group.add_argument(
        "--config", type=Path, metavar="FILE", help=f"settings file (default: ./{CONFIG_FILE}); {_PERSONS}"
    )
    for option in (row for row in rows() if row.flag and (keys is None or row.key in keys)):
        how: dict[str, Any] = {"dest": _SETTING + option.key, "help": _help(option).replace("%", "%%")}
        const: dict[str, Any] = {"action": "store_const", "const": option.const}
        if option.const and not option.short:
            group.add_argument(option.flag, **how, **const)
            continue
        how |= {"action": "append" if option.repeat else "store", "metavar": option.metavar}
        if not option.short:
            group.add_argument(option.flag, **how)
            continue
        either = group.add_mutually_exclusive_group()
        either.add_argument(option.flag, **how)
        either.add_argument(option.short, dest=how["dest"], help=f"short for {option.flag} {option.const}", **const)
    if keys is None or FRAGMENTS in keys:
        group.add_argument(
            "--fragments-only",
            action="store_true",
            help=f"the kernels have each --fragment and nothing else: not what {AUTO} stands for",
        )
    if keys is None or are_among(keys):
        group.add_argument("--disk", action="append", default=[], metavar="NAME=SIZE[,…]", help=DISK_HELP)
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting, by its key; `bisector settings` lists them",
    )


def _help(option: Option) -> str:
    """What a flag means, with its default behind the first clause, which alone a short help has."""
    whole = f"{option.help}; repeatable" if option.repeat else option.help
    first, semicolon, rest = whole.partition(";")
    default = (
        "" if (option.const and not option.short) or option.quick in ("", ()) else f" (default: {shown(option.quick)})"
    )
    return f"{first}{default}{semicolon}{rest}"


def given_settings(arguments: argparse.Namespace) -> dict[str, Given]:
    """What :func:`add_settings` collected, for :func:`bisector.config.options.load`; raises :class:`UserError`."""
    typed = vars(arguments)
    flagged = ((option, typed.get(_SETTING + option.key)) for option in rows() if option.flag)
    given = {option.key: Given(value, option.flag) for option, value in flagged if value is not None}
    only, fragments = typed.get("fragments_only", False), given.get(FRAGMENTS)
    if fragments is not None:
        names = fragments.raw if isinstance(fragments.raw, list) else []
        # Those of the command line come after what the guest needs, unless there are to be no others.
        given[FRAGMENTS] = fragments if only or AUTO in names else replace(fragments, raw=[AUTO, *names])
    elif only:
        raise UserError("--fragments-only goes with --fragment", "--fragments-only --fragment NAME|FILE")
    of_disks = ((key, value, "--disk") for words in typed.get("disk", ()) for key, value in from_words(words).items())
    of_any = ((*_assignment(text), "--set") for text in arguments.set)
    for key, value, flag in (*of_disks, *of_any):
        if key in given:
            raise UserError(f"{key} is given twice: by {given[key].origin} and by {flag}", "leave one of them out")
        given[key] = Given(value, flag)
    return given


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--set {text}: expected KEY=VALUE", "for example: --set machine.memory=2GiB")
    return key.strip(), value.strip()
