"""From the text of a stack to what it is composed of.

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
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from bisector.core.errors import UserError
from bisector.core.kinds import Kind, Unfit
from bisector.core.units import plural
from bisector.storage.disks import DISKS, objection_to
from bisector.storage.layer import Layer
from bisector.storage.layers import LAYERS, aliases, spelled_out
from bisector.storage.stack import Node, Stack

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


def stack_kind() -> Kind:
    """The kind of the setting; it is written by its short name where there is one."""

    def read(raw: object, _base: object) -> Stack:
        if not isinstance(raw, str) or not raw.isprintable() or not raw.strip():
            raise Unfit
        return stack_of(raw)

    return Kind(f"layers on disks such as {_EXAMPLE}, or one of {', '.join(aliases())}", read, str)


def _refused(what: str, advice: str = "") -> UserError:
    return UserError(what, f"{advice or f'for example {_EXAMPLE}'}; {_known(DISKS)}")


def _known(disks: Iterable[str]) -> str:
    layers = ", ".join(_shape(layer) for layer in LAYERS.values())
    return f"disks: {', '.join(disks)}; layers: {layers}; short names: {', '.join(aliases())}"


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), tuple(names), n=1)
    return f"did you mean {near[0]}? " if near else ""


def _shape(layer: Layer) -> str:
    """``lvmcache(CACHE DEVICE,ORIGIN DEVICE)``; ``ext4`` for what lies on one device."""
    roles = (*layer.needs, "…") if layer.many else layer.needs
    return layer.name if len(roles) <= 1 else f"{layer.name}({', '.join(roles)})"


@dataclass(slots=True)
class _Reader:
    """Reads a text by recursive descent; each method takes what it reads off the words that are left."""

    text: str
    words: list[str] = field(default_factory=list)

    def whole(self) -> Node:
        self.words = _TOKEN.findall(self.text)
        node = self._chain()
        if self.words:
            raise self._unexpected()
        return node

    def _chain(self) -> Node:
        """``A+B+C``: each layer lies on what is written before it."""
        node = self._node(())
        while self._take("+"):
            node = self._node((node,))
        return node

    def _node(self, before: tuple[Node, ...]) -> Node:
        name = self._word()
        below, options = list(before), []
        if self._take("("):
            for argument in self._arguments():
                if isinstance(argument, Node):
                    below.append(argument)
                else:
                    options.append(argument)
        if name in LAYERS:
            return self._checked(LAYERS[name], tuple(below), options)
        if name in DISKS and (below or options):
            raise _refused(f"{self.text}: {name} is a disk, and lies on nothing")
        if below or options or objection_to(name) is not None:
            near = _near(name, LAYERS if below or options else (*LAYERS, *DISKS))
            raise _refused(f"{self.text}: there is no layer or disk {name}", f"{near}for example {_EXAMPLE}")
        return Node(name)

    def _arguments(self) -> Iterator[Node | tuple[str, str]]:
        while True:
            if self.words[1:2] == ["="]:
                name = self._word()
                self.words.pop(0)
                yield name, self._value()
            else:
                yield self._chain()
            if self._take(")"):
                return
            if not self._take(","):
                raise self._unexpected()

    def _checked(self, layer: Layer, below: tuple[Node, ...], options: list[tuple[str, str]]) -> Node:
        if not layer.lies_on(len(below)):
            roles = f" ({', '.join(layer.needs)})" if layer.needs else ""
            needed = plural(len(layer.needs), "device")
            least = "at least " if layer.many else ""
            raise _refused(f"{self.text}: {layer.name} needs {least}{needed} below it{roles}, not {len(below)}")
        for one in below:
            if not one.is_disk and LAYERS[one.name].is_file_system:
                what = "a file system" if LAYERS[one.name].has_files else "the end of a stack"
                raise _refused(f"{self.text}: {one.name} is {what}, and {layer.name} needs a device")
        written = tuple((name, _written(layer, name, text)) for name, text in options)
        if twice := [name for name, _ in written if [one for one, _ in written].count(name) > 1]:
            raise UserError(f"{self.text}: {twice[0]} is given twice")
        return Node(layer.name, below, written)

    def _word(self) -> str:
        if not self.words or self.words[0] in _MARKS:
            raise self._unexpected()
        return self.words.pop(0)

    def _value(self) -> str:
        word = self._word()
        return word[1:-1] if word.startswith('"') else word

    def _take(self, mark: str) -> bool:
        if self.words[:1] != [mark]:
            return False
        self.words.pop(0)
        return True

    def _unexpected(self) -> UserError:
        found = repr(self.words[0]) if self.words else "the end"
        return _refused(f"{self.text}: {found} is not expected there")


def _written(layer: Layer, name: str, text: str) -> str:
    """The value as its kind writes it, so that equal stacks are equal."""
    if (row := layer.rows.get(name)) is None:
        has = f"{_near(name, layer.rows)}its settings are {', '.join(layer.rows)}" if layer.rows else "it has none"
        raise UserError(f"{layer.name} has no setting {name}", has)
    try:
        return str(row.kind.write(row.kind.read(row.kind.from_text(text), None)))
    except Unfit as error:
        raise UserError(
            f"{layer.name}: {name}={text}: expected {row.kind.expected}", f"{row.key}: {row.help}"
        ) from error
