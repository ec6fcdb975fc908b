"""How a guest fails to answer; who is to blame is decided where its console is seen, in :mod:`bisector.vm.machine`."""

from bisector.core.errors import InfraError


class GuestError(InfraError):
    """SSH to the guest did not work; whether its kernel is to blame is for who sees the console."""


class GuestLost(GuestError):
    """The connection could not be made, or broke."""


class GuestRefused(GuestError):
    """The guest is there and refuses our key, or shows a host key that is not the pinned one."""


class GuestTimeout(GuestError):
    """The guest did not finish something in its time; a next command may be answered or not."""


class GuestCopyFailed(GuestError):
    """The guest is there and a file could not be copied to or from it."""


class GuestNonsense(GuestError):
    """The guest is there and sends what no sound one does: too much of it, or no answer to what was asked."""
