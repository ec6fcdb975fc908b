"""What is called right, narrowed and wrong."""

from typing import Any

import pytest

from scenarios.histories.judge import Word, judged
from scenarios.histories.make import Made
from tests.scenarios.histories.examples import NOISY, NOTHING, SAME, SINGLE, TWO, ends, found, right, status

FIRST, SECOND, OTHER = "1" * 40, "2" * 40, "9" * 40


@pytest.mark.parametrize(
    ("made", "document", "word"),
    [
        pytest.param(SINGLE, found(FIRST), Word.RIGHT, id="the planted one"),
        pytest.param(SINGLE, found(OTHER), Word.WRONG, id="another one"),
        pytest.param(SINGLE, status("narrowed", candidates=[OTHER, FIRST]), Word.NARROWED, id="it is in the set"),
        pytest.param(SINGLE, status("narrowed", candidates=[OTHER]), Word.WRONG, id="it is not in the set"),
        pytest.param(
            SINGLE, status("narrowed", candidates=[FIRST], one_change=False), Word.WRONG, id="one is called none"
        ),
        pytest.param(SINGLE, ends(*SAME), Word.WRONG, id="the change did not show"),
        pytest.param(SINGLE, ends(*NOISY), Word.WITHOUT, id="too noisy to show"),
        pytest.param(SINGLE, status("narrowed", no_change=True), Word.WRONG, id="one is called no change"),
        pytest.param(SINGLE, status("stopped"), Word.MISSING, id="it stopped"),
        pytest.param(SINGLE, status("running"), Word.MISSING, id="it is under way"),
        pytest.param(SINGLE, None, Word.MISSING, id="it was not begun"),
        pytest.param(TWO, found(SECOND, other_steps=[300.0]), Word.RIGHT, id="the second, and a hint"),
        pytest.param(TWO, found(SECOND), Word.WRONG, id="the second alone"),
        pytest.param(TWO, found(FIRST, other_steps=[300.0]), Word.WRONG, id="the first"),
        pytest.param(
            TWO, status("narrowed", candidates=[OTHER], one_change=False), Word.RIGHT, id="not one change"
        ),
        pytest.param(TWO, status("narrowed", candidates=[SECOND, OTHER]), Word.NARROWED, id="the second in a set"),
        pytest.param(TWO, status("narrowed", candidates=[FIRST]), Word.WRONG, id="the first in a set"),
        pytest.param(NOTHING, ends(*SAME), Word.RIGHT, id="ends that are the same"),
        pytest.param(NOTHING, ends(*NOISY), Word.WITHOUT, id="ends too noisy to tell"),
        pytest.param(NOTHING, status("failed"), Word.WITHOUT, id="an end that cannot be judged"),
        pytest.param(NOTHING, status("narrowed", no_change=True), Word.RIGHT, id="a search that finds no change"),
        pytest.param(NOTHING, found(FIRST), Word.WRONG, id="nothing, and a commit named"),
        pytest.param(NOTHING, status("narrowed", candidates=[FIRST]), Word.WRONG, id="nothing, and a set"),
    ],
)  # fmt: skip
def test_a_word_for_each_outcome(made: Made, document: dict[str, Any] | None, word: Word) -> None:
    found_word = judged(made, document)
    assert found_word.word is word
    assert bool(found_word.why) is (word is not Word.RIGHT)


def test_what_is_wrong_names_what_is_right() -> None:
    assert judged(SINGLE, found(OTHER)).why.startswith(f"it is {'1' * 12} (")
    assert "the change beside the new end's level" in judged(TWO, found(FIRST)).why


def test_the_examples_of_right_answers_are() -> None:
    assert {judged(made, right(made)).word for made in (SINGLE, TWO, NOTHING)} == {Word.RIGHT}
