"""Somebody who is not root: an image and a trial without a daemon, and a trial by a daemon that is root's.

As on a machine where root installed the packages: the tool, the demonstration's history and its kernels are
copied to a new user's home, which nobody else may enter.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.core.subject import Kernel
from bisector.vm.definition import domain_prefix
from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, TRIAL_DEADLINE_S, Tool, furnish, guests_of
from tests.libvirtd import libvirtd
from tests.loopdevice import command

pytestmark = pytest.mark.vm

# Of the tool's own environment, what only tests and linters need.
_NOT_NEEDED = shutil.ignore_patterns("mypy", "mypyc", "ruff", "hypothesis", "pip", "_pytest", "__pycache__")


@dataclass
class Person(Tool):
    """The command line of an ordinary user."""

    name: str = ""
    home: Path = Path()

    def __call__(self, *words: str | Path, deadline_s: float = TRIAL_DEADLINE_S) -> "subprocess.CompletedProcess[str]":
        return self.run("/usr/bin/env", "python3", "-m", "bisector", *words, deadline_s=deadline_s)

    def run(self, *words: str | Path, deadline_s: float = 60.0) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            list(map(str, words)),
            user=self.name,
            group=self.name,
            extra_groups=(),
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"
        proxies = {
            name: value for name, value in os.environ.items() if name in ("http_proxy", "https_proxy", "no_proxy")
        }
        where = {"HOME": str(self.home), "PATH": path, "PYTHONPATH": f"{self.home}/tool:{self.home}/packages"}
        return {**where, **proxies}


@pytest.fixture(scope="module")
def person(demo: History, kernel: Kernel) -> Iterator[Person]:
    if os.getuid() != 0:
        pytest.skip("a user is made by root")
    name = f"bisector-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="bisector-home-") as directory:
        Path(directory).chmod(0o755)
        home = Path(directory) / "home"
        command("useradd", "--create-home", "--home-dir", home, "--key", "HOME_MODE=0700", name)
        try:
            _furnish(home, Path(demo.repo))
            command("chown", "--recursive", f"{name}:", home)
            yield Person(home / "linux", home / ".local/state", home / "settings", name=name, home=home)
        finally:
            command("userdel", name)


def _furnish(home: Path, repo: Path) -> None:
    for source in (resources.PACKAGE, resources.kconfigs(), resources.jobs(), resources.vm_images()):
        shutil.copytree(source, home / "tool" / source.name.lstrip("_"), ignore=_NOT_NEEDED)
    shutil.copytree(sysconfig.get_path("platlib"), home / "packages", ignore=_NOT_NEEDED)
    command("cp", "--archive", repo, home / "linux")
    (home / "settings").mkdir()
    furnish(home / "settings")
    kernels = home / ".cache/bisector/kernels"
    kernels.parent.mkdir(parents=True)
    shutil.copytree(resources.cache_home() / "kernels", kernels)


@pytest.fixture(scope="module")
def image(person: Person) -> None:
    """The guest image, made by this user for itself."""
    asked = person.run("unshare", "--map-auto", "--map-root-user", "true")
    if asked.returncode != 0:
        pytest.skip(f"no user namespaces for ordinary users here: {asked.stderr.strip()}")
    built = person("image", "build")
    assert built.returncode == 0, built.stdout + built.stderr
    assert Path(built.stdout.split()[-1]).is_file()


def test_trial_without_a_daemon(person: Person, demo: History, image: None) -> None:
    trial = person.trial(demo.new, *SHORT)
    assert trial["build_s"] < trial["total_s"] / 2, "the kernel was to be one of those that are kept"
    assert not guests_of(domain_prefix(Path(trial["run_dir"])))
    assert not list(Path("/tmp").glob(f"bisector-{person.home.stat().st_uid}-*"))


@pytest.mark.rare
def test_trial_by_a_daemon(person: Person, demo: History, image: None) -> None:
    """Its QEMU would be another user, to whom this home is closed; and kernels and image stay this user's."""
    with libvirtd() as uri:
        for clock in ("host", "instructions"):
            trial = person.trial(demo.new, "--connect", uri, "--accelerator", "tcg", "--clock", clock, *SHORT)
            assert not guests_of(domain_prefix(Path(trial["run_dir"])))
            for kept in ("kernels", "images"):
                owners = {path.owner() for path in (person.home / ".cache/bisector" / kept).rglob("*")}
                assert owners == {person.name}
