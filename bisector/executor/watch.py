"""A host's jobs, as whoever is connected to it sees them: begun, watched to their end, cancelled, acknowledged.

The process of a job needs no watcher (:mod:`bisector.executor.child`). So a watcher may leave at any moment, and
another one may take its place: of the same worker, or of one that was started after the first was killed.
"""

import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import AttemptCancelled, AttemptFailed, BisectorError, InfraError
from bisector.core.events import Event, LiveSample
from bisector.core.trial import Stage
from bisector.executor import child
from bisector.executor.base import Failed, Finished
from bisector.executor.duty import DutyFiles
from bisector.executor.local import end_all_of
from bisector.executor.parcel import Parcel
from bisector.executor.places import Places
from bisector.executor.spec import Key, Spec
from bisector.executor.spool import Entry, Spool
from bisector.host import detached
from bisector.host.detached import ProcessIdentity
from bisector.host.files import our_files
from bisector.host.load import host_id
from bisector.host.locks import Held, held
from bisector.store.log import now
from bisector.store.rundir import LOCK

LOOK_S = 1.0  # a bench is to be quiet: its watcher wakes once a second
_SIGN_S = 30.0  # an interpreter starts on a busy host
_LATER_S = 30.0  # what ends a job at its deadline is the job itself
_LAST_LINES = 3
_LOG_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Returned:
    """What came of a job, and its files."""

    key: Key
    news: Finished | Failed
    files: Parcel | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """A host that takes no jobs has not begun this one; its spool holds nothing of it."""

    key: Key


@dataclass(slots=True)
class _Attention:
    """What a watcher is woken by (eventfd(2))."""

    wake: int = field(default_factory=lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
    detached: bool = False
    cancelled: bool = False

    def call(self, *, detach: bool = False, cancel: bool = False) -> None:
        self.detached, self.cancelled = self.detached or detach, self.cancelled or cancel
        os.eventfd_write(self.wake, 1)


@dataclass(slots=True)
class Desk:
    """The jobs of this host; ``engine`` is the name of what does them, ``repository`` the host's mirror.

    ``begin`` starts the process of one (:func:`bisector.executor.child.begin`).
    One thread watches, and others call it away.
    """

    spool: Spool
    engine: str
    repository: Path
    grace_s: float = child.GRACE_S
    begin: Callable[[Sequence[str], Path, int], None] = child.begin
    _watched: dict[Key, list[_Attention]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _places: Places = field(init=False)

    def __post_init__(self) -> None:
        self._places = Places(self.spool, self.repository)

    def watch(self, work: Spec | Key, tell: Callable[[Event], None]) -> Returned | Declined | None:
        """What comes of a job, which is begun if it was not; None when the watcher is called away.

        Of a job that is known the key is enough. Any trouble is among the news, but for a bug. Where the host is
        drained a job that is not known is declined.
        """
        key = work.key if isinstance(work, Spec) else work
        found = self._watched_to_its_end(key, work, tell)
        if isinstance(found, Returned) and key.is_sound and self._places.is_over(key.run):
            self._clear()
        return found

    def _watched_to_its_end(
        self, key: Key, work: Spec | Key, tell: Callable[[Event], None]
    ) -> Returned | Declined | None:
        try:
            with our_files(self.spool.home):
                entry = self.spool.entry(key)
                if isinstance(work, Spec) and not entry.exists and DutyFiles(self.spool).drained() is not None:
                    return Declined(key)
                began = isinstance(work, Spec) and self._begin(entry, work)
                with self._attention(key) as attention:
                    if not self._followed(entry, attention, tell, 0 if began else None):
                        return None
                    return self._returned(entry)
        except BisectorError as error:
            trouble = _attempt(error.message, error.hint) if isinstance(error, InfraError) else error
        return Returned(key, Failed(key.id, host_id(), trouble, now()))

    def cancel(self, key: Key) -> None:
        """End a job, whoever watches it; that it was is its news."""
        entry = self.spool.entry(key)
        if not entry.exists:
            return
        entry.cancel()
        if not self._call(key, cancel=True):
            self._end(entry)

    def acknowledge(self, key: Key) -> None:
        """Forget a job whose result is on record, or that is given up; one that still runs is ended first."""
        entry = self.spool.entry(key)
        if entry.runs and entry.exists:
            self.cancel(key)
        if not entry.runs:
            entry.remove()
        self._clear()

    def over(self, key: Key) -> None:
        """Forget all of a run, whatever the number; what of it still runs is ended first."""
        if not key.is_sound:
            return
        self._places.mark_over(key.run)
        for entry in self.spool.entries():
            if entry.key.run == key.run and entry.runs:
                self.cancel(entry.key)
        _swept(self.spool.place(key.run))  # of a job that was killed
        self._clear()

    def detach(self) -> None:
        """Call all watchers away; the jobs go on."""
        for key in tuple(self._watched):
            self._call(key, detach=True)

    @property
    def watches(self) -> bool:
        """Whether a job is watched now."""
        return bool(self._watched)

    def tidy(self) -> tuple[str, ...]:
        """End what killed jobs have left running; for each place that had anything left, a sentence."""
        told = []
        for place in {entry.place for entry in self.spool.entries()}:
            if stopped := _swept(place):
                told.append(f"{place}: {stopped} processes of a job that was killed are ended")
        return (*told, *self._clear())

    def _clear(self) -> tuple[str, ...]:
        """Remove what runs have left, unless a job is under way; for each, a sentence."""
        with self.spool.turn():
            if any(entry.runs for entry in self.spool.entries()):
                return ()
            try:
                return self._places.clear(time.time(), _swept)
            except InfraError as error:  # the room that it takes shows in the host's status
                return (str(error),)

    def _begin(self, entry: Entry, spec: Spec) -> bool:
        """Start the job's process unless the job is known; raises :class:`UserError` for other work of its number."""
        with self.spool.turn(), entry.locked() as lock:
            if entry.exists:
                entry.check(spec)
                return False
            if lock is None:
                raise InfraError(f"{entry.path} is locked, and holds no job", f"fuser -v {entry.path}/lock")
            self._places.mark_begun(entry.key.run)
            spec.unpack(entry.place)
            entry.take(spec)
            self.begin((str(entry.path), self.engine, str(self.repository)), entry.log, lock)
        return True

    def _followed(self, entry: Entry, attention: _Attention, tell: Callable[[Event], None], offset: int | None) -> bool:
        """Watch a job's process to its end; False when the watcher is called away before."""
        if (runner := _signed(entry)) is None or (pidfd := runner.open()) is None:
            return True
        deadline = Deadline("the end of a job", entry.spec().deadline_s + self.grace_s + _LATER_S)
        stream = _Stream(entry, tell, offset)
        try:
            while not detached.ended_within(pidfd, 0.0):
                select.select([pidfd, attention.wake], [], [], LOOK_S)
                with suppress(BlockingIOError):
                    os.eventfd_read(attention.wake)
                stream.look()
                if attention.cancelled or deadline.expired:
                    self._end(entry)
                    return True
                if attention.detached:
                    return False
        finally:
            os.close(pidfd)
        stream.look(whole=True)
        _swept(entry.place)
        return True

    def _end(self, entry: Entry) -> None:
        if (runner := _signed(entry)) is not None:
            detached.end_group(runner, self.grace_s)
        _swept(entry.place)

    def _returned(self, entry: Entry) -> Returned:
        """What a job's process has left, now that it is gone."""
        news = entry.result()
        if news is not None:
            return Returned(entry.key, news, Parcel.of(entry.files))
        if not entry.exists:
            error: AttemptFailed = _attempt(f"job {entry.key} is not known on this host", "")
        elif entry.cancelled:
            error = AttemptCancelled(f"job {entry.key} was cancelled", "", Stage.CHECKOUT, host_id())
        else:
            last = "; ".join(_last_lines(entry.log))
            error = _attempt(f"the process of job {entry.key} died{f': {last}' if last else ''}", f"there: {entry.log}")
        return Returned(entry.key, Failed(entry.key.id, host_id(), error, now()))

    @contextmanager
    def _attention(self, key: Key) -> Iterator[_Attention]:
        one = _Attention()
        with self._lock:
            self._watched.setdefault(key, []).append(one)
        try:
            yield one
        finally:
            with self._lock:
                self._watched[key].remove(one)
                if not self._watched[key]:
                    del self._watched[key]
                os.close(one.wake)

    def _call(self, key: Key, *, detach: bool = False, cancel: bool = False) -> bool:
        with self._lock:
            for one in (found := self._watched.get(key, [])):
                one.call(detach=detach, cancel=cancel)
            return bool(found)


@dataclass(slots=True)
class _Stream:
    """A job's progress, of which the rate of the moment is told once per look: the newest one."""

    entry: Entry
    tell: Callable[[Event], None]
    offset: int | None

    def look(self, *, whole: bool = False) -> None:
        if self.offset is None:  # of a job that goes on only what is new
            _, self.offset = self.entry.progress(0)
        events, self.offset = self.entry.progress(self.offset)
        newest = next((one for one in reversed(events) if isinstance(one, LiveSample)), None)
        for one in events:
            if whole or not isinstance(one, LiveSample) or one is newest:
                self.tell(one)


def _signed(entry: Entry) -> ProcessIdentity | None:
    """The process of a job; None when it died before it had signed."""

    def probe() -> tuple[ProcessIdentity | None] | None:
        runs, found = entry.runs, entry.runner()
        return (found,) if found is not None or not runs else None

    try:
        return Deadline("the start of a job", _SIGN_S).poll(probe)[0]
    except DeadlineExpired as error:
        raise InfraError(f"the process of job {entry.key} does not begin", f"fuser -v {entry.path}/lock") from error


def _swept(place: Path) -> int:
    """End what is marked as the work of a place, unless a job is under way there; how many processes that were."""
    if not place.is_dir():
        return 0
    with suppress(Held, FileNotFoundError), held(place / LOCK):  # it was removed meanwhile, once nothing worked there
        return end_all_of(place)
    return 0


def _attempt(message: str, hint: str) -> AttemptFailed:
    return AttemptFailed(message, hint, Stage.CHECKOUT, host_id())


def _last_lines(log: Path) -> list[str]:
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()][-_LAST_LINES:]
    return []
