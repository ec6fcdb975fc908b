"""A root shell in a guest whose clock stands still while the host works: messages pass through shared memory.

To report something, the guest writes a byte to a debug console, whose other end is a full pipe. QEMU then blocks in the
middle of that instruction: it executes no other one, and no timer runs, so the guest's next steps depend on its memory
alone. The guest's side, and the format of the messages, is ``vm-images/mailbox``.

Stopping the guest (qemu(1), ``-action panic=pause``) is not exact: between the end of the CPU's turn and that of the
machine, QEMU may put its clock forward to the next timer (``icount_start_warp_timer()`` in accel/tcg/icount-common.c).
"""

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bisector.core.deadline import AttentiveClock, Clock, Deadline
from bisector.core.errors import InfraError
from bisector.host.files import our_files
from bisector.vm.base import DEFAULT_BOUNDS, Bounds, GuestLink, GuestLost, GuestNonsense, StreamedText

BOX_BYTES = 160 << 20
_HALF = BOX_BYTES // 2
_MARK = b"mailbox\n"  # by which the guest finds it among its NVDIMMs
_BLOCK = 4096
_PIPE_BYTES = 4096  # the smallest size of a pipe (fcntl(2), F_SETPIPE_SZ)
_LOOK_S = 0.002
_WATCH_S = 0.2
_QUOTED = 80
_BY_SIGNAL = -1  # the exit status that SSH gives


class Wire:
    """The memory that a guest shares with the host, and the two pipes at which the guest waits in turn.

    Both pipes exist, and are full, before the guest starts.
    """

    def __init__(self, memory: Path, bells: tuple[Path, Path]) -> None:
        self.memory = memory
        self.bells = bells
        self._told = 0
        with memory.open("r+b") as file:
            self._box = mmap.mmap(file.fileno(), BOX_BYTES)
        self._pipes = [os.open(bell, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for bell in bells]
        for pipe in self._pipes:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            _fill(pipe)

    def told(self) -> list[str | int] | None:
        """The words of the guest's next message, numbers as int; None if there is none yet."""
        line, end, _ = self._box[_HALF : _HALF + _BLOCK].partition(b"\n")
        text = line.decode("ascii", "replace")
        number, *words = (int(word) if word.isdecimal() else word for word in text.split() or [""])
        if not end or number == self._told or words[-1:] != [number]:  # the message is still being written
            return None
        if number != self._told + 1:
            return [text]
        if self._told:  # the guest has passed the previous pipe: its byte is in there
            pipe = self._pipes[self._told % 2]
            _drain(pipe)
            _fill(pipe)
        self._told += 1
        return words[:-1]

    def content(self, size: int) -> bytes:
        """The message's content, which follows its words."""
        begin = _HALF + _BLOCK
        return self._box[begin : begin + size]

    def answer(self, line: str, content: bytes = b"") -> None:
        """Send a request, and let the guest go on."""
        self._box[_BLOCK : _BLOCK + len(content)] = content
        self._box[:_BLOCK] = line.encode().ljust(_BLOCK, b"\0")
        _drain(self._pipes[self._told % 2])

    def let_go(self) -> None:
        """Stop blocking the guest: in the middle of an instruction QEMU does not notice that it is to end."""
        for pipe in self._pipes:
            _drain(pipe)

    def close(self) -> None:
        """Close pipes and memory; a waiting guest goes on."""
        self.let_go()
        for pipe in self._pipes:
            os.close(pipe)
        self._box.close()


@contextmanager
def wire(directory: Path) -> Iterator[Wire]:
    """A new wire in a directory, removed after the block; raises :class:`InfraError` if its files cannot be made."""
    memory, *bells = (directory / name for name in ("mailbox", "bell0", "bell1"))
    with our_files(directory):
        for path in (memory, *bells):
            path.unlink(missing_ok=True)
        with memory.open("xb") as file:
            file.write(_MARK)
            file.truncate(BOX_BYTES)
        for bell in bells:
            os.mkfifo(bell, 0o600)
        made = Wire(memory, (bells[0], bells[1]))
    try:
        yield made
    finally:
        made.close()
        for path in (memory, *bells):
            path.unlink(missing_ok=True)


def _fill(pipe: int) -> None:
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(_PIPE_BYTES))


def _drain(pipe: int) -> None:
    with suppress(BlockingIOError):
        while True:
            os.read(pipe, _PIPE_BYTES)


class Mailbox(GuestLink):
    """The shell of a guest that has sent its first message.

    While a line of standard error is passed on, the guest is stopped, and another command may be run in it. Every
    method raises :class:`GuestTimeout` if the guest sends no message in time, and :class:`GuestLost` if an earlier
    command is still unanswered.
    """

    def __init__(
        self, wire: Wire, watch: Callable[[], None], bounds: Bounds = DEFAULT_BOUNDS, clock: Clock | None = None
    ) -> None:
        super().__init__(watch, bounds, clock or AttentiveClock())
        self._wire = wire
        self._running = ""

    def __exit__(self, *_: object) -> None:
        """Leave the wire open: its creator closes it."""

    def _execute(
        self, command: str, data: bytes, on_line: Callable[[str], None], deadline: Deadline
    ) -> tuple[int, bytes, str]:
        script = command.encode()
        if _BLOCK + len(script) + len(data) > _HALF:
            raise InfraError(f"a request of {len(script) + len(data):,} bytes is too large for the guest's mailbox")
        stderr = StreamedText(on_line)
        answer = f"run {len(script)} {len(data)}\n", script + data
        while True:
            match self._next(command, deadline, *answer):
                case ["said", size]:
                    stderr.feed(self._content(size, stderr.read_bytes, command))
                    answer = "go\n", b""
                case ["done", int(status), size]:
                    return status, self._content(size, stderr.read_bytes, command), stderr.end()
                case ["killed", size]:
                    return _BY_SIGNAL, self._content(size, stderr.read_bytes, command), stderr.end()
                case told:
                    raise GuestNonsense(f"the guest answered {str(told)[:_QUOTED]} to `{command}`")

    def _next(self, command: str, deadline: Deadline, line: str, content: bytes) -> list[str | int]:
        """Send ``line`` and ``content``, and return the words of the guest's next message."""
        if self._running:
            raise GuestLost(f"the guest still runs `{self._running}`")
        self._running = command
        self._wire.answer(line, content)
        looked_s = self._clock.now_s()
        while (told := self._wire.told()) is None:
            if self._clock.now_s() - looked_s > _WATCH_S:
                looked_s = self._clock.now_s()
                self._guard(deadline)
            self._clock.sleep(_LOOK_S)
        self._running = ""
        return told

    def _content(self, size: object, said_bytes: int, command: str) -> bytes:
        """The content of a message; with ``said_bytes`` of earlier ones it must be within the bound."""
        if not isinstance(size, int):
            raise GuestNonsense(f"the guest answered a size of {str(size)[:_QUOTED]!r} to `{command}`")
        self._check_output(said_bytes + size, command)
        return self._wire.content(size)
