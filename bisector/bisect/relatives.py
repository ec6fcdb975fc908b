"""What a search says of the kernels and the ends that it met, by whichever strategy; pure."""

from bisector.analysis import kernels
from bisector.bisect.facts import Facts
from bisector.bisect.instructions import TwinOf
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.subject import Commit
from bisector.core.verdict import Terms
from bisector.git.bisect import MergeBaseIsNew


def twin_of(facts: Facts, commit: Commit) -> Commit | None:
    """A parent that surely has the kernel that was built of a commit."""
    kernel = kernels.kernel_of(facts.judging.trials, commit.sha)
    return facts.answer(TwinOf(commit, kernel)) if kernel is not None else None


def merge_base_is_new(step: MergeBaseIsNew, terms: Terms) -> EndsDoNotReproduce:
    """What to say, and to do, of a merge base that is new already."""
    return EndsDoNotReproduce(
        f"the merge base {step.merge_base.short} of both ends is {terms.new} already: "
        f"the change was made before it and undone on the way to {step.old.short}",
        f"what undid it: bisector start {step.merge_base.short} {step.old.short}",
    )
