"""What does a job that another host sent: this host's own executor, over its own mirror of the repository."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from bisector.core.events import Listener
from bisector.executor.base import Failed, Finished, Job
from bisector.executor.local import local_executor
from bisector.executor.spec import Spec
from bisector.git.repository import Repository


class Engine(Protocol):
    """Does the job of a spec whose files are below ``place``.

    The news are there while the context lasts, so that they are kept first.
    Raises :class:`bisector.core.errors.BisectorError` where nothing could be begun.
    """

    def __call__(
        self, spec: Spec, place: Path, repository: Path, tell: Listener
    ) -> AbstractContextManager[Finished | Failed]:
        """Do it when the context is entered."""
        ...


@contextmanager
def here(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """One job on this host; sources and build directory stay for the next one of its run."""
    settings, request = spec.unpacked(place)
    with (
        Repository.open(repository, run_marker=place) as opened,
        local_executor(settings, place, opened, tell, keep_sources=True) as executor,
    ):
        executor.submit(Job(spec.key.id, request))
        yield executor.next()
