"""The file of the nights: what comes out, and what is refused by file, line and key."""

from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.core.verdict import Direction
from bisector.nightly import plan
from bisector.nightly.plan import Send, TipRule, Wanted
from bisector.storage.stack import stack_of

TWO_JOBS = """\
budget_hours = 6.5
notify = "me@example.org"

[settings]
profile = "quick"
mail.host = "mail.example.org"

[[job]]
name = "dm-cache"
repository = "linux"
branch = "master"

[job.settings]
bisect.threshold = 2000

[[job]]   # the second
name = "hdd"
repository = "/srv/linux"
remote = "next"
branch = "main"
range = "newest-tag"
tags = "v6.*"
direction = "both"
paths = "drivers/md"
report = "send"
to = ["dm-devel@example.org"]

[job.settings.storage]
stack = "hdd"
"""


def load(tmp_path: Path, text: str) -> plan.NightPlan:
    path = tmp_path / "nightly.toml"
    path.write_text(text, encoding="utf-8")
    return plan.load(path)


def test_what_comes_out(tmp_path: Path) -> None:
    found = load(tmp_path, TWO_JOBS)
    cache, hdd = found.jobs
    assert (found.budget_s, found.path) == (6.5 * 3600, tmp_path / "nightly.toml")
    assert (cache.repository, cache.remote, cache.rule) == (tmp_path / "linux", "origin", TipRule.LAST_GOOD)
    assert (cache.wanted, cache.report, cache.notify) == (Wanted.REGRESSION, Send.DRAFT, ("me@example.org",))
    assert cache.measuring.bisect.threshold_value == 2000
    assert cache.measuring.storage.stack == stack_of("lvmcache")
    assert (hdd.rule, hdd.tags, hdd.paths, hdd.to) == (
        TipRule.NEWEST_TAG,
        "v6.*",
        ("drivers/md",),
        ("dm-devel@example.org",),
    )
    assert set(hdd.settings) == set(Direction)
    assert all(str(settings.storage.stack) == "hdd" for settings in hdd.settings.values())
    assert [settings.bisect.expect for settings in hdd.settings.values()] == list(hdd.settings)
    assert hdd.measuring.bisect.threshold_value is None


def test_a_job_has_disks_of_its_own(tmp_path: Path) -> None:
    found = load(tmp_path, TWO_JOBS.replace('stack = "hdd"\n', 'stack = "hdd2"\nhdd2 = { size = "2GiB" }\n'))
    assert {name: disk.size_bytes for name, disk in found.jobs[1].measuring.storage.used_disks.items()} == {
        "hdd2": 2 << 30
    }
    other = load(tmp_path, TWO_JOBS.replace('stack = "hdd"\n', 'stack = "hdd2"\nhdd2 = { size = "3GiB" }\n'))
    assert len({plan.conditions(one.jobs[1].measuring) for one in (found, other)}) == 2
    with pytest.raises(UserError, match=r"storage\.stack = hdd2 .*: there is no layer or disk hdd2"):
        load(tmp_path, TWO_JOBS.replace('stack = "hdd"\n', 'stack = "hdd2"\n'))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("budget_hours = 6.5", "budget_hours = 0", ("nightly.toml", "budget_hours = 0", "more than 0")),
        ("budget_hours = 6.5", "budget = 6", ("nightly.toml", "no key budget", "budget_hours")),
        ('branch = "master"\n', "", ("nightly.toml, job 1", "a job needs branch")),
        ('range = "newest-tag"', 'range = "yesterday"', ("nightly.toml, job 2", "range", "last-good, newest-tag")),
        ('remote = "next"', 'remot = "next"', ("nightly.toml, job 2", "no key remot")),
        ('remote = "next"', 'remote = "--upload-pack=rm"', ("nightly.toml, job 2", "a name as git knows it")),
        ('name = "hdd"', 'name = "dm-cache"', ("nightly.toml, job 2", "a job dm-cache already")),
        ('name = "hdd"', 'name = "../hdd"', ("nightly.toml, job 2", "a short name")),
        ('stack = "hdd"', 'stack = "floppy"', ("nightly.toml, job 2", "storage.stack", "lvmcache")),
        ('stack = "hdd"', 'stak = "hdd"', ("nightly.toml, job 2", "no setting storage.stak", "storage.stack")),
        ("bisect.threshold = 2000", 'bisect.terms = "a:b"', ("nightly.toml, job 1", "bisect.terms", "direction")),
        ('profile = "quick"', 'profile = "slow"', ("nightly.toml", "profile", "article")),
        ('to = ["dm-devel@example.org"]\n', "", ("nightly.toml, job 2", "to whom")),
        ('to = ["dm-devel@example.org"]', 'to = ["dm-devel"]', ("nightly.toml, job 2", "to:", "not a mail address")),
        ('mail.host = "mail.example.org"', "", ("nightly.toml", "no mail server")),
        ("[[job]]   # the second", "[[job", ("nightly.toml", "line 16")),
        (TWO_JOBS, "budget_hours = 1\n", ("no job in it",)),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    assert old in TWO_JOBS
    with pytest.raises(UserError) as caught:
        load(tmp_path, TWO_JOBS.replace(old, new))
    said = f"{caught.value.message}\n{caught.value.hint}"
    assert all(word in said for word in words), said


def test_clone_that_moves_is_refused(tmp_path: Path) -> None:
    search = TWO_JOBS.replace("bisect.threshold = 2000", 'workload.kind = "gitgrep"')
    with pytest.raises(UserError, match="every night has to search the same files, and HEAD moves") as caught:
        load(tmp_path, search)
    assert "nightly.toml, job 1:" in caught.value.message
    found = load(tmp_path, search.replace('"gitgrep"', '"gitgrep"\nworkload.gitgrep.commit = "v6.1"'))
    assert found.jobs[0].measuring.bisect.metric == "elapsed"


def test_figures_are_comparable_as_long_as_nothing_they_depend_on_changes(tmp_path: Path) -> None:
    text = "[mine]\ndirectory=${DIRECTORY}\nsize=${FILE_SIZE}\ntime_based\nruntime=${RUNTIME}\n"
    (tmp_path / "mine.fio").write_text(text)
    base = TWO_JOBS.replace('stack = "hdd"', 'stack = "hdd"\n[job.settings.workload]\njob = "./mine.fio"')

    def of(text: str) -> str:
        return load(tmp_path, text).jobs[1].conditions

    first = of(base)
    assert of(base.replace("budget_hours = 6.5", "budget_hours = 1")) == first
    assert of(base.replace('direction = "both"', 'direction = "regression"')) == first
    assert of(base + "[job.settings.contention]\nmax_other_cores = 1.5\n") == first
    assert of(base + 'runtime = "41s"\n') != first
    assert of(base + "[job.settings.bisect]\nthreshold = 9\n") == first
    assert of(base + '[job.settings.bisect]\nmetric = "read.bw"\n') != first
    (tmp_path / "mine.fio").write_text(f"{text}iodepth=8\n")
    assert of(base) != first
