"""Each report once, whatever happens on the way; and in its thread when a later one says more."""

import email
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from email import policy
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from bisector.config import MailSettings, Security
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Event, Note
from bisector.core.verdict import Direction, State
from bisector.mail import compose, outbox, smtp
from bisector.mail.outbox import DRAFT, Delivery, DeliveryOutcome, Mail, Post
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests import fakes
from tests.git import histories
from tests.mail import servers
from tests.mail.servers import serving
from tests.recorded_run import FAST, RecordedRun, found
from tests.report import documents
from tests.report.examples import BELIEF, COMMITS

GIT = {"bisect.strategy": "git"}  # a letter is the same, and no search is weighed for it
TO = Delivery(to=("Reader <reader@example.org>",))


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_BETWEEN_ATTEMPTS_S", (0.0,) * 3)


@pytest.fixture
def record(tmp_path: Path) -> RecordedRun:
    return found(tmp_path, GIT)


@pytest.fixture
def server() -> Iterator[servers.Server]:
    with serving(servers.Post()) as made:
        yield made


def settings(port: int = 25) -> MailSettings:
    return MailSettings("localhost", port, Security.NONE, "Tester <tester@example.org>", None)


@contextmanager
def opened(run: RunDirectory, port: int = 25, delivery: Delivery = TO) -> Iterator[Post]:
    with Store.open(run.database) as store:
        yield Post(run, store, settings(port), delivery)


def send(record: RecordedRun, server: servers.Server, delivery: Delivery = TO) -> str:
    with opened(record.run, server.port, delivery) as post:
        return post.send(None)


def mails(record: RecordedRun) -> tuple[Mail, ...]:
    with Store.open(record.run.database) as store:
        return outbox.mails(store.log)


def outcomes(record: RecordedRun) -> list[DeliveryOutcome]:
    return [event.outcome for mail in mails(record) for event in mail.events]


def taken(server: servers.Server) -> list[Message]:
    contents = [letter.content for letter in server.post.letters]
    return [email.message_from_bytes(one, policy=policy.default) for one in contents if isinstance(one, bytes)]


def correct(record: RecordedRun) -> None:
    """A later look says that it is a commit of a set, with another one."""
    record.end(State.NARROWED)


def test_draft_is_a_letter_to_nobody_and_its_message_id_stays(record: RecordedRun) -> None:
    with opened(record.run, delivery=Delivery()) as post:
        path, _ = post.draft()
    first = email.message_from_bytes(path.read_bytes(), policy=policy.default)
    assert path == record.run.path / DRAFT
    assert (first["To"], first["Cc"]) == (None, None)
    with opened(record.run) as post:
        post.draft()
    second = email.message_from_bytes(path.read_bytes(), policy=policy.default)
    assert first["Message-ID"] == second["Message-ID"]
    (mail,) = mails(record)
    assert (mail.message_id, mail.events) == (str(first["Message-ID"]), ())
    assert f"https://lore.kernel.org/r/{mail.message_id.strip('<>')}" in path.read_text(encoding="utf-8")


def test_end_of_a_bisection_leaves_a_draft_that_may_be_edited_or_says_why_not(record: RecordedRun) -> None:
    draft = record.run.path / DRAFT

    def left() -> str:
        told: list[Event] = []
        with Store.open(record.run.database) as store:
            outbox.leave_draft(record.run, store, told.append)
        (note,) = told
        assert isinstance(note, Note)
        return note.text

    assert left().startswith("draft of")
    draft.write_text(draft.read_text(encoding="utf-8") + "Regards, Anna\n", encoding="utf-8")
    assert "stays as it is; bisector mail writes it anew" in left()
    assert draft.read_text(encoding="utf-8").endswith("Regards, Anna\n")
    correct(record)
    assert left().startswith("draft of")
    assert "Regards, Anna" not in draft.read_text(encoding="utf-8")
    draft.unlink()
    next(record.run.path.glob("trials/0005-*/full/fio.json")).unlink()
    assert left().startswith("no draft of a report by mail: no letter is written")
    assert not draft.exists()


def test_disk_that_takes_no_draft_and_a_sender_that_is_none_are_said(record: RecordedRun) -> None:
    (record.run.path / DRAFT).mkdir()
    with opened(record.run) as post:
        with pytest.raises(InfraError, match=f"{DRAFT}.*: Is a directory"):
            post.draft()
        with pytest.raises(UserError, match=r"mail\.from: 'nobody' is not a mail address"):
            replace(post, mail=replace(settings(), sender="nobody")).draft()


@pytest.mark.parametrize(("host", "sender"), [("build-7", "tester@build-7"), ("my_box", "bisector@localhost")])
def test_sender_of_a_person_who_never_said_who_it_is(
    record: RecordedRun, monkeypatch: pytest.MonkeyPatch, host: str, sender: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    monkeypatch.setenv("LOGNAME", "tester")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(record.path / "none"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    for name in ("EMAIL", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_NAME"):
        monkeypatch.delenv(name, raising=False)
    histories.git(record.repository, "config", "user.useConfigOnly", "true")
    with Store.open(record.run.database) as store:
        made = Post(record.run, store, replace(settings(), sender=None), TO).report()
    assert made.envelope is not None
    assert made.envelope.sender == sender


def test_sent_once(record: RecordedRun, server: servers.Server) -> None:
    assert send(record, server) == "2.0.0 queued as 1"
    with pytest.raises(UserError, match=r"was sent .* to reader@example.org") as caught:
        send(record, server, Delivery(to=("other@example.org",)))
    assert "--again" in caught.value.hint
    assert len(server.post.letters) == 1
    assert outcomes(record) == [DeliveryOutcome.SENDING, DeliveryOutcome.SENT]


def test_temporary_refusals_are_waited_out_and_a_permanent_one_is_not(
    record: RecordedRun, server: servers.Server
) -> None:
    server.post.to_letter = ["554 spam", "554 spam"]
    with pytest.raises(smtp.Refused, match="554 spam"):
        send(record, server)
    assert server.post.to_letter == ["554 spam"]
    server.post.to_recipient = ["450 greylisted", "450 greylisted"]
    server.post.to_letter = ["451 busy"]
    send(record, server)
    assert len(server.post.letters) == 1
    refused, taken = (["sending", outcome] for outcome in ("refused", "sent"))
    assert outcomes(record) == [*refused, *refused * 3, *taken]


@pytest.mark.parametrize(
    ("delivery", "host", "why"),
    [
        (Delivery(), "localhost", "nobody to send to"),
        (TO, "", "no mail server to send with"),
        (replace(TO, regzbot=True), "localhost", "regzbot tracks regressions"),
    ],
)
def test_what_cannot_be_sent(record: RecordedRun, delivery: Delivery, host: str, why: str) -> None:
    with Store.open(record.run.database) as store, pytest.raises(UserError, match=why):
        Post(record.run, store, replace(settings(), host=host), delivery).send(None)
    assert mails(record) == ()


@pytest.mark.parametrize("where", ["data", "answer"])
def test_cut_in_the_middle_of_a_letter_is_never_repeated_unasked(
    record: RecordedRun, server: servers.Server, where: str
) -> None:
    server.post.cut_at = where
    with pytest.raises(smtp.Uncertain) as caught:
        send(record, server)
    assert mails(record)[0].message_id in caught.value.hint
    server.post.cut_at = ""
    with pytest.raises(UserError, match="may have been sent") as refused:
        send(record, server)
    assert "--again" in refused.value.hint
    assert server.post.letters == []
    for _ in range(2):
        send(record, server, replace(TO, again=True))
    first, second = taken(server)
    assert (second["Message-ID"], second["In-Reply-To"]) == (first["Message-ID"], None)


@pytest.mark.parametrize("sent", [False, True])
def test_kill_between_sending_and_noting(
    record: RecordedRun, server: servers.Server, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    """Killed before the server has it, or after: the record says the same, and the next process asks a person."""
    real = smtp.send

    def killed(*words: Any) -> str:
        if sent:
            real(*words)
        raise fakes.Killed

    monkeypatch.setattr(smtp, "send", killed)
    with pytest.raises(fakes.Killed):
        send(record, server)
    monkeypatch.undo()
    assert outcomes(record) == [DeliveryOutcome.SENDING]
    with pytest.raises(UserError, match="may have been sent"):
        send(record, server)
    assert len(server.post.letters) == int(sent)


def test_withdrawal_goes_into_the_thread(record: RecordedRun, server: servers.Server) -> None:
    send(record, server)
    record.add("c2", FAST)  # a second sound measurement does not change what counts; the state does
    correct(record)
    send(record, server)
    first, second = taken(server)
    assert (second["In-Reply-To"], second["References"]) == (first["Message-ID"], first["Message-ID"])
    assert second["Message-ID"] != first["Message-ID"]
    assert second["Subject"] == f"Re: {first['Subject']}"
    assert "This corrects the earlier report" in str(second.get_payload())
    record.end(State.FOUND)
    send(record, server)
    third = taken(server)[2]
    assert third["References"].split() == [first["Message-ID"], second["Message-ID"]]
    assert len({letter["Message-ID"] for letter in taken(server)}) == 3


@pytest.mark.parametrize(
    ("earlier", "now", "words"),
    [
        ("found a1", "found-confirmed a1", "This confirms the earlier report, which named a1"),
        ("found a1", "found a1", "another bisection names a1, too"),
        ("found-confirmed a1", "found a1", "This corrects"),
        ("found-confirmed a1", "narrowed b2 a1", "This corrects"),
        ("found a1", "found-confirmed b2", "This withdraws the earlier report: a1 is not"),
        ("narrowed a1 b2", "found-confirmed b2", "This corrects the earlier report, which named a1, b2"),
        ("narrowed", "found b2", "This corrects the earlier report, which named no commit"),
        ("narrowed", "narrowed", "another bisection says so, too"),
    ],
)
def test_what_a_later_letter_means_for_the_one_before(earlier: str, now: str, words: str) -> None:
    assert words in compose.follows(earlier, now)


def test_confirmed_answer_is_another_claim() -> None:
    made = documents.believed()
    beliefs = (None, BELIEF, replace(BELIEF, confirmed=()))
    claims = {compose.claim_of(replace(made, bisection=replace(made.bisection, belief=belief))) for belief in beliefs}
    assert claims == {f"found {COMMITS[3].sha}", f"found-confirmed {COMMITS[3].sha}"}


@pytest.mark.parametrize(("culprit", "words"), [("c3", "This confirms"), ("c4", "This withdraws")])
def test_another_run_follows_up(tmp_path: Path, server: servers.Server, culprit: str, words: str) -> None:
    first_run = found(tmp_path, GIT)
    send(first_run, server)
    again = replace_run(tmp_path, first_run, culprit)
    send(again, server, replace(TO, follows=first_run.run))
    first, second = taken(server)
    assert second["In-Reply-To"] == first["Message-ID"]
    assert words in str(second.get_payload())
    with pytest.raises(UserError, match="was sent"):
        send(again, server)


def replace_run(path: Path, first: RecordedRun, culprit: str) -> RecordedRun:
    """Another record over the same repository, with an answer of its own."""
    (path / "again").mkdir()
    (path / "again" / "linux").symlink_to(first.repository)
    other = RecordedRun(path / "again", first.nodes, GIT)
    for name in ("c0", "c4", "c2", "c3"):
        slow = name < culprit
        other.add(name, (1002.3, 8046.0) if slow else FAST)
    other.end()
    return other


def test_nothing_can_follow_a_run_that_sent_nothing(record: RecordedRun) -> None:
    with (
        opened(record.run, delivery=replace(TO, follows=record.run)) as post,
        pytest.raises(UserError, match=r"no report of .* was sent, so nothing can follow it"),
    ):
        post.draft()


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED])
def test_nothing_to_tell_yet(record: RecordedRun, server: servers.Server, state: State) -> None:
    record.end(state)
    with pytest.raises(UserError, match=f"the bisection is {state}"):
        send(record, server)


def test_record_that_its_files_do_not_bear_out_is_told_to_nobody(record: RecordedRun, server: servers.Server) -> None:
    (raw,) = record.run.path.glob("trials/0005-*/full/fio.json")
    raw.write_text(raw.read_text().replace("4006.0", "4007.0"))
    with pytest.raises(InfraError, match="SHA-256"):
        send(record, server)
    assert (server.post.letters, mails(record)) == ([], ())
    assert not (record.run.path / DRAFT).exists()


@pytest.mark.parametrize("cc", [(), ("dm@example.org", "Regressions <regressions@lists.linux.dev>")])
def test_regzbot_reads_its_list_alone(tmp_path: Path, server: servers.Server, cc: tuple[str, ...]) -> None:
    record = found(tmp_path, {**GIT, "bisect.expect": Direction.REGRESSION.value})
    send(record, server, replace(TO, cc=cc, regzbot=True))
    (letter,), (sent,) = taken(server), server.post.letters
    lists = [one for one in sent.rcpt_tos if one == "regressions@lists.linux.dev"]
    assert lists == ["regressions@lists.linux.dev"]
    assert str(letter["Cc"]).count(lists[0]) == 1
    introduced = f"#regzbot introduced: {record.shas['c3'][:12]}"
    assert introduced in bytes(letter.get_payload(decode=True)).decode()


def test_regzbot_gets_no_range_in_which_nothing_changed(record: RecordedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    made = documents.no_change()
    slower = replace(made.bisection, direction=Direction.REGRESSION)
    monkeypatch.setattr("bisector.report.reporting.report", lambda *_: replace(made, bisection=slower))
    asked = replace(TO, regzbot=True)
    with opened(record.run, delivery=asked) as post, pytest.raises(UserError, match="nothing in this range is one"):
        post.draft()
