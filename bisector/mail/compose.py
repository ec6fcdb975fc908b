"""A report as a letter to kernel developers: its addresses, subject line and text, in the format of mail (RFC 5322).

The order is that of the 0-day robot's letters, and tags are quoted suggestions
(Documentation/process/submitting-patches.rst, handling-regressions.rst). Prose is filled at 72 columns; tables,
listings and addresses keep their width. The text is plain, in UTF-8, not flowed, and no mail program wraps it.

Addresses are read so that none can forge a header, and text of a commit reaches a header only through :func:`header`;
the email package folds and encodes headers.

Recipients are proposed from the commit's trailers and by its own tree: ``scripts/get_maintainer.pl`` of the tree runs
on the commit's patch in a sandbox, in a directory with the tree's directories and the files that the script reads.
"""

import getpass
import gzip
import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import getaddresses
from pathlib import Path
from statistics import fmean, stdev

from bisector.config import MailSettings
from bisector.core import units
from bisector.core.errors import BisectorError, UserError
from bisector.core.objective import Objective
from bisector.core.printable import clean, clean_lines
from bisector.core.verdict import Direction
from bisector.git.repository import Repository
from bisector.host import process, sandbox
from bisector.host.files import scratch
from bisector.kernel import kconfig
from bisector.report import comparison, document
from bisector.report.blocks import Block
from bisector.report.comparison import ComparisonReport
from bisector.report.document import Basis, BeforeAfter, CommitSide, Envelope, Report
from bisector.report.sections import (
    answer_sentence,
    axes,
    candidates,
    circumstances,
    evidence,
    quoted,
    sections,
    terms_sentence,
)
from bisector.report.terminal import block_lines, plain, section_lines
from bisector.report.terminal import fill as filled

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
_LINE = 78  # RFC 5322, 2.1.1
_CONFIRMED = "-confirmed"
_ATTACHED_AS_TEXT_BYTES = 64 << 10
_ARCHIVE = "https://lore.kernel.org/r/"
_LONGEST_LINE_BYTES = 990  # RFC 5322, 2.1.1: 998 without the line end
# Bisector's own signs, as kernel people type them; what a commit or a person wrote stays as it is.
_ASCII = str.maketrans({"±": "+-", "µ": "u", units.UNKNOWN: "-"})
_SUBSYSTEM = re.compile(r"(?!Merge |Revert )([^\s:](?:[^:]{0,38}[^\s:])?):\s")
_BELOW = ("trials", "origin", "range", "config", "job", "storage", "host", "baselines", "log", "reproduce")
_DISCLAIMER = (
    "Figures are of one machine, one configuration and one workload, and are given for information; on other hardware"
    " or software they will differ."
)
_COMPARED = "compared"  # the first word of a comparison's claim


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
    with suppress(BisectorError):
        repository = Repository.open(directory)
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
    author, text = repository.ask("log", "-1", "--no-walk", "--format=%an <%ae>%x00%B", sha).stdout.split("\0", 1)
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
    lines = re.finditer(rf"^(?:{'|'.join(_TRAILERS)}):[ \t]*(.+)$", text, re.MULTILINE | re.IGNORECASE)
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
        process.give(top)
        top.chmod(0o755)  # bwrap enters it as root without root's rights; other users do not get as far
        within = (*sandbox.Sandbox(readable=(top,)).words, *_BOUNDED)
        words = ("perl", SCRIPT, "--nogit", "--nogit-fallback", "--norolestats", "the.patch")
        return process.run(words, deadline_s=_DEADLINE_S, cwd=top, within=within).stdout.splitlines()


# The letter


Told = Report | ComparisonReport


class _Policy(EmailPolicy):
    """Fold headers so that the first line of each has a word of its value.

    Python's policy puts a value that fits into one line, but not beside the name, below the name. That is allowed, but
    ``git send-email`` reads line by line and then misses the subject.
    """

    def fold(self, name: str, value: str) -> str:
        """Fold as the base class, except that a header whose first line is only the name is broken at its blanks."""
        folded: str = super().fold(name, value)
        end = self.linesep
        title, _, rest = folded.partition(f":{end} ")
        if not rest or ":" in title:
            return folded
        line, *words = f"{title}: {rest.removesuffix(end).replace(f'{end} ', ' ')}".split(" ")
        lines = []
        for word in words:
            if word and line != f"{title}:" and len(line) + 1 + len(word) > _LINE:
                lines.append(line)
                line = ""
            line = f"{line} {word}"
        return "".join(f"{one}{end}" for one in (*lines, line))

    def fold_binary(self, name: str, value: str) -> bytes:
        """Fold as the base class; what is folded is ASCII (RFC 2047)."""
        return self.fold(name, value).encode("ascii", "surrogateescape")


# Lines end as in this system's files; :mod:`bisector.mail.smtp` converts them to the network's.
_POLICY = _Policy(linesep="\n")


def subject(report: Told) -> str:
    """The subject of a letter: the thread's, if the letter follows another one."""
    envelope = envelope_of(report)
    return header(f"Re: {envelope.subject.removeprefix('Re: ')}" if envelope.references else headline(report))


def message(report: Told, *, eight_bit: bool = True) -> EmailMessage:
    """The letter; ``eight_bit`` False is for a server that requires seven bits, and gives quoted-printable."""
    envelope = envelope_of(report)
    letter = _letter(envelope, subject(report))
    letter.set_content(body(report, envelope), charset="utf-8", cte="8bit" if eight_bit else "quoted-printable")
    if attached := envelope.defconfig or envelope.config:
        # Attach the configuration after the text, in seven bits: as text that can be quoted, or packed if it is large.
        config = clean_lines(attached)
        stem = "defconfig" if envelope.defconfig else "config"
        if len(config) > _ATTACHED_AS_TEXT_BYTES:
            packed = gzip.compress(config.encode(), mtime=0)
            letter.add_attachment(packed, "application", "gzip", filename=f"{stem}.gz")
        else:
            cte = None if config.isascii() else "quoted-printable"
            letter.add_attachment(config, charset="utf-8", cte=cte, filename=f"{stem}.txt")
        letter["Content-Transfer-Encoding"] = "8bit" if eight_bit else "7bit"
    return letter


def notice(envelope: Envelope, title: str, text: str) -> EmailMessage:
    """A short letter about a failure, in the same form as a report's."""
    letter = _letter(envelope, header(title))
    # Failures are reported in words of git, guests and mail servers, so the text is cleaned.
    letter.set_content(_as_lines(text.splitlines()), charset="utf-8", cte="8bit")
    return letter


def _letter(envelope: Envelope, title: str) -> EmailMessage:
    """A letter without its text."""
    letter = EmailMessage(policy=_POLICY)
    letter["From"] = parse([envelope.sender])
    for name, texts in (("To", envelope.to), ("Cc", envelope.cc)):
        if texts:
            letter[name] = parse(texts)
    letter["Subject"] = title
    letter["Date"] = envelope.date
    letter["Message-ID"] = envelope.message_id
    if envelope.references:
        letter["In-Reply-To"] = envelope.references[-1]
        letter["References"] = " ".join(envelope.references)
    return letter


def claim_of(report: Told) -> str:
    """The claim of a letter: for a bisection, its state and commits. Two letters with one claim say the same."""
    if isinstance(report, ComparisonReport):
        values = sum(len(row.in_run_order) for row in report.result.rows)
        return f"{_COMPARED} {values} {report.title}"
    view = report.bisection
    shas = [view.first_fixed.sha] if view.first_fixed else [commit.sha for commit in view.candidates]
    confirmed = _CONFIRMED if view.first_fixed and view.belief and view.belief.confirmed else ""
    return " ".join([f"{view.state}{confirmed}", *shas])


def follows(earlier: str, now: str) -> str:
    """What this letter means for the last letter of its thread."""
    if _COMPARED in (earlier.split(maxsplit=1)[0], now.split(maxsplit=1)[0]):
        return "This follows the earlier report; where the two differ, this one is the later."
    named = ", ".join(sha[:12] for sha in earlier.split()[1:])
    if earlier == now:
        return f"This confirms the earlier report: another bisection {f'names {named}' if named else 'says so'}, too."
    if not named:  # it said that nothing had changed
        return "This corrects the earlier report, which named no commit; what is said below takes its place."
    if earlier.split() == now.replace(_CONFIRMED, "", 1).split():
        return f"This confirms the earlier report, which named {named}; how is said below."
    if set(now.split()[1:]) & set(earlier.split()[1:]):
        return f"This corrects the earlier report, which named {named}; what is said below takes its place."
    return f"This withdraws the earlier report: {named} is not what made the change. What is known now stands below."


def render(report: Told) -> str:
    """The letter as a file that a mail program opens and ``git send-email`` sends."""
    return message(report).as_bytes().decode()


def envelope_of(report: Told) -> Envelope:
    """The envelope of a report that becomes a letter."""
    if report.envelope is None:
        raise ValueError("a letter needs an envelope")
    return report.envelope


def headline(report: Told) -> str:
    """The subject: ``[linus:master] [dm cache policy smq] 6cf4cc8f8b3b: fio.read_clat_mean_us 21.4x improvement``."""
    if isinstance(report, ComparisonReport):
        return report.title
    compared, first = report.before_after, report.bisection.first_fixed
    tags = [f"[{report.origin.name}]"] if report.origin.name else []
    if compared is None:
        return clean(" ".join([*tags, report.title]))
    name = document.name_of(compared.objective)
    if report.bisection.is_no_change:
        what = f"{report.asked.span}: no change of {name}"
    elif first is None:
        left = report.bisection.candidates
        by = f"most likely by {left[0].short}" if len(left) == 1 else f"by one of {len(left)} commits"
        what = f"{report.asked.span}: {name} {compared.change} {by}"
    else:
        found = _SUBSYSTEM.match(first.subject)
        tags += [f"[{found[1]}]"] if found else []
        what = f"{first.short}: {name} {compared.change}"
    return clean(" ".join([*tags, what]))


def body(report: Told, envelope: Envelope) -> str:
    """The whole text, without lines that are too long for a mail server."""
    if isinstance(report, ComparisonReport):  # the terminal's text in ASCII
        above = [*fill(envelope.follows), ""] if envelope.follows else []
        lines = [*above, *plain(comparison.page(report), _ASCII).split("\n"), *fill(_DISCLAIMER), ""]
    else:
        lines = [line for part in map(list, _parts(report, envelope)) if part for line in (*part, "")]
    # RFC 3676, 4.3: a signature follows two dashes and a space.
    return _as_lines((*lines, "-- ", f"bisector {report.tool_version}"))


def _as_lines(lines: Iterable[str]) -> str:
    """Clean lines for a letter; a line that is too long for a mail server is cut off."""
    text = ""
    for line in map(clean, lines):
        written = line.encode()
        cut = len(written) > _LONGEST_LINE_BYTES
        text += f"{written[: _LONGEST_LINE_BYTES - 3].decode(errors='ignore')}…\n" if cut else f"{line}\n"
    return text


def fill(text: str) -> list[str]:
    """Prose as lines of a letter."""
    return [line.plain for line in filled(text)]


def _block(block: Block) -> list[str]:
    return [line.plain for line in block_lines(block)]


def _parts(report: Report, envelope: Envelope) -> Iterator[Iterable[str]]:
    """The paragraphs of a letter about a bisection; the caller leaves out empty ones."""
    view, compared, first = report.bisection, report.before_after, report.bisection.first_fixed
    yield fill(envelope.follows)
    yield fill(doubtful(envelope))
    yield _noticed(report)
    yield from (_block(block) for block in candidates(report))
    if compared is not None:
        # Both sides of the change, with the number of trials and their spread.
        old, new = _named_sides(report, compared)
        yield (
            *fill(f"before: {old}: {_measured(compared.before, compared.objective)}"),
            *fill(f"after: {new}: {_measured(compared.after, compared.objective)}"),
        )
    yield _block(evidence(report))
    yield fill(terms_sentence(report))
    if report.imported:
        yield fill("This is the report of a program, which concludes from what others measured; see below.")
    else:
        yield fill(
            "This is the report of a program; what it names was measured and bisected by it, and the cause may still"
            " lie elsewhere."
        )
    yield _keys(report)
    yield _tags(report, envelope)
    if envelope.regzbot:  # a paragraph of its own, as regzbot requires
        yield (f"#regzbot introduced: {first.short if first else f'{view.old.sha[:12]}..{view.new.sha[:12]}'}",)
    if compared is not None:
        table = (clean(line) for line in document.lines(compared, axes(report)))
        yield (*fill("Details are as below:"), "", *table, "", *fill(document.note(compared)))
    yield from ((f"{one.title}:", "", *section_lines(one)) for one in sections(report) if one.name in _BELOW)
    yield fill(_DISCLAIMER)


def _noticed(report: Report) -> Iterator[str]:
    compared, first = report.before_after, report.bisection.first_fixed
    if compared is None or report.bisection.is_no_change:
        yield from fill(answer_sentence(report))
        return
    what = document.name_of(compared.objective)
    noticed = f"bisector noticed {document.with_article(compared.change)} of {what}"
    if first is None:
        yield from fill(f"{noticed}. {answer_sentence(report)}")
        return
    yield from fill(f"{noticed} on:")
    yield ""
    yield f'commit: {first.sha} ("{clean(first.subject)}")'
    place = " ".join(filter(None, (report.origin.url, report.origin.branch)))
    if place:
        yield clean(place)


def doubtful(envelope: Envelope) -> str:
    """Warn of options in the measured configuration that distort figures; empty if there are none."""
    costly = [f"{name} ({does})" for name, does in kconfig.costly(kconfig.parse(envelope.config))]
    if not costly:
        return ""
    return (
        f"The measured kernel was built with {', '.join(costly)}. Such options are for finding bugs, and may be what"
        " the figures are of: measure again without them."
    )


def _named_sides(report: Report, compared: BeforeAfter) -> tuple[str, str]:
    before, after = compared.before.commit, compared.after.commit
    old, new = (
        f"the {side} end {commit.short if commit.sha.startswith(rev) else f'{rev} ({commit.short})'}"
        for side, commit, rev in (("old", before, report.asked.old_rev), ("new", after, report.asked.new_rev))
    )
    if compared.basis is Basis.ENDS:
        return old, new
    if compared.basis is Basis.PARENT:
        return f"the parent {before.short}", after.short
    named = old if before.sha == report.bisection.old.sha else f"{before.short}, the nearest commit with figures"
    measured = {row.shown.trial.commit.sha for row in report.rows}
    if not report.parents:
        why = "no repository tells the parent"
    elif any(parent.sha in measured for parent in report.parents):
        why = "the parent has no whole run to compare"
    else:
        why = "the parent was not measured"
    return f"{named}, since {why}", after.short


def _measured(side: CommitSide, objective: Objective) -> str:
    figures = document.values(side, objective)
    mean, text = fmean(figures), f"{objective.text(fmean(figures))} in {units.plural(len(figures), 'trial')}"
    if len(figures) == 1:
        return text
    spread = f", stddev {100 * stdev(figures) / abs(mean):.1f} %" if mean else ""
    return f"{text} ({objective.change_text(min(figures), max(figures))}{spread})"


def _keys(report: Report) -> Iterator[str]:
    kernels = [row.shown.trial.kernel for row in report.rows if row.shown.trial.kernel is not None]
    yield f"testcase: {clean(report.testcase)}"
    facts = ("job", report.workload.name), *circumstances(report), *report.kernel
    yield from (f"{name}: {clean(text)}" for name, text in facts if text)
    yield from (f"compiler: {clean(text)}" for text in dict.fromkeys(kernel.toolchain for kernel in kernels))
    yield from (f"test machine: {clean(host.name)}, a virtual machine on it" for host in report.hosts)


def _tags(report: Report, envelope: Envelope) -> Iterator[str]:
    """Suggested tags, quoted so that no program takes them for this letter's own."""
    view = report.bisection
    if view.first_fixed is None:
        return
    link = _ARCHIVE + envelope.message_id.strip("<>")
    if view.direction is Direction.IMPROVEMENT:
        yield from fill("If this helps to decide on a backport, it can be referred to as")
        yield f"| Link: {link}"
        return
    yield from fill(
        "If you fix this in a separate commit (not just in a new version of the same patch), kindly add these tags"
    )
    yield f"| Fixes: {quoted(view.first_fixed)}"
    yield f"| Reported-by: {envelope.sender}"
    yield f"| Closes: {link}"
