"""Mail addresses: read from what people and commits wrote, so that no header can be forged by one (RFC 5322)."""

import re
from collections.abc import Iterable, Iterator
from email.headerregistry import Address
from email.utils import getaddresses

from bisector.core.errors import UserError
from bisector.core.printable import clean

# An addr-spec of atoms: no quoted local parts, no comments, no address literals, nothing beyond ASCII.
_SPEC = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?", re.ASCII)
_ENCODED_WORD = "=?"


def parse(texts: Iterable[str]) -> tuple[Address, ...]:
    """The addresses of several lists such as ``A <a@x>, b@y``, each once; :class:`UserError` for what is none."""
    found: dict[str, Address] = {}
    for text in texts:
        for name, spec in getaddresses([clean(text)]):
            if not _well_formed(spec):
                raise UserError(f"{clean(text)!r} is no mail address", "write it as user@host or Name <user@host>")
            found.setdefault(spec.lower(), _address(name, spec))
    return tuple(found.values())


def usable(texts: Iterable[str]) -> Iterator[str]:
    """Those of other people's texts that are addresses, written anew; what is none is left out."""
    for text in texts:
        try:
            yield from map(str, parse([text]))
        except UserError:
            continue


def header(text: str) -> str:
    """Text for a header: one line, and nothing in it that a reader would decode to something else (RFC 2047)."""
    return clean(text).replace(_ENCODED_WORD, "= ?")


def _well_formed(spec: str) -> bool:
    local, _, domain = spec.rpartition("@")
    dots = (local.startswith("."), local.endswith("."), ".." in spec, domain.startswith("-"))
    return _SPEC.fullmatch(spec) is not None and not any(dots)


def _address(name: str, spec: str) -> Address:
    return Address(display_name=header(name).strip(), addr_spec=spec)
