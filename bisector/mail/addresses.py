"""Mail addresses, read so that none can forge a header (RFC 5322); the sender, and proposed recipients for a commit.

Recipients are proposed from the commit's trailers and by its own tree: ``scripts/get_maintainer.pl`` of the tree runs
on the commit's patch in a sandbox, in a directory with the tree's directories and the files that the script reads.
"""

import getpass
import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.headerregistry import Address
from email.utils import getaddresses
from pathlib import Path

from bisector.config import MailSettings
from bisector.core.errors import BisectorError, UserError
from bisector.core.printable import clean
from bisector.git.repository import Repository
from bisector.host import build_user, process, sandbox
from bisector.host.files import scratch

# An addr-spec of atoms: no quoted local parts, comments or address literals, and only ASCII.
_SPEC = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?", re.ASCII)
_ENCODED_WORD = "=?"
SCRIPT = "scripts/get_maintainer.pl"
# The files that get_maintainer.pl reads, some only to see that it is at the top of a tree (top_of_kernel_tree()).
_FILES = ("COPYING", "CREDITS", "Kbuild", "MAINTAINERS", "Makefile", "README", ".get_maintainer.ignore", SCRIPT)
_NOBODY = "bisector@localhost"
_TRAILERS = ("Signed-off-by", "Reviewed-by", "Acked-by", "Tested-by", "Reported-by", "Cc")
_DEADLINE_S = 60.0
# The script's output goes to files of at most 1 MiB (setrlimit(2), RLIMIT_FSIZE; sh counts blocks of 512 bytes) and is
# read from there: a pipe would be read into memory without a limit.
_BOUNDED = (
    *("sh", "-c"),
    'ulimit -f 2048; at=${TMPDIR:-/tmp}; "$@" > "$at/said" 2> "$at/wrong"; status=$?;'
    ' cat "$at/said"; cat "$at/wrong" >&2; exit $status',
    "sh",
)


def parse(texts: Iterable[str]) -> tuple[Address, ...]:
    """Parse lists of addresses such as ``A <a@x>, b@y``, each address once; raises :class:`UserError` for any other."""
    found: dict[str, Address] = {}
    for text in texts:
        for name, spec in getaddresses([clean(text)]):
            local, _, domain = spec.rpartition("@")
            dots = (local.startswith("."), local.endswith("."), ".." in spec, domain.startswith("-"))
            if not _SPEC.fullmatch(spec) or any(dots):
                raise UserError(f"{clean(text)!r} is not a mail address", "write it as user@host or Name <user@host>")
            # No name is better than one with an unreadable character (U+FFFD).
            shown = "" if "\ufffd" in name else header(name).strip()
            found.setdefault(spec.lower(), Address(display_name=shown, addr_spec=spec))
    return tuple(found.values())


def usable(texts: Iterable[str]) -> Iterator[str]:
    """The addresses among other people's texts, written anew; any other text is left out."""
    for text in texts:
        try:
            yield from map(str, parse([text]))
        except UserError:
            continue


def header(text: str) -> str:
    """Make text safe for a header: one line, without anything that a reader would decode (RFC 2047)."""
    return clean(text).replace(_ENCODED_WORD, "= ?")


def sender_of(mail: MailSettings, directory: Path) -> str:
    """``mail.from``, or else the author in git's configuration for a directory, or else the user of the system."""
    if mail.sender:
        try:
            return str(parse([mail.sender])[0])
        except UserError as error:
            raise UserError(f"mail.from: {error}", error.hint) from error
    with suppress(BisectorError), Repository.open(directory) as repository:
        ident = repository.ask("var", "GIT_AUTHOR_IDENT", ok=None)
        found = re.match(r"(.*>) \d+ [+-]\d{4}$", ident.stdout.strip())
        if ident.status == 0 and found:
            return str(parse([found[1]])[0])
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without user names; OSError since Python 3.13
        user = f"uid{os.getuid()}"
    return next(usable((f"{user}@{socket.gethostname()}",)), _NOBODY)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Addresses for To and Cc, and a sentence for each source that could not be asked."""

    to: tuple[str, ...]
    cc: tuple[str, ...]
    notes: tuple[str, ...] = ()


def propose(repository: Repository, sha: str) -> Proposal:
    """Propose the author, then maintainers, lists, reviewers and signers; each address once."""
    author, message = repository.ask("log", "-1", "--no-walk", "--format=%an <%ae>%x00%B", sha).stdout.split("\0", 1)
    scripted, why_not = [], ""
    try:
        scripted = _scripted(repository, sha)
    except process.CommandMissing as error:
        why_not = f"{error.program} is not installed"
    except (BisectorError, process.CommandFailed, process.CommandTimeout) as error:
        why_not = str(error)
    notes = (f"no maintainers proposed: {why_not}",) if why_not else ()
    to = tuple(dict.fromkeys(usable([author])))
    seen = {_bare(one) for one in to}
    cc: dict[str, str] = {}
    lines = re.finditer(rf"^(?:{'|'.join(_TRAILERS)}):[ \t]*(.+)$", message, re.MULTILINE | re.IGNORECASE)
    for address in usable([*scripted, *(line[1].partition(" # ")[0] for line in lines)]):
        if _bare(address) not in seen:
            cc.setdefault(_bare(address), address)
    return Proposal(to, tuple(cc.values()), notes)


def _bare(address: str) -> str:
    return address.rpartition("<")[2].rstrip(">").lower()


def _scripted(repository: Repository, sha: str) -> list[str]:
    with scratch("maintainers") as made:
        top = made.resolve() / "tree"
        top.mkdir()
        # Make the tree's directories, empty, and the few files: a checkout would be a gigabyte.
        for directory in repository.ask("ls-tree", "-r", "-d", "--name-only", "-z", sha).stdout.split("\0"):
            if directory and not Path(directory).is_absolute() and ".." not in Path(directory).parts:
                (top / directory).mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            blob = repository.ask("cat-file", "blob", f"{sha}:{name}", ok=(0, 128))
            if blob.status == 0:
                (top / name).write_text(blob.stdout, encoding="utf-8")
        if not (top / SCRIPT).is_file():
            raise UserError(f"the tree of {sha[:12]} has no {SCRIPT}")
        patch = repository.ask("format-patch", "-1", "--stdout", "--no-signature", sha).stdout
        (top / "the.patch").write_text(patch, encoding="utf-8", errors="replace")
        build_user.give(top)
        top.chmod(0o755)  # bwrap enters it as root without root's rights; other users do not get as far
        within = (*sandbox.Sandbox(readable=(top,)).words, *_BOUNDED)
        words = ("perl", SCRIPT, "--nogit", "--nogit-fallback", "--norolestats", "the.patch")
        return process.run(words, deadline_s=_DEADLINE_S, cwd=top, within=within).stdout.splitlines()
