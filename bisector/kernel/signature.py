"""What a built kernel is, as one digest: equal ones run the same code on the same data.

A bzImage is vmlinux, compressed, behind code that sets the machine up and unpacks it
(Documentation/x86/boot.rst). Neither bzImage itself nor what is linked around the payload can be
compared: the payload's length moves all that follows, and compressed text of another version has
another length. So vmlinux is compared before it is compressed, and the code around it before it is linked.
"""

import hashlib
import os
from pathlib import Path

from bisector.kernel import elf, sources

BOOT = Path("arch/x86/boot")
# header.o has the payload's place and length as numbers, so it is told by its sources; piggy.o is the payload.
_WITH_PAYLOAD = ("header.o", "piggy.o")
_RELOCATIONS = BOOT / "compressed/vmlinux.relocs"


def parts(build: Path, source: Path, release: str) -> dict[str, str]:
    """The digests of vmlinux and of all that is put around it in bzImage; see :func:`bisector.kernel.elf.combined`.

    A kernel with modules adds ``elf.content_sha256(path, release)`` of each ``.ko`` under its path.
    Raises ``OSError`` and :class:`bisector.core.errors.InfraError`.
    """
    found = {"vmlinux": elf.content_sha256(build / "vmlinux", release)}
    for path in sources.command_files(build / BOOT):
        target = sources.target_of(path)
        name = str(target.relative_to(build))
        if target.suffix == ".o" and target.name not in _WITH_PAYLOAD:
            if target.is_file():
                found[name] = elf.content_sha256(target, release)
        else:
            found[name] = _made_of(path, build, source)
    if (build / _RELOCATIONS).is_file():
        found[str(_RELOCATIONS)] = hashlib.sha256((build / _RELOCATIONS).read_bytes()).hexdigest()
    return found


def _made_of(command_file: Path, build: Path, source: Path) -> str:
    """The digest of a target by its command and the sources that it names or the compiler read.

    What was generated is left out: it follows from vmlinux, from other targets here, or from the version.
    """
    recipe = sources.recipe(command_file)
    digest = hashlib.sha256(_without(recipe.command, source, build).encode(errors="surrogateescape"))
    words = [word for word in recipe.command.split() if word.startswith("/")]
    paths = {Path(os.path.normpath(build / file)) for file in (*recipe.files, *words)}
    for path in sorted(path for path in paths if path.is_relative_to(source)):
        if (found := sources.content(source, path)) is not None:
            digest.update(f"\n{path.relative_to(source)}\n".encode() + found)
    return digest.hexdigest()


def _without(command: str, *places: Path) -> str:
    for place in places:
        command = command.replace(str(place), "")
    return command
