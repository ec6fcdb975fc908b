"""Which kernel a guest runs, by its own word."""

from bisector.core.shell import Shell
from bisector.core.subject import build_id_in
from bisector.vm.base import GuestError, GuestNonsense

_QUESTION_S = 60.0
_NOTES_BYTES = 65536
_NOTES = f"head -c {_NOTES_BYTES} /sys/kernel/notes | od -An -v -tx1"


def release(shell: Shell) -> str:
    """The release of the running kernel, as ``uname -r``."""
    return _answer(shell, "uname -r")


def build_id(shell: Shell) -> str:
    """The GNU build-id of the running vmlinux in hex; empty when the kernel has none or hides it."""
    answer = _answer(shell, _NOTES)
    try:
        return build_id_in(bytes.fromhex(answer))
    except ValueError as error:
        raise GuestNonsense(f"`{_NOTES}` in the guest printed no bytes in hex: {answer[:100]!r}") from error


def _answer(shell: Shell, command: str) -> str:
    result = shell.run(command, _QUESTION_S)
    if result.exit_status != 0:
        raise GuestError(f"`{command}` in the guest: exit status {result.exit_status}: {result.stderr.strip()}")
    return result.stdout.strip()
