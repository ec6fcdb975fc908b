"""The layers that a stack can be composed of, by name."""

from bisector.core import metric
from bisector.core.setting import options_of
from bisector.storage.bcache import Bcache
from bisector.storage.btrfs import Btrfs
from bisector.storage.crypt import Crypt
from bisector.storage.disks import DISKS, objection_to
from bisector.storage.ext4 import Ext4
from bisector.storage.file_system import Raw
from bisector.storage.layer import Layer, registered
from bisector.storage.lvmcache import LvmCache, LvmWritecache
from bisector.storage.raid import Raid1, Raid5
from bisector.storage.ram import Ram
from bisector.storage.xfs import Xfs


def register(layer: type[Layer]) -> None:
    """Make a layer known. Another package calls this before the settings are read.

    Raises :class:`ValueError` if another layer has the name, a setting or a metric, and if the judged phase is not
    exactly the last one.
    """
    if layer.name in (*registered, *DISKS):
        raise ValueError(f"there is a layer or disk called {layer.name} already")
    keys = {option.key for known in registered.values() for option in options_of(known)}
    if twice := sorted(keys & {option.key for option in options_of(layer)}):
        raise ValueError(f"{layer.name}: another layer has the setting {twice[0]}")
    if layer.phases and [phase.judged for phase in layer.phases] != [False] * (len(layer.phases) - 1) + [True]:
        raise ValueError(f"{layer.name}: the last phase is the judged one")
    for own in layer.metrics:
        metric.register(own)
    registered[layer.name] = layer


def forget(name: str) -> None:
    """Undo :func:`register`."""
    for own in registered.pop(name).metrics:
        metric.forget(own.name)


def aliases() -> dict[str, str]:
    """Whole stacks by their short names: each layer with an alias, and each disk for ext4 on it."""
    of_layers = {layer.name: layer.alias for layer in registered.values() if layer.alias}
    return of_layers | {disk: f"{disk}+{Ext4.name}" for disk in DISKS}


def spelled_out(text: str) -> str:
    """The whole stack that a short name stands for; other text is returned unchanged.

    A word that can name a disk and names no layer is taken for a disk, since only the settings say which disks exist.
    """
    word = text.strip()
    if word not in registered and objection_to(word) is None:
        return f"{word}+{Ext4.name}"
    return aliases().get(word, text)


# Each layer of this room is registered here.
for _layer in (*(Ram, LvmCache, LvmWritecache, Bcache, Raid1, Raid5, Crypt), *(Ext4, Raw, Xfs, Btrfs)):
    register(_layer)
