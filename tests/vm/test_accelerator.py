"""KVM or emulation: what is decided when, and that the decision holds on this host."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import libvirt
import pytest

from bisector.config import EMBEDDED, Accelerator
from bisector.core.errors import InfraError, UserError
from bisector.vm import probes
from bisector.vm.definition import DomainSpec
from bisector.vm.hypervisor import LibvirtHypervisor, open_hypervisor
from bisector.vm.probes import choose_accelerator
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
def mocked(monkeypatch: pytest.MonkeyPatch) -> Mocked:
    """Puts :class:`Boots` in the place of real ones; the distribution has no kernel that this user may read."""
    monkeypatch.setattr(probes, "_distribution_kernel", lambda: None)

    def put(*good: Accelerator) -> Boots:
        boots = Boots(*good)
        monkeypatch.setattr(probes, "_boots", boots)
        return boots

    return put


@pytest.fixture
def spec(tmp_path: Path) -> DomainSpec:
    return spec_of(tmp_path, End.SLEEP, "probe")


@pytest.mark.parametrize(
    ("good", "chosen", "tried"),
    [((KVM, TCG), KVM, [KVM]), ((TCG,), TCG, [KVM, TCG])],
    ids=["KVM works", "KVM hangs"],
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
    monkeypatch.setattr(probes, "_distribution_kernel", lambda: Path("/boot/vmlinuz-6.1"))
    monkeypatch.setattr(probes, "_boots", lambda _hypervisor, judge, tried, _s: tried in good[judge.kernel])
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


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "hvf"}'])
def test_damaged_memory_is_made_anew(text: str, spec: DomainSpec, tmp_path: Path, mocked: Mocked) -> None:
    mocked(KVM)
    memory = tmp_path / "memory"
    memory.write_text(text)
    assert choose_accelerator(Accelerator.AUTO, Offering(kvm=True), spec, memory) is KVM
    assert list(json.loads(memory.read_text()).values()) == ["kvm"]


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
    assert probes._boots(hypervisor, spec, chosen, 15.0)
    broken = replace(spec, kernel=tiny_kernel(place / "mute", "", End.SLEEP))
    assert choose_accelerator(Accelerator.AUTO, hypervisor, broken, memory) is chosen
    assert capfd.readouterr() == ("", "")
    assert not list(place.glob("*.log.*"))


@pytest.mark.vm
@pytest.mark.parametrize("end", [End.RESET, End.SLEEP])
def test_a_mute_kernel_does_not_boot(hypervisor: LibvirtHypervisor, place: Path, end: End) -> None:
    spec = spec_of(place, end)
    mute = replace(spec, kernel=tiny_kernel(place / "mute", "", end))
    assert not probes._boots(hypervisor, mute, TCG, 2.0)
