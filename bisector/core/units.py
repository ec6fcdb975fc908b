"""Figures as people write them: durations, sizes, counts."""

import math

UNKNOWN = "–"  # noqa: RUF001 - an en dash is what typographers set for "no figure"
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86400
_SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_TENTHS_BELOW_S = 10


def duration(seconds: float) -> str:
    """Two units at most: ``4.2 s``, ``38 s``, ``3 min 12 s``, ``1 h 12 min``, ``2 d 3 h``."""
    if not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if round(seconds, 1) < _TENTHS_BELOW_S:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    return _whole_duration(round(seconds))


def _whole_duration(whole: int) -> str:
    """Rounded to the smaller unit before it is taken apart, so that no ``60 min`` comes out."""
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return _two_units(whole, _MINUTE_S, "min", 1, "s")
    minutes_s = round(whole / _MINUTE_S) * _MINUTE_S
    if minutes_s < _DAY_S:
        return _two_units(minutes_s, _HOUR_S, "h", _MINUTE_S, "min")
    return _two_units(round(whole / _HOUR_S) * _HOUR_S, _DAY_S, "d", _HOUR_S, "h")


def _two_units(whole: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = whole % large // small
    return f"{whole // large} {large_name}" + (f" {rest} {small_name}" if rest else "")


def clock(seconds: float) -> str:
    """Elapsed time that ticks without changing its form: ``0:31``, ``12:05``, ``1:02:33``."""
    whole = max(0, int(seconds)) if math.isfinite(seconds) else 0
    hours, rest = divmod(whole, _HOUR_S)
    minutes, left = divmod(rest, _MINUTE_S)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def size(size_bytes: int) -> str:
    """``512 B``, ``64 MiB``, ``1.5 GiB``: powers of 1024, one decimal where it says something."""
    if abs(size_bytes) < 1024:  # noqa: PLR2004 - the definition of the unit
        return f"{size_bytes} B"
    value, unit = size_bytes / 1024, _SIZE_UNITS[0]
    for larger in _SIZE_UNITS[1:]:
        if abs(round(value, 1)) < 1024:  # noqa: PLR2004 - the definition of the unit
            break
        value, unit = value / 1024, larger
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"


def seconds(figure: float) -> str:
    """Seconds for a column of them, one decimal: ``279.4``."""
    return f"{figure:,.1f}" if math.isfinite(figure) else UNKNOWN


def share(probability: float) -> str:
    """A probability in percent, never rounded to a certainty: ``99.4 %``, ``above 99.9 %``."""
    if probability > 0.999:  # noqa: PLR2004 - what a tenth of a percent can say
        return "above 99.9 %"
    return f"{100 * probability:.1f} %" if probability >= 0.001 else "below 0.1 %"  # noqa: PLR2004 - the same


def plural(count: int, one: str, many: str = "") -> str:
    """``1 trial``, ``9 trials``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
