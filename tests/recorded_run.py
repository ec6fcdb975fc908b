"""A whole run directory without a bisection: real git, a store, and fio's JSON with the figures of each trial."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from bisector.config import options
from bisector.core.figures import EarlyStop, Run
from bisector.core.subject import Commit
from bisector.core.trial import Artifact, Fault, Trial
from bisector.core.verdict import Direction, SideWords, State
from bisector.git.repository import Repository
from bisector.store.facts import RunHeader
from bisector.store.rundir import GIT_LOG, RunDirectory, keep_inputs
from bisector.store.store import Store
from bisector.workload.fio import output
from tests import examples, fakes
from tests.git import histories
from tests.git.histories import Node

HOST = {"CPU": "Example CPU, 4 cores", "memory": "8.0 GiB", "accelerator": "tcg, QEMU 7.2.22"}
SLOW, FAST = (1002.3, 8046.0), (4006.0, 7363.0)


def fio_json(*iops: float) -> str:
    """What fio 3 writes of jobs that read, as far as it is read."""

    def job(figure: float) -> dict[str, object]:
        mean_ns = 8e9 / figure if figure else 0.0
        read = {
            "iops": figure, "iops_stddev": 12.5, "bw": figure * 4, "total_ios": round(figure * 40), "runtime": 40_001,
            "clat_ns": {"min": 1, "max": 9e7, "mean": mean_ns, "stddev": 1.5, "percentile": {"99.000000": 9.9e6}},
        }  # fmt: skip
        return {"jobname": "partial", "error": 0, "job options": {"rw": "randread"}, "read": read}

    return json.dumps({"fio version": "fio-3.33", "jobs": [job(figure) for figure in iops]}, indent=1)


@dataclass
class RecordedRun:
    """Trials are added by the name of their commit; the repository's history is given."""

    path: Path
    nodes: Sequence[Node]
    flags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.repository = self.path / "linux"
        self.shas = histories.build(self.repository, self.nodes)
        self.run = RunDirectory(self.path / "run")
        self.run.path.mkdir()
        self.settings = keep_inputs(options.load(self.flags, directory=self.path).settings, self.run.path)
        old, new = self.nodes[0].name, self.nodes[-1].name
        header = RunHeader(
            self.repository, old, self.shas[old], new, self.shas[new], (), False, (),
            options.to_json(self.settings), "0.1.0", "2026-03-01T10:00:00+00:00",
        )  # fmt: skip
        with Store.create(self.run.database, header):
            pass

    def commit(self, name: str) -> Commit:
        return self._commits[name]

    @cached_property
    def _commits(self) -> dict[str, Commit]:
        repository = Repository.open(self.repository)
        return dict(zip(self.shas, repository.commits(self.shas.values()), strict=True))

    def add(
        self,
        name: str,
        full: tuple[float, ...] = (),
        *,
        fault: Fault | None = None,
        early: EarlyStop | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Trial:
        """One more trial with figures, or with a fault; ``more`` files are kept beside the others."""
        with Store.open(self.run.database) as store:
            directory = f"trials/{store.next_n:04d}-{self.shas[name][:12]}"
            runs, texts = [], dict(more or {})
            if full:
                runs = [self._run(directory, "empty", (2000.0, 8000.0)), self._run(directory, "full", full, early)]
                storage = "pvcreate /dev/vdb\nmkfs.ext4 /dev/vg/data\n"
                texts = {"host.json": json.dumps(HOST), "storage.txt": storage, **texts}
            files = [artifact for _, artifact in runs]
            files += [self._file(directory, extra, text) for extra, text in texts.items()]
            trial = examples.trial(self.commit(name), *(run for run, _ in runs), fault=fault,
                                   built=examples.kernel(content=self.shas[name]))  # fmt: skip
            trial = replace(trial, cell=replace(trial.cell, setup=self.settings.setup), artifacts=tuple(files))
            store.add_trials([trial])
        return trial

    def _run(
        self, directory: str, name: str, iops: tuple[float, ...], early: EarlyStop | None = None
    ) -> tuple[Run, Artifact]:
        text = fio_json(*iops)
        full = examples.cache()
        run = replace(examples.run(name, before=full, after=full, stopped_early=early), jobs=output.parse_json(text))
        return run, self._file(directory, f"{name}/fio.json", text)

    def _file(self, directory: str, name: str, text: str) -> Artifact:
        path = self.run.path / directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return Artifact(name, f"{directory}/{name}", digest, len(text))

    def log(self, *told: tuple[str, str]) -> None:
        """What git was told, as ``(term, name)``."""
        lines = ["git bisect start '--no-checkout'", *(f"git bisect {term} {self.shas[name]}" for term, name in told)]
        (self.run.path / GIT_LOG).write_text("".join(f"{line}\n" for line in lines))

    def end(self, state: State = State.FOUND, message: str = "") -> None:
        with Store.open(self.run.database) as store:
            store.set_state(state, message)


def found(path: Path, flags: Mapping[str, str] | None = None, nodes: Sequence[Node] | None = None) -> RecordedRun:
    """Five commits, ``c3`` the first fixed one, ``c1`` without a kernel."""
    run = RecordedRun(path, nodes or histories.linear(5), flags or {})
    slow, fast = (FAST, SLOW) if run.settings.bisect.expected is Direction.REGRESSION else (SLOW, FAST)
    run.add("c0", slow)
    run.add("c4", fast)
    run.add("c2", slow)
    run.add("c1", fault=fakes.BUILD_ERROR)
    run.add("c3", fast)
    terms = run.settings.bisect.terms or SideWords.usual(run.settings.bisect.expected or Direction.IMPROVEMENT)
    run.log((terms.new, "c4"), (terms.old, "c0"), (terms.old, "c2"), ("skip", "c1"), (terms.new, "c3"))
    run.end()
    return run
