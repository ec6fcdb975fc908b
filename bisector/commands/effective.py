"""The settings that hold for a command: as they are given, and as this host and the trees that are measured have it."""

import argparse
from collections.abc import Collection, Mapping

from bisector.commands.arguments import given_settings
from bisector.commands.output import note
from bisector.config import Accelerator, MachineSettings, StorageSettings, options
from bisector.config.options import Effective, Given
from bisector.storage.layer import Since
from bisector.storage.stack import Stack
from bisector.vm.accelerator import could_count, known_accelerator


def effective(
    arguments: argparse.Namespace,
    *revisions: str,
    given: Mapping[str, Given] | None = None,
    stacks: Collection[Stack] = (),
    here: bool = True,
    tries: bool = True,
) -> Effective:
    """Those of the flags, or what is ``given`` in their place, over the files; raises :class:`UserError`.

    The ``revisions`` are of the command's repository. Where ``here`` is False, other hosts measure: what runs guests
    there is not known. Where it is not known here either, it is found out if the command ``tries``.
    """

    def have(since: Since) -> bool:
        from bisector.doctor.tree import trees_have  # noqa: PLC0415 - `bisector settings` loads no GitPython

        return trees_have(arguments.repo, *revisions)(since)

    def counts(machine: MachineSettings, storage: StorageSettings) -> bool:
        return here and could_count(machine, storage, _tried if tries else known_accelerator)

    flags = given_settings(arguments) if given is None else given
    trees_have = have if revisions else lambda since: True
    return options.load(flags, arguments.config, stacks=stacks, trees_have=trees_have, could_count=counts)


def _tried(machine: MachineSettings) -> Accelerator | None:
    """What guests run under here, tried where nobody knows: a KVM that runs nothing is none."""
    known = known_accelerator(machine)
    if known is not None:
        return known
    from bisector.vm.probes import try_kvm  # noqa: PLC0415 - nothing else here needs libvirt, and this once a boot

    note("trying whether KVM works here, once per boot of this host: 10 s at most")
    return try_kvm(machine)
