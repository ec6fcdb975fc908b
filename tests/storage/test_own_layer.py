"""A layer of another package: registered with one call, set, parsed and laid out like those of this one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from bisector.config import checks, options
from bisector.core.errors import UserError
from bisector.core.metric import Metric, Unit, named, table
from bisector.core.setting import Line, Meta, Option, Problem, Size
from bisector.core.shell import Shell, Step
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.storage import layers
from bisector.storage.disks import kernel_fault
from bisector.storage.layer import LAYERS, Capacity, Counters, Device, Files, Layer, LayerPlan, Phase
from bisector.storage.lvmcache import LvmCache
from bisector.storage.stack import stack_of
from tests.guestshell import Answer, FakeShell
from tests.storage.guests import MIB, guest, laid_out, settings


def requests(shell: Shell, name: str) -> float:
    return float(shell.run(f"cryptsetup status {name}").stdout.split()[0])


@dataclass(frozen=True, slots=True)
class Veil(Layer):
    """dm-crypt without a header (cryptsetup(8))."""

    name = "veil"
    is_mapped = True
    suspects = ("drivers/md/dm-crypt.c", "crypto")
    tools = ("cryptsetup",)
    metrics = (Metric("veil.requests", Unit.COUNT, None, "requests that dm-crypt was given"),)
    phases = (Phase("cold", judged=False), Phase("warm", judged=False), Phase("hot"))
    cipher: Annotated[Line, Meta(description="a cipher"), Option("storage.veil.cipher", "aes-xts-plain64", "cipher")]
    spare_bytes: Annotated[Size, Meta(ge=0), Option("storage.veil.spare", "1MiB", "room left free, bytes", "2MiB")]

    def extent(self, below: Sequence[Capacity]) -> Capacity:
        (device,) = below
        size = None if device.size_bytes is None else device.size_bytes - self.spare_bytes
        return Capacity("the veil device", size, (*device.keys, "storage.veil.spare"))

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        if self.spare_bytes > 8 * MIB:
            yield Problem(("storage.veil.spare",), "that is too much")

    def parameters(self) -> tuple[str, ...]:
        return (f"veil.cipher={self.cipher}",)

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        name = f"veil{suffix}"

        def verify(answers: Sequence[str], numbers: object) -> None:
            if self.cipher not in answers[0]:
                raise KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, f"dmsetup: {answers[0]}")

        return LayerPlan(
            f"/dev/mapper/{name}",
            (Step(f"cryptsetup open --cipher {self.cipher} {below[0].path} {name}", kernel_fault),),
            (Step(f"dmsetup table {name}", kernel_fault),),
            verify,
            counters=Counters(
                lambda shell: requests(shell, name), lambda before, after: [("veil.requests", after - before)]
            ),
        )


@pytest.fixture
def veil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Layer]]:
    fragment = tmp_path / "veil.config"
    fragment.write_text("CONFIG_DM_CRYPT=y\n", encoding="utf-8")
    monkeypatch.setattr(Veil, "fragments", (str(fragment),))
    layers.register(Veil)
    yield Veil
    layers.forget("veil")


@pytest.mark.usefixtures("veil")
def test_it_is_laid_out_between_disk_and_file_system() -> None:
    shell = FakeShell(guest("ext4", dmsetup_table="0 100 crypt aes-xts-plain64 0 254:16 0\n"))
    mounted = laid_out("veil(hdd)+ext4", shell)
    assert [command.split()[0] for command in mounted.description] == ["cryptsetup", "mkfs.ext4", "mount", "stat"]
    assert mounted.description[0] == "cryptsetup open --cipher aes-xts-plain64 /dev/disk/by-id/virtio-hdd veil"
    assert mounted.description[1].endswith(" /dev/mapper/veil")
    assert "cryptsetup mkfs.ext4 mount" in shell.commands[0]
    assert mounted.room == "storage.hdd.size or storage.veil.spare"
    with pytest.raises(KernelFault, match="des"):
        laid_out("veil(hdd)+ext4", FakeShell(guest("ext4", dmsetup_table="0 100 crypt des 0 254:16 0\n")))


def test_everything_else_asks_it(veil: type[Layer]) -> None:
    found = settings("veil(hdd)+ext4")
    assert found.kernel.fragments == ("tiny", "vm", *veil.fragments)
    assert found.bisect.suspects == ("drivers/md/dm-crypt.c", "crypto")
    assert [phase.name for phase in found.storage.stack.phases] == ["cold", "warm", "hot"]
    assert found.machine.trial_deadline_s == 3 * 40 + 900
    assert found.storage.stack.baselines == ("hdd",)
    assert list(found.storage.used_disks) == ["hdd"]
    assert found.storage.parameters == ("veil.cipher=aes-xts-plain64",)


@pytest.mark.usefixtures("veil")
def test_its_settings_are_read_checked_recorded_and_shown() -> None:
    found = settings("veil(hdd)+ext4", {"storage.veil.cipher": "serpent-xts"})
    assert found.storage.layers["veil"] == Veil("serpent-xts", MIB)
    assert settings("hdd", {"profile": "article"}).storage.layers["veil"].spare_bytes == 2 * MIB
    assert options.from_json(options.to_json(found)) == found
    shown = options.describe(options.load(directory=Path("/")))
    assert {row.key: row.value for row in shown}["storage.veil.spare"] == "1MiB"
    with pytest.raises(UserError, match=r"storage\.veil\.spare = 9MiB .*: that is too much"):
        settings("veil(hdd)+ext4", {"storage.veil.spare": "9MiB"})
    assert settings("hdd", {"storage.veil.spare": "9MiB"}).storage.stack.disks == ("hdd",)
    stack = stack_of("hdd+veil(cipher=twofish)+ext4")
    assert stack.device.layer(found.storage.layers) == Veil("twofish", MIB)
    assert str(stack) == "veil(hdd,cipher=twofish)+ext4"


@pytest.mark.usefixtures("veil")
def test_layers_lie_on_layers_and_two_of_a_kind_have_names_of_their_own() -> None:
    stack = stack_of("lvmcache(veil(ssd),veil(hdd))+ext4")
    storage = settings(str(stack)).storage
    assert stack.disks == ("ssd", "hdd")
    assert stack.suspects == ("drivers/md/dm-crypt.c", "crypto", "drivers/md")
    assert [phase.name for phase in stack.phases] == ["empty", "full"]
    assert stack.device.extent(checks.extents(storage), storage.layers).size_bytes == (1 << 30) - MIB
    # The cache's parts are looked for on the disks that each device lies on.
    deps = "veil: 1 dependencies\t: (254, 16)\nveil2: 1 dependencies\t: (254, 32)\n" + "".join(
        f"{name}: 1 dependencies\t: (253, {below})\n" for name, below in (("data", 8), ("meta", 8), ("corig", 9))
    )
    names = "veil 253 8\nveil2 253 9\ndata 253 0\nmeta 253 1\ncorig 253 3\n"
    veils = {"dmsetup table veil": "0 100 crypt aes-xts-plain64\n", "cryptsetup status": "0 requests\n"}
    answers = guest("lvmcache", dmsetup_deps=deps, dmsetup_info=names, **veils)
    shell = FakeShell(answers)
    mounted = laid_out(str(stack), shell)
    made = ["/dev/mapper/veil", "/dev/mapper/veil2", "/dev/bisector/origin", "/mnt"]
    assert [one.path for one in mounted.made] == made
    before = mounted.read(shell)
    assert before.cache is not None
    assert before.cache.total_blocks == 1024
    after = mounted.read(FakeShell({**answers, "cryptsetup status": Answer("12 requests\n")}))
    assert dict(mounted.counted(before, after))["veil.requests"] == 12


@pytest.mark.usefixtures("veil")
def test_its_metrics_are_known_as_long_as_it_is() -> None:
    assert named("veil.requests").unit is Unit.COUNT
    assert named("veil.requests") in table()
    layers.forget("veil")
    with pytest.raises(UserError, match=r"there is no metric 'veil\.requests'"):
        named("veil.requests")
    layers.register(Veil)


@pytest.mark.usefixtures("veil")
def test_a_value_with_commas_is_in_quotes() -> None:
    stack = stack_of('veil(hdd,cipher="aes, (x)=1+2")+ext4')
    assert stack.device.options == (("cipher", "aes, (x)=1+2"),)
    assert str(stack) == 'veil(hdd,cipher="aes, (x)=1+2")+ext4'
    assert stack_of(str(stack)) == stack
    assert str(stack_of('veil(hdd,cipher="aes")+ext4')) == "veil(hdd,cipher=aes)+ext4"
    for text in ('veil(hdd,cipher="aes)+ext4', 'veil(hdd,"cipher"=aes)+ext4', '"veil"(hdd)+ext4'):
        with pytest.raises(UserError):
            stack_of(text)


def test_what_is_not_registered_is_unknown() -> None:
    with pytest.raises(UserError, match="there is no layer or disk veil"):
        settings("veil(hdd)+ext4")


def made_up(name: str, *phases: Phase, base: type[Layer] = Veil) -> type[Layer]:
    return type("Own", (base,), {"name": name, "phases": phases, "metrics": ()})


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (made_up("ext4"), "there is a layer or disk called ext4 already"),
        (made_up("hdd"), "there is a layer or disk called hdd already"),
        (made_up("x", base=LvmCache), "another layer has the setting"),
        (made_up("x", Phase("a", judged=False)), "the last phase is the judged one"),
        (made_up("x", Phase("a"), Phase("b")), "the last phase is the judged one"),
    ],
)
def test_a_layer_that_cannot_be_is_our_bug(layer: type[Layer], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        layers.register(layer)
    assert "x" not in LAYERS
