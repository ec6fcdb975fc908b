"""Patches on top of a commit, without a checkout: the result of git-cherry-pick(1), git-apply(1) or git-am(1).

A file is a diff, or a mailbox with one patch in each letter, as ``git format-patch --stdout`` and lore.kernel.org write
it. It is applied in an index of its own, as exactly as git-am(1) does: no fuzz, no three-way merge. The result is a
commit that is in no branch and can be made again with the same hash.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from bisector.core.errors import UserError
from bisector.core.subject import Commit, Kind, Subject
from bisector.git.repository import Repository
from bisector.git.trees import CannotBeHad, changed_end, made_on
from bisector.host.files import scratch

# A letter begins with mbox's own line or with a header. A diff may begin like a header, with "Index: drivers/md/dm.c".
_LETTER = re.compile(rb"\s*(From |(?!Index:|diff:)[A-Za-z][A-Za-z-]*:[ \t])")
_SUBJECT = re.compile(r"^Subject: (.*)$", re.MULTILINE)
_ERROR = "error: "
_QUOTED = 3  # the number of git's errors that are shown; each names one file
# Options instead of a person's settings (git-config(1), "apply").
_AS_IT_IS = ("-c", "apply.whitespace=nowarn", "-c", "apply.ignoreWhitespace=no")


def with_commit(repository: Repository, base: Commit, commit: Commit) -> Subject:
    """``base`` with the change of a commit on top; raises :class:`UserError` if git cannot make that."""
    made = changed_end(repository, Kind.PICKED, commit, base)
    if isinstance(made, CannotBeHad):
        raise UserError(
            f"{commit.short} cannot be put on top of {base.short}: {made.reason}",
            f"make it fit, and give it as a file: git checkout {base.short}; git cherry-pick {commit.short}",
        )
    return Subject(made, Kind.PATCHED, commit.sha)


def with_file(repository: Repository, base: Commit, file: Path) -> Subject:
    """``base`` with all patches of a file on top; raises :class:`UserError` with git's message about the place."""
    if file.exists() and not file.is_file():  # it is read again when it is copied into the run
        raise UserError(f"{file} is not a regular file", "write the patch to a file")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}", f"ls -l {file}") from error
    common = repository.common_dir
    # Outside the person's checkout, whose attributes and directories would affect the result.
    where = (f"--git-dir={common}", f"--work-tree={common}", *_AS_IT_IS)
    with scratch("patch") as directory:
        index = directory / "index"
        patches = tuple(_patches(repository, directory, file, content))
        repository.git("read-tree", base.tree, at=common, where=where, index=index)
        for name, diff in patches:
            words = ("apply", "--cached", "-")
            answer = repository.git(*words, at=common, where=where, ok=None, stdin=diff, index=index)
            if answer.status != 0:
                said = [line.removeprefix(_ERROR) for line in answer.stderr.splitlines() if line.startswith(_ERROR)]
                raise UserError(
                    f"{name} does not apply to {base.short}: {'; '.join(said[:_QUOTED]) or answer.complaint}",
                    f"git checkout {base.short}; git apply --3way {file}",
                )
        tree = repository.git("write-tree", at=common, where=where, index=index).stdout.strip()
    if tree == base.tree:
        raise UserError(f"{file} changes nothing of {base.short}", "a comparison needs two different kernels")
    digest = hashlib.sha256(content).hexdigest()
    made = made_on(repository, base, tree, f"Apply {file.name}", f"with the patch of SHA-256 {digest}")
    return Subject(made, Kind.PATCHED, digest)


def _patches(repository: Repository, directory: Path, file: Path, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield each patch's name and diff, in order; letters without a diff, such as a cover letter, are left out."""
    if not _LETTER.match(content):
        yield str(file), content
        return
    mailbox, letters = directory / "mailbox", directory / "letters"
    mailbox.write_bytes(content.lstrip())
    letters.mkdir()
    repository.git("mailsplit", "-b", f"-o{letters}", "--", str(mailbox), at=repository.common_dir)
    found = []
    for letter in sorted(letters.iterdir()):
        message, diff = directory / "message", directory / "diff"
        words = ("mailinfo", str(message), str(diff))
        told = repository.git(*words, at=repository.common_dir, stdin=letter.read_bytes())
        subject = _SUBJECT.search(told.stdout)
        if content := diff.read_bytes():
            found.append((subject.group(1) if subject else letter.name, content))
    if not found:
        raise UserError(f"{file} has letters and no patch in them", "git format-patch --stdout makes such a file")
    for number, (title, content) in enumerate(found, 1):
        yield f"{file}, patch {number} of {len(found)} ({title}),", content
