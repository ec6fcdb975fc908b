"""Every fact comes back as it was added, whole or not at all."""

import math
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Compiler, Kind, Mattering, NotChanged
from bisector.core.trial import Control, Stage, Taken, Trial
from bisector.core.verdict import State
from bisector.mail.outbox import DeliveryOutcome, Mail, MailEvent, mails
from bisector.search.noise import EarlierSearches
from bisector.store.facts import (
    Budget,
    BuildTry,
    Compilers,
    Ended,
    Ending,
    Fact,
    InfraFault,
    NumberedTrial,
    RunHeader,
    Skip,
    StateChange,
    Submitted,
    Work,
)
from bisector.store.log import DATABASE, VERSION
from bisector.store.store import Store
from tests.examples import ERA, baseline, cell
from tests.store import examples


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / DATABASE, examples.bisection()) as opened:
        yield opened


GCC, CLANG = Compiler("gcc", "gcc 12.2.0, GNU ld 2.40"), Compiler("clang -O3", "clang 14, GNU ld 2.40")


@pytest.mark.parametrize(
    "facts",
    [
        (EarlierSearches(better=7, better_contradicted=1, worse=5, searches=3, without_change=1),),
        (Mattering(14_565, frozenset(("a" * 40, "b" * 40))),),
        (NotChanged(Kind.REVERTED, "a" * 40, "b" * 40, "conflict"), NotChanged(Kind.PICKED, "a" * 40, "c" * 40, "it")),
        (BuildTry(GCC, "b" * 40, "x.c:1: error: \u2018no\u2019"), BuildTry(CLANG, "a" * 40, "", "e" * 64)),
        (Compilers((CLANG, GCC)),),
        (InfraFault("2026-11-21T04:00:00Z", "a" * 40, Stage.BOOT, "kiste", "libvirt is out of reach"),),
        (Budget(7200.0, 3500.5), Budget(60.0, 9000.0)),
        (StateChange("2026-11-21T04:00:00Z", State.FAILED, "libvirt is out of reach", 17, out_of_time=True),),
    ],
    ids=lambda facts: type(facts[0]).__name__,
)
def test_facts_of_any_kind_come_back_in_order(store: Store, facts: tuple[Fact, ...]) -> None:
    assert store.facts(type(facts[0])) == ()
    for one in facts:
        store.add(one)
    with Store.open(store.path, readonly=True) as reader:
        assert reader.facts(type(facts[0])) == facts


def test_commits_that_a_person_gives_up_on_later_are_skips_like_those_of_the_start(store: Store) -> None:
    asked = examples.bisection()
    store.add(Skip("d" * 40), Skip("e" * 40))
    store.add(Skip("d" * 40))
    assert store.bisection() == replace(asked, skips=(*asked.skips, "d" * 40, "e" * 40))


def test_trials_come_back_in_order_of_measuring(store: Store) -> None:
    added = (
        *(examples.measured(9), examples.faulty(3), examples.stopped(4)),
        *(examples.equal_kernel(5), replace(examples.measured(9), era=ERA), examples.queued(9), examples.imported(1)),
        replace(examples.measured(1), cell=cell(examples.measured(1).commit, Kind.REVERTED, "d" * 40)),
    )
    assert store.next_n == 1
    assert [store.add_trials([trial])[0] for trial in added] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert store.next_n == 9
    assert store.trials() == tuple(enumerate(added, start=1))


def test_trials_are_read_again_only_when_there_are_others(store: Store) -> None:
    def known() -> list[int]:
        assert store.trials() is store.trials()
        return [n for n, _ in store.trials()]

    store.add_trials([examples.measured(9)])
    assert known() == [1]
    store.add_trials([examples.faulty(3)])
    assert known() == [1, 2]
    with Store.open(store.path) as beside:
        beside.add_trials([examples.measured(5)])
    assert known() == [1, 2, 3]


@pytest.mark.parametrize("figure", [math.nan, math.inf])
def test_figures_that_json_cannot_say(store: Store, figure: float) -> None:
    trial = examples.measured(9)
    wrong = replace(trial.runs[-1].jobs[0], iops_mean=figure)
    runs = (*trial.runs[:-1], replace(trial.runs[-1], jobs=(wrong,)))
    with pytest.raises(InfraError, match="figure"):
        store.add_trials([replace(trial, runs=runs)])
    assert store.trials() == ()
    assert store.add_trials([trial])[0] == 1


def test_text_that_is_no_unicode_is_kept_readable(store: Store) -> None:
    trial = examples.faulty(1)
    assert trial.fault is not None
    fault = replace(trial.fault, tail=("\ud800 half a pair", "\0"))
    store.add_trials([replace(trial, fault=fault, cell=cell(replace(trial.commit, subject="caf\udce9")))])
    ((_, kept),) = store.trials()
    assert (kept.commit.subject, kept.fault) == ("caf?", replace(fault, tail=("? half a pair", "\0")))


def test_a_control_comes_back_with_the_trials_that_it_was_asked_about(store: Store) -> None:
    for number in (2, 3, 4):
        store.add_trials([examples.faulty(number)])
    failed = Control("2026-11-21T04:00:00+00:00", "box", "b" * 40, Stage.BUILD, (1, 2), "build error: gelf.h")
    assert not any(trial.doubted or trial.vouched_for for _, trial in store.trials())
    store.add(failed)
    answered = replace(failed, failed="", stage=Stage.BOOT, trials=())
    store.add(answered, NumberedTrial(4, examples.faulty(5), vouched_by=2))
    assert store.controls() == (failed, replace(answered, trials=(4,)))
    trials = dict(store.trials())
    assert [trials[n].control for n in (1, 2, 3, 4)] == [failed, failed, None, replace(answered, trials=(4,))]
    assert [n for n, trial in trials.items() if trial.doubted] == [1, 2]
    assert [n for n, trial in trials.items() if trial.vouched_for] == [4]


def test_numbers_of_trials_in_flight_are_not_given_again(store: Store) -> None:
    """A number is free again when its attempt is known to have come to nothing."""
    assert store.add_trials([examples.measured(1)])[0] == 1
    first = store.add(Submitted(Work.TRIAL, "a" * 40, store.next_n))
    control = store.add(Submitted(Work.CONTROL, "b" * 40, host="box"))
    assert (store.next_n, [one.id for one in store.in_flight()]) == (3, [first, control])
    with Store.open(store.path, readonly=True) as reader:
        assert reader.in_flight() == store.in_flight()
    store.add(Ended(first, Ending.FAILED))
    assert [(one.id, one.fact.work, one.fact.host) for one in store.in_flight()] == [(control, Work.CONTROL, "box")]
    assert store.next_n == 2
    second = store.add(Submitted(Work.TRIAL, "a" * 40, store.next_n))
    assert second not in (first, control)
    store.add(NumberedTrial(2, examples.faulty(2)), Ended(second, Ending.DONE), Ended(control, Ending.LOST))
    assert (store.in_flight(), store.next_n) == ((), 3)


def test_a_submission_ends_once_and_with_what_came_of_it(store: Store) -> None:
    one = store.add(Submitted(Work.TRIAL, "a" * 40, 1))
    store.add(Ended(one, Ending.LOST))
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        store.add(NumberedTrial(1, examples.measured(1)), Ended(one, Ending.DONE))
    assert store.trials() == ()


def test_a_disk_alone_is_no_trial_of_a_commit(store: Store) -> None:
    ssd = replace(baseline("ssd", 5_000.0, 9_000.0), artifacts=examples.measured(1).artifacts)
    assert store.add_trials((examples.measured(1), ssd, examples.measured(3))) == (1, 2, 3)
    assert [n for n, _ in store.trials()] == [1, 3]
    assert store.baselines() == ((2, ssd),)
    assert len(store.artifacts()) == sum(
        len(one.artifacts) for one in (examples.measured(1), ssd, examples.measured(3))
    )


def test_reader_beside_a_writer(store: Store) -> None:
    store.add_trials([examples.measured(1)])
    with Store.open(store.path, readonly=True) as reader:
        assert len(reader.trials()) == 1
        with suppress(KeyboardInterrupt), store.log.transaction():
            store.log.connection.execute("DELETE FROM facts")  # the writer is in the middle of something
            assert len(reader.trials()) == 1
            raise KeyboardInterrupt
        store.add_trials([examples.faulty(2)])
        assert len(reader.trials()) == 2
        with pytest.raises(InfraError, match="readonly"):
            reader.add_trials([examples.measured(3)])


def test_second_writer_that_has_to_wait_too_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisector.store.log._BUSY_S", 0.01)
    with (
        Store.open(store.path) as other,
        store.log.transaction(),
        pytest.raises(InfraError, match="locked by another process"),
    ):
        other.add_trials([examples.measured(1)])


def test_killed_while_creating(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    (tmp_path / (DATABASE + ".new")).write_bytes(b"half a database")
    (tmp_path / (DATABASE + ".new-journal")).write_bytes(b"its journal")
    with pytest.raises(UserError, match="not a run directory"):
        Store.open(path)
    with Store.create(path, examples.bisection()) as store:
        assert store.bisection() == examples.bisection()
    assert [entry.name for entry in tmp_path.iterdir()] == [DATABASE]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (VERSION + 1, "a newer bisector: its version is"),
        *((n, "the last commit that reads it is [0-9a-f]{8}$") for n in (1, 28)),
    ],
)
def test_a_record_of_another_version_is_refused(store: Store, version: int, words: str) -> None:
    store.log.connection.execute(f"PRAGMA user_version = {version}")
    store.close()
    for readonly in (True, False):
        with pytest.raises(UserError, match=words) as caught:
            Store.open(store.path, readonly)
        assert caught.value.hint


def test_a_field_that_is_newer_than_a_record_has_its_default_there(store: Store) -> None:
    """A person who updates in the middle of a long bisection loses nothing."""
    trial = examples.measured(1)
    store.add(NumberedTrial(1, trial))
    newer = ("place", "trial.fill", "trial.queues", "trial.runs[0].counters", "trial.kernel.modules")
    paths = ", ".join(f"'$.{one}'" for one in newer)
    change = f"UPDATE facts SET body = json_remove(body, {paths}) WHERE kind = 'NumberedTrial'"
    assert store.log.connection.execute(change).rowcount == 1
    store.close()
    assert trial.kernel is not None
    first = replace(trial.runs[0], counters=())
    kernel = replace(trial.kernel, modules=None)
    with Store.open(store.path) as opened:
        assert opened.trials() == ((1, replace(trial, kernel=kernel, runs=(first, *trial.runs[1:]))),)


@pytest.mark.parametrize("body", ['{"n": 1}', "[]", "no JSON", '{"n": "one", "trial": {}}'])
def test_a_fact_that_says_something_else_is_damage(store: Store, body: str) -> None:
    insert = "INSERT INTO facts (at, kind, body) VALUES ('', 'Skip', ?)"
    store.log.connection.execute(insert, (body,))
    for _ in range(2):  # asked again, the record does not look as if the fact had never been there
        with pytest.raises(InfraError, match=r"record.sqlite is damaged: fact 2, Skip: ") as caught:
            store.bisection()
        assert ".recover" in caught.value.hint


def test_what_people_ask_in_sql(store: Store) -> None:
    store.add_trials((examples.measured(1), examples.faulty(2)))
    store.close()
    with closing(sqlite3.connect(store.path)) as connection:
        trials = connection.execute("SELECT n, sha, stack, host, stage, fault FROM trials").fetchall()
        figures = connection.execute(
            "SELECT n, run, job, direction, iops_mean FROM figures WHERE run = 'full'"
        ).fetchall()
    measured, faulty = examples.measured(1), examples.faulty(2)
    assert faulty.fault is not None
    assert trials == [
        (n, one.commit.sha, one.setup.stack, one.host, one.stage, one.fault and one.fault.reason)
        for n, one in enumerate((measured, faulty), 1)
    ]
    assert figures == [(1, "full", job.name, job.direction, job.iops_mean) for job in measured.runs[-1].jobs]


def test_what_can_be_searched_follows_from_the_record(tmp_path: Path) -> None:
    """Trials of others that a run takes over from another one do not keep it from measuring."""
    whole = examples.bisection()
    stores: dict[str, tuple[RunHeader, list[Trial], list[Taken], bool]] = {
        "both ends": (whole, [], [], True),
        "no repository": (replace(whole, repository=None), [], [], False),
        "no ends": (replace(whole, old_sha="", new_sha=""), [examples.measured(1)], [], False),
        "results of others": (whole, [examples.imported(1)], [], False),
        "taken over": (whole, [examples.imported(1), examples.measured(2)], [Taken("/run", 3), Taken("/run", 4)], True),
    }
    for name, (asked, trials, taken, is_search) in stores.items():
        with Store.create(tmp_path / name, asked, trials, taken) as store:
            assert (name, store.is_search, store.by_others) == (name, is_search, name == "results of others")


def test_letters_come_back_with_what_became_of_them(store: Store) -> None:
    first, second = (Mail("2026-01-01T00:00:00+00:00", f"<{n}@x>", "found a", f"s{n}", ("<0@x>",)) for n in (1, 2))
    numbers = [store.log.add(mail) for mail in (first, second)]
    assert (mails(store.log)[0].sent, mails(store.log)[0].uncertain) == (False, False)
    sending, sent_ = (DeliveryOutcome.SENDING, True, False), (DeliveryOutcome.SENT, False, True)
    refused, unknown = (DeliveryOutcome.REFUSED, False, False), (DeliveryOutcome.UNKNOWN, True, False)
    told = (sending, refused, sending, unknown, sending, sent_, (DeliveryOutcome.SENDING, True, True))
    for outcome, uncertain, sent in told:
        store.log.add(MailEvent(numbers[1], "now", outcome, ("a@x", "b@x"), "said \udce9"))
        mail = mails(store.log)[1]
        assert (mail.uncertain, mail.sent) == (uncertain, sent)
        assert (mail.events[-1].recipients, mail.events[-1].detail) == (("a@x", "b@x"), "said ?")
    assert replace(mails(store.log)[1], number=0, events=()) == second
    assert mails(store.log)[0].events == ()


def test_database_of_something_else(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        connection.execute("CREATE TABLE cookies (host TEXT)")
    with pytest.raises(UserError, match="something else"):
        Store.open(tmp_path / DATABASE)


def in_the_middle(content: bytearray) -> bytes:
    content[4096 : len(content) - 4096] = b"\x5a" * (len(content) - 8192)
    return bytes(content)


@pytest.mark.parametrize("damage", [in_the_middle, lambda content: b"Dear diary, " * 100], ids=["middle", "all"])
def test_a_damaged_record_is_refused_with_what_saves_the_rest(
    store: Store, damage: Callable[[bytearray], bytes]
) -> None:
    for number in range(60):
        store.add_trials([examples.measured(number)])
    store.close()
    store.path.write_bytes(damage(bytearray(store.path.read_bytes())))
    with pytest.raises(InfraError, match="damaged") as caught:
        Store.open(store.path)
    assert ".recover" in caught.value.hint


KILLED_AT_EACH_STATEMENT = """
import os, signal, sys
from pathlib import Path
from bisector.core.trial import Control
from bisector.store.facts import Ended, Ending, NumberedTrial, Submitted, Work
from bisector.store.store import Store
from tests.store import examples
path = Path(sys.argv[1])
with Store.open(path) as store:
    id_ = store.add(Submitted(Work.TRIAL, "a" * 40, 1))
control = Control("now", "box", "b" * 40, examples.Stage.BOOT, ())
facts = control, NumberedTrial(1, examples.measured(1), vouched_by=1), Ended(id_, Ending.DONE)
for statement in range(1, 1000):
    child = os.fork()
    if child == 0:
        store = Store.open(path)
        seen = 0
        def count(sql):
            global seen
            seen += 1
            if seen == statement:
                os.kill(os.getpid(), signal.SIGKILL)
        store.log.connection.set_trace_callback(count)
        store.add(*facts)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    with Store.open(path) as store:
        left = len(store.trials()), len(store.controls()), len(store.in_flight())
    if os.WIFEXITED(status):
        print("statements", statement - 1, *left)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    if left != (0, 0, 1):
        sys.exit(f"killed at statement {statement} and left {left}")
"""


def test_kill_9_before_each_statement(store: Store) -> None:
    argv = [sys.executable, "-c", KILLED_AT_EACH_STATEMENT, str(store.path)]
    ended = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[2])
    assert ended.stdout == "statements 5 1 1 0\n"  # BEGIN, the control, the trial, the end of its submission, COMMIT


@pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_full_when_a_result_comes_loses_none(tmp_path: Path) -> None:
    """Nor is more submitted then."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "none", tmp_path], check=True)
    try:
        with Store.create(tmp_path / DATABASE, examples.bisection()) as store:
            id_ = store.add(Submitted(Work.TRIAL, "a" * 40, 1))
            filler = tmp_path / "filler"
            filler.write_bytes(bytes(shutil.disk_usage(tmp_path).free))
            store.add(NumberedTrial(1, examples.measured(1)), Ended(id_, Ending.DONE))
            assert store.trials() == ((1, examples.measured(1)),)
            with filler.open("ab") as file:
                file.write(bytes(shutil.disk_usage(tmp_path).free))
            with pytest.raises(InfraError, match=r"no room for results: .* needs 1 MiB"):
                store.add(Submitted(Work.TRIAL, "b" * 40, 2))
            assert store.in_flight() == ()
            filler.unlink()
            store.add(Submitted(Work.TRIAL, "b" * 40, 2))
    finally:
        subprocess.run(["umount", tmp_path], check=True)
