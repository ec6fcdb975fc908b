"""`bisector doctor`, and that `bisector start` refuses for exactly what it calls missing."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.config import options
from bisector.core.errors import Finding, Grade, InfraError
from bisector.doctor import checks
from bisector.doctor.checks import PROBES, CheckContext, NeededFor, Probe
from bisector.host.packages import install
from bisector.mail.smtp import server_finding
from bisector.vm import image, probes
from tests.docs.json_schema import valid
from tests.doctor.machine import Machine, no_gcc_header, ordinary_user_without_namespaces, other_architecture, without


def test_without_a_sandbox_on_purpose_a_start_is_warned_and_goes_on(machine: Machine) -> None:
    assert machine.rows("sandbox")[0].state is Grade.OK
    machine.without("bwrap")
    machine.setting("kernel.sandbox", "false")
    (row,) = machine.rows("sandbox")
    assert (row.state, "with network and home" in row.what) == (Grade.WARN, True)
    assert machine.refusal() is None


def clang(machine: Machine, major: int) -> None:
    """gcc under clang's name and numbers."""
    said = f"-D__clang__=1 -D__clang_major__={major} -D__clang_minor__=0 -D__clang_patchlevel__=6"
    path = machine.programs / f"clang-{major}"
    version = f'[ "$1" = --version ] && echo clang version {major}.0.6 && exit'
    path.write_text(f'#!/bin/sh\n{version}\nexec gcc {said} "$@"\n')
    path.chmod(0o755)


def test_every_compiler_has_a_row_of_its_own(machine: Machine) -> None:
    before = machine.rows("compiler")
    clang(machine, 14)
    clang(machine, 19)
    rows = machine.rows("compiler")
    assert [row.name for row in rows] == ["compiler", "compiler clang-19", "compiler clang-14"]
    assert rows[:1] == before
    machine.setting("kernel.compiler", "clang-14")
    assert [(row.name, row.what.partition(":")[0]) for row in machine.rows("compiler")] == [("compiler", "clang-14")]


def test_a_start_is_refused_with_everything_at_once(machine: Machine) -> None:
    machine.without("flex", "bc")
    machine.rows("build tools")
    refusal = machine.refusal()
    assert refusal is not None
    assert refusal.message == "cannot start; missing:\n  flex: not installed\n  bc: not installed"
    assert refusal.hint == install("flex", "bc").replace("bc flex", "flex bc")


@pytest.mark.parametrize(
    ("take_away", "words"),
    [(without("ccache"), "not installed"), (lambda machine: machine.program("ccache", "exit 1"), "does not compile")],
)
def test_ccache_is_a_warning(machine: Machine, take_away: Callable[[Machine], None], words: str) -> None:
    assert machine.rows("ccache")[0].state is Grade.OK
    take_away(machine)
    (row,) = machine.rows("ccache")
    assert (row.state, words in row.what) == (Grade.WARN, True)
    assert machine.refusal() is None


def test_a_configuration_that_will_not_do_hides_no_other_row(machine: Machine) -> None:
    other_architecture(machine)
    rows = machine.rows("build tools")
    assert {row.name for row in rows} >= {"make", "flex", "libelf headers"}
    assert {row.state for row in rows} == {Grade.OK}


def test_namespaces_are_not_needed_once_the_image_is_there(machine: Machine) -> None:
    ordinary_user_without_namespaces(machine)
    machine.patch.setattr(probes, "_built_image", lambda: image.GuestImage(Path(os.devnull), Path(), "", "key"))
    (row,) = machine.rows("user namespaces")
    assert (row.state, "not needed" in row.what) == (Grade.INFO, True)
    assert machine.rows("guest image")[0].state is Grade.OK
    assert machine.refusal() is None


def test_a_header_that_this_configuration_does_without_is_told(machine: Machine) -> None:
    no_gcc_header("opensslv.h")(machine)
    rows = {row.name: row for row in machine.rows("build tools")}
    assert (rows["OpenSSL headers"].state, rows["OpenSSL headers"].remedy) == (Grade.INFO, install("libssl-dev"))


def test_send_email_tells_the_server_and_nothing_else(machine: Machine) -> None:
    config = machine.run_dir.parent / "gitconfig"
    config.write_text("")
    machine.patch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert "not set" in machine.rows("git send-email")[0].what
    config.write_text("[sendemail]\nsmtpServer = mail.example.org\nsmtpPass = secret\n")
    (row,) = machine.rows("git send-email")
    assert (row.state, "mail.example.org" in row.what, "secret" in row.what) == (Grade.INFO, True, False)


@pytest.mark.parametrize(
    ("mail", "state", "words"),
    [
        ({}, Grade.INFO, "mail.host is not set"),
        ({"mail.host": "mail.example.org"}, Grade.OK, "mail.example.org:587, starttls, without a login"),
        ({"mail.host": "mail.example.org", "mail.security": "tls"}, Grade.OK, "mail.example.org:465, tls"),
        ({"mail.host": "mail.example.org", "mail.login_file": "closed"}, Grade.OK, "login as me"),
        ({"mail.host": "mail.example.org", "mail.login_file": "open"}, Grade.WARN, "others may read"),
    ],
)
def test_mail_is_read_from_the_settings(tmp_path: Path, mail: dict[str, str], state: Grade, words: str) -> None:
    for name, mode in (("closed", 0o600), ("open", 0o644)):
        (tmp_path / name).write_text("username=me\npassword=hunter2\n")
        (tmp_path / name).chmod(mode)
    row = server_finding(options.load(mail, directory=tmp_path).settings.mail)
    assert (row.state, words in row.what, "hunter2" in row.what) == (state, True, False)


@dataclass
class Broken:
    """A look that fails in a way that nobody thought of, or as a host's trouble."""

    error: Exception

    def __call__(self, asked: CheckContext) -> Iterator[Finding]:
        yield Finding("first", Grade.OK, "")
        raise self.error


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), InfraError("disk gone", "look at it")])
@pytest.mark.parametrize(("need", "state"), [(NeededFor.RUN, Grade.MISSING), (NeededFor.NOTHING, Grade.WARN)])
def test_a_broken_look_is_a_row_beside_the_others(
    machine: Machine, error: Exception, need: NeededFor, state: Grade
) -> None:
    healthy = Probe("healthy", NeededFor.RUN, lambda asked: Finding("healthy", Grade.OK, "well"))
    machine.patch.setattr(checks, "PROBES", (Probe("broken", need, Broken(error)), healthy))
    broken, well = checks.examine(machine.settings, machine.run_dir, lambda _: None)
    assert (broken.name, broken.state) == ("broken", state)
    assert str(error) in broken.what
    assert well.state is Grade.OK


def test_the_hosts_trouble_stays_the_hosts_when_a_run_starts(machine: Machine) -> None:
    machine.patch.setattr(checks, "PROBES", (Probe("broken", NeededFor.RUN, Broken(InfraError("disk gone"))),))
    with pytest.raises(InfraError, match="disk gone"):
        checks.check(machine.settings, machine.run_dir, lambda _: None)


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["doctor", *words])
    return code, capsys.readouterr().out


@pytest.mark.vm
def test_a_whole_machine(whole_machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """Also that libvirt finds QEMU."""
    code, said = doctor(capsys, "--json")
    told = valid("doctor", said)
    assert (code, told["schema"], told["ready"]) == (0, 1, True)
    assert [set(row) for row in told["findings"]] == [{"name", "state", "what", "remedy"}] * len(told["findings"])
    assert {row["state"] for row in told["findings"]} <= {"ok", "warn", "info"}
    names = [row["name"] for row in told["findings"]]
    assert len(names) == len(set(names))
    assert {probe.name for probe in PROBES} - {"build tools", "disks", "workload"} <= set(names)
    assert {"ssd disk", "hdd disk"} <= set(names)
    assert not whole_machine.run_dir.exists()


def test_settings_that_cannot_be_are_a_row(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bisector.toml").write_text("[storage]\ncash_size = '64MiB'\n")
    code, said = doctor(capsys, "--json")
    told = valid("doctor", said)
    first, *others = told["findings"]
    assert (code, told["ready"]) == (1, False)
    assert (first["name"], first["state"]) == ("settings", "missing")
    assert "storage.cash_size" in first["what"]
    assert "storage.cache_size" in first["remedy"]
    assert "missing" not in {row["state"] for row in others}
    assert len(others) > len(PROBES)


def test_resume_is_told_what_warns_and_stopped_by_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(asked: CheckContext) -> Finding:
        raise InfraError("wipefs does not answer")

    rows = [Finding("run directory", grade, str(grade)) for grade in (Grade.MISSING, Grade.WARN, Grade.INFO)]
    probes = (
        Probe("hdd disk", NeededFor.RUN, broken, warns=True),
        Probe("places", NeededFor.RUN, lambda asked: rows, warns=True),
        Probe("mail", NeededFor.NOTHING, lambda asked: rows[1]),
    )
    monkeypatch.setattr(checks, "PROBES", probes)
    told: list[Finding] = []
    checks.warn_again(options.load().settings, tmp_path, told.append)
    assert told == rows[1:2]


def test_resume_leaves_libvirt_to_the_run(machine: Machine) -> None:
    """The embedded driver keeps the first directory that is opened."""

    def opened(*_: object) -> None:
        pytest.fail("libvirt's driver was opened for a look")

    machine.patch.setattr("bisector.vm.driver.directory_of", opened)
    told: list[Finding] = []
    machine.setting("kernel.sandbox", "false")
    checks.warn_again(machine.settings, machine.run_dir, told.append)
    assert "sandbox" in [finding.name for finding in told]
