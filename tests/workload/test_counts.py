"""What is read of a guest's kernel around a run: interrupts of devices, kernel time and instructions of an I/O."""

import pytest

from bisector.workload.base import Clocks, Counts, between

TIMERS = """\
@count now at {now} nsecs
@count   .idle_sleeptime : {idle} nsecs
@count   .iowait_sleeptime: {iowait} nsecs
"""
READING = """\
@count   0:         31   IO-APIC   2-edge      timer
@count   4:         {serial}   IO-APIC   4-edge      ttyS0
@count   9:          0   IO-APIC   9-fasteoi   acpi
@count NMI:          {nmi}   Non-maskable interrupts
@count cpu  100 5 {system} 1000 20 7 {softirq} 0 0 0
"""


def counts(text: str) -> Counts:
    return Counts.of(text.splitlines())


def reading(**changes: int) -> Counts:
    usual = {"serial": 12, "nmi": 0, "system": 200, "softirq": 3, "now": 10**10, "idle": 0, "iowait": 0}
    return counts((READING + TIMERS).format(**usual | changes))


def test_an_io_has_kernel_time_and_instructions_and_a_guest_interrupts_of_its_devices() -> None:
    after = reading(serial=13, nmi=2, system=290, softirq=13, now=10**10 + 5 * 10**9, idle=10**9, iowait=2 * 10**9)
    assert dict(between(reading(), after, 1000, 8)) == {
        "interrupts": 3.0,
        "io.kernel": 1_000_000.0,
        "io.instructions": 250_000.0,
    }


def test_by_the_hosts_clock_no_instruction_is_counted_and_without_io_none_has_any() -> None:
    assert [name for name, _ in between(reading(), reading(), 1000, 0)] == ["interrupts", "io.kernel"]
    assert [name for name, _ in between(reading(), reading(), 0, 8)] == ["interrupts"]


def test_interrupts_of_each_cpu_count_and_the_idle_time_of_several_is_not_exact() -> None:
    two = "@count  24:  100  11   PCI-MSI 65537-edge   virtio0-req.0\n@count  0:  1  2   IO-APIC   2-edge   timer\n"
    idle = TIMERS.format(now=9, idle=1, iowait=1)
    found = counts(two + idle + idle.partition("\n")[2])
    assert (found.interrupts, found.busy_ns) == (111, None)


@pytest.mark.parametrize("said", ["", "@count now at x nsecs\n@count cpu  1 2\n@count  4: \n", "@count " + "9" * 5000])
def test_what_is_not_told_is_no_figure(said: str) -> None:
    assert not list(between(counts(said), reading(), 1000, 8))
    assert not list(between(reading(), counts(said), 1000, 8))


def test_a_reading_ends_with_the_clock() -> None:
    clocks = Clocks()
    first, second = "@count   4:  1   ttyS0", "@count   4:  5   ttyS0"
    heard = [clocks.hear(line) for line in (first, "@uptime 10.00", "fio said", second, "@uptime 12.00", first)]
    assert heard == [True, True, False, True, True, True]
    assert [Counts.of(lines).interrupts for lines in clocks.counts] == [1, 5]
