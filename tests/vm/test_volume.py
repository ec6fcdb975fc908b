"""Volumes of a real libvirt daemon as test disks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import DISK_MARGIN_BYTES, DiskSettings
from bisector.core.errors import UserError
from bisector.vm import test_disk
from bisector.vm import volume as volumes
from bisector.vm.disks import attached
from bisector.vm.hypervisor import LibvirtHypervisor, open_hypervisor
from bisector.vm.probes import check_reach
from bisector.vm.test_disk import LABEL_AT, LABEL_BYTES, Label
from bisector.vm.volume import Volume
from tests import libvirtd
from tests.libvirtd import VOLUME_BYTES
from tests.vm.domains import spec_of, wait_for_words
from tests.vm.tiny_kernel import End

pytestmark = pytest.mark.vm

MIB = 1 << 20


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the daemon does not see."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def uri(hidden: Path) -> Iterator[str]:
    with libvirtd.libvirtd((hidden,)) as made:
        yield made


@pytest.fixture
def pool(uri: str, tmp_path: Path) -> Iterator[Path]:
    """The directory of a pool that has a volume in either format."""
    with libvirtd.pool(uri, tmp_path, {"raw": "raw", "qcow2": "qcow2"}):
        yield tmp_path


@pytest.fixture
def hypervisor(uri: str, place: Path) -> Iterator[LibvirtHypervisor]:
    with open_hypervisor(uri, place) as opened:
        yield opened


def volume_of(name: str) -> DiskSettings:
    return DiskSettings(f"volume:tests/{name}", 0, 0, 0)


def test_a_guest_gets_an_empty_volume_without_its_margins(
    hypervisor: LibvirtHypervisor, pool: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pool / "raw").write_bytes(bytes(MIB) + b"\xff" * (126 * MIB) + bytes(MIB))
    key = str(pool / "raw")
    with (
        pytest.raises(UserError, match="volume:tests/raw is not blank") as caught,
        hypervisor.volume("tests", "raw") as it,
    ):
        test_disk.check(it)
    assert caught.value.hint.endswith(f"--overwrite {key}")
    with attached("ssd", volume_of("raw"), place, "x-", hypervisor.volume, overwrite=(key,)) as disk:
        assert disk.part == (DISK_MARGIN_BYTES, VOLUME_BYTES - 2 * DISK_MARGIN_BYTES)
        data = (pool / "raw").read_bytes()
        assert Label.parse(data[LABEL_AT : LABEL_AT + LABEL_BYTES]) is not None
        assert not any(data[MIB : 5 * MIB]) and not any(data[123 * MIB :])  # noqa: PT018 - one thing
        with hypervisor.start(replace(spec_of(place, End.SLEEP), disks=(disk,), run_as=hypervisor.run_as)) as domain:
            wait_for_words(domain)
            assert domain.is_running()
            for user in ("in use by the guest bisector-test-", "in use: .*/raw is open in a QEMU"):
                with pytest.raises(UserError, match=f"volume:tests/raw is {user}"), hypervisor.volume("tests", "raw"):
                    pytest.fail("it was taken twice")
                monkeypatch.setattr(Volume, "_check_guests", lambda volume: None)
                monkeypatch.setattr(volumes, "openers_of_file", lambda path: ())


def test_a_volume_is_not_for_two_bisectors(hypervisor: LibvirtHypervisor, pool: Path) -> None:
    with (
        hypervisor.volume("tests", "raw"),
        pytest.raises(UserError, match="another bisector holds"),
        hypervisor.volume("tests", "raw"),
    ):
        pytest.fail("it was taken twice")


@pytest.mark.parametrize(("offset", "what"), [(MIB - 512, False), (0, True)])
def test_signatures_are_seen_through_libvirt(
    hypervisor: LibvirtHypervisor, pool: Path, offset: int, what: bool
) -> None:
    with (pool / "raw").open("r+b") as file:
        file.seek(offset)
        file.write(b"LUKS\xba\xbe\0\1")
    with hypervisor.volume("tests", "raw") as volume:
        assert bool(test_disk.signatures(volume)) is what


@pytest.mark.parametrize(
    ("name", "words"), [("qcow2", "is qcow2, a test disk has to be raw"), ("none", "volume:tests/none: .* not found")]
)
def test_volumes_that_are_no_test_disk(
    hypervisor: LibvirtHypervisor, pool: Path, place: Path, name: str, words: str
) -> None:
    with (
        pytest.raises(UserError, match=f"storage.hdd.path: .*{words}"),
        attached("hdd", volume_of(name), place, "x-", hypervisor.volume),
    ):
        pytest.fail("it was taken")


def test_reach(hypervisor: LibvirtHypervisor, place: Path, hidden: Path) -> None:
    check_reach(hypervisor, place, place)
    for run_dir, cache in ((hidden, place), (place, hidden)):
        with pytest.raises(UserError, match="cannot work with files in") as caught:
            check_reach(hypervisor, run_dir, cache)
        assert "--run-dir" in caught.value.hint
        assert not list(hidden.iterdir())
