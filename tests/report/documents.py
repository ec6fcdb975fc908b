"""Reports of invented bisections; ``python -m tests.report.documents`` writes the golden files anew."""

from dataclasses import replace
from pathlib import Path

from bisector.analysis.judgement import classify
from bisector.commands.report import RENDERERS, Format
from bisector.core.figures import Contention
from bisector.core.objective import Objective
from bisector.core.subject import Commit
from bisector.core.verdict import Direction, Verdict
from bisector.git.repository import ShownCommit
from bisector.report.document import Envelope, JobFile, MeasuringHost, PlacedTrial, Report, Request, TreeOrigin
from bisector.status.view import BisectionView, LevelView, TrialView
from tests.analysis.recorded import RECORDED, fio_2_run
from tests.examples import baseline
from tests.examples import trial as made_trial
from tests.report import examples

GOLDEN = Path(__file__).parent.parent / "data" / "report"
SUFFIXES = {Format.TEXT: "txt", Format.MAIL: "eml", Format.MARKDOWN: "md", Format.JSON: "json"}
LOG = """\
git bisect start '--no-checkout' '--term-old' 'broken' '--term-new' 'fixed'
# fixed: [5a5b3c7d9e1f] Linux 5.1-rc1
git bisect fixed 5a5b3c7d9e1f5a5b3c7d9e1f5a5b3c7d9e1f0000
"""
ENVELOPE = Envelope(
    sender="Günter Tester <tester@example.org>",
    message_id="<0123456789abcdef01234567@example.org>",
    date="Sun, 01 Mar 2026 11:00:00 +0000",
    to=("A U Thor <author@example.com>",),
    cc=("dm-devel@lists.example.org",),
)

ANSWER = ShownCommit(
    "A U Thor",
    "2026-01-10T09:00:00+01:00",
    (("Link", "https://lore.example.org/r/1@example.com"), ("Fixes", '0a5b3c7d9e1f ("Linux 5.0")')),
    "1 file changed, 1 insertion(+), 1 deletion(-)",
    ("--- a/drivers/md/dm.c", "+++ b/drivers/md/dm.c", "@@ -1 +1 @@", "-one", "+two"),
    cut=False,
)
IOPS = Objective()


def document(view: BisectionView, parents: tuple[Commit, ...] = ()) -> Report:
    places = {commit.sha: place for place, commit in enumerate(examples.COMMITS)}
    rows = sorted((PlacedTrial(places.get(shown.trial.commit.sha), shown) for shown in view.trials), key=_order)
    return Report(
        bisection=view,
        rows=tuple(rows),
        asked=Request("v5.0", "v5.1-rc1", (), (), False, "bisector start v5.0 v5.1-rc1 --threshold 2003.1"),
        origin=TreeOrigin("linus", "master", "https://git.example.org/torvalds/linux.git"),
        workload=JobFile("partial.fio", "[partial]\nnumjobs=2\nrw=randread\n", (("RUNTIME", "40"),)),
        storage=("vgcreate test /dev/vdb /dev/vdc", "lvconvert --type cache test/data"),
        kernel=(("kconfig", "everything off, then tiny, vm"),),
        hosts=(
            MeasuringHost(
                "box (Example CPU)",
                len(rows),
                (("CPU", "Example CPU, 4 cores"), ("accelerator", "tcg, QEMU 7.2.22")),
                (Contention(0.02, 0.0, 0.015), Contention(0.11, 0.003, 0.04, 1612.4, 1640.2)),
            ),
        ),
        bisect_log=LOG,
        tool_version="0.1.0",
        parents=parents,
        envelope=ENVELOPE,
        answer=ANSWER if view.first_fixed is not None else None,
        testcase="fio randread on lvmcache",
        disks=(("ssd", "512 MiB, a file on the host"), ("hdd", "1 GiB, a file on the host, 1,000 IOPS at most")),
    )


def _order(row: PlacedTrial) -> int:
    return len(examples.COMMITS) if row.place is None else row.place


def found() -> Report:
    again = examples.judged(5, examples.COMMITS[3], Verdict.NEW, (3980.0, 6941.0), (4400.0, 7001.0))
    whole = examples.found()
    new = examples.COMMITS[-1]
    disks = (baseline("ssd", 5012.0, 9310.5, of=new), baseline("hdd", 500.5, 501.0, of=new))
    levels = (LevelView(1001.6, 1002.0, 2), LevelView(4006.0, 4400.0, 3))
    view = replace(whole, trials=(*whole.trials, again), baselines=disks, levels=levels)
    return document(view, (examples.COMMITS[2],))


def narrowed() -> Report:
    return document(examples.narrowed())


def regression() -> Report:
    made = document(examples.regression(), (examples.COMMITS[2],))
    thread = ("<first@example.org>", "<second@example.org>")
    envelope = replace(
        ENVELOPE, regzbot=True, references=thread, subject="[linus:master] an earlier one", follows="This withdraws it."
    )
    return replace(made, envelope=envelope)


def running() -> Report:
    return document(examples.empty())


def believed() -> Report:
    return document(examples.believed(), (examples.COMMITS[2],))


def no_change() -> Report:
    return document(examples.no_change())


def two_changes() -> Report:
    return document(examples.two_changes())


def recorded() -> Report:
    """The end of the bisect by hand of 2017: what was published of it, and nothing that was not."""
    shown = []
    for n, sha, date, verdict in (
        (12, "701e03e4e180", "2017-05-14", Verdict.NEW),
        (13, "78c45607b909", "2017-05-14", Verdict.OLD),
        (14, "6cf4cc8f8b3b", "2017-05-14", Verdict.NEW),
        (15, "4d44ec5ab751", "2017-05-14", Verdict.OLD),
        (16, "2ea659a9ef48", "2017-05-13", Verdict.OLD),
    ):
        kernel = f"4.12.0-rc1+{sha}"
        files = (RECORDED / "lvmcache-bisect-2017" / f"{n}-{kernel}-{run}.txt" for run in ("empty", "full"))
        runs = tuple(fio_2_run(file, name) for file, name in zip(files, ("empty", "full"), strict=True))
        bare = replace(made_trial(Commit(sha, "", kernel, date), *runs), kernel=None)
        least = min(job.iops_mean for job in runs[-1].jobs)
        why = classify(bare, IOPS.score(20_000.0), Direction.IMPROVEMENT, IOPS).why
        shown.append(TrialView(n, bare, verdict, why, value=least))
    order = ("2ea659a9ef48", "78c45607b909", "4d44ec5ab751", "6cf4cc8f8b3b", "701e03e4e180")
    rows = sorted((PlacedTrial(None, one) for one in shown), key=lambda row: order.index(row.shown.trial.commit.sha))
    commits = {one.trial.commit.sha: one.trial.commit for one in shown}
    first = commits["6cf4cc8f8b3b"]
    view = replace(
        examples.view(*shown), threshold=20_000, threshold_origin="as given", old=commits[order[0]],
        new=commits[order[-1]], first_fixed=first, candidates=(first,),
    )  # fmt: skip
    made = replace(found(), bisection=view, rows=tuple(rows), parents=(commits["4d44ec5ab751"],), hosts=())
    return replace(
        made, bisect_log=None, storage=(), asked=Request(order[0], order[-1], (), (), False, "bisector import")
    )


DOCUMENTS = {one.__name__: one for one in (found, narrowed, regression, running, believed, two_changes, recorded)}
# Each format at least once, the forms in which they differ where they do.
FILES = (
    *(("found", form) for form in Format if form is not Format.HTML),
    ("narrowed", Format.TEXT),
    ("narrowed", Format.MAIL),
    ("narrowed", Format.JSON),
    ("believed", Format.JSON),
    ("regression", Format.MAIL),
    ("running", Format.TEXT),
    ("believed", Format.MAIL),
    ("two_changes", Format.TEXT),
    ("recorded", Format.MAIL),
)


def path(name: str, form: Format) -> Path:
    return GOLDEN / f"{name}.{SUFFIXES[form]}"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name_, form_ in FILES:
        path(name_, form_).write_text(RENDERERS[form_](DOCUMENTS[name_]()), encoding="utf-8")
