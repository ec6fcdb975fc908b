"""A bench for comparisons: what each arm measures on each stack is planted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bisector.core.subject import Cell, Commit, Compiler
from bisector.core.trial import AttemptFailed, Fault, Stage, Trial
from bisector.executor.base import BuildRequest
from bisector.storage.stack import stack_of
from bisector.store.rundir import trial_directory
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.examples import BUSY, QUIET


@dataclass
class Bench(fakes.FakeExecutor):
    """An executor whose trials give what ``value`` says of a request, on either stack.

    Trials with the numbers ``busy_n`` are weak, those of ``panics_n`` panic; the first attempts at those of ``infra_n``
    fail, as many as they say; with ``leaves``, a run's directory, each of these leaves its own. ``faults`` are of every
    trial of a commit.
    """

    is_new: Callable[[str], bool] = lambda _: False
    value: Callable[[TrialRequest], float] = lambda _: 1_000.0
    infra_n: Mapping[int, int] = field(default_factory=dict)
    busy_n: frozenset[int] = frozenset()
    panics_n: frozenset[int] = frozenset()
    leaves: Path | None = None
    refuse_build: Callable[[BuildRequest], None] = lambda _: None

    def try_build(self, commit: Commit, compiler: Compiler) -> Fault | None:
        self.refuse_build(self.builds[-1])
        return super().try_build(commit, compiler)

    def _measured(self, request: TrialRequest) -> Trial:
        self.requests.append(request)
        n = request.n
        if n == self.kill_at:
            raise fakes.Killed
        if sum(one.n == n for one in self.requests) <= self.infra_n.get(n, 0):
            if self.leaves is not None:
                trial_directory(self.leaves, n, request.commit)
            raise AttemptFailed("the network went away", "", Stage.BOOT, fakes.HOST)
        fault = fakes.PANIC if n in self.panics_n else self.faults.get(request.commit.sha)
        if fault is not None:
            return replace(examples.trial(request.commit, fault=fault), cell=request.cell)
        made = trial(request.cell, self.value(request), busy=n in self.busy_n)
        content = self.content.get(request.commit.sha, request.commit.sha) + request.cell.subject.fragment
        return replace(made, kernel=examples.kernel(content=content))


def trial(cell: Cell, value: float, *, busy: bool = False, total_s: float = 60.0) -> Trial:
    """A whole trial of a cell whose slowest job of the last run did ``value``."""
    full = examples.cache()
    phases = stack_of(cell.setup.stack).phases
    cached = {"before": full, "after": full} if len(phases) > 1 else {}
    runs = [
        examples.run(one.name, value if one.judged else 2_000.0, 8_000.0, contention=BUSY if busy else QUIET, **cached)  # type: ignore[arg-type] # both or none
        for one in phases
    ]
    made = examples.trial(cell.commit, *runs)
    return replace(made, cell=cell, timings=replace(made.timings, build_s=0.0, total_s=total_s))


def by_name(shas: Mapping[str, str], values: Mapping[str, float]) -> Callable[[TrialRequest], float]:
    """The value of each commit, by its name, with a noise of 0.01 %: without any, the permutations alone would tell."""
    by_sha = {shas[name]: value for name, value in values.items()}
    return lambda request: by_sha[request.commit.sha] * (1 + 1e-4 * (request.n % 3 - 1))
