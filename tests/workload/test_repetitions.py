"""Commands that are repeated and timed: the script runs here for real, but for the caches that it drops."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import UserError
from bisector.core.shell import CommandResult
from bisector.core.trial import KernelFault
from bisector.host.process import run_here
from bisector.workload import repetitions
from bisector.workload.base import RunSite
from bisector.workload.repetitions import (
    CARRIED,
    MOST_BYTES,
    OUTPUTS,
    GuestState,
    Repeated,
    Repetition,
)
from tests.localshell import LocalShell
from tests.workload.fio_bench import QUIET, STACK

MNT = "/mnt"


@dataclass
class Place:
    """A stack and a guest's own disk in directories of the test."""

    path: Path

    def __post_init__(self) -> None:
        (self.path / "mnt").mkdir()
        moved = {CARRIED: "carried", OUTPUTS: "own", "/proc/sys/vm/drop_caches": "dropped"}
        here = {guest: f"{self.path}/{name}" for guest, name in moved.items()}
        self.shell = LocalShell({**here, "sync && ": ""})  # the other disks of this host are no concern of a test's
        logs, meter = self.path / "logs", lambda: lambda: QUIET
        self.site = RunSite(self.shell, STACK, "full", logs, False, meter, lambda sample: None, 60.0, run_here)

    def prepared(self) -> Deadline:
        deadline = Deadline("the end of the test", 60.0)
        repetitions.prepare(self.site, deadline)
        return deadline

    def repeat(self, command: str, runs: int = 2, state: GuestState = GuestState.KEPT) -> tuple[Repetition, ...]:
        deadline = self.prepared()
        what = Repeated("the command", command, f"{self.path}/mnt", runs, state, {"DIRECTORY": f"{self.path}/mnt"})
        self.ran, done = repetitions.repeat(self.site, what, deadline)
        return done


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_each_repetition_has_its_times_and_its_output(place: Place) -> None:
    done = place.repeat('echo "in $PWD"; echo x >>file; wc -l <file; sleep 0.2; echo aside >&2', runs=3)
    assert [one.output for one in done] == [f"in {place.path}/mnt\n{n}\n" for n in (1, 2, 3)]
    assert all(0.2 <= one.elapsed_s < 2.0 for one in done)
    assert all(one.user_s + one.system_s < one.elapsed_s for one in done)
    assert (place.path / "logs" / "output.2.txt").read_text() == done[1].output
    assert (place.path / "logs" / "errors.2.txt").read_text() == "aside\n"
    run = place.ran.run(values=[("elapsed", 1.0)])
    assert [one for one in run.counters if one[0] != "interrupts"] == [("cache.promotions", 2.0), ("elapsed", 1.0)]
    assert (run.jobs, run.name) == ((), "full")


def test_cpu_time_is_that_of_the_command_and_its_children(place: Place) -> None:
    (one,) = place.repeat("sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'", runs=1)
    assert one.user_s > 0.05
    assert 100 * (one.user_s + one.system_s) / one.elapsed_s == pytest.approx(one.values["cpu"])


def test_caches_are_dropped_before_each(place: Place) -> None:
    done = place.repeat(f"cat {place.path}/dropped; echo taken >{place.path}/dropped", runs=3, state=GuestState.DROPPED)
    assert [one.output for one in done] == ["3\n"] * 3


def test_filled_cache_is_one_repetition_more_that_does_not_count(place: Place) -> None:
    done = place.repeat("echo x >>file; wc -l <file", runs=2, state=GuestState.FILLED)
    assert [one.output for one in done] == ["2\n", "3\n"]


def test_the_command_has_no_input_and_no_descriptors_of_ours(place: Place) -> None:
    (one,) = place.repeat("cat; ls /proc/self/fd", runs=1)
    assert one.output.split() == ["0", "1", "2", "3"]  # the last is that of ls


def test_a_carried_program_is_the_commands_alone(place: Place) -> None:
    """Not that of the script, which counts what the command prints with programs of the same names."""
    deadline = place.prepared()
    for name in ("head", "stat", "sh"):
        carried = place.path / "carried" / name
        carried.write_text("#!/bin/bash\necho carried\n", encoding="utf-8")
        carried.chmod(0o755)
    what = Repeated("the command", "head -c 1 /dev/zero", f"{place.path}/mnt", 2, GuestState.KEPT)
    _, done = repetitions.repeat(place.site, what, deadline)
    assert [one.output for one in done] == ["carried\n"] * 2


def test_run_has_the_medians_and_each_repetition_is_kept(place: Place) -> None:
    place.repeat("true", runs=1)
    done, ran = tuple(Repetition(s, 1.0, 0.5, f"{n}") for n, s in enumerate((2.0, 9.0, 4.0), 1)), place.ran
    found = dict(repetitions.figures(ran, done, lambda one: {"custom:n:1/s:higher": float(one.output)}, "it"))
    assert found.pop("prepared") == ran.prepared_s > 0
    assert found == {"elapsed": 4.0, "user": 1.0, "system": 0.5, "cpu": 37.5, "custom:n:1/s:higher": 2.0}
    kept = json.loads((place.site.logs / "repetitions.json").read_text())
    assert [one["elapsed"] for one in kept] == [2.0, 9.0, 4.0]
    assert (kept[1]["n"], kept[1]["custom:n:1/s:higher"]) == (2, 2.0)
    assert kept[1]["cpu"] == pytest.approx(100 * 1.5 / 9)


@pytest.mark.parametrize(
    ("command", "expected", "message"),
    [
        ("echo well; echo 'I/O error' >&2; exit 3", KernelFault, r"^the command: exit 3: I/O error$"),
        ("echo only this; exit 4", KernelFault, r"^the command: exit 4: only this$"),
        ("no-such-program", UserError, r"the guest cannot run it: the command: exit 127: .*no-such-program"),
        ("/etc/passwd", UserError, r"cannot run it: the command: exit 126: .*Permission denied"),
        ("[ -e once ] && exit 127; touch once", KernelFault, r"^the command: exit 127 in repetition 2$"),
        ("kill -9 $$", KernelFault, r"^the command: exit 137$"),
        ("yes >&2; exit 0", UserError, r"it wrote more than 1 MiB on standard error"),
        ("[ -e once ] && yes; touch once", KernelFault, r"repetition 2, unlike those before: it wrote more than 1 MiB"),
    ],
)
def test_commands_that_end_badly(place: Place, command: str, expected: type[Exception], message: str) -> None:
    with pytest.raises(expected, match=message):
        place.repeat(command)


def test_endless_output_is_not_fetched_beyond_its_bound(place: Place) -> None:
    with pytest.raises(UserError, match="it wrote more than 1 MiB on standard output"):
        place.repeat("yes")
    assert (place.path / "logs" / "output.1.txt").stat().st_size == MOST_BYTES + 1


def test_state_that_is_not_reached_is_the_kernels_fault(place: Place) -> None:
    (place.path / "dropped").mkdir()
    with pytest.raises(KernelFault, match="only 0 of 2 repetitions ended: exit 70"):
        place.repeat("true", state=GuestState.DROPPED)


@dataclass
class Telling:
    """A guest whose script tells something of its own."""

    inner: LocalShell
    told: Callable[[str], str]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        lines: list[str] = []
        done = self.inner.stream(command, lines.append, deadline_s)
        for line in self.told("\n".join(lines)).splitlines():
            on_line(line)
        return done


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (lambda text: text.replace("@exit 2", "@gone 2"), "only 1 of 2 repetitions ended"),
        (lambda text: text.replace("@exit 2", "@exit 1"), "repetition 1 was told of after 1"),
        (lambda text: text.replace("@exit 2", "@exit 1 0 0 0\n@exit 2"), "repetition 1 was told of after 1"),
        (lambda text: text.replace("@time", "@lime"), "the guest told 0 times of 2 repetitions"),
        (lambda text: text + "\n@time 1.000 1.000 1.000" * 5, "the guest told 7 times of 2 repetitions"),
        (lambda text: text + "\n@exit 3 0 0 0" * 5000, "repetition 3 was told of after 2"),
    ],
)
def test_guest_that_tells_nonsense(place: Place, told: Callable[[str], str], message: str) -> None:
    place.site = replace(place.site, shell=Telling(place.shell, told))  # type: ignore[arg-type] # by its __getattr__
    with pytest.raises(KernelFault, match=message):
        place.repeat("true")


def test_locale_with_a_decimal_comma(place: Place) -> None:
    def told(text: str) -> str:
        return re.sub(r"^@time .*$", lambda line: line[0].replace(".", ","), text, flags=re.MULTILINE)

    place.site = replace(place.site, shell=Telling(place.shell, told))  # type: ignore[arg-type] # by its __getattr__
    assert all(0.02 <= one.elapsed_s < 20 for one in place.repeat("sleep 0.02"))


def test_guest_without_bash(place: Place) -> None:
    place.shell.moved["command -v bash"] = "false"
    with pytest.raises(UserError, match="the guest image lacks bash"):
        place.repeat("true")


def test_files_are_carried_where_there_is_room(place: Place, tmp_path: Path) -> None:
    deadline = place.prepared()
    tool = tmp_path / "tool"
    tool.write_text("echo brought", encoding="utf-8")
    repetitions.carry(place.site, {"tool": tool}, deadline)
    assert (tmp_path / "carried" / "tool").read_text() == "echo brought"
    place.shell.moved["stat -f -c '%a %S'"] = "echo 0 4096; :"
    with pytest.raises(UserError, match="have 0 MiB, and its own disk has room for 0 MiB"):
        repetitions.carry(place.site, {"tool": tool}, deadline)
    place.shell.moved["stat -f -c '%a %S'"] = "echo nonsense; :"
    with pytest.raises(KernelFault, match="stat -f printed 'nonsense'"):
        repetitions.carry(place.site, {"tool": tool}, deadline)


def runs(pid: str) -> bool:
    """Whether a process is there, and no zombie that nobody waits for (proc_pid_stat(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_command_leaves_running_is_killed_and_told(place: Place) -> None:
    start = time.monotonic()
    # Each is a shell, and then setsid(1), before it is what it is told by.
    asleep = "until grep -qx sleep /proc/$!/comm; do :; done"
    command = (
        f"sleep 600 & {asleep}; {{ exec setsid sleep 601; }} >/dev/null 2>&1 & {asleep}; echo $! >>pids; echo done"
    )
    done = place.repeat(command, runs=2)
    assert time.monotonic() - start < 20
    assert [one.output for one in done] == ["done\n", "done\n"]
    assert all(one.elapsed_s < 5 for one in done)
    assert not any(map(runs, (place.path / "mnt/pids").read_text().split()))
    left = (place.path / "logs" / repetitions.LEFT).read_text()
    assert left == "repetition 1: sleep sleep\nrepetition 2: sleep sleep\n"


def test_what_a_setup_leaves_running_goes_on(place: Place) -> None:
    deadline = place.prepared()
    server = "sleep 5 >/dev/null 2>&1 & echo $! >pid"
    setup = Repeated("the setup", server, f"{place.path}/mnt", 1, GuestState.KEPT, prepares=True)
    repetitions.repeat(place.site, setup, deadline)
    (one,) = place.repeat("cat /proc/$(cat pid)/comm", runs=1)
    assert one.output == "sleep\n"
    assert not (place.path / "logs" / repetitions.LEFT).exists()
