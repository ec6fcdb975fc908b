"""Names, units and sides of metrics."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisector.core.errors import UserError
from bisector.core.metric import DIRECTIONS, Better, Unit, custom, is_short, named, short, table


@pytest.mark.parametrize(
    ("name", "unit", "better", "live"),
    [
        ("read.iops", Unit.IOPS, Better.HIGHER, True),
        ("write.bw", Unit.BYTES_S, Better.HIGHER, True),
        ("trim.lat.mean", Unit.NANOSECONDS, Better.LOWER, False),
        ("read.clat.p99.95", Unit.NANOSECONDS, Better.LOWER, False),
        ("write.iops.steady", Unit.IOPS, Better.HIGHER, True),
        ("settled_after", Unit.SECONDS, Better.LOWER, False),
        ("elapsed", Unit.SECONDS, Better.LOWER, False),
        ("cache.promotions", Unit.COUNT, None, False),
    ],
)
def test_each_metric_has_a_unit_and_a_better_side(name: str, unit: Unit, better: Better | None, live: bool) -> None:
    found = named(name)
    assert (found.name, found.unit, found.better, found.live) == (name, unit, better, live)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("read.iosp", "read.ios"), ("iops", "read.iops"), ("wirte.iops", "write.iops")),
        *(("read.clat.99", "read.clat.p99"), ("write.lat.99.9", "write.lat.p99.9"), ("clat.p99", "read.clat.p99")),
        *(("trim.iosp", "trim.ios"), ("cache.hitratio", "cache.hit_ratio")),
        *(
            ("fsync.lat.p99", "sync.lat.p99"),
            ("fsync.lat.99", "sync.lat.p99"),
            ("wirte.clat.p99.9", "write.clat.p99.9"),
        ),
    ],
)
def test_a_name_that_is_nearly_one_has_a_hint(typed: str, meant: str) -> None:
    with pytest.raises(UserError) as caught:
        named(typed)
    assert caught.value.hint.startswith(f"did you mean {meant}? ")


@pytest.mark.parametrize(("typed", "name"), [("p99.90", "p99.9"), ("p09", "p9"), ("p99.0", "p99"), ("p50", "p50")])
def test_a_percentile_has_one_name_however_it_is_typed(typed: str, name: str) -> None:
    """What is read off a run has that name, and no other."""
    assert named(f"read.clat.{typed}").name == f"read.clat.{name}"
    assert f"{name[1:]}th percentile" in named(f"read.clat.{typed}").sentence


def test_the_listing_has_every_metric_once_and_patterns_for_directions() -> None:
    names = [one.name for one in table()]
    assert len(names) == len(set(names))
    for name in names:
        for direction in DIRECTIONS:
            assert named(name.replace("{read,write,trim,mixed}", direction).replace("pN", "p99")).unit


@pytest.mark.parametrize(
    ("unit", "typed", "value", "told"),
    [
        (Unit.IOPS, "20000", 20_000, "20,000 IOPS"),
        (Unit.IOPS, "20k", 20_000, "20,000 IOPS"),
        (Unit.BYTES_S, "80MiB/s", 80 << 20, "80 MiB/s"),
        (Unit.BYTES_S, "1.5GB/s", 1.5e9, "1.4 GiB/s"),
        (Unit.NANOSECONDS, "1.5ms", 1.5e6, "1.50 ms"),
        (Unit.NANOSECONDS, "16.23 ms", 16.23e6, "16.2 ms"),
        (Unit.NANOSECONDS, "620us", 620e3, "620 µs"),
        (Unit.SECONDS, "2min", 120, "2 min"),
        (Unit.PERCENT, "95%", 95, "95.0 %"),
        (Unit.COUNT, "1200", 1200, "1,200"),
    ],
)
def test_values_as_they_are_typed_and_told(unit: Unit, typed: str, value: float, told: str) -> None:
    assert unit.read(typed) == pytest.approx(value)
    assert unit.text(value) == told


@pytest.mark.parametrize(
    ("unit", "typed"),
    [
        (Unit.NANOSECONDS, "1500"),
        (Unit.BYTES_S, "80"),
        (Unit.BYTES_S, "80MiB"),
        (Unit.IOPS, "0"),
        (Unit.IOPS, "-1"),
        (Unit.IOPS, "1.5ms"),
        (Unit.COUNT, "nan"),
        (Unit.SECONDS, ""),
    ],
)
def test_what_is_no_value_is_refused_with_an_example(unit: Unit, typed: str) -> None:
    with pytest.raises(UserError, match="is not a value in") as caught:
        unit.read(typed)
    assert unit.example in caught.value.hint


@given(st.floats(1e-6, 1e15), st.sampled_from(list(Unit)))
def test_what_is_typed_is_read_as_the_very_value(value: float, unit: Unit) -> None:
    assert unit.read(unit.typed(value)) == value


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("better", Better)
def test_name_of_a_commands_figure_says_all_of_it(unit: Unit, better: Better) -> None:
    found = named(custom("latency.p99", unit, better))
    assert (found.unit, found.better, found.live) == (unit, better, False)
    assert short(found.name) == "custom:latency.p99"
    assert is_short(short(found.name))
    assert not is_short(found.name)
    assert short("read.clat.p99") == "read.clat.p99"


NO_METRICS = ["", "iops", "read", "read.iops.p99", "read.clat.p", "read.clat.p0.0", "read.clat.p100x", "erase.iops"]
NO_FIGURES = ["custom:", "custom:tps", "custom:tps:1/s", "custom:tps:m:higher", "custom:a b:s:lower"]


def figure(name: str) -> str:
    return custom(name, Unit.RATE, Better.HIGHER)


@pytest.mark.parametrize(
    ("read", "texts", "message", "hint"),
    [
        (named, NO_METRICS, "there is no metric", "docs/metrics.md lists them"),
        (named, NO_FIGURES, "there is no metric", "custom:NAME:UNIT:higher"),
        (Unit.of, ["", "furlong", "m/s", "S"], "there is no unit", "MiB/s"),
        (figure, ["", "TPS", "a b", "a:b", "ä", "-x", "x" * 65], "not a name of a figure", "latency.p99"),
    ],
)
def test_names_of_nothing(read: Callable[[str], object], texts: list[str], message: str, hint: str) -> None:
    for text in texts:
        with pytest.raises(UserError, match=message) as caught:
            read(text)
        assert hint in caught.value.hint
