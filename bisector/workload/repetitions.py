"""A command that runs several times in the guest, each time from the same state, and is timed by bash.

What it prints goes into files off the stack, up to a bound: a command that writes more is ended by SIGPIPE (pipe(7)). A
repetition is over when the command itself ends. Processes that it leaves would hold its output open, and run beside the
next repetition: they are found by a variable of their environment, killed, and named in a file of the run. Those that a
setup leaves, such as a server, go on.

Who is to blame for what a command that ended well leaves wanting: what its first repetition shows already is the
command's own doing, which no commit can be measured with; what a later one alone shows, the kernel did.
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
from bisector.workload.base import RunSite, Watched, fault, guest_disk, lacks, timed, watched

# The guest's, where nobody else is. The first is in memory, the second on its own disk, which is not under test.
OUTPUTS = "/tmp/bisector"  # noqa: S108 -- see above
CARRIED = "/var/tmp/bisector"  # noqa: S108 -- see above
MOST_REPETITIONS = 1000
Repetitions: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_REPETITIONS)]
TIMED = ("elapsed", "user", "system", "cpu")  # metrics of each repetition
PREPARED = "prepared"
SHARED = (*TIMED, PREPARED)
MOST_BYTES = 1 << 20  # of what one repetition prints on either stream
KEPT = "repetitions.json"
LEFT = "left-behind.txt"  # beside it: the processes that were killed
_TAIL_LINES = 20
_LONGEST_LINE = 1000
# bash writes the decimal point of its locale (print_formatted_time() in its execute_cmd.c).
_TIMED = re.compile(r"@time (\d{1,9})[.,](\d{3}) (\d{1,9})[.,](\d{3}) (\d{1,9})[.,](\d{3})", re.ASCII)
_LEFT = re.compile(r"@left (\d{1,4}) (.{1,400})", re.ASCII)
_ENDED = re.compile(r"@exit (\d{1,4}) (\d{1,3}) (\d{1,9}) (\d{1,9})", re.ASCII)
_STATE_FAILED = 70
_NOT_FOUND = (126, 127)  # of what sh was told to run (POSIX, "Exit Status for Commands")

_DIRECTORIES = f"{OUTPUTS} {CARRIED}"
_DROP_CACHES = "sync && echo 3 > /proc/sys/vm/drop_caches"


class GuestState(StrEnum):
    """What the page cache is before each repetition; the caches of the stack are the phase's."""

    DROPPED = "dropped"
    FILLED = "filled"  # by a repetition more that does not count
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Repeated:
    """What is repeated: shell text for sh(1), in ``directory`` of the guest, with ``variables`` in its environment.

    ``what`` is its name in a sentence. Processes that one which ``prepares`` others leaves go on, and its outputs are
    kept by other names.
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
    """One repetition that ended well, what it took, and what it printed on standard output."""

    elapsed_s: float
    user_s: float
    system_s: float
    output: str

    @property
    def values(self) -> dict[str, float]:
        """The metrics that time(1) has, too."""
        busy_s = self.user_s + self.system_s
        share = {"cpu": 100 * busy_s / self.elapsed_s} if self.elapsed_s else {}
        return {"elapsed": self.elapsed_s, "user": self.user_s, "system": self.system_s, **share}


class Unusable(Exception):
    """What a repetition that ended well lacks, and what a person can do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def blamed(self, n: int, what: str) -> BisectorError:
        """Of the first repetition it is the command's own doing, of a later one the kernel's."""
        if n == 1:
            return UserError(f"{what}: {self.message}", self.hint)
        return fault(f"{what}: repetition {n}, unlike those before: {self.message}")


@dataclass(slots=True)
class _Heard:
    """What the guest says of each repetition while they run.

    ``ends`` are the number, the exit status, and how many bytes came out on either stream.
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
    """An empty directory for outputs, and bash and the other programs that are needed are there."""
    there = (Step(f"command -v {name}", partial(lacks, name)) for name in ("bash", *programs))
    made = Step(f"rm -rf {_DIRECTORIES} && mkdir {_DIRECTORIES}", guest_disk)
    run_steps(site.shell, (*there, made), deadline.remaining_s)


def repeat(site: RunSite, repeated: Repeated, deadline: Deadline) -> tuple[Watched, tuple[Repetition, ...]]:
    """Run it as often as told; what it printed is in ``site.logs``. Call :func:`prepare` before.

    Raises :class:`UserError` for a command that is not found, or prints too much, :class:`KernelFault` for one that
    fails and for a guest that does not say how each repetition went.
    """
    site.logs.mkdir(parents=True, exist_ok=True)
    # For the command alone: a file that is carried in may be called as a program that times it, or counts its output.
    site.shell.put(f'PATH="{CARRIED}:$PATH"; {repeated.command}\n', f"{OUTPUTS}/command")
    site.shell.put(_script(repeated), f"{OUTPUTS}/script")
    heard = _Heard()
    ran = watched(site, timed(f"bash {OUTPUTS}/script"), heard.hear, deadline)
    if heard.left:
        (site.logs / LEFT).write_text("".join(f"{line}\n" for line in heard.left), encoding="utf-8")
    outputs = [_fetched(site, repeated, n, end) for n, end in enumerate(heard.ends, 1)]
    if ran.finished.exit_status or len(heard.ends) != repeated.runs:
        # The state before a repetition was not reached, or bash itself did not end well.
        last = ": ".join((f"exit {ran.finished.exit_status}", *heard.tail[-1:]))
        ended = f"only {len(heard.ends)} of {repeated.runs} repetitions ended: {last}"
        raise fault(f"{repeated.what}: {ended}", *heard.tail)
    times = heard.times[repeated.state is GuestState.FILLED :]
    if len(times) != repeated.runs:
        told = f"the guest told {len(times)} times of {repeated.runs} repetitions"
        raise fault(f"{repeated.what}: {told}", *heard.tail)
    return ran, tuple(Repetition(*time, output) for time, output in zip(times, outputs, strict=True))


def figures(
    ran: Watched, done: Sequence[Repetition], read: Callable[[Repetition], Mapping[str, float]], what: str
) -> tuple[tuple[str, float], ...]:
    """Each metric of the run: the median over its repetitions; those of each are kept in its logs.

    What it took to prepare the run is one, too. ``read`` gives the metrics of one repetition, and raises
    :class:`Unusable`, which becomes an error as the module has it.
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


# proc_pid_environ(5): what a process was started with; of one length, since that of the environment shows in figures.
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
    """Text for bash: the repetitions, and on standard error a line of time and one of the end for each.

    Descriptors 3 and 4 are the command's output and its errors, on their way to a bound; the command has neither those
    nor 6, where the lines go.
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
    """What repetition ``n`` printed; raises what came of it. One that does not count is told of when it failed."""
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
    """Copy files to :data:`CARRIED` in the guest, by names; raises :class:`UserError` where there is no room."""
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
