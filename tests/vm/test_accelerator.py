"""KVM or emulation: what is decided when, and that the decision holds on this host."""

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import libvirt
import pytest

from bisector.config import EMBEDDED, Accelerator, MachineSettings, options
from bisector.core import resources
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.vm import accelerator, probes
from bisector.vm.accelerator import choose_accelerator
from bisector.vm.definition import DomainSpec
from bisector.vm.driver import LibvirtHypervisor, open_hypervisor
from tests.vm.domains import spec_of
from tests.vm.tiny_kernel import End, tiny_kernel


class Offering(LibvirtHypervisor):
    """Answers the two questions that are asked of libvirt; boots are answered by ``boots``."""

    def __init__(self, kvm: bool, *, tcg: bool = True) -> None:
        self._kvm, self._tcg = kvm, tcg

    @property
    def embedded(self) -> bool:
        return True

    @property
    def qemu_version(self) -> str:
        return "7.2.0"

    def offers(self, accelerator: Accelerator) -> bool:
        return self._kvm if accelerator is Accelerator.KVM else self._tcg


class Boots:
    """Which accelerators the probe kernel boots under, and what was tried."""

    def __init__(self, *good: Accelerator) -> None:
        self.good = good
        self.tried: list[Accelerator] = []

    def __call__(
        self, _hypervisor: LibvirtHypervisor, _spec: DomainSpec, accelerator: Accelerator, _deadline_s: float
    ) -> bool:
        self.tried.append(accelerator)
        return accelerator in self.good


KVM, TCG = Accelerator.KVM, Accelerator.TCG
Mocked = Callable[..., Boots]


@pytest.fixture
def mocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mocked:
    """Puts :class:`Boots` in the place of real ones; the distribution has no kernel that this user may read."""
    monkeypatch.setattr(accelerator, "_BOOT", tmp_path / "boot")

    def put(*good: Accelerator) -> Boots:
        boots = Boots(*good)
        monkeypatch.setattr(accelerator, "_boots", boots)
        return boots

    return put


@pytest.fixture
def spec(tmp_path: Path) -> DomainSpec:
    return spec_of(tmp_path, End.SLEEP, "probe")


@pytest.mark.parametrize(
    ("good", "chosen", "tried"), [((KVM, TCG), KVM, [KVM]), ((TCG,), TCG, [KVM, TCG])], ids=["KVM works", "KVM hangs"]
)
def test_auto_asks_once(
    good: tuple[Accelerator, ...], chosen: Accelerator, tried: list[Accelerator], spec: DomainSpec, mocked: Mocked
) -> None:
    boots = mocked(*good)
    memory = spec.console.parent / "cache" / "accelerator.json"
    for _ in range(2):
        assert choose_accelerator(Accelerator.AUTO, Offering(kvm=True), spec, memory) is chosen
    assert boots.tried == tried
    assert list(json.loads(memory.read_text()).values()) == [chosen.value]


def test_a_broken_kernel_is_no_judge(spec: DomainSpec, mocked: Mocked) -> None:
    boots = mocked()
    memory = spec.console.parent / "memory"
    for _ in range(2):
        assert choose_accelerator(Accelerator.AUTO, Offering(kvm=True), spec, memory) is None
    assert boots.tried == [KVM, TCG] * 2
    assert not memory.exists()


def test_a_kernel_that_is_mute_under_kvm_is_no_judge_where_the_distribution_has_one(
    spec: DomainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {Path("/boot/vmlinuz-6.1"): (KVM, TCG), spec.kernel: (TCG,)}
    monkeypatch.setattr(accelerator, "distribution_kernel", lambda: Path("/boot/vmlinuz-6.1"))
    monkeypatch.setattr(accelerator, "_boots", lambda _hypervisor, judge, tried, _s: tried in good[judge.kernel])
    assert choose_accelerator(Accelerator.AUTO, Offering(kvm=True), spec, spec.console.parent / "memory") is KVM


class Capabilities:
    """A connection to libvirt that refuses to tell of KVM."""

    def __init__(self, code: int) -> None:
        self.code = code

    def getDomainCapabilities(self, arch: str, virttype: str) -> str:  # noqa: N802 - libvirt's name
        error = libvirt.libvirtError("refused")
        error.err = (self.code, 0, "refused", 0, "", "", "", 0, 0)
        raise error


def test_that_libvirt_cannot_be_asked_is_no_answer() -> None:
    hypervisor = LibvirtHypervisor.__new__(LibvirtHypervisor)
    hypervisor._connection = Capabilities(libvirt.VIR_ERR_INVALID_ARG)
    assert not hypervisor.offers(KVM)
    hypervisor._connection = Capabilities(libvirt.VIR_ERR_RPC)
    with pytest.raises(InfraError, match="does not say whether it offers kvm: refused"):
        hypervisor.offers(KVM)


def test_without_kvm_nothing_is_booted(spec: DomainSpec, tmp_path: Path, mocked: Mocked) -> None:
    boots = mocked()
    assert choose_accelerator(Accelerator.AUTO, Offering(kvm=False), spec, tmp_path / "memory") is TCG
    assert choose_accelerator(TCG, Offering(kvm=True), spec, tmp_path / "memory") is TCG
    assert choose_accelerator(KVM, Offering(kvm=True), spec, tmp_path / "memory") is KVM
    with pytest.raises(UserError, match="KVM"):
        choose_accelerator(KVM, Offering(kvm=False), spec, tmp_path / "memory")
    assert boots.tried == []


@pytest.fixture
def offering(mocked: Mocked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Boots]:
    """As :func:`mocked`, where libvirt offers KVM or not; what is found out is remembered in the test's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def put(kvm: bool, *good: Accelerator) -> Boots:
        monkeypatch.setattr(probes, "_opened", lambda machine, scratch: nullcontext(Offering(kvm)))
        return mocked(*good)

    return put


@pytest.mark.parametrize(
    ("kvm", "good", "found", "tried"),
    [
        pytest.param(True, (TCG,), TCG, [KVM, TCG], id="KVM takes for ever"),
        pytest.param(True, (KVM, TCG), None, [KVM], id="KVM works, and a kernel has the last word"),
        pytest.param(True, (), None, [KVM, TCG], id="nothing runs, so nothing is known"),
        pytest.param(False, (TCG,), TCG, [], id="KVM is not offered"),
    ],
)
def test_before_there_is_a_kernel_only_a_kvm_that_runs_nothing_is_known(
    kvm: bool,
    good: tuple[Accelerator, ...],
    found: Accelerator | None,
    tried: list[Accelerator],
    offering: Callable[..., Boots],
) -> None:
    boots = offering(kvm, *good)
    assert probes.try_kvm(options.load().settings.machine) is found
    assert boots.tried == tried
    remembered = list(accelerator.recall(resources.cache_home() / accelerator.ACCELERATOR_MEMORY).values())
    assert remembered == ([TCG] if kvm and found else [])


def test_without_libvirt_nothing_is_known_of_kvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(machine: MachineSettings, scratch: Path) -> LibvirtHypervisor:
        raise UserError("libvirt does not answer")

    monkeypatch.setattr(probes, "_opened", refuse)
    assert probes.try_kvm(options.load().settings.machine) is None


def test_what_is_tried_under_kvm_is_its_source(tmp_path: Path) -> None:
    source = Path(probes.__file__).with_name("kvm-trial.S")
    made, linked = tmp_path / "trial.o", tmp_path / "trial"
    process.run(["as", "--64", source, "-o", made], deadline_s=60.0)
    how = ("-m", "elf_x86_64", "--oformat", "binary", "-Ttext", "0", "-e", "0")
    process.run(["ld", *how, made, "-o", linked], deadline_s=60.0)
    assert linked.read_bytes() == probes._KVM_TRIAL


@pytest.fixture
def hypervisor(place: Path, cache: Path) -> Iterator[LibvirtHypervisor]:
    with open_hypervisor(EMBEDDED, place, cache) as opened:
        yield opened


@pytest.mark.vm
def test_the_choice_boots_on_this_host(
    hypervisor: LibvirtHypervisor, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(place, End.SLEEP)
    memory = place / "memory"
    chosen = choose_accelerator(Accelerator.AUTO, hypervisor, spec, memory, deadline_s=5.0)
    assert chosen is not None
    assert accelerator._boots(hypervisor, spec, chosen, 15.0)
    broken = replace(spec, kernel=tiny_kernel(place / "mute", "", End.SLEEP))
    assert choose_accelerator(Accelerator.AUTO, hypervisor, broken, memory) is chosen
    assert capfd.readouterr() == ("", "")
    assert not list(place.glob("*.log.*"))


@pytest.mark.vm
def test_what_is_tried_under_kvm_runs_without(hypervisor: LibvirtHypervisor, place: Path) -> None:
    trial = place / "trial"
    trial.write_bytes(probes.kvm_trial())
    assert accelerator._boots(hypervisor, replace(spec_of(place, End.SLEEP), kernel=trial), TCG, 15.0)
