"""Settings as a person gives them: a bisector.toml in the current directory, and flags."""

from pathlib import Path
from typing import Any

from bisector.commands.arguments import add_settings, given_settings
from bisector.commands.catalogue import CommandParser
from bisector.config import Settings, options
from bisector.storage.stack import stack_of

MIB = 1 << 20
GIB = 1 << 30


def load_toml(text: str, **flags: Any) -> options.Effective:
    Path("bisector.toml").write_text(text, encoding="utf-8")
    return options.load(flags)


def from_argv(*argv: str, stacks: tuple[str, ...] = ()) -> options.Effective:
    parser = CommandParser(allow_abbrev=False)
    add_settings(parser)
    namespace = parser.parse_args(argv)
    return options.load(given_settings(namespace), namespace.config, stacks=tuple(map(stack_of, stacks)))


def cache_sizes(settings: Settings) -> tuple[int, int]:
    own = settings.storage.layers["lvmcache"]
    return own.cache_bytes, own.metadata_bytes
