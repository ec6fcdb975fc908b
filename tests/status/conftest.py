"""git as on a machine where nobody has configured it."""

from tests.git.conftest import unconfigured as unconfigured  # noqa: PLC0414 - a fixture of this room, too
