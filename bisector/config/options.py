"""Effective settings: flags over ``bisector.toml`` over a person's own file over a profile, each with its origin.

:func:`build` replaces each "auto" that follows from other settings. The settings are defined in :mod:`bisector.config`,
and their impossible combinations in :mod:`bisector.config.checks`.

A file is read into dotted keys, and written by :func:`write`, not by tomlkit's writer: that would still need these nine
lines (6 ms for all settings instead of 0.1 ms) and a :func:`literal`, to keep values on one line and for values that
TOML lacks.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from bisector.config import (
    BARE_FRAGMENT,
    BASE_FRAGMENT,
    COUNTED_FRAGMENT,
    GUEST_FRAGMENT,
    KEEPS_DATA,
    PROFILES,
    Accelerator,
    BisectSettings,
    ContentionSettings,
    DiskSettings,
    GuestClock,
    KernelSettings,
    MachineSettings,
    MailSettings,
    NotifySettings,
    RunPart,
    Security,
    Settings,
    StorageSettings,
    WorkloadSettings,
    checks,
)
from bisector.config.option_table import by_key, further, objection, refuse_unused, rows_of
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.metric import is_of_split, is_short, of_steady_part
from bisector.core.objective import WORST, Objective
from bisector.core.setting import AUTO, Option, Problem, Unfit, options_of
from bisector.storage.disks import DISKS, EXTRA_DISK, Bus, GuestDisk
from bisector.storage.layer import LAYERS, Since
from bisector.storage.stack import Stack
from bisector.workload.base import Workload
from bisector.workload.workloads import WORKLOADS

# The value of each setting by key; None, or what a word such as "auto" stands for, if :func:`build` replaces it.
Values: TypeAlias = Mapping[str, Any]
T = TypeVar("T")

CONFIG_FILE = "bisector.toml"
_CLOCK = "machine.clock"
_STACK, _HOST, _TREE = FOLLOWING = "the stack", "this host", "the oldest tree"  # the origins of derived values
# Settings from which :func:`build` derives others.
_DERIVATION_INPUTS = (
    *("bisect.metric", "bisect.over", "bisect.part", "kernel.base_config"),
    *("mail.security", "storage.stack", "workload.kind"),
)
# Keys that people try for a login, which does not belong in a file of settings.
_SECRETS = frozenset(f"mail.{name}" for name in ("password", "passwd", "pass", "username", "user", "login"))
# Former settings, and what replaced them.
_GONE = {
    "bisect.min_ends_ratio": "the ends are read in turn until they are told apart, and bisect.least_effect is the "
    "smallest change that is looked for: 5% for a factor of 1.05"
}
_LEAST_OTHER_CORES = 0.5  # a quiet host's own kernel threads take up to 0.3
# Additional time for a cache that is not full or not steady after the requested rounds.
_LEAST_FILL_S, _FURTHER_ROUNDS = 300.0, 3
_TRIAL_SPARE_S = 900.0  # boot, storage and laying out the files twice, on a slow host
_ARTICLE_THRESHOLD = "20000"
# Nine of ten regressions that a kernel test robot mailed were larger. In counted time, readings of one kernel on a CPU
# path differ by less than 0.01 %.
_LEAST_EFFECT, _LEAST_EFFECT_COUNTED = 0.05, 0.0005


# The text of bisector.toml


def read(path: Path) -> dict[str, object]:
    """Parse the file; raises :class:`UserError` with file, line and column."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "name another file with --config FILE") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: not UTF-8, which TOML has to be") from error
    try:
        return tomllib.loads(text)
    # tomllib's messages end in "(at line 3, column 7)" or in "(at end of document)". It raises ValueError for a number
    # of thousands of digits (sys.set_int_max_str_digits).
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML: {error}", "see https://toml.io for how it is written") from error


def flatten(table: Mapping[str, object], known: frozenset[str], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield dotted keys and values; a table whose own key is ``known`` is a value (of the wrong type)."""
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and value and key not in known:
            yield from flatten(value, known, key + ".")
        else:
            yield key, value


def write(values: Mapping[str, object]) -> str:
    """TOML with one table per dotted prefix; the inverse of :func:`read` and :func:`flatten`."""
    tables: dict[str, list[str]] = {"": []}
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {literal(value)}")
    blocks = [(f"[{table}]\n" if table else "") + "\n".join(lines) for table, lines in tables.items() if lines]
    return "\n\n".join(blocks) + "\n"


def literal(value: object) -> str:
    """One value in TOML, which is as in JSON except for infinity and DEL (TOML 1.0, "String")."""
    match value:
        case float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(literal(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


# Settings from the values of all keys


def build(values: Values, stacks: Collection[Stack] = ()) -> Settings:
    """Build all settings, with files that fit all ``stacks``; raises :class:`UserError` for a job's unknown metric."""
    stack: Stack = values["storage.stack"]
    kind = values["workload.kind"]
    counted = values["machine.clock"] is GuestClock.INSTRUCTIONS
    layers: dict[str, Any] = {layer.name: _section(layer, values) for layer in LAYERS.values()}
    own: dict[str, Any] = {one.name: _section(one, values) for one in WORKLOADS.values()}
    fill_bytes = max(one.filled_by(layers) for one in (stack, *stacks))
    own[kind] = mine = own[kind].sized(values["profile"], fill_bytes)
    disks = {name: _disk(name, values, counted=counted) for name in (*DISKS, *further(values))}
    used = [disks[name].guest if name in disks else GuestDisk() for name in stack.disks]
    objective = objective_of(values, mine, stacks)
    runtime_s = mine.length_s()
    fill_deadline_s = values["storage.fill_deadline"]
    if fill_deadline_s is None:  # enough for the requested rounds and some more, however long a run is
        fill_deadline_s = max(_LEAST_FILL_S, (values["storage.fill_rounds"] + _FURTHER_ROUNDS) * runtime_s)
    fill_s = fill_deadline_s if any(phase.fills for phase in stack.phases) else 0.0
    usual_s = len(stack.phases) * runtime_s + fill_s + _TRIAL_SPARE_S
    accelerator: Accelerator = values["machine.accelerator"]
    threshold, suspects = values["bisect.threshold"], values["bisect.suspect"]
    if threshold == AUTO:  # the article's threshold holds for what the article measured
        is_article = values["profile"] == "article" and objective == Objective()
        threshold = _ARTICLE_THRESHOLD if is_article else None
    if suspects is None:  # if the drivers of block devices are suspects, so are those of the disks' buses
        drivers = [one for disk in used for one in disk.bus.drivers if "drivers/block" in stack.suspects]
        suspects = tuple(dict.fromkeys((*stack.suspects, *drivers)))
    other_cores = values["contention.max_other_cores"]
    if other_cores is None:
        # A large host always has other work somewhere, which takes no core from the guest; a small one must be quiet.
        # On 4 cores, a guest with 2 had the IOPS of a quiet host beside up to 2.0 cores of compilers or busy loops, and
        # 30 % less beside 2.8 (the SSD alone, emulated, one run of 10 s each). An eighth of the cores is a quarter of
        # what did no harm.
        other_cores = max(_LEAST_OTHER_CORES, (os.cpu_count() or 1) / 8)
    return Settings(
        profile=values["profile"],
        bisect=_section(
            BisectSettings,
            values,
            metric=objective.metric,
            over=objective.over,
            threshold=threshold,
            suspects=suspects,
            least_effect=values["bisect.least_effect"] or (_LEAST_EFFECT_COUNTED if counted else _LEAST_EFFECT),
        ),
        kernel=_section(KernelSettings, values, fragments=_fragments(values, stack.fragments(layers), used, counted)),
        machine=_section(
            MachineSettings,
            values,
            accelerator=Accelerator.TCG if counted and accelerator is Accelerator.AUTO else accelerator,
            clock=GuestClock.INSTRUCTIONS if counted else GuestClock.HOST,
            guests=values["machine.guests"] or (None if counted else 1),
            vcpus=values["machine.vcpus"] or (1 if counted else 2),
            trial_deadline_s=values["machine.trial_deadline"] or usual_s,
        ),
        storage=_section(StorageSettings, values, disks=disks, layers=layers, fill_deadline_s=fill_deadline_s),
        workload=_section(WorkloadSettings, values, own=own),
        contention=_section(ContentionSettings, values, max_other_cores=other_cores),
        mail=_mail(values),
        notify=_section(NotifySettings, values),
    )


def _section(settings: type[T], values: Values, rows: Iterable[Option] | None = None, **followed: object) -> T:
    """Build one settings class from the values of its rows; ``followed`` values, which follow from others, go first."""
    given = {row.field: values[row.key] for row in (options_of(settings) if rows is None else rows)}
    return settings(**{**given, **followed})


def _mail(values: Values) -> MailSettings:
    # RFC 6409 (submission), RFC 8314 (submission over TLS), RFC 5321
    usual = {Security.STARTTLS: 587, Security.TLS: 465, Security.NONE: 25}[values["mail.security"]]
    return _section(MailSettings, values, port=values["mail.port"] or usual)


def _disk(name: str, values: Values, *, counted: bool) -> DiskSettings:
    """A disk; its usual latency is its own on null_blk, rounded to ms on brd, and none on other buses."""
    of_host, of_guest = rows_of(name)
    bus = values[f"storage.{name}.bus"] or (Bus.NULL_BLK if counted else Bus.VIRTIO)
    latency_s, own_s = values[f"storage.{name}.latency"], DISKS.get(name, EXTRA_DISK).memory_latency_s
    if latency_s is None:
        latency_s = {Bus.NULL_BLK: own_s, Bus.BRD: round(own_s, 3)}.get(bus, 0.0)
    guest = _section(GuestDisk, values, of_guest, bus=bus)
    return _section(DiskSettings, values, of_host, latency_s=latency_s, guest=guest)


def objective_of(values: Values, workload: Workload, stacks: Iterable[Stack] = ()) -> Objective:
    """The deciding objective: the given metric, or else the workload's.

    If the metric exists for the part of a run that counts, it is the metric of that part; all stacks of a comparison
    use the same part. With a filled cache a run begins at the pace of the slow disk, whatever the kernel does later.
    """
    metric, over, part = values["bisect.metric"], values["bisect.over"], values["bisect.part"]
    if metric is None:
        found = workload.deciding().objective
        found = replace(found, over=over or found.over)
    else:
        found = Objective(workload.full_name(metric) if is_short(metric) else metric, over or WORST)
    if part is RunPart.AUTO and metric is None and workload.are_split():
        filled = any(phase.fills for stack in (values["storage.stack"], *stacks) for phase in stack.phases)
        part = RunPart.STEADY if filled else RunPart.WHOLE
    steady = of_steady_part(found.metric) if part is RunPart.STEADY else None
    return found if steady is None else replace(found, metric=steady)


def _fragments(values: Values, of_stack: Iterable[str], disks: Iterable[GuestDisk], counted: bool) -> tuple[str, ...]:
    ground = BARE_FRAGMENT if values["kernel.base_config"] is None else BASE_FRAGMENT
    of_disks = dict.fromkeys(fragment for disk in disks for fragment in disk.fragments)
    auto = (ground, GUEST_FRAGMENT, *([COUNTED_FRAGMENT] if counted else []), *of_disks, *of_stack)
    return tuple(one for name in values["kernel.fragments"] for one in (auto if name == AUTO else (name,)))


# The effective settings, and where each comes from


@dataclass(frozen=True, slots=True)
class Given:
    """A raw value, whether it was ``typed`` on the command line, its origin, and the base of relative paths."""

    raw: object
    origin: str
    base: Path | None = None
    typed: bool = False


@dataclass(frozen=True, slots=True)
class Effective:
    """The effective settings, and the origin of each value by key."""

    settings: Settings
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettingRow:
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
    """Load and check settings: flags (by key) over the configuration file over the person's own over a profile.

    Without ``config``, ``bisector.toml`` in ``directory`` (the current one) is read if it exists. A disk on the command
    line has to belong to the stack, or to one of ``stacks``. ``trees_have`` says whether every measured tree has a
    feature. ``could_count`` says whether guests would be emulated by the host's clock and could count instructions
    instead: then they do, unless a given setting prevents it. Raises :class:`UserError`.
    """
    directory = directory or Path.cwd()
    given = {**_from_files(config, directory), **_from_flags(flags or {}, directory)}
    effective = from_given(given, stacks)
    clock, machine = given.get(_CLOCK), effective.settings.machine
    if (clock is None or clock.raw == AUTO) and could_count(machine, effective.settings.storage):
        counted = {**given, _CLOCK: Given(GuestClock.INSTRUCTIONS.value, _HOST)}
        with suppress(UserError):  # for example, two virtual CPUs or a bus of the host were given
            effective, given = from_given(counted, stacks), counted
    # The buses that became null_blk without being asked for.
    disks = effective.settings.storage.disks.items()
    buses = {f"storage.{name}.bus": disk.guest.bus for name, disk in disks}
    chosen = [key for key, bus in buses.items() if bus is Bus.NULL_BLK and key not in given]
    if chosen and not trees_have(KEEPS_DATA):
        # All disks of a run are of one kind, even if newer trees have null_blk.
        given |= {key: Given(Bus.BRD.value, _TREE) for key in chosen}
        effective = from_given(given, stacks)
    typed = (key for key, one in given.items() if one.typed)
    refuse_unused(typed, (effective.settings.storage.stack, *stacks))
    return effective


def from_given(given: Mapping[str, Given], stacks: Collection[Stack] = ()) -> Effective:
    """Given values (by key) over a profile, with files that fit all ``stacks``; raises :class:`UserError`."""
    given, known = dict(given), by_key(given)
    for key, one in given.items():
        if key not in known:
            refuse_key(key, one.origin)
    _choose_workload(given)
    name = _parse(known["profile"], given.setdefault("profile", Given(PROFILES[0], f"profile {PROFILES[0]}")))
    for option in known.values():
        given.setdefault(option.key, Given(option.in_profile(name), f"profile {name}"))
    values = {key: _parse(option, given[key]) for key, option in known.items()}
    settings = build(values, stacks)
    followed = dict(_derived_origins(settings, values, given["bisect.part"].origin))
    origins = {key: given[key].origin for key in known} | followed
    effective = Effective(settings, origins)
    _refuse(effective, checks.first_problem(settings))
    return effective


def _derived_origins(settings: Settings, values: Values, part: str) -> Iterator[tuple[str, str]]:
    """Yield the origins of values that follow from others; ``part`` is the origin of bisect.part."""
    workload = settings.workload.workload
    for row in options_of(type(workload)):
        if values[row.key] == row.none != getattr(workload, row.field):
            yield row.key, _STACK
    if values["bisect.metric"] is None:
        if named_by := workload.deciding().named_by:
            yield from ((key, named_by) for key in ("bisect.metric", "bisect.over") if values[key] is None)
        if is_of_split(settings.bisect.metric):
            yield "bisect.metric", _STACK if values["bisect.part"] is RunPart.AUTO else part


def _choose_workload(given: dict[str, Given]) -> None:
    """Choose the workload by its own setting, a typed one first; raises :class:`UserError` for two workloads."""
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
    """The values of the person's file, and over them those of ``config`` or else of the directory's file."""

    def if_there(path: Path, shown: Path) -> dict[str, Given]:
        with suppress(OSError):  # if this user cannot enter the directory, reading the file reports that
            if not path.is_file():
                return {}
        return _from_file(path, shown)

    own = resources.config_home() / CONFIG_FILE
    general, special = if_there(own, own), {}
    if config is not None:
        special = _from_file(directory / config, config)
    elif own.parent != directory:
        special = if_there(directory / CONFIG_FILE, Path(CONFIG_FILE))
    choosing = {"workload.kind", *(one.chosen_by for one in WORKLOADS.values())}
    if choosing & special.keys():  # a workload chosen here replaces the one chosen for all runs
        general = {key: one for key, one in general.items() if key not in choosing}
    return {**general, **special}


def _from_file(path: Path, shown: Path) -> dict[str, Given]:
    table = read(path)
    known = frozenset(by_key(key for key, _ in flatten(table, frozenset())))
    given = {key: Given(raw, str(shown), path.parent) for key, raw in flatten(table, known)}
    for key in (key for key in given if key not in known):
        refuse_key(key, str(shown))
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
    """Raise :class:`UserError` for a key that is no setting."""
    if key in _SECRETS:
        raise UserError(
            f"{origin}: {key} does not belong into settings, which are shown, recorded and passed on",
            "set BISECTOR_SMTP_USERNAME and BISECTOR_SMTP_PASSWORD, or name a file of mode 600 with mail.login_file",
        )
    if key in _GONE:
        raise UserError(f"{origin}: there is no setting {key} any more", _GONE[key])
    if (why := objection(key)) is not None:
        raise UserError(f"{origin}: {why}", "for example hdd2")
    keys = by_key()
    if any(known.startswith(key + ".") for known in keys):
        raise UserError(f"{origin}: {key} is a table of settings, not a setting")
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    last = [known for known in keys if known.rpartition(".")[2] == key.rpartition(".")[2]]
    hint = f"did you mean {' or '.join(last or near)}?" if last or near else "`bisector settings` lists all there are"
    raise UserError(f"{origin}: there is no setting {key}", hint)


def _parse(option: Option, given: Given) -> Any:
    try:
        return option.read(given.raw, given.base, typed=given.typed)
    except Unfit as error:
        shown = given.raw if given.typed else literal(given.raw)
        raise UserError(
            f"{given.origin}: {option.key} = {shown}: expected {option.expected}", f"{option.key}: {option.help}"
        ) from error
    except UserError as error:
        raise UserError(f"{given.origin}: {option.key}: {error}", error.hint) from error


def _refuse(effective: Effective, problem: Problem | None) -> None:
    if problem is None:
        return
    written = {row.key: row for row in describe(effective)}
    named = ", ".join(f"{key} = {written[key].value} ({written[key].origin})" for key in problem.keys)
    raise UserError(f"{named}: {problem.sentence}", problem.hint)


def current_mail_settings(recorded: Settings, flags: Flags, config: Path | None) -> MailSettings:
    """Mail settings from today's flags and files; only the sender may be the record's. Raises :class:`UserError`."""
    directory = Path.cwd()
    today = {**_from_files(config, directory), **_from_flags(flags, directory)}
    usual = {row.key: Given(row.in_profile(recorded.profile), "") for row in options_of(MailSettings)}
    given = {**usual, "mail.from": Given(written_values(recorded)["mail.from"], "recorded settings"), **today}
    mail = _mail({row.key: _parse(row, given[row.key]) for row in options_of(MailSettings)})
    settings, origins = replace(recorded, mail=mail), {key: given[key].origin for key in usual}
    _refuse(Effective(settings, origins), next(checks.mail_is_private(settings), None))
    return mail


def _values(settings: Settings) -> Iterator[tuple[Option, Any]]:
    storage, workload = settings.storage, settings.workload
    above = (settings, settings.bisect, settings.kernel, settings.machine, storage)
    below = (*storage.layers.values(), workload, *workload.own.values())
    last = (settings.contention, settings.mail, settings.notify)
    disks = (zip(rows_of(name), (disk, disk.guest), strict=True) for name, disk in storage.disks.items())
    sections = (
        *((options_of(type(one)), one) for one in above),
        *chain.from_iterable(disks),
        *((options_of(type(one)), one) for one in (*below, *last)),
    )
    yield from ((row, getattr(one, row.field)) for rows, one in sections for row in rows)


def written_values(settings: Settings) -> dict[str, object]:
    """Every setting by key, as TOML would hold it."""
    return {row.key: row.write(value) for row, value in _values(settings)}


def usual(settings: Settings) -> dict[str, object]:
    """The default of each setting, as TOML would hold it; derived defaults follow from ``settings``."""
    known = {row.key: (row, value) for row, value in _values(settings)}
    defaults = {key: _parse(row, Given(row.in_profile(settings.profile), "")) for key, (row, _) in known.items()}
    kinds = (*LAYERS.values(), *WORKLOADS.values())
    further = [row.key for kind in kinds for row in options_of(kind)]
    names = (*_DERIVATION_INPUTS, *(key for key in further if key in known and defaults[key] != known[key][0].none))
    leading = {key: known[key][1] for key in names}
    own = {key: known[key][0].write(defaults[key]) for key in leading}
    try:
        unnamed = {**leading, "bisect.metric": None, "bisect.over": None}
        by_workload = objective_of(unnamed, settings.workload.workload)
    except UserError:  # a job file names no metric: one was given, so the file was not asked
        by_workload = Objective()
    objective = {"bisect.metric": by_workload.metric, "bisect.over": by_workload.over}
    return written_values(build({**defaults, **leading})) | own | objective


def changed(settings: Settings) -> dict[str, object]:
    """The defaults, as TOML would hold them, of the settings that have other values."""
    written = written_values(settings)
    defaults = {**usual(settings), "profile": PROFILES[0]}
    return {key: defaults[key] for key, value in written.items() if value != defaults[key]}


def describe(effective: Effective) -> list[SettingRow]:
    """The rows of ``bisector settings``, in the order of the table."""
    return [
        SettingRow(row.key, shown(row.write(value)), effective.origins.get(row.key, ""), row.help)
        for row, value in _values(effective.settings)
    ]


def shown(value: object) -> str:
    """A value that TOML would hold, as a person would read it."""
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
    return write(written_values(effective.settings))


def to_json(settings: Settings) -> str:
    """The settings for the record."""
    return json.dumps(written_values(settings), indent=1)


def from_json(text: str) -> Settings:
    """Recorded settings, not checked again; a setting that the record does not have yet gets its profile's value."""
    written: dict[str, object] = {"profile": PROFILES[0], **json.loads(text)}
    known = by_key(written).items()
    raws = {key: written.get(key, option.in_profile(str(written["profile"]))) for key, option in known}
    return build({key: _parse(option, Given(raws[key], "recorded settings")) for key, option in known})
