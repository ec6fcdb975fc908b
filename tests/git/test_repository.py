import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Kind
from bisector.git.repository import Repository, shown
from bisector.git.source_tree import SourceTree
from bisector.git.trees import changed_end
from bisector.host.process import RUN_MARKER, run
from bisector.mail.compose import propose
from tests.git.conftest import Make
from tests.git.histories import KERNEL_TREE, Node, build, git, linear
from tests.nobody import as_nobody
from tests.programs import program


def refused(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        Repository.open(path)
    return caught.value


def test_no_directory_and_no_repository(tmp_path: Path) -> None:
    assert "cannot be looked at: File name too long" in refused(tmp_path / ("n" * 300)).message
    assert "is not a directory" in refused(tmp_path / "none").message
    assert "is not a git repository" in refused(tmp_path).message
    build(tmp_path / "a\nb", linear(1))
    assert "a\nb has a line break in it" in refused(tmp_path / "a\nb").message


@pytest.mark.parametrize("inside", [".", "drivers/md", ".git"])
def test_opened_from_anywhere_in_it(make: Make, tmp_path: Path, inside: str) -> None:
    repository, names = make(linear(2), checkout=True)
    again = Repository.open(repository.top / inside)
    assert again.common_dir == repository.common_dir == repository.top / ".git"
    assert again.resolve("HEAD").sha == names["c1"]
    git(repository.top, "worktree", "add", "-q", "--detach", str(tmp_path / "other"), names["c0"])
    other = Repository.open(tmp_path / "other")
    assert (other.common_dir, other.top) == (repository.common_dir, tmp_path / "other")
    assert other.resolve("HEAD").sha == names["c0"]


def test_owner_that_git_does_not_trust(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, _ = make(linear(2))
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    error = refused(repository.top)
    assert error.message.startswith(f"git does not trust {repository.top}, which belongs to")
    assert error.hint == f"git config --global --add safe.directory {repository.top}"
    run(["git", *error.hint.split()[1:]], deadline_s=10)
    try:
        Repository.open(repository.top)
    finally:
        run(["git", "config", "--global", "--unset-all", "safe.directory"], deadline_s=10)


def test_damaged_repository(make: Make) -> None:
    repository, _ = make(linear(2))
    config = repository.common_dir / "config"
    config.write_text(config.read_text() + "[core\n")
    assert "cannot read the repository" in refused(repository.top).message


@pytest.fixture
def public_dir() -> Iterator[Path]:
    """A directory that other users can enter, unlike pytest's."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_not_writable(public_dir: Path) -> None:
    build(public_dir / "linux", linear(2))
    if os.geteuid() != 0:
        (public_dir / "linux/.git").chmod(0o555)
        error = refused(public_dir / "linux")
        (public_dir / "linux/.git").chmod(0o755)
        text = f"{error.message}|{error.hint}"
    else:
        text = refused_to_nobody(public_dir)
    assert "cannot be written" in text
    assert f"git clone --shared {public_dir / 'linux'}" in text


def refused_to_nobody(where: Path) -> str:
    """What an unprivileged process is told; root may write whatever the permissions say."""
    (where / ".gitconfig").write_text(f"[safe]\n\tdirectory = {where / 'linux'}\n")
    script = (
        "import sys; from pathlib import Path\n"
        "from bisector.core.errors import UserError; from bisector.git.repository import Repository\n"
        "try: Repository.open(Path(sys.argv[1]))\n"
        "except UserError as error: print(f'{error.message}|{error.hint}')"
    )
    finished = as_nobody(sys.executable, "-c", script, where / "linux", home=where)
    assert finished.exit_status == 0, finished.stderr
    return finished.stdout


def test_git_gets_what_it_needs_of_the_environment_and_no_login(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BISECTOR_SMTP_PASSWORD", "secret")
    for name in ("SOME_TOKEN", "GIT_TOKEN", "GIT_PASSWORD", "SSH_PASSWORD"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -4")
    for name in ("GIT_INDEX_FILE", "GIT_DIR"):  # as in a git hook
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("https_proxy", "http://proxy")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv(RUN_MARKER, "/another/run")
    repository, _ = make(linear(2))
    repository = Repository.open(repository.top, run_marker=tmp_path)
    lines = repository.ask("-c", "alias.environment=!env", "environment").lines
    given = dict(line.partition("=")[::2] for line in lines)
    assert {name for name, value in given.items() if value == "secret"} == set()
    assert not {"GIT_INDEX_FILE", "GIT_DIR"} & set(given)
    wanted = {"SSH_AUTH_SOCK": "/run/agent", "GIT_SSH_COMMAND": "ssh -4", "https_proxy": "http://proxy"}
    wanted |= {"LC_ALL": "C", RUN_MARKER: str(tmp_path)}
    assert {name: given.get(name) for name in wanted} == wanted
    assert "HOME" in given


def test_what_a_repositorys_settings_name_is_not_run(make: Make, tmp_path: Path) -> None:
    plain = "a\n" * 9
    attributes = {".gitattributes": "* filter=evil merge=evil diff=evil\n"}
    repository, _ = make(
        (
            Node("a", files={**KERNEL_TREE, **attributes, "x.c": plain}),
            Node("b", ("a",), {"x.c": f"b\n{plain}"}),
            Node("c", ("b",), {"x.c": f"b\n{plain}c\n"}),
        ),
        checkout=True,
    )
    top = repository.top
    ran = tmp_path / "ran"
    script = program(tmp_path / "evil", f"echo $0 $@ >> {ran}\nexec cat")
    named = (
        *("filter.evil.smudge", "filter.evil.clean", "merge.evil.driver", "diff.evil.textconv", "diff.evil.command"),
        *("diff.external", "gpg.program", "core.fsmonitor", "core.alternateRefsCommand", "core.sshCommand"),
        *("core.pager", "core.editor", "core.askPass", "credential.helper", "core.gitProxy"),
    )
    for name in named:
        git(top, "config", name, str(script))
    for name, value in (("merge.default", "evil"), ("log.showSignature", "true"), ("core.hooksPath", str(tmp_path))):
        git(top, "config", name, value)
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n"
    head = repository.resolve("HEAD")
    text = repository.ask("cat-file", "commit", head.sha).stdout
    signed = text.replace("\n\n", f"\n{signature}\n", 1)
    sha = repository.ask("hash-object", "-t", "commit", "-w", "--stdin", stdin=signed).stdout.strip()
    commit = repository.resolve(sha)
    propose(repository, sha)
    (parent,) = repository.commits(repository.parents(sha))
    changed_end(repository, Kind.REVERTED, parent, commit)
    source = SourceTree(repository, tmp_path / "run")
    assert (source.checkout(commit) / "x.c").read_text().startswith("b\n")
    assert not ran.exists(), ran.read_text()


def test_command_that_does_not_end(make: Make) -> None:
    repository, _ = make(linear(2))
    with pytest.raises(InfraError, match=r"the end of git -c not seen within 0\.2 s"):
        repository.git("-c", "alias.wait=!sleep 60", "wait", at=repository.top, deadline_s=0.2)


def running(marker: Path) -> list[str]:
    """The processes that carry the marker of a run."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            found += [environ.parent.name] if os.fsencode(f"{RUN_MARKER}={marker}") in environ.read_bytes() else []
    return found


def test_interrupted_command_leaves_no_process(make: Make, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    repository, _ = make(linear(2))
    before = signal.signal(signal.SIGALRM, interrupt)
    marked = Repository.open(repository.top, run_marker=tmp_path)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(KeyboardInterrupt) as caught:
        marked.ask("-c", "alias.wait=!sleep 60", "wait")
    signal.signal(signal.SIGALRM, before)
    Deadline("the end of sleep", 5).poll(lambda: None if running(tmp_path) else True)
    assert caught.traceback  # until here it has kept GitPython from ending the process by itself


def test_a_repository_needs_no_closing(make: Make) -> None:
    """GitPython's own questions would leave a process of `git cat-file --batch` each."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    repository, _ = make(linear(2))
    before = children.read_text()
    head = repository.resolve("HEAD")
    shown(repository, head)
    repository.check_kernel_tree(head)
    assert children.read_text() == before


@pytest.mark.parametrize("header", [b"", b"encoding ISO-8859-1\n"])
def test_names_in_latin_1(make: Make, header: bytes) -> None:
    """The kernel's history has many that do not say so."""
    repository, _ = make(linear(1))
    git(repository.top, "config", "i18n.logOutputEncoding", "ISO-8859-1")
    tree = repository.resolve("main").tree
    who = b"J\xf6rg <joerg@example.com> 1500000000 +0000"
    file = repository.top / "commit"
    file.write_bytes(b"tree %s\nauthor %s\ncommitter %s\n%s\nJ\xf6rg's fix\n" % (tree.encode(), who, who, header))
    sha = git(repository.top, "hash-object", "-t", "commit", "-w", str(file))
    assert repository.resolve(sha).subject == "Jörg's fix"
    assert propose(repository, sha).to == ("Jörg <joerg@example.com>",)


def test_ways_to_name_a_commit(make: Make) -> None:
    """What git takes: gitrevisions(7)."""
    repository, names = make((*linear(3), Node("fix: the text", ("c2",), tags=("v6.1",))), checkout=True)
    top = repository.top
    head = names["fix: the text"]
    git(top, "tag", "-a", "-m", "x", "one", "v6.1")
    git(top, "tag", "-a", "-m", "y", "nested", "one")
    git(top, "tag", "both", "main~2")
    git(top, "branch", "both", "main~1")
    git(top, "checkout", "-q", "--detach", "main~1")
    git(top, "checkout", "-q", "main")
    for rev, found in {
        "HEAD~2": names["c1"], ":/the text": head, ":/c1": names["c1"], "v6.1^{}": head, "v6.1^{/c0}": names["c0"],
        "main@{1 minute ago}": head, "@{-1}": names["c2"], "@": head, "nested": head, "both": names["c1"],
        "heads/both": names["c2"], "v6.1-0-g" + head[:12]: head,
    }.items():  # fmt: skip
        assert repository.resolve(rev).sha == found, rev
    commit = repository.resolve("v6.1")
    # UTC is "Z" since git 2.45, "+00:00" before
    assert datetime.fromisoformat(commit.committed_at) == datetime(2017, 7, 14, 2, 44, tzinfo=UTC)
    assert [one.sha for one in repository.commits([names["c2"], names["c0"]])] == [names["c2"], names["c0"]]
    assert repository.commits([]) == ()


def test_words_that_name_no_commit(make: Make) -> None:
    files = {**KERNEL_TREE, "drivers/md/dm.c": "\n"}
    repository, _ = make((Node("c0", files=files), Node("c1", ("c0",), tags=("v6.1",))), checkout=True)
    top = repository.top
    git(top, "tag", "tree", "main^{tree}")
    git(top, "tag", "blob", "main:Makefile")
    git(top, "tag", "-a", "-m", "x", "tag-of-tree", "main^{tree}")
    (top / ".git/refs/tags/broken").write_text("1" * 40 + "\n")
    for rev, message, hint in (
        ("", "'' names no commit", "git tag --list"),
        ("-x", "'-x' names no commit", "git tag --list"),
        ("--all", "'--all' names no commit", "git tag --list"),
        ("^v6.1", "'^v6.1' names no commit", "git tag --list"),
        ("v6.1..main", "'v6.1..main' is a range, and one commit is asked for here", "one of its ends"),
        ("tree", "'tree' names a tree, and no commit", "hash of a commit"),
        ("blob", "'blob' names a blob, and no commit", "hash of a commit"),
        ("tag-of-tree", "'tag-of-tree' names a tree, and no commit", "hash of a commit"),
        ("main:Makefile", "'main:Makefile' names a blob, and no commit", "hash of a commit"),
        ("drivers/md", "'drivers/md' is a path, and a commit is asked for here", "OLD NEW -- drivers/md"),
        ("broken", "unknown revision 'broken'", "git fetch --tags"),
        ("0123456789", "unknown revision '0123456789'", "git fetch --tags"),
        (":/no such text", "unknown revision ':/no such text'", "git fetch --tags"),
        ("v6.10", "unknown revision 'v6.10'", "did you mean v6.1"),
    ):
        with pytest.raises(UserError) as caught:
            repository.resolve(rev)
        assert (caught.value.message, hint in (caught.value.hint or "")) == (message, True)


def test_a_revision_that_a_shallow_clone_lacks(make: Make, tmp_path: Path) -> None:
    source, _ = make((Node("c0", tags=("v6.1",)), Node("c1", ("c0",), tags=("v6.2",))))
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{source.top}", "shallow")
    shallow = Repository.open(tmp_path / "shallow")
    for rev, hint in (
        ("v6.1", "did you mean v6.2? else: git fetch --unshallow --tags"),
        ("HEAD~1", "git fetch --unshallow --tags"),
    ):
        with pytest.raises(UserError) as caught:
            shallow.resolve(rev)
        assert (caught.value.message, caught.value.hint) == (f"unknown revision {rev!r} in this shallow clone", hint)


def test_a_partial_clone_whose_remote_is_gone(make: Make, tmp_path: Path) -> None:
    source, names = make(linear(2))
    git(source.top, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=tree:0", "--no-checkout", f"file://{source.top}", "partial")
    source.top.rename(tmp_path / "gone")
    partial = Repository.open(tmp_path / "partial")
    commit = partial.resolve(names["c1"])
    with pytest.raises(InfraError, match=r"; this is a partial clone, which fetches what it lacks from its remote"):
        partial.check_kernel_tree(commit)


EXT = {"protocol.ext.allow": "always"}


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("ext::{}", EXT),
        ("{}", {**EXT, "remote.origin.vcs": "ext"}),
        ("", {"remote.origin.uploadpack": "{}"}),
        ("ssh://127.0.0.1/linux", {"core.sshCommand": "{}"}),
        ("git://127.0.0.1/linux", {"core.gitProxy": "{}"}),
    ],
)
def test_a_clone_of_a_strangers_runs_no_program_of_theirs(
    make: Make, tmp_path: Path, url: str, settings: dict[str, str]
) -> None:
    """It lacks files, which git would fetch while it reads, and while it checks out."""
    origin, _ = make(linear(2))
    git(origin.top, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{origin.top}", "partial")
    ran = tmp_path / "ran"
    theirs = program(tmp_path / "program", f"touch {ran}")
    for name, value in {"remote.origin.url": url or f"file://{origin.top}", **settings}.items():
        git(tmp_path / "partial", "config", name, value.format(theirs))
    repository = Repository.open(tmp_path / "partial")
    assert repository.ask("cat-file", "blob", "origin/main:Makefile", ok=None).status != 0
    with pytest.raises(InfraError, match="partial clone"):
        SourceTree(repository, tmp_path / "run").checkout(repository.resolve("origin/main"))
    assert not ran.exists()
    run(["git", "-C", repository.top, "cat-file", "blob", "origin/main:Makefile"], deadline_s=10.0, check=False)
    assert ran.exists()  # what it would have run
