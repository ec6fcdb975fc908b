"""Mail addresses: read so that no header can be forged by one (RFC 5322); who sends, and who is proposed for a commit.

Recipients are proposed from the trailers and by the commit's own tree: its ``scripts/get_maintainer.pl`` is run on the
commit's patch, in a sandbox, in a directory that has the tree's directories and the files that the script reads.
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

# An addr-spec of atoms: no quoted local parts, no comments, no address literals, nothing beyond ASCII.
_SPEC = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?", re.ASCII)
_ENCODED_WORD = "=?"
SCRIPT = "scripts/get_maintainer.pl"
# What the script looks at to see that it is at the top of a tree, and what it reads (its top_of_kernel_tree()).
_FILES = ("COPYING", "CREDITS", "Kbuild", "MAINTAINERS", "Makefile", "README", ".get_maintainer.ignore", SCRIPT)
_NOBODY = "bisector@localhost"
_TRAILERS = ("Signed-off-by", "Reviewed-by", "Acked-by", "Tested-by", "Reported-by", "Cc")
_DEADLINE_S = 60.0
# What it writes goes to files of 1 MiB at most (setrlimit(2), RLIMIT_FSIZE; sh counts blocks of 512 bytes), and comes
# from there: a pipe would be read into memory without an end.
_BOUNDED = (
    *("sh", "-c"),
    'ulimit -f 2048; at=${TMPDIR:-/tmp}; "$@" > "$at/said" 2> "$at/wrong"; status=$?;'
    ' cat "$at/said"; cat "$at/wrong" >&2; exit $status',
    "sh",
)


def parse(texts: Iterable[str]) -> tuple[Address, ...]:
    """The addresses of several lists such as ``A <a@x>, b@y``, each once; :class:`UserError` for another text."""
    found: dict[str, Address] = {}
    for text in texts:
        for name, spec in getaddresses([clean(text)]):
            local, _, domain = spec.rpartition("@")
            dots = (local.startswith("."), local.endswith("."), ".." in spec, domain.startswith("-"))
            if not _SPEC.fullmatch(spec) or any(dots):
                raise UserError(f"{clean(text)!r} is not a mail address", "write it as user@host or Name <user@host>")
            # A name with a character that nobody could read (U+FFFD) is worse than none.
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
    """Text for a header: one line, and nothing in it that a reader would decode to something else (RFC 2047)."""
    return clean(text).replace(_ENCODED_WORD, "= ?")


def sender_of(mail: MailSettings, directory: Path) -> str:
    """``mail.from``, else the author by git's configuration in a directory, else the user of the system."""
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
    except (KeyError, OSError):  # a container that has no names; the latter since Python 3.13
        user = f"uid{os.getuid()}"
    return next(usable((f"{user}@{socket.gethostname()}",)), _NOBODY)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Addresses for To and Cc, and a sentence for each thing that could not be asked."""

    to: tuple[str, ...]
    cc: tuple[str, ...]
    notes: tuple[str, ...] = ()


def propose(repository: Repository, sha: str) -> Proposal:
    """The author, then maintainers, lists, reviewers and whoever signed; each address once."""
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
        # The directories of the tree, empty, and the few files; a checkout would be a gigabyte.
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
        top.chmod(0o755)  # bwrap enters it as root without its rights; nobody else gets as far
        within = (*sandbox.Sandbox(readable=(top,)).words, *_BOUNDED)
        words = ("perl", SCRIPT, "--nogit", "--nogit-fallback", "--norolestats", "the.patch")
        return process.run(words, deadline_s=_DEADLINE_S, cwd=top, within=within).stdout.splitlines()
