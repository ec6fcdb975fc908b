"""Jobs on other hosts: each on one idle host, heard once, however often a connection breaks on the way.

Neither a host that is gone nor an answer that is missing says anything of a job: it goes on without us
(:mod:`bisector.executor.child`). So a host that comes back is asked for each open job that it holds, and only one that
does not come back in time makes it an attempt that is lost. One that is lost is heard all the same when its host is
back later: how late a result is does not depend on what it says. Of what a host holds beside those, the result is on
record, or nobody wants it; it is acknowledged again.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bisector.config import Settings
from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptCancelled, AttemptFailed, AttemptLost, BisectorError, InfraError
from bisector.core.events import Listener, Note
from bisector.core.subject import Compiler
from bisector.core.trial import Stage
from bisector.executor.base import Failed, Job, News, Progress, Request
from bisector.executor.hosts import (
    Came,
    Connection,
    Drained,
    Host,
    HostNews,
    Joined,
    Leaving,
    Left,
    NotTaken,
    Told,
    Unheard,
    Unsent,
    Word,
)
from bisector.executor.open_jobs import CONNECT, OpenJob, difference, why_given_up
from bisector.executor.spec import Key, Spec, on_disks
from bisector.executor.watch import Returned
from bisector.store.log import now

PATIENCE_S = 300.0  # a switch, or a host, may be started anew
NO_HOST_S = 3600.0  # while no host is there at all
_LOOK_S = 3600.0  # at most between two looks at deadlines


@dataclass(slots=True)
class RemoteExecutor:
    """An :class:`bisector.executor.base.Executor` over other hosts; ``run`` is a name that no other run ever has.

    What comes back lies in ``run_dir`` as if it had been measured here. ``versions`` are those of this process: a host
    with others is told of to ``tell``, and not used. ``before`` are the jobs that an earlier process of this run has
    submitted and not heard the end of, with the names of their hosts; their news come as those of all jobs. ``lost``
    are those of which it has heard no more than that (:class:`AttemptLost`). ``kernels_of`` tells the keys of kernels
    that would be taken for a job (:func:`bisector.executor.kernels.kernels_of`), ``disks`` where a host, by its name,
    has disks of its own. Hosts that are ``builders`` measure nothing: while there is no other, nothing can go on for
    long.
    """

    connection: Connection
    run: str
    run_dir: Path
    settings: Settings
    versions: tuple[tuple[str, str], ...]
    builds_with: Callable[[], tuple[Compiler, ...]]
    tell: Listener
    before: Mapping[int, str] = field(default_factory=dict)
    patience_s: float = PATIENCE_S
    lost: Iterable[int] = ()
    kernels_of: Callable[[Settings, Request], tuple[str, ...]] = lambda settings, request: ()
    disks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    builders: Collection[str] = ()
    _hosts: dict[str, Host] = field(default_factory=dict, init=False)
    _open: dict[int, OpenJob] = field(default_factory=dict, init=False)
    _late: dict[int, OpenJob] = field(default_factory=dict, init=False)  # told as lost, and not heard yet
    _closed: set[str] = field(default_factory=set, init=False)  # the addresses of hosts that take no jobs
    _refused: set[str] = field(default_factory=set, init=False)  # machines
    _names: dict[str, str] = field(default_factory=dict, init=False)  # of hosts, and whose they are
    _ready: deque[News] = field(default_factory=deque, init=False)
    _returned: dict[int, str] = field(default_factory=dict, init=False)  # not acknowledged yet: from which machine
    _attempts: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        for id_, host_name in self.before.items():
            self._open[id_] = OpenJob(None, "", host_name, silent=self._patience())
        for id_ in self.lost:
            self._late[id_] = OpenJob(None, "")
        for host in self.connection.hosts():
            self._join(host)

    @property
    def idle(self) -> tuple[str, ...]:
        """The hosts that have nothing to do, by name."""
        while (news := self.connection.news(0.0)) is not None:
            self._take(news)
        return tuple(host.name for host in self._idle())

    def submit(self, job: Job, host: str = "") -> None:
        """Take a job; it waits here until a host, or the one that is named, is idle.

        Raises :class:`UserError` for a job that cannot be sent.
        """
        disks = self.disks.get(host, {})
        job, settings = replace(job, request=on_disks(job.request, disks)), self.settings.on_disks(disks)
        spec = Spec.of(self.run, job, settings)
        self._open[job.id] = OpenJob(replace(spec, kernels=self.kernels_of(settings, job.request)), host)
        self._send_waiting()

    def next(self) -> News:
        """The next news; ``ValueError`` without a job. One that is lost is waited for only while its host is there."""
        while not self._ready:
            if not self._open and not any(one.address for one in self._late.values()):
                raise ValueError("no job was submitted")
            self._listen(self._next_deadline_s())
        return self._ready.popleft()

    def wait(self, within_s: float | None) -> bool:
        """Wait for news, or for another idle host; raises :class:`InfraError` when there is neither job nor host."""
        idle, alone = set(self._idle()), not self._open
        longest_s = NO_HOST_S if alone else _LOOK_S
        deadline = Deadline("news", longest_s if within_s is None else within_s)
        while not (self._ready or deadline.expired or set(self._idle()) - idle):
            self._listen(min(self._next_deadline_s(), deadline.remaining_s))
        measuring = [host for host in self._hosts.values() if host.name not in self.builders]
        if alone and not measuring and within_s is None and deadline.expired:
            raise InfraError(f"no host that measures was there for {NO_HOST_S / 60:.0f} min", CONNECT)
        return bool(self._ready)

    def _listen(self, within_s: float) -> None:
        if (news := self.connection.news(within_s)) is not None:
            self._take(news)
        self._give_up()

    def compilers(self) -> tuple[Compiler, ...]:
        """Those of the coordinator, which the hosts have to have as well."""
        return self.builds_with()

    def acknowledge(self, id_: int) -> None:
        """Let the host forget a job whose end is on record; one that is not there now, when it comes back.

        What came late, and was not given to the caller yet, is not what is on record.
        """
        if any(not isinstance(news, Progress) and news.id == id_ for news in self._ready):
            return
        machine = self._returned.pop(id_, "")
        for host in self._hosts.values():
            if host.machine == machine:
                self.connection.send(host.address, Word.ACKNOWLEDGE, self._key(id_))

    def cancel(self, id_: int) -> None:
        """End a job that has not ended; that it was is its news, of one that is lost, too."""
        if (one := self._open.get(id_) or self._late.get(id_)) is None:
            return
        one.cancelled = True
        if one.address:
            self.connection.send(one.address, Word.CANCEL, self._key(id_))
        elif id_ in self._open and (one.silent is None or one.is_build):  # no host has had it, or nobody waits for it
            self._end(id_, self._cancelled(id_))

    def over(self) -> None:
        """Let the hosts that are connected forget all of this run; what of it still runs is ended."""
        for host in self._hosts.values():
            self.connection.send(host.address, Word.OVER, self._key(0))

    def wait_for_hosts(self, count: int, seconds: float) -> None:
        """Wait until so many hosts are connected; raises :class:`InfraError` when they are not in time."""
        deadline = Deadline(f"{count} hosts", seconds)
        while len(self._hosts) < count:
            if (news := self.connection.news(deadline.remaining_s)) is not None:
                self._take(news)
            elif deadline.expired:
                raise InfraError(
                    f"{len(self._hosts)} of {count} hosts connected within {seconds:g} s",
                    CONNECT,
                )

    def _key(self, id_: int) -> Key:
        return Key(self.run, id_)

    def _patience(self) -> Deadline:
        return Deadline("a host that is gone", self.patience_s)

    def _idle(self) -> list[Host]:
        at_work = {one.address for jobs in (self._open, self._late) for one in jobs.values()}
        return [host for host in self._taking() if host.address not in at_work]

    def _taking(self) -> list[Host]:
        """The hosts that take jobs, now or when they have done what they do."""
        return [host for host in self._hosts.values() if host.address not in self._closed]

    def _take(self, news: HostNews) -> None:
        match news:
            case Joined(host):
                self._join(host)
            case Left(address):
                self._leave(address)
            case Leaving(address) | Drained(address, True):
                self._closed.add(address)
            case Drained(address, False):
                self._closed.discard(address)
            case NotTaken(key, attempt, address):
                self._closed.add(address)
                self._not_taken(key, attempt)
            case Came(returned):
                self._came(returned)
            case Unheard(key, attempt, why):
                self._unheard(key, attempt, why)
            case Unsent(key, attempt, why, refused):
                self._unsent(key, attempt, why, refused=refused)
            case Told(key, event):
                if key.run == self.run and key.id in self._open:  # else it is of a job that was given up
                    self._ready.append(Progress(key.id, event))
        self._send_waiting()

    def _join(self, host: Host) -> None:
        for earlier in [one for one in self._hosts.values() if one.machine == host.machine]:
            self._leave(earlier.address)
        held = {key.id for key, _ in host.held if key.run == self.run}
        for id_ in held - {*self._open, *self._late, *self._returned}:
            self.connection.send(host.address, Word.ACKNOWLEDGE, self._key(id_))
        if host.versions != self.versions:
            self.tell(Note(f"{host.name} is not used: {difference(host.versions, self.versions)}"))
            return
        if host.machine in self._refused or not self._has_own_name(host):
            return
        self._hosts[host.address] = host
        if host.drained:
            self._closed.add(host.address)
        for id_, one in (*self._open.items(), *self._late.items()):
            if one.address:
                continue
            if id_ in held:
                self._hear(id_, one, host, self._key(id_))
                if one.cancelled:
                    self.connection.send(host.address, Word.CANCEL, self._key(id_))
            elif one.machine == host.machine and id_ in self._late:
                del self._late[id_]
            elif one.machine == host.machine and one.silent is not None:
                why = f"{host.name} is back, and has no job {self._key(id_)}"
                self._end(id_, AttemptFailed(why, "", Stage.CHECKOUT, host.name))
            elif one.host == host.name and one.spec is None and id_ in self._open:
                # Who submitted it was killed before the host had it; should it begin after all, it is news once more.
                self._lose(id_, one, f"{host.name} was not given job {self._key(id_)}")

    def _has_own_name(self, host: Host) -> bool:
        """Whether no other machine has had its name: by the name its figures are compared with others."""
        if self._names.setdefault(host.name, host.whose) == host.whose:
            return True
        self._refused.add(host.machine)
        self.tell(
            Note(
                f"the machine at {host.address} is not used: another one is called {host.name}, too; give it a name of"
                " its own: bisector worker ADDRESS --name NAME"
            )
        )
        return False

    def _leave(self, address: str) -> None:
        self._hosts.pop(address, None)
        self._closed.discard(address)
        for one in (*self._open.values(), *self._late.values()):
            if one.address == address:
                one.address, one.silent = "", self._patience()

    def _hear(self, id_: int, one: OpenJob, host: Host, work: Spec | Key) -> None:
        self._attempts += 1
        one.host, one.machine, one.address = host.name, host.machine, host.address
        one.attempt, one.silent, one.why = self._attempts, None, ""
        self.connection.submit(host.address, work, self._attempts)

    def _send_waiting(self) -> None:
        for id_, one in self._open.items():
            if one.spec is None or one.host:
                continue
            idle = [host for host in self._idle() if one.wanted in ("", host.name)]
            if idle:
                self._hear(id_, one, idle[0], one.spec)
            elif any(one.wanted in ("", host.name) for host in self._taking()):
                one.silent = None
            else:
                one.silent = one.silent or self._patience()

    def _came(self, returned: Returned) -> None:
        """The end of a job, late or not; one that was heard before is of no use any more."""
        id_ = returned.key.id
        if returned.key.run != self.run or id_ not in {*self._open, *self._late}:
            return
        one = self._open.pop(id_) if id_ in self._open else self._late.pop(id_)
        news = replace(returned.news, id=id_, host=one.host or returned.news.host)
        self._returned[id_] = one.machine
        try:
            if returned.files is not None:
                returned.files.unpack(self.run_dir)
        except InfraError as error:
            trouble = AttemptFailed(f"{one.host}: {error.message}", error.hint, Stage.CHECKOUT, one.host)
            news = Failed(id_, one.host, trouble, now())
        self._ready.append(news)

    def _not_taken(self, key: Key, attempt: int) -> None:
        """A job that its host has not begun is as one that was just submitted."""
        if (one := self._of_attempt(key, attempt)) is None or one.spec is None:
            return
        one.host = one.machine = one.address = ""
        one.silent = None
        if one.cancelled:
            self.cancel(key.id)

    def _of_attempt(self, key: Key, attempt: int) -> OpenJob | None:
        """The open job that this attempt at hearing is the newest of."""
        one = self._open.get(key.id) if key.run == self.run else None
        return one if one is not None and one.attempt == attempt else None

    def _unheard(self, key: Key, attempt: int, why: str) -> None:
        if (one := self._of_attempt(key, attempt)) is None:
            return
        one.why = why
        one.silent = one.silent or self._patience()  # most often the host itself is about to be gone

    def _unsent(self, key: Key, attempt: int, why: str, *, refused: bool) -> None:
        """Let the job wait as before it was given to a host.

        That host is of use again when it has connected anew; one that is refused is not, until it is booted again.
        """
        if (one := self._of_attempt(key, attempt)) is None:
            return
        if refused:
            self._refused.add(one.machine)
            self.tell(Note(f"{one.host} is not used: {why}"))
        self._leave(one.address)
        one.host, one.machine, one.why = "", "", f"{one.host}: {why}"
        if one.cancelled:
            self._end(key.id, self._cancelled(key.id))

    def _give_up(self) -> None:
        for id_, one in tuple(self._open.items()):
            if one.silent is None or not one.silent.expired:
                continue
            if one.address in self._hosts or (one.spec is not None and not one.host):  # it is nowhere, or will be
                message, hint = why_given_up(self._key(id_), one, self.patience_s, self._hosts.values())
                self._end(id_, AttemptFailed(message, hint, Stage.CHECKOUT, one.host))
            else:
                self._lose(id_, one, *why_given_up(self._key(id_), one, self.patience_s, self._hosts.values()))

    def _lose(self, id_: int, one: OpenJob, message: str, hint: str = "") -> None:
        """Tell that a job is lost; what comes of it later is news once more."""
        one.silent = None
        self._late[id_] = self._open.pop(id_)
        self._ready.append(Failed(id_, one.host, AttemptLost(message, hint, Stage.CHECKOUT, one.host), now()))

    def _cancelled(self, id_: int) -> AttemptCancelled:
        return AttemptCancelled(f"job {self._key(id_)} was cancelled", "", Stage.CHECKOUT, self._open[id_].host)

    def _end(self, id_: int, error: BisectorError) -> None:
        """Give up a job; its host is to forget it, too."""
        one = self._open.pop(id_)
        if one.address in self._hosts:
            self.connection.send(one.address, Word.ACKNOWLEDGE, self._key(id_))
        self._ready.append(Failed(id_, one.host, error, now()))

    def _next_deadline_s(self) -> float:
        silent = [one.silent.remaining_s for one in self._open.values() if one.silent is not None]
        return min([_LOOK_S, *silent])
