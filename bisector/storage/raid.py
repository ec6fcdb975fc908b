"""RAID by the kernel's md driver (md(4), mdadm(8)): mirrors, and stripes with parity.

The arrays are made as if they were in sync already, since empty disks are: mirrors of zeros are equal, and the parity
of zeros is zero. Otherwise a resync would run during the measurement, and its speed would show in the figures. On a
layer that does not read as zeros, such as crypt, the parity of blocks that were never written is wrong; nothing reads
it, since no disk fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from bisector.core.errors import InfraError
from bisector.core.setting import Meta, Option, Problem, Size
from bisector.core.units import size_text
from bisector.storage.disks import answer, fault, steps
from bisector.storage.layer import Capacity, Counters, Device, Files, Layer, LayerPlan

# Where data begins on each device: the default follows the size of the device and the version of mdadm (md(4)).
_DATA_OFFSET_BYTES = 1 << 20
_SECTOR_BYTES = 512
_LEFT_SYMMETRIC = 2  # the kernel's number of the layout (drivers/md/raid5.h)
# The states of an array that works (Documentation/admin-guide/md.rst). An array without writes is clean, or remains
# active for a moment.
_STATES = ("clean", "active", "active-idle", "write-pending")
_LEAST_CHUNK_BYTES = 4096
# When parity and data are read or copied: the kernel's defaults of RAID 5 in all versions (drivers/md/raid5.c).
# rmw_level came with v4.1; it is 1 even if the CPU's instructions for parity do not support it.
_OF_STRIPES = {"rmw_level": "1", "preread_bypass_threshold": "1", "skip_copy": "0"}
# Values of files that a kernel may lack, such as one that is built without bitmaps (CONFIG_MD_BITMAP, since v6.18).
_WITHOUT_A_FILE = {"bitmap/location": "none", **_OF_STRIPES}
_PAGE_BYTES = 4096
# The size of a stripe for each device besides its page: two bios, and the rest of a struct r5dev (setup_conf()).
_STRIPE_BYTES = 512
_MOST_STRIPES, _MOST_THREADS = 32768, 8192  # the most that RAID 5 takes (drivers/md/raid5.c)


@dataclass(frozen=True, slots=True)
class Raid(Layer):
    """An array of the md driver without a bitmap, whose devices are all in sync."""

    many = True
    tools = ("mdadm",)
    level: ClassVar[str]

    def chunk(self) -> int:
        """The chunk in bytes; 0 for a mirror, which has no chunks, as the kernel shows it."""
        return 0

    def tuned(self) -> Mapping[str, str]:
        """Values for files of the array in sysfs; each file that exists with another value is written before use."""
        return {}

    def extent(self, below: Sequence[Capacity]) -> Capacity:
        """The array; it uses as much of each device as the smallest one has."""
        keys = tuple(dict.fromkeys(key for one in below for key in one.keys))
        what = f"the {self.name} of {', '.join(one.what for one in below)}"
        sizes = [one.size_bytes for one in below if one.size_bytes is not None]
        if len(sizes) < len(below):
            return Capacity(what, None, keys)
        each = max(min(sizes) - _DATA_OFFSET_BYTES, 0)
        unit = self.chunk() or _SECTOR_BYTES
        # Of stripes one device's worth is parity; the devices of a mirror all have the same data.
        data_devices = len(below) - 1 if self.chunk() else 1
        return Capacity(what, each // unit * unit * data_devices, keys)

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield each device that has no room for the superblock and one chunk."""
        for one in below:
            needed = _DATA_OFFSET_BYTES + (self.chunk() or _LEAST_CHUNK_BYTES)
            yield from one.lacks(needed, f"a device of a {self.name} needs", "storage.stack")

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """At most all data on each device: for each page of data a device gets one page of data or parity at most."""
        return (data_bytes + _DATA_OFFSET_BYTES,) * len(below)

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        """Make the array with mdadm; its state is read from sysfs, also before and after each run."""
        array, count = f"md{self.level}{suffix}", len(below)
        place, paths = f"/sys/block/{array}/md", tuple(device.path for device in below)
        chunk, tuned = self.chunk(), self.tuned()
        asked = {
            "level": f"raid{self.level}",
            "raid_disks": str(count),
            "metadata_version": "1.2",
            "chunk_size": str(chunk),
            "layout": str(_LEFT_SYMMETRIC if chunk else 0),
            "degraded": "0",
            "sync_action": "idle",
            "bitmap/location": "none",
            **{f"rd{n}/offset": str(_DATA_OFFSET_BYTES // _SECTOR_BYTES) for n in range(count)},
            **tuned,
        }
        of_chunks = f" --chunk={chunk >> 10}K --layout=left-symmetric" if chunk else ""
        made = steps(
            # mdadm makes the device node itself instead of waiting for udev (mdadm(8), MDADM_NO_UDEV).
            "export MDADM_NO_UDEV=1",
            f"mdadm --create /dev/{array} --run --level={self.level} --raid-devices={count} --metadata=1.2 "
            f"--data-offset={_DATA_OFFSET_BYTES >> 10}K --assume-clean --bitmap=none{of_chunks} {' '.join(paths)}",
            *(
                f"! test -e {place}/{file} || test $(cat {place}/{file}) = {value} || echo {value} > {place}/{file}"
                for file, value in tuned.items()
            ),
        )

        def shown(*more: str) -> str:
            return f"cd {place} && grep -s -H . {' '.join((*asked, 'array_state', *more))}; cd /"

        def check(printed: str) -> Mapping[str, str]:
            """The files of the array; raises :class:`KernelFault` if they are not what was asked for."""
            found = dict(line.partition(":")[::2] for line in printed.splitlines())
            if "level" not in found or "array_state" not in found:
                raise fault(f"{array}: the kernel says nothing of the array")
            found = {**_WITHOUT_A_FILE, **found}
            other = {name: found.get(name, "missing")[:40] for name, value in asked.items() if found.get(name) != value}
            wanted = ", ".join(f"{name} {asked[name]}" for name in other)
            if found["array_state"] not in _STATES:
                other["array_state"] = found["array_state"][:40]
            if other:
                told = ", ".join(f"{name} {value}" for name, value in other.items())
                raise fault(f"{array}: {told}; asked for {wanted or 'one that works'}")
            return found

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            found = check(answers[0])
            members = [found.get(f"rd{n}/block/dev", "nothing") for n in range(count)]
            if members != (wanted := [numbers[path] for path in paths]):
                raise InfraError(f"{array} is on {', '.join(members)[:200]} instead of {', '.join(wanted)}")

        # An array that has lost a device, or that resyncs, performs differently.
        counters = Counters(lambda shell: check(answer(shell, shown())), lambda before, after: ())
        return LayerPlan(f"/dev/{array}", made, steps(shown("rd*/block/dev")), verify, paths, counters)


class Raid1(Raid):
    """A mirror: each device has all data, and one of them serves each read (drivers/md/raid1.c, read_balance)."""

    name = "raid1"
    level = "1"
    needs = ("device", "device")
    fragments = ("storage-raid1",)
    suspects = ("drivers/md/md.c", "drivers/md/md.h", "drivers/md/raid1.c", "drivers/md/raid1-10.c")


@dataclass(frozen=True, slots=True)
class Raid5(Raid):
    """Chunks of data on one device after the other, with one chunk of parity in each stripe."""

    name = "raid5"
    level = "5"
    needs = ("device", "device", "device")
    fragments = ("storage-raid5",)
    suspects = (
        *("drivers/md/md.c", "drivers/md/md.h", "drivers/md/raid5.c", "drivers/md/raid5.h"),
        *("drivers/md/raid5-cache.c", "drivers/md/raid5-ppl.c", "crypto/async_tx", "crypto/xor.c", "lib/raid"),
    )

    # The settings, laid out as a table.
    # fmt: off
    chunk_bytes: Annotated[Size, Meta(ge=_LEAST_CHUNK_BYTES), Option(
        "storage.raid5.chunk", "512KiB", "chunk of the array, bytes: a power of two")]
    stripes: Annotated[int, Meta(ge=17, le=_MOST_STRIPES), Option(
        "storage.raid5.stripe_cache_size", 256, "stripe cache of the array, pages of each device")]
    threads: Annotated[int, Meta(ge=0, le=_MOST_THREADS), Option(
        "storage.raid5.group_thread_count", 0,
        "threads that handle stripes, for each group of CPUs; 0 is the array's one thread")]
    # fmt: on

    def chunk(self) -> int:
        """The chunk in bytes, from the settings."""
        return self.chunk_bytes

    def memory(self, devices: int) -> Capacity:
        """The stripe cache: each stripe has a page for each device."""
        size_bytes = self.stripes * devices * (_PAGE_BYTES + _STRIPE_BYTES)
        return Capacity("the stripe cache of RAID 5", size_bytes, ("storage.raid5.stripe_cache_size",))

    def tuned(self) -> Mapping[str, str]:
        """The stripe cache and threads of the settings, and fixed defaults (Documentation/admin-guide/md.rst)."""
        return {"stripe_cache_size": str(self.stripes), "group_thread_cnt": str(self.threads), **_OF_STRIPES}

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield also a chunk that the driver does not take (drivers/md/raid5.c, setup_conf)."""
        if self.chunk_bytes & (self.chunk_bytes - 1):
            yield Problem(("storage.raid5.chunk",), f"{size_text(self.chunk_bytes)} is not a power of two")
        yield from Raid.problems(self, below, files)
