"""What several hosts are to each other: who makes an attempt again, who is set aside, what is broken off; pure.

Trouble of one host is no reason to end a run that others can go on with. So what is raised where a host measures the
ends, or answers for what failed on it, sets that host aside; on the last host it ends the run, as it does on a single
one.
"""

from collections.abc import Callable, Iterator, Sequence

from bisector.bisect.failures import pause_before
from bisector.bisect.state import BisectState
from bisector.campaign.instructions import Attempt, Cancel, Done, Instruction, Notify, SetAside, Submit, Wait
from bisector.core.errors import BisectorError, EndsDoNotReproduce
from bisector.executor.base import BuildRequest, ControlRequest
from bisector.trial.runner import TrialRequest

What = Callable[[BisectState], Instruction | None]
After = Callable[[BisectState, Sequence[Attempt]], Submit | Notify | None]


def or_set_aside(facts: BisectState, what: What) -> Instruction | None:
    """What a host is to do by its own trials alone; what is raised meanwhile sets it aside where there are others."""
    try:
        return what(facts.here)
    except BisectorError as error:
        if not facts.is_shared:
            raise
        return SetAside(facts.host, error)


def check_direction(facts: BisectState) -> None:
    """Raise :class:`EndsDoNotReproduce` where the ends differ in one direction here, and in the other one elsewhere.

    Nobody knows then which host is right, unless a person has said which direction is meant.
    """
    if facts.here.judging.line is None or facts.judging.line_on(facts.home) is not None:
        return
    first = next(name for name, own in facts.judging.hosts.items() if own is facts.judging.reference)
    raise EndsDoNotReproduce(
        f"the ends differ one way on {first}, and the other way on {facts.home}",
        "with --expect improvement, or regression, hosts on which they differ the other way are not used",
    )


def worn_out(facts: BisectState) -> SetAside | None:
    """A host on which all attempts failed of late, while there are others."""
    failures = facts.transient.failures.get(facts.host, ())
    if len(failures) < facts.scope.policy.attempts or not facts.is_shared:
        return None
    return SetAside(facts.host, failures[-1])


def follow_up(facts: BisectState, attempts: Sequence[Attempt], after: After) -> Iterator[Instruction]:
    """What follows on the last attempt of a matter, as far as it is for this host to do.

    A trial of the search that failed is made again by another host, at once, where there is one. What is of one host
    alone is for that host: its ends, and whether it still works.
    """
    host = attempts[-1].news.host
    others = [one for one in facts.hosts if one != host]
    try:
        found = after(facts.on(host), attempts)
    except BisectorError as error:
        if error.skippable or not others:
            raise
        yield SetAside(host, error)
        return
    if isinstance(found, Submit) and _goes_elsewhere(facts, found):
        if facts.host != host:
            yield found
        elif not others:
            yield pause_before(facts, attempts, found) or found
    elif found is not None and (facts.host == host or (host not in facts.hosts and not _is_of_its_host(facts, found))):
        yield (pause_before(facts, attempts, found) if isinstance(found, Submit) else None) or found


def once_all_has_ended(facts: BisectState, found: Instruction) -> Instruction:
    """The same; an end of the search comes after that of everything in flight, which nobody needs any more.

    Where there is no time to begin another trial, the trials in flight still tell something, and are waited for;
    kernels that are being built are not.
    """
    if not isinstance(found, Done):
        return found
    needless = set(facts.builds_in_flight)
    if not found.out_of_time:
        needless |= {id_ for id_, one in facts.in_flight.items() if isinstance(one.request, TrialRequest)}
        needless -= facts.transient.cancelled
    return next(map(Cancel, sorted(needless)), Wait() if facts.in_flight else found)


def _goes_elsewhere(facts: BisectState, submit: Submit) -> bool:
    return isinstance(submit.request, TrialRequest) and not _is_of_its_host(facts, submit)


def _is_of_its_host(facts: BisectState, found: Submit | Notify | None) -> bool:
    """Whether no other host can do it."""
    if not isinstance(found, Submit) or isinstance(found.request, BuildRequest):
        return False
    return isinstance(found.request, ControlRequest) or found.request.commit in facts.scope.ends
