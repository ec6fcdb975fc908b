"""Settings that are refused: what a file has, what flags say, and what cannot work together."""

import os
import stat
from pathlib import Path

import pytest

from bisector.config import DiskSettings, checks, options
from bisector.core.errors import UserError
from tests.config.given import GIB, from_argv, load_toml

BAD_FILES = {
    "broken TOML": ("[bisect]\nthreshold = \n", r"bisector\.toml: not valid TOML: .*line 2, column 13"),
    "thousands of digits": (f"[machine]\nvcpus = {'9' * 5000}\n", r"bisector\.toml: not valid TOML: .*digits"),
    "nested without end": (f"x = {'[' * 5000}", r"bisector\.toml: not valid TOML: .*recursion"),
    "unknown key": ("[storage]\ncash_size = 1\n", r"bisector\.toml: there is no setting storage\.cash_size"),
    "unknown table": ("[bisekt]\n\nthreshold = 1\n", r"bisector\.toml: there is no setting bisekt\.threshold"),
    "table for a value": ("[bisect.threshold]\niops = 1\n", r"bisect\.threshold = .*expected a value above zero"),
    "value for a table": ("storage = 1\n", r"bisector\.toml: storage is a table of settings"),
    "empty unknown table": ("[x]\n", r"bisector\.toml: there is no setting x"),
    "string for a number": ('[machine]\nvcpus = "2"\n', r'bisector\.toml: machine\.vcpus = "2": expected a whole'),
    "truth for a number": ("machine.vcpus = true\n", r"bisector\.toml: machine\.vcpus = true: expected a whole"),
    "number for truth": ("[bisect]\nfirst_parent = 1\n", r"first_parent = 1: expected true or false"),
    "unit": ('[storage]\ncache_size = "4Gb"\n', r'storage\.cache_size = "4Gb": expected a size such as 512MiB'),
    "half a second": ("[workload]\nruntime = 1.5\n", r"workload\.runtime = 1\.5: expected a duration in whole"),
    "run of no time": ("[workload]\nruntime = 0\n", r"workload\.runtime = 0: .* 1s or more"),
    "endless": ("[machine]\nboot_deadline = inf\n", r"machine\.boot_deadline = inf: expected a duration"),
    "no number": ("[bisect]\nthreshold = nan\n", r"bisect\.threshold = nan: expected a value above zero"),
    "beyond a float": (f"[bisect]\nthreshold = {10**400}\n", r"bisect\.threshold = 1000.*expected a value"),
    "threshold": ("[bisect]\nthreshold = 0\n", r"bisect\.threshold = 0: expected a value above zero"),
    "effect": ("[bisect]\nleast_effect = 0\n", r"bisect\.least_effect = 0: expected a share such as 5%"),
    "ratio": ("[bisect]\nmin_ends_ratio = 1.5\n", r"there is no setting bisect\.min_ends_ratio any more"),
    "memory": ('[machine]\nmemory = "64MiB"\n', r"machine\.memory = .* 256MiB or more"),
    "policy": ('[storage]\ncache_policy = "lru"\n', r'storage\.cache_policy = "lru": expected one of smq, mq'),
    "profile": ('profile = "slow"\n', r'bisector\.toml: profile = "slow": expected one of quick, article'),
    "equal terms": ('[bisect]\nterms = "a:a"\n', r'bisect\.terms = "a:a": expected two different words'),
    "terms of no branch": ('[bisect]\nterms = "a b:c"\n', r"bisect\.terms = .*expected two different words"),
    "fragments": ("[kernel]\nfragments = [1]\n", r"kernel\.fragments = \[1\]: expected a list such as"),
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
    "more readings than pairs": (["--calibrate", "50"], r"calibrate = 50 .*: the ends are not read so often"),
    "no number": (["--threshold", "many"], r"^--threshold: bisect\.threshold = many: expected a value above zero"),
    "negative": (["--set", "machine.vcpus=-1"], r"^--set: machine\.vcpus = -1: expected a whole number, 1 or more"),
    "many digits": (["--jobs", "9" * 20], r"^--jobs: kernel\.jobs: a number of 20 digits is too large"),
    "more than a file has": (["--set", f"storage.ssd.size={'9' * 20}TiB"], r"^--set: storage\.ssd\.size: .* too large"),
    "truth": (["--set", "bisect.first_parent=maybe"], r"^--set: bisect\.first_parent = maybe: expected true or false"),
    "no value": (["--set", "machine.vcpus"], r"^--set machine\.vcpus: expected KEY=VALUE"),
    "no job of that name": (["--job", "nothing.fio"], r"^--job: workload\.job: there is no fio job file nothing\.fio"),
    "no such file": (["--job", "./nothing.fio"], r"^workload\.job = /.*/nothing\.fio \(--job\): there is no such file"),
    "name of no file": (["--job", "9" * 300], r"^workload\.job = /.*: it cannot be looked at: File name too long"),
    "path of no file": (["--fragment", "./" + "9" * 300], r"^kernel\.fragments = .*: it cannot be looked at: File"),
    "path of no disk": (["--hdd", "./" + "9" * 300], r"^storage\.hdd\.path = .*: it cannot be looked at: File name"),
    "no such fragment at length": (["--fragment", "9" * 300], r"^kernel\.fragments = .*, 9* \(--fragment\): no kernel"),
    "no such fragment": (["--fragment", "vn"], r"^kernel\.fragments = .*vm, .*, vn \(--fragment\): no"),
    "no such fragment file": (["--fragment", "./vn"], r"^kernel\.fragments = .*\(--fragment\): there is no file /"),
    "only those of nobody": (["--fragments-only"], r"^--fragments-only goes with --fragment$"),
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
                      r"^storage\.stack = hdd\+xfs .*, storage\.hdd\.size = 128MiB .*: xfs needs 300MiB on the HDD"),
    "a baseline that is small for xfs": (
        ["--stack", "lvmcache(ssd,hdd)+xfs", "--set", "storage.ssd.size=256MiB", "--baselines"],
        r"^bisect\.baselines = true .*storage\.ssd\.size = 256MiB .*: xfs needs 300MiB on the SSD, which has 256MiB",
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes nodes")
def test_disks_that_are_one(directory: Path) -> None:
    for name in ("one", "two"):
        os.mknod(directory / name, 0o600 | stat.S_IFBLK, os.makedev(4095, 1))
    with pytest.raises(UserError, match="both name the same disk"):
        from_argv("--ssd", str(directory / "one"), "--hdd", str(directory / "two"))
    from_argv("--ssd", str(directory), "--hdd", str(directory))


def test_file_as_a_disk_is_refused(directory: Path) -> None:
    (directory / "precious.img").write_text("data")
    with pytest.raises(UserError, match=r"storage\.hdd\.path = .*it is a file, which would be overwritten"):
        from_argv("--hdd", "precious.img")
