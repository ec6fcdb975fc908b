"""Settings are one table: a row per setting, from which file, flags and listings are read.

A value in a profile is written as a person would write it, and goes through the same parser. The kinds of values that
only a bisection has (its terms, its metric, its threshold) come first.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

from bisector.config import (
    BARE_FRAGMENT,
    BASE_FRAGMENT,
    Accelerator,
    ConfirmBy,
    FillMode,
    GuestClock,
    Part,
    Security,
    disk_table,
)
from bisector.core import kinds
from bisector.core.kinds import AUTO, Kind, Option, Unfit
from bisector.core.metric import is_short, named, plain_number
from bisector.core.verdict import Direction, Strategy, Terms
from bisector.storage.disks import DISKS
from bisector.storage.layer import Layer
from bisector.storage.layers import LAYERS
from bisector.storage.stack import stack_kind
from bisector.workload.base import Workload
from bisector.workload.fio.fio import FIO
from bisector.workload.workloads import WORKLOADS

PROFILES = ("quick", "article")
FRAGMENTS = "kernel.fragments"
_PLAIN = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,40})?")
_VALUE = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,40})? *[^\s0-9]\S*")
_LEAST_VALUE, _LARGEST_VALUE = 1e-9, 1e18


def _terms() -> Kind:
    """Two different words, for the old side and the new one, in git's alphabet of references."""

    def read(raw: object, _base: Path | None) -> Terms:
        words = re.fullmatch(r"([A-Za-z][\w-]*):([A-Za-z][\w-]*)", raw, re.ASCII) if isinstance(raw, str) else None
        if words is None or words[1] == words[2]:
            raise Unfit
        return Terms(words[1], words[2])

    return Kind(
        "two different words as OLD:NEW, of letters, digits, - and _",
        read,
        lambda pair: f"{pair.old}:{pair.new}",
    )


def _metric() -> Kind:
    """The name of a metric; raises :class:`UserError` for the name of none."""

    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or not raw.strip():
            raise Unfit
        name = raw.strip()
        return name if is_short(name) else named(name).name  # the workload knows the rest of a figure's

    return Kind("the name of a metric such as read.iops", read, str)


def _threshold(auto: str, none: str) -> Kind:
    """A value in the unit of a metric, which is known when all settings are: kept as it is typed.

    ``none`` stands for None, ``auto`` for itself: whoever reads the settings knows which of the two it is.
    """

    def read(raw: object, _base: Path | None) -> str | None:
        if raw in (auto, none):
            return None if raw == none else auto
        if isinstance(raw, str) and _PLAIN.fullmatch(raw.strip()):
            raw = float(raw)
        if isinstance(raw, (int, float)) and not isinstance(raw, bool):
            return _plain(raw)
        if not isinstance(raw, str) or not _VALUE.fullmatch(raw.strip()):
            raise Unfit
        return raw.strip()

    def write(value: str | None) -> object:
        if value is None:
            return none
        return float(value) if _PLAIN.fullmatch(value) else value

    return Kind(f'a value above zero such as 20000, 1.5ms or 80MiB/s; or "{none}", or "{auto}"', read, write)


def _plain(value: float) -> str:
    if not _LEAST_VALUE <= value <= _LARGEST_VALUE:
        raise Unfit
    return plain_number(float(value))


def _path(key: str, flag: str, help_line: str, metavar: str = "FILE") -> Option:
    kind = kinds.optional(kinds.file(), "", "none")
    return Option(key, key, kind, "", help_line, flag=flag, metavar=metavar)


@cache
def _layer(layer: Layer) -> tuple[Option, ...]:
    """A layer's own rows; the layer names its fields, and does not know where they are kept."""
    return tuple(replace(row, field=f"storage.layers.{layer.name}.{row.field}") for row in layer.options)


def _workload_row() -> Option:
    """Which workload; those of other packages can be chosen, too."""
    return Option(
        "workload.kind",
        "workload.kind",
        kinds.choice(tuple(WORKLOADS)),
        FIO.name,
        "workload that runs on the stack",
        flag="--workload",
        metavar="NAME",
    )


@cache
def _workload(workload: Workload) -> tuple[Option, ...]:
    """A workload's own rows; as with a layer, the workload does not know where they are kept."""
    return tuple(replace(row, field=f"workload.own.{workload.name}.{row.field}") for row in workload.options)


# Read as a table, so laid out as one.
# fmt: off
_FIRST: tuple[Option, ...] = (
    Option("profile", "profile", kinds.choice(PROFILES), "quick",
           "the set of values that everything else starts from", "article", flag="--profile", metavar="NAME"),
    Option("bisect.metric", "bisect.metric", kinds.optional(_metric(), AUTO,
           "what the workload names, or read.iops, of the part that bisect.part says"), AUTO,
           "metric that decides, such as read.clat.p99; docs/metrics.md lists all: read.iops, write.bw",
           flag="--metric", metavar="NAME", before="read.iops"),
    Option("bisect.part", "bisect.part", kinds.choice(Part), "auto",
           "which part of a run the metric is of: all of it, or what is left when it has settled, as in "
           "read.iops.steady; auto is as a metric that is given says, else steady where a cache is filled", "whole",
           flag="--part", metavar="NAME", before="whole"),
    Option("bisect.over", "bisect.over", kinds.optional(kinds.text("worst, sum, mean or the name of a job"), AUTO,
           "what the workload names, or worst"), AUTO,
           "what several jobs amount to: the worst of them, their sum or mean, or one job by its name",
           flag="--over", metavar="worst|sum|mean|JOB", before="worst"),
    Option("bisect.threshold", "bisect.threshold", _threshold(AUTO, "ends"), AUTO,
           'value between the two sides, in the unit of the metric; "ends" finds it from the two ends, '
           f'and so does "{AUTO}" but for read.iops in the profile article, where it is 20000',
           flag="--threshold", metavar="VALUE"),
    Option("bisect.expect", "bisect.expect", kinds.optional(kinds.choice(Direction), "none", "as the ends show"),
           "none", "refuse ends that differ in the other direction: improvement or regression", flag="--expect",
           metavar="DIRECTION", short="--regression", const="regression", formerly="bisect.direction"),
    Option("bisect.terms", "bisect.terms", kinds.optional(_terms(), AUTO,
           "broken:fixed for an improvement, good:bad for a regression"), AUTO,
           "words for the old side and the new one", flag="--terms", metavar="OLD:NEW"),
    Option("bisect.least_effect", "bisect.least_effect", kinds.optional(kinds.share(), AUTO,
           "5%, or 0.05% where instructions are counted"), AUTO,
           "the smallest change that is looked for: kernels that differ by less are the same, and nothing is bisected "
           "between ends that are", flag="--least-effect", metavar="5%"),
    Option("bisect.most_pairs", "bisect.most_pairs", kinds.integer(2), 40,
           "how often both ends are read in turn, at most, before they are too noisy to be told apart"),
    Option("bisect.first_parent", "bisect.first_parent", kinds.boolean(), False,
           "follow only the first parent of merges", flag="--first-parent", const="true"),
    Option("bisect.strategy", "bisect.strategy", kinds.choice(Strategy), "bayes",
           "what chooses the next commit; bayes weighs all readings and gives a probability, git believes each verdict",
           flag="--strategy", metavar="NAME", before="git"),
    Option("bisect.suspect", "bisect.suspects", kinds.names(AUTO), AUTO,
           f'paths whose commits are likelier to be the answer; "{AUTO}" is the drivers of the stack, [] is none',
           flag="--suspect", metavar="PATH", repeat=True),
    Option("bisect.calibrate", "bisect.calibrate", kinds.integer(1), 1,
           "how often to measure each end before the search, to learn the noise", flag="--calibrate", metavar="N"),
    Option("bisect.max_repeats", "bisect.max_repeats", kinds.integer(0), 3,
           "how often to repeat a trial of weak evidence"),
    Option("bisect.baselines", "bisect.baselines", kinds.boolean(), False,
           "after the search, also measure each disk of the stack alone: one more boot and run for each",
           flag="--baselines", const="true"),
    Option("bisect.confirm_by", "bisect.confirm_by", kinds.choice(ConfirmBy), "none",
           "by which clock an answer of counted time is measured once more, the commit beside its parent, where its "
           "effect is large enough to show there", flag="--confirm-by", metavar="host|none"),
    _path("kernel.base_config", "--base-config", "kernel .config to start from"),
    Option(FRAGMENTS, "kernel.fragments", kinds.names_or_paths(), (AUTO,),
           f'configuration fragments, by name or path; the last one wins; "{AUTO}" is {BARE_FRAGMENT} '
           f"({BASE_FRAGMENT} with a base) and those of the stack and its disks; the flag adds to {AUTO}",
           flag="--fragment", metavar="NAME|FILE", repeat=True),
    Option("kernel.compiler", "kernel.compilers", kinds.commands(AUTO), AUTO,
           "C compiler of the kernels; auto is the first of this host that builds both ends; with several, each commit "
           "gets the first that builds it", flag="--compiler", metavar="COMMAND", repeat=True),
    Option("kernel.jobs", "kernel.jobs", kinds.optional(kinds.integer(1), AUTO, "one for each CPU"), AUTO,
           "how many compilers run at a time", flag="--jobs", metavar="N"),
    Option("kernel.build_deadline", "kernel.build_deadline_s", kinds.duration(1), "1h", "longest build, seconds"),
    Option("kernel.sandbox", "kernel.sandbox", kinds.boolean(), True,
           "run make in a sandbox, without network, home directory and other processes; --no-sandbox turns it off",
           flag="--no-sandbox", const="false"),
    Option("kernel.recheck", "kernel.recheck", kinds.boolean(), True,
           "build the kernels that an answer rests on once more, apart from all others, before it is given"),
    Option("machine.connect", "machine.connect", kinds.text("a libvirt URI such as qemu:///system"), "qemu:///embed",
           "libvirt URI; qemu:///embed runs its driver inside bisector, without a daemon",
           flag="--connect", metavar="URI"),
    Option("machine.accelerator", "machine.accelerator", kinds.choice(Accelerator), "auto",
           "how the guest's CPU runs; auto is KVM if a kernel boots under it", flag="--accelerator", metavar="NAME"),
    Option("machine.clock", "machine.clock", kinds.choice(GuestClock), "auto",
           "what makes the guest's time pass: the host's clock, or under emulation the guest's own instructions, which "
           "gives the same figures each time, and sees no caches, branch prediction or other CPUs; auto is the "
           "instructions where guests are emulated and all that is given goes with it, else the host's",
           flag="--clock", metavar="NAME", before="host"),
    Option("machine.instruction_ns", "machine.instruction_ns", kinds.integer(1), 8,
           "what an instruction takes where they are counted, in ns: 1, 2, 4, 8 and so on"),
    Option("machine.guests", "machine.guests", kinds.optional(kinds.integer(1), AUTO,
           "one; where instructions are counted one for each CPU, if memory allows"), AUTO,
           "how many guests measure at the same time", before=1),
    Option("machine.vcpus", "machine.vcpus", kinds.optional(kinds.integer(1), AUTO,
           "2, or 1 where instructions are counted"), AUTO, "virtual CPUs of the guest", before=2),
    Option("machine.memory", "machine.memory_bytes", kinds.size(256 << 20), "1GiB", "memory of the guest, bytes"),
    _path("machine.image", "--image", "your own root file system for the guest"),
    _path("machine.image_key", "--image-key", "private SSH key that logs in as root in your own image"),
    _path("machine.image_host_key", "--image-host-key", "public SSH host key of your own image"),
    Option("machine.append", "machine.append", kinds.text("kernel parameters on one line", empty=True), "",
           "parameters added to the guest kernel's command line"),
    Option("machine.boot_deadline", "machine.boot_deadline_s", kinds.duration(1), "2min",
           "longest time from start to login, seconds"),
    Option("machine.silence_deadline", "machine.silence_deadline_s", kinds.duration(1), "1min",
           "longest silence of a guest that should answer, seconds"),
    Option("machine.trial_deadline", "machine.trial_deadline_s", kinds.optional(kinds.duration(1), AUTO,
           "15min more than the runs"), AUTO, "longest trial after its build, seconds"),
    Option("storage.stack", "storage.stack", stack_kind(), "lvmcache", "storage stack under test; layers on disks",
           flag="--stack", metavar="STACK"),
)
_OF_STORAGE: tuple[Option, ...] = (
    Option("storage.fill_deadline", "storage.fill_deadline_s", kinds.optional(kinds.duration(0), AUTO,
           "three runs more than storage.fill_rounds, and at least 5min"), AUTO,
           "how long the run that fills a cache may be repeated until the cache is full and steady, seconds",
           before="0s"),
    Option("storage.fill_rounds", "storage.fill_rounds", kinds.integer(1), 1,
           "how often the run that fills a cache is made at least, up to 100 times"),
    Option("storage.fill", "storage.fill", kinds.choice(FillMode), "auto",
           "when the run that fills a cache ends in a search: short is once the cache is settled, if the ends measure "
           "the same that way; auto is the same if it pays; whole is after its whole length", before="whole"),
    Option("storage.overwrite", "storage.overwrite", kinds.words('["WD-WX11A1234567"]'), (),
           "block devices that may be overwritten, by serial number or by the name that a refusal shows",
           flag="--overwrite", metavar="SERIAL", repeat=True),
)
_LAST: tuple[Option, ...] = (
    Option("workload.full_runs", "workload.full_runs", kinds.boolean(), False,
           "never stop a run early", flag="--full-runs", const="true"),
    Option("contention.max_other_cores", "contention.max_other_cores", kinds.optional(kinds.number(0), AUTO,
           "an eighth of the host's, at least 0.5"), AUTO, "other load in cores above which a run is weak evidence"),
    Option("contention.max_steal_share", "contention.max_steal_share", kinds.number(0), 0.1,
           "share of stolen CPU time above which a run is weak evidence"),
    Option("contention.max_speed_change", "contention.max_speed_change", kinds.number(0), 0.15,
           "share by which the speed of the host's cores may change, during a run and since the ends were read"),
    Option("contention.patience", "contention.patience_s", kinds.duration(0), "6h",
           "longest wait for a quiet host before a commit is measured again, seconds; 0 does not wait"),
    Option("mail.host", "mail.host", kinds.text("the name of a mail server", empty=True), "",
           "mail server for `bisector mail --send`"),
    Option("mail.port", "mail.port", kinds.optional(kinds.integer(1), AUTO, "587, or 465 with tls"), AUTO,
           "port of the mail server"),
    Option("mail.security", "mail.security", kinds.choice(Security), "starttls",
           "encryption of the connection; none is for a server on this host"),
    Option("mail.from", "mail.sender", kinds.optional(kinds.text("an address as Name <user@host>"), AUTO,
           "git's user.name and user.email"), AUTO, "sender of reports"),
    Option("mail.login_file", "mail.login_file", kinds.optional(kinds.file(), "", "none"), "",
           "file of mode 600 with username=… and password=…; or BISECTOR_SMTP_USERNAME and BISECTOR_SMTP_PASSWORD"),
    Option("notify.command", "notify.command", kinds.text("a command line for sh", empty=True), "",
           "command that runs once when a long one has ended by itself; it finds BISECTOR_EXIT_CODE, BISECTOR_RUN_DIR "
           "and BISECTOR_ANSWER in its environment", flag="--notify", metavar="COMMAND"),
)
# fmt: on


def rows(further: Iterable[str] = ()) -> tuple[Option, ...]:
    """Every row, those of the layers and workloads that are known by now among them, and those of further disks."""
    disks = chain.from_iterable(map(disk_table.rows_of, (*DISKS, *further)))
    layers = chain.from_iterable(map(_layer, LAYERS.values()))
    workloads = chain.from_iterable(map(_workload, WORKLOADS.values()))
    return (*_FIRST, *disks, *layers, *_OF_STORAGE, _workload_row(), *workloads, *_LAST)


def by_key(keys: Iterable[str] = ()) -> Mapping[str, Option]:
    """Every row, by the key of its setting; those of the disks that ``keys`` name among them."""
    return {option.key: option for option in rows(disk_table.further(keys))}


rows()  # made when this is loaded, which a fork server does once for all its processes
