"""What was found out about a machine, for people; of several machines side by side."""

from collections.abc import Iterator, Mapping, Sequence

from bisector.core import units
from bisector.core.errors import Finding, Grade
from bisector.host.packages import merged
from bisector.report.blocks import Block, Fact, FactList, Paragraph, Role

_ROLES = {Grade.OK: Role.BETTER, Grade.WARN: Role.SKIP, Grade.MISSING: Role.WORSE, Grade.INFO: Role.DIM}
_STATE_WIDTH = max(len(grade) for grade in Grade)


def finding_blocks(findings: Sequence[Finding]) -> tuple[Block, ...]:
    """A row for each finding with its remedy below, and what they come to."""
    width = max(len(finding.name) for finding in findings)
    rows = tuple(_fact(finding.name, width, finding, finding.what) for finding in findings)
    missing = [finding for finding in findings if finding.state is Grade.MISSING]
    what, role = "`bisector start` can begin here", Role.STRONG
    if missing:
        what = f"`bisector start` would fail: {len(missing)} missing"
    commands = merged(finding.remedy for finding in missing if finding.remedy)
    said = Paragraph(what + _warnings(findings), role)
    return _list(rows, width), said, FactList(tuple(Fact("", command=command) for command in commands))


def _fact(name: str, width: int, finding: Finding, text: str) -> Fact:
    label = f"{name:<{width}}  {finding.state}"
    return Fact(label, (text,), command=finding.remedy, label_role=_ROLES[finding.state])


def _list(rows: tuple[Fact, ...], width: int) -> FactList:
    return FactList(rows, width + 2 + _STATE_WIDTH)


def _warnings(findings: Sequence[Finding]) -> str:
    count = sum(finding.state is Grade.WARN for finding in findings)
    return f", {units.plural(count, 'warning')}" if count else ""


def side_by_side(found: Mapping[str, Sequence[Finding]]) -> tuple[Block, ...]:
    """The rows of all machines, by their names, and what they come to; machines that have a row alike share it."""
    # In the order of the machine that has most rows; others' own come last.
    longest = sorted(found.values(), key=len, reverse=True)
    names = list(dict.fromkeys(finding.name for findings in longest for finding in findings))
    width = max(map(len, names), default=0)
    sums = (Fact(machine, (_sum(findings),), Role.STRONG) for machine, findings in found.items())
    return _list(tuple(_rows(found, names, width)), width), FactList(tuple(sums))


def _rows(found: Mapping[str, Sequence[Finding]], names: Sequence[str], width: int) -> Iterator[Fact]:
    for name in names:
        alike: dict[Finding, list[str]] = {}
        for machine, findings in found.items():
            for finding in findings:
                if finding.name == name:
                    alike.setdefault(finding, []).append(machine)
        for place, (finding, machines) in enumerate(alike.items()):
            who = f"all {len(found)}" if len(machines) == len(found) > 1 else ", ".join(machines)
            yield _fact("" if place else name, width, finding, f"{who}: {finding.what}")


def _sum(findings: Sequence[Finding]) -> str:
    missing = dict.fromkeys(finding.name for finding in findings if finding.state is Grade.MISSING)
    if len(findings) <= 1:  # why, is in its row
        return "was not looked at"
    if missing:
        return f"`bisector start` would fail there{_warnings(findings)}; missing: {', '.join(missing)}"
    return f"`bisector start` can begin there{_warnings(findings)}"
