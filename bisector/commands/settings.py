"""``settings``: every setting with its value and origin, or the details of some."""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from bisector.commands.arguments import Verbs, add_settings, add_verb, effective
from bisector.commands.output import write, write_document
from bisector.config import options
from bisector.config.option_table import by_key
from bisector.config.options import CONFIG_FILE, SettingRow

_EXAMPLES = f"""\
examples:
  bisector settings                        all of them, and where each value comes from
  bisector settings storage.cache_size     what one is, and which values it takes
  bisector settings --changed              only what differs from its default
  bisector settings --profile article --set storage.hdd.iops_limit=200
  bisector settings --toml > {CONFIG_FILE}
Settings for all your runs: $XDG_CONFIG_HOME/bisector/{CONFIG_FILE}.
"""
_LEAST_VALUE = 16


def add(verbs: Verbs) -> None:
    """Register ``settings``."""
    verb = add_verb(verbs, "settings", settings, examples=_EXAMPLES)
    verb.add_argument(
        "keys", nargs="*", metavar="KEY", help="only this setting, or those of a table, with all about it"
    )
    verb.add_argument("--changed", action="store_true", help="only what differs from its default")
    verb.add_argument("--toml", action="store_true", help=f"in the form of a {CONFIG_FILE}")
    add_settings(verb)


def settings(arguments: argparse.Namespace) -> int:
    """Show every setting with its value and origin, or the chosen settings in detail."""
    found = effective(arguments, tries=False)
    if arguments.toml:
        write_document(options.to_toml(found))
        return 0
    rows, defaults = options.describe(found), options.changed(found.settings)
    if arguments.changed:
        rows = [row for row in rows if row.key in defaults]
    width = shutil.get_terminal_size().columns
    if not rows:
        write("no setting differs from its default\n")
        return 0
    if keys := arguments.keys:
        chosen = [row for row in rows if any(f"{row.key}.".startswith(f"{key}.") for key in keys)]
        for key in keys:
            if not any(f"{row.key}.".startswith(f"{key}.") for row in chosen):
                options.refuse_key(key, "bisector settings")
        lines = explained(chosen, defaults, width)
    else:
        lines = listed(rows, width if sys.stdout.isatty() else None)
    write("".join(f"{line}\n" for line in lines))
    return 0


def listed(rows: Sequence[SettingRow], width: int | None) -> Iterator[str]:
    """A line for each setting; with ``width``, long values are wrapped and blank lines separate the tables."""
    key_width, value_width, origin_width = (
        max(map(len, column)) for column in zip(*((row.key, row.value, row.origin) for row in rows), strict=True)
    )
    if width is not None:
        value_width = min(value_width, max(_LEAST_VALUE, width - key_width - origin_width - 4))
    for number, (_, table) in enumerate(groupby(rows, lambda row: row.key.rpartition(".")[0])):
        yield from [""] if number and width is not None else []
        for row in table:
            first, *further = textwrap.wrap(row.value, value_width) or [""]
            yield f"{row.key:{key_width}}  {first:{value_width}}  {row.origin}"
            yield from (f"{'':{key_width}}  {line}" for line in further)


def explained(rows: Sequence[SettingRow], defaults: Mapping[str, object], width: int) -> Iterator[str]:
    """The details of some settings: value, origin, default, flag, meaning and accepted values."""
    known = by_key(row.key for row in rows)
    for number, row in enumerate(rows):
        option = known[row.key]
        flags = " or ".join(filter(None, (f"{option.flag} {option.metavar}".strip(), option.short)))
        yield from [""] if number else []
        yield row.key
        for label, text in (
            ("value", f"{row.value or '[]'} ({row.origin})"),
            ("default", options.shown(defaults[row.key]) if row.key in defaults else "the same"),
            ("flag", flags or f"--set {row.key}=VALUE"),
            ("meaning", row.help),
            ("values", option.expected),
        ):
            yield from textwrap.wrap(text, width, initial_indent=f"  {label:10}", subsequent_indent=" " * 12)
