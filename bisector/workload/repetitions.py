"""Runs a command several times in the guest, each time from the same state; bash times it.

The output goes into files off the stack, up to a limit: SIGPIPE ends a command that writes more (pipe(7)). A repetition
is over when the command itself ends. Processes that it leaves behind would hold its output open and run during the next
repetition, so they are found by a variable of their environment, killed, and named in a file of the run. Processes that
a setup leaves behind, such as a server, go on.

If a command ended well but its output is not usable, whose fault that is depends on the repetition: in the first one it
is the command's own, with which no commit can be measured; in a later one alone it is the kernel's.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, TypeAlias

from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError, UserError
from bisector.core.printable import clean
from bisector.core.setting import Meta
from bisector.core.shell import Step, run_steps
from bisector.storage.disks import kernel_fault_in_run
from bisector.workload.base import FinishedCommand, RunSite, fault, guest_disk, lacks, timed, watched

# Nobody else uses the guest. The first is in its memory, the second on its own disk, which is not under test.
OUTPUTS = "/tmp/bisector"  # noqa: S108 -- see above
CARRIED = "/var/tmp/bisector"  # noqa: S108 -- see above
MOST_REPETITIONS = 1000
Repetitions: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_REPETITIONS)]
TIMED = ("elapsed", "user", "system", "cpu")  # metrics of each repetition
PREPARED = "prepared"
SHARED = (*TIMED, PREPARED)
MOST_BYTES = 1 << 20  # that one repetition may print on either stream
KEPT = "repetitions.json"
LEFT = "left-behind.txt"  # the processes that were killed, in the same directory
_TAIL_LINES = 20
_LONGEST_LINE = 1000
# bash uses the decimal point of its locale (print_formatted_time() in its execute_cmd.c).
_TIMED = re.compile(r"@time (\d{1,9})[.,](\d{3}) (\d{1,9})[.,](\d{3}) (\d{1,9})[.,](\d{3})", re.ASCII)
_LEFT = re.compile(r"@left (\d{1,4}) (.{1,400})", re.ASCII)
_ENDED = re.compile(r"@exit (\d{1,4}) (\d{1,3}) (\d{1,9}) (\d{1,9})", re.ASCII)
_STATE_FAILED = 70
_NOT_FOUND = (126, 127)  # sh cannot execute or cannot find the command (POSIX, "Exit Status for Commands")

_DIRECTORIES = f"{OUTPUTS} {CARRIED}"
_DROP_CACHES = "sync && echo 3 > /proc/sys/vm/drop_caches"


class GuestState(StrEnum):
    """The state of the page cache before each repetition; the phase determines the state of the stack's caches."""

    DROPPED = "dropped"
    FILLED = "filled"  # by one more repetition, which does not count
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Repeated:
    """A command to repeat: shell text for sh(1), in ``directory`` of the guest, with ``variables`` in its environment.

    ``what`` names it in a sentence. ``prepares`` marks a setup: processes that it leaves behind go on, and its output
    is kept under other names.
    """

    what: str
    command: str
    directory: str
    runs: int
    state: GuestState = GuestState.DROPPED
    variables: Mapping[str, str] = field(default_factory=dict)
    prepares: bool = False


@dataclass(frozen=True, slots=True)
class Repetition:
    """One repetition that ended well: its times in seconds, and what it printed on standard output."""

    elapsed_s: float
    user_s: float
    system_s: float
    output: str

    @property
    def values(self) -> dict[str, float]:
        """The metrics of time(1): seconds, and ``cpu`` in percent."""
        busy_s = self.user_s + self.system_s
        share = {"cpu": 100 * busy_s / self.elapsed_s} if self.elapsed_s else {}
        return {"elapsed": self.elapsed_s, "user": self.user_s, "system": self.system_s, **share}


class Unusable(Exception):
    """Why the output of a repetition that ended well is not usable; ``hint`` says what the user can do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def blamed(self, n: int, what: str) -> BisectorError:
        """The error for repetition ``n``: the command is at fault in the first one, the kernel in a later one."""
        if n == 1:
            return UserError(f"{what}: {self.message}", self.hint)
        return fault(f"{what}: repetition {n}, unlike those before: {self.message}")


@dataclass(slots=True)
class _Heard:
    """What the guest reports of the repetitions while they run.

    Each of ``ends`` is the repetition's number, its exit status, and its bytes on standard output and standard error.
    """

    times: list[tuple[float, float, float]] = field(default_factory=list)
    ends: list[tuple[int, int, int, int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        if len(self.ends) > MOST_REPETITIONS:
            return
        if timed := _TIMED.fullmatch(line):
            real, user, system = (float(f"{timed[n]}.{timed[n + 1]}") for n in (1, 3, 5))
            self.times.append((real, user, system))
        elif ended := _ENDED.fullmatch(line):
            n, status, out_bytes, err_bytes = map(int, ended.groups())
            self.ends.append((n, status, out_bytes, err_bytes))
        elif left := _LEFT.fullmatch(line):
            self.left.append(f"repetition {left[1]}: {clean(left[2])}")
        elif line.strip():
            self.tail = [*self.tail, line.strip()[:_LONGEST_LINE]][-_TAIL_LINES:]


def prepare(site: RunSite, deadline: Deadline, *programs: str) -> None:
    """Check that the guest has bash and ``programs``, else raise :class:`UserError`; make its directories anew."""
    there = (Step(f"command -v {name}", partial(lacks, name)) for name in ("bash", *programs))
    made = Step(f"rm -rf {_DIRECTORIES} && mkdir {_DIRECTORIES}", guest_disk)
    run_steps(site.shell, (*there, made), deadline.remaining_s)


def repeat(site: RunSite, repeated: Repeated, deadline: Deadline) -> tuple[FinishedCommand, tuple[Repetition, ...]]:
    """Run a command ``repeated.runs`` times, and keep its output in ``site.logs``. Call :func:`prepare` before.

    Raises :class:`UserError` if the first repetition does not find the command or prints too much, and
    :class:`KernelFault` for any other failure, and if the guest does not report each repetition.
    """
    site.logs.mkdir(parents=True, exist_ok=True)
    # PATH is set only for the command: a carried file may have the name of a program that this module's script uses.
    site.shell.put(f'PATH="{CARRIED}:$PATH"; {repeated.command}\n', f"{OUTPUTS}/command")
    site.shell.put(_script(repeated), f"{OUTPUTS}/script")
    heard = _Heard()
    ran = watched(site, timed(f"bash {OUTPUTS}/script"), heard.hear, deadline)
    if heard.left:
        (site.logs / LEFT).write_text("".join(f"{line}\n" for line in heard.left), encoding="utf-8")
    outputs = [_fetched(site, repeated, n, end) for n, end in enumerate(heard.ends, 1)]
    if ran.finished.exit_status or len(heard.ends) != repeated.runs:
        # The page cache could not be brought into its state, or bash itself failed.
        last = ": ".join((f"exit {ran.finished.exit_status}", *heard.tail[-1:]))
        ended = f"only {len(heard.ends)} of {repeated.runs} repetitions ended: {last}"
        raise fault(f"{repeated.what}: {ended}", *heard.tail)
    times = heard.times[repeated.state is GuestState.FILLED :]
    if len(times) != repeated.runs:
        told = f"the guest told {len(times)} times of {repeated.runs} repetitions"
        raise fault(f"{repeated.what}: {told}", *heard.tail)
    return ran, tuple(Repetition(*time, output) for time, output in zip(times, outputs, strict=True))


def figures(
    ran: FinishedCommand, done: Sequence[Repetition], read: Callable[[Repetition], Mapping[str, float]], what: str
) -> tuple[tuple[str, float], ...]:
    """The metrics of the run: medians over its repetitions, whose single figures are kept in its logs.

    The time to prepare the run is a metric, too. ``read`` returns the metrics of one repetition, or raises
    :class:`Unusable`, which becomes the error of :meth:`Unusable.blamed`.
    """
    found: list[dict[str, float]] = []
    for n, one in enumerate(done, 1):
        try:
            found.append({**one.values, **read(one)})
        except Unusable as error:
            raise error.blamed(n, what) from error
    text = json.dumps([{"n": n, **values} for n, values in enumerate(found, 1)], indent=1)
    (ran.site.logs / KEPT).write_text(f"{text}\n", encoding="utf-8")
    names = [name for name in found[0] if all(name in one for one in found)]
    return (*((name, median(one[name] for one in found)) for name in names), (PREPARED, ran.prepared_s))


# A variable that processes are found by (proc_pid_environ(5)). Its value always has the same length, since the length
# of the environment shows in figures.
_MARK = "BISECTOR_REPETITION"
_END_LEFT = f"""end_left() {{
	local tries=0 names= name file found
	while [ $tries -lt 50 ]; do
		found=$(grep -alsxz "{_MARK}=$mark" /proc/[0-9]*/environ)
		[ -n "$found" ] || break
		for file in $found; do
			[ $tries != 0 ] || {{ read -r name <"${{file%environ}}comm" && names="$names $name"; }} 2>&-
			kill -9 "${{file//[!0-9]/}}" 2>&-
		done
		tries=$((tries + 1))
		sleep 0.1
	done
	[ -z "$names" ] || printf '@left %d%.400s\\n' $n "$names" >&6
}}"""


def _script(repeated: Repeated) -> str:
    """A script for bash that runs the repetitions, and prints a line of times and a line of the end of each.

    Descriptors 3 and 4 lead the command's standard output and standard error to a limit; the lines go to 6, which is
    the script's standard error. The command inherits none of these.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in repeated.variables.items())
    first = 0 if repeated.state is GuestState.FILLED else 1
    reach_state = _DROP_CACHES if repeated.state is GuestState.DROPPED else "true"
    bounded = f"head -c {MOST_BYTES + 1}"
    marked, end = ("", "") if repeated.prepares else (f"{_MARK}=$mark ", "end_left")
    return f"""exec 6>&2 </dev/null
TIMEFORMAT='@time %3R %3U %3S'
{exports}cd {shlex.quote(repeated.directory)} || exit {_STATE_FAILED}
size() {{ stat -c %s "$1"; }}
{_END_LEFT}
for ((n = {first}; n <= {repeated.runs}; n++)); do
	{{ {reach_state}; }} >&2 || exit {_STATE_FAILED}
	out={OUTPUTS}/out.$n err={OUTPUTS}/err.$n
	printf -v mark %08d.%04d $$ $n
	{{
		{{
			time {marked}sh {OUTPUTS}/command >&3 2>&4 3>&- 4>&- 5>&- 6>&-
			echo $? >{OUTPUTS}/status
			{end}
		}} 2>&6 3>&1 4>&5 | {bounded} >"$out"
	}} 5>&1 | {bounded} >"$err"
	read -r status <{OUTPUTS}/status
	if [ $n != 0 ] || [ "$status" != 0 ]; then
		printf '@exit %d %d %d %d\\n' $n "$status" "$(size "$out")" "$(size "$err")" >&6
	fi
	[ "$status" = 0 ] || exit 1
done
"""


def _fetched(site: RunSite, repeated: Repeated, n: int, end: tuple[int, int, int, int]) -> str:
    """Fetch and return the output of repetition ``n``; raise the error if it failed or printed too much.

    The guest reports the repetition 0, which does not count, only if it failed.
    """
    told, status, out_bytes, err_bytes = end
    if told not in (n, 0) or n > repeated.runs:
        raise fault(f"{repeated.what}: repetition {told} was told of after {n - 1}")
    texts = []
    names = ("setup", "setup-errors") if repeated.prepares else ("output", "errors")
    for name, file, size_bytes in zip(names, ("out", "err"), (out_bytes, err_bytes), strict=True):
        kept = site.logs / f"{name}.{told}.txt"
        if size_bytes:
            site.shell.get(f"{OUTPUTS}/{file}.{told}", kept)
        texts.append(kept.read_text(encoding="utf-8", errors="replace") if size_bytes else "")
    out, err = texts
    if max(out_bytes, err_bytes) > MOST_BYTES:
        stream = "standard output" if out_bytes > MOST_BYTES else "standard error"
        message = f"it wrote more than {MOST_BYTES >> 20} MiB on {stream}"
        raise Unusable(message, "let it write into a file, or to /dev/null").blamed(n, repeated.what)
    if not status:
        return out
    tail = [line.strip()[:_LONGEST_LINE] for line in (err or out).splitlines() if line.strip()][-_TAIL_LINES:]
    reason = ": ".join((repeated.what, f"exit {status}", *tail[-1:]))
    if n == 1 and status in _NOT_FOUND:
        hint = "is it in the guest? --carry FILE brings a file along; one that is run has to be executable"
        raise UserError(f"the guest cannot run it: {reason}", hint)
    raise fault(f"{reason}{f' in repetition {n}' if n > 1 else ''}", *tail)


def carry(site: RunSite, files: Mapping[str, Path], deadline: Deadline) -> None:
    """Copy files to :data:`CARRIED` in the guest under these names; raises :class:`UserError` if there is no room."""
    needed = sum(path.stat().st_size for path in files.values())
    free_step = Step(f"stat -f -c '%a %S' {CARRIED}", kernel_fault_in_run)
    (free,) = run_steps(site.shell, (free_step,), deadline.remaining_s)
    if (blocks := re.fullmatch(r"(\d{1,15}) (\d{1,9})", free.strip())) is None:
        raise fault(f"stat -f printed {free[:_LONGEST_LINE]!r}")
    if needed > (room := int(blocks[1]) * int(blocks[2])):
        raise UserError(
            f"the files that are carried into the guest have {needed / 2**20:,.0f} MiB, and its own disk has room for "
            f"{room / 2**20:,.0f} MiB",
            "carry less, or compress it, and unpack it onto the stack",
        )
    for name, path in files.items():
        site.shell.send(path, f"{CARRIED}/{name}")
