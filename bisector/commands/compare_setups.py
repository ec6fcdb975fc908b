"""What ``compare`` is asked to measure on: every stack that is typed, with every workload that is typed."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TypeAlias

from bisector.commands.arguments import given_settings
from bisector.commands.effective import effective
from bisector.compare.plan import is_image
from bisector.config import Settings
from bisector.config.options import Given
from bisector.core.setting import Option
from bisector.storage.stack import stack_of
from bisector.workload.workloads import WORKLOADS, chooser

# What one word chooses: the settings, by key, that make a setup another one than the others.
_Chosen: TypeAlias = Mapping[str, Given]

_STACK, _KIND = "storage.stack", "workload.kind"


def add(verb: argparse.ArgumentParser) -> None:
    """``--stack``, ``--workload``, and the flag of each workload that chooses it, all of them repeatable."""
    verb.add_argument(
        "--stack",
        action="append",
        default=[],
        metavar="STACK",
        help="storage stack; repeatable (default: the setting's)",
    )
    of_workloads = partial(verb.add_argument, dest="workloads", action="append", default=[])
    for kind, row in _choosers():
        help_line = f"{row.help}; repeatable".replace("%", "%%")
        of_workloads(row.flag, type=partial(_by_own, kind, row), metavar=row.metavar, help=help_line)
    of_workloads("--workload", type=_by_name, metavar="NAME", help="workload; repeatable")


def keys() -> frozenset[str]:
    """The settings that these flags take the place of."""
    return frozenset((_STACK, _KIND, *(row.key for _, row in _choosers())))


def settings_of(arguments: argparse.Namespace) -> tuple[Settings, ...]:
    """The settings of each setup: every stack with every workload, as typed; raises :class:`UserError`."""
    given = given_settings(arguments)
    by_set = [{_STACK: given[_STACK]}] if _STACK in given else []
    stacks = [*({_STACK: Given(stack, "--stack")} for stack in arguments.stack), *by_set] or [{}]
    workloads = _each_once([*arguments.workloads, *_of_settings(given)]) or [{}]
    each = ({**given, **stack, **workload} for workload, stack in product(workloads, stacks))
    # A disk of one of them need not be one of the others'.
    disks_of = tuple(stack_of(str(one[_STACK].raw)) for one in stacks if one)
    commits, here = [one for one in arguments.subjects if not is_image(one)], arguments.hosts is None
    return tuple(effective(arguments, *commits, given=one, stacks=disks_of, here=here).settings for one in each)


def _choosers() -> Iterator[tuple[str, Option]]:
    """The names of workloads that a flag of their own chooses, and the rows of these flags."""
    found = ((one.name, chooser(one)) for one in WORKLOADS.values())
    yield from ((kind, row) for kind, row in found if row is not None and row.flag)


def _by_own(kind: str, row: Option, text: str) -> _Chosen:
    return {_KIND: Given(kind, row.flag), row.key: Given(text, row.flag)}


def _by_name(text: str) -> _Chosen:
    return {_KIND: Given(text, "--workload")}


def _of_settings(given: Mapping[str, Given]) -> Iterator[_Chosen]:
    """Those that ``--set`` chooses: beside the flags each is one more."""
    if _KIND in given:
        yield {_KIND: given[_KIND]}
    for workload in WORKLOADS.values():
        if (own := given.get(workload.chosen_by)) is not None:
            yield {_KIND: Given(workload.name, own.origin), workload.chosen_by: own}


def _each_once(chosen: Sequence[_Chosen]) -> list[_Chosen]:
    """As with other commands a name says nothing more where the workload's own flag is typed, too."""
    own = {one[_KIND].raw for one in chosen if len(one) > 1}
    return [one for one in chosen if len(one) > 1 or one[_KIND].raw not in own]
