"""At which speed a host's cores are, by the trials that were measured there."""

from dataclasses import replace

import pytest

from bisector.analysis.quality import AtSpeed, host_speed, speed_of
from tests.analysis.recorded import job, run, trial
from tests.fakes import at_speed


@pytest.mark.parametrize(
    ("trials", "mib_s", "since"),
    [
        ("", None, 0),
        ("c400 c400", None, 0),  # what is no end says nothing of the ends
        ("e400", 400, 1),
        ("e400 e420 e410", 410, 1),  # the median of the ends alone
        ("e400 e420 c430 c430 c430", 410, 1),
        ("e400 e200", 400, 1),  # once may be chance
        ("e400 e400 c200 c400 c200 c400", 400, 1),
        ("e400 e400 c200 c100 c200", 400, 1),  # not one other speed
        ("e400 e200 e210", 205, 2),  # the first end is read again
        ("e400 e400 c400 c200 c210", 205, 4),
        ("e400 e400 c200 c200 e190 e190", 195, 3),
        ("e400 e400 c200 c200 c400 c400", 400, 5),  # and back
    ],
)
def test_a_host_has_another_speed_once_two_trials_in_a_row_show_it(
    trials: str, mib_s: float | None, since: int
) -> None:
    found = host_speed(
        (AtSpeed(n, one[0] == "e", float(one[1:])) for n, one in enumerate(trials.split(), 1)), max_change=0.15
    )
    assert (found and found.mib_s, found.since if found else 0) == (mib_s, since)


def test_a_trial_has_the_speed_of_all_its_runs_or_none() -> None:
    def ran(*mib_s: float) -> float | None:
        return speed_of(trial(*(replace(run(job(1000)), contention=at_speed(one)) for one in mib_s)), 0.15)

    assert ran(400, 440) == 420
    assert ran(200, 400) is None
    assert speed_of(trial(run(job(1000))), 0.15) is None
