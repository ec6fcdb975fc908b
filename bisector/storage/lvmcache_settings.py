"""What LVM is asked for when it makes a dm-cache, and what of that it refuses or makes in another way (lvmcache(7))."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from bisector.core.kinds import Problem
from bisector.core.units import size_text
from bisector.storage import dmcache
from bisector.storage.dmcache import SECTOR_BYTES

_METADATA_LEAST_BYTES = 8 << 20  # lvmcache(7): cache metadata "with a minimum size of 8MiB"
# For each chunk: the mapping, its hint and the hint's key, and room for a transaction (_cache_min_metadata_size() in
# LVM's lib/metadata/cache_manip.c).
_METADATA_OF_CHUNK_BYTES, _TRANSACTION_BYTES = 44, 4 << 20
CHUNK_STEP_BYTES, _CHUNK_MOST_BYTES = 32 << 10, 1 << 30  # lvmcache(7), "dm-cache chunk size"
_MOST_CHUNKS = 1_000_000  # lvm.conf(5), allocation/cache_pool_max_chunks
NEWER_FORMAT = 2
POLICY = "smq"  # of the fragment that every stack with a cache has
# LVM before 2.03.40 gives a cachevol this one, whatever lvconvert or lvchange is told: it looks for the policy in the
# segment of the cachevol, which has none (its a16979bc5, "cache: fix wrong segment used for cachevol policy name").
_CACHEVOL_POLICY = "mq"
_CLEANER_STACK = (
    f"such as lvmcache(ssd,hdd,cache_policy={dmcache.CLEANER},cache_mode=writethrough,cache_metadata_format=2)+ext4"
)
# lvmcache(7): the threshold "is at least 8 chunks in size"; the kernel's own default is 2048 sectors (cache.rst).
_THRESHOLD_LEAST_CHUNKS, _THRESHOLD_USUAL_BYTES = 8, 2048 * SECTOR_BYTES


class CacheMode(StrEnum):
    """dm-cache modes that lvmcache offers (lvmcache(7))."""

    WRITEBACK = "writeback"
    WRITETHROUGH = "writethrough"
    PASSTHROUGH = "passthrough"


class CacheVolume(StrEnum):
    """Whether blocks and metadata are two logical volumes or parts of one (lvmcache(7))."""

    POOL = "cachepool"
    VOLUME = "cachevol"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The cache and its metadata in bytes, as LVM makes them; the policy is one of the kernel's.

    None of chunk size, metadata format and threshold is what LVM chooses by itself.
    """

    cache_bytes: int
    metadata_bytes: int
    mode: CacheMode
    policy: str
    chunk_bytes: int | None = None
    metadata_format: int | None = None
    threshold_bytes: int | None = None
    volume: CacheVolume = CacheVolume.POOL

    @property
    def threshold_sectors(self) -> int | None:
        """The migration threshold to name; None where that is left to LVM."""
        if self.threshold_bytes is not None:
            return self.threshold_bytes // SECTOR_BYTES
        if self.chunk_bytes is None:
            return None
        return max(_THRESHOLD_USUAL_BYTES, _THRESHOLD_LEAST_CHUNKS * self.chunk_bytes) // SECTOR_BYTES

    @property
    def fills(self) -> bool:
        """Whether blocks ever go into the cache."""
        return dmcache.fills(self.mode, self.policy)

    @property
    def least_metadata_bytes(self) -> int:
        """The least that LVM takes for this many chunks."""
        chunks = self.cache_bytes // (self.chunk_bytes or 2 * CHUNK_STEP_BYTES)
        return max(_METADATA_LEAST_BYTES, _TRANSACTION_BYTES + chunks * _METADATA_OF_CHUNK_BYTES)


def chunk_problems(settings: CacheSettings) -> Iterator[Problem]:
    """Blocks that LVM does not make."""
    chunk, key = settings.chunk_bytes, "storage.cache_chunk_size"
    if chunk is None:
        return
    if chunk % CHUNK_STEP_BYTES or chunk > _CHUNK_MOST_BYTES:
        yield Problem((key,), "dm-cache takes multiples of 32KiB, up to 1GiB")
    elif settings.cache_bytes // chunk > _MOST_CHUNKS:
        yield Problem((key, "storage.cache_size"), f"LVM makes no cache of more than {_MOST_CHUNKS:,} blocks")
    elif (least := _THRESHOLD_LEAST_CHUNKS * chunk) > (settings.threshold_sectors or 0) * SECTOR_BYTES:
        yield Problem(("storage.cache_migration_threshold", key), f"LVM makes it {size_text(least)}, 8 blocks, or more")


def format_problems(settings: CacheSettings) -> Iterator[Problem]:
    """What LVM refuses, or makes in another way than it was told to."""
    format_key, policy_key, volume_key = (f"storage.cache_{name}" for name in ("metadata_format", "policy", "volume"))
    chosen, policy = settings.metadata_format, settings.policy
    is_cachevol, is_cleaner = settings.volume is CacheVolume.VOLUME, policy == dmcache.CLEANER
    named_mq = f"LVM gives a cachevol the policy {_CACHEVOL_POLICY}, whatever it is told"
    mq = f"cache_policy={_CACHEVOL_POLICY}, which is smq by another name since v4.6"
    for wrong, keys, sentence, hint in (
        (chosen not in (None, 1, NEWER_FORMAT), (format_key,), "dm-cache has formats 1 and 2", ""),
        (is_cachevol and policy != _CACHEVOL_POLICY, (policy_key, volume_key), named_mq, mq),
        (is_cachevol and chosen == 1, (format_key, volume_key), "LVM makes a cachevol with format 2 alone", ""),
        (is_cleaner and chosen == 1, (format_key, policy_key), "LVM gives the cleaner format 2", _CLEANER_STACK),
        (
            is_cleaner and settings.mode is not CacheMode.WRITETHROUGH,
            ("storage.cache_mode", policy_key),
            "LVM makes a cleaner's cache writethrough",
            _CLEANER_STACK,
        ),
    ):
        if wrong:
            yield Problem(keys, sentence, hint)
