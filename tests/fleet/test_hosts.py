"""``hosts.toml``, and what is refused of it."""

from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.fleet import hosts
from bisector.fleet.hosts import Host, HostRole


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "hosts.toml").write_text(text)
    return tmp_path / "hosts.toml"


def test_all_that_the_file_says(tmp_path: Path) -> None:
    found = hosts.load(
        written(
            tmp_path,
            'address = "desk.example:8786"\n[hosts.bench1]\nssh = "anna@bench1"\nport = 2222\n'
            'repository = "/srv/linux"\n'
            'ssd = "/dev/ssd"\nhdd = "/dev/hdd"\nbisector = "/opt/bisector"\n[hosts.b2]\nssh = "b2"\nrole = "build"\n',
        )
    )
    first, second = found.hosts
    assert (found.address, found.cluster, found.builders) == ("desk.example:8786", "", frozenset({"b2"}))
    assert (first.login, first.disks) == ("-p 2222 anna@bench1", {"ssd": "/dev/ssd", "hdd": "/dev/hdd"})
    assert (first.repository, first.bisector) == ("/srv/linux", "/opt/bisector")
    assert second == Host(name="b2", ssh="b2", role=HostRole.BUILD)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "lists no host"),
        ("[hosts.b]\n", r"hosts\.b: Object missing required field `ssh`"),
        ('[hosts.b]\nssh = "-oProxyCommand=x"\n', r"hosts\.b: .*ssh"),
        ('[hosts.b]\nssh = "a b"\n', r"hosts\.b: .*ssh"),
        ('[hosts.b]\nssh = "b"\nport = 0\n', r"hosts\.b: .*port"),
        ('[hosts.b]\nssh = "b"\nssd = "sda"\n', r"hosts\.b: .*ssd"),
        ('[hosts.b]\nssh = "b"\nbisector = "x/y"\n', r"hosts\.b: .*bisector"),
        ('[hosts.b]\nssh = "b"\nrole = "both"\n', r"hosts\.b: .*role"),
        ('[hosts.b]\nssh = "b"\nspeed = 1\n', r"hosts\.b: .*speed"),
        ('[hosts.b]\nssh = "b"\nname = "c"\n', r"hosts\.b has no key name"),
        ('[hosts.B]\nssh = "b"\n', "'B' cannot be the name of a host"),
        ('coordinator = "tls://desk:1"\n', "coordinator"),
        ('address = "tls://desk:1"\n[hosts.b]\nssh = "b"\n', "address"),
        ('[hosts.a]\nssh = "b"\n[hosts.b]\nssh = "b"\n', "b is the same machine as a"),
    ],
)
def test_what_is_not_as_it_has_to_be_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as caught:
        hosts.load(written(tmp_path, text))
    assert str(tmp_path / "hosts.toml") in caught.value.message


def test_the_address_of_a_cluster_is_one_also_as_a_path() -> None:
    for given in ("tls://desk:8786", Path("tls://desk:8786")):
        assert hosts.load(given).cluster == "tls://desk:8786"


def test_a_cluster_that_anybody_may_tell_what_to_run_is_refused() -> None:
    with pytest.raises(UserError, match="anybody could run programs there"):
        hosts.load("tcp://127.0.0.1:8786")
