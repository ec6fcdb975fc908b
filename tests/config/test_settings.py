"""bisector.toml and flags over a profile: what comes out, from where, and what is refused."""

import argparse
import dataclasses
import json
import os
import pickle
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bisector.commands.arguments import add_settings, given_settings
from bisector.config import Accelerator, DiskSettings, Settings, checks, file, options
from bisector.config.option_table import by_key, rows
from bisector.core import resources
from bisector.core.errors import InfraError, UserError
from bisector.core.kinds import Option
from bisector.core.objective import Objective
from bisector.core.units import duration_s, duration_text, size_bytes, size_text
from bisector.core.verdict import Direction, Strategy, Terms
from bisector.storage.disks import DISKS
from bisector.storage.layers import LAYERS
from bisector.storage.lvmcache import CacheMode, CacheVolume
from bisector.storage.parse import stack_of
from bisector.storage.stack import Stack
from bisector.workload.fio.fio import FIO
from bisector.workload.workloads import WORKLOADS

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_toml(text: str, **flags: Any) -> options.Effective:
    Path("bisector.toml").write_text(text, encoding="utf-8")
    return options.load(flags)


def from_argv(*argv: str) -> options.Effective:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_settings(parser)
    namespace = parser.parse_args(argv)
    return options.load(given_settings(namespace), namespace.config)


def cache_sizes(settings: Settings) -> tuple[int, int]:
    own = settings.storage.layers["lvmcache"]
    return own["cache_bytes"], own["metadata_bytes"]


# What comes out


def test_quick_is_the_default() -> None:
    effective = options.load()
    found = effective.settings
    assert found.profile == "quick"
    assert (found.storage.disks["ssd"].size_bytes, found.storage.disks["ssd"].iops_limit) == (512 * MIB, 0)
    assert (found.storage.disks["hdd"].size_bytes, found.storage.disks["hdd"].iops_limit) == (GIB, 1000)
    assert cache_sizes(found) == (64 * MIB, 8 * MIB)
    assert (found.workload.values["file_bytes"], found.workload.runtime_s) == (32 * MIB, 40)
    assert found.workload.inputs["job"] == resources.jobs() / "partial.fio"
    assert (found.bisect.metric, found.bisect.over) == ("read.iops", "worst")
    assert (found.bisect.threshold, found.bisect.expect, found.bisect.terms) == (None, None, None)
    assert found.kernel.fragments == ("tiny", "vm", "storage-lvmcache")
    assert found.kernel.jobs == len(os.sched_getaffinity(0))
    assert found.machine.trial_deadline_s == 2 * 40 + 300 + 900
    assert from_argv("--stack", "ssd").settings.machine.trial_deadline_s == 40 + 900
    assert set(effective.origins.values()) == {"profile quick"}


@pytest.mark.parametrize(("cores", "limit"), [(1, 0.5), (4, 0.5), (6, 0.75), (64, 8.0)])
def test_a_large_host_may_have_other_work(cores: int, limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert options.load().settings.contention.max_other_cores == limit
    chosen = options.load(flags={"contention.max_other_cores": "0.25"}).settings
    assert chosen.contention.max_other_cores == 0.25


def test_article() -> None:
    found = from_argv("--profile", "article").settings
    assert (found.storage.disks["ssd"].size_bytes, found.storage.disks["hdd"].size_bytes) == (5 * GIB, 50 * GIB)
    assert cache_sizes(found) == (4 * GIB, 50 * MIB)
    assert found.storage.disks["hdd"].iops_limit == 0
    assert (found.workload.values["file_bytes"], found.workload.runtime_s) == (2 * GIB, 900)
    assert found.bisect.threshold_value == 20_000


def test_flags_over_file_over_profile() -> None:
    effective = load_toml(
        'profile = "article"\n[workload]\n# shorter\nruntime = 600\n[bisect]\nthreshold = 15_000\n',
        **{"bisect.threshold": "9000.5", "machine.vcpus": options.Given("4", "--set")},
    )
    found = effective.settings
    assert (found.workload.runtime_s, found.bisect.threshold_value, found.machine.vcpus) == (600, 9000.5, 4)
    assert {key: effective.origins[key] for key in ("profile", "workload.runtime", "bisect.threshold")} == {
        "profile": "bisector.toml:1",
        "workload.runtime": "bisector.toml:4",
        "bisect.threshold": "--threshold",
    }
    assert effective.origins["machine.vcpus"] == "--set"
    assert effective.origins["storage.cache_size"] == "profile article"


def test_every_flag() -> None:
    for name in ("base", "disk.ext4", "key", "host.pub", "my.fio", "my.config"):
        Path(name).write_text("[job]\n", encoding="utf-8")
    found = from_argv(
        *("--profile", "quick", "--threshold", "2000", "--terms", "slow:fast", "--regression", "--first-parent"),
        *(
            "--base-config",
            "base",
            "--fragment",
            "auto",
            "--fragment",
            "./my.config",
            "--compiler",
            "gcc-12",
            "--compiler",
            "gcc-11",
        ),
        *("--jobs", "3", "--connect", "qemu:///system", "--accelerator", "tcg", "--image", "disk.ext4"),
        *("--image-key", "key", "--image-host-key", "host.pub", "--ssd", ".", "--hdd", "volume:default/hdd"),
        *("--stack", "lvmcache", "--job", "my.fio", "--runtime", "1min", "--file-size", "64MiB"),
        *("--cache-size", "32MiB", "--set", "machine.memory=2GiB", "--set", "machine.append=quiet loglevel=3"),
    ).settings
    here = Path.cwd()
    assert found.bisect == dataclasses.replace(
        found.bisect,
        threshold="2000",
        terms=Terms("slow", "fast"),
        expect=Direction.REGRESSION,
        first_parent=True,
    )
    assert found.kernel.base_config == here / "base"
    assert found.kernel.fragments == ("distribution", "vm", "storage-lvmcache", str(here / "my.config"))
    assert (found.kernel.compilers, found.kernel.jobs) == (("gcc-12", "gcc-11"), 3)
    assert (found.machine.connect, found.machine.accelerator) == ("qemu:///system", Accelerator.TCG)
    assert (found.machine.memory_bytes, found.machine.append) == (2 * GIB, "quiet loglevel=3")
    assert (found.storage.disks["ssd"].path, found.storage.disks["hdd"].path) == (str(here), "volume:default/hdd")
    assert (found.workload.inputs["job"], found.workload.runtime_s) == (here / "my.fio", 60)


def test_no_flags_change_nothing() -> None:
    assert from_argv() == options.load()


def test_regression_is_short_for_an_expectation() -> None:
    assert from_argv("--regression").settings == from_argv("--expect", "regression").settings
    assert from_argv("--expect", "improvement").settings.bisect.expected is Direction.IMPROVEMENT
    with pytest.raises(SystemExit):
        from_argv("--regression", "--expect", "improvement")


@pytest.mark.parametrize(
    ("terms", "expected"),
    [("broken:fixed", Direction.IMPROVEMENT), ("good:bad", Direction.REGRESSION), ("fast:slow", None)],
)
def test_who_says_broken_and_fixed_expects_an_improvement(terms: str, expected: Direction | None) -> None:
    assert from_argv("--terms", terms).settings.bisect.expected is expected


def test_what_older_versions_recorded_as_the_direction_is_what_was_expected() -> None:
    written = json.loads(options.to_json(from_argv("--threshold", "2000").settings))
    for key in ("bisect.metric", "bisect.over", "bisect.expect"):
        del written[key]
    old = {**written, "bisect.direction": "regression", "bisect.terms": "good:bad", "bisect.threshold": 2000.0}
    found = options.from_json(json.dumps(old)).bisect
    assert (found.objective, found.expect, found.terms) == (Objective(), Direction.REGRESSION, Terms("good", "bad"))
    assert found.threshold_value == 2000


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
        (("--metric", "read.clat.p99", "--over", "sum"), "the sum of read.clat.p99 over jobs is no figure"),
        (("--metric", "read.clat.p99", "--threshold", "2000"), "'2000' is no value in ns"),
        (("--threshold", "1.5ms"), "bisect.threshold = 1.5ms (--threshold), bisect.metric = read.iops"),
    ],
)
def test_what_orders_nothing_or_is_in_another_unit_is_refused(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError) as caught:
        from_argv(*flags)
    assert message in str(caught.value)


def test_fragments_follow_the_stack() -> None:
    assert from_argv("--stack", "hdd").settings.kernel.fragments == ("tiny", "vm")


def test_paths_in_a_file_start_from_it(directory: Path) -> None:
    (directory / "etc").mkdir()
    (directory / "etc" / "my.fio").write_text("[a]\nnumjobs=4\n", encoding="utf-8")
    (directory / "etc" / "b.toml").write_text('workload = { job = "my.fio" }\n', encoding="utf-8")
    effective = from_argv("--config", "etc/b.toml")
    assert effective.settings.workload.inputs["job"] == directory / "etc" / "my.fio"
    assert effective.origins["workload.job"] == "etc/b.toml:1"


def test_a_file_in_the_current_directory_is_not_taken_for_ours() -> None:
    Path("partial.fio").write_text("[a]\n", encoding="utf-8")
    assert options.load().settings.workload.inputs["job"] == resources.jobs() / "partial.fio"


def test_table_and_records_are_the_same_set() -> None:
    def fields(cls: type, prefix: str = "") -> Iterator[str]:
        for name, hint in get_type_hints(cls).items():
            if name == "disks":
                for disk in DISKS:
                    yield from fields(DiskSettings, f"{prefix}disks.{disk}.")
            elif name == "layers":
                yield from (
                    f"{prefix}layers.{layer.name}.{row.field}" for layer in LAYERS.values() for row in layer.options
                )
            elif name == "own":
                yield from (
                    f"{prefix}own.{workload.name}.{row.field}"
                    for workload in WORKLOADS.values()
                    for row in workload.options
                )
            elif dataclasses.is_dataclass(hint) and hint is not Terms and hint is not Stack:
                yield from fields(hint, f"{prefix}{name}.")  # type: ignore[arg-type] # is_dataclass says "or instance"
            else:
                yield prefix + name

    assert sorted(option.field for option in rows()) == sorted(fields(Settings))
    assert len(by_key()) == len(rows())


@pytest.mark.parametrize("option", rows(), ids=lambda option: option.key)
def test_every_option_says_its_unit(option: Option) -> None:
    for ending, unit in (("_s", "seconds"), ("_bytes", "bytes"), ("_per_s_limit", "bytes/s"), ("_iops", "IOPS")):
        if option.field.endswith(ending):
            assert unit in option.help


def test_describe() -> None:
    shown_rows = {row.key: row for row in options.describe(from_argv("--threshold", "5000", "--first-parent"))}
    assert list(shown_rows) == list(by_key())
    assert shown_rows["bisect.threshold"] == options.Row(
        "bisect.threshold", "5000", "--threshold", by_key()["bisect.threshold"].help
    )
    shown = {key: row.value for key, row in shown_rows.items()}
    assert shown["storage.ssd.size"] == "512MiB"
    assert shown["workload.runtime"] == "40s"
    assert shown["kernel.fragments"] == "tiny, vm, storage-lvmcache"
    assert shown["bisect.first_parent"] == "true"
    assert shown["machine.image"] == '""'


# There and back

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
        "storage.ssd.path": paths.map("volume:pool/{}".format),
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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written.filter(lambda values: not too_large.items() <= values.items()))
def test_toml_and_json_round_trip(directory: Path, values: Mapping[str, object]) -> None:
    path = directory / "in.toml"
    path.write_text(file.write(values), encoding="utf-8")
    first = options.load(config=path)
    path.write_text(options.to_toml(first), encoding="utf-8")
    assert options.load(config=path).settings == first.settings
    assert options.from_json(options.to_json(first.settings)) == first.settings


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
leaves = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text


@settings(max_examples=50, deadline=None)
@given(leaves | st.lists(leaves | st.lists(leaves, max_size=2), max_size=4))
@example('a "quoted" \\ one\n\x7f\x00')
def test_every_literal_is_toml(value: object) -> None:
    assert tomllib.loads(f"x = {file.literal(value)}")["x"] == value


@settings(deadline=None)
@given(st.integers(0, 1 << 62))
def test_sizes_round_trip(size: int) -> None:
    assert size_bytes(str(size_text(size))) == size


@settings(deadline=None)
@given(st.floats(0.001, 1e9) | st.integers(0, 10**9).map(float))
def test_durations_round_trip(seconds: float) -> None:
    shown = duration_text(seconds)
    assert (duration_s(shown) if isinstance(shown, str) else shown) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MiB", 512 * MIB), ("1.5 GiB", 3 * GIB // 2), ("4096", 4096), ("2GB", 2 * 10**9), ("64kB", 64_000)],
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["5G", "MiB", "-1MiB", "1.0001KiB", "1e3", "5 gib", "٣MiB", "9" * 5000, ""])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r"no (whole )?number"):
        size_bytes(text)


def test_recorded_settings_are_not_checked_again(directory: Path) -> None:
    """A run is resumed with what it was started with, also when a file has moved or a setting is new."""
    job = directory / "my.fio"
    job.write_text("[a]\n[b]\n", encoding="utf-8")
    recorded = from_argv("--job", "my.fio", "--profile", "article").settings
    job.unlink()
    text = options.to_json(recorded).replace('"storage.cache_size"', '"storage.of_another_version"')
    assert options.from_json(text) == recorded


def test_settings_pickle() -> None:
    found = options.load().settings
    assert pickle.loads(pickle.dumps(found)) == found


# What is refused

BAD_FILES = {
    "broken TOML": ("[bisect]\nthreshold = \n", r"bisector\.toml: not valid TOML: .*line 2, column 13"),
    "thousands of digits": (f"[machine]\nvcpus = {'9' * 5000}\n", r"bisector\.toml: not valid TOML: .*digits"),
    "nested without end": (f"x = {'[' * 5000}", r"bisector\.toml: not valid TOML: .*recursion"),
    "unknown key": ("[storage]\ncash_size = 1\n", r"bisector\.toml:2: there is no setting storage\.cash_size"),
    "unknown table": ("[bisekt]\n\nthreshold = 1\n", r"bisector\.toml:3: there is no setting bisekt\.threshold"),
    "table for a value": ("[bisect.threshold]\niops = 1\n", r"bisect\.threshold = .*expected a value above zero"),
    "value for a table": ("storage = 1\n", r"bisector\.toml:1: storage is a table of settings"),
    "empty unknown table": ("[x]\n", r"bisector\.toml: there is no setting x"),
    "string for a number": ('[machine]\nvcpus = "2"\n', r'bisector\.toml:2: machine\.vcpus = "2": expected a whole'),
    "truth for a number": ("machine.vcpus = true\n", r"bisector\.toml:1: machine\.vcpus = true: expected a whole"),
    "number for truth": ("[bisect]\nfirst_parent = 1\n", r"first_parent = 1: expected true or false"),
    "unit": ('[storage]\ncache_size = "4G"\n', r'storage\.cache_size = "4G": expected a size such as 512MiB'),
    "wrong kind of unit": ('[workload]\nruntime = "4GiB"\n', r"workload\.runtime = .* expected a duration in whole"),
    "half a second": ("[workload]\nruntime = 1.5\n", r"workload\.runtime = 1\.5: expected a duration in whole"),
    "run of no time": ("[workload]\nruntime = 0\n", r"workload\.runtime = 0: .* 1s or more"),
    "endless": ("[machine]\nboot_deadline = inf\n", r"machine\.boot_deadline = inf: expected a duration"),
    "no number": ("[bisect]\nthreshold = nan\n", r"bisect\.threshold = nan: expected a value above zero"),
    "beyond a float": (f"[bisect]\nthreshold = {10**400}\n", r"bisect\.threshold = 1000.*expected a value"),
    "threshold": ("[bisect]\nthreshold = 0\n", r"bisect\.threshold = 0: expected a value above zero"),
    "ratio": ("[bisect]\nmin_ends_ratio = 0.5\n", r"bisect\.min_ends_ratio = 0\.5: expected a number, 1 or more"),
    "vcpus": ("[machine]\nvcpus = 0\n", r"machine\.vcpus = 0: expected a whole number, 1 or more"),
    "memory": ('[machine]\nmemory = "64MiB"\n', r"machine\.memory = .* 256MiB or more"),
    "policy": ('[storage]\ncache_policy = "lru"\n', r'storage\.cache_policy = "lru": expected one of smq, mq'),
    "mode": ('[storage]\ncache_mode = "x"\n', r"cache_mode = \"x\": expected one of writeback, writethrough"),
    "stack": ('[storage]\nstack = "zfs"\n', r'stack = zfs \(bisector\.toml:2\): there is no layer or disk zfs'),
    "profile": ('profile = "slow"\n', r'bisector\.toml:1: profile = "slow": expected one of quick, article'),
    "equal terms": ('[bisect]\nterms = "a:a"\n', r'bisect\.terms = "a:a": expected two different words'),
    "terms of no branch": ('[bisect]\nterms = "a b:c"\n', r"bisect\.terms = .*expected two different words"),
    "fragments": ("[kernel]\nfragments = [1]\n", r"kernel\.fragments = \[1\]: expected a list such as"),
    "volume": ('[storage.ssd]\npath = "volume:x"\n', r"bisector\.toml:2: storage\.ssd\.path = .*volume:POOL/NAME"),
    "two lines": ('[machine]\nappend = "a\\nb"\n', r"machine\.append = .*expected kernel parameters on one line"),
    "path of nothing": ('[workload]\njob = ""\n', r'workload\.job = "": expected a path'),
    "path with a nul": ('[workload]\njob = "a\\u0000b"\n', r"workload\.job = .*: expected a path"),
    "home of nobody": ('[workload]\njob = "~nobody-of-that-name/a"\n', r"workload\.job = .*: expected a path"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_file(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_toml(text)


BAD_FLAGS = {
    "no number": (["--threshold", "many"], r"^--threshold: bisect\.threshold = many: expected a value above zero"),
    "negative": (["--set", "machine.vcpus=-1"], r"^--set: machine\.vcpus = -1: expected a whole number, 1 or more"),
    "many digits": (["--jobs", "9" * 20], r"^--jobs: kernel\.jobs: a number of 20 digits is too large"),
    "more than a file has": (["--set", f"storage.ssd.size={'9' * 20}TiB"], r"^--set: storage\.ssd\.size: .* too large"),
    "truth": (["--set", "bisect.first_parent=maybe"], r"^--set: bisect\.first_parent = maybe: expected true or false"),
    "unknown": (["--set", "storage.ssd.sice=1GiB"], r"there is no setting storage\.ssd\.sice"),
    "no value": (["--set", "machine.vcpus"], r"^--set machine\.vcpus: expected KEY=VALUE"),
    "twice": (["--jobs", "2", "--set", "kernel.jobs=3"], r"^kernel\.jobs is given twice: by --jobs and by --set"),
    "one term": (["--terms", "slow"], r"^--terms: bisect\.terms = slow: expected two different words as OLD:NEW"),
    "no job of that name": (["--job", "nothing.fio"], r"^--job: workload\.job: there is no fio job file nothing\.fio"),
    "no such file": (["--job", "./nothing.fio"], r"^workload\.job = /.*/nothing\.fio \(--job\): there is no such file"),
    "name of no file": (["--job", "9" * 300], r"^workload\.job = /.*: it cannot be looked at: File name too long"),
    "path of no file": (["--fragment", "./" + "9" * 300], r"^kernel\.fragments = .*: it cannot be looked at: File"),
    "path of no disk": (["--hdd", "./" + "9" * 300], r"^storage\.hdd\.path = .*: it cannot be looked at: File name"),
    "no such fragment at length": (["--fragment", "9" * 300], r"^kernel\.fragments = 9* \(--fragment\): no kernel"),
    "no such fragment": (["--fragment", "vn"], r"^kernel\.fragments = vn \(--fragment\): no kernel configuration"),
    "no such fragment file": (["--fragment", "./vn"], r"^kernel\.fragments = .*\(--fragment\): there is no file /"),
    "no such directory": (["--ssd", "./nowhere"], r"^storage\.ssd\.path = /.*\(--ssd\): there is no such directory"),
    "no such config": (["--config", "b.toml"], r"^cannot read .*b\.toml: No such file"),
    "base and no fragment": (["--set", "kernel.fragments="], r"a kernel needs one of the two"),
    "image without key": (["--image", "my.ext4"], r"machine\.image_key = \"\" .*its SSH key and its host key"),
    "key without image": (["--image-key", "a"], r"machine\.image = \"\" .*, machine\.image_key = .*given together"),
    "cache and ssd": (["--cache-size", "512MiB"], r"^storage\.cache_size = 512MiB \(--cache-size\), .*: the cache and"
                      r" its metadata need 524MiB on the SSD, which has 512MiB"),
    "metadata": (["--set", "storage.metadata_size=4MiB"], r"^storage\.metadata_size = 4MiB \(--set\): LVM needs 8MiB"),
    "files and hdd": (["--file-size", "500MiB"], r"^workload\.file_size = 500MiB \(--file-size\), storage\.hdd\.size ="
                      r" 1GiB .*: 2 jobs of 500MiB are 1000MiB, 2 times over; a file system on 1GiB has no room"),
    "files and ssd": (["--stack", "ssd", "--file-size", "256MiB"], r"storage\.ssd\.size = 512MiB .* no room for that"),
    "files in cache": (["--file-size", "16MiB"], r"storage\.cache_size = 64MiB .* 32MiB, which never fills the cache"),
    "small for xfs": (["--stack", "hdd+xfs", "--set", "storage.hdd.size=128MiB"],
                      r"^storage\.stack = hdd\+xfs .*, storage\.hdd\.size = 128MiB .*: xfs needs 300MiB, and the HDD"),
    "a baseline that is small for xfs": (
        ["--stack", "lvmcache(ssd,hdd)+xfs", "--set", "storage.ssd.size=256MiB", "--baselines"],
        r"^bisect\.baselines = true .*storage\.ssd\.size = 256MiB .*: xfs needs 300MiB, and the SSD has 256MiB",
    ),
    "deadline": (["--set", "machine.trial_deadline=80s"], r"^machine\.trial_deadline = 80s .* the 2 runs .* take 80s"),
    "deadline of one run": (
        ["--stack", "hdd", "--set", "machine.trial_deadline=40s"],
        r"^machine\.trial_deadline = 40s .* the run of a trial alone takes 40s",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("argv", "message"), BAD_FLAGS.values(), ids=BAD_FLAGS.keys())
def test_bad_flags(argv: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_argv(*argv)


def test_nearest_key_is_suggested() -> None:
    for key, suggestion in (
        ("storage.sdd.size", "did you mean ssd?"),
        ("storage.ssd.sice", "storage.ssd.size"),
        ("threshold", "bisect.threshold"),
        ("quux", "bisector settings"),
    ):
        with pytest.raises(UserError) as caught:
            options.load({key: "1GiB"})
        assert suggestion in caught.value.hint


def test_a_directory_that_cannot_be_looked_at() -> None:
    with pytest.raises(UserError, match=r"^cannot read /9*/bisector\.toml: File name too long"):
        options.load(directory=Path("/") / ("9" * 300))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes nodes")
def test_size_of_a_block_device_under_any_name(directory: Path) -> None:
    """A node of no device is opened later, by who says what is wrong with it."""
    node = directory / "my disk"
    os.mknod(node, 0o600 | stat.S_IFBLK, os.makedev(4095, 1))
    assert checks.disk_bytes(DiskSettings(str(node), GIB, 0, 0)) is None


def test_file_that_is_no_text() -> None:
    Path("bisector.toml").write_bytes(b'profile = "quick"\n\xff')
    with pytest.raises(UserError, match=r"bisector\.toml:2: not UTF-8"):
        options.load()


def test_stack_without_cache_asks_nothing_of_it() -> None:
    from_argv("--stack", "hdd", "--file-size", "1MiB")
    from_argv("--stack", "hdd", "--cache-size", "2GiB")


def test_size_of_a_volume_is_libvirts_affair() -> None:
    volumes = ("--ssd", "volume:default/ssd", "--hdd", "volume:a/b")
    from_argv(*volumes, "--cache-size", "2GiB", "--file-size", "1GiB", "--connect", "qemu:///system")


def test_volume_of_the_embedded_driver() -> None:
    with pytest.raises(UserError, match=r"storage\.ssd\.path = .*machine\.connect = .*knows no pools"):
        from_argv("--ssd", "volume:default/ssd")


def test_disks_that_are_one(directory: Path) -> None:
    volume = ("volume:default/one", "--connect", "qemu:///system")
    with pytest.raises(UserError, match="both name the same disk"):
        from_argv("--ssd", "volume:default/one", "--hdd", *volume)
    from_argv("--ssd", str(directory), "--hdd", str(directory))


def test_file_as_a_disk_is_refused(directory: Path) -> None:
    (directory / "precious.img").write_text("data")
    with pytest.raises(UserError, match=r"storage\.hdd\.path = .*it is a file, which would be overwritten"):
        from_argv("--hdd", "precious.img")


# The line of a key, and the jobs of a job file

TOML = """\
profile = "quick"  # first
storage.cache_size = 1

[ bisect ]
# threshold = 5
threshold = 6
[storage.ssd]
"size" = 7
[storage]
hdd = { size = 1, path = "x" }
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("profile", 1),
        ("storage.cache_size", 2),
        ("bisect.threshold", 6),
        ("storage.ssd.size", 8),
        ("storage.hdd.path", 10),
        ("storage.ssd.path", None),
    ],
)
def test_line_of(key: str, line: int | None) -> None:
    assert file.line_of(TOML, key) == line


def jobs_of(job: Path) -> int:
    """How many files, of one byte each, a run writes."""
    return FIO.files({"job": job, "file_bytes": 1, "runtime_s": 1}).total_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[a]\n", 1),
        ("[global]\nnumjobs = 3\n[a]\ndirect=1\n[b]\nnumjobs=4\ntime_based\n", 7),
        ("; numjobs=9\n[a]\n# numjobs=8\n[a]\n", 2),
        ("[a]\nnumjobs=4 ; four readers\n", 4),
        ("[global]\nnumjobs=2\n[a]\n[global extra]\nnumjobs=3 # from here on\n[b]\n", 5),
    ],
)
def test_job_count(text: str, count: int, directory: Path) -> None:
    job = directory / "my.fio"
    job.write_text(text, encoding="utf-8")
    assert jobs_of(job) == count


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[global]\nnumjobs=2\n", "my.fio has no job"),
        (b"[a]\nnumjobs=some\n", "my.fio: [a] numjobs = some: expected a whole number"),
        (b"[a]\nnumjobs\n", "my.fio: [a] numjobs = : expected a whole number"),
        (b"[a]\nnumjobs=2*3\n", "my.fio: [a] numjobs = 2*3: expected a whole number"),
        (b"[a]\nnumjobs=0\n", "my.fio: [a] numjobs = 0: expected a whole number from 1 to 9999"),
        (b"\xff", "cannot read the fio job file"),
    ],
)
def test_bad_job_file(content: bytes, message: str) -> None:
    Path("my.fio").write_bytes(content)
    with pytest.raises(UserError, match=r"workload\.job = .*my\.fio \(--job\): ") as caught:
        from_argv("--job", "my.fio")
    assert message in str(caught.value)


def test_our_own_files_are_there() -> None:
    assert resources.fragment("vm").is_file()
    assert resources.job("partial.fio").is_file()
    assert resources.vm_images().is_dir()
    assert jobs_of(resources.job("partial.fio")) == 2


def test_incomplete_installation(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setattr(resources, "ROOT", directory)
    with pytest.raises(InfraError, match=r"the installation is incomplete: .*kconfigs is missing"):
        resources.kconfigs()


def test_a_record_from_before_there_were_strategies_is_gits() -> None:
    written = json.loads(options.to_json(options.load().settings))
    assert options.from_json(json.dumps(written)).bisect.strategy is Strategy.BAYES
    del written["bisect.strategy"], written["bisect.suspect"]
    again = options.from_json(json.dumps(written)).bisect
    assert (again.strategy, again.suspects) == (Strategy.GIT, ("drivers/md",))


def test_who_is_suspected_follows_from_the_stack_or_the_person() -> None:
    assert from_argv().settings.bisect.suspects == ("drivers/md",)
    assert "fs/ext4" in from_argv("--stack", "ssd").settings.bisect.suspects
    assert from_argv("--suspect", "lib", "--suspect", "mm").settings.bisect.suspects == ("lib", "mm")
    assert from_argv("--set", "bisect.suspect=").settings.bisect.suspects == ()


def test_storage_of_a_record_before_stacks_were_composed() -> None:
    """As version 13 of the schema has it."""
    recorded = {
        "profile": "quick",
        "storage.stack": "lvmcache",
        "storage.ssd.path": "/dev/sdb",
        "storage.hdd.size": "2GiB",
        "storage.hdd.iops_limit": 200,
        "storage.cache_size": "128MiB",
        "storage.cache_mode": "writethrough",
        "storage.cache_policy": "mq",
    }
    storage = options.from_json(json.dumps(recorded)).storage
    assert storage.stack == stack_of("lvmcache(ssd,hdd)+ext4")
    assert storage.used_disks["ssd"].path == "/dev/sdb"
    assert storage.used_disks["hdd"] == DiskSettings(None, 2 * GIB, 200, 0)
    assert storage.layers["lvmcache"] == {
        "cache_bytes": 128 * MIB,
        "metadata_bytes": 8 * MIB,
        "mode": CacheMode.WRITETHROUGH,
        "policy": "mq",
        # What was left to LVM then is left to it when such a bisection goes on.
        "chunk_bytes": None,
        "metadata_format": None,
        "threshold_bytes": None,
        "volume": CacheVolume.POOL,
    }
    assert (storage.fill_deadline_s, storage.fill_rounds) == (0, 1)
    assert str(options.from_json(json.dumps(recorded | {"storage.stack": "hdd"})).storage.stack) == "hdd"


def test_rounds_that_fill_a_cache_have_time() -> None:
    """Those of five minutes, in runs of 40 s."""

    def load(**given: str) -> None:
        options.load({f"storage.{key}": value for key, value in given.items()}, directory=Path("/"))

    load(fill_rounds="7")
    with pytest.raises(UserError, match=r"^storage\.fill_deadline = 5min .*storage\.fill_rounds = 8 .*: 8 rounds take"):
        load(fill_rounds="8")
    load(fill_rounds="8", fill_deadline="6min")
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
