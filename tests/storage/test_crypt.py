"""dm-crypt: what cryptsetup is given, and what device-mapper has to say afterwards."""

from dataclasses import replace

import pytest

from bisector.core.errors import InfraError
from bisector.core.trial import KernelFault
from bisector.doctor.checks import needs
from bisector.storage.crypt import Crypt
from bisector.storage.layer import Capacity, MountedStack
from tests.guest_answers import STORAGE
from tests.guestshell import Answer, FakeShell
from tests.storage.guests import CRYPT_TABLE, NO_FILES, guest, laid_out, settings


def made(text: str = "crypt(hdd)+ext4", **changed: str) -> MountedStack:
    return laid_out(text, FakeShell(guest("crypt", **changed)))


def test_a_plain_key_on_a_disk() -> None:
    mounted = made()
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
    mounted = made(text, dmsetup_table=table)
    assert "head -c 32 " in mounted.description[1]
    assert "--cipher aes-cbc-essiv:sha256 --key-size 256 --sector-size 4096" in mounted.description[2]
    with pytest.raises(KernelFault, match=r"sectors of 512 bytes, offsets 0 and 0; asked for .*, 4096 bytes"):
        made(text, dmsetup_table=table.removesuffix(" 1 sector_size:4096"))


def test_above_a_cache_it_lies_on_all_of_its_disks() -> None:
    deps = STORAGE["dmsetup deps"].stdout.replace("b-", "bisector-") + "crypt: 1 dependencies\t: (253, 2)\n"
    info = STORAGE["dmsetup info"].stdout.replace("b-", "bisector-") + "crypt 253 9\n"
    of_crypt = {"dmsetup table crypt": Answer(CRYPT_TABLE.replace("254:16", "253:2"))}
    rows = {**of_crypt, **STORAGE, "dmsetup deps": Answer(deps), "dmsetup info": Answer(info)}
    text = "crypt(lvmcache(ssd,hdd))+ext4"
    mounted = laid_out(text, FakeShell(rows))
    assert [one.path for one in mounted.made] == ["/dev/bisector/origin", "/dev/mapper/crypt", "/mnt"]
    assert mounted.read(FakeShell(rows)).cache is not None
    rows["dmsetup deps"] = Answer(deps.replace("(253, 2)", "(254, 16)"))
    with pytest.raises(InfraError, match="crypt is on 254:16 instead of 254:16, 254:32"):
        laid_out(text, FakeShell(rows))


def test_settings_that_cannot_be_are_refused_before() -> None:
    device = Capacity("the HDD", (64 << 20) + 512, ("storage.hdd.size",))
    layer = Crypt("aes-xts-plain64", key_bits=512, sector_bytes=4096)
    found = [problem.keys for problem in layer.problems((device,), NO_FILES)]
    assert found == [("storage.crypt.sector_size", "storage.hdd.size")]
    assert not [*replace(layer, sector_bytes=512).problems((device,), NO_FILES)]


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
    found = settings(text)
    assert found.kernel.fragments == ("tiny", "vm", "storage-crypt", fragment)
    assert needs(found.storage.stack, found.storage.layers)[option] == "crypt"
    table = f"0 2097152 crypt {cipher} {'0' * (bits // 4)} 0 254:16 0"
    assert f"--cipher {cipher} --key-size {bits} " in made(text, dmsetup_table=table).description[2]
    given = {"storage.crypt.cipher": cipher, "storage.crypt.key_size": str(bits)}
    assert settings("crypt(hdd)+ext4", given).kernel.fragments[-1] == fragment
