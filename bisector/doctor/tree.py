"""Whether a commit's tree has what a storage stack needs, before anything is built from it."""

from collections.abc import Iterable

from bisector.core.errors import UserError
from bisector.core.subject import Commit
from bisector.git.options import undefined
from bisector.git.repository import Repository
from bisector.kernel.needs import Need, needs
from bisector.storage.stack import Stack

_MOST_NAMED = 6


def lacking(repository: Repository, commit: Commit, stack: Stack) -> tuple[Need, ...]:
    """The options that the stack's layers need and that the commit's tree does not have at all.

    Nothing of a partial clone, whose files are not there to be read.
    """
    needed = needs(stack)
    missing = undefined(repository, commit.sha, [one.option for one in needed])
    return tuple(one for one in needed if one.option in missing)


def check_tree(repository: Repository, commits: Iterable[Commit], stack: Stack) -> None:
    """Raise :class:`UserError` for the first commit whose tree lacks an option that the stack needs."""
    for commit in commits:
        if lacks := lacking(repository, commit, stack):
            layers = ", ".join(dict.fromkeys(one.layer for one in lacks))
            options = ", ".join(one.option for one in lacks[:_MOST_NAMED]) + (" …" if lacks[_MOST_NAMED:] else "")
            raise UserError(
                f"{commit.short} ({commit.subject}) has no {options} in its Kconfig files: the layer {layers} of the "
                f"stack {stack} does not work without",
                "choose another --stack, or commits that have it: git log --reverse -S'config "
                f"{lacks[0].option.removeprefix('CONFIG_')}' -- '*Kconfig*'",
            )
