"""git as on a machine where nobody has configured it, and histories in it."""

from tests.git.conftest import make as make  # noqa: PLC0414 - a fixture of this room, too
from tests.git.conftest import unconfigured as unconfigured  # noqa: PLC0414 - a fixture of this room, too
