"""Numbers as fio's text output prints them, to bytes, nanoseconds and counts, each with what printing took from it.

Up to 2.16 fio has ``K``, ``M``, ``G``, ``P`` for the first four powers (there is no ``T``), of 1024 where it prints
bytes, or of 1000 for a job with ``kb_base=1000``, which it does not say; and the digits after the point are the
remainder cut short, so that 1.05 M is printed as ``1.5M`` (lib/num2str.c of fio-2.16). Since 2.17 prefixes are those
of IEC and SI, and decimals are decimals.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

KIB = 1024
_SI = 1000
_OLD_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "P": 4, "E": 5}
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_UNIT_BYTES = {"B": 1.0, "bit": 0.125}
TIME_NS: Mapping[str, int] = {"nsec": 1, "usec": 1_000, "msec": 1_000_000}

# What stands for a number, for the patterns of lines.
COUNT = r"\d+(?:\.\d+)?[kKMGTPE]?"
OLD_BYTES = r"\d+(?:\.\d+)? ?[KMGPE]?(?:B|bit)"
BYTES = r"\d+(?:\.\d+)?(?:[kMGTPE]|[KMGTPE]i)?(?:B|bit)"

_PRINTED = re.compile(r"(\d+)(?:\.(\d+))? ?([kKMGTPE]?)(i?)(B|bit|)")


@dataclass(frozen=True, slots=True)
class Printed:
    """A figure that was printed; the true one is less than ``slack`` away."""

    value: float
    slack: float

    def may_be(self, value: float, slack: float = 0.0) -> bool:
        """Whether it can be ``value``, which is itself known to ``slack``."""
        return abs(self.value - value) <= self.slack + slack

    def __add__(self, other: "Printed") -> "Printed":
        return Printed(self.value + other.value, self.slack + other.slack)


def old_bytes(text: str, kilo: int) -> Printed:
    """Bytes, of fio up to 2.16: ``7529.9MB``, ``998342B``, ``504885 B``; ``kilo`` is 1024 or 1000."""
    whole, fraction, prefix, _, unit = _parts(text)
    size = float(kilo ** _OLD_POWERS[prefix]) * _UNIT_BYTES[unit]
    return Printed(_number(whole, fraction) * size, size)


def in_bytes(text: str) -> Printed:
    """Bytes, of fio since 2.17: ``20.7MiB``, ``21.7MB``, ``96kbit``."""
    whole, fraction, prefix, binary, unit = _parts(text)
    size = float((KIB if binary else _SI) ** _POWERS[prefix]) * _UNIT_BYTES[unit]
    return Printed(_number(whole, fraction) * size, size * 10.0 ** -len(fraction))


def count(text: str, *, old: bool) -> Printed:
    """A count, or a time in whatever unit its line has: ``2141``, ``1514.5K``, ``112k``."""
    whole, fraction, prefix, _, _ = _parts(text)
    powers = _OLD_POWERS if old else _POWERS
    if prefix not in powers:
        raise ValueError(f"{text!r} is no number of this version of fio")
    size = float(_SI ** powers[prefix])
    return Printed(_number(whole, fraction) * size, size * (1.0 if old else 10.0 ** -len(fraction)))


def _number(whole: str, fraction: str) -> float:
    return float(f"{whole}.{fraction or 0}")


def _parts(text: str) -> tuple[str, str, str, str, str]:
    found = _PRINTED.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no number that fio prints")
    whole, fraction, prefix, binary, unit = found.groups(default="")
    return whole, fraction, prefix, binary, unit


def rate(amount: Printed, milliseconds: int) -> Printed:
    """An amount over a time as a figure per second."""
    per_second = 1000 / milliseconds if milliseconds else math.inf
    return Printed(amount.value * per_second, amount.slack * per_second)
