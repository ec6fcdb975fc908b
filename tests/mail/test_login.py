"""A login from the environment or from a file that is closed to others."""

import re
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.mail.smtp import PASSWORD, USERNAME, SmtpLogin, find_login


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "login"
    made.write_text("username = me@example.org\npassword = a=b c\n")
    made.chmod(0o600)
    return made


def test_environment_comes_before_the_file(file: Path) -> None:
    assert find_login(file, {}) == SmtpLogin("me@example.org", "a=b c")
    assert find_login(file, {USERNAME: "you", PASSWORD: "word"}) == SmtpLogin("you", "word")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_file_that_others_can_read_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(UserError, match=f"others may read {re.escape(str(file))}") as caught:
        find_login(file, {})
    assert caught.value.hint == f"chmod 600 {file}"


@pytest.mark.parametrize("text", ["", "password=x\n", "username=\npassword=x\n", "me\nsecret\n"])
def test_file_without_a_login(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match="has no login") as caught:
        find_login(file, {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("given", "missing"), [(USERNAME, PASSWORD), (PASSWORD, USERNAME)])
def test_half_a_login(given: str, missing: str) -> None:
    with pytest.raises(UserError, match=f"{missing} is not set"):
        find_login(None, {given: "x"})
