"""Findings on recorded consoles of real guests (tests/data/console: Linux 6.1 under emulation)."""

from pathlib import Path

import pytest

from bisector.core.trial import FaultKind, Stage
from bisector.vm.console import Console, ConsoleFinding, judge

DATA = Path(__file__).parent.parent / "data" / "console"


def console_of(name: str) -> Console:
    console = Console()
    console.feed((DATA / f"{name}.log").read_bytes().decode("latin-1"))
    return console


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("panic-no-root", FaultKind.PANIC, "Kernel panic - not syncing: VFS: Unable to mount root fs"),
        ("panic-no-init", FaultKind.PANIC, "Kernel panic - not syncing: Requested init /none failed"),
        ("panic-init-killed", FaultKind.PANIC, "Kernel panic - not syncing: Attempted to kill init!"),
        ("oops-then-panic", FaultKind.OOPS, "BUG: kernel NULL pointer dereference, address: 0000000000000010"),
        ("oops-kernel-goes-on", FaultKind.OOPS, "BUG: kernel NULL pointer dereference"),
        ("soft-lockup", FaultKind.HANG, "rcu: INFO: rcu_sched self-detected stall on CPU"),
        ("hung-task", FaultKind.HANG, "INFO: task bisector-init:34 blocked for more than 10 seconds."),
    ],
)
def test_faults_of_real_kernels(name: str, kind: FaultKind, reason: str) -> None:
    fault = console_of(name).fault(Stage.WORKLOAD)
    assert fault is not None
    assert (fault.stage, fault.kind) == (Stage.WORKLOAD, kind)
    assert fault.reason.startswith(reason)
    assert any(reason in line for line in fault.tail) or kind is FaultKind.HANG


@pytest.mark.parametrize("name", ["boot-ready-poweroff", "firmware-noise", "user-faults", "reboot"])
def test_good_boots_have_no_fault(name: str) -> None:
    console = console_of(name)
    assert console.banner
    assert console.ready
    assert console.fault(Stage.BOOT) is None


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_pieces_say_the_same_as_the_whole(size: int) -> None:
    text = (DATA / "oops-then-panic.log").read_bytes().decode("latin-1")
    whole, pieces = Console(), Console()
    whole.feed(text)
    for start in range(0, len(text), size):
        pieces.feed(text[start : start + size])
    assert (pieces.banner, pieces.ready) == (True, True)
    assert str(pieces.fault(Stage.BOOT)) == str(whole.fault(Stage.BOOT)) != "None"
    assert pieces.tail(1000) == whole.tail(1000)


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("[    5.7] bisector-guest: ready", ConsoleFinding.READY),
        ("[    5.7][    T1] bisector-guest: ready", ConsoleFinding.READY),
        ("PANIC: early exception 0x0e IP 10:ffffffff81 error 0 cr2 0x0", ConsoleFinding.PANIC),
        (" -- System halted", ConsoleFinding.PANIC),
        ("fio: 3 joKernel panic - not syncing: Fatal exception in interrupt", ConsoleFinding.PANIC),
        ("[ 9.1] general protection fault: 0000 [#1] SMP PTI", ConsoleFinding.OOPS),
        (
            "[ 9.1] general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP",
            ConsoleFinding.OOPS,
        ),
        (
            "[ 9.1] Oops: general protection fault, kernel NULL pointer dereference 0x0: 0000 [#1] SMP",
            ConsoleFinding.OOPS,
        ),
        ("[ 9.1] kernel BUG at drivers/md/dm-cache-target.c:1214!", ConsoleFinding.OOPS),
        ("[ 9.1] BUG: unable to handle kernel NULL pointer dereference at 0000000000000008", ConsoleFinding.OOPS),
        ("[ 9.1] NMI watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [fio:77]", ConsoleFinding.STALL),
        ("[ 9.1] BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 33s!", ConsoleFinding.STALL),
        ("[ 9.1] INFO: rcu_sched detected stalls on CPUs/tasks:", ConsoleFinding.STALL),
        ("[ 9.1] NMI watchdog: Watchdog detected hard LOCKUP on cpu 1", ConsoleFinding.STALL),
        ("[ 9.1] watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3", ConsoleFinding.STALL),
        ("[ 9.1] Kernel panic - not syncing: softlockup: hung tasks", ConsoleFinding.STALL),
        ("[ 9.1] WARNING: CPU: 0 PID: 1 at fs/ext4/inode.c:123 ext4_foo+0x1/0x2", None),
        ("[ 9.1] BUG: sleeping function called from invalid context at mm/slab.h:1", None),
        ("[ 9.1] reboot: Power down", ConsoleFinding.SHUTDOWN),
        ("[ 9.1] traps: fio[12] general protection fault ip:401 sp:7f error:0 in fio[401000+7a000]", None),
        ("[ 9.1] traps: fio[12] general protection ip:401 sp:7f error:0 in fio[401000+7a000]", None),
        ("[ 9.1] Command line: root=/dev/vda oops=panic panic=-1", None),
        ("", None),
    ],
)
def test_lines(line: str, finding: ConsoleFinding | None) -> None:
    assert judge(line)[0] == finding


def test_one_stall_is_a_suspicion_and_two_are_a_hang() -> None:
    line = "[   26.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [fio:77]\n"
    console = Console()
    console.feed(line)
    assert console.fault(Stage.WORKLOAD) is None
    silent = console.fault_when_silent(Stage.WORKLOAD, 60.0)
    assert (silent.kind, "soft lockup" in silent.reason) == (FaultKind.HANG, True)
    console.feed(line)
    fault = console.fault(Stage.WORKLOAD)
    assert fault is not None
    assert fault.kind is FaultKind.HANG


@pytest.mark.parametrize("reason", ["softlockup: hung tasks", "hung_task: blocked tasks", "RCU Stall"])
def test_a_panic_over_a_stall_is_a_hang_at_once(reason: str) -> None:
    console = Console()
    console.feed(f"[ 1.0] Kernel panic - not syncing: {reason}\n")
    fault = console.fault(Stage.BOOT)
    assert fault is not None
    assert fault.kind is FaultKind.HANG


@pytest.mark.parametrize(
    ("name", "is_gone", "kind", "words"),
    [
        ("panic-no-root", True, FaultKind.PANIC, "Unable to mount root"),
        ("reboot", True, FaultKind.EXITED, "shut down: reboot: Restarting system"),
        ("stops-while-booting", True, FaultKind.EXITED, "without a word"),
        ("stops-while-booting", False, FaultKind.NO_SSH, "user space was not ready within 30 s"),
        ("boot-ready-poweroff", False, FaultKind.HANG, "the guest was ready, then nothing for 30 s"),
        ("soft-lockup", False, FaultKind.HANG, "stall"),
    ],
)
def test_why_a_guest_is_gone_or_silent(name: str, is_gone: bool, kind: FaultKind, words: str) -> None:
    console = console_of(name)
    fault = console.fault_when_gone(Stage.BOOT) if is_gone else console.fault_when_silent(Stage.BOOT, 30.0)
    assert (fault.kind, words in fault.reason) == (kind, True)


def test_tail_has_no_noise_and_no_control_characters() -> None:
    text = (DATA / "firmware-noise.log").read_bytes().decode("latin-1")
    assert "iPXE" in text
    assert "\x1b" in text
    console = Console()
    console.feed("\n".join(text.split("\n")[:40]))
    everything = "\n".join(console.tail(1000))
    assert everything.startswith("Decompressing Linux...")
    assert "\x1b" not in everything
    assert "\r" not in everything
