"""A storage stack: layers on disks, the properties that follow from its layers, its text form, and how it is made.

The text form is that of docs/stacks.md, such as ``lvmcache(crypt(ssd),hdd,cache_mode=writethrough)+ext4``; ``A+B`` is
``B(A)``. A name that no layer has, with nothing below it, is taken for a disk. Which disks exist is known only after
all settings are read (:func:`unknown_disk`).

:func:`lay_out` makes a stack on the guest's empty disks, in one round trip, and checks what the kernel made.
"""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias, TypeVar

from bisector.core.errors import UserError
from bisector.core.figures import Run, phase_name
from bisector.core.setting import Form, Problem, Unfit
from bisector.core.shell import Shell, Step, run_steps
from bisector.core.units import plural
from bisector.storage import disks
from bisector.storage.disks import DISKS, Brd, GuestDisk, MemoryDisk, objection_to
from bisector.storage.layer import (
    LAYERS,
    MOUNTPOINT,
    Capacity,
    Device,
    Feature,
    Files,
    Layer,
    LayerPlan,
    MountedStack,
    Phase,
    unsteady,
)
from bisector.storage.layers import aliases, spelled_out

# Of the text form: a value that needs no quotes, the words of a stack, and an example.
_BARE = re.compile(r"[^\s(),+=]+")
_MARKS = frozenset('(),+="')
_TOKEN = re.compile(r'[(),+=]|"[^"]*"|[^\s(),+="]+|"')
_LONGEST = 400
_EXAMPLE = "lvmcache(ssd,hdd)+ext4"
# What stat -f and blockdev print.
_FREE = re.compile(r"(\d{1,20}) (\d{1,20})")
_SIZE = re.compile(r"\d{1,20}")
_MIB = 1 << 20

T = TypeVar("T")
# Layers with their settings, by the names of the layers.
Values: TypeAlias = Mapping[str, Layer]


@dataclass(frozen=True, slots=True)
class Node:
    """A disk, or a layer on the nodes below; ``options`` are settings that the stack gives to this one layer."""

    name: str
    below: tuple["Node", ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        arguments = (*map(str, self.below), *self.written_options)
        return f"{self.name}({','.join(arguments)})" if arguments else self.name

    @property
    def written_options(self) -> tuple[str, ...]:
        """``NAME=VALUE`` of each option."""
        quoted = ((name, value if _BARE.fullmatch(value) else f'"{value}"') for name, value in self.options)
        return tuple(f"{name}={value}" for name, value in quoted)

    @property
    def is_disk(self) -> bool:
        """Whether the node is a disk and not a layer."""
        return self.name not in LAYERS

    @property
    def disks(self) -> tuple[str, ...]:
        """The names of the disks at the bottom, from left to right."""
        return (self.name,) if self.is_disk else tuple(name for one in self.below for name in one.disks)

    @property
    def nodes(self) -> tuple["Node", ...]:
        """The nodes that are layers in the order in which they are made, each after the nodes below it."""
        return () if self.is_disk else (*(node for one in self.below for node in one.nodes), self)

    def extent(self, disks: Mapping[str, Capacity], values: Values) -> Capacity:
        """The device that the node makes on disks of these sizes."""
        if self.is_disk:
            return disks[self.name]
        layer = self.layer(values)
        found = layer.extent([one.extent(disks, values) for one in self.below])
        return replace(found, has_partitions=not layer.is_mapped)

    def layer(self, values: Values) -> Layer:
        """The layer with its settings; the stack's own options override ``values``."""
        kind = LAYERS[self.name]
        rows = kind.rows()
        said = {rows[name].field: rows[name].read(text, typed=True) for name, text in self.options}
        return replace(values[self.name] if self.name in values else kind(), **said)

    def said_by(self, keys: Iterable[str]) -> tuple[str, ...]:
        """The keys of settings, with ``storage.stack`` in place of each that the stack overrides."""
        rows = LAYERS[self.name].rows()
        overridden = {rows[name].key for name, _ in self.options}
        return tuple(dict.fromkeys("storage.stack" if key in overridden else key for key in keys))


@dataclass(frozen=True, slots=True)
class Stack(Node):
    """A file system on layers on disks. Plain data: layers are looked up by their names."""

    def __str__(self) -> str:
        """The short name if there is one, else the full form."""
        names = (*aliases(), self.device.name)
        return next((name for name in names if spelled_out(name) == self.text), self.text)

    @property
    def text(self) -> str:
        """The full form; equal stacks have the same text."""
        options = ",".join(self.written_options)
        return f"{self.device}+{self.name}{f'({options})' if options else ''}"

    @property
    def lone_disk(self) -> str | None:
        """The disk of a stack that has nothing else below its file system; None for any other stack."""
        return self.device.name if self.device.is_disk else None

    @property
    def device(self) -> Node:
        """The node that the file system is on."""
        (device,) = self.below
        return device

    @property
    def layers(self) -> tuple[type[Layer], ...]:
        """The layers in the order in which they are made."""
        return tuple(LAYERS[node.name] for node in self.nodes)

    @property
    def file_system(self) -> type[Layer]:
        """The layer on top."""
        return LAYERS[self.name]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of a trial in order: the phases of the uppermost layer that has any, else one judged run.

        That one run is named after the disk if there is nothing but a disk below the file system.
        """
        asked = next((layer.phases for layer in reversed(self.layers) if layer.phases), ())
        return asked or (Phase(self.lone_disk or "run"),)

    def unready(self, run: Run) -> Iterator[str]:
        """Yield why a run did not begin in the state that its phase asks for; nothing if no phase has its name."""
        for phase in self.phases:
            if phase.name == run.name:
                yield from phase.unready(run)

    def unsteady(self, runs: Sequence[Run]) -> Iterator[str]:
        """Yield why a cache was not steady after the rounds that filled it."""
        for phase in self.phases:
            if phase.fills:
                yield from unsteady([run for run in runs if phase_name(run.name) == phase.name])

    def each(self, values: Values) -> Iterator[tuple[Node, Layer]]:
        """Each node with its layer and its settings, in the order in which they are made."""
        return ((node, node.layer(values)) for node in self.nodes)

    def fragments(self, values: Values) -> tuple[str, ...]:
        """The kernel configuration fragments that the layers need, each once."""
        return _once(one for _, layer in self.each(values) for one in layer.fragments_for())

    def features(self, values: Values) -> tuple[tuple[str, Feature], ...]:
        """The features that the layers' settings need of drivers, each with the name of its layer."""
        asked = ((node, one) for node, layer in self.each(values) for one in layer.features())
        return _once((node.name, replace(one, keys=node.said_by(one.keys))) for node, one in asked)

    def filled_by(self, values: Values) -> int:
        """How many bytes a run has to write to fill all caches of the stack; 0 if it has no cache."""
        return max((layer.filled_by() for _, layer in self.each(values)), default=0)

    def parameters(self, values: Values) -> tuple[str, ...]:
        """The kernel parameters of the layers, each once, in the order in which the layers are made."""
        return _once(one for _, layer in self.each(values) for one in layer.parameters())

    def memory(self, values: Values) -> tuple[Capacity, ...]:
        """The guest memory that each of the layers occupies."""
        asked = ((node, layer.memory(len(node.below))) for node, layer in self.each(values))
        return tuple(replace(one, keys=node.said_by(one.keys)) for node, one in asked if one is not None)

    def unverifiable(self, values: Values) -> tuple[str, ...]:
        """A sentence for each setting of the layers that cannot be read back."""
        return _once(one for _, layer in self.each(values) for one in layer.unverifiable())

    @property
    def suspects(self) -> tuple[str, ...]:
        """Paths of drivers in the kernel's tree, each once.

        These are the drivers of the layers between disks and file system, since the stack is composed for their sake,
        or else the drivers of the file system; and then the drivers of layers that are disks, unless their paths are
        below one of the former.
        """
        between = [layer for layer in self.layers if layer.needs and not layer.is_file_system]
        found = [one for layer in between for one in layer.suspects] or self.file_system.suspects
        of_disks = (one for layer in self.layers if not layer.needs for one in layer.suspects)
        further = (one for one in of_disks if not any(one.startswith(f"{other}/") for other in found))
        return _once((*found, *further))

    def alone(self, disk: str) -> "Stack":
        """The stack's file system directly on one of the disks: a baseline is measured on it."""
        return Stack(self.name, (Node(disk),), self.options)

    @property
    def baselines(self) -> tuple[str, ...]:
        """The disks to measure a baseline on; none if the stack is a file system on one disk."""
        return () if self.lone_disk else self.disks

    def problems(self, disks: Mapping[str, Capacity], values: Values, files: Files) -> Iterator[Problem]:
        """Yield what cannot work in each layer, from the disks upwards, and conflicting kernel parameters of layers."""
        for node, layer in self.each(values):
            below = [one.extent(disks, values) for one in node.below]
            for problem in layer.problems(below, files):
                yield replace(problem, keys=node.said_by(problem.keys))
        wanted: dict[str, str] = {}
        for one in self.parameters(values):
            name, _, value = one.partition("=")
            if (other := wanted.setdefault(name, value)) != value:
                sentence = f"its layers need two values of the kernel parameter {name}, {other} and {value}"
                yield Problem(("storage.stack",), sentence)

    def written(self, disks: Mapping[str, Capacity], values: Values, data_bytes: int) -> Mapping[str, int]:
        """How many bytes at most are written to each disk when ``data_bytes`` are written to the file system."""
        total: dict[str, int] = {}
        waiting: list[tuple[Node, int]] = [(self, data_bytes)]
        while waiting:
            node, share = waiting.pop()
            if node.is_disk:
                total[node.name] = total.get(node.name, 0) + share
                continue
            below = [one.extent(disks, values) for one in node.below]
            shares = node.layer(values).written(below, share)
            waiting += zip(node.below, shares, strict=True)
        return total


def _once(found: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(found))


# The text form


def stack_of(text: str) -> Stack:
    """The stack that a text stands for; raises :class:`UserError`, which lists the known layers."""
    if len(text) > _LONGEST:
        raise _refused(f"a stack of {len(text):,} characters")
    text = spelled_out(text)
    node = _Reader(text).whole()
    if node.is_disk or not LAYERS[node.name].is_file_system:
        raise _refused(f"{node} has no file system on it", f"for example {node}+ext4, or {node}+raw without one")
    stack = Stack(node.name, node.below, node.options)
    if twice := [disk for disk in stack.disks if stack.disks.count(disk) > 1]:
        raise _refused(f"{text}: {twice[0]} is used twice")
    for layer in stack.layers:
        if layer.at_most is not None and stack.layers.count(layer) > layer.at_most:
            raise _refused(f"{text}: a stack has {layer.name} {layer.at_most} times at most")
    return stack


def unknown_disk(stack: Stack, disks: Collection[str]) -> tuple[str, str] | None:
    """The first disk of a stack that is not among ``disks``, and what to do about it; None if all are there."""
    name = next((name for name in stack.disks if name not in disks), None)
    if name is None:
        return None
    return name, f"{_near(name, (*disks, *LAYERS))}a further disk: --disk {name}=1GiB; {_known(disks)}"


def lone_disk(text: str) -> str | None:
    """See :attr:`Stack.lone_disk`; raises :class:`UserError` as :func:`stack_of`."""
    return stack_of(text).lone_disk


def _refused(what: str, advice: str = "") -> UserError:
    return UserError(what, f"{advice or f'for example {_EXAMPLE}'}; {_known(DISKS)}")


def _known(disks: Iterable[str]) -> str:
    shapes = []  # "lvmcache(CACHE DEVICE,ORIGIN DEVICE)"; "ext4" for what lies on one device
    for layer in LAYERS.values():
        roles = (*layer.needs, "…") if layer.many else layer.needs
        shapes.append(layer.name if len(roles) <= 1 else f"{layer.name}({', '.join(roles)})")
    return f"disks: {', '.join(disks)}; layers: {', '.join(shapes)}; short names: {', '.join(aliases())}"


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), tuple(names), n=1)
    return f"did you mean {near[0]}? " if near else ""


class _Reader:
    """A recursive descent parser; each method removes what it reads from ``words``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[str] = _TOKEN.findall(text)

    def whole(self) -> Node:
        node = self._chain()
        if self.words:
            raise self._unexpected()
        return node

    def _chain(self) -> Node:
        node = self._node(())
        while self._take("+"):
            node = self._node((node,))
        return node

    def _node(self, before: tuple[Node, ...]) -> Node:
        name = self._word()
        below, options = list(before), list[tuple[str, str]]()
        more = self._take("(")
        while more:
            if self.words[1:2] == ["="]:
                option = self._word()
                self.words.pop(0)
                options.append((option, self._word().strip('"')))
            else:
                below.append(self._chain())
            more = not self._take(")")
            if more and not self._take(","):
                raise self._unexpected()
        if name in LAYERS:
            return self._checked(LAYERS[name], tuple(below), options)
        if name in DISKS and (below or options):
            raise _refused(f"{self.text}: {name} is a disk, and lies on nothing")
        if below or options or objection_to(name) is not None:
            near = _near(name, LAYERS if below or options else (*LAYERS, *DISKS))
            raise _refused(f"{self.text}: there is no layer or disk {name}", f"{near}for example {_EXAMPLE}")
        return Node(name)

    def _checked(self, layer: type[Layer], below: tuple[Node, ...], options: list[tuple[str, str]]) -> Node:
        least = len(layer.needs)
        if len(below) < least or (len(below) > least and not layer.many):
            roles = f" ({', '.join(layer.needs)})" if layer.needs else ""
            needed = f"{'at least ' if layer.many else ''}{plural(least, 'device')}"
            raise _refused(f"{self.text}: {layer.name} needs {needed} below it{roles}, not {len(below)}")
        for one in below:
            if not one.is_disk and LAYERS[one.name].is_file_system:
                what = "a file system" if LAYERS[one.name].has_files else "the end of a stack"
                raise _refused(f"{self.text}: {one.name} is {what}, and {layer.name} needs a device")
        names = [name for name, _ in options]
        written = tuple((name, _written(layer, name, text)) for name, text in options)
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"{self.text}: {twice[0]} is given twice")
        return Node(layer.name, below, written)

    def _word(self) -> str:
        if not self.words or self.words[0] in _MARKS:
            raise self._unexpected()
        return self.words.pop(0)

    def _take(self, mark: str) -> bool:
        if self.words[:1] != [mark]:
            return False
        self.words.pop(0)
        return True

    def _unexpected(self) -> UserError:
        missing = "a )" if self.text.count("(") > self.text.count(")") else "a layer or disk"
        wrong = f"{self.words[0]!r} is not expected there" if self.words else f"{missing} is missing at the end"
        return _refused(f"{self.text}: {wrong}")


def _written(layer: type[Layer], name: str, text: str) -> str:
    """The value in its canonical form, so that equal stacks compare equal."""
    rows = layer.rows()
    if (row := rows.get(name)) is None:
        has = f"{_near(name, rows)}its settings are {', '.join(rows)}" if rows else "it has none"
        raise UserError(f"{layer.name} has no setting {name}", has)
    try:
        return str(row.write(row.read(text, typed=True)))
    except Unfit as error:
        raise UserError(f"{layer.name}: {name}={text}: expected {row.expected}", f"{row.key}: {row.help}") from error


def _read_stack(raw: object, _base: object) -> Stack:
    if not isinstance(raw, str) or not raw.isprintable() or not raw.strip():
        raise ValueError(raw)
    return stack_of(raw)


# The form of the setting; a stack is written by its short name if it has one.
STACK = Form(f"layers on disks such as {_EXAMPLE}, or one of {', '.join(aliases())}", _read_stack)


# On the guest's disks


def lay_out(
    shell: Shell,
    stack: Stack,
    values: Values,
    files: Files,
    deadline_s: float,
    *,
    guest_disks: Mapping[str, GuestDisk] | None = None,
    in_memory: Mapping[str, MemoryDisk] | None = None,
) -> MountedStack:
    """Make the layers from the disks upwards and check that the kernel made what was asked for.

    ``values`` are the layers with their settings, ``files`` is what the workload writes; disks ``in_memory`` are made
    first. Raises :class:`bisector.core.trial.KernelFault` if a command fails or a layer is not what was asked for,
    :class:`UserError` for missing tools, sizes that do not fit and settings of disks that the kernel does not take,
    and :class:`bisector.core.errors.InfraError` if a layer lies on a wrong disk.
    """
    of_disks = {name: (guest_disks or {}).get(name, GuestDisk()) for name in stack.disks}
    paths = tuple(disks.path_of(name, disk.bus) for name, disk in of_disks.items())
    in_memory = in_memory or {}
    made = _made(stack, values, of_disks, in_memory)
    own = tuple(disk.make_step(name) for name, disk in in_memory.items())
    others = tuple(dict.fromkeys(leaf for one in made for leaf in one.leaves if leaf not in paths))
    raw = "" if stack.file_system.has_files else made[-1].path
    measured = f"blockdev --getsize64 {raw}" if raw else f"stat -f -c '%a %S' {MOUNTPOINT}"
    queued = (step for name, disk in of_disks.items() for step in disks.queue_steps(name, disk))
    described = (*queued, *(step for one in made for step in one.steps), *disks.steps(measured))
    # The answers come in this order, and each part has as many as it has steps.
    parts: tuple[Sequence[Step], ...] = (
        (disks.tools_step(_once(one for layer in stack.layers for one in layer.tools)), *own),
        disks.devices_steps(paths),
        described,
        disks.devices_steps(others),
        *(one.checks for one in made),
        tuple(disks.queue_check(name, disk) for name, disk in of_disks.items()),
    )
    answers = iter(run_steps(shell, [step for part in parts for step in part], deadline_s))
    _, of_paths, told, of_others, *checked, queues = (tuple(islice(answers, len(part))) for part in parts)
    numbers = {**disks.device_numbers(of_paths, paths), **disks.device_numbers(of_others, others)}
    for one, answered in zip(made, checked, strict=True):
        if one.verify is not None:
            one.verify(answered, numbers)
    found = tuple(disks.queue(*disk, answer) for disk, answer in zip(of_disks.items(), queues, strict=True))
    larger = " or ".join(stack.device.extent({name: Capacity.of_disk(name, None) for name in stack.disks}, values).keys)
    _check_room(told[-1], files, len(stack.phases) if raw else 0, larger)
    commands = tuple(step.command for step in (*own, *described))
    return MountedStack("" if raw else MOUNTPOINT, commands, raw, larger, made, found)


def _made(
    stack: Stack, values: Values, of_disks: Mapping[str, GuestDisk], in_memory: Mapping[str, MemoryDisk]
) -> tuple[LayerPlan, ...]:
    """How each layer is made, in order; a second layer of the same kind gets other device names."""
    made: list[LayerPlan] = []
    seen: Counter[str] = Counter()

    def device(node: Node) -> Device:
        if node.is_disk:
            path, disk = disks.path_of(node.name, of_disks[node.name].bus), in_memory.get(node.name)
            # A disk on brd is a device-mapper device itself.
            return Device(path, (disk.below if isinstance(disk, Brd) else path,))
        below = tuple(map(device, node.below))
        seen[node.name] += 1
        suffix = str(seen[node.name]) if seen[node.name] > 1 else ""
        layer = node.layer(values)
        made.append(layer.make(below, suffix))
        path = made[-1].path
        return Device(path, tuple(leaf for one in below for leaf in one.leaves) if layer.is_mapped else (path,))

    device(stack)
    return tuple(made)


def _check_room(answer: str, files: Files, runs_on_device: int, larger: str) -> None:
    """Raise :class:`UserError`, with both sizes, if the largest file does not fit on the file system.

    On a stack without a file system all runs have to fit on the device, each in its own place.
    """
    smaller = " or ".join(files.keys)
    if runs_on_device:
        if _SIZE.fullmatch(answer.strip()) is None:
            raise disks.not_an_answer("blockdev", answer)
        has_bytes, needed = int(answer), files.total_bytes * runs_on_device
        what = f"{files.sentence}, for each of {runs_on_device} runs, and the device in the guest"
    else:
        if (found := _FREE.fullmatch(answer.strip())) is None:
            raise disks.not_an_answer("stat -f", answer)
        has_bytes, needed = int(found[1]) * int(found[2]), files.largest_bytes
        what = f"{smaller} is {needed / _MIB:,.0f} MiB, and the file system in the guest"
    if has_bytes < needed:
        hint = f"make the disk of the storage stack larger ({larger}), or {smaller} smaller"
        raise UserError(f"{what} has only {has_bytes / _MIB:,.0f} MiB", hint)
