"""What a host does with a job that was sent: its own executor, over its own clone, in the place of the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bisector.config import Settings
from bisector.core.errors import UserError
from bisector.core.events import Event, Listener, Note
from bisector.executor import engine
from bisector.executor.base import Finished, Job, News, Progress
from bisector.executor.spec import Spec
from bisector.git.repository import Repository
from bisector.store.run_files import INPUTS
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.executor.bench import COMMIT, settings_of
from tests.git import histories


class AtOnce(fakes.FakeExecutor):
    """Tells its progress to a listener, as the executor of this host does."""

    def next(self) -> News:
        while isinstance(news := super().next(), Progress):
            pass
        return news


@dataclass
class Opened:
    """What the executor of this host was opened with."""

    settings: Settings | None = None
    place: Path = Path()
    top: Path = Path()
    keeps: bool = False
    closed: bool = False
    executor: fakes.FakeExecutor = field(default_factory=lambda: AtOnce(fakes.among(())))

    @contextmanager
    def open(
        self, settings: Settings, run_dir: Path, repository: Repository, tell: Listener, *, keep_sources: bool
    ) -> Iterator[fakes.FakeExecutor]:
        self.settings, self.place, self.top, self.keeps = settings, run_dir, repository.top, keep_sources
        tell(Note("open"))
        yield self.executor
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    made = Opened()
    monkeypatch.setattr(engine, "local_executor", made.open)
    return made


def spec() -> Spec:
    return Spec.of("run", Job(7, TrialRequest(3, examples.cell(COMMIT), {})), settings_of("lvmcache"))


def test_the_result_is_there_before_the_host_cleans_up_and_sources_stay(opened: Opened, tmp_path: Path) -> None:
    histories.build(tmp_path / "linux", histories.linear(2))
    place, told = tmp_path / "place", list[Event]()
    place.mkdir()
    with engine.here(spec(), place, tmp_path / "linux", told.append) as news:
        assert not opened.closed
    assert isinstance(news, Finished)
    assert news.id == 7
    assert (opened.place, opened.top, opened.keeps, opened.closed) == (place, tmp_path / "linux", True, True)
    assert opened.settings is not None
    assert opened.settings.workload.inputs["job"].is_relative_to(place / INPUTS)
    assert told == [Note("open")]


def test_a_host_without_the_clone_says_so(opened: Opened, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a directory"), engine.here(spec(), tmp_path, tmp_path / "no", print):
        pass
    assert not opened.closed
