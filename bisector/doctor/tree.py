"""Whether a commit's tree has the options and features that a storage stack needs, before anything is built from it.

The layers name kernel fragments, whose options are searched in the tree's Kconfig files, without a checkout. Features
that settings request beyond these are searched in the drivers' sources. The version in a tree's Makefile is no proof:
it does not change while the next version's features are merged, and distributions backport features to older kernels.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.subject import Commit
from bisector.git.repository import Repository
from bisector.kernel.kconfig import NOT_SET, Fragment, read_fragments
from bisector.storage.layer import Feature, Since
from bisector.storage.stack import Stack, Values

_MOST_NAMED = 6
_PREFIX = "CONFIG_"
# An option is defined by `config NAME` or `menuconfig NAME` on a line of its own
# (Documentation/kbuild/kconfig-language.rst, "Menu entries"). A longer name with this prefix matches as well; the line
# tells them apart.
_DEFINED = r"^[[:space:]]*(menu)?config[[:space:]]+({names})"
_FILES = "*Kconfig*"
_MAKEFILE = r"^(VERSION|PATCHLEVEL) *= *[0-9]{1,4} *$"


def check_tree(
    repository: Repository,
    commits: Iterable[Commit],
    stack: Stack,
    values: Values,
    further: Iterable[tuple[str, Feature]] = (),
) -> None:
    """Raise :class:`UserError` for the first commit whose tree lacks an option or a feature that the stack needs.

    ``values`` are the layers' settings, ``further`` the features that something else requests, each with its name.
    """
    asked = [(f"layer {layer} of the stack {stack}", one) for layer, one in stack.features(values)]
    for commit in commits:
        if lacks := lacking(repository, commit, needs(stack, values)):
            layers = ", ".join(dict.fromkeys(lacks.values()))
            first, *_ = options = list(lacks)
            named = ", ".join(options[:_MOST_NAMED]) + (" …" if options[_MOST_NAMED:] else "")
            raise UserError(
                f"{commit.short} ({commit.subject}) has no {named} in its Kconfig files: the layer {layers} of the "
                f"stack {stack} does not work without",
                "choose another --stack, or commits that have it: git log --reverse -S'config "
                f"{first.removeprefix(_PREFIX)}' -- '*Kconfig*'",
            )
        for who, one in unsupported(repository, commit, (*asked, *further)):
            path, word = one.since.path, one.since.word
            raise UserError(
                f"{commit.short} ({commit.subject}) has no {one.what}, which kernels have since {one.since.version}: "
                f"the {who} asks for it",
                f"change {' or '.join(one.keys)}, or choose commits that have it: git log --reverse -S{word} -- {path}",
            )


def lacking(repository: Repository, commit: Commit, needed: Mapping[str, str]) -> dict[str, str]:
    """The options of a stack's layers (:func:`needs`) that the commit's tree does not define.

    Empty for a partial clone, whose files are not there to be read.
    """
    missing = undefined(repository, commit.sha, needed)
    return {option: layer for option, layer in needed.items() if option in missing}


def unsupported(
    repository: Repository, commit: Commit, features: Iterable[tuple[str, Feature]]
) -> tuple[tuple[str, Feature], ...]:
    """Those of the features, each with the name of what requests it, that the commit's tree lacks.

    Empty for a partial clone, whose files are not there to be read.
    """
    if repository.partial:
        return ()
    return tuple((who, one) for who, one in features if not _has(repository, commit, one.since))


def trees_have(path: Path, *revisions: str) -> Callable[[Since], bool]:
    """A function that tells whether the trees of all revisions have a feature; it opens the repository at each call.

    For a partial clone, whose files are not there to be read, the answer is yes.
    """

    def answer(since: Since) -> bool:
        with Repository.open(path) as repository:
            return repository.partial or all(_has(repository, repository.resolve(one), since) for one in revisions)

    return answer


def needs(stack: Stack, values: Values) -> dict[str, str]:
    """The options, as ``CONFIG_X``, that layers need, from the disks upwards, each with the first layer that needs it.

    Options that a fragment marks as optional, or switches off, are not needed.
    """
    found: dict[str, str] = {}
    for node in stack.nodes:
        names = node.layer(values).fragments_for()
        for fragment in read_fragments(resources.kconfigs(), names):
            for option in required(fragment):
                found.setdefault(option, node.name)
    return found


def required(fragment: Fragment) -> tuple[str, ...]:
    """The options that a fragment switches on and does not mark as optional."""
    switched_on = (name for name, value in fragment.options.items() if value != NOT_SET)
    return tuple(name for name in switched_on if name not in fragment.optional)


def undefined(repository: Repository, sha: str, names: Collection[str]) -> frozenset[str]:
    """Those of the options, written ``CONFIG_X``, that no Kconfig file of a commit's tree defines.

    Empty for a partial clone, for which git would fetch the files one by one: then it is not known.
    """
    if not names or repository.partial:
        return frozenset()
    bare = sorted(name.removeprefix(_PREFIX) for name in names)
    pattern = _DEFINED.format(names="|".join(bare))
    words = ("grep", "-h", "--text", "--no-line-number", "--no-column", "--extended-regexp", "-e", pattern)
    answer = repository.ask(*words, sha, "--", _FILES, ok=(0, 1))
    found = {f"{_PREFIX}{line.split()[1]}" for line in answer.lines if line.strip()}
    return frozenset(names) - found


def _has(repository: Repository, commit: Commit, since: Since) -> bool:
    """Whether the word is there; if not, the version may be one that has the feature under another name."""
    words = ("grep", "--quiet", "--text", "--fixed-strings", "-e", since.word)
    if repository.ask(*words, commit.sha, "--", since.path, ok=(0, 1)).status == 0:
        return True
    asked = ("grep", "-h", "--text", "--no-line-number", "--no-column", "--extended-regexp", "-e", _MAKEFILE)
    found = repository.ask(*asked, commit.sha, "--", "Makefile", ok=(0, 1)).lines
    version = [int(line.partition("=")[2]) for line in sorted(found, reverse=True)]
    return bool(version) and version >= [int(number) for number in re.findall(r"\d+", since.version)]
