"""Settings of layers that cannot work are refused before anything is built, and say why."""

import re

import pytest

from bisector.core.errors import UserError
from tests.storage.guests import settings

CACHE, WRITECACHE, CIPHER = "storage.cache_", "storage.lvmwritecache.", "storage.crypt.cipher"
CLEANER = {CACHE + "policy": "cleaner"}
CACHEVOL = {CACHE + "volume": "cachevol"}


@pytest.mark.parametrize(
    ("stack", "given", "why"),
    [
        ("lvmcache", {CACHE + "chunk_size": "48KiB"}, "multiples of 32KiB"),
        ("lvmcache", {CACHE + "chunk_size": "2GiB"}, "up to 1GiB"),
        ("lvmcache", {CACHE + "metadata_format": "3"}, "one of 1, 2; or"),
        ("lvmcache", CACHEVOL, "gives a cachevol the policy mq, whatever it is told"),
        ("lvmcache", CACHEVOL | {CACHE + "policy": "mq"}, "cachevol with format 2 alone"),
        ("lvmcache", CLEANER, "gives the cleaner format 2"),
        ("lvmcache", CLEANER | {CACHE + "metadata_format": "2"}, "LVM makes a cleaner's cache writethrough"),
        ("lvmcache", {CACHE + "migration_threshold": "256KiB"}, "LVM makes it 512KiB, 8 blocks, or more"),
        ("lvmcache", {CACHE + "size": "40GiB", CACHE + "chunk_size": "32KiB"}, "no cache of more than 1,000,000"),
        ("lvmcache", {CACHE + "size": "16GiB"}, "LVM needs 16MiB or more for it"),
        ("lvmwritecache", {WRITECACHE + "low_watermark": "60"}, "the low one is at most the high one"),
        ("lvmwritecache", {WRITECACHE + "high_watermark": "101"}, "a whole number from 1 to 100"),
        ("lvmwritecache", {WRITECACHE + "block_size": "1024"}, "512 or 4096 bytes"),
        ("lvmwritecache", {WRITECACHE + "cache_size": "512MiB"}, "the cache needs 516MiB on the SSD"),
        ("lvmwritecache", {"workload.file_size": "4MiB"}, "never fills the cache up to its low watermark"),
        ("bcache", {"storage.bcache.bucket_size": "96KiB"}, "a power of two"),
        ("bcache", {"storage.bcache.bucket_size": "8MiB"}, "up to 4MiB"),
        ("bcache", {"storage.bcache.block_size": "1024"}, "512 or 4096 bytes"),
        ("bcache", {"storage.bcache.sequential_cutoff": "2GiB"}, "less than 2GiB"),
        ("bcache(crypt(ssd),hdd)+ext4", {}, "device-mapper's have none: set 'auto'"),
        ("bcache", {"storage.bcache.bucket_size": "128KiB"}, "bcache needs 513 buckets or more"),
        ("bcache", {"storage.bcache.writeback_percent": "41"}, "a whole number from 0 to 40"),
        ("bcache(ssd,hdd,cache_size=512MiB)+ext4", {"workload.file_size": "256MiB"}, "cache needs 513MiB on the SSD"),
        ("bcache", {"storage.hdd.size": "32MiB", "workload.file_size": "4MiB"}, "32MiB, which never fills the cache"),
        ("bcache", {"storage.bcache.cache_mode": "passthrough"}, "one of writethrough, writeback, writearound, none"),
        ("crypt(hdd,cipher=aes-xts-plain64,key_size=128)+ext4", {}, "a key of 128 bits is none of aes-xts: 256, 384,"),
        ("crypt(hdd,cipher=aes-cbc-plain64,key_size=512)+ext4", {}, "512 bits is none of aes-cbc: 128, 192, 256"),
        ("crypt(hdd)+ext4", {CIPHER: "cast6-xts-plain64"}, r"known ciphers are aes, serpent, .*xchacha20,aes$"),
        ("crypt(hdd)+ext4", {CIPHER: "aes-lrw-benbi"}, "of aes the modes xts and cbc are known here"),
        ("crypt(hdd)+ext4", {CIPHER: "aes-xts-random"}, "the IVs plain, plain64, essiv:sha256"),
        ("crypt(hdd)+ext4", {CIPHER: "aes-xts"}, "the IVs plain, plain64, essiv:sha256"),
        ("crypt(hdd)+ext4", {CIPHER: "xchacha20,aes-xts-plain64"}, "of xchacha20,aes the modes adiantum are known"),
        ("crypt(hdd)+ext4", {CIPHER: "aes xts"}, "expected a cipher"),
        ("crypt(hdd)+ext4", {CIPHER: "$(reboot)-x-y"}, "expected a cipher"),
        ("crypt(hdd)+ext4", {"storage.crypt.key_size": "0"}, "expected one of"),
        ("crypt(hdd)+ext4", {"storage.crypt.sector_size": "3"}, "expected one of"),
        ("raid5(ssd,hdd,hdd2)+ext4", {"storage.raid5.stripe_cache_size": "32769"}, "a whole number from 17 to 32,768"),
        ("raid1(ssd,hdd)+xfs", {"storage.ssd.size": "128MiB"}, "xfs needs 300MiB on the raid1 of the SSD"),
        ("hdd+xfs", {"storage.hdd.size": "128MiB"}, r"xfs needs 300MiB on the HDD, which has 128MiB"),
        ("ram", {"storage.ram.size": "64MiB"}, r"storage\.ram\.size = 64MiB .*has no room"),
        ("lvmcache(ram,ram(size=128MiB))+ext4", {}, r"two values of the kernel parameter brd\.rd_size, 262144 and 131"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_beforehand(stack: str, given: dict[str, str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        settings(stack, given)


def test_who_asks_for_the_cleaner_is_told_of_a_stack_that_has_it() -> None:
    with pytest.raises(UserError) as caught:
        settings("lvmcache(ssd,hdd,cache_policy=cleaner)+ext4")
    found = re.search(r"such as (\S+)", caught.value.hint)
    assert found is not None
    settings(found[1])


@pytest.mark.parametrize(
    "of_it", ["cache_mode=passthrough", "cache_policy=cleaner,cache_mode=writethrough,cache_metadata_format=2"]
)
def test_a_cache_that_takes_nothing_in_need_not_be_filled(of_it: str) -> None:
    settings(f"lvmcache(ssd,hdd,{of_it})+ext4", {"workload.file_size": "1MiB"})


@pytest.mark.parametrize(
    ("stack", "given", "why", "needs_mib", "hint"),
    [
        ("ram(size=1000MiB)+ext4", {}, r"storage\.stack = .*takes 1016MiB", 1272, "or make the RAM disk smaller"),
        (
            "lvmcache(ram,ram)+ext4",
            {"storage.ram.size": "400MiB"},
            r"storage\.ram\.size = 400MiB .*takes 813MiB",
            1069,
            "or make the RAM disk smaller",
        ),
        # 32,768 stripes of three pages, and what is kept of each beside them.
        (
            "raid5(ssd,hdd,hdd2)+ext4",
            {"storage.hdd2.size": "1GiB", "storage.raid5.stripe_cache_size": "32768", "machine.memory": "512MiB"},
            r"storage\.raid5\.stripe_cache_size = 32768 .*takes 432MiB",
            688,
            "or make the stripe cache of RAID 5 smaller",
        ),
    ],
)
def test_the_memory_of_the_guest_is_enough_for_the_layers(
    stack: str, given: dict[str, str], why: str, needs_mib: int, hint: str
) -> None:
    with pytest.raises(UserError, match=rf"^machine\.memory = .*{why} of it") as caught:
        settings(stack, given)
    assert caught.value.hint == f"--set machine.memory={needs_mib}MiB, {hint}"
    settings(stack, given | {"machine.memory": f"{needs_mib}MiB"})
