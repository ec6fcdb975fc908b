"""A storage stack: layers on disks, what follows from what it is composed of, and its text.

``hdd+ext4``                              a file system on a disk
``lvmcache(ssd,hdd)+ext4``                on a layer that lies on two disks, in the order of its roles
``crypt(hdd)+xfs``, ``hdd+crypt+xfs``     the same stack, written in two ways: ``A+B`` is ``B(A)``
``raid5(hdd,hdd2,hdd3)+ext4``             on a layer that takes as many devices as it is given
``lvmcache(ssd,hdd,cache_mode=writethrough)+ext4``  with a setting of this one layer
``hdd+xfs(mount_options="noatime,largeio")``  with one whose value has commas: in double quotes
``lvmcache``, ``ssd``                     short names of whole stacks

A name that is no layer's, with nothing below it, is a disk's. Which disks there are is known once all settings are
(:func:`unknown_disk`).
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from bisector.core.errors import UserError
from bisector.core.figures import Run, phase_name
from bisector.core.setting import Form, Problem, Unfit
from bisector.core.units import plural
from bisector.storage import filling
from bisector.storage.disks import DISKS, objection_to
from bisector.storage.layer import Capacity, Feature, Files, Layer, Phase
from bisector.storage.layers import LAYERS, aliases, spelled_out

_BARE = re.compile(r"[^\s(),+=]+")

T = TypeVar("T")
# Each layer with its settings, by its name.
Values: TypeAlias = Mapping[str, Layer]


@dataclass(frozen=True, slots=True)
class Node:
    """A layer on what is below it, or a disk; ``options`` are settings of this one layer, as written in the stack."""

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
        """Whether it is one of the disks, and no layer."""
        return self.name not in LAYERS

    @property
    def disks(self) -> tuple[str, ...]:
        """The names of the disks at the bottom, from left to right."""
        return (self.name,) if self.is_disk else tuple(name for one in self.below for name in one.disks)

    @property
    def layers(self) -> tuple["Node", ...]:
        """The nodes of layers, each after those below it."""
        return () if self.is_disk else (*(node for one in self.below for node in one.layers), self)

    def extent(self, disks: Mapping[str, Capacity], values: Values) -> Capacity:
        """What it makes of disks of these sizes."""
        if self.is_disk:
            return disks[self.name]
        layer = self.layer(values)
        found = layer.extent([one.extent(disks, values) for one in self.below])
        return replace(found, has_partitions=not layer.is_mapped)

    def layer(self, values: Values) -> Layer:
        """The layer with its settings, those that the stack says over the others."""
        kind = LAYERS[self.name]
        rows = kind.rows()
        said = {rows[name].field: rows[name].read(text, typed=True) for name, text in self.options}
        return replace(values[self.name] if self.name in values else kind(), **said)

    def said_by(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Keys of settings, with that of the stack in place of those that it overrides."""
        rows = LAYERS[self.name].rows()
        overridden = {rows[name].key for name, _ in self.options}
        return tuple(dict.fromkeys("storage.stack" if key in overridden else key for key in keys))


@dataclass(frozen=True, slots=True)
class Stack:
    """A file system on layers on disks; ``top`` is the file system. Plain data: layers are looked up by their names."""

    top: Node

    def __str__(self) -> str:
        """The short name where there is one, else its full form."""
        names = (*aliases(), self.device.name)
        return next((name for name in names if spelled_out(name) == self.text), self.text)

    @property
    def text(self) -> str:
        """Its full form, in which equal stacks are written alike."""
        options = ",".join(self.top.written_options)
        return f"{self.device}+{self.top.name}{f'({options})' if options else ''}"

    @property
    def lone_disk(self) -> str | None:
        """The disk, of a stack that is nothing else below its file system."""
        return self.device.name if self.device.is_disk else None

    @property
    def device(self) -> Node:
        """What the file system is on."""
        (device,) = self.top.below
        return device

    @property
    def disks(self) -> tuple[str, ...]:
        """The names of the disks that it uses, in the order in which it names them."""
        return self.top.disks

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The layers' nodes in the order in which they are made, each after those below it."""
        return self.top.layers

    @property
    def layers(self) -> tuple[type[Layer], ...]:
        """The layers in the order in which they are made."""
        return tuple(LAYERS[node.name] for node in self.nodes)

    @property
    def file_system(self) -> type[Layer]:
        """The layer on top."""
        return LAYERS[self.top.name]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The runs of a trial in order: those of the uppermost layer that asks for some, else one judged run.

        A lone run is named after its disk where there is one disk and nothing else below the file system.
        """
        asked = next((layer.phases for layer in reversed(self.layers) if layer.phases), ())
        return asked or (Phase(self.lone_disk or "run"),)

    def unready(self, run: Run) -> Iterator[str]:
        """Why a run did not begin in the state that its phase asks for; nothing of a run of another stack."""
        for phase in self.phases:
            if phase.name == run.name:
                yield from phase.unready(run)

    def unsteady(self, runs: Sequence[Run]) -> Iterator[str]:
        """Why a cache was not steady after the rounds that filled it."""
        for phase in self.phases:
            if phase.fills:
                yield from filling.unsteady([run for run in runs if phase_name(run.name) == phase.name])

    def each(self, values: Values) -> Iterator[tuple[Node, Layer]]:
        """Each layer with its node, in the order in which they are made."""
        return ((node, node.layer(values)) for node in self.nodes)

    def fragments(self, values: Values) -> tuple[str, ...]:
        """Kernel configuration fragments, each once."""
        return _once(one for _, layer in self.each(values) for one in layer.fragments_for())

    def features(self, values: Values) -> tuple[tuple[str, Feature], ...]:
        """What its layers' settings ask of drivers beside their options, each with the name of the layer."""
        asked = ((node, one) for node, layer in self.each(values) for one in layer.features())
        return _once((node.name, replace(one, keys=node.said_by(one.keys))) for node, one in asked)

    def filled_by(self, values: Values) -> int:
        """How much a run has to write, in bytes, so that its caches are full; 0 for a stack without."""
        return max((layer.filled_by() for _, layer in self.each(values)), default=0)

    @property
    def tools(self) -> tuple[str, ...]:
        """Programs that the guest needs, each once."""
        return _once(one for layer in self.layers for one in layer.tools)

    def parameters(self, values: Values) -> tuple[str, ...]:
        """Kernel parameters of the layers, each once, in the order in which these are made."""
        return _once(one for _, layer in self.each(values) for one in layer.parameters())

    def memory(self, values: Values) -> tuple[Capacity, ...]:
        """What of the guest's memory its layers keep."""
        asked = ((node, layer.memory(len(node.below))) for node, layer in self.each(values))
        return tuple(replace(one, keys=node.said_by(one.keys)) for node, one in asked if one is not None)

    def untold(self, values: Values) -> tuple[str, ...]:
        """What of its layers' settings nobody can read back, in sentences."""
        return _once(one for _, layer in self.each(values) for one in layer.untold())

    @property
    def suspects(self) -> tuple[str, ...]:
        """Paths of drivers in the kernel's tree, each once.

        Those of the layers between disks and file system, since the stack is composed for their sake; those of the
        file system where there are none. Beside them those of layers that are disks, where they are not below one.
        """
        between = [layer for layer in self.layers if layer.needs and not layer.is_file_system]
        found = [one for layer in between for one in layer.suspects] or self.file_system.suspects
        of_disks = (one for layer in self.layers if not layer.needs for one in layer.suspects)
        further = (one for one in of_disks if not any(one.startswith(f"{other}/") for other in found))
        return _once((*found, *further))

    def alone(self, disk: str) -> "Stack":
        """The stack's file system on one of the disks, with nothing between: what a baseline is measured on."""
        return Stack(Node(self.top.name, (Node(disk),), self.top.options))

    @property
    def baselines(self) -> tuple[str, ...]:
        """The disks whose figures alone say something that those of the stack do not; none for a disk alone."""
        return () if self.lone_disk else self.disks

    def extent(self, disks: Mapping[str, Capacity], values: Values) -> Capacity:
        """The device that the file system is on."""
        return self.device.extent(disks, values)

    def problems(self, disks: Mapping[str, Capacity], values: Values, files: Files) -> Iterator[Problem]:
        """What cannot work of each layer, from the disks upwards, and of one beside another."""
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
        """How much at most is written to each disk when the file system is given ``data_bytes`` of data."""
        total: dict[str, int] = {}
        waiting = [(self.top, data_bytes)]
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


_MARKS = frozenset('(),+="')
_TOKEN = re.compile(r'[(),+=]|"[^"]*"|[^\s(),+="]+|"')
_LONGEST = 400
_EXAMPLE = "lvmcache(ssd,hdd)+ext4"


def stack_of(text: str) -> Stack:
    """The stack that a text stands for; raises :class:`UserError` with the layers that there are."""
    if len(text) > _LONGEST:
        raise _refused(f"a stack of {len(text):,} characters")
    text = spelled_out(text)
    node = _Reader(text).whole()
    if node.is_disk or not LAYERS[node.name].is_file_system:
        raise _refused(f"{node} has no file system on it", f"for example {node}+ext4, or {node}+raw without one")
    stack = Stack(node)
    if twice := [disk for disk in stack.disks if stack.disks.count(disk) > 1]:
        raise _refused(f"{text}: {twice[0]} is used twice")
    for layer in stack.layers:
        if layer.at_most is not None and stack.layers.count(layer) > layer.at_most:
            raise _refused(f"{text}: a stack has {layer.name} {layer.at_most} times at most")
    return stack


def unknown_disk(stack: Stack, disks: Collection[str]) -> tuple[str, str] | None:
    """The first disk of a stack that is not among ``disks``, and what to do about it; None where all are there."""
    name = next((name for name in stack.disks if name not in disks), None)
    if name is None:
        return None
    return name, f"{_near(name, (*disks, *LAYERS))}a further disk: --disk {name}=1GiB; {_known(disks)}"


def lone_disk(text: str) -> str | None:
    """The disk, of a stack that is nothing else below its file system."""
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
    """Reads a text by recursive descent; each method takes what it reads off the words that are left."""

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
        found = repr(self.words[0]) if self.words else "the end"
        return _refused(f"{self.text}: {found} is not expected there")


def _written(layer: type[Layer], name: str, text: str) -> str:
    """The value as its kind writes it, so that equal stacks are equal."""
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


# The form of the setting; a stack is written by its short name where there is one.
STACK = Form(f"layers on disks such as {_EXAMPLE}, or one of {', '.join(aliases())}", _read_stack)
