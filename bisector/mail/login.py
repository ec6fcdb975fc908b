"""Who we are to a mail server: from the environment, or from a file that nobody else can read."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.errors import UserError

USERNAME, PASSWORD = "BISECTOR_SMTP_USERNAME", "BISECTOR_SMTP_PASSWORD"
_FORM = "two lines: username=… and password=…"


@dataclass(frozen=True, slots=True)
class Login:
    """A name and a password, which is in no text that is made of this."""

    username: str
    password: str = field(repr=False)


def find(file: Path | None, environment: Mapping[str, str] = os.environ) -> Login | None:
    """The environment's, else the file's, else none; raises :class:`UserError` for half a login or an open file."""
    username, password = environment.get(USERNAME, ""), environment.get(PASSWORD, "")
    if bool(username) is not bool(password):
        missing = PASSWORD if username else USERNAME
        raise UserError(f"{missing} is not set, and {USERNAME if password else PASSWORD} is set", "set both, or none")
    if username:
        return Login(username, password)
    return _read(file) if file is not None else None


def _read(file: Path) -> Login:
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"mail.login_file: cannot read {file}: {error}", f"{_FORM}, then: chmod 600 {file}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError(f"mail.login_file: others may read {file} (mode {stat.S_IMODE(mode):o})", f"chmod 600 {file}")
    values = {name.strip(): value.strip() for name, equals, value in map(_parted, text.splitlines()) if equals}
    if not (values.get("username") and values.get("password")):
        raise UserError(f"mail.login_file: {file} has no login", _FORM)
    return Login(values["username"], values["password"])


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition("=")
