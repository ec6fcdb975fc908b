from bisector.core.errors import Finding, Grade
from bisector.core.examination import Examination

FINDINGS = [Finding("git", grade, "2.39.5") for grade in (Grade.OK, Grade.INFO, Grade.WARN, Grade.MISSING)]


def test_only_what_is_missing_stands_in_the_way() -> None:
    assert Examination.of(FINDINGS[:3]).ready
    assert not Examination.of(FINDINGS).ready
