"""The packages that only a fleet needs, which ``pip install bisector`` leaves out."""

import importlib.util
import sys
from enum import StrEnum
from importlib import metadata

from bisector.core.errors import UserError


class Extra(StrEnum):
    """A set of packages, by its name in ``pip install 'bisector[NAME]'``."""

    FLEET = "fleet"
    DASHBOARD = "dashboard"


# The names by which they are imported.
NEEDED = {Extra.FLEET: ("distributed", "tomlkit", "cryptography"), Extra.DASHBOARD: ("bokeh",)}


def check_installed(command: str, extra: Extra = Extra.FLEET) -> None:
    """Raise :class:`UserError` where one is missing; before anything is imported that imports it."""
    missing = [name for name in NEEDED[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"{command} needs what is not installed: {', '.join(missing)}",
            f"{sys.executable} -m pip install 'bisector[{extra}]=={metadata.version('bisector')}'",
        )
