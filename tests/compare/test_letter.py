"""The letter on a comparison: drafted, sent, following another one."""

from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes, message_from_string
from email.policy import default
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core.trial import Trial
from bisector.store.rundir import collect, trial_directory
from bisector.trial.runner import TrialRequest
from bisector.workload.fio import output
from tests.compare import planted
from tests.compare.desk import Desk
from tests.compare.test_report import shown
from tests.mail import servers
from tests.recorded_run import fio_json, found


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


def with_raw_output(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run leaves what fio wrote of it, and has the figures that are read from that."""
    usual, run_dir = desk.bench.measure, desk.place / "run"

    def left(request: TrialRequest) -> Trial:
        made, directory, runs = usual(request), trial_directory(run_dir, request.n, request.commit), []
        for run in made.runs:
            text = fio_json(*(job.iops_mean for job in run.jobs))
            (directory / run.name).mkdir()
            (directory / run.name / "fio.json").write_text(text)
            runs.append(replace(run, jobs=output.parse_json(text)))
        return replace(made, runs=tuple(runs), artifacts=collect(directory, run_dir))

    monkeypatch.setattr(desk.bench, "measure", left)


def test_letter_is_drafted_and_sent_once(
    desk: Desk, server: servers.Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.place)
    with_raw_output(desk, monkeypatch)
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


def test_letter_follows_that_of_another_run(
    desk: Desk, server: servers.Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.place)
    with_raw_output(desk, monkeypatch)
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


def test_no_letter_says_what_the_files_do_not(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.place)
    with_raw_output(desk, monkeypatch)
    desk.begin("main~3", "main", runs=1)
    desk.go_on()
    (raw,) = Path("run").glob("trials/0003-*/*/fio.json")
    raw.write_text(raw.read_text() + " ")
    assert main(["mail", "--run-dir", "run"]) == 4
    assert "no letter is written, because a file of trial 3 of" in capsys.readouterr().err
