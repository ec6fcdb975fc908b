"""``report`` and ``mail`` as they are typed."""

import email
import shlex
from collections.abc import Iterator
from dataclasses import replace
from email import policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from bisector.cli import main, parsed
from bisector.core.figures import StopReason
from bisector.core.verdict import State, Verdict
from bisector.mail import smtp
from bisector.mail.outbox import mails
from bisector.status import from_record
from bisector.store.rundir import GIT_LOG
from bisector.store.store import Store
from tests.docs.json_schema import valid
from tests.examples import EARLY
from tests.git import histories
from tests.mail.servers import Post, Server, serving
from tests.recorded_run import FAST, SLOW, RecordedRun, found


@pytest.fixture
def record(home: Path) -> RecordedRun:
    return found(home)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Post()) as made:
        yield made


def run(record: RecordedRun, *words: str) -> int:
    return main([words[0], "--run-dir", str(record.run.path), *words[1:]])


def refused(record: RecordedRun, output: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(record, *words) == 2
    said = output.readouterr().err
    assert said.startswith("bisector: ")
    assert "Traceback" not in said
    return said


def test_a_report_says_that_there_was_no_sandbox(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(found(home, {"kernel.sandbox": "false"}), "report") == 0
    assert "none: make ran what the trees bring along" in capsys.readouterr().out


@pytest.mark.parametrize("state", [State.FOUND, State.STOPPED, State.FAILED, State.NARROWED])
def test_each_format_of_each_state(record: RecordedRun, capsys: pytest.CaptureFixture[str], state: State) -> None:
    record.end(state)
    for form in ("text", "mail", "markdown", "json"):
        assert run(record, "report", "--format", form) == 0
        assert record.shas["c2"][:12] in capsys.readouterr().out
    with Store.open(record.run.database) as store:
        assert mails(store.log) == ()


def test_facts_that_only_files_and_git_know(record: RecordedRun, capsys: pytest.CaptureFixture[str]) -> None:
    run(record, "report", "--format", "json")
    whole = valid("report", capsys.readouterr().out)
    assert [(row["place"], row["n"], row["verdict"]) for row in whole["rows"]] == [
        (0, 1, "old"), (1, 4, "skip"), (2, 3, "old"), (3, 5, "new"), (4, 2, "new"),
    ]  # fmt: skip
    assert whole["hosts"][0]["facts"]["CPU"] == "Example CPU, 4 cores"
    assert whole["storage"] == ["pvcreate /dev/vdb", "mkfs.ext4 /dev/vg/data"]
    assert whole["comparison"]["basis"] == "parent"
    assert whole["origin"] == {"tree": "linux", "branch": "", "url": ""}
    assert whole["workload"]["text"].startswith("; Two jobs")
    assert f"git bisect skip {record.shas['c1']}" in whole["bisect_log"]
    (record.run.path / GIT_LOG).unlink()
    run(record, "report", "--format", "json")
    assert valid("report", capsys.readouterr().out)["bisect_log"] is None


def test_report_into_a_file(record: RecordedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a repository that is gone."""
    assert run(record, "report", "-o", "report.txt") == 0
    assert Path("report.txt").read_text().startswith("Bisection of c0..c4: ")
    assert "make ran what the trees" not in Path("report.txt").read_text()
    assert "cannot write" in refused(record, capsys, "report", "-o", str(tmp_path))
    record.repository.rename(record.repository.with_name("moved"))
    assert run(record, "report") == 0
    said = capsys.readouterr().out
    assert "Verdicts" in said
    assert record.shas["c3"][:12] in said


def test_draft_and_who_would_want_it(record: RecordedRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(record, "mail") == 0
    said = capsys.readouterr().out
    assert f"draft     {record.run.path}/report.eml" in said
    assert "proposed  To: A U Thor <author@example.com>" in said
    assert "has no scripts/get_maintainer.pl" in said
    letter = (record.run.path / "report.eml").read_text()
    assert "\nTo:" not in letter
    assert "Tester <tester@example.org>" in letter


def test_a_draft_with_what_is_doubtful_and_what_is_missing(
    record: RecordedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parent's run was stopped, and the kernel that was measured checks its memory."""
    made = RecordedRun(
        tmp_path / "other",
        histories.linear(5),
        {"storage.stack": "ssd", "bisect.strategy": "git", "workload.full_runs": "true"},
    )
    made.add("c0", SLOW)
    made.add("c4", FAST)
    made.add("c2", SLOW, early=replace(EARLY, reason=StopReason.NOT_ABOVE, bound=1363.0))
    made.add("c3", FAST, more={"kernel.config": "CONFIG_KASAN=y\n", "kernel.defconfig": "CONFIG_SHORT=y\n"})
    made.log(("fixed", "c4"), ("broken", "c0"), ("broken", "c2"), ("fixed", "c3"))
    made.end()
    assert run(made, "mail") == 0
    said = capsys.readouterr().out
    assert "warning   The measured kernel was built with CONFIG_KASAN (checks each memory access)." in said
    parent, culprit = (made.shas[name][:12] for name in ("c2", "c3"))
    (command,) = (line.partition("ask for: ")[2] for line in said.splitlines() if line.startswith("parent "))
    assert command == f"bisector compare {parent} {culprit} --stack ssd --repo {made.repository}"
    assert parsed(shlex.split(command)[1:]).stack == ["ssd"]
    letter = email.message_from_bytes((made.run.path / "report.eml").read_bytes(), policy=policy.default)
    assert isinstance(letter, EmailMessage)
    text, config = letter.iter_parts()
    assert isinstance(text, EmailMessage)
    assert isinstance(config, EmailMessage)
    head = " ".join(text.get_content().split())
    assert head.startswith("The measured kernel was built with CONFIG_KASAN")
    assert f"before: the old end c0 ({made.shas['c0'][:12]}), since the parent has no whole run to compare:" in head
    assert "testcase: fio randread on ssd job:" in head
    assert "disk ssd: 512 MiB, a file on the host file system: mkfs.ext4 /dev/vg/data guest:" in head
    assert config.get_content() == "CONFIG_SHORT=y\n"


def test_send_with_the_settings_of_today(
    record: RecordedRun, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bisector.toml").write_text(
        f"[mail]\nhost = 'localhost'\nport = {server.port}\nsecurity = 'none'\nfrom = 'Me <me@example.org>'\n"
        "[storage.hdd]\npath = '/of/another/machine'\n"
    )
    assert "nobody to send to" in refused(record, capsys, "mail", "--send")  # the proposed ones only when told to
    assert run(record, "mail", "--send", "--to", "a@example.org,B <b@example.org>", "--proposed") == 0
    assert "sent to a@example.org, B <b@example.org>, A U Thor <author@example.com>" in capsys.readouterr().out
    (letter,) = server.post.letters
    assert letter.mail_from == "me@example.org"
    assert letter.rcpt_tos == ["a@example.org", "b@example.org", "author@example.com"]
    assert "was sent" in refused(record, capsys, "mail", "--send", "--to", "a@example.org")


def test_a_login_goes_to_no_server_that_a_record_names(
    tmp_path: Path,
    record: RecordedRun,
    server: Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run directory may come from somebody else, and so may the server in it."""
    monkeypatch.setenv(smtp.USERNAME, "me")
    monkeypatch.setenv(smtp.PASSWORD, "hunter2")
    (tmp_path / "theirs").mkdir()
    settings = {"host": "localhost", "port": str(server.port), "security": "none", "from": "a@b.org"}
    theirs = found(tmp_path / "theirs", {f"mail.{key}": value for key, value in settings.items()})
    assert "no mail server" in refused(theirs, capsys, "mail", "--send", "--to", "c@d.org")
    assert server.post.letters == []
    assert run(theirs, "mail") == 0
    assert "From: a@b.org" in (theirs.run.path / "report.eml").read_text()


def test_settings_that_would_give_a_password_away_are_refused(
    record: RecordedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(record, capsys, "mail", "--set", "mail.host=mail.example.org", "--set", "mail.security=none")
    assert "mail.security = none (--set)" in said
    for key in ("password", "username", "login"):
        Path("bisector.toml").write_text(f"[mail]\nhost = 'localhost'\n{key} = 'hunter2'\n")
        said = refused(record, capsys, "mail")
        assert f"bisector.toml: mail.{key}" in said
        assert "mail.login_file" in said
        assert "hunter2" not in said


def test_a_table_by_another_metric_says_how_the_verdicts_compare(
    record: RecordedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(record, "table", "--metric", "read.clat.p99.00") == 0
    assert run(record, "table", "--metric", "read.bw") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "read.bw empty min/max read.bw full min/max" in said
    assert "MiB/s" in said
    assert "by read.bw of the worst job, improvement from" in said
    assert "all 4 commits are on the side that the verdicts say" in said
    assert run(record, "table") == 0
    assert "seen again" not in capsys.readouterr().out
    for command in ("table", "report"):  # a metric of the run as a whole is of no job
        assert run(record, command, "--metric", "cache.dirty_blocks") == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "cache.dirty_blocks full" in said
        assert "job" not in said.partition("figures")[2].partition("threshold")[0]
        assert "Figures are" not in said


def test_ends_that_lie_close_in_a_metric_are_said_to(record: RecordedRun, capsys: pytest.CaptureFixture[str]) -> None:
    """All runs last the same; the verdicts on record stay what they are."""
    assert run(record, "table", "--json", "--metric", "elapsed") == 0
    whole = valid("table", capsys.readouterr().out)
    assert whole["objective"] == {"metric": "elapsed", "over": "worst", "unit": "s", "better": "lower"}
    assert whole["seen_again"].startswith("by elapsed the ends cannot be told apart: their values lie close")
    assert whole["threshold"] is None
    assert {trial["verdict"] for trial in whole["trials"]} == {"measured", "skip"}
    assert run(record, "report", "--metric", "elapsed") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "means that" not in said  # no side of a line that there is not
    assert "seen again by elapsed the ends cannot be told apart" in said
    assert f"The first fixed commit is {record.shas['c3'][:12]}" in said
    with Store.open(record.run.database) as store:
        verdicts = [shown.verdict for shown in from_record.view(record.run, store).trials]
    assert verdicts.count(Verdict.OLD) == verdicts.count(Verdict.NEW) == 2


def test_a_metric_that_no_run_has_is_refused_with_those_that_there_are(
    record: RecordedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("table", "report"):
        said = refused(record, capsys, command, "--metric", "write.iops")
        assert "has no write.iops" in said
        assert "read.clat.p99" in said
    assert "there is no metric 'iops'" in refused(record, capsys, command, "--metric", "iops")
    assert "--over goes with --metric" in refused(record, capsys, command, "--over", "sum")
    assert "the sum of read.clat.p99" in refused(record, capsys, command, "--metric", "read.clat.p99", "--over", "sum")
    assert "a letter tells of" in refused(record, capsys, "report", "--format", "mail", "--metric", "read.bw")
