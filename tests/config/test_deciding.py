"""What decides where nobody says it: the workload's input names it, and the listing of settings tells which did."""

from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.errors import UserError
from bisector.core.objective import Objective
from bisector.storage.stack import stack_of
from tests.workload.test_job_file import GOOD

HERE = Path("/")


def load(**flags: str) -> options.Effective:
    return options.load({key.replace("__", "."): value for key, value in flags.items()}, directory=HERE)


def origin(effective: options.Effective, key: str = "bisect.metric") -> tuple[str, str]:
    row = next(row for row in options.describe(effective) if row.key == key)
    return row.value, row.origin


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "mine.fio"
    path.write_text(f"# deciding metric: read.bw, over sum\n{GOOD}", encoding="utf-8")
    return path


def test_metric_that_the_job_names(job: Path) -> None:
    effective = load(workload__job=str(job))
    assert effective.settings.bisect.objective == Objective("read.bw", "sum")
    assert origin(effective) == ("read.bw", "job mine.fio")
    assert origin(effective, "bisect.over") == ("sum", "job mine.fio")
    shipped = load(workload__job="write-bandwidth", workload__file_size="128MiB")
    assert origin(shipped) == ("write.bw", "job write-bandwidth.fio")


def test_what_a_person_gives_goes_first(job: Path) -> None:
    given = load(workload__job=str(job), bisect__metric="read.iops")
    assert given.settings.bisect.objective == Objective("read.iops", "worst")
    assert origin(given) == ("read.iops", "--metric")
    over = load(workload__job=str(job), bisect__over="mean")
    assert over.settings.bisect.objective == Objective("read.bw", "mean")
    assert (origin(over), origin(over, "bisect.over")) == (("read.bw", "job mine.fio"), ("mean", "--over"))


def test_comment_that_names_no_metric_is_refused_unless_one_is_given(job: Path) -> None:
    job.write_text(f"# deciding metric: read.bandwidth\n{GOOD}", encoding="utf-8")
    with pytest.raises(UserError, match=r"workload\.job: .*mine\.fio: there is no metric 'read\.bandwidth'") as caught:
        load(workload__job=str(job))
    assert caught.value.exit_code == 2
    given = load(workload__job=str(job), bisect__metric="read.bw").settings
    assert options.usual(given)["bisect.metric"] == "read.iops"


def test_the_record_keeps_it_whatever_becomes_of_the_job(job: Path) -> None:
    settings = load(workload__job=str(job)).settings
    written = options.to_json(settings)
    assert options.usual(settings)["bisect.metric"] == "read.bw"
    job.unlink()
    assert options.from_json(written).bisect.objective == Objective("read.bw", "sum")


@pytest.mark.parametrize("flags", [{}, {"bisect__metric": "read.iops"}, {"bisect__metric": "read.iops.steady"}])
def test_the_steady_part_of_what_decides(flags: dict[str, str]) -> None:
    effective = load(bisect__part="steady", **flags)
    assert effective.settings.bisect.objective == Objective("read.iops.steady", "worst")
    assert origin(effective) == ("read.iops.steady", "--metric" if flags else "--part")
    assert options.from_json(options.to_json(effective.settings)) == effective.settings
    assert options.changed(effective.settings) == {"bisect.part": "auto"}


LOGGED = "[a]\nrw=randread\ndirectory=${DIRECTORY}\nsize=${FILE_SIZE}\ntime_based\nruntime=${RUNTIME}\n"


@pytest.mark.usefixtures("split_runs")
def test_on_a_cache_that_was_filled_the_steady_part_counts() -> None:
    effective = load()
    assert effective.settings.bisect.objective == Objective("read.iops.steady", "worst")
    assert origin(effective) == ("read.iops.steady", "the stack")
    assert options.from_json(options.to_json(effective.settings)) == effective.settings
    assert options.changed(effective.settings) == {}
    for stack in ("bcache", "lvmwritecache"):
        of_job = load(storage__stack=stack, workload__job="rand-write-iops")
        assert of_job.settings.bisect.objective == Objective("write.iops.steady", "worst")


@pytest.mark.usefixtures("split_runs")
@pytest.mark.parametrize(
    ("flags", "metric"),
    [
        ({"bisect__part": "whole"}, "read.iops"),
        ({"bisect__metric": "read.iops"}, "read.iops"),
        ({"storage__stack": "hdd"}, "read.iops"),
        ({"profile": "article"}, "read.iops"),
        ({"workload__job": "write-bandwidth", "workload__file_size": "128MiB"}, "write.bw"),
    ],
)
def test_elsewhere_whole_runs_count(flags: dict[str, str], metric: str) -> None:
    effective = load(**flags)
    assert effective.settings.bisect.metric == metric
    keys = {key.replace("__", ".") for key in flags}
    assert options.changed(effective.settings).keys() <= {"bisect.metric", "bisect.part", "profile", *keys}


@pytest.mark.usefixtures("split_runs")
@pytest.mark.parametrize("logs", ["", "write_iops_log=a\n", "write_iops_log=a\nlog_avg_msec=500\n"])
def test_a_job_without_a_log_of_means_is_not_split(tmp_path: Path, logs: str) -> None:
    path = tmp_path / "mine.fio"
    path.write_text(LOGGED + logs, encoding="utf-8")
    steady = "log_avg_msec" in logs
    assert load(workload__job=str(path)).settings.bisect.metric == ("read.iops.steady" if steady else "read.iops")


@pytest.mark.usefixtures("split_runs")
def test_the_same_part_counts_on_all_stacks_that_are_compared() -> None:
    cached, alone = stack_of("lvmcache"), stack_of("hdd")
    effective = options.load({"storage.stack": "hdd"}, directory=HERE, stacks=(cached, alone))
    assert effective.settings.bisect.metric == "read.iops.steady"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"bisect__part": "steady", "bisect__metric": "read.bw"}, "there is no read.bw of the steady part of a run"),
        ({"bisect__part": "whole", "bisect__metric": "read.iops.steady"}, "read.iops.steady is of a run that is split"),
    ],
)
def test_a_metric_that_there_is_not_of_the_part(flags: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        load(**flags)
    assert "--part" in caught.value.hint
