"""The one place that starts git: how its commands are run, shielded from a person's configuration, and ended.

GitPython starts git, and finds a repository that git refuses to open; nothing else of it is used. Plain commands with
plain output are quicker on a kernel's history, and give the same answers in every version.
"""

import codecs
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bisector.core.deadline import DeadlineExpired
from bisector.core.errors import Finding, Grade, InfraError
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
        stdin: str | bytes | Path = "",
        deadline_s: float = DEADLINE_S,
        umask: int = -1,
        index: Path | None = None,
        into: Path | None = None,
    ) -> GitAnswer:
        """Run ``git words`` in directory ``at`` with git's own options ``where``, such as ``--git-dir``.

        ``stdin`` is text, or a file to read; ``index`` a file to use instead of the index (git(1), "GIT_INDEX_FILE");
        ``into`` a file that is overwritten with git's output; ``umask`` -1 is this process's. Raises
        :class:`InfraError` for an exit status not in ``ok`` (None accepts any), and if git is late (``deadline_s``).
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
        with _given(stdin) as file:
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

    def close(self) -> None:
        """Release what GitPython keeps."""
        self._git.clear_cache()

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


@contextmanager
def _given(stdin: str | bytes | Path) -> Iterator[BinaryIO]:
    if isinstance(stdin, Path):
        with stdin.open("rb") as file:
            yield file
    else:
        with tempfile.TemporaryFile() as file:
            file.write(stdin.encode() if isinstance(stdin, str) else stdin)
            file.seek(0)
            yield file
