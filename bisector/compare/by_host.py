"""The answer of a search in counted time, measured once more by the host's clock: the commit beside its parent.

It is a comparison of its own below the run's directory, so that it is gone on with, looked at and reset like any other,
but no run that is listed: of two runs that were begun for one question the answer is in one. Whatever becomes of it,
the answer stays, and what came of it is told beside (:mod:`bisector.status.host_clock`).
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bisector.bisect import session as bisection
from bisector.campaign.equipment import Equip
from bisector.compare import session
from bisector.compare.plan import CompareRequest
from bisector.config import COUNTED_FRAGMENT, ConfirmBy, GuestClock, Settings, options
from bisector.core.errors import InfraError, Interrupted, UserError
from bisector.core.events import Listener, Note
from bisector.core.setting import AUTO
from bisector.report.reporting import fragment_name
from bisector.status import from_record
from bisector.status.view import HostClock
from bisector.storage.disks import DISKS, FURTHER, Bus
from bisector.store.comparison import Budget, Extent
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

_OF_COUNTED = frozenset((COUNTED_FRAGMENT, *(one for bus in Bus if bus.in_guest for one in bus.fragments)))


def settings_by_host(counted: Settings) -> Settings:
    """What counted time was measured with, as it is by the host's clock.

    CPUs, accelerator, guests and disks are those that the host's clock has where nobody says otherwise: what counted
    time takes in their place is not what a person chose.
    """
    own = {f"storage.{name}": disk for name, disk in counted.storage.disks.items() if disk.guest.bus.in_guest}
    usual = {name: DISKS.get(name.removeprefix("storage."), FURTHER).memory_latency_s for name in own}
    names = {name: fragment_name(Path(name)) if "/" in name else name for name in counted.kernel.fragments}
    values = {
        **json.loads(options.to_json(counted)),
        "bisect.confirm_by": ConfirmBy.NONE,
        "bisect.least_effect": AUTO,
        "machine.clock": GuestClock.HOST,
        "machine.vcpus": AUTO,
        "machine.guests": AUTO,
        "machine.accelerator": AUTO,
        **{f"{name}.bus": AUTO for name in own},
        **{f"{name}.latency": AUTO for name, disk in own.items() if disk.latency_s == usual[name]},
        # Under their own names: a copy of a copy would be called by two numbers, and known to nobody.
        "kernel.fragments": [path if "/" in name else name for path, name in names.items() if name not in _OF_COUNTED],
    }
    return options.from_json(json.dumps(values))


def confirm(run: RunDirectory, store: Store, tell: Listener, equip: Equip) -> None:
    """Measure what is left to measure of it in a locked run that has its answer, then what comes after an answer.

    What fails is told, and no error; raises :class:`Interrupted` alone. Does nothing where nobody asked for it.
    """
    if store.settings.bisect.confirm_by is ConfirmBy.NONE:
        return
    clock, resume = from_record.view(run, store).host_clock, from_record.resume_command(run.path)
    try:
        if clock is not None and clock.is_due:
            tell(Note(clock.plan))
            with _opened(run, store, clock, tell) as (own, own_store):
                session.go_on(own, own_store, tell, equip)
    except Interrupted as error:
        raise Interrupted(
            "interrupted; the answer and everything measured are kept", f"go on with: {resume}"
        ) from error
    except (InfraError, UserError) as error:
        tell(Note(f"the answer stands; by the host's clock it could not be measured: {error}; {resume} tries again"))
    bisection.after_the_answer(run, store, tell)


@contextmanager
def _opened(run: RunDirectory, store: Store, clock: HostClock, tell: Listener) -> Iterator[tuple[RunDirectory, Store]]:
    """The comparison as an earlier process has left it, or a new one."""
    path = Path(clock.run_dir)
    if RunDirectory.is_at(path):
        own = RunDirectory.open(path)
        with own.lock(), Store.open(own.database) as own_store:
            yield own, own_store
        return
    begun = session.begun(
        _asked(store, clock),
        path,
        lambda finding: tell(Note(finding.warning)),
        measures_here=run.hosts is None,
        listed=False,
    )
    with begun as (own, own_store):
        if run.hosts is not None:
            own.remember_hosts(run.hosts)
        yield own, own_store


def _asked(store: Store, clock: HostClock) -> CompareRequest:
    """The parent first; as many pairs as the change takes to show, in the time that the search has left over."""
    row = store.bisection()
    if row.repository is None or clock.parent is None or clock.needed is None:
        raise RuntimeError(f"nothing to confirm: {clock.sentence}")
    budget = next(reversed(store.facts(Budget)), None)
    left_s = None if budget is None else budget.end_s - store.spent_s()
    if left_s is not None and left_s <= 0:
        raise UserError("the budget of the search is spent", "a comparison of its own: bisector compare")
    settings = settings_by_host(store.settings)
    extent = Extent(secrets.randbits(32), clock.needed, budget_s=left_s, delta=settings.bisect.least_effect)
    return CompareRequest(row.repository, (clock.parent.short, clock.first.short), (settings,), extent)
