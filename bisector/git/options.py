"""Which kernel options a commit's tree has, read from its Kconfig files without a checkout."""

from collections.abc import Collection

from bisector.git.repository import Repository

_PREFIX = "CONFIG_"
# An option is defined by `config NAME` or `menuconfig NAME` on a line of its own
# (Documentation/kbuild/kconfig-language.rst, "Menu entries"); whether a longer name begins so is seen in the line.
_DEFINED = r"^[[:space:]]*(menu)?config[[:space:]]+({names})"
_FILES = "*Kconfig*"


def undefined(repository: Repository, sha: str, names: Collection[str]) -> frozenset[str]:
    """Those of the options, written ``CONFIG_X``, that no Kconfig file of a commit's tree defines.

    None of them where git would fetch the files from a remote one by one: then it is not known.
    """
    if not names or repository.partial:
        return frozenset()
    bare = sorted(name.removeprefix(_PREFIX) for name in names)
    pattern = _DEFINED.format(names="|".join(bare))
    words = ("grep", "-h", "--text", "--no-line-number", "--no-column", "--extended-regexp", "-e", pattern)
    answer = repository.ask(*words, sha, "--", _FILES, ok=(0, 1))
    found = {f"{_PREFIX}{line.split()[1]}" for line in answer.lines if line.strip()}
    return frozenset(names) - found
