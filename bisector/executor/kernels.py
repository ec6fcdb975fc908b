"""What a job is built with, and under which keys its kernel is kept, as far as that is known before it is built.

They are the same on each host: a key is made of the configuration, the quirks and the compiler that the request names,
and of the commit's tree.
"""

from collections.abc import Iterator

from bisector.config import Settings
from bisector.core.subject import Compiler
from bisector.core.trial import Stage
from bisector.executor.base import BuildRequest, ControlRequest, Request
from bisector.executor.local import kernel_builder


def compilers_of(request: Request) -> tuple[Compiler, ...]:
    """The compilers that a job may build with, in their order; none where its host is to choose."""
    return (request.compiler,) if isinstance(request, BuildRequest) else request.compilers


def kernels_of(settings: Settings, request: Request) -> tuple[str, ...]:
    """The keys of which a job takes a kept kernel, in the order of looking; none where it builds whatever is kept.

    Raises :class:`bisector.core.errors.UserError` for configurations that will not do.
    """
    return tuple(dict.fromkeys(_keys(settings, request)))


def _keys(settings: Settings, request: Request) -> Iterator[str]:
    own: Settings | None = None
    if isinstance(request, ControlRequest):
        if request.through is Stage.BUILD:
            return
    else:
        own = request.settings
        if isinstance(request, BuildRequest) and request.measured is not None:
            return
        if not isinstance(request, BuildRequest):
            if request.anew or request.image is not None:
                return
            if request.kernel is not None:
                yield request.kernel.key
    builder = kernel_builder((own or settings).kernel)
    yield from (builder.using(one).key(request.commit.tree) for one in compilers_of(request))
