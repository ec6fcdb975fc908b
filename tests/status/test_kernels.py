"""Which kernels the arms of a comparison were, from its trials."""

from collections.abc import Sequence
from dataclasses import replace

from bisector.core.subject import Cell, Kernel, Kind, Subject
from bisector.status import blocks
from bisector.store.facts import Arm, Extent, Place, Placed, Plan
from tests import examples
from tests.examples import commit

OLD, NEW = Subject(commit(1)), Subject(commit(2))
ARMS = (
    Arm("v6.1", OLD),
    Arm("v6.2", NEW),
    Arm("v6.1 (again)", OLD),
    Arm("v6.1 + quiet", replace(OLD, parameters="quiet")),
    Arm("v6.1 + hz.config", replace(OLD, fragment="e" * 64)),
    Arm("vmlinuz", Subject(commit(3), Kind.IMAGE)),
)
PLAN = Plan(ARMS, (), Extent(7, 6))


def kernel(content: str, key: str = "f1-7777") -> Kernel:
    return replace(examples.kernel(content=content), key=key)


def placed(*found: tuple[int, Kernel | None]) -> Sequence[Placed]:
    trials = (
        replace(examples.trial(commit(1)), cell=Cell(ARMS[arm].subject, examples.SETUP), kernel=one)
        for arm, one in found
    )
    return [Placed(n, Place(1, arm), trial) for n, (trial, (arm, _)) in enumerate(zip(trials, found, strict=True), 1)]


def test_arms_of_one_build_are_the_kernel_that_was_measured_first() -> None:
    trials = placed((2, None), (2, kernel("a")), (0, kernel("b")), (1, kernel("c")), (4, kernel("d")))
    found = [blocks.first_kernel(PLAN, trials, arm) for arm in range(5)]
    contents = [one and one.kernel and one.kernel.content_sha256 for one in found]
    assert contents == ["a", "c", "a", "a", "d"]
    assert blocks.first_kernel(PLAN, placed((0, None)), 0) is None


def test_an_arm_that_was_several_kernels_is_named() -> None:
    trials = placed((0, kernel("a")), (1, kernel("c")), (0, None), (0, kernel("b")), (1, kernel("c")))
    assert blocks.changed_kernels(PLAN, trials) == ("v6.1",)


def test_arms_that_were_made_in_two_ways_are_named() -> None:
    """A configuration of an arm's own is a way that was asked for, and nobody knows how an image was made."""
    one, other = kernel("a"), kernel("c", "f2-8888")
    own, image = kernel("d", "f3-7777"), kernel("e", "image-9")
    assert blocks.unlike_kernels(PLAN, placed((0, one), (1, kernel("c", "f1-8888")), (4, own), (5, image))) == ()
    assert blocks.unlike_kernels(PLAN, placed((0, one), (1, other), (4, own), (3, one))) == (("v6.1", "v6.2"),)
    assert blocks.unlike_kernels(PLAN, placed((1, other))) == ()
