"""bisector.toml and flags over a profile: what comes out, and from where."""

import dataclasses
import os
from pathlib import Path

import pytest

from bisector.config import Accelerator, Settings, options
from bisector.config.option_table import by_key, rows
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.setting import Option, options_of
from bisector.core.verdict import Direction, SideWords
from bisector.storage.stack import stack_of
from bisector.workload.fio.fio import Fio
from tests.config.given import GIB, MIB, cache_sizes, from_argv, load_toml
from tests.workload.test_job_file import GOOD


def file_bytes(found: Settings) -> int:
    assert isinstance(found.workload.workload, Fio)
    return found.workload.workload.file_bytes


def test_quick_is_the_default() -> None:
    effective = options.load()
    found = effective.settings
    assert found.profile == "quick"
    assert (found.storage.disks["ssd"].size_bytes, found.storage.disks["ssd"].iops_limit) == (512 * MIB, 0)
    assert (found.storage.disks["hdd"].size_bytes, found.storage.disks["hdd"].iops_limit) == (GIB, 1000)
    assert cache_sizes(found) == (64 * MIB, 8 * MIB)
    assert (file_bytes(found), found.workload.runtime_s) == (32 * MIB, 40)
    assert found.workload.inputs["job"] == resources.jobs() / "partial.fio"
    assert (found.bisect.metric, found.bisect.over) == ("read.iops", "worst")
    assert (found.bisect.threshold, found.bisect.expect, found.bisect.terms) == (None, None, None)
    assert found.kernel.fragments == ("tiny", "vm", "storage-lvmcache")
    assert found.kernel.jobs is None
    assert found.machine.trial_deadline_s == 2 * 40 + 300 + 900
    assert from_argv("--stack", "ssd").settings.machine.trial_deadline_s == 40 + 900
    assert set(effective.origins.values()) == {"profile quick", "the stack"}
    assert from_argv() == effective
    article = from_argv("--profile", "article").settings
    assert (article.storage.disks["hdd"].size_bytes, article.storage.disks["hdd"].iops_limit) == (50 * GIB, 0)
    assert cache_sizes(article) == (4 * GIB, 50 * MIB)
    assert article.bisect.threshold_value == 20_000


@pytest.mark.parametrize(
    ("words", "size"),
    [
        (("--job", "rand-read-iops"), 64 * MIB),
        (("--job", "rand-read-iops", "--stack", "hdd"), 32 * MIB),
        (("--job", "rand-read-iops", "--cache-size", "96MiB"), 96 * MIB),
        (("--cache-size", "96MiB"), 48 * MIB),
        (("--job", "rand-read-iops", "--stack", "lvmwritecache(ssd,hdd)+ext4"), 32 * MIB),
        (("--job", "rand-read-iops", "--profile", "article"), 4 * GIB),
        (("--file-size", "36MiB"), 36 * MIB),
    ],
)
def test_the_files_of_a_job_fill_the_cache_unless_their_size_is_given(words: tuple[str, ...], size: int) -> None:
    found = from_argv(*words).settings
    assert file_bytes(found) == size
    assert options.from_json(options.to_json(found)) == found
    if "--file-size" not in words:
        assert options.usual(found)["workload.file_size"] == options.written_values(found)["workload.file_size"]


@pytest.mark.parametrize(("cores", "limit"), [(1, 0.5), (4, 0.5), (6, 0.75), (64, 8.0)])
def test_a_large_host_may_have_other_work(cores: int, limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert options.load().settings.contention.max_other_cores == limit
    chosen = options.load(flags={"contention.max_other_cores": "0.25"}).settings
    assert chosen.contention.max_other_cores == 0.25


def test_flags_over_file_over_profile() -> None:
    effective = load_toml(
        'profile = "article"\n[workload]\n# shorter\nruntime = 600\n[bisect]\nthreshold = 15_000\n',
        **{"bisect.threshold": "9000.5", "machine.vcpus": options.Given("4", "--set")},
    )
    found = effective.settings
    assert (found.workload.runtime_s, found.bisect.threshold_value, found.machine.vcpus) == (600, 9000.5, 4)
    assert {key: effective.origins[key] for key in ("profile", "workload.runtime", "bisect.threshold")} == {
        "profile": "bisector.toml",
        "workload.runtime": "bisector.toml",
        "bisect.threshold": "--threshold",
    }
    assert effective.origins["machine.vcpus"] == "--set"
    assert effective.origins["storage.cache_size"] == "profile article"


def test_every_flag(directory: Path) -> None:
    for name in ("base", "disk.ext4", "key", "host.pub", "my.fio", "my.config"):
        Path(name).write_text(GOOD, encoding="utf-8")
    words = (
        "--profile quick --threshold 2000 --terms slow:fast --regression --first-parent --base-config base --jobs 3 "
        "--fragment ./my.config --compiler gcc-12 --compiler gcc-11 --connect qemu:///system --accelerator tcg "
        "--image disk.ext4 --image-key key --image-host-key host.pub --ssd . --hdd /dev --stack lvmcache --job my.fio "
        "--runtime 1min --file-size 64MiB --cache-size 32MiB --set machine.memory=2GiB"
    )
    found = from_argv(*words.split(), "--set", "machine.append=quiet loglevel=3").settings
    bisect, machine = found.bisect, found.machine
    assert (bisect.threshold, bisect.terms, bisect.first_parent) == ("2000", SideWords("slow", "fast"), True)
    assert bisect.expect is Direction.REGRESSION
    assert found.kernel.base_config == directory / "base"
    assert found.kernel.fragments == ("distribution", "vm", "storage-lvmcache", str(directory / "my.config"))
    assert (found.kernel.compilers, found.kernel.jobs) == (("gcc-12", "gcc-11"), 3)
    assert (machine.connect, machine.accelerator) == ("qemu:///system", Accelerator.TCG)
    assert (machine.memory_bytes, machine.append) == (2 * GIB, "quiet loglevel=3")
    assert (found.storage.disks["ssd"].path, found.storage.disks["hdd"].path) == (str(directory), "/dev")
    assert (found.workload.inputs["job"], found.workload.runtime_s) == (directory / "my.fio", 60)


def test_regression_is_short_for_an_expectation() -> None:
    assert from_argv("--regression").settings == from_argv("--expect", "regression").settings
    assert from_argv("--expect", "improvement").settings.bisect.expected is Direction.IMPROVEMENT
    with pytest.raises(UserError, match="not allowed with argument --regression"):
        from_argv("--regression", "--expect", "improvement")


@pytest.mark.parametrize(
    ("terms", "expected"),
    [("broken:fixed", Direction.IMPROVEMENT), ("good:bad", Direction.REGRESSION), ("fast:slow", None)],
)
def test_who_says_broken_and_fixed_expects_an_improvement(terms: str, expected: Direction | None) -> None:
    assert from_argv("--terms", terms).settings.bisect.expected is expected


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        (("--threshold", "1.5ms", "--metric", "read.clat.p99"), 1.5e6),
        (("--threshold", "80MiB/s", "--metric", "write.bw", "--over", "sum"), 80 * 2**20),
        (("--threshold", "2k"), 2000),
        (("--profile", "article"), 20_000),
        (("--profile", "article", "--threshold", "ends"), None),
        (("--profile", "article", "--metric", "read.bw"), None),
        (("--profile", "article", "--over", "sum"), None),
    ],
)
def test_a_threshold_is_in_the_unit_of_the_metric(flags: tuple[str, ...], value: float | None) -> None:
    found = from_argv(*flags).settings
    assert found.bisect.threshold_value == value
    assert options.from_json(options.to_json(found)) == found


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--metric", "reads"), "--metric: bisect.metric: there is no metric 'reads'"),
        (("--metric", "cache.promotions"), "bisect.metric = cache.promotions (--metric)"),
        (("--metric", "read.clat.p99", "--over", "sum"), "the sum of read.clat.p99 over jobs is not a figure"),
        (("--metric", "read.clat.p99", "--threshold", "2000"), "'2000' is not a value in ns"),
        (("--threshold", "1.5ms"), "bisect.threshold = 1.5ms (--threshold), bisect.metric = read.iops"),
    ],
)
def test_what_orders_nothing_or_is_in_another_unit_is_refused(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError) as caught:
        from_argv(*flags)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        ("--fragment debug", "tiny vm debug"),
        ("--fragment debug --fragment auto", "debug tiny vm"),
        ("--fragments-only --fragment vm --fragment debug", "vm debug"),
        ("--set kernel.fragments=vm,debug", "vm debug"),
        ("--disk hdd=bus=scsi,scheduler=bfq", "tiny vm disk-scsi scheduler-bfq"),
        ("--disk hdd=bus=sata,wbt_lat_usec=0", "tiny vm disk-sata writeback-throttling"),
        ("--disk hdd=scheduler=none,read_ahead_kb=0 --disk ssd=bus=scsi", "tiny vm"),
    ],
)
def test_fragments_of_the_command_line_and_of_disks(words: str, fragments: str) -> None:
    found = from_argv("--stack", "hdd", *words.split()).settings.kernel.fragments
    assert found == tuple(fragments.split())


def test_the_drivers_of_a_bus_are_suspected_where_those_of_block_devices_are() -> None:
    words = ("--disk", "hdd=bus=sata")
    drivers = ("drivers/ata", "drivers/scsi")
    for stack, more in (("hdd", drivers), ("ssd", ()), ("lvmcache", ())):
        found = from_argv("--stack", stack, *words).settings.bisect.suspects
        assert found == (*stack_of(stack).suspects, *more)


def test_paths_in_a_file_start_from_it(directory: Path) -> None:
    (directory / "etc").mkdir()
    (directory / "etc" / "my.fio").write_text(GOOD, encoding="utf-8")
    (directory / "etc" / "b.toml").write_text('workload = { job = "my.fio" }\n', encoding="utf-8")
    effective = from_argv("--config", "etc/b.toml")
    assert effective.settings.workload.inputs["job"] == directory / "etc" / "my.fio"
    assert effective.origins["workload.job"] == "etc/b.toml"


def test_a_file_in_the_current_directory_is_not_taken_for_ours() -> None:
    Path("partial.fio").write_text("[a]\n", encoding="utf-8")
    assert options.load().settings.workload.inputs["job"] == resources.jobs() / "partial.fio"


def test_every_field_has_a_row_and_each_key_is_of_one_field() -> None:
    """But for those that hold further settings."""
    found = options.load().settings
    sections = [getattr(found, one.name) for one in dataclasses.fields(found) if one.name != "profile"]
    disk = found.storage.disks["hdd"]
    for one in (*sections, *found.storage.layers.values(), *found.workload.own.values(), disk, disk.guest):
        without = {field.name for field in dataclasses.fields(one)} - {row.field for row in options_of(type(one))}
        assert without <= {"disks", "layers", "own", "guest"}, one
    keys = [row.key for row in rows()]
    assert sorted(keys) == sorted(set(keys)) == sorted(options.written_values(found))


@pytest.mark.parametrize("option", rows(), ids=lambda option: option.key)
def test_every_option_says_its_unit(option: Option) -> None:
    for ending, unit in (("_s", "seconds"), ("_bytes", "bytes"), ("_per_s_limit", "bytes/s"), ("_iops", "IOPS")):
        if option.field.endswith(ending):
            assert unit in option.help


def test_describe() -> None:
    shown_rows = {row.key: row for row in options.describe(from_argv("--threshold", "5000", "--first-parent"))}
    assert list(shown_rows) == list(by_key())
    said = by_key()["bisect.threshold"].help
    assert shown_rows["bisect.threshold"] == options.SettingRow("bisect.threshold", "5000", "--threshold", said)
    shown = {"storage.ssd.size": "512MiB", "kernel.fragments": "tiny, vm, storage-lvmcache", "machine.image": '""'}
    for key, value in {**shown, "workload.runtime": "40s", "bisect.first_parent": "true"}.items():
        assert shown_rows[key].value == value


def test_who_is_suspected_follows_from_the_stack_or_the_person() -> None:
    assert from_argv().settings.bisect.suspects == ("drivers/md",)
    assert "fs/ext4" in from_argv("--stack", "ssd").settings.bisect.suspects
    assert from_argv("--suspect", "lib", "--suspect", "mm").settings.bisect.suspects == ("lib", "mm")
    assert from_argv("--set", "bisect.suspect=").settings.bisect.suspects == ()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 300),
        ({"workload.runtime": "3min"}, 720),
        ({"storage.fill_rounds": "6"}, 360),
        ({"profile": "article"}, 3600),
        ({"storage.fill_deadline": "2min", "workload.runtime": "30s"}, 120),
    ],
)
def test_a_cache_has_as_much_time_to_fill_as_a_few_runs_take(given: dict[str, str], seconds: float) -> None:
    settings = options.load(given, directory=Path("/")).settings
    assert settings.storage.fill_deadline_s == seconds
    assert options.from_json(options.to_json(settings)).storage.fill_deadline_s == seconds


def test_rounds_that_fill_a_cache_have_time() -> None:
    """Those of five minutes, in runs of 40 s."""

    def load(**given: str) -> None:
        options.load({f"storage.{key}": value for key, value in given.items()}, directory=Path("/"))

    load(fill_rounds="7", fill_deadline="5min")
    with pytest.raises(UserError, match=r"^storage\.fill_deadline = 5min .*storage\.fill_rounds = 8 .*: 8 rounds take"):
        load(fill_rounds="8", fill_deadline="5min")
    load(fill_rounds="8", fill_deadline="6min")
    load(fill_rounds="8")
    with pytest.raises(UserError, match=r"^storage\.fill_deadline = 40s .*it is over when the first run is"):
        load(fill_deadline="40s")
    load(fill_deadline="0s")
    load(fill_deadline="40s", stack="hdd")
    with pytest.raises(UserError, match=r"at most 100 rounds fill a cache"):
        load(fill_rounds="1000000000000", fill_deadline="1000000s")
    load(fill_rounds="8", stack="hdd")


def test_what_a_layer_counts_needs_that_layer() -> None:
    def load(stack: str, metric: str) -> None:
        options.load({"storage.stack": stack, "bisect.metric": metric}, directory=Path("/"))

    load("crypt(lvmcache(ssd,hdd))+ext4", "cache.hit_ratio")
    load("hdd", "write.iops")
    with pytest.raises(UserError, match=r"storage\.stack = hdd .*: no layer of the stack hdd counts ") as caught:
        load("hdd", "cache.hit_ratio")
    assert "layers that do: lvmcache" in (caught.value.hint or "")
    with pytest.raises(UserError, match=r"no layer of the stack raid1\(ssd,hdd\)\+xfs counts cache\.dirty_blocks"):
        load("raid1(ssd,hdd)+xfs", "cache.dirty_blocks")
