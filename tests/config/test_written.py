"""Settings as text: each value comes back from TOML and JSON as it was, also from older records."""

import pickle
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bisector.config import options
from bisector.core.setting import Block, read
from bisector.core.units import duration_s, size_bytes
from tests.config.given import GIB, MIB, from_argv
from tests.workload.test_job_file import GOOD

paths = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0~"), min_size=1, max_size=8).filter(
    str.strip
)


written = st.fixed_dictionaries(
    {"machine.connect": st.just("qemu:///system")},  # what has volumes
    optional={
        "profile": st.sampled_from(["quick", "article"]),
        "bisect.terms": st.sampled_from(["slow:fast", "a-1:b_2"]),
        "bisect.expect": st.sampled_from(["improvement", "regression", "none"]),
        "bisect.threshold": st.floats(1e-9, 1e18) | st.sampled_from(["ends", "auto", "12.5 kIOPS"]),
        "bisect.first_parent": st.booleans(),
        "kernel.compiler": st.sampled_from(["auto", "gcc", 'a "quoted" \\ one', "é", ["gcc", "gcc-11"]]),
        "kernel.jobs": st.integers(1, 99) | st.just("auto"),
        "kernel.build_deadline": st.floats(1, 1e9) | st.sampled_from(["90min", "2h"]),
        "machine.append": st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=9),
        "machine.memory": st.integers(256 * MIB, 1 << 50),
        "machine.trial_deadline": st.floats(2000, 1e9) | st.just("auto"),
        "storage.ssd.path": st.sampled_from(["/", "/dev", "."]),
        "storage.hdd.path": st.just("."),
        "storage.ssd.iops_limit": st.integers(0, 1 << 62),
        "storage.hdd.bandwidth_limit": st.integers(0, 1 << 62),
        "storage.cache_mode": st.sampled_from(["writeback", "writethrough"]),
        "storage.stack": st.sampled_from(["lvmcache", "ssd", "hdd", "lvmcache(hdd,ssd)+ext4"]),
        "contention.max_steal_share": st.floats(0, 1e300),
    },
)  # fmt: skip


# Files of 2 GiB twice over do not fit on a cached volume of the size of the SSD.
too_large = {"profile": "article", "storage.stack": "lvmcache(hdd,ssd)+ext4"}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written.filter(lambda values: not too_large.items() <= values.items()))
def test_toml_and_json_round_trip(directory: Path, values: Mapping[str, object]) -> None:
    path = directory / "in.toml"
    path.write_text(options.write(values), encoding="utf-8")
    first = options.load(config=path)
    path.write_text(options.to_toml(first), encoding="utf-8")
    assert options.load(config=path).settings == first.settings
    assert options.from_json(options.to_json(first.settings)) == first.settings


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
leaves = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text


@settings(max_examples=25, deadline=None)
@given(leaves | st.lists(leaves | st.lists(leaves, max_size=2), max_size=4))
@example('a "quoted" \\ one\n\x7f\x00')
def test_every_literal_is_toml(value: object) -> None:
    assert tomllib.loads(f"x = {options.literal(value)}")["x"] == value


def test_sizes_and_durations() -> None:
    sizes = {
        **{"512MiB": 512 * MIB, "1.5 GiB": 3 * GIB // 2, "4096": 4096, "2GB": 2 * 10**9, "64kB": 64_000},
        **{"64M": 64 * MIB, "2G": 2 * GIB, "512k": 512 << 10, "512K": 512 << 10, "1.5 g": 3 * GIB // 2},
    }
    assert {text: size_bytes(text) for text in sizes} == sizes
    seconds = {
        **{"2m": 120, "1h30m": 5400, "1h 30min": 5400, "6hours": 21600, "6 hours": 21600, "1 hour": 3600},
        **{"1.5h": 5400, "2d": 172_800, "1min 500ms": 60.5, "40": 40, "90 sec": 90},
    }
    assert {text: duration_s(text) for text in seconds} == seconds


@pytest.mark.parametrize("text", ["4096", "4KiB", "4k"])
def test_a_block_is_written_as_a_size(text: str) -> None:
    assert read(Block, text, typed=True) == 4 << 10
    settings = options.load({"storage.stack": f"bcache(ssd,hdd,block_size={text})+ext4"}).settings
    assert settings.storage.stack.text == "bcache(ssd,hdd,block_size=4KiB)+ext4"  # by which trials on record are found


@pytest.mark.parametrize(
    "text", ["5Gb", "5G/s", "1G512M", "MiB", "-1MiB", "1.0001KiB", "1e3", "5 gib", "٣MiB", "9" * 5000, ""]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a (whole )?number"):
        size_bytes(text)


@pytest.mark.parametrize("text", ["1h30", "h", "1h-30m", "1.2.3h", "1h and 2m", "-2m", ""])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="not a number with a unit"):
        duration_s(text)


def test_recorded_settings_are_not_checked_again(directory: Path) -> None:
    """A run is resumed with what it was started with, also when a file has moved or a setting is new."""
    job = directory / "my.fio"
    job.write_text(GOOD, encoding="utf-8")
    recorded = from_argv("--job", "my.fio", "--profile", "article").settings
    job.unlink()
    text = options.to_json(recorded).replace('"storage.cache_size"', '"storage.of_another_version"')
    assert options.from_json(text) == recorded


def test_settings_pickle() -> None:
    found = options.load().settings
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_setting_that_is_newer_than_the_record_has_the_value_of_its_profile() -> None:
    found = options.from_json('{"profile": "article", "storage.stack": "hdd"}')
    assert found == options.load({"profile": "article", "storage.stack": "hdd"}).settings
