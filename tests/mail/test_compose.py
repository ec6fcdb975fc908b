"""A letter as mail programs and servers read it, whatever a commit's author wrote."""

import email
import gzip
import os
import re
import shutil
import subprocess
from dataclasses import replace
from email import policy
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisector.core.objective import Objective
from bisector.core.subject import Commit
from bisector.mail import compose
from bisector.mail.compose import parse, usable
from bisector.report.document import Envelope, Report
from bisector.status.view import TrialView
from tests.examples import cell
from tests.report import comparison_examples, documents, examples
from tests.report.examples import COMMITS

GIT = shutil.which("git") or "git"
SEND_EMAIL = Path(subprocess.run([GIT, "--exec-path"], capture_output=True, text=True, check=True).stdout.strip(),
                  "git-send-email")  # fmt: skip
HEADERS = {"From", "To", "Cc", "Subject", "Date", "Message-ID", "Content-Type", "Content-Transfer-Encoding",
           "MIME-Version"}  # fmt: skip
CONFIG = 'CONFIG_CC_VERSION_TEXT="gcc 12"\n# CONFIG_KASAN is not set\n'
HOSTILE = (
    "x\r\nBcc: victim@example.com\r\n\r\nbody",
    "x\nBcc: victim@example.com",
    "x\rBcc: victim@example.com",
    "x\u2028Bcc: victim@example.com\x85Bcc: y@example.com\x0bBcc: z@example.com",
    "=?utf-8?q?x=0D=0ABcc:_victim@example.com?=",
    "=?utf-8?b?QmNjOiB2aWN0aW0=?= dm: 中文 \U0001f4a3" + "é" * 200,
    "lone \udce9 surrogate, \x00 and \x1b[31m",
    "x" * 3000,
    "",
)


def parsed(made: Report) -> EmailMessage:
    message = email.message_from_bytes(compose.message(made).as_bytes(), policy=policy.default)
    assert isinstance(message, EmailMessage)
    return message


def with_subject(subject: str) -> Report:
    commit = replace(examples.COMMITS[3], subject=subject)
    whole = examples.found()
    trials = tuple(replace(one, trial=replace(one.trial, cell=cell(commit))) if one.trial.commit == examples.COMMITS[3]
                   else one for one in whole.trials)  # fmt: skip
    return documents.document(replace(whole, trials=trials, first_fixed=commit), (examples.COMMITS[2],))


@pytest.mark.parametrize("subject", HOSTILE, ids=range(len(HOSTILE)))
def test_subject_of_a_commit_forges_no_header(subject: str) -> None:
    """The headers are ours and nobody else's, and each is one that servers take."""
    made = with_subject(subject)
    message = parsed(made)
    assert set(message.keys()) == HEADERS
    assert not message.defects
    assert message["Subject"].split() == compose.subject(made).split()
    assert "=?" not in compose.subject(made)
    assert [address.addr_spec for address in message["To"].addresses] == ["author@example.com"]
    head, _, body = compose.message(made).as_bytes().partition(b"\n\n")
    assert b"\r" not in head
    assert all(re.match(rb"[A-Za-z-]+: \S|[ \t]+\S", line) for line in head.split(b"\n"))
    assert all(byte < 128 for byte in head)
    assert all(len(line) <= 998 for line in body.split(b"\n"))


@settings(max_examples=25, deadline=None)
@given(st.text(st.sampled_from('a :=?_\r\n\t\x0b\x85\u2028é中<>@,;"\\()[]qQbB.'), max_size=60))
def test_no_name_forges_a_header(name: str) -> None:
    """Names are an author's to choose; what is no address after all is left out."""
    to = tuple(usable([f"{name} <author@example.com>"]))
    made = documents.found()
    envelope = replace(documents.ENVELOPE, to=("author@example.com",), cc=to)
    message = parsed(replace(made, envelope=envelope))
    assert set(message.keys()) <= HEADERS
    assert not message.defects
    asked = {address.addr_spec for text in to for address in parse([text])}
    assert {address.addr_spec for address in message["Cc"].addresses if message["Cc"]} == asked if to else True


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_read_back(name: str) -> None:
    made = documents.DOCUMENTS[name]()
    assert made.envelope is not None
    message = parsed(made)
    assert message.get_content_type() == "text/plain"
    assert message.get_content_charset() == "utf-8"
    assert "format" not in message["Content-Type"].params
    assert message["Message-ID"] == made.envelope.message_id
    assert str(message["From"]) == "Günter Tester <tester@example.org>"
    assert message.get_content() == compose.body(made, made.envelope)


def test_long_threads_keep_their_message_ids_whole() -> None:
    ids = tuple(f"<{number:024x}@mail-relay-with-a-long-name.example>" for number in range(12))
    envelope = replace(documents.ENVELOPE, references=ids, subject="[x] y", message_id=ids[0])
    text = compose.render(replace(documents.found(), envelope=envelope))
    head = text.partition("\n\n")[0]
    assert "=?utf-8?" not in head.partition("References:")[2].partition("\nContent")[0]
    message = email.message_from_string(text, policy=policy.default)
    assert message["References"].split() == list(ids)
    assert message["In-Reply-To"].strip() == ids[-1]


def test_line_that_no_server_takes_is_cut() -> None:
    made = replace(documents.found(), bisect_log=f"# {'é' * 2000}\nlast")
    assert made.envelope is not None
    lines = compose.body(made, made.envelope).encode().split(b"\n")
    assert max(map(len, lines)) == 989
    assert b"    last" in lines


def test_tags_are_suggestions_and_regzbots_alone_is_our_own_if_asked_for() -> None:
    made = documents.regression()
    assert made.envelope is not None
    text, quiet = (compose.body(made, replace(made.envelope, regzbot=asked)) for asked in (True, False))
    assert "\n\n#regzbot introduced: 3a5b3c7d9e1f\n\n" in text
    assert "#regzbot" not in quiet
    link = made.envelope.message_id.strip("<>")
    assert f"| Closes: https://lore.kernel.org/r/{link}\n" in text
    assert '| Fixes: 3a5b3c7d9e1f ("dm cache policy smq: demote when the cache is full")\n' in text
    assert not re.search(r"^(Fixes|Reported-by|Closes|Link):", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("subject", "tag"),
    [
        ("dm cache policy smq: demote", "[dm cache policy smq] "),
        ("drm/i915: gem: do this", "[drm/i915] "),
        ("Merge tag 'x' of git://y: z", ""),
        ("Linux 5.1-rc1", ""),
        (f"{'long ' * 12}: x", ""),
        (": x", ""),
    ],
)
def test_subsystem_in_the_subject(subject: str, tag: str) -> None:
    assert (
        compose.headline(with_subject(subject)) == f"[linus:master] {tag}3a5b3c7d9e1f: fio.read_iops 4.0x improvement"
    )


def test_long_headers_begin_beside_their_names() -> None:
    """Below its name, where Python puts it, git send-email does not find a subject."""
    made = with_subject("dm cache smq: a subject of 75 characters")
    assert made.envelope is not None
    long = replace(made.envelope, sender=f"{'A Tester of Kernels ' * 3} <tester@{'long.' * 4}example.org>")
    head = compose.render(replace(made, envelope=long)).partition("\n\n")[0]
    assert "Subject: [linus:master] [dm cache smq] 3a5b3c7d9e1f: fio.read_iops 4.0x\n improvement\n" in head
    assert re.search(r"^From: A Tester .*\n .*<tester@", head, re.MULTILINE)
    assert max(map(len, head.split("\n"))) <= 78
    sent = compose.message(made)
    wire = sent.as_bytes(policy=sent.policy.clone(linesep="\r\n"))
    assert b"fio.read_iops 4.0x\r\n improvement\r\n" in wire


@pytest.mark.skipif(not SEND_EMAIL.exists(), reason="git send-email is not installed (Debian: git-email)")
@pytest.mark.parametrize(
    ("subject", "config"), [(HOSTILE[0], ""), ("dm cache smq: a subject of 75 characters", CONFIG)]
)
def test_git_send_email_takes_the_draft(tmp_path: Path, subject: str, config: str) -> None:
    draft = tmp_path / "report.eml"
    made = with_subject(subject)
    draft.write_text(compose.render(replace(made, envelope=replace(documents.ENVELOPE, config=config))), "utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "EMAIL": "tester@example.org"}
    words: list[str | Path] = [GIT, "-C", tmp_path, "send-email", "--dry-run", "--confirm=never",
             "--suppress-cc=all", "--smtp-server=localhost", "--to=someone@example.org", draft]  # fmt: skip
    seen = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert seen.returncode == 0, seen.stderr
    assert "someone@example.org" in seen.stdout
    assert "victim" not in seen.stdout


def test_the_first_lines_say_what_others_ask_back() -> None:
    """What ran, on which disks, how the file system was made, in which guest, how often, of which tree."""
    made = documents.found()
    (host,) = made.hosts
    storage = ("lvcreate x", "mkfs.ext4 -q -O ^metadata_csum /dev/x", "mount -t ext4 -o noatime /dev/x /mnt", "stat")
    made = replace(made, storage=storage, hosts=(replace(host, facts=(*host.facts, ("guest", "2 CPUs, 1024 MiB"))),))
    head = compose.body(made, documents.ENVELOPE).partition("Details are as below:")[0].splitlines()
    lines = (
        "testcase: fio randread on lvmcache",
        "disk hdd: 1 GiB, a file on the host, 1,000 IOPS at most",
        "file system: mkfs.ext4 -q -O ^metadata_csum /dev/x; mount -t ext4 -o noatime /dev/x /mnt",
        "guest: 2 CPUs, 1024 MiB, tcg, QEMU 7.2.22",
        "tree: linus:master, v5.0..v5.1-rc1",
        "before: the parent 2a5b3c7d9e1f: 1,002 IOPS in 1 trial",
        "after: 3a5b3c7d9e1f: 4,206 IOPS in 2 trials (4,012 to 4,400 IOPS, stddev",
    )
    assert [line for line in lines if line not in head] == []


@pytest.mark.parametrize(
    ("parents", "first_row", "said"),
    [
        ((COMMITS[2],), 0, "before: the old end v5.0 (0a5b3c7d9e1f), since the parent was not measured: 4,006 IOPS"),
        ((), 0, "before: the old end v5.0 (0a5b3c7d9e1f), since no repository tells the parent: 4,006 IOPS"),
        ((COMMITS[0],), 0, "before: the parent 0a5b3c7d9e1f: 4,006 IOPS"),
        ((COMMITS[2],), 1, ""),
    ],
)
def test_what_stands_for_the_parent_is_said_first(parents: tuple[Commit, ...], first_row: int, said: str) -> None:
    made = documents.regression()
    made = replace(made, parents=parents, rows=made.rows[first_row:])
    head = compose.body(made, documents.ENVELOPE).partition("testcase:")[0]
    assert said in " ".join(head.split())
    assert ("before:" in head) is bool(said)


@pytest.mark.parametrize(
    ("config", "defconfig", "name", "eight_bit"),
    [
        (CONFIG, "CONFIG_MD=y\n", "defconfig.txt", True),
        (CONFIG, "CONFIG_MD=y\n" * 9000, "defconfig.gz", False),
        (CONFIG, "", "config.txt", False),
        (CONFIG.replace("gcc 12", "gcc é"), "", "config.txt", False),
        (CONFIG.replace("gcc 12", "x" * 1200), "", "config.txt", True),
        (CONFIG * 1500, "", "config.gz", True),
    ],
)
def test_the_configuration_is_attached_behind_the_text(config: str, defconfig: str, name: str, eight_bit: bool) -> None:
    made = documents.found()
    alone = compose.body(made, documents.ENVELOPE)
    made = replace(made, envelope=replace(documents.ENVELOPE, config=config, defconfig=defconfig))
    written = compose.message(made, eight_bit=eight_bit).as_bytes()
    assert eight_bit or all(byte < 128 for byte in written)
    assert max(map(len, written.split(b"\n"))) <= 998
    message = email.message_from_bytes(written, policy=policy.default)
    assert isinstance(message, EmailMessage)
    assert (message.get_content_type(), message.defects) == ("multipart/mixed", [])
    text, attached = message.iter_parts()
    assert isinstance(text, EmailMessage)
    assert (text.get_content_type(), text.get_content()) == ("text/plain", alone)
    assert isinstance(attached, EmailMessage)
    assert attached.get_filename() == name
    content = attached.get_content()
    assert (content if isinstance(content, str) else gzip.decompress(content).decode()) == (defconfig or config)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("# CONFIG_KASAN is not set\nCONFIG_DEBUG_KERNEL=y\nCONFIG_DEBUG_INFO=y\n", ()),
        ("CONFIG_KASAN=y\nCONFIG_XFS_DEBUG=y\n", ("CONFIG_KASAN (checks each memory access)", "CONFIG_XFS_DEBUG (")),
        ("CONFIG_UBSAN=y\nCONFIG_UBSAN_BOUNDS=y\n# CONFIG_UBSAN_ALIGNMENT is not set\n", ()),
        ("CONFIG_UBSAN=y\nCONFIG_UBSAN_SANITIZE_ALL=y\n", ("CONFIG_UBSAN (",)),
        ("CONFIG_PROVE_LOCKING=y\nCONFIG_LOCKDEP=y\n", ("CONFIG_PROVE_LOCKING (", "CONFIG_LOCKDEP (")),
    ],
)
def test_options_for_finding_bugs_are_the_first_thing_said(config: str, told: tuple[str, ...]) -> None:
    envelope = replace(documents.ENVELOPE, config=config)
    head = " ".join(compose.body(documents.found(), envelope).partition("bisector noticed")[0].split())
    assert head.startswith("The measured kernel was built with CONFIG_") is bool(told)
    assert head.count(" (") == len(told)
    assert all(one in head for one in told)


def test_a_letter_by_a_latency_names_it_and_its_unit() -> None:
    """Its jobs take 8 s over their IOPS for each I/O: where IOPS grew, the latency fell, and that is better."""
    found = documents.found()

    def by_latency(shown: TrialView) -> TrialView:
        runs = tuple(
            replace(run, jobs=tuple(replace(job, clat_mean_ns=8e9 / job.iops_mean) for job in run.jobs))
            for run in shown.trial.runs
        )
        return replace(shown, trial=replace(shown.trial, runs=runs))

    view = replace(found.bisection, objective=Objective("read.clat.mean"), threshold=4e6, baselines=())
    view = replace(view, trials=tuple(map(by_latency, view.trials)))
    rows = tuple(replace(row, shown=by_latency(row.shown)) for row in found.rows)
    made = replace(found, bisection=view, rows=rows, disks=())
    assert compose.headline(made).endswith(": fio.read_clat_mean_us 4.2x improvement")
    text = " ".join(compose.body(made, documents.ENVELOPE).split())
    assert "noticed a 4.2x improvement of fio.read_clat_mean_us on" in text
    assert "read.clat.mean of the worst job in the full run was below 4.00 ms" in text
    assert "figures read.clat.mean of each job, the worst first" in text
    assert "read.clat.mean full max/min" in text
    assert " IOPS" not in text.partition("To reproduce")[0].replace("write_iops_log", "")


def test_letter_of_a_comparison_is_ascii_but_for_what_others_wrote() -> None:
    """A table can be quoted in a mail of whatever charset; a job file is shown as it is."""
    made = comparison_examples.matrix()
    job = replace(made.workloads[0], text="# 5 µs\n[partial]\n")
    envelope = Envelope("Somebody <some@body.example>", "<1@body.example>", "Mon, 02 Mar 2026 10:00:00 +0000")
    lines = compose.message(replace(made, workloads=(job,), envelope=envelope)).get_content().splitlines()
    assert [line for line in lines if not line.isascii()] == ["    # 5 µs"]
    assert any("same +-5 %" in line for line in lines)
    assert any(" 47.5 us " in line for line in lines)
    assert max(map(len, lines[: lines.index("Exploratory: other figures")])) <= 80
