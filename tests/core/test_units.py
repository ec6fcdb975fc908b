import pytest

from bisector.core import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.04, "0 s"),
        (4.25, "4.2 s"),
        (9.96, "10 s"),
        (38, "38 s"),
        (59.6, "1 min"),
        (192, "3 min 12 s"),
        (3599.7, "1 h"),
        (4320, "1 h 12 min"),
        (86399, "1 d"),
        (183_600, "2 d 3 h"),
        (-3600, "-1 h"),
        (float("nan"), units.UNKNOWN),
        (float("inf"), units.UNKNOWN),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


def test_clock() -> None:
    assert [units.clock(s) for s in (0, 31.9, 725, 3753, -1, float("nan"))] == [
        "0:00",
        "0:31",
        "12:05",
        "1:02:33",
        "0:00",
        "0:00",
    ]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1010 << 10, "1010 KiB"),
        (64 << 20, "64 MiB"),
        (3 << 29, "1.5 GiB"),
        ((1 << 20) - 1, "1 MiB"),
        (1 << 62, "4096 PiB"),
    ],
)
def test_size(size_bytes: int, text: str) -> None:
    assert units.size(size_bytes) == text


@pytest.mark.parametrize(
    ("probability", "text"),
    [(1.0, "above 99.9 %"), (0.9991, "above 99.9 %"), (0.9938, "99.4 %"), (0.0, "below 0.1 %"), (0.001, "0.1 %")],
)
def test_share(probability: float, text: str) -> None:
    assert units.share(probability) == text
