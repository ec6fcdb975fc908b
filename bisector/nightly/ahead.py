"""What a night would do, from the history and one question to each remote; nothing is fetched, nothing recorded."""

from collections.abc import Iterator
from dataclasses import dataclass

from bisector.core.errors import BisectorError
from bisector.git.remotes import Branch
from bisector.git.repository import Repository
from bisector.nightly.night import Place


@dataclass(frozen=True, slots=True)
class Intent:
    """What would be done for a job, in order, or why it could not be."""

    job: str
    steps: tuple[str, ...]
    problem: str = ""


def intents(places: tuple[Place, ...]) -> Iterator[Intent]:
    """One for each job, in the night's order."""
    for place in places:
        try:
            yield Intent(place.job.name, tuple(_steps(place)))
        except BisectorError as error:
            yield Intent(place.job.name, (), error.message)


def _steps(place: Place) -> Iterator[str]:
    job, story = place.job, place.story
    if story.open is not None:
        yield f"go on with the bisection in {story.open.run_dir}"
    with Repository.open(job.repository) as repository:
        branch = Branch(repository, job.name, job.remote, job.branch)
        tip = branch.remote_tip()
    if story.knows(tip, job.conditions):
        yield f"fetch: {job.branch} of {branch.shown} is at {tip[:12]}, as the last time"
    else:
        yield f"fetch {job.branch} of {branch.shown}, which is at {tip[:12]}, and measure it"
        if story.reference is not None:
            yield f"compare it with {story.reference.sha[:12]} at {story.reference.text}"
    if story.change is not None:
        yield f"bisect {story.change.old.sha[:12]}..{story.change.new.sha[:12]}: {story.change.direction}"
    if story.untold:
        yield "report what was found and not told"
