"""The command that installs a package on this distribution, given the package's name on Debian.

Names on Fedora, openSUSE and Arch: Documentation/admin-guide/verify-bugs-and-bisect-regressions.rst of the kernel
("Install build requirements"). Fedora's dnf also accepts the path of a file and installs the package that has it.
"""

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bisector.core.errors import UserError

_SUDO = "sudo "
# Debian's names that the others use, too.
_SAME = {
    name: name for name in ("bc", "binutils", "bison", "bubblewrap", "ccache", "flex", "gcc", "git", "make", "perl")
}


@dataclass(frozen=True, slots=True)
class Family:
    """Distributions with one package manager; ``names`` are their known package names, by Debian's."""

    command: str
    names: Mapping[str, str]


_DEBIAN = Family("apt install", {})
_FEDORA = {
    "libelf-dev": "/usr/include/libelf.h",
    "libssl-dev": "/usr/include/openssl/pkcs7.h",
    "perl": "/usr/bin/perl",
    "qemu-system-x86": "/usr/bin/qemu-system-x86_64",
    "qemu-utils": "/usr/bin/qemu-img",
}
_FAMILIES: Mapping[str, Family] = {
    "debian": _DEBIAN,
    "fedora": Family("dnf install", _SAME | _FEDORA),
    "suse": Family("zypper install", _SAME | {"libelf-dev": "libelf-devel", "libssl-dev": "openssl-devel"}),
    "arch": Family("pacman -S --needed", _SAME | {"libelf-dev": "libelf", "libssl-dev": "openssl"}),
}


def install(*packages: str) -> str:
    """The command that installs packages, given by Debian's names.

    If another distribution's name of a package is not known, the command ends in a comment that says so.
    """
    family, wanted = _family(), sorted(set(packages))
    unknown = [name for name in wanted if name not in family.names and family is not _DEBIAN]
    sudo = "" if os.geteuid() == 0 else _SUDO
    command = f"{sudo}{family.command} {' '.join(family.names.get(name, name) for name in wanted)}"
    return command + (f"  # Debian's name: {' '.join(unknown)}" if unknown else "")


def merged(commands: Iterable[str]) -> tuple[str, ...]:
    """The commands in their order, without duplicates; install commands are merged into the first one of their kind."""
    prefixes = tuple(f"{sudo}{family.command} " for sudo in ("", _SUDO) for family in _FAMILIES.values())
    words: dict[str, list[str]] = {}
    for command in commands:
        prefix = next((one for one in prefixes if command.startswith(one)), "")
        if prefix and not set(";&|#") & set(command):
            together = words.setdefault(prefix, [])
            together += [word for word in command.removeprefix(prefix).split() if word not in together]
        else:
            words.setdefault(command, [])
    return tuple(f"{command}{' '.join(names)}" for command, names in words.items())


def _family() -> Family:
    """The family by ``ID`` and ``ID_LIKE`` of os-release(5); Debian's if it is not known."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return _DEBIAN
    # "opensuse-leap" is also like "suse opensuse".
    likes = (release.get("ID", ""), *release.get("ID_LIKE", "").split())
    return next((_FAMILIES[like] for like in likes if like in _FAMILIES), _DEBIAN)


def not_installed(program: str, package: str) -> UserError:
    """The error for a missing program."""
    return UserError(f"{program} is not installed", install(package))
