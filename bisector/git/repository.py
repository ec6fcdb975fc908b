"""The user's repository, what is shown of its commits, and the one place that starts git.

The repository is only read, except for bisector's own worktrees, references and new objects. Causes of failures are
found by further questions to git and the file system, not by git's messages, which change.

Commands of git are shielded from a person's configuration, and ended with all that they started. GitPython starts git,
and finds a repository that git refuses to open; nothing else of it is used. Plain commands with plain output are
quicker on a kernel's history, and give the same answers in every version.
"""

import codecs
import difflib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import join, normpath
from typing import Self

from bisector.core.deadline import DeadlineExpired
from bisector.core.errors import BisectorError, Finding, Grade, InfraError, UserError
from bisector.core.subject import Commit
from bisector.host.files import scratch
from bisector.host.packages import install, not_installed
from bisector.host.process import RUN_MARKER, CommandTimeout, mark, to_its_end

# On import GitPython looks for git and raises ImportError, which is no message for a person: git is looked for later.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import git

DEADLINE_S = 600.0
# git 2.31 ended the search at a skip if terms were chosen; fixed by 4cd66e7d6b42 ("bisect--helper: use BISECT_TERMS in
# 'bisect skip' command").
_LEAST_VERSION = (2, 32)

# Options that keep a person's configuration from changing what these commands do (git-config(1)).
_CONFIGURATION = (
    "protocol.ext.allow=never",  # the address of an ext:: remote is a command
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=true",  # true(1) names no reference: they only save a fetch some bytes
    "log.showSignature=false",  # so that gpg.program is not run
    "core.sparseCheckout=false",  # `git worktree add` copies a sparse checkout's patterns
    # A checkout has exactly the files of its tree, whatever a person's attributes, line ends and file system are like.
    # git-init(1) records symlinks, fileMode and ignoreCase for the file system that the person's checkout is on.
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "core.eol=lf",
    "core.symlinks=true",
    "core.fileMode=true",
    "core.ignoreCase=false",
    # A file that something has overwritten is checked out again, even if its size and second are the same.
    "core.checkStat=default",
    "core.trustctime=true",
    "core.untrackedCache=false",
    "index.skipHash=false",
    # One worker per CPU: two checked out v6.1 in 12 s instead of 25 s, nearly all of it spent in the file system.
    "checkout.workers=0",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "color.ui=false",
    "i18n.logOutputEncoding=UTF-8",
    "worktree.useRelativePaths=false",  # it would write extensions.relativeWorktrees into the user's config
)
_ENVIRONMENT = {
    "LC_ALL": "C",
    "LANGUAGE": "C",
    # Caches are keyed by trees and filled from the trees themselves, not from what git-replace(1) puts in their place.
    # Nor are grafts followed, which git-replace(1) superseded (gitrepository-layout(5), "info/grafts").
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": "/dev/null/none",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
}
# A partial clone fetches missing objects in the middle of any command, by programs that its own configuration may name:
# reading somebody else's clone would run programs that they chose. GIT_NO_LAZY_FETCH exists since git 2.45 and some
# releases of older versions; GIT_ALLOW_PROTOCOL allows only a protocol that does not exist.
_NOTHING_FETCHED = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
_OF_REMOTES = ("fetch", "ls-remote", "push")
# Measuring needs the files of these commands: they may fetch, unless the clone's own configuration names a program.
_OF_FILES = ("checkout", "bisect", "merge-tree", "apply", "write-tree", "pack-objects")
_OWN_PROGRAMS = r"^(core\.(sshcommand|gitproxy)|credential\.(.*\.)?helper|remote\..*\.uploadpack)$"
_OWN_SCOPES = ("local", "worktree")

_OF_ERRORS = ("fatal: ", "error: ")
# Some kernel commits have Latin-1 names without saying so; figures and hashes are ASCII.
_LATIN_1 = "bisector.latin-1"

# The environment variables that git, or a program by which it reaches a remote, needs; logins for mail are not.
_PASSED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LD_LIBRARY_PATH", "DBUS_SESSION_BUS_ADDRESS"),
        *("GNUPGHOME", "KRB5CCNAME", "NETRC", "CURL_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "NIX_SSL_CERT_FILE"),
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_SK_PROVIDER", "SSH_SK_HELPER", "SSH_PKCS11_HELPER"),
        # git's own variables (git(1)) for reaching remotes and finding settings. Excluded are those that lead to
        # another repository, tree or index, as they are set inside a git hook, and what a person keeps in GIT_TOKEN.
        *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_PROXY_COMMAND", "GIT_ALLOW_PROTOCOL"),
        *("GIT_PROTOCOL", "GIT_PROTOCOL_FROM_USER", "GIT_EXEC_PATH", "GIT_CURL_VERBOSE", "GIT_HTTP_USER_AGENT"),
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
        *("GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM"),
        *(RUN_MARKER, *_ENVIRONMENT, *_NOTHING_FETCHED),
    )
)
_PASSED_KINDS = (
    "GIT_SSL_",
    "GIT_HTTP_LOW_SPEED_",
    "GIT_HTTP_PROXY_",
    "GIT_PROXY_SSL_",
    "GIT_TRACE",
    "GIT_TEST_",
    "XDG_",
)

# The prefix of all references of bisector. Not refs/bisector: each `git bisect start` and `reset` removes all
# references that begin with refs/bisect, whatever follows (bisect_clean_state() in git's bisect.c; tried with 2.39).
REFERENCES = "refs/by-bisector"
_COMMIT_FORMAT = "--format=%H%x00%P%x00%T%x00%cI%x00%s"
_WHERE = "--repo DIRECTORY names a checkout of the kernel"
_KERNEL_TREE = ("Kbuild", "Kconfig", "Makefile", "arch/x86", "init/Kconfig")

_TRAILERS = ("Link", "Closes", "BugLink", "Fixes")
_MOST_TRAILERS = 12
_MOST_LINES = 400
_MOST_BYTES = 64 << 10
_SHOW = ("show", "--no-show-signature", "--no-notes", "--no-ext-diff", "--no-textconv", "--encoding=UTF-8")


def commit_text(tree: str, parents: Sequence[str], at_s: int, message: str) -> str:
    """A commit for git-hash-object(1): the same words give the same hash, whatever a person's configuration is."""
    who = f"bisector <bisector@localhost> {at_s} +0000"
    head = (f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}")
    return "\n".join((*head, "", message, ""))


@dataclass(frozen=True, slots=True)
class GitAnswer:
    """The exit status and the output of a git command."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> tuple[str, ...]:
        """Standard output split at newlines only: names may have U+0085 and U+2028 (git-check-ref-format(1))."""
        return tuple(self.stdout.removesuffix("\n").split("\n")) if self.stdout else ()

    @property
    def complaint(self) -> str:
        """The last line of standard error that names an error (advice may follow it), or else the last line."""
        lines = self.stderr.strip().split("\n")
        return next((line for line in reversed(lines) if line.startswith(_OF_ERRORS)), lines[-1]) or "no message"


class GitRunner:
    """Runs git commands; it never changes directory, and passes on only chosen variables of the environment."""

    def __init__(self, run_marker: Path | None = None) -> None:
        if shutil.which("git") is None:
            raise not_installed("git", "git")
        self._git = git.Git()
        self._environment = {**_ENVIRONMENT, **(mark(run_marker) if run_marker else {})}

    def __call__(
        self,
        *words: str,
        at: Path,
        where: Sequence[str] = (),
        ok: tuple[int, ...] | None = (0,),
        stdin: str | bytes = "",
        deadline_s: float = DEADLINE_S,
        umask: int = -1,
        index: Path | None = None,
        into: Path | None = None,
    ) -> GitAnswer:
        """Run ``git words`` in directory ``at`` with git's own options ``where``, such as ``--git-dir``.

        ``index`` is a file to use instead of the index (git(1), "GIT_INDEX_FILE"), ``into`` a file that is overwritten
        with git's output; ``umask`` -1 is this process's. Raises :class:`InfraError` for an exit status not in ``ok``
        (None accepts any), and if git is late (``deadline_s``).
        """
        fetches = words[0] in _OF_REMOTES
        if words[0] in _OF_FILES:
            # The repository's own configuration, unlike the person's, may name programs that git would fetch with.
            asked = ("config", "--show-scope", "--name-only", "--get-regexp", _OWN_PROGRAMS)
            named = self(*asked, at=at, where=where, ok=None).lines
            fetches = not any(line.split("\t")[0] in _OWN_SCOPES for line in named)
        redirected = () if into is None else ("sh", "-c", 'exec "$@" >"$0"', os.fspath(into))
        command = [*_shield(index), *redirected, "git", "-C", os.fspath(at), *where]
        command += [word for entry in _CONFIGURATION for word in ("-c", entry)]
        command += words
        environment = self._environment if fetches else {**self._environment, **_NOTHING_FETCHED}
        with tempfile.TemporaryFile() as file:
            file.write(stdin.encode() if isinstance(stdin, str) else stdin)
            file.seek(0)
            # GitPython's kill_after_timeout is not used: its timer outlives an exception such as Ctrl-C and holds the
            # interpreter until it fires. Nor is its cwd: if that directory is gone, it falls back to the person's
            # current one; hence -C. A session of its own, so that Ctrl-C reaches this process alone.
            process = self._git.execute(
                command, as_process=True, istream=file, env=environment, start_new_session=True, umask=umask
            )
            try:
                stdout, stderr = to_its_end(process, command, deadline_s)
            except CommandTimeout as error:
                raise InfraError(str(DeadlineExpired(f"the end of git {words[0]}", error.seconds))) from error
        answer = GitAnswer(process.returncode, stdout.decode("utf-8", _LATIN_1), stderr.decode("utf-8", _LATIN_1))
        if ok is not None and answer.status not in ok:
            raise InfraError(f"git {words[0]} failed with status {answer.status}: {answer.complaint}")
        return answer

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the git program."""
        return tuple(self._git.version_info)

    @property
    def version_text(self) -> str:
        """The version of the git program, such as ``2.39.5``."""
        return ".".join(map(str, self.version))


def _as_latin_1(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(_LATIN_1, _as_latin_1)


def version_finding() -> Finding:
    """Whether this git bisects with chosen terms; raises :class:`UserError` if git is not installed."""
    git = GitRunner()
    if git.version < _LEAST_VERSION:
        what = f"git {git.version_text} cannot bisect with terms of its user's choice, as 2.32 can"
        return Finding("git", Grade.MISSING, what, install("git"))
    return Finding("git", Grade.OK, git.version_text)


def mail_finding(directory: Path) -> Finding:
    """Whether ``git send-email`` is set up; only the server is named, never a password."""
    server = GitRunner()("config", "--get", "sendemail.smtpserver", at=directory, ok=None).stdout.strip()
    state = f"git's sendemail.smtpServer is {server or 'not set'}"
    return Finding("git send-email", Grade.INFO, state)


def enclosing_repository(path: Path) -> tuple[Path, Path] | None:
    """The git directory and the checkout that contain ``path``, whoever owns them; None if there is no repository."""
    try:
        with git.Repo(path, search_parent_directories=True) as found:
            return Path(found.git_dir), Path(found.working_tree_dir or found.git_dir)
    except git.InvalidGitRepositoryError:
        return None


def _shield(index: Path | None) -> tuple[str, ...]:
    """The env(1) command that removes variables that git does not need: GitPython passes on all of them.

    They are unset by name: setting the others would show their values in the list of processes.
    """
    unset = tuple(
        f"--unset={name}"
        for name in os.environ
        if not (name in _PASSED or name.startswith(_PASSED_KINDS) or name.lower().endswith("_proxy"))
    )
    given = () if index is None else (f"GIT_INDEX_FILE={index}",)
    return ("env", *unset, *given) if unset or given else ()


# The repository


class Repository:
    """The git repository that a range is taken from.

    ``top`` is the root of the checkout or, for a bare repository, its directory; worktrees are registered in
    ``common_dir`` (gitrepository-layout(5)). ``prefix`` leads from ``top`` to the directory that was opened.
    """

    def __init__(self, door: GitRunner, top: Path, common_dir: Path, shallow: bool, prefix: str = "") -> None:
        self.git = door
        self.top = top
        self.common_dir = common_dir
        self.shallow = shallow
        self.prefix = prefix
        # The commits asked for so far, with their parents: what a hash names does not change.
        self._commits: dict[str, tuple[Commit, tuple[str, ...]]] = {}

    @classmethod
    def open(cls, path: Path, run_marker: Path | None = None) -> Self:
        """Open the repository around ``path``; :class:`UserError` if it is missing, not trusted or not writable."""
        try:
            is_there = path.is_dir()
            if "\n" in os.fspath(path.resolve()):
                raise UserError(
                    f"the name of the directory {path.resolve()} has a line break in it, and git tells paths by lines",
                    "rename it, or clone it to another place",
                )
        except OSError as error:  # for example in a directory that this user may not enter
            raise UserError(f"{path} cannot be looked at: {error.strerror}", _WHERE) from error
        if not is_there:
            raise UserError(f"{path} is not a directory", _WHERE)
        door = GitRunner(run_marker)
        always = ("--absolute-git-dir", "--git-common-dir", "--is-shallow-repository", "--show-prefix")
        # --show-toplevel fails if there is no checkout, after the other questions are answered.
        answer = door("rev-parse", *always, "--show-toplevel", at=path, ok=None)
        if len(answer.lines) < len(always):
            raise _refusal(door, path, answer)
        git_dir, common_dir, shallow, prefix, *top = answer.lines
        repository = cls(door, Path(*top or (git_dir,)), (path / common_dir).resolve(), shallow == "true", prefix)
        worktrees = repository.common_dir / "worktrees"
        where = worktrees if worktrees.is_dir() else repository.common_dir
        if not os.access(where, os.W_OK | os.X_OK):
            raise UserError(
                f"{where} cannot be written, and a bisection registers worktrees of its own there",
                f"git clone --shared {repository.top} COPY, then run with --repo COPY",
            )
        return repository

    def ask(self, *words: str, ok: tuple[int, ...] | None = (0,), stdin: str = "") -> GitAnswer:
        """Run a git command that reads, in the repository; raises :class:`InfraError` as :class:`GitRunner` does."""
        try:
            return self.git(*words, at=self.top, ok=ok, stdin=stdin)
        except InfraError as error:
            if not self.partial:
                raise
            message = f"{error}; this is a partial clone, which fetches what it lacks from its remote as it is asked"
            raise InfraError(message, f"git -C {self.top} remote -v: does it answer? or use a whole clone") from error

    def resolve(self, rev: str) -> Commit:
        """The commit that a person's revision names; raises :class:`UserError` if there is none."""
        if not rev or rev[0] in "-^":  # options, and exclusions from a range
            raise UserError(f"{rev!r} names no commit", "give a tag, a branch or a hash; `git tag --list` has the tags")
        # ":/text" searches for all that follows, including a suffix; so ^{commit} is applied to the hash that it finds.
        words = [rev] if rev.startswith(":/") else [f"{rev}^{{commit}}", rev]
        for word in words:
            answer = self.ask("rev-parse", "--verify", "--quiet", word, ok=None)
            if answer.status == 0:
                break
        else:
            raise self._unknown(rev)
        sha = answer.stdout.strip()
        found = self.ask("rev-parse", "--verify", "--quiet", f"{sha}^{{commit}}", ok=None)
        if found.status != 0:
            kind = self.ask("cat-file", "-t", f"{sha}^{{}}", ok=None)
            if kind.status != 0:  # the object is missing
                raise self._unknown(rev)
            message = f"{rev!r} names a {kind.stdout.strip()}, and no commit"
            raise UserError(message, "give a tag, a branch or a hash of a commit")
        return self.commits([found.stdout.strip()])[0]

    def from_top(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Paths from ``top``, given paths as typed in the opened directory; those with pathspec magic stay as typed."""
        return tuple(one if one.startswith(":") else normpath(join(self.prefix, one)) for one in paths)

    def commits(self, shas: Iterable[str]) -> tuple[Commit, ...]:
        """The commits with these full hashes, in the same order."""
        return tuple(commit for commit, _ in self._ask_for(shas))

    def expand(self, expression: str) -> tuple[str, ...]:
        """The hashes that ``REV`` or a range such as ``A..B`` stands for, as ``git bisect skip`` takes them."""
        if ".." not in expression:
            return (self.resolve(expression).sha,)
        ends = re.split(r"\.{2,3}", expression)
        if len(ends) > 2:  # noqa: PLR2004 - a range has two ends
            raise UserError(f"{expression!r} is not a range", "give REV or A..B, each with a --skip of its own")
        for end in ends:
            self.resolve(end or "HEAD")
        return self.ask("rev-list", expression, "--").lines

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether ``older`` is ``newer`` or can be reached from it."""
        return self.ask("merge-base", "--is-ancestor", older, newer, ok=(0, 1)).status == 0

    def parents(self, sha: str, *, first_only: bool = False) -> tuple[str, ...]:
        """The hashes of all parents of a commit, whatever paths a range is limited to."""
        ((_, parents),) = self._ask_for([sha])
        return parents[:1] if first_only else parents

    def merge_bases(self, one: str, *others: str) -> tuple[str, ...]:
        """The best common ancestors of ``one`` and a merge of ``others`` (git-merge-base(1)); there may be none."""
        return self.ask("merge-base", "--all", one, *others, ok=(0, 1)).lines

    def between(self, olds: Iterable[str], news: Iterable[str]) -> tuple[Commit, ...]:
        """The commits that can be the first new one: all of ``news`` come after them, and none of ``olds`` does.

        Newest first, as git lists them. The common ancestors of several commits are the ancestors of their best common
        ancestors (git-merge-base(1), ``--octopus``).
        """
        bases = self.ask("merge-base", "--octopus", "--all", *news, ok=(0, 1)).lines
        return self.commits(self.ask("rev-list", *bases, "--not", *olds).lines) if bases else ()

    def check_kernel_tree(self, commit: Commit) -> None:
        """Raise :class:`UserError` unless the commit's tree is a Linux source tree."""
        found = set(self.ask("ls-tree", "--name-only", commit.sha, "--", *_KERNEL_TREE).lines)
        if missing := [name for name in _KERNEL_TREE if name not in found]:
            raise UserError(
                f"{commit.short} is not a kernel tree: it has no {', '.join(missing)}",
                "run inside a clone of the Linux source, or give one with --repo",
            )

    @property
    def partial(self) -> bool:
        """Whether files are fetched from a remote as they are needed (gitglossary(7), "promisor")."""
        words = ("config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$")
        return self.git(*words, at=self.top, ok=(0, 1)).status == 0

    @property
    def not_followed(self) -> tuple[str, ...]:
        """What a person put in place of commits, by git-replace(1) or grafts, in words; bisector follows neither."""
        replaced = self.ask("for-each-ref", "--format=%(refname)", "refs/replace/").lines
        grafts = self.common_dir / "info/grafts"
        lines = grafts.read_text(errors="replace").splitlines() if grafts.is_file() else []
        return (
            *(f"the replacement of {name.rpartition('/')[2][:12]} by git replace" for name in replaced),
            *(f"the graft of {line[:12]} in {grafts}" for line in lines if line and not line.startswith("#")),
        )

    def _ask_for(self, shas: Iterable[str]) -> tuple[tuple[Commit, tuple[str, ...]], ...]:
        wanted = tuple(shas)
        if unknown := [sha for sha in wanted if sha not in self._commits]:
            stdin = "".join(f"{sha}\n" for sha in unknown)
            words = ("log", "--no-walk=unsorted", "--no-show-signature", "--encoding=UTF-8", "--no-notes", "--stdin")
            lines = self.ask(*words, _COMMIT_FORMAT, stdin=stdin).stdout.split("\n")
            for line in filter(None, lines):
                sha, parents, tree, committed_at, subject = line.split("\0")
                self._commits[sha] = (Commit(sha, tree, subject, committed_at), tuple(parents.split()))
        return tuple(self._commits[sha] for sha in wanted)

    def _unknown(self, rev: str) -> UserError:
        if ".." in rev and not rev.startswith(":/"):
            return UserError(f"{rev!r} is a range, and one commit is asked for here", "give one of its ends")
        is_hash = re.fullmatch(r"[0-9a-f]{4,}", rev)
        if is_hash and len(found := self.ask("rev-parse", f"--disambiguate={rev}").lines) > 1:
            stdin = "".join(f"{one}\n" for one in found)
            kinds = self.ask("cat-file", "--batch-check=%(objecttype)", stdin=stdin).lines
            candidates = ", ".join(f"{one[:16]} ({kind})" for one, kind in zip(found, kinds, strict=True))
            return UserError(f"short object ID {rev} is ambiguous; the candidates are {candidates}", "give more digits")
        if "/" in rev and (self.top / self.prefix / rev).exists():
            return UserError(f"{rev!r} is a path, and a commit is asked for here", f"paths come last: OLD NEW -- {rev}")
        names = self.ask("for-each-ref", "--format=%(refname:short)", "refs/tags", "refs/heads", "refs/remotes").lines
        near = [name for name in difflib.get_close_matches(rev, names, n=3) if name != rev]
        meant = f"did you mean {' or '.join(near)}?" if near else ""
        if self.shallow:  # it may lack what is near to what it has
            fetch = "git fetch --unshallow --tags"
            return UserError(
                f"unknown revision {rev!r} in this shallow clone", f"{meant} else: {fetch}" if near else fetch
            )
        return UserError(f"unknown revision {rev!r}", meant or "git fetch --tags, if it is a new one")


def unreadable(path: Path) -> str:
    """Why the commits of an answer cannot be shown; empty if the repository can be read."""
    try:
        Repository.open(path)
    except BisectorError as error:
        return f"the commits of the answer cannot be shown: {error}"
    return ""


def _refusal(door: GitRunner, path: Path, answer: GitAnswer) -> UserError | InfraError:
    found = enclosing_repository(path)
    if found is None:
        return UserError(f"{path} is not a git repository", "run inside a clone of the Linux source, or use --repo")
    git_dir, top = found
    # git does not check the owner of an explicit --git-dir (git-config(1), "safe.directory").
    if door("rev-parse", "--git-dir", at=path, where=("--git-dir", os.fspath(git_dir)), ok=None).status == 0:
        try:
            owner = top.owner()
        except KeyError:
            owner = f"user {top.stat().st_uid}"
        return UserError(
            f"git does not trust {top}, which belongs to {owner}",
            f"git config --global --add safe.directory {top}",
        )
    return UserError(f"git cannot read the repository {top}: {answer.complaint}", f"git -C {top} fsck")


# What is shown of a commit


@dataclass(frozen=True, slots=True)
class ShownCommit:
    """Author, ISO 8601 date, trailers with links, git's summary ``stat``, and the patch, which may be ``cut``.

    A merge that changes nothing by itself has no patch.
    """

    author: str
    authored_at: str
    trailers: tuple[tuple[str, str], ...]
    stat: str
    patch: tuple[str, ...]
    cut: bool


def shown(repository: Repository, commit: Commit) -> ShownCommit:
    """What git shows of a commit. From a partial clone nothing is fetched, so the patch is missing."""
    keys = ",".join(f"key={name}" for name in _TRAILERS)
    told = repository.ask(*_SHOW, "--no-patch", f"--format=%an%x00%aI%x00%(trailers:{keys},only,unfold)", commit.sha)
    author, authored_at, trailers = told.stdout.split("\0", 2)
    named = (line.partition(": ") for line in trailers.split("\n"))
    found = tuple((name, text.strip()) for name, _, text in named if text.strip())[:_MOST_TRAILERS]
    if repository.partial:
        return ShownCommit(author, authored_at, found, "", (), cut=False)
    with scratch("patch") as directory:
        # A patch may be of any length: it goes to a file, and only the beginning of that is read.
        file = directory / "patch"
        repository.git(*_SHOW, "--format=", "--patch", commit.sha, at=repository.top, into=file)
        with file.open("rb") as patch:
            content = patch.read(_MOST_BYTES + 1)
    lines = content[:_MOST_BYTES].decode("utf-8", "replace").splitlines()
    stat = repository.ask(*_SHOW, "--format=", "--shortstat", commit.sha).stdout.strip() if lines else ""
    cut = len(content) > _MOST_BYTES or len(lines) > _MOST_LINES
    return ShownCommit(author, authored_at, found, stat, tuple(lines[:_MOST_LINES]), cut)
