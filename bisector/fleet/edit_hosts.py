"""Rows of ``hosts.toml`` put in and taken out; the owner of tomlkit, which keeps a person's comments and order."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable

from bisector.config import file as configfile
from bisector.core.errors import UserError
from bisector.fleet import hosts
from bisector.fleet.hosts import Host, Hosts, written
from bisector.host.files import our_files, write_whole

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]")
_HEAD = """\
# The machines of this fleet, for --hosts; docs/fleet.md has all keys. `bisector fleet add` puts rows in here, and
# leaves what you write as it is.
"""


def put(path: Path, host: Host, coordinator: str) -> Hosts:
    """Put a host in, or give the one of that name these keys; further ones that it has stay. What the file says then.

    The address of the ``coordinator`` is written where there is none yet.
    """

    def edit(document: tomlkit.TOMLDocument) -> None:
        document.setdefault("coordinator", coordinator)
        listed = document.setdefault("hosts", tomlkit.table(is_super_table=True))
        row = _table(listed, path).setdefault(host.name, tomlkit.table())
        _table(row, path).update(written(host))

    return _edited(path, edit)


def drop(path: Path, name: str) -> Hosts:
    """Take a host out, if it is there.

    Line by line: for tomlkit, the comment above the next host is a part of this one. Raises :class:`UserError` where
    that would take out, or leave, anything else.
    """
    text, table = configfile.read(path)
    listed = table.get("hosts")
    if not isinstance(listed, dict) or name not in listed:
        return hosts.parsed(path, table)
    new = "".join(_without(text.splitlines(keepends=True), name))
    del listed[name]
    try:
        left = tomllib.loads(new)
    except tomllib.TOMLDecodeError:
        left = {}
    if left != (table if listed else {key: value for key, value in table.items() if key != "hosts"}):
        raise UserError(f"{path}: {name} is not written as a table of its own", f"take {name} out by hand")
    return _written(path, new)


def _without(lines: list[str], name: str) -> list[str]:
    """The lines but those from the host's header to its last key."""
    headers = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    for number, first in enumerate(headers):
        found = _HEADER.match(lines[first])
        if found is not None and re.sub(r"[\s\"']", "", found[1]) == f"hosts.{name}":
            end = (*headers[number + 1 :], len(lines))[0]
            while lines[end - 1].lstrip()[:1] in ("#", ""):
                end -= 1
            return [*lines[:first], *lines[end:]]
    return lines


def _table(item: object, path: Path) -> AbstractTable:
    if not isinstance(item, AbstractTable):
        raise UserError(f"{path}: its hosts are not written as tables", "write them so: [hosts.bench1]")
    return item


def _edited(path: Path, edit: Callable[[tomlkit.TOMLDocument], None]) -> Hosts:
    text = configfile.read(path)[0] if path.exists() else _HEAD
    try:
        document = tomlkit.parse(text)
        edit(document)
        new = document.as_string()
    except TOMLKitError as error:
        raise UserError(f"{path}: {error}", "edit it by hand; docs/fleet.md has an example") from error
    return _written(path, new)


def _written(path: Path, text: str) -> Hosts:
    """Nothing is written that could not be read back, and a file behind a link stays behind it."""
    found = hosts.parsed(path, tomllib.loads(text))
    target = path.resolve()
    with our_files(target.parent):
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, text.encode(), mode)
    return found
