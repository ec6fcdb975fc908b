"""The queues of disks: what is written to the kernel's files, what is read from them, and what a kernel does not take.

By a real shell, on files in place of /sys/class/block.
"""

from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.core.figures import DiskQueue
from bisector.core.shell import run_steps
from bisector.storage.disks import Bus, GuestDisk, path_of, queue, queue_check, queue_steps
from bisector.storage.layer import Files
from bisector.storage.stack import lay_out, stack_of
from tests.guest_answers import STORAGE
from tests.guestshell import Answer, FakeShell
from tests.localshell import LocalShell

FILES = {"scheduler": "[mq-deadline] kyber none", "wbt_lat_usec": "75000", "nr_requests": "256", "read_ahead_kb": "128"}
PRINTED = "".join(f"{name}={text}\n" for name, text in FILES.items())


@pytest.fixture
def shell(tmp_path: Path) -> LocalShell:
    """A guest whose kernel calls the disk sdq."""
    (tmp_path / "sys/sdq/queue").mkdir(parents=True)
    for name, text in FILES.items():
        (tmp_path / "sys/sdq/queue" / name).write_text(f"{text}\n")
    (tmp_path / "sdq").touch()
    (tmp_path / "link").symlink_to("sdq")
    moved = {path_of("hdd", bus): str(tmp_path / "link") for bus in Bus}
    return LocalShell({"/sys/class/block": str(tmp_path / "sys"), **moved})


@pytest.mark.parametrize("bus", Bus)
def test_what_is_asked_for_is_written_the_scheduler_first(shell: LocalShell, tmp_path: Path, bus: Bus) -> None:
    asked = GuestDisk(bus, "kyber", 4096, 64, 0)
    steps = tuple(queue_steps("hdd", asked))
    assert [step.command.partition("echo ")[2].split(" ||")[0] for step in steps] == [
        "kyber >scheduler", "0 >wbt_lat_usec", "64 >nr_requests", "4096 >read_ahead_kb",
    ]  # fmt: skip
    *_, printed = run_steps(shell, (*steps, queue_check("hdd", asked)), 10)
    assert queue("hdd", asked, printed) == DiskQueue("hdd", bus, "kyber", 4096, 64, 0)


def test_what_nobody_asked_for_is_a_fact_too(shell: LocalShell, tmp_path: Path) -> None:
    (tmp_path / "sys/sdq/queue/wbt_lat_usec").unlink()
    (printed,) = run_steps(shell, [queue_check("hdd", GuestDisk())], 10)
    found = queue("hdd", GuestDisk(), printed)
    assert found == DiskQueue("hdd", "virtio", "mq-deadline", 128, 256, None)
    assert found.text == "virtio, scheduler mq-deadline, read_ahead_kb 128, nr_requests 256"


@pytest.mark.parametrize(
    ("text", "scheduler"),
    [("none", "none"), ("[none]", "none"), ("noop deadline [cfq] ", "cfq"), ("", ""), ("\x1b[31m x", ""), ("a b", "")],
)
def test_schedulers_as_kernels_print_them(text: str, scheduler: str) -> None:
    """Before v4.11 blk-mq printed the word alone, and other queues had other schedulers before v5.0."""
    assert queue("hdd", GuestDisk(), f"scheduler={text}\n").scheduler == scheduler


@pytest.mark.parametrize(
    ("asked", "printed", "why"),
    [
        (GuestDisk(scheduler="bfq"), PRINTED, r"hdd\.scheduler = bfq: the kernel took it, and has mq-deadline now"),
        (GuestDisk(nr_requests=7), PRINTED, r"hdd\.nr_requests = 7: the kernel took it, and has 256 now"),
        (GuestDisk(wbt_lat_usec=0), "", r"hdd\.wbt_lat_usec = 0: the kernel took it, and has nothing now"),
        (GuestDisk(scheduler="deadline"), PRINTED, None),
        (GuestDisk(wbt_lat_usec=75000), PRINTED, None),
    ],
)
def test_what_was_written_is_read_back(asked: GuestDisk, printed: str, why: str | None) -> None:
    if why is None:
        assert queue("hdd", asked, printed).read_ahead_kb == 128
        return
    with pytest.raises(UserError, match=why):
        queue("hdd", asked, printed)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer("[mq-deadline] none\n", "sh: echo: I/O error", 1), "the kernel has [mq-deadline] none"),
        (Answer("", "sh: cannot create scheduler: Permission denied", 1), "the kernel has no such file"),
    ],
)
def test_a_kernel_that_does_not_take_a_scheduler(answer: Answer, why: str) -> None:
    """For an end that is what a person reads; whether it is the fault of another commit, an end tells."""
    guest = FakeShell({"echo bfq": answer, "stat -L": Answer("8:10\n"), **STORAGE})
    disk = {"hdd": GuestDisk(Bus.SCSI, "bfq")}
    with pytest.raises(UserError) as caught:
        lay_out(guest, stack_of("hdd+raw"), {}, Files(0, ""), 60, guest_disks=disk)
    assert caught.value.message == f"storage.hdd.scheduler = bfq: {why}"
