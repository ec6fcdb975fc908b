"""The report of a comparison from a real record: every format, the command that asks again, plots, letters."""

import hashlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes, message_from_string
from email.policy import default
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.compare import session
from bisector.core.figures import DiskQueue
from bisector.core.trial import Trial
from bisector.store.rundir import collect, trial_directory
from bisector.trial.runner import TrialRequest
from bisector.workload.fio import output
from tests.compare import planted
from tests.compare.desk import Desk, settings
from tests.docs.json_schema import valid
from tests.kernel.test_image import bzimage
from tests.mail import servers
from tests.recorded_run import fio_json, found
from tests.report.comparison_examples import with_counter
from tests.report.curve_examples import log_text


def shown(output: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints of the run."""
    output.readouterr()
    assert main([*words, "--run-dir", "run"]) == 0
    return output.readouterr().out


def test_text_has_everything(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, "report")
    assert said.startswith("Comparison of main with main~3: faster in 2 of 2\n")
    assert "read.iops of the worst job (higher is better)" in said
    assert "main~3 (again)" in said
    assert "With 3 blocks the exact test cannot reach 5 %" in said
    assert "It is finished: 3 blocks on each setup." in said
    assert f"{done.shas['c3'][:12]} (" in said
    assert "gcc 12.2.0, GNU ld 2.40" in said
    assert "[partial]" in said
    assert "The order was drawn from the seed 7" in " ".join(said.split())


def test_document_is_of_its_schema_and_its_command_compares_the_same_again(
    done: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    made = valid("compare", shown(capsys, "report", "--format", "json"))
    assert [arm["placebo"] for arm in made["arms"]] == [False, False, True]
    assert (len(made["blocks"]), len(made["rows"][0]["values"])) == (6, 9)
    assert shlex.split(made["command"]) == [
        "bisector", "compare", done.shas["c0"][:12], done.shas["c3"][:12],
        "--stack", "lvmcache(ssd,hdd)+ext4", "--stack", "hdd+ext4", "--job", "partial.fio",
        "--placebo", "--runs", "3", "--least-effect", "5%", "--seed", "7", "--file-size", "64MiB",
    ]  # fmt: skip


def test_command_has_every_workload_by_what_was_typed(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.place)
    (desk.place / "x.tar").write_text("")
    carried = [str(desk.place / "x.tar")]
    lines = [settings("hdd", workload__command__line=line, workload__command__carry=carried) for line in ("a b", "c")]
    asked = replace(desk.asked("main~3", "main", runs=1), settings=(settings("hdd"), *lines))
    with session.begun(asked, desk.place / "run", lambda _: None):
        pass
    words = shlex.split(json.loads(shown(capsys, "report", "--format", "json"))["command"])[4:]
    assert words[:8] == ["--stack", "hdd+ext4", "--job", "partial.fio", "--command", "a b", "--command", "c"]
    assert words[-2:] == ["--carry", "x.tar"]
    assert not {"--workload", "--metric"} & set(words)


def test_command_has_what_is_on_top_of_a_commit_and_the_images(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.place)
    patch = "--- a/drivers/md/dm.c\n+++ b/drivers/md/dm.c\n@@ -1 +1 @@\n-c0\n+better\n"
    (desk.place / "fix.patch").write_text(patch)
    (desk.place / "hz.config").write_text("CONFIG_DM_CACHE_SMQ=y\n")
    bzimage(desk.place / "vmlinuz", "6.1.0-13-amd64 (a@b) #1 SMP")
    on_top = {"patches": ("fix.patch", "main"), "fragments": ("./hz.config",), "parameters": ("a b",)}
    desk.begin("main~2", "image:vmlinuz", stacks=("hdd",), runs=1, **on_top)
    desk.go_on()
    printed = valid("compare", shown(capsys, "report", "--format", "json"))
    c1, c3 = (desk.shas[name][:12] for name in ("c1", "c3"))
    words = shlex.split(printed["command"])[2:]
    assert words[:6] == [c1, "image:./vmlinuz", "--patch", "./fix.patch", "--patch", c3]
    assert {("--config-fragment", "./hz.config"), ("--parameter", "a b")} <= set(pairwise(words))
    assert "--fragment" not in words
    assert '("6.1.0-13-amd64 (a@b) #1 SMP")' in printed["arms"][1]["commit"]
    said = shown(capsys, "report")
    assert "main~2 + fix.patch" in said
    assert "main~2 + hz.config" in said
    assert "same kernel" not in said


def test_markdown_and_html(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "report", "--format", "markdown").startswith("# Comparison of main")
    html = shown(capsys, "report", "--format", "html")
    assert html.count("<img ") == 2
    assert "Plot: Ratio to main~3, with 95 % intervals." in html


def test_plots_are_files(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    paths = shown(capsys, "plot").split()
    assert [Path(path).name for path in paths] == ["ratios.png", "runs.png"]
    assert shown(capsys, "plot", "--kind", "runs", "-o", "one.svg") == "one.svg\n"
    assert Path("one.svg").read_bytes().startswith(b"<?xml")


def test_another_metric_can_be_drawn(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    paths = shown(capsys, "plot", "--metric", "read.clat.p99.00", "--format", "svg", "-o", "of-p99").split()
    assert paths == ["of-p99/ratios.svg", "of-p99/runs.svg"]
    assert b"exploratory: read.clat.p99 of the worst job" in Path(paths[0]).read_bytes()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("plot", "--kind", "commits"), "there is nothing of that to plot"),
        (("plot", "-o", "all.png"), "is one file, and there are 2 plots"),
        (("report", "--metric", "read.bw"), "a comparison has each metric in its report"),
        (("plot", "--metric", "trim.iops"), "no run of this comparison has trim.iops\n  its metrics are: read.iops, "),
        (("plot", "--metric", "read.iopps"), "read.iopps"),
        (("plot", "--metric", "read.bw", "--kind", "curves"), "there is nothing of that to plot"),
        (("plot", "--metric", "read.bw", "--over", "sum"), "as it decides"),
    ],
)
def test_what_a_comparison_has_not(
    done: Desk, words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--run-dir", "run"]) == 2
    assert why in capsys.readouterr().err


@pytest.fixture
def with_files(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Every trial leaves the files that a real one leaves."""
    run_dir = desk.place / "run"

    def left(request: TrialRequest, made: Trial) -> Trial:
        directory = trial_directory(run_dir, request.n, request.commit)
        (directory / "kernel.config").write_text(f"CONFIG_LOCALVERSION={request.commit.sha}\n")
        (directory / "storage.txt").write_text("mkfs.ext4 /dev/vdb\n")
        (directory / "host.json").write_text('{"CPU": "Example CPU, 4 cores"}')
        for run in made.runs:
            (directory / run.name).mkdir()
            (directory / run.name / "fio.json").write_text('{"fio version": "fio-3.33"}')
            for job in (1, 2):
                (directory / run.name / f"partial_iops.{job}.log").write_text(log_text("fixed", job))
        scheduler = "cfq" if request.commit.subject == "c0" else "mq-deadline"
        queue = DiskQueue("hdd", "virtio", scheduler, 128, 256, None)
        return replace(made, artifacts=collect(directory, run_dir), queues=(queue,))

    desk.bench.also = left
    monkeypatch.chdir(desk.place)
    desk.begin("main~3", "main")
    desk.go_on()
    return desk


def test_what_was_compared_is_as_the_trials_left_it(with_files: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, "report")
    assert "mkfs.ext4 /dev/vdb" in said
    assert "fio   fio-3.33" in said
    assert "Example CPU, 4 cores" in said
    made = json.loads(shown(capsys, "report", "--format", "json"))
    digests = [hashlib.sha256(f"CONFIG_LOCALVERSION={with_files.shas[one]}\n".encode()) for one in ("c0", "c3")]
    assert [arm["config_sha256"] for arm in made["arms"]] == [one.hexdigest() for one in digests]
    assert list(made["storage"]) == ["lvmcache(ssd,hdd)+ext4", "hdd+ext4"]
    queue, made_by = made["storage"]["hdd+ext4"]
    assert made_by == "mkfs.ext4 /dev/vdb"
    of_arms = {scheduler: f"virtio, scheduler {scheduler}, read_ahead_kb 128, nr_requests 256 (2 of 4 trials)"
               for scheduler in ("cfq", "mq-deadline")}  # fmt: skip
    assert queue in {"# hdd: " + "; ".join(order) for order in permutations(of_arms.values())}
    assert made["versions"] == {"fio": "fio-3.33"}


def test_curves_are_of_the_last_block_of_each_setup(with_files: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    paths = shown(capsys, "plot", "--kind", "curves", "--format", "svg").split()
    assert [Path(path).name for path in paths] == ["curves-1.svg", "curves-2.svg"]
    drawn = Path(paths[0]).read_text()
    assert "IOPS over time on lvmcache(ssd,hdd)+ext4, block 3" in drawn
    assert "main~3, job 1" in drawn
    assert shown(capsys, "report", "--format", "html").count("<img ") == 4
    for log in with_files.place.glob("run/trials/*/full/partial_iops.1.log"):
        log.write_text("500, 1, 0\nbroken\n")
    assert main(["plot", "--run-dir", "run", "--kind", "curves"]) == 0
    assert "not drawn: trials/" in capsys.readouterr().err


def test_output_of_fio_that_is_nested_without_end_does_not_stop_a_report(
    done: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bisector.report.reporting.first_text",
        lambda *words: () if words[-1].startswith(("host", "storage")) else ("[" * 100_000,),
    )
    monkeypatch.setattr(
        "bisector.report.comparison._FIO_OUTPUT", Path(done.blocks().placed[0].trial.artifacts[0].name).name
    )
    assert shown(capsys, "report", "--format", "json")


def test_a_metric_that_is_zero_is_compared_by_differences(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ratios = {desk.shas["c0"]: 0.0, desk.shas["c3"]: 40.0}
    desk.bench.also = lambda request, made: with_counter(made, "cache.hit_ratio", ratios[request.commit.sha])
    monkeypatch.chdir(desk.place)
    desk.begin("main~3", "main", stacks=("lvmcache",), bisect__metric="cache.hit_ratio")
    desk.go_on()
    said = " ".join(shown(capsys, "report").split())
    assert "cache.hit_ratio (higher is better)" in said
    assert "lvmcache(ssd,hdd)+ext4 0.0 % 40.0 % +40.0 points +40.0 to +40.0 points unclear" in said
    assert "differences are given and not ratios: cache.hit_ratio on lvmcache(ssd,hdd)+ext4." in said


# The letter: drafted, sent, following another one


def test_letter_can_be_sent_by_hand(done: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "report", "--format", "mail")
    letter = message_from_string(text, policy=default)
    assert letter["Subject"] == "Comparison of main with main~3: faster in 2 of 2"
    assert letter["To"] is None
    assert (
        letter["Message-ID"]
        == message_from_string(shown(capsys, "report", "--format", "mail"), policy=default)["Message-ID"]
    )
    body = letter.get_content()
    assert "higher is better" in body
    assert "they will differ." in body
    assert "\n-- \nbisector " in body


@pytest.fixture
def server() -> Iterator[servers.Server]:
    with servers.serving(servers.Post()) as made:
        yield made


@pytest.fixture
def with_raw_output(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run leaves what fio wrote of it, and has the figures that are read from that."""
    run_dir = desk.place / "run"

    def left(request: TrialRequest, made: Trial) -> Trial:
        directory, runs = trial_directory(run_dir, request.n, request.commit), []
        for run in made.runs:
            text = fio_json(*(job.iops_mean for job in run.jobs))
            (directory / run.name).mkdir()
            (directory / run.name / "fio.json").write_text(text)
            runs.append(replace(run, jobs=output.parse_json(text)))
        return replace(made, runs=tuple(runs), artifacts=collect(directory, run_dir))

    desk.bench.also = left
    monkeypatch.chdir(desk.place)


@pytest.mark.usefixtures("with_raw_output")
def test_letter_is_drafted_and_sent_once(
    desk: Desk, server: servers.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.bench.value = planted.by_name(desk.shas, {"c0": 1_000.0, "c3": 1_300.0})
    Path("bisector.toml").write_text(
        f"[mail]\nhost = 'localhost'\nport = {server.port}\nsecurity = 'none'\nfrom = 'Me <me@example.org>'\n"
    )
    desk.begin("main~3", "main", runs=3)
    assert main(["mail", "--run-dir", "run"]) == 2
    assert "there is nothing to tell yet: the comparison is not over" in capsys.readouterr().err
    desk.go_on()
    said = shown(capsys, "mail")
    assert f"draft     {desk.place}/run/report.eml" in said
    assert "subject   Comparison of main with main~3: faster in 2 of 2" in said
    drafted = message_from_string(Path("run/report.eml").read_text(), policy=default)
    words = ("mail", "--send", "--to", "a@example.org,B <b@example.org>", "--cc", "c@example.org", "--run-dir", "run")
    assert main([*words, "--regzbot"]) == 2
    assert "regzbot tracks regressions" in capsys.readouterr().err
    assert main([*words]) == 0
    (letter,) = server.post.letters
    assert (letter.mail_from, letter.rcpt_tos) == (
        "me@example.org",
        ["a@example.org", "b@example.org", "c@example.org"],
    )
    assert isinstance(letter.content, bytes)
    sent = message_from_bytes(letter.content, policy=default)
    assert (sent["Message-ID"], sent["Cc"]) == (drafted["Message-ID"], "c@example.org")
    assert sent.get_content().replace("\r\n", "\n") == drafted.get_content()
    assert "1,000  1,300  +30.0 %" in sent.get_content()
    assert main([*words]) == 2
    assert "this report was sent " in capsys.readouterr().err


@pytest.mark.usefixtures("with_raw_output")
def test_letter_follows_that_of_another_run(
    desk: Desk, server: servers.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.begin("main~3", "main", runs=1, stacks=("hdd",))
    desk.go_on()
    earlier = found(desk.place / "earlier")
    words = ["--send", "--to", "a@example.org", "--set", "mail.host=localhost", "--set", f"mail.port={server.port}"]
    words += ["--set", "mail.security=none", "--set", "mail.from=me@example.org"]
    assert main(["mail", *words, "--run-dir", str(earlier.run.path)]) == 0
    assert main(["mail", *words, "--run-dir", "run", "--follows", str(earlier.run.path)]) == 0
    contents = [one.content for one in server.post.letters if isinstance(one.content, bytes)]
    first, second = (message_from_bytes(one, policy=default) for one in contents)
    assert second["In-Reply-To"] == first["Message-ID"]
    assert second["Subject"] == f"Re: {first['Subject']}"
    assert "This follows the earlier report" in second.get_content()


@pytest.mark.usefixtures("with_raw_output")
def test_no_letter_says_what_the_files_do_not(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.begin("main~3", "main", runs=1)
    desk.go_on()
    (raw,) = Path("run").glob("trials/0003-*/*/fio.json")
    raw.write_text(raw.read_text() + " ")
    assert main(["mail", "--run-dir", "run"]) == 4
    assert "no letter is written, because a file of trial 3 of" in capsys.readouterr().err
