"""The layers that a stack can be composed of, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from bisector.core import metric
from bisector.core.setting import options_of
from bisector.storage.bcache import Bcache
from bisector.storage.btrfs import Btrfs
from bisector.storage.crypt import Crypt
from bisector.storage.disks import DISKS, objection_to
from bisector.storage.ext4 import Ext4
from bisector.storage.layer import Layer
from bisector.storage.lvmcache import LvmCache
from bisector.storage.lvmwritecache import LvmWritecache
from bisector.storage.raid import Raid1, Raid5
from bisector.storage.ram import Ram
from bisector.storage.raw import Raw
from bisector.storage.xfs import Xfs

_layers: dict[str, type[Layer]] = {}
LAYERS: Mapping[str, type[Layer]] = MappingProxyType(_layers)


def register(layer: type[Layer]) -> None:
    """Make a layer known; for one of another package, before the settings are read.

    Raises :class:`ValueError` for a name, a setting or a metric that is another's, and for phases of which not the last
    one, and that one alone, is judged.
    """
    if layer.name in (*_layers, *DISKS):
        raise ValueError(f"there is a layer or disk called {layer.name} already")
    keys = {option.key for known in _layers.values() for option in options_of(known)}
    if twice := sorted(keys & {option.key for option in options_of(layer)}):
        raise ValueError(f"{layer.name}: another layer has the setting {twice[0]}")
    if layer.phases and [phase.judged for phase in layer.phases] != [False] * (len(layer.phases) - 1) + [True]:
        raise ValueError(f"{layer.name}: the last phase is the judged one")
    for own in layer.metrics:
        metric.register(own)
    _layers[layer.name] = layer


def forget(name: str) -> None:
    """Undo :func:`register`."""
    for own in _layers.pop(name).metrics:
        metric.forget(own.name)


def aliases() -> dict[str, str]:
    """The short names of whole stacks: those of layers that have one, and each disk with a file system alone."""
    of_layers = {layer.name: layer.alias for layer in _layers.values() if layer.alias}
    return of_layers | {disk: f"{disk}+{Ext4.name}" for disk in DISKS}


def spelled_out(text: str) -> str:
    """The whole stack that a short name stands for; other text as it is.

    A word that is no layer's is a disk's: which disks there are is a matter of the settings.
    """
    word = text.strip()
    if word not in _layers and objection_to(word) is None:
        return f"{word}+{Ext4.name}"
    return aliases().get(word, text)


# A layer of this room is known by its line here.
for _layer in (*(Ram, LvmCache, LvmWritecache, Bcache, Raid1, Raid5, Crypt), *(Ext4, Raw, Xfs, Btrfs)):
    register(_layer)
