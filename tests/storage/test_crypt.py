"""dm-crypt: what cryptsetup is given, and what device-mapper has to say afterwards."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.errors import InfraError, UserError
from bisector.core.trial import KernelFault
from bisector.doctor.checks import needs
from bisector.storage.crypt import Crypt
from bisector.storage.layer import Capacity, Files, MountedStack
from bisector.storage.stack import lay_out, stack_of
from tests.guest_answers import STORAGE
from tests.guestshell import Answer, FakeShell

TABLE = f"0 2097152 crypt aes-xts-plain64 {'0' * 128} 0 254:16 0"
GUEST = {
    "stat -L": Answer("fe:10\n"),
    "stat -f": Answer("1000 4096\n"),
    "dmsetup table": Answer(f"{TABLE}\n"),
    "dmsetup deps": Answer("crypt: 1 dependencies\t: (254, 16)\n"),
    "dmsetup info": Answer("crypt 253 0\n"),
}


def laid_out(text: str = "crypt(hdd)+ext4", **changed: str) -> MountedStack:
    rows = {key.replace("_", " "): Answer(answer) for key, answer in changed.items()}
    values = options.load({"storage.stack": text}, directory=Path("/")).settings.storage.layers
    return lay_out(FakeShell(GUEST | rows), stack_of(text), values, Files(0, ""), 60)


def test_a_plain_key_on_a_disk() -> None:
    mounted = laid_out()
    assert mounted.description[:3] == (
        "export DM_DISABLE_UDEV=1",
        "seq 1000 | head -c 64 > /run/crypt.key",
        "cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 512 --sector-size 512 --key-file "
        "/run/crypt.key /dev/disk/by-id/virtio-hdd crypt",
    )
    assert mounted.description[3].endswith(" /dev/mapper/crypt")


def test_another_cipher_and_larger_sectors() -> None:
    text = "crypt(hdd,cipher=aes-cbc-essiv:sha256,key_size=256,sector_size=4096)+ext4"
    table = f"0 2097152 crypt aes-cbc-essiv:sha256 {'0' * 64} 0 254:16 0 1 sector_size:4096"
    mounted = laid_out(text, dmsetup_table=table)
    assert "head -c 32 " in mounted.description[1]
    assert "--cipher aes-cbc-essiv:sha256 --key-size 256 --sector-size 4096" in mounted.description[2]
    with pytest.raises(KernelFault, match=r"sectors of 512 bytes, offsets 0 and 0; asked for .*, 4096 bytes"):
        laid_out(text, dmsetup_table=table.removesuffix(" 1 sector_size:4096"))


def test_an_option_that_nobody_asked_for_is_ours() -> None:
    text, table = "crypt(hdd,sector_size=4096)+ext4", f"{TABLE} 3 sector_size:4096 no_read_workqueue allow_discards"
    laid_out(text, dmsetup_table=f"{TABLE} 1 sector_size:4096")
    with pytest.raises(InfraError, match=r"cryptsetup made no_read_workqueue, allow_discards, which nobody asked for"):
        laid_out(text, dmsetup_table=table)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("aes-xts-plain64", "aes-xts-plain"),
        ("0" * 128, "0" * 64),
        (" 0 254:16 0", " 8 254:16 0"),
        (" 0 254:16 0", " 0 254:16 4096"),
    ],
)
def test_another_device_than_was_asked_for_is_the_kernels_fault(old: str, new: str) -> None:
    assert old in TABLE
    with pytest.raises(KernelFault, match=r"; asked for aes-xts-plain64, 512 bits, 512 bytes, 0 and 0$"):
        laid_out(dmsetup_table=TABLE.replace(old, new))


def test_another_disk_is_ours() -> None:
    with pytest.raises(InfraError, match="crypt is on 254:32 instead of 254:16"):
        laid_out(dmsetup_deps="crypt: 1 dependencies\t: (254, 32)\n")


def test_above_a_cache_it_lies_on_all_of_its_disks() -> None:
    deps = STORAGE["dmsetup deps"].stdout.replace("b-", "bisector-") + "crypt: 1 dependencies\t: (253, 2)\n"
    info = STORAGE["dmsetup info"].stdout.replace("b-", "bisector-") + "crypt 253 9\n"
    of_crypt = {"dmsetup table crypt": Answer(TABLE.replace("254:16", "253:2"))}
    rows = {**of_crypt, **STORAGE, "dmsetup deps": Answer(deps), "dmsetup info": Answer(info)}
    text = "crypt(lvmcache(ssd,hdd))+ext4"
    values = options.load({"storage.stack": text}, directory=Path("/")).settings.storage.layers
    mounted = lay_out(FakeShell(rows), stack_of(text), values, Files(0, ""), 60)
    assert [one.path for one in mounted.made] == ["/dev/bisector/origin", "/dev/mapper/crypt", "/mnt"]
    assert mounted.read(FakeShell(rows)).cache is not None
    rows["dmsetup deps"] = Answer(deps.replace("(253, 2)", "(254, 16)"))
    with pytest.raises(InfraError, match="crypt is on 254:16 instead of 254:16, 254:32"):
        lay_out(FakeShell(rows), stack_of(text), values, Files(0, ""), 60)


def test_settings_that_cannot_be_are_refused_before() -> None:
    device = Capacity("the HDD", (64 << 20) + 512, ("storage.hdd.size",))
    layer = Crypt("aes-xts-plain64", key_bits=512, sector_bytes=4096)
    found = [problem.keys for problem in layer.problems((device,), Files(0, ""))]
    assert found == [("storage.crypt.sector_size", "storage.hdd.size")]
    assert not [*replace(layer, sector_bytes=512).problems((device,), Files(0, ""))]
    for key, value in (("cipher", "aes xts"), ("cipher", "$(reboot)-x-y"), ("key_size", "0"), ("sector_size", "3")):
        with pytest.raises(UserError, match="expected "):
            options.load({f"storage.crypt.{key}": value}, directory=Path("/"))


@pytest.mark.parametrize(
    ("cipher", "bits", "able"), [("aes-xts-plain64", 128, "256, 384, 512"), ("aes-cbc-plain64", 512, "128, 192, 256")]
)
def test_key_that_the_cipher_does_not_take_is_refused_before(cipher: str, bits: int, able: str) -> None:
    with pytest.raises(UserError, match=f"a key of {bits} bits is none of {cipher.rpartition('-')[0]}: {able}"):
        options.load({"storage.stack": f"crypt(hdd,cipher={cipher},key_size={bits})+ext4"}, directory=Path("/"))


@pytest.mark.parametrize(
    ("cipher", "bits", "fragment", "option"),
    [
        ("serpent-xts-plain64", 512, "storage-crypt-serpent", "CONFIG_CRYPTO_SERPENT"),
        ("twofish-cbc-essiv:sha256", 256, "storage-crypt-twofish", "CONFIG_CRYPTO_TWOFISH"),
        ("camellia-xts-plain64", 384, "storage-crypt-camellia", "CONFIG_CRYPTO_CAMELLIA"),
        ("xchacha20,aes-adiantum-plain64", 256, "storage-crypt-adiantum", "CONFIG_CRYPTO_ADIANTUM"),
    ],
)
def test_another_cipher_brings_its_kernel_options(cipher: str, bits: int, fragment: str, option: str) -> None:
    text = f'crypt(hdd,cipher="{cipher}",key_size={bits})+ext4'
    settings = options.load({"storage.stack": text}, directory=Path("/")).settings
    assert settings.kernel.fragments == ("tiny", "vm", "storage-crypt", fragment)
    assert needs(settings.storage.stack, settings.storage.layers)[option] == "crypt"
    table = f"0 2097152 crypt {cipher} {'0' * (bits // 4)} 0 254:16 0"
    assert f"--cipher {cipher} --key-size {bits} " in laid_out(text, dmsetup_table=table).description[2]
    given = {"storage.crypt.cipher": cipher, "storage.crypt.key_size": str(bits)}
    assert (
        options.load({"storage.stack": "crypt(hdd)+ext4", **given}, directory=Path("/")).settings.kernel.fragments[-1]
        == fragment
    )


@pytest.mark.parametrize(
    ("cipher", "why"),
    [
        ("cast6-xts-plain64", r"known ciphers are aes, serpent, .*xchacha20,aes$"),
        ("aes-lrw-benbi", "of aes the modes xts and cbc are known here"),
        ("aes-xts-random", "the IVs plain, plain64, essiv:sha256"),
        ("aes-xts", "the IVs plain, plain64, essiv:sha256"),
        ("xchacha20,aes-xts-plain64", "of xchacha20,aes the modes adiantum are known"),
    ],
)
def test_a_cipher_whose_kernel_options_are_not_known_is_refused_before(cipher: str, why: str) -> None:
    with pytest.raises(UserError, match=rf"storage\.crypt\.cipher = .*{why}"):
        options.load({"storage.stack": "crypt(hdd)+ext4", "storage.crypt.cipher": cipher}, directory=Path("/"))
