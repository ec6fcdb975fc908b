"""What commands share: how one is registered, flags that mean the same everywhere, and the effective settings."""

import argparse
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from bisector.commands.catalogue import sentence
from bisector.commands.output import note, write_document
from bisector.config import Accelerator, MachineSettings, StorageSettings, options
from bisector.config.option_table import DISK_HELP, FRAGMENTS, are_among, from_words, rows
from bisector.config.options import CONFIG_FILE, Effective, Given, shown
from bisector.core import json_document, units
from bisector.core.errors import UserError
from bisector.core.metric import named
from bisector.core.objective import WORST, Objective
from bisector.core.setting import AUTO
from bisector.storage.layer import Since
from bisector.storage.stack import Stack
from bisector.store.rundir import Index, RunDirectory
from bisector.vm.accelerator import could_count, known_accelerator

Command: TypeAlias = Callable[[argparse.Namespace], int]
Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

T = TypeVar("T")
Word = TypeVar("Word", bound=StrEnum)

# The command runs when a bisector command has ended, so only commands that take long have this setting.
NOTIFY = "notify.command"
# The settings of a search; they mean nothing to a command that makes no search.
SEARCH_SETTINGS = frozenset(
    f"bisect.{name}"
    for name in (
        *("first_parent", "strategy", "suspect", "calibrate", "baselines", "confirm_by"),
        *("least_effect", "most_pairs"),
    )
) | {"workload.full_runs"}
TWO_SIDED_SETTINGS = frozenset(("bisect.threshold", "bisect.expect", "bisect.terms"))
_PERSONS = f"what it leaves out is taken from $XDG_CONFIG_HOME/bisector/{CONFIG_FILE}, your own for all runs"
_SETTING = "setting "  # prefix of a setting's destination; no other argument's destination begins with it


def typed(expected: str, read: Callable[[str], T], holds: Callable[[T], bool] = lambda _: True) -> Callable[[str], T]:
    """Return an argparse type whose error says what was expected if ``read`` fails or ``holds`` is false."""

    def value(text: str) -> T:
        with suppress(ValueError):
            if holds(found := read(text)):
                return found
        raise argparse.ArgumentTypeError(f"expected {expected}, not {text!r}")

    return value


duration = typed("a duration such as 4h, 90min or 1h30m", units.duration_s, lambda seconds: seconds > 0)
count = typed("a whole number, 1 or more", int, lambda number: number >= 1)
seed = typed("a whole number, 0 or more", int, lambda number: number >= 0)


def one_of(words: type[Word], default: Word | None = None) -> dict[str, Any]:
    """The keywords of ``add_argument`` for a flag that takes one of a few words."""
    return {"type": typed(f"one of {', '.join(words)}", words), "choices": tuple(words), "default": default}


def repeatable(metavar: str, meaning: str) -> dict[str, Any]:
    """The keywords of ``add_argument`` for a flag that may be repeated; its values are collected in a list."""
    return {"action": "append", "default": [], "metavar": metavar, "help": meaning}


def hosts_file(text: str) -> Path:
    """The absolute path of a list of hosts; the address of a cluster (tls://…) is returned unchanged."""
    path = Path(text)
    return path if path.parts[:1] == ("tls:",) else path.absolute()


def _flag(*names: str, **how: Any) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    return names, how


_HOSTS = "measure on the hosts of FILE (hosts.toml), or of the cluster at tls://…, and not here"
_RUN = "which run: its directory, or its number or name in `bisector runs` (default: the newest)"
_PATHS = "after --: only commits that touch these, from here as for git"
# Arguments that mean the same in several commands; the keys are the words that :func:`add_verb` takes.
SHARED: Mapping[str, tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...]] = {
    "range": (
        _flag("old", metavar="OLD", help="the old end of the range: a commit without the change; or OLD..NEW"),
        _flag("new", metavar="NEW", help="the new end: a commit with the change"),
        _flag("paths", metavar="PATH", nargs="*", default=[], help=_PATHS),
    ),
    "commit": (_flag("commit", metavar="COMMIT", help="a commit, a tag or a branch"),),
    "hosts": (_flag("--hosts", type=hosts_file, metavar="FILE", help=_HOSTS),),
    "repo": (_flag("--repo", type=Path, default=Path(), metavar="DIR", help="the kernel repository (default: .)"),),
    # For commands that look at a run, or go on with it; :func:`run_directory` opens the run.
    "run": (_flag("-r", "--run-dir", type=Path, metavar="RUN", help=_RUN),),
    # For commands without settings of their own. Without this flag the setting in the run's record holds.
    "notify": (_flag("--notify", metavar="COMMAND", help="command that runs once when this one has ended by itself"),),
    "metric": (
        _flag("--metric", metavar="NAME", help="judge the recorded runs by this metric instead, such as read.clat.p99"),
        _flag("--over", metavar="worst|sum|mean|JOB", help="with --metric: over jobs (default: worst)"),
    ),
    "json": (_flag("--json", action="store_true", help="print JSON, for scripts; see docs/json.md"),),
    "quiet": (_flag("--quiet", action="store_true", help="no progress, only the answer"),),
}


def add_verb(
    verbs: Verbs,
    name: str,
    command: Command,
    takes: str = "",
    *,
    help_line: str = "",
    examples: str = "",
    disturbs: bool = False,
) -> argparse.ArgumentParser:
    """Add a command and return its parser; ``command`` takes the parsed arguments and returns the exit code.

    ``takes`` names the :data:`SHARED` arguments of the command. ``help_line`` describes a subcommand; a top-level
    command's sentence is in the catalogue. Set ``disturbs`` for a command that does not wait for a measurement in
    progress and works long enough to make it weak.
    """
    description = f"{help_line[0].upper()}{help_line[1:]}." if help_line else sentence(name)
    verb = verbs.add_parser(
        name,
        help=help_line,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.set_defaults(command=command, disturbs=disturbs)
    for names, how in (flag for word in takes.split() for flag in SHARED[word]):
        verb.add_argument(*names, **how)
    return verb


def add_group(verbs: Verbs, name: str, examples: str) -> Verbs:
    """Add a command that consists of subcommands, and return what these are added to."""
    how = argparse.RawDescriptionHelpFormatter
    group = verbs.add_parser(name, description=sentence(name), epilog=examples, formatter_class=how, allow_abbrev=False)
    return group.add_subparsers(metavar="COMMAND", required=True)


def add_run_dir(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add ``--run-dir`` to a command that creates a run."""
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help=meaning)


def write_json(document: object) -> None:
    """Write one JSON document to standard output."""
    write_document(json_document.text(document))


def show(arguments: argparse.Namespace, document: object, tell: Callable[[], None]) -> None:
    """Write a document if ``--json`` asks for it, else ``tell`` a person."""
    if arguments.json:
        write_json(document)
    else:
        tell()


def run_directory(arguments: argparse.Namespace) -> RunDirectory:
    """Open the run that ``--run-dir`` names, or else the newest run; raises :class:`UserError` if there is no run."""
    path = Index().latest() if arguments.run_dir is None else known_run(arguments.run_dir)
    if path is None:
        raise UserError("there is no run yet", "bisector start OLD NEW")
    return RunDirectory.open(path)


def known_run(given: Path) -> Path:
    """The directory of the run with this number or name; ``given`` for an existing path, or if none has it."""
    if len(given.parts) != 1 or os.path.lexists(given):
        return given
    return Index().named(str(given)) or given


def objective_of(arguments: argparse.Namespace) -> Objective | None:
    """The objective of ``--metric`` and ``--over``, if given; raises :class:`UserError` if it cannot order runs."""
    if arguments.metric is None:
        if arguments.over is not None:
            raise UserError("--over goes with --metric")
        return None
    found = Objective(named(arguments.metric).name, arguments.over or WORST)
    found.check()
    return found


def add_settings(parser: argparse.ArgumentParser, keys: Collection[str] | None = None) -> None:
    """Add a flag for each setting that has one, or for ``keys`` only; ``--config FILE``; ``--set KEY=VALUE``."""
    group = parser.add_argument_group("settings", f"override {CONFIG_FILE}; `bisector settings` lists all of them")
    group.add_argument(
        "--config", type=Path, metavar="FILE", help=f"settings file (default: ./{CONFIG_FILE}); {_PERSONS}"
    )
    for option in (row for row in rows() if row.flag and (keys is None or row.key in keys)):
        # The default follows the first clause of the help, since the short help shows only that clause.
        first, semicolon, rest = (f"{option.help}; repeatable" if option.repeat else option.help).partition(";")
        is_const = bool(option.const) and not option.short
        default = f" (default: {shown(option.quick)})" if not is_const and option.quick not in ("", ()) else ""
        meaning = f"{first}{default}{semicolon}{rest}".replace("%", "%%")
        const: dict[str, Any] = {"action": "store_const", "const": option.const}
        value: dict[str, Any] = {"action": "append" if option.repeat else "store", "metavar": option.metavar}
        dest, place = _SETTING + option.key, group.add_mutually_exclusive_group() if option.short else group
        place.add_argument(option.flag, dest=dest, help=meaning, **(const if is_const else value))
        if option.short:
            place.add_argument(option.short, dest=dest, help=f"short for {option.flag} {option.const}", **const)
    if keys is None or FRAGMENTS in keys:
        group.add_argument(
            "--fragments-only",
            action="store_true",
            help=f"the kernels have each --fragment and nothing else: not what {AUTO} stands for",
        )
    if keys is None or are_among(keys):
        group.add_argument("--disk", **repeatable("NAME=SIZE[,…]", DISK_HELP))
    group.add_argument("--set", **repeatable("KEY=VALUE", "any setting, by its key; `bisector settings` lists them"))


def given_settings(arguments: argparse.Namespace) -> dict[str, Given]:
    """The settings from the flags of :func:`add_settings`; raises :class:`UserError` if they contradict each other."""
    typed = vars(arguments)
    flagged = ((option, typed.get(_SETTING + option.key)) for option in rows() if option.flag)
    given = {option.key: Given(value, option.flag) for option, value in flagged if value is not None}
    only, fragments = typed.get("fragments_only", False), given.get(FRAGMENTS)
    if fragments is not None:
        names = fragments.raw if isinstance(fragments.raw, list) else []
        # --fragment adds to the fragments that the guest needs, unless --fragments-only is given.
        given[FRAGMENTS] = fragments if only or AUTO in names else replace(fragments, raw=[AUTO, *names])
    elif only:
        raise UserError("--fragments-only goes with --fragment", "--fragments-only --fragment NAME|FILE")
    of_disks = ((key, value, "--disk") for words in typed.get("disk", ()) for key, value in from_words(words).items())
    for text in arguments.set:
        if "=" not in text:
            raise UserError(f"--set {text}: expected KEY=VALUE", "for example: --set machine.memory=2GiB")
    of_any = ((key.strip(), value.strip(), "--set") for key, _, value in (one.partition("=") for one in arguments.set))
    for key, value, flag in (*of_disks, *of_any):
        if key in given:
            raise UserError(f"{key} is given twice: by {given[key].origin} and by {flag}", "leave one of them out")
        given[key] = Given(value, flag)
    return given


def effective(
    arguments: argparse.Namespace,
    *revisions: str,
    given: Mapping[str, Given] | None = None,
    stacks: Collection[Stack] = (),
    here: bool = True,
    tries: bool = True,
) -> Effective:
    """The effective settings: the flags, or ``given`` in their place, over the files; raises :class:`UserError`.

    ``revisions`` are resolved in the command's repository. ``here`` is False if other hosts measure: which accelerator
    guests run under there is not known. If it is not known for this host either, a command that ``tries`` finds it out.
    """

    def have(since: Since) -> bool:
        from bisector.doctor.checks import trees_have  # noqa: PLC0415 - `bisector settings` loads no GitPython

        return trees_have(arguments.repo, revisions, since)

    def counts(machine: MachineSettings, storage: StorageSettings) -> bool:
        return here and could_count(machine, storage, _tried if tries else known_accelerator)

    flags = given_settings(arguments) if given is None else given
    trees_have = have if revisions else lambda since: True
    return options.load(flags, arguments.config, stacks=stacks, trees_have=trees_have, could_count=counts)


def _tried(machine: MachineSettings) -> Accelerator | None:
    """The accelerator of this host's guests, tried out if it is not known: a KVM that runs nothing does not count."""
    known = known_accelerator(machine)
    if known is not None:
        return known
    from bisector.vm.probes import try_kvm  # noqa: PLC0415 - only this needs libvirt, once per boot

    note("trying whether KVM works here, once per boot of this host: 10 s at most")
    return try_kvm(machine)
