"""A host that changes during a search: its trials of before and since are judged by lines of their own."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bisector.config import Settings
from bisector.core.trial import Era, Trial
from bisector.core.verdict import Verdict
from bisector.report.reporting import hosts_of
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.bisect.lab import BY_GIT, DEFAULTS, Lab, lab_of
from tests.examples import ERA, STARTED_AT, UPGRADED
from tests.git import histories

CULPRIT = "c11"


@dataclass
class Upgraded(fakes.FakeExecutor):
    """A bench whose QEMU is another one from trial ``since`` on, under which everything is eight times as slow."""

    since: int = 0
    slow: float = 1 / 8
    before: Era | None = ERA

    def measure(self, request: TrialRequest) -> Trial:
        changed = request.n >= self.since
        fast, slow = self.fast_iops, self.slow_iops
        if changed:
            self.fast_iops, self.slow_iops = fast * self.slow, slow * self.slow
        made = super().measure(request)
        self.fast_iops, self.slow_iops = fast, slow
        return replace(made, era=UPGRADED if changed else self.before)


def lab(path: Path, settings: Settings) -> Lab:
    return lab_of(path, histories.linear(17), "c0", "c16", settings=settings)


def bench(at: Lab, since: int, **more: object) -> Upgraded:
    return at.bench(Upgraded, CULPRIT, since=since, fast_iops=8_000.0, **more)


@pytest.mark.parametrize(("settings", "since"), [(BY_GIT, 2), (BY_GIT, 5), (DEFAULTS, 3), (DEFAULTS, 6)])
def test_the_ends_are_measured_again_and_the_answer_is_right(tmp_path: Path, settings: Settings, since: int) -> None:
    at = lab(tmp_path, settings)
    assert at.found(at.bisect(bench(at, since))) == CULPRIT
    told = [text for text in at.notes if "changed" in text]
    assert told == [
        f"the host changed since trial {since - 1}: QEMU 7.2.22 → 7.2.23; both ends are measured again here"
    ]
    own = [(trial.era, at.names.get(trial.commit.sha)) for trial in at.trials()]
    assert {name for era, name in own[since - 1 : since + 2] if era == UPGRADED} >= {"c0", "c16"}
    view = at.view()
    lines = [(one.era, one.threshold) for one in view.host_thresholds]
    if since > 2:
        assert [era for era, _ in lines] == [ERA.digest, UPGRADED.digest]
        assert lines[0][1] == pytest.approx(8 * lines[1][1])
    (host,) = hosts_of(at.path, at.trials())
    changed = f"{UPGRADED.digest}, since {STARTED_AT}: QEMU 7.2.22 → 7.2.23"
    assert dict(host.facts)["era"] == f"{ERA.digest}, since {STARTED_AT}; {changed}"
    first = view.trials[since - 1]
    assert first.verdict in (Verdict.OLD, Verdict.NEW)
    assert (first.verdict is Verdict.NEW) is (int(at.names[first.trial.commit.sha][1:]) >= int(CULPRIT[1:]))


def test_what_an_older_version_measured_is_of_an_era_that_is_not_known(tmp_path: Path) -> None:
    at = lab(tmp_path, BY_GIT)
    with pytest.raises(fakes.Killed):
        at.bisect(bench(at, 99, before=None, kill_at=5))
    assert at.found(at.bisect(bench(at, 0))) == CULPRIT
    told = [text for text in at.notes if "changed" in text]
    assert told == [
        "the host changed since trial 4: what figures depended on before is not on record; both ends are measured again"
        " here"
    ]


def test_a_host_that_was_changed_back_has_its_line_already(tmp_path: Path) -> None:
    at = lab(tmp_path, BY_GIT)
    with pytest.raises(fakes.Killed):
        at.bisect(bench(at, 4, kill_at=7))
    seen = len(at.trials())
    assert at.found(at.bisect(bench(at, 99))) == CULPRIT
    assert not {"c0", "c16"} & {at.names.get(trial.commit.sha) for trial in at.trials()[seen:]}
    assert sum("changed" in text for text in at.notes) == 1
