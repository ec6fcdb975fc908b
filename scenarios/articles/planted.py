"""Kernels without a repository, and documents as bisector prints them of planted figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bisector.core.json_document import text
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.status.comparison import ComparedArm
from scenarios.articles.kernels import Kernels
from scenarios.demo.history import History, MadeCommit
from tests.docs.json_schema import valid
from tests.report.comparison_examples import measured, report

CULPRIT = MadeCommit("c" * 40, "dm cache policy smq: demote when the cache is full, idle or not", "code", "k")
KERNELS = Kernels(
    Path("/linux"), "v6.12", "v6.1", "v6.12-slow-cache", "v6.12-slow-submit", "v6.12-submit-in-worker",
    Path("/work/submit-in-worker.patch"), History("/demo", "a" * 40, "b" * 40, CULPRIT, (CULPRIT,)),
)  # fmt: skip
ALONE = (KERNELS.slow_cache, f"{KERNELS.slow_cache} (again)")


def comparison(
    stacks: Mapping[str, Mapping[str, Sequence[float]]], objective: Objective | None = None, job: str = "partial"
) -> dict[str, Any]:
    """What ``compare --json`` prints of figures by stack and kernel; a stack without figures has no block."""
    arms = list(next(iter(stacks.values())))
    setups = [
        measured(figures, Setup(stack, f"fio({job}.fio)"), objective, start=100 * place)
        for place, (stack, figures) in enumerate(stacks.items(), 1)
    ]
    made = report(*setups, arms=[ComparedArm(name, placebo=name.endswith("(again)")) for name in arms])
    kernels = tuple(replace(made.kernels[0], name=name) for name in arms)
    document: dict[str, Any] = valid("compare", text(replace(made, kernels=kernels)))
    return document


def bisection(first_fixed: str | None, ends: tuple[float, float] = (501.0, 3552.0)) -> dict[str, Any]:
    """As much of what ``status --json`` prints as is read, of two ends and an answer."""
    shas = (KERNELS.demo.old, KERNELS.demo.new)
    trials = [
        {"sha": sha, "kind": "commit", "value": value, "runs": [{"stopped_early": None}], "build_s": 30.0}
        for sha, value in zip(shas, ends, strict=True)
    ]
    stopped = {**trials[0], "value": 1.0, "runs": [{"stopped_early": {"reason": "below"}}]}
    answer = None if first_fixed is None else {"sha": first_fixed, "subject": "a commit"}
    status = {
        "trials": [*trials, stopped], "first_fixed": answer, "state": "found" if answer else "narrowed",
        "old": {"sha": shas[0]}, "new": {"sha": shas[1]}, "message": "the search has ended",
    }  # fmt: skip
    return dict(json.loads(json.dumps(status)))
