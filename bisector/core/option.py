"""A row of the table of settings, and what is wrong with the values of several."""

from dataclasses import dataclass

from bisector.core.kinds import Kind


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: its key in the file, its field in :class:`bisector.config.Settings`, its kind and its values.

    ``article`` is the value in that profile where it differs from ``quick``; ``const`` makes the
    flag one without an argument, or the flag ``short`` beside it; ``repeat`` lets it be given more than once, for a
    list. ``before`` is what held before there was such a setting, where that is not the profile's value, and
    ``formerly`` the key under which it was recorded.
    """

    key: str
    field: str
    kind: Kind
    quick: object
    help: str
    article: object = None
    flag: str = ""
    metavar: str = ""
    const: str = ""
    repeat: bool = False
    before: object = None
    short: str = ""
    formerly: str = ""

    def in_profile(self, profile: str) -> object:
        """The value in a profile, as written."""
        return self.quick if profile == "quick" or self.article is None else self.article


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong and the keys whose values make it so, the likeliest to be changed first."""

    keys: tuple[str, ...]
    sentence: str
    hint: str = ""
