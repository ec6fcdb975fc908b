"""KVM or emulation: what is decided when, and that the decision holds on this host."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import libvirt
import pytest

from bisector.config import EMBEDDED, Accelerator, options
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.vm import accelerator, probes
from bisector.vm.accelerator import choose_accelerator
from bisector.vm.definition import DomainSpec
from bisector.vm.driver import LibvirtHypervisor, open_hypervisor
from tests.vm.conftest import Boots
from tests.vm.domains import Offering, spec_of
from tests.vm.tiny_kernel import End, tiny_kernel

KVM, TCG = Accelerator.KVM, Accelerator.TCG


@pytest.fixture
def spec(tmp_path: Path) -> DomainSpec:
    return spec_of(tmp_path, End.SLEEP, "probe")


@pytest.mark.usefixtures("boots")
def test_a_kernel_that_is_mute_under_kvm_is_no_judge_where_the_distribution_has_one(
    spec: DomainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {Path("/boot/vmlinuz-6.1"): (KVM, TCG), spec.kernel: (TCG,)}
    monkeypatch.setattr(accelerator, "distribution_kernel", lambda: Path("/boot/vmlinuz-6.1"))
    monkeypatch.setattr(accelerator, "_boots", lambda _hypervisor, judge, tried, _s: tried in good[judge.kernel])
    assert choose_accelerator(Accelerator.AUTO, Offering(), spec) is KVM


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


def test_without_kvm_nothing_is_booted(spec: DomainSpec, boots: Boots) -> None:
    booted = boots()
    assert choose_accelerator(Accelerator.AUTO, Offering(kvm=False), spec) is TCG
    assert choose_accelerator(TCG, Offering(), spec) is TCG
    assert choose_accelerator(KVM, Offering(), spec) is KVM
    with pytest.raises(UserError, match="KVM"):
        choose_accelerator(KVM, Offering(kvm=False), spec)
    assert booted == []


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
    *,
    kvm: bool,
    good: tuple[Accelerator, ...],
    found: Accelerator | None,
    tried: list[Accelerator],
    boots: Boots,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "open_hypervisor", lambda *_: Offering(kvm))
    booted = boots(*good)
    assert probes.try_kvm(options.load().settings.machine) is found
    assert [one for _, one in booted] == tried
    assert list(accelerator.recall().values()) == ([TCG] if kvm and found else [])


def test_what_cannot_be_remembered_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    accelerator.remember(Offering(), TCG)
    assert accelerator.recall() == {}


def test_without_libvirt_nothing_is_known_of_kvm(tmp_path: Path) -> None:
    nowhere = {"machine.connect": f"qemu:///system?socket={tmp_path}/nowhere"}
    assert probes.try_kvm(options.load(nowhere).settings.machine) is None


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
    hypervisor: LibvirtHypervisor, place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    spec = spec_of(place, End.SLEEP)
    chosen = choose_accelerator(Accelerator.AUTO, hypervisor, spec, deadline_s=5.0)
    assert chosen is not None
    assert accelerator._boots(hypervisor, spec, chosen, 15.0)
    broken = replace(spec, kernel=tiny_kernel(place / "mute", "", End.SLEEP))
    assert choose_accelerator(Accelerator.AUTO, hypervisor, broken) is chosen
    assert capfd.readouterr() == ("", "")
    assert not list(place.glob("*.log.*"))


@pytest.mark.vm
def test_what_is_tried_under_kvm_runs_without(hypervisor: LibvirtHypervisor, place: Path) -> None:
    trial = place / "trial"
    trial.write_bytes(probes.kvm_trial())
    assert accelerator._boots(hypervisor, replace(spec_of(place, End.SLEEP), kernel=trial), TCG, 15.0)
