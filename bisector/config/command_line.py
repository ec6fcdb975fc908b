"""Settings on the command line: a flag for each row that has one, and ``--set`` for all."""

import argparse
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bisector.config.option_table import rows
from bisector.config.options import CONFIG_FILE, Given
from bisector.core.errors import UserError

_DEST = "setting "  # no other argument's destination begins like this


def add_flags(parser: argparse.ArgumentParser, keys: Collection[str] | None = None) -> None:
    """The flags of the table, or of some of its ``keys``, ``--config FILE`` and ``--set KEY=VALUE``."""
    group = parser.add_argument_group("settings", f"override {CONFIG_FILE}; `bisector settings` lists all of them")
    group.add_argument("--config", type=Path, metavar="FILE", help=f"settings file (default: ./{CONFIG_FILE})")
    for option in (row for row in rows() if row.flag and (keys is None or row.key in keys)):
        how: dict[str, Any] = {"dest": _DEST + option.key, "help": option.help.replace("%", "%%")}
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
    group.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, by its key")


def flags_from(namespace: argparse.Namespace) -> dict[str, Given]:
    """What :func:`add_flags` collected, for :func:`load`; raises :class:`UserError`."""
    given = dict(_named(vars(namespace)))
    for key, value in _assignments(namespace.set):
        if key in given:
            raise UserError(f"{key} is given twice: by {given[key].origin} and by --set", "leave one of them out")
        given[key] = Given(value, "--set")
    return given


def _named(arguments: Mapping[str, object]) -> Iterator[tuple[str, Given]]:
    for option in rows():
        value = arguments.get(_DEST + option.key) if option.flag else None
        if value is not None:
            yield option.key, Given(value, option.flag)


def _assignments(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set {text}: expected KEY=VALUE", "for example: --set machine.memory=2GiB")
        yield key.strip(), value.strip()
