"""What a person's git may do to files on their way into a checkout (gitattributes(5)), and how it is kept from ours.

A kernel is kept under the id of its commit's tree, for every later run and clone, so its sources have to be that tree.
A ``.gitattributes`` inside the tree is part of the tree; attributes beside it and the programs of filters are not.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from bisector.core.errors import UserError
from bisector.git.repository import Repository

# What changes content on its way into a file, or what a merge makes of two; "binary" is git's own macro of "-text".
_OF_CONTENT = frozenset(("binary", "crlf", "eol", "filter", "ident", "merge", "text", "working-tree-encoding"))
# A pattern, which may be quoted as in C, or the name of a macro; then the attributes.
_LINE = re.compile(r'\s*(?!#)(?:"(?:[^"\\]|\\.)*"|\S+)\s+(?P<attributes>.*)')
_DRIVER_SETTINGS = (("smudge", ""), ("clean", ""), ("process", ""), ("required", "false"))
# What git is asked in a checkout for :func:`without_filters`; it answers with status 1 where there is no such setting.
SETTINGS = (
    "config",
    "--name-only",
    "-z",
    "--get-regexp",
    r"^(filter\..*\.(smudge|clean|process|required)|attr\.tree)$",
)


def check_attributes(repository: Repository) -> None:
    """Raise :class:`UserError` where the repository has attributes of its own that change what is checked out.

    No setting turns ``info/attributes`` off, and it wins over the attributes of a tree.
    """
    for place, attribute in _beside_the_tree(repository):
        raise UserError(
            f"{place} sets {attribute}, so sources that are checked out would not be those of their commits",
            f"remove it, or: git clone --shared {repository.top} COPY, then run with --repo COPY",
        )


def _beside_the_tree(repository: Repository) -> Iterator[tuple[str, str]]:
    """Each attribute that matters and is not of a tree, and where it is set."""
    path = repository.common_dir / "info" / "attributes"
    for number, line in enumerate(_text(path).split("\n"), 1):
        if found := _LINE.fullmatch(line.rstrip("\r")):
            for word in found["attributes"].split():
                if word.lstrip("-!").partition("=")[0] in _OF_CONTENT:
                    yield f"{path}:{number}", word
    # Since git 2.43: attributes of some tree instead of those of the files.
    if repository.ask("config", "--get", "attr.tree", ok=(0, 1)).status == 0:
        yield "git's configuration", "attr.tree"


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", f"ls -l {path}") from error


def without_filters(settings: str) -> tuple[str, ...]:
    """The options of git by which no filter of a person's configuration is run (git-config(1), "filter").

    A tree may name a filter, and git-lfs, for one, is configured for all of a person's repositories: whether its
    program is there must not decide what is built, and a program of theirs is none of a build. ``settings`` is what
    git says to :data:`SETTINGS` in the checkout itself: a configuration may include another one for some git
    directories only ("includeIf"). Raises :class:`UserError` where no option can be given, or would help.
    """
    keys = [key for key in settings.split("\0") if key]
    # git takes all that comes before the first "=" of -c for the name.
    if odd := next((key for key in keys if key == "attr.tree" or "=" in key), None):
        raise UserError(
            f"git's configuration sets {odd}, so sources that are checked out may not be those of their commits",
            f"git config --show-origin --get-all '{odd}' says where; remove it there",
        )
    drivers = dict.fromkeys(key.rpartition(".")[0] for key in keys)
    without = (f"{driver}.{name}={value}" for driver in drivers for name, value in _DRIVER_SETTINGS)
    return tuple(word for setting in without for word in ("-c", setting))
