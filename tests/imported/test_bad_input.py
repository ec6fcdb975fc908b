"""What cannot be imported: a sentence with file and line, and nothing is recorded."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bisector.cli import main
from bisector.core.errors import UserError
from bisector.core.verdict import SideWords, State, Verdict
from bisector.imported import trials
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests.analysis.recorded import RECORDED
from tests.git import histories
from tests.imported.conftest import FAST, SLOW, Desk, index, row
from tests.store import examples

FIO = RECORDED.parent / "fio"


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("file,iops_mean", ["c,1"], "index.csv:1: unknown column 'iops_mean'\n  columns are file, commit"),
        ("commit,run", ["a,b"], "index.csv:1: there is no column 'file'"),
        ("file,file", ["a,b"], "index.csv:1: the column 'file' is there twice"),
        ("commit,file", ["a,b", "a"], "index.csv:3: 1 values for 2 columns"),
        ("commit,file", ["a,"], "index.csv:2: file is empty"),
        ("commit,file", ["a,missing.txt"], "there is no file"),
        ("commit,file", ["a,missing\0.txt"], "cannot read"),
        ("commit,file", [], "no rows"),
        ("order,file", ["one,x.txt"], "index.csv:2: order 'one' is not a number"),
        ("commit,file", ["1.23E+12,x.txt"], "index.csv:2: commit '1.23E+12' is what a spreadsheet made of a hash"),
        ("iops,file", ["many,x.txt"], "index.csv:2: iops 'many' is not a number"),
        ("commit_date,file", ["May,x.txt"], "index.csv:2: commit_date 'May' is not a date"),
        ("verdict,file", ["slow,x.txt"], "index.csv:2: the verdict 'slow' is neither 'broken' nor 'fixed'"),
        ("order,commit,file", ["1,a,x.txt", "1,b,y.txt"], "index.csv:3: commit is 'b', and 'a' in"),
        ("commit,file", ['a,"x.txt'], "index.csv:2: not a line of a CSV table"),
        ("run,file", ["empty,x.txt", "full,x.txt"], "index.csv:2: x.txt is of several runs: empty, full"),
        ("commit,file", ["a,/etc/shadow"], "index.csv:2: /etc/shadow is not below"),
        ("commit,file", ["a,../../etc/shadow"], "index.csv:2: ../../etc/shadow is not below"),
        ("commit,file", ["a,/dev/zero"], "index.csv:2: /dev/zero is not below"),
        ("commit,file", ["a,x.txt", f"b,{'y' * 5000}"], "index.csv:3: file has 5,000 characters, and may have 4,096"),
        ("commit,file", [f"{'c' * 201},x.txt"], "index.csv:2: commit has 201 characters, and may have 200"),
        ("order,file", [f"{'1' * 16},x.txt"], "index.csv:2: order '1111111111111111' is not a number"),
        ("order,file", [f"{'1' * 5000},x.txt"], "index.csv:2: order has 5,000 characters"),
        ("runtime_ms,file", [f"{'1' * 5000},x.txt"], "index.csv:2: runtime_ms has 5,000 characters"),
        ("commit,file", [f"a,{'x' * 200_000}"], "index.csv:2: not a line of a CSV table: field larger"),
    ],
)
def test_an_index_with_an_error(desk: Desk, header: str, rows: list[str], message: str) -> None:
    assert message in desk.refuses(*index(desk, *rows, header=header))
    assert not desk.run.exists()


@pytest.mark.parametrize("between", [";", "\t"])
def test_an_index_as_a_spreadsheet_writes_it(desk: Desk, between: str) -> None:
    _, path = index(desk, row("a", SLOW[1], "broken"), row("b", FAST[1], "fixed"), header="Commit,Run,Verdict,File")
    path.write_text(path.read_text().replace(",", between), encoding="utf-8-sig")
    assert "2 trials imported" in desk.imports("--index", path)


def test_an_index_that_says_other_figures(desk: Desk) -> None:
    header = "commit,run,job,iops,runtime_ms,file"
    right, other = f"a,full,1,17398,900076,{SLOW[1]}", f"a,full,2,6940,900089,{SLOW[1]}"
    assert "index.csv:3: iops is 6940.0, and 694.0 in" in desk.refuses(*index(desk, right, other, header=header))
    assert "has 2 figures, and the index 1" in desk.refuses(*index(desk, right, header=header))
    time = f"a,full,2,694,90008,{SLOW[1]}"
    assert "index.csv:3: runtime_ms is 90008, and 900089 in" in desk.refuses(*index(desk, right, time, header=header))


def test_a_file_that_is_damaged(desk: Desk) -> None:
    cut, json = desk.path / "cut.txt", (FIO / "partial-3.33.json").read_text()
    cut.write_bytes(SLOW[0].read_bytes()[:1500])
    assert f"{cut}:26: fio's output is cut off: job partial has no line" in desk.refuses(*index(desk, row("a", cut)))
    cut.write_bytes(b"fio-2.16\n\xff\n")
    assert "this is not output of fio" in desk.refuses(cut)
    for text, message in (
        (SLOW[0].read_text().replace("fio-2.16", "fio-4.0"), f"{cut}:2: fio-4.0 is unknown here"),
        (json[:4000], "fio's JSON is cut off"),
        (json.replace('"majf" : 0', f'"majf" : {2**63}'), "is not a figure of any machine"),
    ):
        cut.write_text(text, encoding="utf-8")
        assert message in desk.refuses(cut)
    assert not desk.run.exists()


def test_a_log_that_is_cut(desk: Desk) -> None:
    log = desk.path / "x_iops.1.log"
    whole = (FIO / "partial_iops.1.log").read_text(encoding="utf-8")
    for text in (whole[:-2], whole + "44000, 9, 0\n", whole + "4000, 9", whole + "4000, 9\n", ""):
        log.write_text(text, encoding="utf-8")
        assert f"{log}" in desk.refuses(FIO / "partial-3.33.json", log)
    log.write_text(whole, encoding="utf-8")
    assert "stands after the output of its run" in desk.refuses(log, FIO / "partial-3.33.json")
    desk.imports(FIO / "partial-3.33.json", log)
    (trial,) = desk.view.trials
    names = {artifact.name for artifact in trial.trial.artifacts}
    assert names == {f"partial-3.33/{name}" for name in ("partial-3.33.json", "x_iops.1.log")}


def test_files_that_would_be_kept_under_one_name(desk: Desk) -> None:
    for n in (0, 1):
        (desk.path / f"{n}").mkdir()
        (desk.path / f"{n}" / "out.txt").write_text(SLOW[n].read_text())
    rows = [row("a", desk.path / f"{n}" / "out.txt", run=name) for n, name in enumerate(("a b", "a-b"))]
    assert "would both be kept as a-b/out.txt" in desk.refuses(*index(desk, *rows))
    assert not desk.run.exists()


def test_one_trial_by_flags(desk: Desk) -> None:
    said = ("--commit", "6cf4cc8f8b3b", "--kernel", "4.12.0-rc1+", "--verdict", "fixed", "--threshold", "20000")
    desk.imports(*FAST, "--run", "empty", "--run", "full", *said)
    (shown,) = desk.view.trials
    assert (shown.trial.commit.sha, shown.trial.commit.subject) == ("6cf4cc8f8b3b", "4.12.0-rc1+")
    assert ([run.name for run in shown.trial.runs], shown.verdict) == (["empty", "full"], Verdict.NEW)
    assert shown.trial.origin is not None
    assert shown.trial.origin.verdict is Verdict.NEW


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to import"),
        ((FAST[0], "--run", "empty", "--run", "full"), "--run is given 2 times, for 1 outputs of fio"),
        ((FAST[0], "--index", "x.csv"), "--index and FILE do not go together"),
        (("--index", "x.csv", "--commit", "a"), "--index and --commit do not go together"),
        ((FAST[0], "--only-set", "a"), "--only-set goes with --index"),
        ((FAST[0], "--verdict", "slow"), "--verdict: the verdict 'slow' is neither 'broken' nor 'fixed'"),
        (("--index", RECORDED / "index.csv", "--only-set", "none"), "no row is of the set 'none'"),
        ((FAST[0], "--old", "v1"), "--old v1: no trial is of this commit"),
        ((*FAST, "--run", "full", "--run", "full"), "the full run has 2 outputs of fio, and not one"),
        ((FAST[0], FAST[0]), "the 14-4.12.0-rc1+6cf4cc8f8b3b-empty run has 2 outputs"),
        ((FAST[0], "--repo", "nowhere"), "nowhere is not a directory"),
        ((FAST[0], "--terms", "bad:good"), "'bad' cannot"),
    ],
)
def test_flags_that_do_not_go_together(desk: Desk, words: tuple[str | Path, ...], message: str) -> None:
    said = desk.refuses(*words)
    assert message in said or "means the other end" in said
    assert not desk.run.exists()


def test_a_commit_with_two_verdicts(desk: Desk) -> None:
    header = "order,commit,run,verdict,file"
    rows = [f"1,a,full,broken,{SLOW[1]}", f"2,a,full,fixed,{FAST[1]}"]
    said = desk.refuses(*index(desk, *rows, header=header))
    assert "index.csv:3: the verdict on a contradicts that of" in said
    assert not desk.run.exists()
    # and when they come one after the other
    desk.imports(*index(desk, rows[0], header=header))
    assert "contradicts that of trial 1" in desk.refuses(*index(desk, rows[1], header=header))
    assert len(desk.view.trials) == 1


def test_a_commit_under_two_names_of_one_repository(desk: Desk) -> None:
    shas = histories.build(desk.path / "linux", histories.linear(2))
    rows = (row(shas["c1"][:12], SLOW[1], "broken"), row("main", FAST[1], "fixed"))
    assert "contradicts that of" in desk.refuses(*index(desk, *rows), "--repo", desk.path / "linux")
    assert "index.csv:2: unknown revision 'v9'" in desk.refuses(
        *index(desk, row("v9", SLOW[1])), "--repo", desk.path / "linux"
    )


def test_verdicts_of_another_table(desk: Desk) -> None:
    verdicts = desk.path / "verdicts.csv"

    def refused(text: str) -> str:
        verdicts.write_text(text, encoding="utf-8")
        return desk.refuses(*index(desk, row("a", SLOW[1], "broken")), "--verdicts", verdicts)

    assert "verdicts.csv:2: the index has no such trial" in refused("commit,verdict\nb,fixed\n")
    assert "verdicts.csv:2: the verdict contradicts that of" in refused("commit,verdict\na,fixed\n")
    assert "verdicts.csv:3: the verdict 'fixed' contradicts" in refused("commit,verdict\na,broken\na,fixed\n")
    assert "says which trial the verdict is of" in refused("verdict\nbroken\n")
    assert "verdicts.csv:2: verdict is empty" in refused("commit,verdict\na,\n")
    verdicts.write_text("commit,verdict\na,broken\n", encoding="utf-8")
    desk.imports(*index(desk, row("a", SLOW[1])), "--verdicts", verdicts)
    assert desk.view.trials[0].trial.origin is not None
    assert desk.view.trials[0].trial.origin.verdict is Verdict.OLD


def test_what_was_settled_at_the_first_import_stays(desk: Desk) -> None:
    desk.imports(SLOW[1])
    assert "has its terms, threshold and ends already" in desk.refuses(FAST[1], "--threshold", "5")
    histories.build(desk.path / "linux", histories.linear(2))
    assert "was imported with no repository" in desk.refuses(FAST[1], "--repo", desk.path / "linux")


def test_a_bisection_of_ours_is_left_alone(desk: Desk) -> None:
    run = RunDirectory.create(desk.run, "x")
    with Store.create(run.database, examples.bisection()) as store:
        store.add_trials([examples.measured(1)])
        with run.lock():
            assert "holds what was measured here" in desk.refuses(SLOW[1])
        store.set_state(State.STOPPED)
        assert "holds what was measured here" in desk.refuses(SLOW[1])
        assert len(store.trials()) == 1


def test_a_full_disk_is_no_bug(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["import", str(SLOW[0]), "--run-dir", str(desk.run)]) == 4
    assert "No space left on device\n  make room: df -h" in desk.output.readouterr().err


def test_a_job_that_stood_still_is_no_measurement(desk: Desk) -> None:
    text = (FIO / "partial-3.33.json").read_text(encoding="utf-8")
    still = desk.path / "still.json"
    figure = text.index('"iops" : ')
    still.write_text(text[:figure] + '"iops" : 0.0,' + text[text.index("\n", figure) :], encoding="utf-8")
    assert "has no IOPS: that is not a measurement" in desk.refuses(still)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200), st.sampled_from(["", "file,commit,order,verdict,iops,job,commit_date\n", "file\n"]))
def test_any_text_is_an_index_or_an_error(tmp_path: Path, text: str, header: str) -> None:
    path = tmp_path / "index.csv"
    path.write_bytes((header + text).encode("utf-8", "surrogatepass"))
    try:
        found = trials.entries(path, SideWords())
    except UserError as error:
        caught = str(error)
    else:
        assert found
        return
    assert caught.startswith(str(path))


# -- files that are none -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(os.mkfifo, "is not a regular file", id="FIFO"),
        pytest.param(Path.mkdir, "is not a regular file", id="directory"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), "is not below", id="link to a device"),
        pytest.param(lambda path: path.symlink_to("../precious"), "is not below", id="link to elsewhere"),
        pytest.param(lambda path: path.symlink_to(path), "cannot read", id="link to itself"),
        pytest.param(lambda path: path.touch(), "this is not output of fio", id="empty"),
    ],
)
def test_files_of_an_index_that_are_none(desk: Desk, make: Callable[[Path], object], message: str) -> None:
    (desk.path.parent / "precious").write_text("a secret line\n")
    make(desk.path / "x.txt")
    said = desk.refuses(*index(desk, "a,full,,x.txt"))
    assert f"{desk.path / 'index.csv'}:2: " in said
    assert message in said
    assert "secret" not in said
    assert not desk.run.exists()


@pytest.mark.parametrize("file", ["/dev/zero", "FIFO"])
@pytest.mark.parametrize("flags", [[], ["--index"], ["--index", "index.csv", "--verdicts"]])
def test_files_that_would_be_read_for_ever(desk: Desk, flags: list[str], file: str) -> None:
    os.mkfifo(desk.path / "FIFO")
    index(desk, row("a", SLOW[1]))
    assert f"{file} is not a regular file" in desk.refuses(*flags, file)
