"""The bisect by hand of 2017, imported: its verdicts, its answer, its table."""

import csv
import re
from hashlib import sha256
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core.verdict import State, Verdict
from bisector.storage.disks import DISKS
from bisector.storage.stack import lone_disk
from tests.analysis.recorded import RECORDED
from tests.docs.json_schema import valid
from tests.git import histories
from tests.git.histories import Node
from tests.imported.conftest import DATA, FAST, SLOW, Desk, index, row

SET = "lvmcache-bisect-2017"
INDEX = ("--index", RECORDED / "index.csv")
BISECT = (*INDEX, "--only-set", SET, "--verdicts", RECORDED / "expected-verdicts.csv")
ARTICLE = ("--threshold", "20000")
FIX, PARENT = "6cf4cc8f8b3b", "4d44ec5ab751"

# The order of the kernels that were tried: the device mapper's branch off v4.12-rc1, merged after 243bfd2c052d. Of
# what lies between them there is one commit here and there.
_BRANCH = ("78c45607b909", "b1", PARENT, FIX, "b2", "701e03e4e180", "f98e0eb68008")
_AFTER = ("d51aff16e821", "331da109ec20", "6ce478291137", "b870aa901f4b", "m1", "458bc30cec26", "5518b69b7668")
_BASE, _MAINLINE, _MERGE = "2ea659a9ef48", "243bfd2c052d", "a58a260fd96b"


def _node(name: str, *parents: str) -> Node:
    """A commit with its real hash for a tag, so that it is found by it."""
    files = histories.KERNEL_TREE if not parents else {}
    return Node(name, parents, files, tags=(name,))


def history() -> list[Node]:
    nodes = [_node(_BASE)]
    nodes += [_node(name, before) for before, name in zip((_BASE, *_BRANCH), _BRANCH, strict=False)]
    nodes += [_node(_MAINLINE, _BASE), _node(_MERGE, _MAINLINE, _BRANCH[-1])]
    return nodes + [_node(name, before) for before, name in zip((_MERGE, *_AFTER), _AFTER, strict=False)]


@pytest.fixture(scope="module")
def linux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "linux"
    histories.build(path, history())
    return path


def persons() -> list[str]:
    with (RECORDED / "expected-verdicts.csv").open(encoding="utf-8", newline="") as file:
        return [row["verdict"] for row in csv.DictReader(file)]


def test_the_persons_sixteen_verdicts(desk: Desk) -> None:
    assert "16 trials imported" in desk.imports(*BISECT, *ARTICLE)
    view = desk.view
    assert [view.terms.word(trial.verdict) for trial in view.trials] == persons()
    origins = [trial.trial.origin for trial in view.trials]
    assert [view.terms.word(origin.verdict) for origin in origins if origin and origin.verdict] == persons()
    assert {origin.tool for origin in origins if origin} == {"fio-2.16"}
    assert (view.state, view.first_fixed) == (State.IMPORTED, None)
    assert "according to those" not in desk.table()
    assert main(["status", "--json", "--run-dir", str(desk.run)]) == 0
    whole = valid("status", desk.output.readouterr().out)
    assert (whole["state"], whole["repository"], whole["resume_command"]) == ("imported", None, None)
    first = whole["trials"][0]
    assert first["origin"] == {"tool": "fio-2.16", "kernel": "4.12.0-rc1+", "verdict": "old"}
    run = first["runs"][1]
    assert (first["kernel"], run["contention"], run["clock_drift_s"]) == (None, None, None)
    assert run["started_at"] == "2017-07-28T18:36:40"
    job = run["jobs"][0]
    assert (job["iops_mean"], job["iops_stddev"], job["clat_p99_ns"]) == (2141, None, 100_864_000)
    assert job["latencies"][0]["kind"] == "slat"


def test_the_first_fixed_commit(desk: Desk, linux: Path) -> None:
    assert f"{FIX}" in desk.imports(*BISECT, *ARTICLE, "--repo", linux)
    view = desk.view
    assert view.state is State.FOUND
    assert view.first_fixed is not None
    assert (view.first_fixed.subject, view.candidates) == (FIX, (view.first_fixed,))
    assert view.first_fixed.sha == histories.git(linux, "rev-parse", f"{FIX}^{{commit}}")
    assert (view.old.subject, view.new.subject) == ("243bfd2c052d", "5518b69b7668")


def test_what_nobody_tried_stays_possible(desk: Desk, linux: Path) -> None:
    desk.imports(*BISECT, "--threshold", "5000", "--repo", linux)
    view = desk.view
    assert (view.state, [commit.subject for commit in view.candidates]) == (State.NARROWED, [PARENT, "b1"])
    table = desk.table()
    assert "the first fixed commit is one of 2 commits" in table
    assert "broken according to those who measured it" in table


def test_the_order_of_measuring_does_not_matter(desk: Desk, linux: Path) -> None:
    with (RECORDED / "index.csv").open(encoding="utf-8", newline="") as file:
        rows = [line for line in csv.DictReader(file) if line["set"] == SET]
    for line in rows:
        line["order"] = str(17 - int(line["order"]))
        line["file"] = desk.beside(str(RECORDED / line["file"]))
    with (desk.path / "index.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    desk.imports("--index", "index.csv", *ARTICLE, "--expect", "improvement", "--repo", linux)
    view = desk.view
    assert view.first_fixed is not None
    assert view.first_fixed.subject == FIX


def test_a_table_worth_posting(desk: Desk) -> None:
    desk.imports(*BISECT, *ARTICLE)
    lines = desk.table().splitlines()
    assert lines[:3] == [
        " n  commit        date        verdict  IOPS empty min/max  IOPS full min/max  subject",
        " 1  4.12.0-rc1+               broken       8,210 / 35,866        730 / 2,141  4.12.0-rc1+",
        " 2  5518b69b7668  2017-07-05  fixed       48,444 / 50,808    20,077 / 23,228  4.12.0+5518b69b7668",
    ]
    assert lines[14:16] == [
        "14  6cf4cc8f8b3b  2017-05-14  fixed       37,785 / 38,345    20,877 / 21,688  4.12.0-rc1+6cf4cc8f8b3b",
        "15  4d44ec5ab751  2017-05-14  broken       7,006 / 10,090      6,120 / 7,911  4.12.0-rc1+4d44ec5ab751",
    ]
    assert not any("seconds" in line for line in lines)
    assert "origin        Imported: others measured this, with fio-2.16." in "\n".join(lines)


def test_all_sets_at_once(desk: Desk) -> None:
    """What only writes is measured and not judged; each file is kept as it is, by its SHA-256."""
    assert "54 trials and 2 baselines imported" in desk.imports(*INDEX)
    view = desk.view
    assert [line[14:] for line in desk.table().splitlines() if " alone " in line] == [
        "SSD alone 50,942 / 53,906 IOPS on ssd",
        "HDD alone 465 / 473 IOPS on hdd",
    ]
    assert {trial.verdict for trial in view.trials} == {Verdict.MEASURED}
    assert len({trial.trial.commit.sha for trial in view.trials}) == 53  # of one commit there are two kernels
    facts = (*(trial.trial for trial in view.trials), *view.baselines)
    files = {artifact.sha256: desk.run / artifact.path for trial in facts for artifact in trial.artifacts}
    raw = [path.read_bytes() for path in RECORDED.rglob("*.txt")]
    assert files.keys() == {sha256(content).hexdigest() for content in raw}
    assert {path.read_bytes() for path in files.values()} == set(raw)
    assert "has no read.iops" in desk.table()


def test_disks_alone_beside_the_trials_of_their_kernel(desk: Desk) -> None:
    """They are of no trial: its last run stays the one that counts. What is there already is known again."""
    files = {name: next((RECORDED / "lvmcache-kernels-2017").glob(f"*-{name}-4.12.3.txt")) for name in
             ("lvmcache-empty", "lvmcache-full", "ssd", "hdd")}  # fmt: skip
    rows = [f"{path},v4.12.3,{name.removeprefix('lvmcache-')}" for name, path in files.items()]
    words = index(desk, *rows, header="file,commit,run")
    assert "1 trial and 2 baselines imported" in desk.imports(*words, *ARTICLE, "--expect", "improvement")
    assert "0 trials imported" in desk.imports(*words)
    view = desk.view
    ((trial, verdict),) = [(shown.trial, shown.verdict) for shown in view.trials]
    assert ([run.name for run in trial.runs], verdict) == (["empty", "full"], Verdict.NEW)
    alone = [(lone_disk(one.setup.stack), one.commit.sha) for one in view.baselines]
    assert alone == [(disk, "v4.12.3") for disk in DISKS]
    said = desk.refuses(files["ssd"], "--run", "ssd", "--commit", "v4.12.3", "--verdict", "fixed")
    assert "a disk alone is on no side" in said


def test_a_run_without_a_name_is_the_only_one_of_each_trial(desk: Desk) -> None:
    """One column of figures, however the files are called; beside one of them lies a log."""
    rows = (row("78c45607b909", SLOW[1], "broken", ""), row("6cf4cc8f8b3b", FAST[1], "fixed", ""))
    log = row("6cf4cc8f8b3b", DATA / "fio" / "partial_iops.1.log", "fixed", "")
    desk.imports(*index(desk, *rows, log))
    assert desk.table().splitlines()[0] == "n  commit        date  verdict  IOPS fio min/max  subject"
    desk.imports(SLOW[0], "--commit", "78c45607b909")
    assert {run.name for shown in desk.view.trials for run in shown.trial.runs} == {"fio"}


def test_an_import_proposes_nothing_that_is_refused_to_it(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    said = desk.imports(*BISECT, *ARTICLE)
    assert "so there is another step, at 2,125 IOPS" in " ".join(said.split())
    assert "next-step" not in said + desk.table()
    assert not desk.view.next_step_command
    for verb, told in (("log", "git bisected nothing in it"), ("mail", "has no answer to tell: no repository says")):
        assert main([verb, "--run-dir", str(desk.run)]) == 2
        assert f"was imported, and {told}" in capsys.readouterr().err
    assert main(["report", "--run-dir", str(desk.run)]) == 0
    assert "These results were imported, and do not tell the first commit" in " ".join(capsys.readouterr().out.split())


OTHERS = RECORDED.parent / "fio" / "others"


@pytest.mark.parametrize("name", ["mixed.txt", "mixed.json"])
def test_reads_and_writes_as_one_figure_are_shown_and_can_decide(desk: Desk, name: str) -> None:
    desk.imports(OTHERS / name, "--commit", "a")
    assert "mixed IOPS fio" in desk.table()
    assert main(["table", "--metric", "mixed.iops", "--run-dir", str(desk.run)]) == 0
    assert "job randrw: 5,000 IOPS (mixed.iops)" in desk.output.readouterr().out


@pytest.mark.parametrize(("form", "words"), [("text", BISECT), ("mail", BISECT), ("json", INDEX), ("markdown", INDEX)])
def test_a_report_says_nothing_of_how_we_would_have_measured(
    desk: Desk, linux: Path, form: str, words: tuple[str | Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A U Thor")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "author@example.com")
    desk.imports(*words, *ARTICLE, *(("--repo", linux) if words is BISECT else ()))
    desk.output.readouterr()
    assert main(["report", "--format", form, "--run-dir", str(desk.run)]) == 0
    said = desk.output.readouterr().out
    assert "fio-2.16" in said
    assert ("improvement" in said if form == "mail" else "The first fixed commit" in said) is (
        words is BISECT and form != "json"
    )
    for ours in ("partial.fio", "kconfig", "virtual machine", "bisector start", "FILE_SIZE", "started, ended"):
        assert ours not in said


def test_a_report_has_the_word_of_those_who_measured(desk: Desk) -> None:
    desk.imports(*BISECT, "--threshold", "5000")
    desk.output.readouterr()
    assert main(["report", "--run-dir", str(desk.run)]) == 0
    said = " ".join(desk.output.readouterr().out.split())
    assert "according to those who" in said
    assert re.search(r"fixed end \S+ [^=]*imported 20\d\d-", said)
