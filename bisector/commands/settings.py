"""``settings`` shows every setting with its value, and where that comes from."""

import argparse

from bisector.commands.arguments import Verbs, add_settings, add_verb, given_settings
from bisector.commands.output import write, write_document
from bisector.config import options

_EXAMPLES = """\
examples:
  bisector settings
  bisector settings --profile article --set storage.hdd.iops_limit=200
  bisector settings --toml > bisector.toml
"""


def add(verbs: Verbs) -> None:
    """Register ``settings``."""
    verb = add_verb(verbs, "settings", settings, examples=_EXAMPLES)
    verb.add_argument("--toml", action="store_true", help="in the form of a bisector.toml")
    add_settings(verb)


def settings(arguments: argparse.Namespace) -> int:
    """Every setting with its value and origin."""
    effective = options.load(given_settings(arguments), arguments.config)
    if arguments.toml:
        write_document(options.to_toml(effective))
        return 0
    rows = options.describe(effective)
    widths = [
        max(len(text) for text in column) for column in zip(*((r.key, r.value, r.origin) for r in rows), strict=True)
    ]
    for row in rows:
        cells = (row.key, row.value, row.origin)
        write("  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), row.help]) + "\n")
    return 0
