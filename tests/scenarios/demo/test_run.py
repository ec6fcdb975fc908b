"""The judge of the demonstration; the demonstration itself is ``make demo``."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.search.graph import RangeGraph
from scenarios.demo import compare
from scenarios.demo.history import History, MadeCommit
from scenarios.demo.run import newest_tarball, verdict

CULPRIT = MadeCommit("c" * 40, "dm cache policy smq: fix", "code", "k")
MADE = History("/linux", "a" * 40, "b" * 40, CULPRIT, (CULPRIT,))


@pytest.mark.parametrize(
    ("first_fixed", "right"),
    [
        pytest.param({"sha": "c" * 40, "subject": "dm cache policy smq: fix"}, True, id="the culprit"),
        pytest.param({"sha": "d" * 40, "subject": "another"}, False, id="another commit"),
        pytest.param(None, False, id="none"),
    ],
)
def test_only_the_culprit_is_right(first_fixed: dict[str, str] | None, right: bool) -> None:
    answer, sentence = verdict(MADE, {"first_fixed": first_fixed, "state": "narrowed"})
    assert answer is right
    assert sentence.startswith("RIGHT" if right else "WRONG")
    assert "c" * 12 in sentence


def trial(total_s: float, *, stage: str = "", reused: bool = False, stopped: bool = False) -> dict[str, object]:
    fault = {"stage": stage} if stage else None
    runs = [{"stopped_early": {"reason": "above"} if stopped else None}]
    return {"total_s": total_s, "fault": fault, "same_kernel_as": "x" if reused else None, "runs": runs}


def a_line(*effects: str) -> History:
    """Seven commits on an old end; the sixth is the one, and the fifth has the kernel of the third."""
    kernels = ("k1", "k2", "k3", "k4", "k3", "k6", "end")
    shas = [f"{n}" * 40 for n in range(1, 8)]
    made = [MadeCommit(sha, "", effect, kernel) for sha, effect, kernel in zip(shas, effects, kernels, strict=True)]
    old = MadeCommit("0" * 40, "", "code", "old")
    return History("/linux", old.sha, shas[-1], made[5], (old, *made))


@pytest.mark.parametrize(
    ("effects", "trials", "seconds"),
    [
        # git tries the third, the fifth, which is known then, and the sixth.
        pytest.param(("code",) * 7, 5, 360.0 + 40.0 + 1.0 + 40.0, id="reused"),
        # The third is tried and skipped; the second, the fifth and the sixth follow.
        pytest.param(("code", "code", "no-build", *("code",) * 4), 6, 360.0 + 5.0 + 3 * 40.0, id="skipped"),
    ],
)
def test_gits_trials_are_those_of_its_midpoints_on_the_truth(
    effects: tuple[str, ...], trials: int, seconds: float
) -> None:
    made = a_line(*effects)
    graph = RangeGraph.of([(), *((n,) for n in range(6))])
    of_a_run = [trial(300.0), trial(60.0), trial(5.0, stage="build"), trial(40.0), trial(1.0, reused=True)]
    status: dict[str, list[dict[str, object]]] = {"trials": of_a_run}
    assert compare.taken(status) == compare.Taken(5, 406.0)
    assert compare.by_git(graph, [commit.sha for commit in made.commits[1:]], made, status) == compare.Taken(
        trials, seconds
    )


@pytest.mark.parametrize(
    ("parent", "trials", "seconds"),
    [
        # The sixth, and the third, as the parent has its kernel: both were stopped early before.
        pytest.param({}, 5 + 2, 360.0 + 30.0 + 1.0 + 30.0 + 2 * 50.0, id="both"),
        pytest.param({"kernel": "old"}, 5 + 1, 360.0 + 30.0 + 1.0 + 30.0 + 50.0, id="the old end's kernel ran whole"),
        # The third, the fifth in vain, the fourth and the sixth; nothing can be had of the parent.
        pytest.param({"effect": "no-build"}, 6 + 1, 360.0 + 3 * 30.0 + 5.0 + 50.0, id="no build"),
    ],
)
def test_gits_answer_rests_on_whole_runs_too(parent: dict[str, str], trials: int, seconds: float) -> None:
    made = a_line(*("code",) * 7)
    commits = [*made.commits[:5], replace(made.commits[5], **parent), *made.commits[6:]]
    graph = RangeGraph.of([(), *((n,) for n in range(6))])
    ends, stopped, whole = [trial(300.0), trial(60.0)], trial(30.0, stopped=True), trial(50.0)
    status = {"trials": [*ends, stopped, whole, trial(1.0, reused=True), trial(5.0, stage="build")]}
    git = compare.by_git(graph, [one.sha for one in commits[1:]], replace(made, commits=tuple(commits)), status)
    assert git == compare.Taken(trials, seconds)


def test_the_newest_source_is_taken_by_number(tmp_path: Path) -> None:
    for name in ("linux-source-6.1.tar.xz", "linux-source-6.12.tar.xz", "linux-source-6.9.tar.xz", "other.tar.xz"):
        (tmp_path / name).touch()
    assert newest_tarball(tmp_path).name == "linux-source-6.12.tar.xz"


def test_no_source_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no linux-source"):
        newest_tarball(tmp_path)


def test_what_the_confirmation_cost_is_said_beside_what_it_bought() -> None:
    status = {"strategy": "bayes", "probability": 0.996}
    said = compare.beside(compare.Taken(10, 1026.0), compare.Taken(13, 954.0), status)
    assert said.startswith("bayes took 10 trials, 17.1 min for an answer with 99.6 %, its confirmation among them; ")
    assert "--strategy git would take 13 trials, 15.9 min, if no verdict is wrong, and says neither how sure" in said
    assert "saved" not in said
