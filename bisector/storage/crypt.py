"""dm-crypt with a plain key: no header, so no passphrase, no key derivation and no random numbers (cryptsetup(8))."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from bisector.core.errors import InfraError
from bisector.core.setting import Meta, Option, Problem
from bisector.storage import device_mapper
from bisector.storage.disks import fault, not_an_answer, steps
from bisector.storage.layer import Capacity, Device, Feature, Files, Layer, LayerPlan, Since

_CIPHER = r"[a-z0-9_]+(?:,[a-z0-9_]+)?-[a-z0-9_]+(?:-[a-z0-9_]+(?::[a-z0-9_-]+)?)?"
# START LENGTH crypt CIPHER KEY IV-OFFSET DEVICE OFFSET [N OPTION…] (Documentation/admin-guide/device-mapper/
# dm-crypt.rst). The kernel shows all digits of the key as zero unless it is told to show the key.
_TABLE = re.compile(
    r"0 \d+ crypt (?P<cipher>\S+) (?P<key>[0-9a-f]+|-) (?P<iv>\d+) \S+ (?P<offset>\d+)(?: \d+ (?P<options>\S.*))?"
)
_SECTOR_SIZE = re.compile(r"sector_size:\d{1,9}")  # every other option turns on something that is off by default
_BITS_OF_A_DIGIT = 4
_BLOCK_CIPHER_BITS = (128, 192, 256)  # of one key (FIPS 197; the other candidates for AES take the same)
_MODES = ("xts", "cbc")
_IVS = ("plain", "plain64", "essiv:sha256")


@dataclass(frozen=True, slots=True)
class Cipher:
    """The modes of a cipher, the lengths of one key in bits, and its fragments besides the fragments of the layer."""

    modes: tuple[str, ...] = _MODES
    key_bits: tuple[int, ...] = _BLOCK_CIPHER_BITS
    fragments: tuple[str, ...] = ()


_ADIANTUM = Cipher(("adiantum",), (256,), ("storage-crypt-adiantum",))
# The ciphers whose kernel options are known here: any other cipher would seem to be every kernel's fault.
CIPHERS: Mapping[str, Cipher] = {
    "aes": Cipher(),
    "serpent": Cipher(fragments=("storage-crypt-serpent",)),
    "twofish": Cipher(fragments=("storage-crypt-twofish",)),
    "camellia": Cipher(fragments=("storage-crypt-camellia",)),
    # Adiantum with either number of rounds, as the kernel names it (crypto/adiantum.c).
    "xchacha12,aes": _ADIANTUM,
    "xchacha20,aes": _ADIANTUM,
}


@dataclass(frozen=True, slots=True)
class Crypt(Layer):
    """A dm-crypt device. The key is the same in each trial, and so is the data on the disk."""

    name = "crypt"
    is_mapped = True
    fragments = ("storage-crypt",)
    suspects = ("drivers/md/dm-crypt.c", "drivers/md/dm.c", "drivers/md/dm-table.c", "crypto", "arch/x86/crypto")
    tools = ("cryptsetup", "dmsetup")

    # The settings, laid out as a table.
    # fmt: off
    cipher: Annotated[str, Meta(
        pattern=rf"^{_CIPHER}$",
        description="a cipher as CIPHER-MODE-IV such as aes-xts-plain64 or aes-cbc-essiv:sha256"),
        Option("storage.crypt.cipher", "aes-xts-plain64", "cipher of dm-crypt")]
    key_bits: Annotated[Literal[128, 192, 256, 384, 512], Option(
        "storage.crypt.key_size", 512, "key of dm-crypt, bits; xts needs two keys, so twice as many")]
    sector_bytes: Annotated[Literal[512, 1024, 2048, 4096], Option(
        "storage.crypt.sector_size", 512,
        "unit that dm-crypt encrypts at a time, bytes; kernels before v4.12 have 512 only")]
    # fmt: on

    def fragments_for(self) -> tuple[str, ...]:
        """The layer's fragments, and the fragment of the cipher; AES needs none."""
        known = CIPHERS.get(self.cipher.partition("-")[0], Cipher())
        return (*self.fragments, *known.fragments)

    def features(self) -> Iterator[Feature]:
        """Yield larger sectors (8f0009a22517, "dm crypt: optionally support larger encryption sector size")."""
        if self.sector_bytes != device_mapper.SECTOR_BYTES:
            since = Since("v4.12", "drivers/md/dm-crypt.c", "sector_size:")
            yield Feature(f"sectors of {self.sector_bytes} bytes", since, ("storage.crypt.sector_size",))

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield an unknown cipher, a key length that it does not take, and a device that ends within a sector."""
        (device,) = below
        name, mode, iv = (*self.cipher.split("-", 2), "")[:3]
        known = CIPHERS.get(name)
        if known is None or mode not in known.modes or iv not in _IVS:
            sentence = f"which kernel options it needs is not known here; known ciphers are {', '.join(CIPHERS)}"
            if known is not None:
                modes, ivs = " and ".join(known.modes), ", ".join(_IVS)
                sentence = f"of {name} the modes {modes} are known here, and the IVs {ivs}"
            hint = "such as aes-xts-plain64 or xchacha20,aes-adiantum-plain64"
            yield Problem(("storage.crypt.cipher",), sentence, hint)
            return
        able = [(2 if mode == "xts" else 1) * bits for bits in known.key_bits]  # IEEE 1619
        if self.key_bits not in able:
            sentence = f"a key of {self.key_bits} bits is none of {name}-{mode}: {', '.join(map(str, able))}"
            yield Problem(("storage.crypt.key_size", "storage.crypt.cipher"), sentence)
        if device.size_bytes is not None and device.size_bytes % self.sector_bytes:
            sentence = f"{device.what} has {device.size_bytes:,} bytes, which are no whole sectors"
            yield Problem(("storage.crypt.sector_size", *device.keys), sentence)

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        """Make the device with cryptsetup, which decides where it lies; check the kernel's table of it."""
        name = f"crypt{suffix}"
        (device,) = below
        key_file = f"/run/{name}.key"

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            table, deps, names = answers
            if (found := _TABLE.fullmatch(table.strip())) is None:
                raise not_an_answer("dmsetup table", table.strip())
            options = (found["options"] or "").split()
            sizes = [int(word.partition(":")[2]) for word in options if _SECTOR_SIZE.fullmatch(word)]
            bits, sector_bytes = len(found["key"]) * _BITS_OF_A_DIGIT, sizes[0] if sizes else device_mapper.SECTOR_BYTES
            got = (found["cipher"], bits, sector_bytes, int(found["iv"]), int(found["offset"]))
            if got != (self.cipher, self.key_bits, self.sector_bytes, 0, 0):
                raise fault(
                    f"dmsetup: {got[0][:80]}, a key of {bits} bits, sectors of {sector_bytes} bytes, offsets {got[3]} "
                    f"and {got[4]}; asked for {self.cipher}, {self.key_bits} bits, {self.sector_bytes} bytes, 0 and 0",
                    table.strip()[:200],
                )
            if others := [word for word in options if not _SECTOR_SIZE.fullmatch(word)]:
                raise InfraError(f"cryptsetup made {', '.join(others)[:200]}, which nobody asked for")
            tables = device_mapper.parse_dependencies(deps, names)
            number = device_mapper.numbers_of(names).get(name, "nothing")
            device_mapper.check_place(name, number, tables, {numbers[leaf] for leaf in device.leaves})

        made = steps(
            device_mapper.WITHOUT_UDEV,
            f"seq 1000 | head -c {self.key_bits // 8} > {key_file}",
            # A key from a file is not hashed (cryptsetup(8), plain mode).
            f"cryptsetup open --type plain --cipher {self.cipher} --key-size {self.key_bits} "
            f"--sector-size {self.sector_bytes} --key-file {key_file} {device.path} {name}",
        )
        checks = (*steps(f"dmsetup table {name}"), *device_mapper.TREE)
        return LayerPlan(f"/dev/mapper/{name}", made, checks, verify, device.leaves)
