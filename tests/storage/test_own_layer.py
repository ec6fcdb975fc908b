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
from bisector.storage.stack import lay_out, stack_of
from tests.guestshell import Answer, FakeShell

MIB = 1 << 20
NO_FILES = Files(0, "no files")


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


def loaded(text: str, **more: str) -> options.Effective:
    return options.load({"storage.stack": text, **more}, directory=Path("/"))


@pytest.mark.usefixtures("veil")
def test_it_is_laid_out_between_disk_and_file_system() -> None:
    settings = loaded("veil(hdd)+ext4").settings
    storage = settings.storage
    answers = {
        "stat -L": Answer("fe:20\n"),
        "stat -f": Answer("1000 4096\n"),
        "dmsetup table": Answer("0 100 crypt aes-xts-plain64 0 254:32 0\n"),
    }
    shell = FakeShell(answers)
    mounted = lay_out(shell, storage.stack, storage.layers, NO_FILES, 60)
    assert [command.split()[0] for command in mounted.description] == ["cryptsetup", "mkfs.ext4", "mount", "stat"]
    assert mounted.description[0] == "cryptsetup open --cipher aes-xts-plain64 /dev/disk/by-id/virtio-hdd veil"
    assert mounted.description[1].endswith(" /dev/mapper/veil")
    assert "cryptsetup mkfs.ext4 mount" in shell.commands[0]
    assert mounted.room == "storage.hdd.size or storage.veil.spare"
    other = {**answers, "dmsetup table": Answer("0 100 crypt des 0 254:32 0\n")}
    with pytest.raises(KernelFault, match="des"):
        lay_out(FakeShell(other), storage.stack, storage.layers, NO_FILES, 60)


def test_everything_else_asks_it(veil: type[Layer]) -> None:
    settings = loaded("veil(hdd)+ext4").settings
    assert settings.kernel.fragments == ("tiny", "vm", *veil.fragments)
    assert settings.bisect.suspects == ("drivers/md/dm-crypt.c", "crypto")
    assert [phase.name for phase in settings.storage.stack.phases] == ["cold", "warm", "hot"]
    assert settings.machine.trial_deadline_s == 3 * 40 + 900
    assert settings.storage.stack.baselines == ("hdd",)
    assert list(settings.storage.used_disks) == ["hdd"]
    assert settings.storage.stack.parameters(settings.storage.layers) == ("veil.cipher=aes-xts-plain64",)


@pytest.mark.usefixtures("veil")
def test_its_settings_are_read_checked_recorded_and_shown() -> None:
    settings = loaded("veil(hdd)+ext4", **{"storage.veil.cipher": "serpent-xts"}).settings
    assert settings.storage.layers["veil"] == Veil("serpent-xts", MIB)
    assert loaded("hdd", profile="article").settings.storage.layers["veil"].spare_bytes == 2 * MIB
    recorded = options.to_json(settings)
    assert options.from_json(recorded) == settings
    assert {row.key: row.value for row in options.describe(loaded("hdd"))}["storage.veil.spare"] == "1MiB"
    with pytest.raises(UserError, match=r"storage\.veil\.spare = 9MiB .*: that is too much"):
        loaded("veil(hdd)+ext4", **{"storage.veil.spare": "9MiB"})
    assert loaded("hdd", **{"storage.veil.spare": "9MiB"}).settings.storage.stack.disks == ("hdd",)
    stack = stack_of("hdd+veil(cipher=twofish)+ext4")
    assert stack.device.layer(settings.storage.layers) == Veil("twofish", MIB)
    assert str(stack) == "veil(hdd,cipher=twofish)+ext4"


@pytest.mark.usefixtures("veil")
def test_layers_lie_on_layers_and_two_of_a_kind_have_names_of_their_own() -> None:
    stack = stack_of("lvmcache(veil(ssd),veil(hdd))+ext4")
    storage = loaded(str(stack)).settings.storage
    assert stack.disks == ("ssd", "hdd")
    assert stack.suspects == ("drivers/md/dm-crypt.c", "crypto", "drivers/md")
    assert [phase.name for phase in stack.phases] == ["empty", "full"]
    assert stack.device.extent(checks.extents(storage), storage.layers).size_bytes == (1 << 30) - MIB
    # The cache's parts are looked for on the disks that each device lies on.
    deps = "veil: 1 dependencies\t: (254, 16)\nveil2: 1 dependencies\t: (254, 32)\n" + "".join(
        f"{name}: 1 dependencies\t: (253, {below})\n" for name, below in (("data", 8), ("meta", 8), ("corig", 9))
    )
    names = "veil 253 8\nveil2 253 9\ndata 253 0\nmeta 253 1\ncorig 253 3\n"
    answers = {
        "stat -L": Answer("fe:10\nfe:20\n"),
        "stat -f": Answer("1000 4096\n"),
        "dmsetup table veil": Answer("0 100 crypt aes-xts-plain64\n"),
        "dmsetup table bisector": Answer("0 2088960 cache 253:1 253:0 253:3 128 1 writeback smq 0\n"),
        "dmsetup status": Answer("0 1 cache 8 1/2048 128 0/1024 0 0 0 0 0 0 0 1 writeback 0 smq 0 rw -\n"),
        "dmsetup deps": Answer(deps),
        "dmsetup info": Answer(names),
        "cryptsetup status": Answer("0 requests\n"),
    }
    shell = FakeShell(answers)
    mounted = lay_out(shell, stack, storage.layers, NO_FILES, 60)
    assert [one.path for one in mounted.made] == [
        "/dev/mapper/veil",
        "/dev/mapper/veil2",
        "/dev/bisector/origin",
        "/mnt",
    ]
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
        loaded("veil(hdd)+ext4")


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
