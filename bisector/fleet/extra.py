"""The packages that only a fleet needs, which bisector is installed without unless they are asked for."""

import importlib.util
import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from bisector.core import resources
from bisector.core.errors import UserError


class Extra(StrEnum):
    """A set of packages, by the name that pip knows it by."""

    FLEET = "fleet"
    DASHBOARD = "dashboard"


# The names by which they are imported.
NEEDED = {Extra.FLEET: ("distributed", "tomlkit", "cryptography"), Extra.DASHBOARD: ("bokeh",)}


@dataclass(frozen=True, slots=True)
class Source:
    """What this installation came from: a path of this machine, or words that pip takes anywhere."""

    path: Path | None
    words: str = "bisector"
    editable: bool = False

    @classmethod
    def of(cls, recorded: str | None, root: Path = resources.ROOT) -> Self:
        """By what pip has recorded (PEP 610), else by the checkout at ``root``; without either it is of an index."""
        found = json.loads(recorded) if recorded else {}
        url = urlsplit(found.get("url", ""))
        if url.scheme == "file":
            return cls(Path(unquote(url.path)), editable=bool(found.get("dir_info", {}).get("editable")))
        if vcs := found.get("vcs_info"):
            return cls(None, f"bisector @ {vcs['vcs']}+{found['url']}@{vcs['commit_id']}")
        if found:
            return cls(None, f"bisector @ {found['url']}")
        if (root / "pyproject.toml").is_file():
            return cls(root, editable=True)
        return cls(None, f"bisector=={metadata.version('bisector')}")

    @classmethod
    def known(cls) -> Self:
        """That of this process."""
        return cls.of(metadata.distribution("bisector").read_text("direct_url.json"))

    def install(self, extra: Extra = Extra.FLEET) -> str:
        """What is typed to install it here with an extra: nobody has published a package of this name."""
        option = "--editable " if self.editable else ""
        return f"{sys.executable} -m pip install {option}'{self._with(extra)}'"

    def install_there(self, login: str, python: str) -> str:
        """What is typed to have the same on another machine, by what stands after ``ssh`` and the Python there."""
        ssh = f"ssh {login} {python} -m pip install"
        if self.path is None:
            return f"{ssh} '{self._with(Extra.FLEET)}'"
        wheel = f"bisector-{metadata.version('bisector')}-py3-none-any.whl"
        make = f"{sys.executable} -m pip wheel --no-deps '{self.path}'"
        return f"{make}; copy {wheel} there; then: {ssh} './{wheel}[{Extra.FLEET}]'"

    def _with(self, extra: Extra) -> str:
        return (
            f"{self.path}[{extra}]"
            if self.path is not None
            else self.words.replace("bisector", f"bisector[{extra}]", 1)
        )


def check_installed(command: str, extra: Extra = Extra.FLEET) -> None:
    """Raise :class:`UserError` where one is missing; before anything is imported that imports it."""
    missing = [name for name in NEEDED[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"{command} needs what is not installed: {', '.join(missing)}", Source.known().install(extra))
