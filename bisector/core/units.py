"""Durations, sizes and counts: formatted for people, rounded, and parsed as people type them, exactly."""

import math
import re
from collections.abc import Mapping

UNKNOWN = "–"  # noqa: RUF001 - an en dash is what typographers set for "no figure"
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
# The smaller of two units, the larger one, and the limit in seconds up to which they are used.
_DURATIONS = (
    (1, "s", _MINUTE_S, "min", _HOUR_S),
    (_MINUTE_S, "min", _HOUR_S, "h", _DAY_S),
    (_HOUR_S, "h", _DAY_S, "d", math.inf),
)
_SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_TENTHS_BELOW_S = 10
_QUOTED = 40

# The units that are typed with a figure
_BINARY = {"T": 1 << 40, "G": 1 << 30, "M": 1 << 20, "K": 1 << 10}
# A single letter is a power of 1024, as for fio, LVM and QEMU.
_TYPED_SIZES = {
    **{f"{letter}iB": factor for letter, factor in _BINARY.items()},
    **{name: factor for letter, factor in _BINARY.items() for name in (letter, letter.lower())},
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
    "": 1,
}
_TYPED_DURATIONS = {
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("min", "m", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "second", "seconds", ""), 1.0),
    "us": 0.000001,
    "ms": 0.001,
}
_QUANTITY = re.compile(r"(?P<number>[0-9]{1,20}(?:\.[0-9]{1,40})?) *(?P<unit>\S*)", re.ASCII)
_PART = re.compile(r"[0-9.]+ *[A-Za-z]+")


def duration(seconds: float) -> str:
    """Format a duration, with two units at most: ``4.2 s``, ``38 s``, ``3 min 12 s``, ``1 h 12 min``, ``2 d 3 h``."""
    if not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if round(seconds, 1) < _TENTHS_BELOW_S:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    # Rounded to the smaller unit before it is taken apart, so that no "60 min" comes out.
    rounded = ((round(round(seconds) / row[0]) * row[0], row) for row in _DURATIONS)
    whole, (small_s, small, large_s, large, _) = next(one for one in rounded if one[0] < one[1][-1])
    parts = ((whole // large_s, large), (whole % large_s // small_s, small))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def clock(seconds: float) -> str:
    """Format an elapsed time as a running clock: ``0:31``, ``12:05``, ``1:02:33``."""
    whole = max(0, int(seconds)) if math.isfinite(seconds) else 0
    hours, rest = divmod(whole, _HOUR_S)
    minutes, left = divmod(rest, _MINUTE_S)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def size(size_bytes: int) -> str:
    """Format a size: ``512 B``, ``64 MiB``, ``1.5 GiB``; powers of 1024, one decimal unless it is 0."""
    if abs(size_bytes) < 1024:  # noqa: PLR2004 - the definition of the unit
        return f"{size_bytes} B"
    value, unit = size_bytes / 1024, _SIZE_UNITS[0]
    for larger in _SIZE_UNITS[1:]:
        if abs(round(value, 1)) < 1024:  # noqa: PLR2004 - the definition of the unit
            break
        value, unit = value / 1024, larger
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"


def seconds(figure: float) -> str:
    """Format seconds for a column, with one decimal: ``279.4``."""
    return f"{figure:,.1f}" if math.isfinite(figure) else UNKNOWN


def share(probability: float) -> str:
    """Format a probability in percent, never rounded to a certainty: ``99.4 %``, ``above 99.9 %``."""
    if probability > 0.999:  # noqa: PLR2004 - what a tenth of a percent can say
        return "above 99.9 %"
    return f"{100 * probability:.1f} %" if probability >= 0.001 else "below 0.1 %"  # noqa: PLR2004 - the same


def percent_text(share: float) -> str:
    """Format a share in percent, with up to six digits: ``5%``, ``0.05%``."""
    return f"{100 * share:.6g}%"


def plural(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: ``1 trial``, ``9 trials``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_bytes(text: str) -> int:
    """Parse a size in bytes, "512MiB", "64M", "1.5GB" or "4096"; raises :class:`ValueError`."""
    number, factor = quantity(text, _TYPED_SIZES)
    size = number * factor
    if size != int(size):
        raise ValueError(f"not a whole number of bytes: {text!r}")
    return int(size)


def size_text(size: int) -> str | int:
    """Format a size for :func:`size_bytes`, in the largest binary unit that is exact, else as a number of bytes."""
    for unit, factor in _TYPED_SIZES.items():
        if unit.endswith("iB") and size and size % factor == 0:
            return f"{size // factor}{unit}"
    return size


def duration_s(text: str) -> float:
    """Parse a duration in seconds, "40s", "15min", "1h 30m", "6 hours", "500ms" or "40"; raises :class:`ValueError`."""
    parts = _PART.findall(text) if re.fullmatch(rf"\s*(?:{_PART.pattern}\s*){{2,}}", text) else [text]
    return float(sum(number * factor for number, factor in (quantity(part, _TYPED_DURATIONS) for part in parts)))


def duration_text(seconds: float) -> str | float:
    """Format a duration for :func:`duration_s`, in the largest unit that gives a whole number, else in seconds."""
    if not seconds:
        return "0s"
    for unit in ("h", "min", "s"):
        count = seconds / _TYPED_DURATIONS[unit]
        if count == int(count) and count * _TYPED_DURATIONS[unit] == seconds:
            return f"{int(count)}{unit}"
    written = repr(float(seconds))
    return float(seconds) if "e" in written else f"{written}s"


def quantity(text: str, units: Mapping[str, float]) -> tuple[float, float]:
    """Parse a number with a unit; return it with the factor of that unit. Raises :class:`ValueError`."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match["unit"] not in units:
        raise ValueError(f"not a number with a unit: {text[:_QUOTED]!r}")
    number = match["number"]
    return (float(number) if "." in number else int(number)), units[match["unit"]]
