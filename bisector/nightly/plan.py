"""What a person wants done every night: a TOML file, read and checked as a whole before anything is fetched."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

from bisector.config import Settings, options
from bisector.config import file as configfile
from bisector.config.option_table import by_key
from bisector.config.options import Given
from bisector.core import kinds, resources
from bisector.core.errors import UserError
from bisector.core.kinds import Kind, Unfit
from bisector.core.verdict import Direction
from bisector.mail.addresses import parse

_JOB_HEADER = re.compile(r"\s*\[\[\s*job\s*\]\]\s*(?:#.*)?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?")
# The night decides these: which way the figure changed is known only then.
_DECIDED = {"bisect.expect": "direction", "bisect.terms": "direction"}
# What has no part in a figure; everything else makes figures of two nights comparable, or not.
_NO_PART = (
    *("bisect.", "contention.", "mail.", "notify.", "kernel.jobs", "kernel.build_deadline", "kernel.recheck"),
    *("machine.boot_deadline", "machine.silence_deadline", "machine.trial_deadline"),
)
_DECIDING = ("bisect.metric", "bisect.over")  # values of two metrics are not compared


class Rule(StrEnum):
    """Which commit the tip is compared with, and so the old end of a range."""

    LAST_GOOD = "last-good"
    NEWEST_TAG = "newest-tag"


class Wanted(StrEnum):
    """Which changes are bisected; others are in the history only."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    BOTH = "both"

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions of change that are bisected."""
        return tuple(Direction) if self is Wanted.BOTH else (Direction(self.value),)


class Send(StrEnum):
    """What becomes of a report."""

    DRAFT = "draft"
    SEND = "send"


@dataclass(frozen=True, slots=True)
class Job:
    """One branch on one storage stack; ``settings`` are those of each direction that is bisected.

    Reports are for ``to``, which may be a list that many read; what failed is for ``notify``.

    ``conditions`` is a digest of all that a figure depends on but the commit and the host.
    """

    name: str
    repository: Path
    remote: str
    branch: str
    rule: Rule
    tags: str
    wanted: Wanted
    paths: tuple[str, ...]
    report: Send
    to: tuple[str, ...]
    notify: tuple[str, ...]
    settings: Mapping[Direction, Settings]
    conditions: str

    @property
    def measuring(self) -> Settings:
        """What the tip is measured with; it does not depend on the direction."""
        return next(iter(self.settings.values()))


@dataclass(frozen=True, slots=True)
class Plan:
    """All jobs of a night, and the hours they have together."""

    path: Path
    budget_hours: float
    jobs: tuple[Job, ...]

    @property
    def budget_s(self) -> float:
        """The hours of a night, in seconds."""
        return self.budget_hours * 3600.0


@dataclass(frozen=True, slots=True)
class _Field:
    """A key of a table: its kind, its value when it is not given (None: it has to be)."""

    kind: Kind
    default: object = None


def _job_name() -> Kind:
    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or not _NAME.fullmatch(raw) or ".." in raw or raw.endswith(".lock"):
            raise Unfit
        return raw

    return Kind("a short name of letters, digits, - _ and .", read, str)


def _git_word() -> Kind:
    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or not raw.isprintable() or not raw.strip() or raw.startswith("-") or " " in raw:
            raise Unfit
        return raw

    return Kind("a name as git knows it", read, str)


def _texts(expected: str) -> Kind:
    def read(raw: object, _base: Path | None) -> tuple[str, ...]:
        words = [raw] if isinstance(raw, str) else raw
        if not isinstance(words, list) or not all(isinstance(one, str) and one.strip() for one in words):
            raise Unfit
        return tuple(words)

    return Kind(expected, read, list)


# Read as tables, so laid out as such.
# fmt: off
_TOP: Mapping[str, _Field] = {
    "budget_hours": _Field(kinds.number(0, "hours", above=True), 8.0),
    "notify":       _Field(_texts("an address or a list of them"), []),
}
_JOB: Mapping[str, _Field] = {
    "name":       _Field(_job_name()),
    "repository": _Field(kinds.file()),
    "remote":     _Field(_git_word(), "origin"),
    "branch":     _Field(_git_word()),
    "range":      _Field(kinds.choice(Rule), "last-good"),
    "tags":       _Field(kinds.text("a pattern such as v*"), "v*"),
    "direction":  _Field(kinds.choice(Wanted), "regression"),
    "paths":      _Field(_texts("a path or a list of them"), []),
    "report":     _Field(kinds.choice(Send), "draft"),
    "to":         _Field(_texts("an address or a list of them"), []),
    "notify":     _Field(_texts("an address or a list of them"), []),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the file's text, from its ``first`` line on, so that a key is found where it is meant."""

    shown: Path
    text: str
    first: int
    prefix: str = ""

    def origin(self, key: str) -> str:
        """``FILE:LINE``, or the file alone for a key that is well hidden."""
        line = configfile.line_of(self.text, self.prefix + key)
        return f"{self.shown}:{self.first + line - 1}" if line else f"{self.shown}"


def load(path: Path) -> Plan:
    """The plan of a file; raises :class:`UserError` that names file, line and key."""
    text, table = configfile.read(path)
    head, *bodies = _parts(path, text)
    raw_jobs = table.pop("job", [])
    if not isinstance(raw_jobs, list) or not raw_jobs or not all(isinstance(one, dict) for one in raw_jobs):
        raise UserError(f"{path}: there is no job in it", "write one [[job]] or several; `bisector nightly --help`")
    shared = table.pop("settings", {})
    top = _fields(_TOP, table, head, path.parent)
    common = dict(_given(shared, "settings.", _Part(path, text, 1), path.parent))
    # Where the two counts differ (a job written as an inline table), lines are looked for in the whole file.
    parts = bodies if len(bodies) == len(raw_jobs) else [_Part(path, text, 1)] * len(raw_jobs)
    jobs = tuple(_job(raw, common, top["notify"], part) for raw, part in zip(raw_jobs, parts, strict=True))
    for number, job in enumerate(jobs):
        if job.name in [other.name for other in jobs[:number]]:
            raise UserError(
                f"{parts[number].origin('name')}: there is a job {job.name} already", "names tell jobs apart"
            )
    return Plan(path.absolute(), top["budget_hours"], jobs)


def _parts(path: Path, text: str) -> Iterator[_Part]:
    """What stands before the first job, then each job's text."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _JOB_HEADER.fullmatch(line)]
    yield _Part(path, "\n".join(lines[: starts[0]] if starts else lines), 1)
    for start, end in pairwise([*starts, len(lines)]):
        yield _Part(path, "\n".join(lines[start + 1 : end]), start + 2)


def _fields(fields: Mapping[str, _Field], table: Mapping[str, object], part: _Part, base: Path) -> dict[str, Any]:
    for key in table:
        if key not in fields:
            known = ", ".join((*fields, "settings"))
            raise UserError(f"{part.origin(key)}: there is no key {key} here", f"there are: {known}")
    return {key: _value(key, field, table, part, base) for key, field in fields.items()}


def _value(key: str, field: _Field, table: Mapping[str, object], part: _Part, base: Path) -> object:
    if key not in table and field.default is None:
        raise UserError(
            f"{part.shown}:{max(1, part.first - 1)}: a job needs {key}", f"{key} = …: {field.kind.expected}"
        )
    raw = table.get(key, field.default)
    try:
        return field.kind.read(raw, base)
    except Unfit as error:
        shown = configfile.literal(raw)
        raise UserError(f"{part.origin(key)}: {key} = {shown}: expected {field.kind.expected}") from error


def _given(table: object, prefix: str, part: _Part, base: Path) -> Iterator[tuple[str, Given]]:
    """Settings by key, with the lines they are in."""
    if not isinstance(table, dict):
        raise UserError(f"{part.origin(prefix.rstrip('.'))}: settings is a table, of the keys of bisector.toml")
    known = frozenset(by_key(key for key, _ in configfile.flatten(table, frozenset())))
    for key, raw in configfile.flatten(table, known):
        origin = part.origin(prefix + key)
        if key in _DECIDED:
            raise UserError(f"{origin}: {key} is decided each night", f"say which changes are wanted: {_DECIDED[key]}")
        yield key, Given(raw, origin, base)


def _job(raw: Mapping[str, object], common: Mapping[str, Given], notify: tuple[str, ...], part: _Part) -> Job:
    base = part.shown.parent.absolute()
    own = {key: value for key, value in raw.items() if key != "settings"}
    values = _fields(_JOB, own, part, base)
    given = {**common, **dict(_given(raw.get("settings", {}), "job.settings.", part, base))}
    settings = {
        one: options.from_given({**given, **_direction(one, part)}).settings for one in values["direction"].directions
    }
    job = Job(
        name=values["name"],
        repository=values["repository"],
        remote=values["remote"],
        branch=values["branch"],
        rule=values["range"],
        tags=values["tags"],
        wanted=values["direction"],
        paths=values["paths"],
        report=values["report"],
        to=values["to"],
        notify=values["notify"] or notify,
        settings=settings,
        conditions=conditions(next(iter(settings.values()))),
    )
    _check_post(job, part)
    _check_clone(job.measuring, part)
    return job


def _check_clone(settings: Settings, part: _Part) -> None:
    """Figures of nights are of the same files: what is searched through may not move with the branch."""
    clone = settings.workload.workload.clone(settings.workload.values)
    if clone is not None and clone.revision == "HEAD":
        raise UserError(
            f"{part.origin('name')}: every night has to search the same files, and HEAD moves",
            'in [job.settings]: workload.gitgrep.commit = "v6.1", say',
        )


def _check_post(job: Job, part: _Part) -> None:
    """Whether letters that are to be sent can be."""
    if job.report is Send.SEND and not job.to:
        raise UserError(
            f'{part.origin("report")}: report = "send": to whom?', 'to = ["LIST@HOST"], or report = "draft"'
        )
    for key, addresses in (("to", job.to), ("notify", job.notify)):
        try:
            parse(addresses)
        except UserError as error:
            raise UserError(f"{part.origin(key)}: {key}: {error.message}", error.hint) from error
    if (job.report is Send.SEND or job.notify) and not job.measuring.mail.host:
        raise UserError(
            f"{part.origin('report' if job.report is Send.SEND else 'notify')}: there is no mail server to send with",
            'in [settings]: mail.host = "…", as in bisector.toml',
        )


def _direction(direction: Direction, part: _Part) -> dict[str, Given]:
    return {"bisect.expect": Given(direction.value, part.origin("direction"))}


def conditions(settings: Settings) -> str:
    """A digest of the settings that a figure depends on, and of the files they name."""
    written = options.written_values(settings)
    profile = options.from_given({"profile": Given(settings.profile, "")}).settings
    usual = options.usual(settings) | options.written_values(profile)  # of further disks only the first has the rows
    # Only what differs from the profile: a setting that a later version of the tool has more ends no history.
    own = {key: value for key, value in written.items() if value != usual[key] and _matters(key)}
    digest = hashlib.sha256(json.dumps([settings.profile, own], sort_keys=True).encode())
    fragments = (resources.fragment(one) if "/" not in one else Path(one) for one in settings.kernel.fragments)
    base = settings.kernel.base_config
    for file in (*([base] if base else []), *settings.workload.inputs.values(), *fragments):
        try:
            digest.update(file.read_bytes())
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}") from error
    return digest.hexdigest()[:16]


def _matters(key: str) -> bool:
    return key in _DECIDING or not key.startswith(_NO_PART)
