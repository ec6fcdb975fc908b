"""What a guest's kernel counts while a command runs: interrupts of its devices, and what its CPUs were busy with.

It is read in the guest right before and after. Where instructions are counted each takes the same time, and a CPU that
is idle executes none: so the time in which it was not is their number. A kernel with NO_HZ measures how long a CPU
was idle, by the clock and without interrupts (tick_nohz_start_idle() in kernel/time/tick-sched.c), and
/proc/timer_list has that in nanoseconds. Of a CPU that is idle just then it has not been added yet, so that the figure
is right for a guest of one CPU alone, which is the one that reads. In /proc/stat are the shares of user mode and kernel
(proc_stat(5)), which the kernel itself samples at each tick (CONFIG_TICK_CPU_ACCOUNTING).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Those with a number are of devices, of which the timer of the PC is the guest's own; an NMI has none. What the kernel
# itself writes to the serial port needs no interrupt (serial8250_console_write() polls), and what is typed there does.
INTERRUPTS = "interrupts"
KERNEL, INSTRUCTIONS = "io.kernel", "io.instructions"
PER_IO = (KERNEL, INSTRUCTIONS)
_MARK = "@count "
_WANTED = r"now at |cpu  | *(NMI|[0-9]+):| *\.(idle|iowait)_sleeptime"
# Shell text; what is read last may have left its line without an end.
_FILES = "/proc/interrupts /proc/stat /proc/timer_list"
READ_COUNTS = f"printf '\\n' >&2; sed -nE 's/^({_WANTED})/{_MARK}&/p' {_FILES} >&2 2>/dev/null"
_INTERRUPTS = re.compile(r" *(?:NMI|\d{1,6}):((?: +\d{1,20})+)(?: (.*))?", re.ASCII)
_TIMER = "timer"
_NOW = re.compile(r"now at (\d{1,18}) nsecs", re.ASCII)
_IDLE = re.compile(r" *\.(?:idle|iowait)_sleeptime *: (\d{1,18}) nsecs", re.ASCII)
_SHARES = re.compile(r"cpu +\d{1,18} \d{1,18} (\d{1,18}) \d{1,18} \d{1,18} (\d{1,18}) (\d{1,18})(?: .*)?", re.ASCII)
_SHARE_NS = 10_000_000  # USER_HZ is 100 (include/asm-generic/param.h)
_PER_CPU = 2  # lines of a CPU's idle time: one of them while I/O was waited for
MOST_LINES = 10_000


@dataclass(frozen=True, slots=True)
class Counts:
    """One reading, of what is there; ``busy_ns`` is None where it would not be exact."""

    interrupts: int | None
    kernel_ns: int | None
    busy_ns: int | None

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Counts":
        """What the lines say that begin with the mark."""
        told = [line.removeprefix(_MARK) for line in lines]
        devices = [found for line in told if (found := _INTERRUPTS.fullmatch(line))]
        own = [sum(map(int, found[1].split())) for found in devices if (found[2] or "").split()[-1:] != [_TIMER]]
        shares = _first(_SHARES, told)
        now, idle = _first(_NOW, told), [int(found[1]) for line in told if (found := _IDLE.fullmatch(line))]
        return cls(
            interrupts=sum(own) if devices else None,
            kernel_ns=None if shares is None else sum(map(int, shares.groups())) * _SHARE_NS,
            busy_ns=int(now[1]) - sum(idle) if now is not None and len(idle) == _PER_CPU else None,
        )


def is_count(line: str) -> bool:
    """Whether a line of standard error is of a reading."""
    return line.startswith(_MARK)


def between(before: Counts, after: Counts, ios: int, instruction_ns: int) -> Iterator[tuple[str, float]]:
    """Values of metrics between two readings, of ``ios`` I/Os; without ``instruction_ns`` none are counted."""
    if before.interrupts is not None and after.interrupts is not None:
        yield INTERRUPTS, float(after.interrupts - before.interrupts)
    if not ios:
        return
    if before.kernel_ns is not None and after.kernel_ns is not None:
        yield KERNEL, (after.kernel_ns - before.kernel_ns) / ios
    if instruction_ns and before.busy_ns is not None and after.busy_ns is not None:
        yield INSTRUCTIONS, (after.busy_ns - before.busy_ns) / instruction_ns / ios


def _first(pattern: re.Pattern[str], lines: Iterable[str]) -> re.Match[str] | None:
    return next((found for line in lines if (found := pattern.fullmatch(line))), None)
