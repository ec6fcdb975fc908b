"""A person's own command: what it finds in the guest, what it is judged by, what of its settings is refused."""

import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisector.config import options
from bisector.core.errors import UserError
from bisector.core.figures import Run
from bisector.core.objective import Objective
from bisector.core.trial import KernelFault
from bisector.doctor.checks import check_workload
from bisector.host.process import run_here
from bisector.nightly.plan import conditions
from bisector.store.rundir import fingerprint, keep_inputs
from bisector.workload.command import FIGURES, Command
from bisector.workload.repetitions import GuestState
from tests.workload.fio_bench import STACK
from tests.workload.test_repetitions import MNT, Place, place

__all__ = ["place"]  # a fixture

HERE = Path("/")


def load(*, given: Mapping[str, Any] = {}, **flags: str) -> options.Effective:
    return options.load({f"workload.command.{key}": one for key, one in flags.items()} | dict(given), directory=HERE)


def settings_of(**more: Any) -> Command:
    usual = load(line="true", size="128MiB", given={"storage.stack": "hdd"}).settings.workload.workload
    assert isinstance(usual, Command)
    return replace(usual, **{"state": GuestState.KEPT, "runs": 2, **more})


def run(place: Place, **more: Any) -> Run:
    place.shell.moved = {MNT + "/": f"{place.path}/mnt/", **place.shell.moved}
    return settings_of(**more).run(place.site)


def figures(*texts: str) -> Any:
    return FIGURES.read(list(texts), None)


def test_it_runs_on_the_stack_with_the_files_that_it_is_given(place: Place, tmp_path: Path) -> None:
    tool, data = tmp_path / "tool", tmp_path / "data.txt"
    tool.write_text('#!/bin/sh\necho "$PWD $DIRECTORY $RUN $SEED"; cat "$CARRIED/data.txt"; ls\n', encoding="utf-8")
    tool.chmod(0o755)
    data.write_text("brought along\n", encoding="utf-8")
    place.site = replace(place.site, seed=7)
    run(place, line="tool", carry=(tool, data), setup="touch made-before")
    directory = f"{place.path}/mnt/full"
    said = (place.path / "logs" / "output.2.txt").read_text()
    assert said == f"{directory} {directory} full 7\nbrought along\nmade-before\n"


def test_its_time_is_a_figure_of_the_run_and_what_it_prints_another(place: Place) -> None:
    line = "echo x >>file; echo tps=$(wc -l <file) k/s"
    values = dict(run(place, line=line, runs=3, figures=figures("tps=1/s,higher")).counters)
    assert values["custom:tps:1/s:higher"] == 2000.0  # the median
    usual = {"cache.promotions", "elapsed", "user", "system", "cpu", "prepared", "interrupts"}
    assert set(values) == {*usual, "custom:tps:1/s:higher"}
    kept = json.loads((place.path / "logs" / "repetitions.json").read_text())
    assert [one["custom:tps:1/s:higher"] for one in kept] == [1000.0, 2000.0, 3000.0]


@pytest.mark.parametrize(
    ("line", "expected", "message"),
    [
        ("true", UserError, "the command: it ended well and printed no figure tps"),
        ("echo tps=1; echo tps=2", UserError, "the command: it printed the figure tps 2 times"),
        ("[ -e once ] || echo tps=1; touch once", KernelFault, "repetition 2, unlike those before: it ended well and"),
        ("echo tps=1; [ ! -e once ] || echo tps=2; touch once", KernelFault, "repetition 2, unlike .* 2 times"),
    ],
)
def test_commands_without_a_figure(place: Place, line: str, expected: type[Exception], message: str) -> None:
    with pytest.raises(expected, match=message):
        run(place, line=line, figures=figures("tps=1/s,higher"))


def test_setup_that_fails_is_told_as_such(place: Place) -> None:
    with pytest.raises(KernelFault, match="the setup of the command: exit 2: no room"):
        run(place, setup="echo no room; exit 2")
    assert (place.path / "logs" / "setup.1.txt").read_text() == "no room\n"


def test_a_command_chooses_its_workload_and_is_judged_by_its_time() -> None:
    effective = load(line="make -j2", size="128MiB")
    settings = effective.settings
    assert (settings.workload.kind, settings.workload.text) == ("command", "command(make -j2)")
    assert settings.bisect.objective == Objective("elapsed")
    origins = {row.key: row.origin for row in options.describe(effective)}
    assert (origins["bisect.metric"], origins["workload.kind"]) == ("workload command", "--command")
    assert options.from_json(options.to_json(settings)) == settings
    settings.workload.workload.check(settings.bisect.objective, run_here)


@pytest.mark.parametrize(
    ("line", "carry", "remedies"),
    [
        ("./bench.sh -t 20", [], ["--carry ./bench.sh", "--command 'bench.sh …'"]),
        ("bench.sh -t 20", [], ["--carry bench.sh"]),
        ("./bench.sh", ["./bench.sh"], ["--command 'bench.sh …'"]),
        ("bench.sh", ["./bench.sh"], []),
        ("/usr/bin/env", [], []),
        ("other.sh", [], []),
    ],
)
def test_a_program_that_is_here_and_not_in_the_guest_is_told(
    line: str, carry: list[str], remedies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.sh").write_text("echo tps=1\n")
    settings = load(
        line=line, size="128MiB", given={"workload.command.carry": [f"{tmp_path}/{one}" for one in carry]}
    ).settings
    assert [found.remedy for found in check_workload(settings)] == remedies


def test_the_first_figure_decides_unless_another_metric_is_given() -> None:
    specs = {"workload.command.figures": ["tps=1/s,higher", "p99=ms,lower"]}
    settings = load(line="x", size="128MiB", given=specs).settings
    assert settings.bisect.objective == Objective("custom:tps:1/s:higher")
    assert settings.bisect.objective.label == "custom:tps"
    other = load(line="x", size="128MiB", given={**specs, "bisect.metric": "custom:p99"}).settings
    assert other.bisect.metric == "custom:p99:ns:lower"
    assert options.from_json(options.to_json(other)) == other
    for metric in ("user", "system", "cache.hit_ratio", "custom:tps:1/s:higher"):
        settings.workload.workload.check(Objective(metric), run_here)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workload.kind": "command"}, r"workload\.command\.line = .*runs no command"),
        ({"workload.command.line": "x"}, r"workload\.command\.size is 0, which never fills the cache"),
        ({"workload.command.figures": ["tps=1/s"]}, "describes no figure"),
        ({"workload.command.runs": "1001"}, "a whole number from 1 to 1,000"),
        ({"workload.command.carry": ["/nowhere/tool"]}, r"workload\.command\.carry = /nowhere/tool .*no such file"),
        ({"workload.command.carry": ["/etc"]}, "/etc is not a regular file"),
        ({"workload.command.carry": ["/etc/passwd", "/etc/../etc/passwd"]}, "two files are called passwd"),
        ({"workload.command.page_cache": "hot"}, "expected one of dropped, filled, kept"),
        ({"bisect.metric": "custom:tps"}, "the workload command has no figure custom:tps"),
        ({"bisect.metric": "custom:tps:s"}, "there is no metric 'custom:tps:s'"),
        ({"workload.job": "randrw"}, r"--job is of the workload fio, and --command of the workload command"),
    ],
)
def test_settings_that_cannot_work(given: dict[str, Any], message: str) -> None:
    usual = {"workload.command.line": "tool"} if "workload.kind" not in given else {}
    size = {"workload.command.size": "128MiB"} if given != {"workload.command.line": "x"} else {}
    with pytest.raises(UserError, match=message) as caught:
        load(given={**usual, **size, **given})
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("metric", ["read.iops", "cpu.user", "custom:other:s:lower"])
def test_metric_that_it_lacks(metric: str) -> None:
    with pytest.raises(UserError, match="no run of command has") as caught:
        settings_of(figures=figures("tps=1/s,higher")).check(Objective(metric), run_here)
    assert caught.value.hint == "its metrics are: elapsed, user, system, cpu, prepared, custom:tps"
    with pytest.raises(UserError, match="command has no job 'one'"):
        settings_of().check(Objective("elapsed", "one"), run_here)


def test_carried_files_are_kept_with_the_run_as_they_are(tmp_path: Path) -> None:
    tool, other = tmp_path / "tool", tmp_path / "base.config"
    for path in (tool, other):
        path.write_text(path.name, encoding="utf-8")
    (tmp_path / "kernel").write_text("CONFIG_X=y\n", encoding="utf-8")
    tool.chmod(0o500)
    before = load(
        line="tool",
        size="128MiB",
        given={"workload.command.carry": [str(tool), str(other)], "kernel.base_config": str(tmp_path / "kernel")},
    ).settings
    (run_dir := tmp_path / "run").mkdir()
    kept = keep_inputs(before, run_dir)
    assert keep_inputs(before, run_dir) == kept
    assert isinstance(kept.workload.workload, Command)
    copies = kept.workload.workload.carry
    assert [path.read_text() for path in copies] == ["tool", "base.config"]
    assert kept.kernel.base_config is not None
    assert kept.kernel.base_config.read_text() == "CONFIG_X=y\n"
    assert all(path.is_relative_to(run_dir / "inputs") for path in copies)
    assert [path.stat().st_mode & 0o777 for path in copies] == [0o755, 0o644]
    assert fingerprint(kept) == fingerprint(before)
    assert conditions(before) == conditions(replace(before, workload=before.workload))
    was = conditions(before)
    tool.chmod(0o700)
    tool.write_text("other", encoding="utf-8")
    assert conditions(before) != was
    assert fingerprint(kept) != fingerprint(before)


def test_a_large_file_that_is_carried_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    with (tmp_path / "image").open("wb") as file:
        file.truncate(64 << 20)
    given = {"workload.command.carry": [str(tmp_path / "image")], "storage.stack": "hdd"}
    settings = load(line="tool", given=given).settings
    tracemalloc.start()
    try:
        fingerprint(settings)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 8 << 20


def test_what_does_not_follow_the_seed_is_told() -> None:
    assert settings_of(line="bench --seed $SEED").unseeded() == ()
    assert "does not name $SEED" in settings_of(line="bench").unseeded()[0]


def test_on_a_device_it_finds_that_and_its_own_place(place: Place) -> None:
    raw = replace(STACK, mountpoint="", device="/dev/mapper/x")
    place.site = replace(place.site, stack=raw, offset_bytes=1 << 30)
    place.shell.moved = {"/var/tmp/bisector-run": f"{place.path}/aside", **place.shell.moved}
    found = run(place, line='echo "at=$OFFSET"; [ $DEVICE = /dev/mapper/x ]; pwd', figures=figures("at=count,higher"))
    assert dict(found.counters)["custom:at:count:higher"] == 1 << 30
    assert (place.path / "logs/output.1.txt").read_text().splitlines()[-1] == f"{place.path}/aside/full"


def test_a_command_that_does_not_name_the_device_is_refused_there() -> None:
    with pytest.raises(UserError, match=r"workload\.command\.line = true .*the command does not name \$DEVICE"):
        load(line="true", given={"storage.stack": "hdd+raw"})
    load(line="dd if=$DEVICE of=/dev/null", given={"storage.stack": "hdd+raw"})
    cached = {"storage.stack": "lvmcache(ssd,hdd)+raw"}
    with pytest.raises(UserError, match=r"does not name \$OFFSET, where each of the stack's 2 runs has its own place"):
        load(line="dd if=$DEVICE of=/dev/null", size="128MiB", given=cached)
    load(line="dd if=$DEVICE of=/dev/null iseek=${OFFSET}B", size="128MiB", given=cached)
