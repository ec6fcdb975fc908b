"""The verdicts again from the files: every way in which a record can have ceased to be true."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from bisector.analysis.verdicts import Judging
from bisector.core.errors import InfraError
from bisector.core.trial import Artifact, Origin, Trial
from bisector.host import process
from bisector.mail import outbox, recheck
from bisector.store.store import Store
from tests.analysis.recorded import RECORDED, fio_2_run
from tests.examples import baseline, run, trial
from tests.git import histories
from tests.recorded_run import FAST, SLOW, RecordedRun, fio_json, found


@pytest.fixture
def record(tmp_path: Path) -> RecordedRun:
    return found(tmp_path)


def judging(record: RecordedRun) -> Judging:
    with Store.open(record.run.database) as store:
        asked = store.bisection()
        return Judging(record.settings, store.trials(), asked.old_sha, asked.new_sha)


def refusal(record: RecordedRun, of: Judging | None = None) -> str:
    with pytest.raises(InfraError, match="cannot be confirmed from its files") as caught:
        recheck.check(record.run.path, of or judging(record))
    return str(caught.value)


def raw(record: RecordedRun, n: int, run: str = "full") -> Path:
    (path,) = record.run.path.glob(f"trials/{n:04d}-*/{run}/fio.json")
    return path


def with_trial(of: Judging, n: int, trial: Trial) -> Judging:
    return replace(of, trials=tuple((number, trial if number == n else one) for number, one in of.trials))


def test_true_record_passes(record: RecordedRun) -> None:
    recheck.check(record.run.path, judging(record))


def test_changed_file(record: RecordedRun) -> None:
    raw(record, 5).write_text(raw(record, 5).read_text() + " ")
    said = refusal(record)
    assert "trial 5" in said
    assert "SHA-256" in said


def test_changed_file_of_a_disk_alone(record: RecordedRun) -> None:
    """No letter has a baseline that its file does not bear out."""
    run, artifact = record._run("trials/0006-ssd", "ssd", FAST)
    ssd = replace(baseline("ssd", of=record.commit("c4")), runs=(run,), artifacts=(artifact,))
    with Store.open(record.run.database) as store:
        store.add_trial(ssd)
        post = outbox.Post(record.run, store, record.settings.mail)
        assert "HDD alone" not in (letter := post.draft()[0].read_text())
        assert "SSD alone  4,006 / 7,363 IOPS on" in letter
        raw(record, 6, "ssd").write_text(fio_json(*SLOW))
        with pytest.raises(InfraError, match=r"trial 6 of .*, ssd run: .*has been changed"):
            post.draft()


def test_file_that_is_gone(record: RecordedRun) -> None:
    raw(record, 3).unlink()
    assert f"cannot read {record.run.path}" in refusal(record)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"n": 1, "elapsed": 4.0, "tps": 9.0}, {"n": 2, "elapsed": 6.0}]', ""),
        ('[{"n": 1, "elapsed": 4.0}, {"n": 2, "elapsed": 7.0}]', "has other figures than the record"),
        ("[", "has no repetitions: Expecting value"),
        ('["elapsed"]', "no repetitions"),
        ("[]", "no repetitions"),
    ],
)
def test_figures_of_a_command_are_read_from_its_repetitions(record: RecordedRun, text: str, said: str) -> None:
    file = record._file("trials/0001-aaaa", "full/repetitions.json", text)
    timed = replace(run("full"), counters=(("elapsed", 5.0),))
    one = replace(trial(record.commit("c0"), timed), artifacts=(file,))
    of = Judging(replace(record.settings, bisect=replace(record.settings.bisect, metric="elapsed")), ((1, one),))
    if said:
        assert said in refusal(record, of)
    else:
        recheck.check(record.run.path, of)


def rewritten(record: RecordedRun, n: int, text: str) -> Judging:
    """The file and its recorded SHA-256 changed together."""
    raw(record, n).write_text(text)
    of = judging(record)
    trial = dict(of.trials)[n]
    digest = sha256(text.encode()).hexdigest()
    artifacts = tuple(replace(one, sha256=digest) if one.name == "full/fio.json" else one for one in trial.artifacts)
    return with_trial(of, n, replace(trial, artifacts=artifacts))


def test_figures_that_are_not_in_the_file(record: RecordedRun) -> None:
    assert "has other figures than the record" in refusal(record, rewritten(record, 5, fio_json(*SLOW)))


def test_other_values_of_the_metric_that_decides(tmp_path: Path) -> None:
    record = found(tmp_path, {"bisect.metric": "read.clat.mean"})
    recheck.check(record.run.path, judging(record))
    written = json.loads(raw(record, 5).read_text())
    written["jobs"][0]["read"]["clat_ns"]["mean"] *= 1.01
    assert "has other figures than the record" in refusal(record, rewritten(record, 5, json.dumps(written)))


def test_file_that_is_cut_off(record: RecordedRun) -> None:
    text = json.dumps({"jobs": []})[:-3]
    assert "cut off" in refusal(record, rewritten(record, 5, text))


def test_run_without_a_file(record: RecordedRun) -> None:
    of = judging(record)
    trial = dict(of.trials)[5]
    without: tuple[Artifact, ...] = tuple(one for one in trial.artifacts if one.name != "full/fio.json")
    assert "there is no full/fio.json" in refusal(record, with_trial(of, 5, replace(trial, artifacts=without)))


@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
def test_what_git_was_told_is_compared(tmp_path: Path, hashes: str) -> None:
    """A log once said the opposite of the measurements in a robot's letter, twice."""
    words: list[str | Path] = ["git", "init", "-q", f"--object-format={hashes}", "-b", "main", tmp_path / "linux"]
    process.run(words, deadline_s=histories.DEADLINE_S)
    record = found(tmp_path, {"bisect.strategy": "git"})
    recheck.check(record.run.path, judging(record))
    record.log(("fixed", "c4"), ("broken", "c0"), ("fixed", "c2"))
    assert f"{record.shas['c2'][:12]} is old by its files, and git was told new" in refusal(record)


def test_one_reading_may_contradict_what_all_say_together(record: RecordedRun) -> None:
    record.log(("fixed", "c4"), ("broken", "c0"), ("fixed", "c2"))
    recheck.check(record.run.path, judging(record))


def test_skips_of_a_person_are_no_contradiction(record: RecordedRun) -> None:
    record.log(("fixed", "c4"), ("broken", "c0"), ("skip", "c1"))
    recheck.check(record.run.path, judging(record))


def test_not_yet_a_log(tmp_path: Path) -> None:
    record = RecordedRun(tmp_path, histories.linear(5))
    record.add("c0", SLOW)
    record.add("c4", FAST)
    recheck.check(record.run.path, judging(record))


def imported(record: RecordedRun, name: str, text: str) -> Judging:
    """The same trial as others measured it, with the file under the name that they gave it."""
    path = record.run.path / "trials" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    artifact = Artifact(name, f"trials/{name}", sha256(text.encode()).hexdigest(), len(text))
    record.log()
    of = judging(record)
    trial = dict(of.trials)[5]
    run = replace(trial.runs[-1], jobs=fio_2_run(_TEXT, "full").jobs)
    series = replace(artifact, name="full/partial_iops.1.log")
    theirs = replace(
        trial, runs=(run,), artifacts=(artifact, series), origin=Origin("fio-2.16", "4.12", None), kernel=None
    )
    return replace(of, trials=((5, theirs),))


def test_output_of_others_is_read_again_too(record: RecordedRun) -> None:
    recheck.check(record.run.path, imported(record, "full/theirs.txt", _TEXT.read_text()))
    other = _TEXT.with_name("15-4.12.0-rc1+4d44ec5ab751-full.txt").read_text()
    assert "other figures" in refusal(record, imported(record, "full/theirs.txt", other))


def test_run_whose_name_no_directory_can_have(record: RecordedRun) -> None:
    of = imported(record, "warm-second-run/theirs.txt", _TEXT.read_text())
    (run,) = dict(of.trials)[5].runs
    named = with_trial(of, 5, replace(dict(of.trials)[5], runs=(replace(run, name="warm, second run"),)))
    with pytest.raises(InfraError, match=r"there is no warm, second run/fio\.json"):
        recheck.check(record.run.path, named)
    spaced = with_trial(of, 5, replace(dict(of.trials)[5], runs=(replace(run, name="warm second/run"),)))
    recheck.check(record.run.path, spaced)


_TEXT = RECORDED / "lvmcache-bisect-2017" / "14-4.12.0-rc1+6cf4cc8f8b3b-full.txt"
