"""How long the processes of a run worked, from the times of their facts.

Wall clocks may be set, so the time between two facts is taken from the clock that counts from the boot
(clock_getres(2), CLOCK_BOOTTIME), including suspensions; or from wall clocks if the host was booted in between.
"""

import math
from collections.abc import Collection
from datetime import datetime
from typing import Any

from bisector.core.verdict import State
from bisector.store.facts import Ended, Ending, StateChange, Submitted, Work
from bisector.store.log import Log, LogEntry

_Entry = LogEntry[Any]
_Span = tuple[LogEntry[Submitted], LogEntry[Ended]]


def process_s(log: Log) -> float:
    """Seconds of every process, from its beginning to the end that it recorded, or else to its last fact.

    Pauses between processes do not count. What a killed process did after its last fact is not known.
    """
    log.refresh()
    states = log.of(StateChange)
    work: list[_Entry] = [*log.of(Submitted), *log.of(Ended)]
    begun = [n for n, one in enumerate(states) if one.fact.state is State.RUNNING]
    spans = []
    for n, after in zip(begun, (*begun, len(states))[1:], strict=True):
        start, until = states[n], states[after].id if after < len(states) else math.inf
        ends = [one for one in states[n + 1 : after] if one.fact.pid == start.fact.pid]
        known = (one for one in work if start.id < one.id < until)
        spans += [_spent_s(start, ends[-1])] if ends else [max((_spent_s(start, one) for one in known), default=0.0)]
    return math.fsum(spans)


def busiest_host_s(log: Log) -> float:
    """Seconds of submitted work of the host that had the most; the seconds of lost work are not known.

    Seconds in which a host had several jobs count once. Work for which the executor chose the host counts for all.
    """
    seconds: dict[str, float] = {}
    for host, spans in _work_by_host(log, frozenset(Work)).items():
        total_s, last = 0.0, None
        for begin, end in spans:
            before_s = 0.0 if last is None else max(0.0, _between_s(begin, last))  # until the latest end so far
            total_s += max(0.0, _spent_s(begin, end) - before_s)
            last = end if last is None or _between_s(last, end) > 0 else last
        seconds[host] = total_s
    return seconds.pop("", 0.0) + max(seconds.values(), default=0.0)


def build_seconds(log: Log) -> float:
    """Seconds of the submissions that only build, of all hosts together."""
    spans = _work_by_host(log, (Work.BUILD, Work.RECHECK)).values()
    return math.fsum(_spent_s(*span) for of_host in spans for span in of_host)


def _work_by_host(log: Log, kinds: Collection[Work]) -> dict[str, list[_Span]]:
    """The beginning and end of each work by host, in the order of the beginnings."""
    log.refresh()
    ended = {one.fact.submission: one for one in log.of(Ended) if one.fact.ending is not Ending.LOST}
    found: dict[str, list[_Span]] = {}
    for one in log.of(Submitted):
        if one.fact.work in kinds and one.id in ended:
            found.setdefault(one.fact.host, []).append((one, ended[one.id]))
    return found


def _spent_s(begin: _Entry, end: _Entry) -> float:
    """The seconds between two facts, but 0 if a wall clock was set back."""
    return max(0.0, _between_s(begin, end))


def _between_s(first: _Entry, second: _Entry) -> float:
    if first.boot_id == second.boot_id:
        return second.since_boot_s - first.since_boot_s
    return (datetime.fromisoformat(second.at) - datetime.fromisoformat(first.at)).total_seconds()
