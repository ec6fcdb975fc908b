"""The jobs of every night: a TOML file, which is read and checked as a whole before anything is fetched."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from bisector.config import Settings, options
from bisector.config.option_table import by_key
from bisector.config.options import Given
from bisector.core import resources, setting
from bisector.core.errors import UserError
from bisector.core.setting import Line, Meta, Unfit, Words
from bisector.core.verdict import Direction
from bisector.mail.compose import parse

_NAME = r"^(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?$"
# The night decides these, since the direction of a change is known only then.
_DECIDED = {"bisect.expect": "direction", "bisect.terms": "direction"}
# Settings without influence on a value. If any other setting changes, values of two nights cannot be compared.
_WITHOUT_INFLUENCE = (
    *("bisect.", "contention.", "mail.", "notify.", "kernel.jobs", "kernel.build_deadline", "kernel.recheck"),
    *("machine.boot_deadline", "machine.silence_deadline", "machine.trial_deadline"),
)
_DECIDING = ("bisect.metric", "bisect.over")  # values of two metrics are not compared


class TipRule(StrEnum):
    """Which commit the tip is compared with: the old end of a range."""

    LAST_GOOD = "last-good"
    NEWEST_TAG = "newest-tag"


class Wanted(StrEnum):
    """Which changes are bisected; others are only kept in the history."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    BOTH = "both"

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions of change that are bisected."""
        return tuple(Direction) if self is Wanted.BOTH else (Direction(self.value),)


class Send(StrEnum):
    """Whether a report is drafted or sent."""

    DRAFT = "draft"
    SEND = "send"


@dataclass(frozen=True, slots=True)
class NightJob:
    """One branch on one storage stack, with the ``settings`` of each direction that is bisected.

    Reports go to ``to``, which may be a list with many readers; failures go to ``notify``. ``conditions`` is a digest
    of everything that a value depends on except the commit and the host.
    """

    name: str
    repository: Path
    remote: str
    branch: str
    rule: TipRule
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
        """The settings that the tip is measured with, which do not depend on the direction."""
        return next(iter(self.settings.values()))


@dataclass(frozen=True, slots=True)
class NightPlan:
    """All jobs of a night, and the hours they share."""

    path: Path
    budget_hours: float
    jobs: tuple[NightJob, ...]

    @property
    def budget_s(self) -> float:
        """The hours of a night, in seconds."""
        return self.budget_hours * 3600.0


@dataclass(frozen=True, slots=True)
class _Field:
    """A key of a table: the type of its values, and the default; None if the key is required."""

    kind: Any
    default: object = None


_GitWord = Annotated[str, Meta(pattern=r"^[^-\s]\S*$", description="a name as git knows it")]
_Addresses = Annotated[Words, Meta(description="an address or a list of them")]

# Laid out as tables, since they are read as such.
# fmt: off
_TOP: Mapping[str, _Field] = {
    "budget_hours": _Field(Annotated[float, Meta(
        gt=0, le=sys.float_info.max, description="a number of hours, more than 0")], 8.0),
    "notify":       _Field(_Addresses, []),
}
_JOB: Mapping[str, _Field] = {
    "name":       _Field(Annotated[str, Meta(
        pattern=_NAME, description="a short name of letters, digits, - _ and .")]),
    "repository": _Field(Path),
    "remote":     _Field(_GitWord, "origin"),
    "branch":     _Field(_GitWord),
    "range":      _Field(TipRule, "last-good"),
    "tags":       _Field(Annotated[Line, Meta(description="a pattern such as v*")], "v*"),
    "direction":  _Field(Wanted, "regression"),
    "paths":      _Field(Annotated[Words, Meta(description="a path or a list of them")], []),
    "report":     _Field(Send, "draft"),
    "to":         _Field(_Addresses, []),
    "notify":     _Field(_Addresses, []),
}
# fmt: on


def load(path: Path) -> NightPlan:
    """Read the plan from a file; raises :class:`UserError` that names file, job and key."""
    table = options.read(path)
    raw_jobs = table.pop("job", [])
    if not isinstance(raw_jobs, list) or not raw_jobs or not all(isinstance(one, dict) for one in raw_jobs):
        raise UserError(f"{path}: there is no job in it", "write one [[job]] or several; `bisector nightly --help`")
    shared = table.pop("settings", {})
    top = _fields(_TOP, table, f"{path}", path.parent)
    common = dict(_given(shared, f"{path}", path.parent))
    jobs: list[NightJob] = []
    for number, raw in enumerate(raw_jobs, 1):
        where = f"{path}, job {number}"
        job = _job(raw, common, top["notify"], where, path.parent.absolute())
        if job.name in [other.name for other in jobs]:
            raise UserError(f"{where}: there is a job {job.name} already", "names tell jobs apart")
        jobs.append(job)
    return NightPlan(path.absolute(), top["budget_hours"], tuple(jobs))


def _fields(fields: Mapping[str, _Field], table: Mapping[str, object], where: str, base: Path) -> dict[str, Any]:
    if unknown := [key for key in table if key not in fields]:
        known = ", ".join((*fields, "settings"))
        raise UserError(f"{where}: there is no key {unknown[0]} here", f"there are: {known}")
    values = {}
    for key, field in fields.items():
        if key not in table and field.default is None:
            raise UserError(f"{where}: a job needs {key}", f"{key} = …: {setting.expected(field.kind)}")
        raw = table.get(key, field.default)
        try:
            values[key] = setting.read(field.kind, raw, base)
        except Unfit as error:
            shown, expected = options.literal(raw), setting.expected(field.kind)
            raise UserError(f"{where}: {key} = {shown}: expected {expected}") from error
    return values


def _given(table: object, where: str, base: Path) -> Iterator[tuple[str, Given]]:
    if not isinstance(table, dict):
        raise UserError(f"{where}: settings is a table, of the keys of bisector.toml")
    known = frozenset(by_key(key for key, _ in options.flatten(table, frozenset())))
    for key, raw in options.flatten(table, known):
        if key in _DECIDED:
            raise UserError(f"{where}: {key} is decided each night", f"say which changes are wanted: {_DECIDED[key]}")
        yield key, Given(raw, where, base)


def _job(
    raw: Mapping[str, object], common: Mapping[str, Given], notify: tuple[str, ...], where: str, base: Path
) -> NightJob:
    own = {key: value for key, value in raw.items() if key != "settings"}
    values = _fields(_JOB, own, where, base)
    given = {**common, **dict(_given(raw.get("settings", {}), where, base))}
    settings = {
        one: options.from_given({**given, "bisect.expect": Given(one.value, where)}).settings
        for one in values["direction"].directions
    }
    values |= {"rule": values.pop("range"), "wanted": values.pop("direction"), "notify": values["notify"] or notify}
    job = NightJob(**values, settings=settings, conditions=conditions(next(iter(settings.values()))))
    # All nights have to search the same files, so the searched commit must not move with the branch.
    workload = job.measuring.workload
    clone = workload.workload.clone()
    if clone is not None and clone.revision == "HEAD":
        hint = 'in [job.settings]: workload.gitgrep.commit = "v6.1", say'
        raise UserError(f"{where}: every night has to search the same files, and HEAD moves", hint)
    if job.report is Send.SEND and not job.to:
        raise UserError(f'{where}: report = "send": to whom?', 'to = ["LIST@HOST"], or report = "draft"')
    for key, addresses in (("to", job.to), ("notify", job.notify)):
        try:
            parse(addresses)
        except UserError as error:
            raise UserError(f"{where}: {key}: {error.message}", error.hint) from error
    if (job.report is Send.SEND or job.notify) and not job.measuring.mail.host:
        hint = 'in [settings]: mail.host = "…", as in bisector.toml'
        raise UserError(f"{where}: there is no mail server to send with", hint)
    return job


def conditions(settings: Settings) -> str:
    """A digest of the settings that a value depends on, and of the files they name."""
    written = options.written_values(settings)
    profile = options.from_given({"profile": Given(settings.profile, "")}).settings
    usual = options.usual(settings) | options.written_values(profile)  # only the first has the keys of further disks
    # Only what differs from the profile, so that a setting added by a later version of bisector ends no history.
    matters = {key for key in written if key in _DECIDING or not key.startswith(_WITHOUT_INFLUENCE)}
    own = {key: value for key, value in written.items() if key in matters and value != usual[key]}
    digest = hashlib.sha256(json.dumps([settings.profile, own], sort_keys=True).encode())
    fragments = map(resources.fragment, settings.kernel.fragments)
    base = settings.kernel.base_config
    for file in (*([base] if base else []), *settings.workload.inputs.values(), *fragments):
        try:
            digest.update(file.read_bytes())
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}") from error
    return digest.hexdigest()[:16]
