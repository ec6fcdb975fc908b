import pytest

from bisector.core.errors import UserError
from bisector.core.verdict import Terms
from bisector.git.bisect import check_terms


@pytest.mark.parametrize("terms", [Terms(), Terms("good", "bad"), Terms("old", "new"), Terms("slow-er", "schneller_ö")])
def test_words_that_git_takes(terms: Terms) -> None:
    check_terms(terms)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("slow", "slow"),
        ("skip", "fixed"),
        ("broken", "visualize"),
        ("bad", "good"),
        ("new", "old"),
        ("weak", "fixed"),
        ("", "fixed"),
        ("-x", "fixed"),
        ("a b", "fixed"),
        ("a/b", "fixed"),
        ("a.lock", "fixed"),
        ("broken", "1st"),
    ],
)
def test_words_that_git_does_not_take(old: str, new: str) -> None:
    with pytest.raises(UserError):
        check_terms(Terms(old, new))
