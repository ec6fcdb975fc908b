"""What a night tells: drafts, and letters through a real server."""

import email
from collections.abc import Iterator
from dataclasses import replace
from email import policy
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.mail import outbox
from bisector.nightly import plan
from bisector.nightly.night import Mailer
from bisector.nightly.plan import NightJob
from bisector.store.store import Store
from tests.mail import servers
from tests.mail.servers import serving
from tests.recorded_run import RecordedRun, found


@pytest.fixture
def server() -> Iterator[servers.Server]:
    with serving(servers.Post()) as made:
        yield made


@pytest.fixture
def job(tmp_path: Path, server: servers.Server, monkeypatch: pytest.MonkeyPatch) -> NightJob:
    """One whose reports go to a list, and its troubles to a person."""
    monkeypatch.setattr(outbox, "_BETWEEN_ATTEMPTS_S", (0.0,) * 3)
    path = tmp_path / "nightly.toml"
    path.write_text(
        f'[settings.mail]\nhost = "localhost"\nport = {server.port}\nsecurity = "none"\n'
        'from = "Robot <robot@example.org>"\n'
        '[[job]]\nname = "cache"\nrepository = "linux"\nbranch = "main"\nreport = "send"\nto = "list@example.org"\n'
        'notify = "me@example.org"\n'
    )
    return plan.load(path).jobs[0]


def report(record: RecordedRun, job: NightJob) -> str:
    with Store.open(record.run.database) as store:
        return Mailer(record.path / "letters").report(job, record.run, store)


def test_report_is_sent_to_the_list_once(job: NightJob, server: servers.Server, tmp_path: Path) -> None:
    record = found(tmp_path)
    assert report(record, job) == "sent to list@example.org: 2.0.0 queued as 1"
    # Killed before the night's history knew: the run's own record does.
    assert "sent before" in report(record, job)
    assert [letter.rcpt_tos for letter in server.post.letters] == [["list@example.org"]]


def test_report_that_is_a_draft_is_sent_to_nobody(job: NightJob, server: servers.Server, tmp_path: Path) -> None:
    record = found(tmp_path)
    assert report(record, replace(job, report=plan.Send.DRAFT)) == f"draft {record.run.path / outbox.DRAFT}"
    assert not server.post.letters


def test_notice_is_for_the_person_and_not_for_the_list(job: NightJob, server: servers.Server, tmp_path: Path) -> None:
    said = Mailer(tmp_path / "letters").notice(job, "bisector nightly: cache\r\nBcc: all@example.org", "no remote")
    assert said == "sent to me@example.org: 2.0.0 queued as 1"
    (letter,) = server.post.letters
    assert letter.rcpt_tos == ["me@example.org"]
    assert isinstance(letter.content, bytes)
    message = email.message_from_bytes(letter.content, policy=policy.default)
    assert (message["From"], message["To"], message["Bcc"]) == ("Robot <robot@example.org>", "me@example.org", None)
    assert message["Subject"].startswith("bisector nightly: cache")
    assert message.get_content().strip() == "no remote"


def test_notice_without_a_recipient_is_a_draft(job: NightJob, server: servers.Server, tmp_path: Path) -> None:
    said = Mailer(tmp_path / "letters").notice(replace(job, notify=()), "a job failed", "no remote")
    assert said == f"draft {tmp_path}/letters/cache-notice.eml"
    assert not server.post.letters


def test_notice_that_cannot_be_sent_says_so(job: NightJob, server: servers.Server, tmp_path: Path) -> None:
    mail = replace(job.measuring.mail, port=1)
    settings = {way: replace(one, mail=mail) for way, one in job.settings.items()}
    with pytest.raises(InfraError, match="no mail server answers"):
        Mailer(tmp_path / "letters").notice(replace(job, settings=settings), "a job failed", "no remote")
