"""Commands that install packages, in the words of the distribution."""

import os

import pytest

from bisector.host.packages import install, merged


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def on(release: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with this os-release(5), or without one."""

    def found() -> dict[str, str]:
        if release is None:
            raise OSError
        return release

    monkeypatch.setattr("platform.freedesktop_os_release", found)


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ({"ID": "debian"}, "apt install flex libelf-dev"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt install flex libelf-dev"),
        ({"ID": "fedora"}, "dnf install flex /usr/include/libelf.h"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "dnf install flex /usr/include/libelf.h"),
        ({"ID": "opensuse-leap", "ID_LIKE": "suse opensuse"}, "zypper install flex libelf-devel"),
        ({"ID": "manjaro", "ID_LIKE": "arch"}, "pacman -S --needed flex libelf"),
        ({"ID": "unheard-of"}, "apt install flex libelf-dev"),
        ({}, "apt install flex libelf-dev"),
        (None, "apt install flex libelf-dev"),
    ],
)
def test_the_command_of_each_family(
    release: dict[str, str] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(release, monkeypatch)
    assert install("libelf-dev", "flex", "flex") == command


def test_an_ordinary_user_needs_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    on({}, monkeypatch)
    assert install("git") == "sudo apt install git"
    assert merged([install("git")] * 2) == ("sudo apt install git",)


def test_installations_are_merged_into_the_first() -> None:
    commands = ["apt install bc", "bisector image build", "apt install git bc", "bisector image build", "dnf install x"]
    assert merged(commands) == ("apt install bc git", "bisector image build", "dnf install x")
