"""Confirmation of a search in counted time by the host's clock: the commit found is compared with its parent.

The comparison has a directory below the run's, so that it is resumed, shown and reset like any other; it is not listed,
since a list with two runs for one question would not show which has the answer. Whatever its outcome, the answer
stays, and the outcome is told beside it (:mod:`bisector.status.host_clock`).
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bisector.bisect import session as bisection
from bisector.campaign.equipment import MeasurerFactory
from bisector.compare import session
from bisector.compare.plan import CompareRequest
from bisector.config import COUNTED_FRAGMENT, ConfirmBy, GuestClock, Settings, options
from bisector.core.errors import InfraError, Interrupted, UserError
from bisector.core.events import Listener, Note
from bisector.core.setting import AUTO
from bisector.report.reporting import fragment_name
from bisector.status import from_record
from bisector.status.view import HostClock
from bisector.storage.disks import DISKS, EXTRA_DISK, Bus
from bisector.store.comparison import Budget, Extent
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

_OF_COUNTED = frozenset((COUNTED_FRAGMENT, *(one for bus in Bus if bus.in_guest for one in bus.fragments)))


def settings_by_host(counted: Settings) -> Settings:
    """Return the settings of a run in counted time, changed for the host's clock.

    CPUs, accelerator, guests and disks get the defaults of the host's clock, since their values in counted time were
    required by that clock rather than chosen by a person.
    """
    own = {f"storage.{name}": disk for name, disk in counted.storage.disks.items() if disk.guest.bus.in_guest}
    usual = {name: DISKS.get(name.removeprefix("storage."), EXTRA_DISK).memory_latency_s for name in own}
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
        # By their original names: the file name of a copy of a copy would have two numbers, and be unknown.
        "kernel.fragments": [path if "/" in name else name for path, name in names.items() if name not in _OF_COUNTED],
    }
    return options.from_json(json.dumps(values))


def confirm(run: RunDirectory, store: Store, tell: Listener, equip: MeasurerFactory) -> None:
    """Measure what is left of the confirmation of a locked run that has its answer, then finish that run.

    A failure is told and not raised, except :class:`Interrupted`. Does nothing if no confirmation is asked for.
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
    """Open the comparison of an earlier process, or begin a new one; it is locked until the context exits."""
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
    """The request: the parent is the first arm; it asks for the pairs that the change needs, within the time left."""
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
