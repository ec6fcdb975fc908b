"""What is behind each row of a page, from a real run directory; and the command that writes it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core.subject import Kind
from bisector.core.trial import Fault, FaultKind, Stage
from bisector.report import reporting
from bisector.report.document import PlacedTrial, Report
from bisector.report.drawing import Plot
from bisector.report.page import Detail, PlotKind, details, plotted
from bisector.status.view import OptionChange
from bisector.store.store import Store
from tests.examples import cell
from tests.git import histories
from tests.recorded_run import FAST, SLOW, RecordedRun
from tests.report.curve_examples import log_text
from tests.report.drawn import panels

PANIC = Fault(Stage.BOOT, FaultKind.PANIC, "Kernel panic", ("before", "Kernel panic"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    run = RecordedRun(tmp_path_factory.mktemp("page"), histories.linear(5), {})
    logs = {f"full/partial_iops.{job}.log": log_text("fixed", job) for job in (1, 2)}
    config = {"kernel.config": "CONFIG_HZ=250\nCONFIG_MD=y\n"}
    console = {"console.log": "".join(f"line {n}\n\n" for n in range(3000))}
    run.add("c0", SLOW, more={**config, **console})
    run.add("c4", FAST, more={**logs, **config})
    run.add("c2", fault=PANIC, more={"kernel.config": "CONFIG_HZ=1000\nCONFIG_MD=y\n"})
    run.add("c3", FAST, more={"full/partial_iops.1.log": "broken"})
    run.log(("fixed", "c4"), ("broken", "c0"), ("skip", "c2"), ("fixed", "c3"))
    run.end()
    return run


def report(run: RecordedRun) -> Report:
    with Store.open(run.run.database, readonly=True) as store:
        return reporting.report(run.run, store)


def by_n(run: RecordedRun) -> dict[int, Detail]:
    return {one.n: one for one in details(report(run), run.run.path)}


def curves(run: RecordedRun) -> tuple[Plot | None, tuple[str, ...]]:
    return plotted(PlotKind.CURVES, report(run), run.run.path)


def test_rows_have_consoles_faults_and_configurations_beside_those_before_them_in_history(
    recorded: RecordedRun,
) -> None:
    found = by_n(recorded)
    assert list(found) == [1, 3, 4, 2]
    console = found[1].console
    assert (len(console), console[0], console[-1]) == (40, "line 2960", "line 2999")
    assert (found[2].console, found[2].fault) == ((), ())
    assert found[3].fault == ("before", "Kernel panic")
    assert (found[1].against, found[1].options) == (None, ())
    assert found[3].against == recorded.commit("c0")
    assert found[3].options == (OptionChange("CONFIG_HZ", "250", "1000"),)
    assert (found[4].against, found[4].options) == (None, ())  # it kept none
    assert found[2].against == recorded.commit("c2")
    assert found[2].options == (OptionChange("CONFIG_HZ", "1000", "250"),)


def test_changed_end_is_compared_with_nothing_and_nothing_with_it(recorded: RecordedRun) -> None:
    whole = report(recorded)
    first, second, *_, last = whole.rows
    trial = replace(second.shown.trial, cell=cell(second.shown.trial.commit, Kind.REVERTED, recorded.shas["c3"]))
    changed = PlacedTrial(None, replace(second.shown, trial=trial))
    found = details(replace(whole, rows=(changed, first, last)), recorded.run.path)
    assert [one.against for one in found] == [None, None, recorded.commit("c0")]


def test_files_that_are_gone_are_left_out(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, histories.linear(2), {})
    more = {"kernel.config": "CONFIG_HZ=250\n", "console.log": "hello\n", "full/partial_iops.1.log": "500, 1, 0\n"}
    run.add("c0", SLOW, more=more)
    run.add("c1", FAST, more=more)
    for path in (run.run.path / "trials").rglob("*.*"):
        if path.is_file():
            path.unlink()
    assert [(one.console, one.against) for one in by_n(run).values()] == [((), None)] * 2
    plot, (complaint, _) = curves(run)
    assert plot is None
    assert complaint.endswith("No such file or directory")


def test_command_writes_the_page(recorded: RecordedRun, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert main(["report", "--run-dir", str(recorded.run.path), "--format", "html", "-o", str(out)]) == 0
    html = out.read_text(encoding="utf-8")
    assert html.count("<img src=") == 2
    assert html.count("</details>") == 3 + 1
    assert "The patch: 1 file changed, 1 insertion(+)" in html
    assert re.search(r">\+c\d</span>", html)


@pytest.mark.parametrize("by", ["path", "link"])
def test_files_of_the_reader_are_not_published(tmp_path: Path, by: str) -> None:
    """A record of somebody else's names them as its console, its job file and so on, or has links to them."""
    run = RecordedRun(tmp_path, histories.linear(2), {})
    secret = tmp_path / "id_ed25519"
    secret.write_text("CONFIG_SECRET=y\n500, 1, 0\nPRIVATE KEY\n{")
    more = {"kernel.config": "CONFIG_HZ=250\n", "console.log": "hello\n", "full/partial_iops.1.log": "500, 1, 0\n"}
    run.add("c0", SLOW, more=more)
    run.add("c1", FAST, more=more)
    run.end()
    if by == "path":
        with Store.open(run.run.database) as store:
            asked = store.bisection().settings
            job = json.loads(asked) | {"workload.job": str(secret)}
            assert job.keys() == json.loads(asked).keys()
            change = store.log.connection.execute
            for named in {artifact.path for artifact in store.artifacts()}:
                change("UPDATE facts SET body = replace(body, ?, ?)", (f'"path":"{named}"', f'"path":"{secret}"'))
            change(
                "UPDATE facts SET body = json_set(body, '$.settings', ?) WHERE kind = 'RunHeader'", (json.dumps(job),)
            )
        with Store.open(run.run.database) as store:
            assert {artifact.path for artifact in store.artifacts()} == {str(secret)}
    files = [path for path in run.run.path.rglob("*") if path.is_file() and path != run.run.database]
    assert len(files) > 8
    for path in files if by == "link" else [run.run.path / "bisect.log"]:
        path.unlink(missing_ok=True)
        path.symlink_to(secret)
    for form in ("text", "mail", "markdown", "json", "html"):
        out = tmp_path / form
        main(["report", "--run-dir", str(run.run.path), "--format", form, "-o", str(out)])
        told = out.read_text(encoding="utf-8") if out.exists() else ""
        assert "c1" in told, form
        assert "SECRET" not in told, form
        assert "PRIVATE" not in told, form


@pytest.mark.parametrize("metric", ["read.iops", "read.iops.steady"])
def test_the_line_is_drawn_where_it_is_of_what_was_logged(tmp_path: Path, metric: str) -> None:
    """Nobody measured the ends, as of one output of fio that was imported with its logs."""
    flags = {"bisect.metric": metric, "bisect.threshold": "2000"}
    run = RecordedRun(tmp_path, histories.linear(5), flags)
    run.add("c2", FAST, more={"full/partial_iops.1.log": log_text("fixed", 1)})
    plot, _ = curves(run)
    assert plot is not None
    assert "threshold 2,000 IOPS" in panels(plot)[0].points
