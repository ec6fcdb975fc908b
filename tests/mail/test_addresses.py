"""What is an address, whom a commit's own tree names, and what is said where it names nobody."""

from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.git.repository import Repository
from bisector.host import sandbox
from bisector.mail.compose import SCRIPT, Proposal, parse, propose
from tests.git import histories
from tests.git.conftest import unconfigured as unconfigured  # noqa: PLC0414 - a fixture of this room, too
from tests.hostile import EVERYTHING, SECRET, prey

# What the real one does of interest: it has to be at the top of a tree, and it reads the patch that it is given.
STANDS_IN = r"""
foreach my $name ("MAINTAINERS", "Makefile", "drivers/md", "arch") { die "not at the top: $name\n" unless -e $name; }
die "in the repository\n" if -e ".git" or -e "drivers/md/dm.c";
open(my $patch, "<", $ARGV[-1]) or die; my $text = join("", <$patch>);
die "no patch\n" unless $text =~ m{^\+\+\+ b/drivers/md/dm.c}m;
print "Mike Example <mike\@example.org>\nA U Thor <author\@example.com>\n";
die "unknown option\n" if grep { !m{^(--nogit|--nogit-fallback|--norolestats|the.patch)$} } @ARGV;
print "dm-devel\@lists.example.org\nnot an address\nlinux-kernel\@vger.example.org\n";
"""
MESSAGE = """\
dm: x

Cc: <stable@vger.example.org> # v4.12+
Reviewed-by: Jörg Example <joerg@example.org>
Signed-off-by: Mike Example <MIKE@example.org>
Fixes: 123456789012 ("y")
"""


def commit(path: Path, script: str | None = STANDS_IN) -> Proposal:
    """What is proposed for a commit that changes dm.c, in a tree with this script."""
    files = {**histories.KERNEL_TREE, "drivers/md/dm.c": "old\n", "MAINTAINERS": "\n"}
    files |= {SCRIPT: script} if script is not None else {}
    nodes = (histories.Node("a", files=files), histories.Node("b", ("a",), {"drivers/md/dm.c": "new\n"}))
    histories.build(path / "linux", nodes, checkout=True)
    histories.git(path / "linux", "commit", "-q", "--amend", "--author=A U Thor <author@example.com>", "-m", MESSAGE)
    repository = Repository.open(path / "linux")
    return propose(repository, repository.resolve("HEAD").sha)


def test_author_first_then_the_scripts_and_the_trailers_each_once(tmp_path: Path) -> None:
    assert commit(tmp_path) == Proposal(
        to=("A U Thor <author@example.com>",),
        cc=(
            "Mike Example <mike@example.org>",
            "dm-devel@lists.example.org",
            "linux-kernel@vger.example.org",
            "stable@vger.example.org",
            "Jörg Example <joerg@example.org>",
        ),
    )


@pytest.mark.parametrize(
    ("script", "note"),
    [
        (None, "has no scripts/get_maintainer.pl"),
        ('die "broken\\n";', "broken"),
        ("sleep 100 if 0; exit 3;", "status 3"),
    ],
)
def test_without_an_answer_the_trailers_and_a_note(tmp_path: Path, script: str | None, note: str) -> None:
    proposal = commit(tmp_path, script)
    assert "Jörg Example <joerg@example.org>" in proposal.cc
    assert "dm-devel@lists.example.org" not in proposal.cc
    (said,) = proposal.notes
    assert note in said


@pytest.mark.parametrize("missing", ["perl", "bwrap"])
def test_without_a_program_the_script_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("git", "env", *(["perl"] if missing == "bwrap" else [])):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    commit(tmp_path)
    monkeypatch.setenv("PATH", str(tools))
    repository = Repository.open(tmp_path / "linux")
    proposal = propose(repository, repository.resolve("HEAD").sha)
    assert proposal.notes == (f"no maintainers proposed: {missing} is not installed",)


def test_of_a_script_without_an_end_little_is_read(tmp_path: Path) -> None:
    proposal = commit(tmp_path, 'print "someone$_\\@example.org\\n" for 1..200000;')
    assert not [one for one in proposal.cc if one.startswith("someone")]
    (said,) = proposal.notes
    assert said.startswith("no maintainers proposed: perl scripts/get_maintainer.pl")
    assert len(said) < 1000


def test_a_hostile_script_gets_nothing_and_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same script without the sandbox, which gets it all, shows that the attack is one."""
    with prey(tmp_path) as victim:
        attack = "my $loot = `sh -c '{}'`;".format(victim.script.replace("'", "'\\''").replace("\\", "\\\\"))
        shown = 'foreach (split /\\n/, $loot) { s/\\W/-/g; print "$_\\@example.org\\n"; }'
        script = f'{attack}\n{shown}\nprint "still\\@example.org\\n";'
        proposal = commit(tmp_path / "within", script)
        assert "still@example.org" in proposal.cc
        assert not [one for one in proposal.cc if SECRET in one]
        assert victim.harm("") == set()
        monkeypatch.setattr(sandbox.Sandbox, "words", ())
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        proposal = commit(tmp_path / "without", script)
        assert {one for one in proposal.cc if SECRET in one} == {
            f"password-{SECRET}@example.org",
            f"BISECTOR_SMTP_PASSWORD-{SECRET}@example.org",
        }
        assert victim.harm("") == EVERYTHING - {"login", "environment"}  # those are told by what is printed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nobody",
        "a@",
        "@b",
        "a b@c",
        "a@b@c",
        "a@b>\r\nBcc: <c@d",
        "a@-b",
        ".a@b",
        "a..b@c",
        "ä@example.org",
        "a@[1.2.3.4]",
    ],
)
def test_what_is_no_address_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(UserError, match="is not a mail address"):
        parse([text])


def test_addresses_of_a_list() -> None:
    found = parse(['Jörg <j@x.org>, "B, C" <bc@x.org>', "J@X.org", "plain@x.org"])
    assert [(one.display_name, one.addr_spec) for one in found] == [
        ("Jörg", "j@x.org"),
        ("B, C", "bc@x.org"),
        ("", "plain@x.org"),
    ]
    # In a letter to many people "J\ufffdrn" is worse than an address alone.
    assert list(map(str, parse(["J\ufffdrn Example <j@x.org>"]))) == ["j@x.org"]
