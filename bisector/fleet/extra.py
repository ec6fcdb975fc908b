"""The packages that only a fleet needs, which ``pip install bisector`` leaves out."""

import importlib.util
import sys
from importlib import metadata

from bisector.core.errors import UserError

NEEDED = ("distributed", "tomlkit", "cryptography")


def check_installed(command: str) -> None:
    """Raise :class:`UserError` where one is missing; before anything is imported that imports it."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"{command} needs what is not installed: {', '.join(missing)}",
            f"{sys.executable} -m pip install 'bisector[fleet]=={metadata.version('bisector')}'",
        )
