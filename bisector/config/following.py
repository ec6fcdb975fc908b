"""Settings that follow from others where nobody gives them: each "auto" and what takes its place."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bisector.config import (
    BARE_FRAGMENT,
    BASE_FRAGMENT,
    COUNTED_FRAGMENT,
    GUEST_FRAGMENT,
    Accelerator,
    GuestClock,
    Part,
)
from bisector.core.kinds import AUTO
from bisector.core.metric import is_short, of_steady_part
from bisector.core.objective import WORST, Objective
from bisector.storage.disks import DISKS, FURTHER, Bus, GuestDisk
from bisector.storage.stack import Stack
from bisector.workload.base import Deciding
from bisector.workload.workloads import WORKLOADS

OF_WORKLOADS = "workload.own."
OF_LAYERS = "storage.layers."
_DISK, _BUS = "storage.disks.", ".guest.bus"
_LEAST_OTHER_CORES = 0.5  # a quiet host's own kernel threads take up to 0.3
# For a cache that is not full, or not steady, after the rounds that were asked for.
_LEAST_FILL_S, _FURTHER_ROUNDS = 300.0, 3
_TRIAL_SPARE_S = 900.0  # boot, storage and laying out the files twice, on a slow host
_ARTICLE_THRESHOLD = "20000"
# Nine of ten regressions that a kernel test robot mailed were larger; in counted time readings of one kernel on a CPU
# path differ by less than 0.01 %.
_LEAST_EFFECT, _LEAST_EFFECT_COUNTED = 0.05, 0.0005


def _other_cores(chosen: float | None) -> float:
    """A large host always has other work somewhere, which takes no core from the guest; a small one must be quiet.

    On 4 cores a guest of 2 had the IOPS of a quiet host beside up to 2.0 cores of compilers or busy loops, and 30 %
    less beside 2.8 (the SSD alone, emulated, one run of 10 s each): an eighth is a quarter of what did no harm.
    """
    return max(_LEAST_OTHER_CORES, (os.cpu_count() or 1) / 8) if chosen is None else chosen


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the settings of the workload under test alone."""
    return _below(f"{OF_WORKLOADS}{values['workload.kind']}.", values)


def _below(start: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}


def _of_layers(stack: Stack, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of the settings of the stack's layers."""
    return {layer.name: _below(f"{OF_LAYERS}{layer.name}.", values) for layer in stack.layers}


def deciding(values: Mapping[str, Any]) -> Deciding:
    """What the workload has for what decides; raises :class:`bisector.core.errors.UserError` as that does."""
    return WORKLOADS[values["workload.kind"]].deciding(_own(values))


def objective_of(values: Mapping[str, Any], stacks: Iterable[Stack] = ()) -> Objective:
    """What decides: as it is given, else as the workload has it; what it says of several jobs is of its metric.

    Of the part of a run that counts, if the metric exists of that; of one part on all stacks that the same is measured
    on.
    """
    found = _of_whole_runs(values)
    steady = of_steady_part(found.metric) if _part(values, stacks) is Part.STEADY else None
    return found if steady is None else replace(found, metric=steady)


def _part(values: Mapping[str, Any], stacks: Iterable[Stack]) -> Part:
    """On a cache that was filled a run begins at the pace of the slow disk, whatever the kernel makes of it later."""
    part: Part = values["bisect.part"]
    if part is not Part.AUTO or values["bisect.metric"] is not None:
        return part
    filled = any(phase.fills for stack in (values["storage.stack"], *stacks) for phase in stack.phases)
    return Part.STEADY if filled and WORKLOADS[values["workload.kind"]].are_split(_own(values)) else Part.WHOLE


def _of_whole_runs(values: Mapping[str, Any]) -> Objective:
    metric, over = values["bisect.metric"], values["bisect.over"]
    if metric is not None:
        workload, own = WORKLOADS[values["workload.kind"]], _own(values)
        return Objective(workload.full_name(own, metric) if is_short(metric) else metric, over or WORST)
    named = deciding(values).objective
    return replace(named, over=over or named.over)


def _threshold(values: Mapping[str, Any], objective: Objective) -> str | None:
    """The article's threshold holds for what the article measured."""
    typed: str | None = values["bisect.threshold"]
    if typed != AUTO:
        return typed
    return _ARTICLE_THRESHOLD if values["profile"] == "article" and objective == Objective() else None


def _fill_deadline_s(values: Mapping[str, Any], runtime_s: float) -> float:
    """Long enough for the rounds that are asked for and some more, however long a run is."""
    given: float | None = values["storage.fill_deadline_s"]
    rounds: int = values["storage.fill_rounds"]
    return max(_LEAST_FILL_S, (rounds + _FURTHER_ROUNDS) * runtime_s) if given is None else given


def _suspects(stack: Stack, disks: Iterable[GuestDisk]) -> tuple[str, ...]:
    """Those of the stack; where the drivers of block devices are among them, those of the disks' buses, too."""
    drivers = (driver for disk in disks for driver in disk.bus.drivers if "drivers/block" in stack.suspects)
    return tuple(dict.fromkeys((*stack.suspects, *drivers)))


def _of_clock(values: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from what makes the guest's time pass: its CPUs, and the kind of its disks."""
    clock = GuestClock.HOST if values["machine.clock"] is GuestClock.AUTO else values["machine.clock"]
    counted = clock is GuestClock.INSTRUCTIONS
    vcpus = values["machine.vcpus"] or (1 if counted else 2)
    guests = values["machine.guests"] or (None if counted else 1)
    least = values["bisect.least_effect"] or (_LEAST_EFFECT_COUNTED if counted else _LEAST_EFFECT)
    found: dict[str, Any] = {
        "machine.clock": clock,
        "machine.vcpus": vcpus,
        "machine.guests": guests,
        "bisect.least_effect": least,
    }
    if counted and values["machine.accelerator"] is Accelerator.AUTO:
        found["machine.accelerator"] = Accelerator.TCG
    for bus in [key for key in values if key.startswith(_DISK) and key.endswith(_BUS)]:
        name = bus.removeprefix(_DISK).removesuffix(_BUS)
        latency = f"{_DISK}{name}.latency_s"
        found[bus] = values[bus] or (Bus.NULL_BLK if counted else Bus.VIRTIO)
        found[latency] = _latency_s(name, found[bus]) if values[latency] is None else values[latency]
    return found


def _latency_s(name: str, bus: Bus) -> float:
    """The usual one of a disk: of its own on null_blk, in whole milliseconds on brd, none elsewhere."""
    own_s = DISKS.get(name, FURTHER).memory_latency_s
    return {Bus.NULL_BLK: own_s, Bus.BRD: round(own_s, 3)}.get(bus, 0.0)


def resolved(values: dict[str, Any], stacks: Iterable[Stack] = ()) -> dict[str, Any]:
    """The values with every "auto" that follows from other settings filled in.

    What a run writes follows from the stack, and from the others that the same is measured on.
    """
    values = values | _of_clock(values)
    ground = BARE_FRAGMENT if values["kernel.base_config"] is None else BASE_FRAGMENT
    stack: Stack = values["storage.stack"]
    fill_bytes = max(one.filled_by(_of_layers(one, values)) for one in (stack, *stacks))
    workload = WORKLOADS[values["workload.kind"]]
    sized = workload.sized(_own(values), values["profile"], fill_bytes)
    values = values | {f"{OF_WORKLOADS}{workload.name}.{name}": value for name, value in sized.items()}
    disks = [GuestDisk(**_below(f"storage.disks.{name}.guest.", values)) for name in stack.disks]
    of_disks = dict.fromkeys(fragment for disk in disks for fragment in disk.fragments)
    of_clock = (COUNTED_FRAGMENT,) if values["machine.clock"] is GuestClock.INSTRUCTIONS else ()
    auto = (ground, GUEST_FRAGMENT, *of_clock, *of_disks, *stack.fragments(_of_layers(stack, values)))
    names = values["kernel.fragments"]
    runtime_s = workload.runtime_s(_own(values))
    fill_deadline_s = _fill_deadline_s(values, runtime_s)
    fill_s = fill_deadline_s if any(phase.fills for phase in stack.phases) else 0.0
    runs_s = len(stack.phases) * runtime_s
    objective = objective_of(values, stacks)
    return {
        **values,
        "bisect.metric": objective.metric,
        "bisect.over": objective.over,
        "bisect.threshold": _threshold(values, objective),
        "bisect.suspects": _suspects(stack, disks) if values["bisect.suspects"] is None else values["bisect.suspects"],
        "contention.max_other_cores": _other_cores(values["contention.max_other_cores"]),
        "kernel.fragments": tuple(one for name in names for one in (auto if name == AUTO else (name,))),
        "mail.port": values["mail.port"] or values["mail.security"].usual_port,
        "storage.fill_deadline_s": fill_deadline_s,
        "machine.trial_deadline_s": values["machine.trial_deadline_s"] or runs_s + fill_s + _TRIAL_SPARE_S,
    }
