"""A remote as it may be shown: in a report, a letter, the history of nights, the repository itself."""

import re

_WITH_SCHEME = re.compile(
    r"(?P<scheme>(?:[\w.+-]+::)*[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)"
)


def without_secrets(remote: str) -> str:
    """A remote's name, path or URL without user, password, query and fragment (RFC 3986, 3).

    Before a URL may be the program that understands it (``hg::https://…``, gitremote-helpers(7)).
    A server may take a token as a password or in the query (``?private_token=…``), and whoever gets a report must not.
    """
    found = _WITH_SCHEME.match(remote)
    if found is None:  # a name, a path, or HOST:PATH, which has no place for a password
        return remote
    host = found["authority"].rpartition("@")[2]
    return f"{found['scheme']}://{host}{found['path']}"
