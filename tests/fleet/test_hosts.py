"""hosts.toml: what is read, what is refused and how, and what stays of it when a row is put in or taken out."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisector.core.errors import UserError
from bisector.fleet import edit_hosts, hosts
from bisector.fleet.hosts import Host, Role

FILE = """\
# Ours, in the basement.
coordinator = "tls://desk:8786"  # fixed

[hosts.bench2]  # the old one
ssd = "/dev/disk/by-id/nvme-b2"
ssh = "anna@bench2"   # before seven
hdd = "/dev/disk/by-id/sas-b2"

# Quiet since March.
[hosts.bench1]
ssh = "anna@bench1"
port = 2222
repository = "/srv/linux"
role = 'build'
bisector = "/opt/bisector/bin/bisector"

# Dials in by itself.
[hosts."node.7"]
"""
HOSTS = (
    Host("bench2", "anna@bench2", ssd="/dev/disk/by-id/nvme-b2", hdd="/dev/disk/by-id/sas-b2"),
    Host("bench1", "anna@bench1", 2222, "/srv/linux", role=Role.BUILD, bisector="/opt/bisector/bin/bisector"),
    Host("node.7"),
)
AT = "tls://desk:8786"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.toml"
    path.write_text(FILE)
    return path


def test_what_is_read(path: Path) -> None:
    found = hosts.load(path)
    assert (found.coordinator, found.hosts) == (AT, HOSTS)
    assert found.named("bench1") == HOSTS[1]
    assert not found.dashboard
    assert "bench1" in found
    assert "bench3" not in found
    with pytest.raises(UserError, match="there is no host bench3") as caught:
        found.named("bench3")
    assert caught.value.hint == "did you mean bench2? there are: bench2, bench1, node.7"


def test_the_port_of_a_dashboard(path: Path) -> None:
    path.write_text(f"dashboard = 8787\n{FILE}")
    assert hosts.load(path).dashboard == 8787


@pytest.mark.parametrize(
    ("line", "wrong", "words", "hint"),
    [
        (6, 'shh = "anna@bench2"', "bench2 has no key shh", "did you mean ssh? there are: ssh, port,"),
        (6, 'ssh = "-oProxyCommand=id"', "expected [USER@]HOST", "docs/fleet.md"),
        (6, 'ssh = "anna@bench2 id"', "expected [USER@]HOST", ""),
        (6, 'ssh = "anna@$(id)"', "expected [USER@]HOST", ""),
        (6, 'ssh = "anna@bench1\\nport"', "expected [USER@]HOST", ""),
        (6, "ssh = 22", "hosts.bench2.ssh = 22: expected [USER@]HOST", ""),
        (6, "port = 22", "bench2 has a port and no ssh", 'ssh = "USER@HOST"'),
        (5, 'ssd = "nvme0n1"', 'ssd = "nvme0n1": expected a path on that host', ""),
        (12, "port = true", "hosts.bench1.port = true: expected a port, 1 to 65535", ""),
        (12, "port = 65536", "expected a port", ""),
        (13, 'repository = "~/linux"', "expected the absolute path of a clone", ""),
        (14, 'role = "measures"', "expected one of measure, build", ""),
        (15, 'bisector = "bin/bisector"', "expected the absolute path of bisector", ""),
        (2, 'coordinator = "desk"', "expected an address such as tls://desk:8786", ""),
        (2, 'coordinator = "tls://desk:0"', "expected an address such as", ""),
        (2, 'cordinator = "tls://desk:1"', "there is no key cordinator", "did you mean coordinator?"),
        (1, "dashboard = 0", "dashboard = 0: expected a port, 1 to 65535", ""),
        (11, 'ssh = "anna@bench2"', "bench1 is the same machine as bench2", "leave one of them out"),
    ],
)
def test_what_is_refused_and_where(path: Path, line: int, wrong: str, words: str, hint: str) -> None:
    lines = FILE.splitlines()
    lines[line - 1] = wrong
    if words.endswith("as bench2"):
        lines[11] = ""
    path.write_text("\n".join(lines))
    with pytest.raises(UserError) as caught:
        hosts.load(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert words in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hosts = 1\n", "hosts has a table for each host"),
        ("[hosts]\nbench1 = 'anna@bench1'\n", "bench1 is no key of hosts"),
        ("[hosts.'a b']\n", "'a b' cannot be the name of a host"),
        ("[hosts.coordinator]\n", "no host can be called coordinator"),
        ("[hosts.bench1\n", "not valid TOML"),
    ],
)
def test_what_is_no_list_of_hosts(path: Path, text: str, words: str) -> None:
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        hosts.load(path)
    assert words in caught.value.message
    assert caught.value.message.startswith(str(path))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        hosts.load(tmp_path / "hosts.toml")


def test_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "hosts.toml"
    edit_hosts.put(path, HOSTS[1], AT)
    edit_hosts.put(path, Host("bench3", "bench3"), "tls://other:1")
    assert path.read_text().endswith(
        """is.
coordinator = "tls://desk:8786"

[hosts.bench1]
ssh = "anna@bench1"
port = 2222
repository = "/srv/linux"
role = "build"
bisector = "/opt/bisector/bin/bisector"

[hosts.bench3]
ssh = "bench3"
"""
    )
    assert hosts.load(path).hosts == (HOSTS[1], Host("bench3", "bench3"))


def test_what_a_person_wrote_stays(path: Path) -> None:
    path.chmod(0o600)
    edit_hosts.put(path, Host("bench3", "bench3", role=Role.BUILD), "tls://elsewhere:1")
    assert path.read_text() == FILE + '\n[hosts.bench3]\nssh = "bench3"\nrole = "build"\n'
    edit_hosts.put(path, Host("bench2", "anna@bench2", 22), AT)
    assert path.read_text().startswith(FILE[: FILE.index("hdd")])
    assert hosts.load(path).named("bench2") == Host(
        "bench2", "anna@bench2", 22, ssd="/dev/disk/by-id/nvme-b2", hdd="/dev/disk/by-id/sas-b2"
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_row_that_is_there_changes_nothing(path: Path) -> None:
    edit_hosts.put(path, Host("bench2", "anna@bench2"), AT)
    assert path.read_text() == FILE


def test_taking_out_takes_no_comment_of_another(path: Path) -> None:
    edit_hosts.drop(path, "bench2")
    start, end = FILE.index("[hosts.bench2]"), FILE.index("\n# Quiet")
    assert path.read_text() == FILE[:start] + FILE[end:]
    edit_hosts.drop(path, "node.7")
    edit_hosts.drop(path, "nobody")
    edit_hosts.drop(path, "bench1")
    assert hosts.load(path).hosts == ()
    assert "# Quiet since March.\n" in path.read_text()
    assert "# Dials in by itself.\n" in path.read_text()


def test_what_is_not_a_table_of_its_own_is_left_to_the_person(path: Path) -> None:
    text = 'hosts = {bench1 = {ssh = "bench1"}}\n'
    path.write_text(text)
    with pytest.raises(UserError, match="is not written as a table of its own"):
        edit_hosts.drop(path, "bench1")
    text = '[hosts]\nbench1.ssh = "bench1"\nbench2.ssh = "bench2"\n'
    path.write_text(text)
    with pytest.raises(UserError, match="is not written as a table of its own"):
        edit_hosts.drop(path, "bench1")
    assert path.read_text() == text


def test_a_file_behind_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    edit_hosts.put(link, Host("bench3", "bench3"), AT)
    assert link.is_symlink()
    assert "[hosts.bench3]" in path.read_text()


@pytest.mark.parametrize(
    ("host", "command"),
    [
        (Host("bench1", "anna@Bench1.example"), "bisector fleet add anna@Bench1.example"),
        (Host("one", "bench1", 22), "bisector fleet add bench1 --port 22 --name one"),
        (Host("one", "anna@fe80::1"), "bisector fleet add anna@fe80::1 --name one"),
    ],
)
def test_what_is_typed_to_add_it_again(host: Host, command: str) -> None:
    assert hosts.add_command(host) == command


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9_.-]{0,8}[a-z0-9])?", fullmatch=True).filter(
    lambda name: name not in ("coordinator", "all")
)
PATHS = st.none() | st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=9).map("/".__add__)
ROWS = st.builds(
    Host,
    name=NAMES,
    ssh=st.from_regex(r"([a-z]{1,4}@)?[a-z0-9.-]{1,9}", fullmatch=True).filter(
        lambda one: "@-" not in one and "@." not in one and one[0] not in "-."
    ),
    port=st.none() | st.integers(1, 65535),
    repository=PATHS,
    ssd=PATHS,
    role=st.sampled_from(Role),
)


@settings(max_examples=30)
@given(st.lists(ROWS, min_size=1, max_size=4, unique_by=(lambda one: one.name, lambda one: one.ssh)))
def test_what_is_put_in_can_be_read_and_taken_out(tmp_path_factory: pytest.TempPathFactory, rows: list[Host]) -> None:
    path = tmp_path_factory.mktemp("hosts") / "hosts.toml"
    for row in rows:
        edit_hosts.put(path, row, AT)
    assert hosts.load(path).hosts == tuple(rows)
    for number, row in enumerate(rows):
        assert edit_hosts.drop(path, row.name).hosts == tuple(rows[number + 1 :])
