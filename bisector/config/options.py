"""Effective settings: flags over ``bisector.toml`` over a person's own over a profile, with the origin of each value.

What settings there are is in :mod:`bisector.config.option_table`, what cannot be combined in
:mod:`bisector.config.checks`.
"""

import difflib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from bisector.config import (
    KEEPS_DATA,
    GuestClock,
    MachineSettings,
    Part,
    Settings,
    StorageSettings,
    checks,
    disk_table,
    file,
)
from bisector.config.following import OF_LAYERS, OF_WORKLOADS, deciding, objective_of, resolved
from bisector.config.option_table import PROFILES, by_key, rows
from bisector.core import kinds, resources
from bisector.core.errors import UserError
from bisector.core.kinds import AUTO, Option, Problem
from bisector.core.metric import is_of_split
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.storage.disks import DISKS, Bus
from bisector.storage.layer import Since
from bisector.storage.stack import Stack
from bisector.workload.workloads import WORKLOADS

CONFIG_FILE = "bisector.toml"
_CLOCK = "machine.clock"
_STACK, _HOST, _TREE = FOLLOWING = "the stack", "this host", "the oldest tree"  # what values follow from
# What :func:`bisector.config.following.resolved` makes other settings follow from.
_LEADING = (
    *("bisect.metric", "bisect.over", "bisect.part", "kernel.base_config"),
    *("mail.security", "storage.stack", "workload.kind"),
)
# What people write for a login that is not to be in a file of settings.
_SECRETS = frozenset(f"mail.{name}" for name in ("password", "passwd", "pass", "username", "user", "login"))
# Settings that there were, and what has become of them.
_GONE = {
    "bisect.min_ends_ratio": "the ends are read in turn until they are told apart, and bisect.least_effect is the "
    "smallest change that is looked for: 5% for a factor of 1.05"
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Given:
    """A raw value and where it was written; ``base`` is where its relative paths start.

    ``typed`` is a word of the command line, which has no types yet.
    """

    raw: object
    origin: str
    base: Path | None = None
    typed: bool = False


@dataclass(frozen=True, slots=True)
class Effective:
    """The settings that hold, and for each key where its value comes from."""

    settings: Settings
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of ``bisector settings``; ``value`` is as a person would write it."""

    key: str
    value: str
    origin: str
    help: str


Flags = Mapping[str, str | Sequence[str] | Given]


def load(
    flags: Flags | None = None,
    config: Path | None = None,
    *,
    directory: Path | None = None,
    stacks: Collection[Stack] = (),
    trees_have: Callable[[Since], bool] = lambda since: True,
    could_count: Callable[[MachineSettings, StorageSettings], bool] = lambda machine, storage: False,
) -> Effective:
    """Flags (by key) over the configuration file over the person's own over a profile, checked.

    Without ``config``, ``bisector.toml`` of ``directory`` (the current one) is read when it is there. A disk of the
    command line has to be one of the stack's, or of further ``stacks``. ``trees_have`` says of what is measured whether
    every tree has something, ``could_count`` whether guests would be emulated by the host's clock, and could count
    their instructions instead: then they do, unless something that is given is in the way. Raises :class:`UserError`.
    """
    directory = directory or Path.cwd()
    given = {**_from_files(config, directory), **_from_flags(flags or {}, directory)}
    effective = from_given(given, stacks)
    clock, machine = given.get(_CLOCK), effective.settings.machine
    if (clock is None or clock.raw == AUTO) and could_count(machine, effective.settings.storage):
        counted = {**given, _CLOCK: Given(GuestClock.INSTRUCTIONS.value, _HOST)}
        with suppress(UserError):  # two virtual CPUs are given, say, or a bus of the host's
            effective, given = from_given(counted, stacks), counted
    if (chosen := _on_null_blk(effective, given)) and not trees_have(KEEPS_DATA):
        # All disks of a run are of one kind, whatever the newer trees have.
        given |= {key: Given(Bus.BRD.value, _TREE) for key in chosen}
        effective = from_given(given, stacks)
    typed = (key for key, one in given.items() if one.typed)
    disk_table.refuse_unused(typed, (effective.settings.storage.stack, *stacks))
    return effective


def _on_null_blk(effective: Effective, given: Mapping[str, Given]) -> list[str]:
    """The keys of the buses that came to be null_blk without being asked for."""
    disks = effective.settings.storage.disks
    keys = {f"storage.{name}.bus": disk.guest.bus for name, disk in disks.items()}
    return [key for key, bus in keys.items() if bus is Bus.NULL_BLK and key not in given]


def from_given(given: Mapping[str, Given], stacks: Collection[Stack] = ()) -> Effective:
    """What is given (by key) over a profile, checked; raises :class:`UserError`.

    On all of ``stacks`` the same is to be measured.
    """
    given, known = dict(given), by_key(given)
    for key, one in given.items():
        if key not in known:
            refuse_key(key, one.origin)
    _choose_workload(given)
    profile = given.get("profile", Given("quick", "profile quick"))
    given["profile"] = profile
    name = _parse(known["profile"], profile)
    for option in known.values():
        given.setdefault(option.key, Given(option.in_profile(name), f"profile {name}"))
    values = {option.field: _parse(option, given[key]) for key, option in known.items()}
    settled = resolved(values, stacks)
    settings = _assemble(Settings, settled)
    origins = {key: given[key].origin for key in known}
    own = [option for option in known.values() if option.field.startswith(OF_WORKLOADS)]
    followed = (option for option in own if values[option.field] is None and settled[option.field] is not None)
    origins |= {option.key: _STACK for option in followed}
    if values["bisect.metric"] is None and (named_by := deciding(values).named_by):
        origins |= {key: named_by for key in ("bisect.metric", "bisect.over") if values[key] is None}
    if values["bisect.metric"] is None and is_of_split(settled["bisect.metric"]):
        origins["bisect.metric"] = _STACK if values["bisect.part"] is Part.AUTO else given["bisect.part"].origin
    effective = Effective(settings, origins)
    _refuse(effective, checks.first_problem(settings))
    return effective


def _choose_workload(given: dict[str, Given]) -> None:
    """Whoever gives a command means the workload of that name; a job in a file means less than a command that is typed.

    Raises :class:`UserError` where both are typed.
    """
    chosen = {one.name: given[one.chosen_by] for one in WORKLOADS.values() if one.chosen_by in given}
    typed = {name: one for name, one in chosen.items() if one.typed} or chosen
    if "workload.kind" in given or not chosen:
        return
    if len(typed) > 1:
        (first, one), (other, another), *_ = typed.items()
        raise UserError(
            f"{one.origin} is of the workload {first}, and {another.origin} of the workload {other}",
            "leave one of them out, or name the --workload",
        )
    ((name, one),) = typed.items()
    given["workload.kind"] = Given(name, one.origin)


def _from_files(config: Path | None, directory: Path) -> dict[str, Given]:
    """The person's file, and over it that of the directory, or the one that is named."""
    own = resources.config_home() / CONFIG_FILE
    general, special = _if_there(own, own), {}
    if config is not None:
        special = _from_file(directory / config, config)
    elif own.parent != directory:
        special = _if_there(directory / CONFIG_FILE, Path(CONFIG_FILE))
    choosing = {"workload.kind", *(one.chosen_by for one in WORKLOADS.values())}
    if choosing & special.keys():  # a workload that is chosen here takes the place of one that is chosen for all
        general = {key: one for key, one in general.items() if key not in choosing}
    return {**general, **special}


def _if_there(path: Path, shown: Path) -> dict[str, Given]:
    with suppress(OSError):  # in a directory that this user cannot enter, reading the file tells so
        if not path.is_file():
            return {}
    return _from_file(path, shown)


def _from_file(path: Path, shown: Path) -> dict[str, Given]:
    text, table = file.read(path)
    given, known = {}, frozenset(by_key(key for key, _ in file.flatten(table, frozenset())))
    for key, raw in file.flatten(table, known):
        line = file.line_of(text, key)
        origin = f"{shown}:{line}" if line else str(shown)
        if key not in known:
            refuse_key(key, origin)
        given[key] = Given(raw, origin, path.parent)
    return given


def _from_flags(flags: Flags, directory: Path) -> dict[str, Given]:
    given, known = {}, by_key(flags)
    for key, value in flags.items():
        if key not in known:
            refuse_key(key, f"--set {key}")
        option = known[key]
        one = value if isinstance(value, Given) else Given(value, option.flag or f"--set {key}")
        given[key] = replace(one, base=directory, typed=isinstance(one.raw, str))
    return given


def refuse_key(key: str, origin: str) -> None:
    """Raise :class:`UserError` for the key of no setting."""
    if key in _SECRETS:
        raise UserError(
            f"{origin}: {key} does not belong into settings, which are shown, recorded and passed on",
            "set BISECTOR_SMTP_USERNAME and BISECTOR_SMTP_PASSWORD, or name a file of mode 600 with mail.login_file",
        )
    if key in _GONE:
        raise UserError(f"{origin}: there is no setting {key} any more", _GONE[key])
    if (why := disk_table.objection(key)) is not None:
        raise UserError(f"{origin}: {why}", "for example hdd2")
    keys = by_key()
    if any(known.startswith(key + ".") for known in keys):
        raise UserError(f"{origin}: {key} is a table of settings, not a setting")
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    last = [known for known in keys if known.rpartition(".")[2] == key.rpartition(".")[2]]
    hint = f"did you mean {' or '.join(last or near)}?" if last or near else "`bisector settings` lists all there are"
    raise UserError(f"{origin}: there is no setting {key}", hint)


def _parse(option: Option, given: Given) -> Any:
    raw = option.kind.from_text(str(given.raw)) if given.typed else given.raw
    try:
        return option.kind.read(raw, given.base)
    except kinds.Unfit as error:
        shown = given.raw if given.typed else file.literal(given.raw)
        raise UserError(
            f"{given.origin}: {option.key} = {shown}: expected {option.kind.expected}", f"{option.key}: {option.help}"
        ) from error
    except UserError as error:
        raise UserError(f"{given.origin}: {option.key}: {error}", error.hint) from error


def _assemble(cls: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """A tree of dataclasses from values by dotted field; a value missing is a bug of the table."""
    return cls(**{name: _part(hint, values, prefix + name) for name, hint in get_type_hints(cls).items()})


def _part(hint: Any, values: Mapping[str, Any], path: str) -> Any:
    """A field: a value, a mapping with the values by the next name, or a dataclass of such."""
    if path in values:
        return values[path]
    if get_origin(hint) is not Mapping:
        return _assemble(hint, values, path + ".")
    _, of_each = get_args(hint)
    below = [key.removeprefix(path + ".") for key in values if key.startswith(path + ".")]
    names = dict.fromkeys(key.partition(".")[0] for key in below)
    return {name: _part(of_each, values, f"{path}.{name}") for name in names}


def _value(settings: Settings, path: str) -> Any:
    """The value of a dotted field: the inverse of :func:`_assemble`."""
    found: Any = settings
    for name in path.split("."):
        found = found[name] if isinstance(found, Mapping) else getattr(found, name)
    return found


def _refuse(effective: Effective, problem: Problem | None) -> None:
    if problem is None:
        return
    written = {row.key: row for row in describe(effective)}
    named = ", ".join(f"{key} = {written[key].value} ({written[key].origin})" for key in problem.keys)
    raise UserError(f"{named}: {problem.sentence}", problem.hint)


def overlaid(
    recorded: Settings, prefix: str, flags: Flags | None = None, config: Path | None = None, kept: Collection[str] = ()
) -> Settings:
    """Recorded settings, with those under ``prefix`` as flags and the file of today have them, or by default.

    Of today's only those are looked at: what else the file says may be of another machine. Where today says nothing of
    the keys ``kept``, the record's values count. Raises :class:`UserError`.
    """
    directory = Path.cwd()
    today = {**_from_files(config, directory), **_from_flags(flags or {}, directory)}
    given = {key: Given(value, "recorded settings") for key, value in written_values(recorded).items()}
    known = rows_for(recorded)
    given |= {
        option.key: Given(option.in_profile(recorded.profile), f"profile {recorded.profile}")
        for option in known
        if option.key.startswith(prefix) and option.key not in kept
    }
    given |= {key: one for key, one in today.items() if key.startswith(prefix)}
    settings = _assemble(Settings, resolved({option.field: _parse(option, given[option.key]) for option in known}))
    origins = {key: one.origin for key, one in given.items()}
    _refuse(Effective(settings, origins), next(checks.mail_is_private(settings), None))
    return settings


def rows_for(settings: Settings) -> tuple[Option, ...]:
    """Every row, those of all disks of the settings among them."""
    return rows(name for name in settings.storage.disks if name not in DISKS)


def written_values(settings: Settings) -> dict[str, object]:
    """Every setting by key, as TOML would hold it."""
    return {option.key: option.kind.write(_value(settings, option.field)) for option in rows_for(settings)}


def usual(settings: Settings) -> dict[str, object]:
    """The default of each setting, as TOML would hold it.

    A default that follows from other settings follows from the values that ``settings`` has.
    """
    known = rows_for(settings)
    defaults = {option.field: _parse(option, Given(option.in_profile(settings.profile), "")) for option in known}
    further = (name for name in defaults if name.startswith((OF_WORKLOADS, OF_LAYERS)))
    names = (*_LEADING, *(name for name in further if defaults[name] is not None))
    leading = {name: _value(settings, name) for name in names}
    followed = _assemble(Settings, resolved({**defaults, **leading}))
    own = {option.key: option.kind.write(defaults[option.field]) for option in known if option.field in leading}
    try:
        by_workload = objective_of({**leading, "bisect.metric": None, "bisect.over": None})
    except UserError:  # of a job file that names no metric: one was given, and nobody asked the file
        by_workload = Objective()
    objective = {"bisect.metric": by_workload.metric, "bisect.over": by_workload.over}
    return written_values(followed) | own | objective


def changed(settings: Settings) -> dict[str, object]:
    """The default, as TOML would hold it, of each setting that has another value."""
    written = written_values(settings)
    defaults = {**usual(settings), "profile": PROFILES[0]}
    return {key: defaults[key] for key, value in written.items() if value != defaults[key]}


def describe(effective: Effective) -> list[Row]:
    """The rows of ``bisector settings``, in the order of the table."""
    written = written_values(effective.settings)
    return [
        Row(option.key, shown(written[option.key]), effective.origins.get(option.key, ""), option.help)
        for option in rows_for(effective.settings)
    ]


def shown(value: object) -> str:
    """A value as TOML would hold it, as a person would read it."""
    match value:
        case bool():
            return str(value).lower()
        case list() | tuple():
            return ", ".join(map(str, value))
        case float():
            return f"{value:.12g}"
    return str(value) or '""'


def to_toml(effective: Effective) -> str:
    """A complete ``bisector.toml`` that loads to equal settings anywhere on this machine."""
    return file.write(written_values(effective.settings))


def to_json(settings: Settings) -> str:
    """The settings for the record."""
    return json.dumps(written_values(settings), indent=1)


def from_json(text: str) -> Settings:
    """Recorded settings, not checked again; a setting that is newer than the record has its value of ``before``."""
    written: dict[str, object] = json.loads(text)
    profile = str(written["profile"])
    known = by_key(written).values()
    raw = {option.key: _recorded(option, written, profile) for option in known}
    values = {option.field: _parse(option, Given(raw[option.key], "recorded settings")) for option in known}
    return _assemble(Settings, resolved(values))


def setup_from_json(text: str) -> Setup:
    """The setup of recorded settings, whatever else of them is known."""
    return from_json(json.dumps({"profile": PROFILES[0], **json.loads(text)})).setup


def _recorded(option: Option, written: Mapping[str, object], profile: str) -> object:
    before = option.in_profile(profile) if option.before is None else option.before
    return written.get(option.key, written.get(option.formerly, before))
