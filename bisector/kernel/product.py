"""What make has made, as this process finds it in the build directory: to be looked at before it is believed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bisector.core.errors import KernelFault
from bisector.core.trial import FaultKind, Stage
from bisector.kernel import entries, kconfig, modules, signature, sources
from bisector.kernel.builddir import BuildPlaces

CONFIG = Path(".config")
IMAGE = Path("arch/x86/boot/bzImage")
_VMLINUX = Path("vmlinux")
_RELEASE = Path("include/config/kernel.release")

# A kernel's name has 64 letters at most (uts_len in the kernel's Makefile).
_PLAIN_RELEASE = re.compile(r"\w[!-.0-~]{0,63}", re.ASCII)
_QUOTED = 80


@dataclass(frozen=True, slots=True)
class Product:
    """``modules`` is their file system, None of a kernel without any; ``read`` what the build read, if it says so."""

    obtained: kconfig.Options
    release: str
    build_id: str
    content_sha256: str
    modules: Path | None
    read: sources.Sources | None


def require_image(build: Path) -> None:
    """Raise :class:`KernelFault` unless make has made an image, and what else a kernel is known by."""
    for name in (IMAGE, _VMLINUX, _RELEASE, CONFIG):
        if not (build / name).is_file():
            reason = f"make bzImage ended well and made no {name}"
            raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, reason)


def found(places: BuildPlaces, obtained: kconfig.Options, installed: Path | None, deciding: Iterable[str]) -> Product:
    """What is in the build directory; ``installed`` are the modules, ``deciding`` the files that quirks go by.

    Raises :class:`KernelFault`, ``OSError``, and :class:`bisector.core.errors.InfraError` without mke2fs.
    """
    build = places.build
    release = _release(build)
    return Product(
        obtained=obtained,
        release=release,
        build_id=signature.build_id(build / _VMLINUX),
        content_sha256=_content(places, installed, release),
        modules=modules.pack(installed, places.state / entries.MODULES) if installed is not None else None,
        read=sources.collected(build, places.source, obtained, deciding),
    )


def _content(places: BuildPlaces, installed: Path | None, release: str) -> str:
    """What is loaded, at boot and later: a changed module is a changed kernel, whoever loads it."""
    loaded_later = modules.parts(installed, release) if installed is not None else {}
    return signature.combined({**signature.image_parts(places.build, places.source, release), **loaded_later})


def _release(build: Path) -> str:
    """What ``uname -r`` will print; it names a directory of modules, so it is no path and has no odd letters."""
    text = (build / _RELEASE).read_bytes().decode("ascii", errors="replace").strip()
    if not _PLAIN_RELEASE.fullmatch(text):
        raise KernelFault(Stage.BUILD, FaultKind.BUILD_ERROR, f"the tree calls its release {text[:_QUOTED]!r}")
    return text
