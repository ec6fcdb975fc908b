"""Which kernel options each layer of a storage stack cannot do without, by the fragments that it names."""

from dataclasses import dataclass

from bisector.core import resources
from bisector.kernel.kconfig import NOT_SET, Fragment, read_fragments
from bisector.storage.stack import Stack


@dataclass(frozen=True, slots=True)
class Need:
    """An option, as ``CONFIG_X``, and the name of the layer that does not work without it."""

    option: str
    layer: str


def needs(stack: Stack) -> tuple[Need, ...]:
    """What the layers need, from the disks upwards, each option once.

    What a fragment marks as optional, or switches off, is not needed.
    """
    found: dict[str, Need] = {}
    for layer in stack.layers:
        for fragment in read_fragments(resources.kconfigs(), layer.fragments):
            for option in _required(fragment):
                found.setdefault(option, Need(option, layer.name))
    return tuple(found.values())


def _required(fragment: Fragment) -> tuple[str, ...]:
    switched_on = (name for name, value in fragment.options.items() if value != NOT_SET)
    return tuple(name for name in switched_on if name not in fragment.optional)
