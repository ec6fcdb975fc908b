"""The keys of the JSON documents that scripts read: tables, from which docs/json.md is made and which tests hold."""

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A key by its path from the top (``trials[].runs[].jobs``), and what it means.

    ``record`` is the dataclass whose fields are the keys of the object, or of each object of the list; ``more`` are
    keys beside these. ``free`` is an object whose keys are data.
    """

    path: str
    meaning: str
    record: type | None = None
    more: tuple[str, ...] = ()
    free: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the object that is there; none for a plain value."""
        own = () if self.record is None else tuple(field.name for field in dataclasses.fields(self.record))
        return (*own, *self.more)

    @property
    def sentence(self) -> str:
        """What it means, and which keys it has, for the page."""
        return f"{self.meaning}; keys: {', '.join(f'`{key}`' for key in self.keys)}" if self.keys else self.meaning
