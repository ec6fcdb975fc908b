"""What a file system's mkfs is given: one setting, which holds all of its options but for the device."""

import getopt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.kinds import Kind, Option, Unfit

# Words that name no file: a setting is text of a person, and is run by a shell in the guest.
_WORDS = re.compile(r"-[-A-Za-z0-9_.,:=^ ]*")
# Why an option of mkfs is unfit.
NO_FILE_SYSTEM = "makes no file system"
A_FILE = "names a file, and the guest has none of yours"
# Of what mkfs prints when it is its options that it does not take, and not the disk that fails.
NOT_TAKEN = ("usage:", "unknown", "unrecognized", "invalid", "illegal", "must be", "too small", "too large")


@dataclass(frozen=True, slots=True)
class Syntax:
    """The options of one mkfs as getopt(3) reads them, and those with which nothing can be mounted afterwards.

    ``unfit`` says why, by the option, or by the option and the first letters of one word of its value.
    """

    letters: str
    words: tuple[str, ...] = ()
    unfit: Mapping[str, str] = field(default_factory=dict)

    def objections(self, options: str) -> Iterator[str]:
        """Why mkfs could end well and the file system be missing; what mkfs itself refuses is left to it."""
        try:
            found, rest = getopt.gnu_getopt(options.split(), self.letters, list(self.words))
        except getopt.GetoptError:
            return
        for name, value in found:
            written = (name, *(f"{name} {word}" for word in value.split(",")))
            yield from (f"{one} {why}" for one in written for start, why in self.unfit.items() if _begins(one, start))
        yield from (f"{word} is a name, and the device is the stack's" for word in rest[:1])


def _begins(written: str, start: str) -> bool:
    return written == start or (" " in start and written.startswith(start))


def mkfs_options(name: str, default: str, before: str | None = None) -> Option:
    """The row of what mkfs is given: all of it, so that nothing is left to the image's tools."""

    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or not _WORDS.fullmatch(raw.strip()):
            raise Unfit
        return raw.strip()

    kind = Kind("options of mkfs on one line, without names of files", read, str)
    return Option(
        f"storage.{name}.mkfs_options",
        "mkfs_options",
        kind,
        default,
        f"options of mkfs.{name}, all of them",
        before=before,
    )


def words_of(options: str) -> Mapping[str, str]:
    """The options of mkfs by their letters: ``-b 4096`` is ``{"b": "4096"}``; repeated ones are joined by commas."""
    words: dict[str, str] = {}
    letter = ""
    for word in options.split():
        if word.startswith("-"):
            letter = word.lstrip("-")
            words.setdefault(letter, "")
        else:
            words[letter] = f"{words[letter]},{word}" if words[letter] else word
    return words
