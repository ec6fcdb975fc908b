"""Figures of a command: how they are described, and what of its output is one."""

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.host.process import run_here
from bisector.workload.command import FIGURES, Command, matched_apart, read_figure
from bisector.workload.repetitions import GuestState, Unusable


@pytest.mark.parametrize(
    ("spec", "metric"),
    [
        ("throughput=MiB/s,higher", "custom:throughput:B/s:higher"),
        ("p99=ms,lower,json:latency.p99", "custom:p99:ns:lower"),
        ("tps=1/s,higher,regex:tps = ([0-9.]+)", "custom:tps:1/s:higher"),
        (" runs = count , lower ", "custom:runs:count:lower"),
        ("t=s,lower,regex:(a,b:c=d)", "custom:t:s:lower"),
    ],
)
def test_descriptions(spec: str, metric: str) -> None:
    figure = read_figure(spec)
    assert figure.metric == metric
    assert read_figure(figure.text) == figure


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tps", "describes no figure"),
        ("tps=1/s", "describes no figure"),
        ("tps=,higher", "there is no unit ''"),
        ("tps=furlong,higher", "there is no unit 'furlong'"),
        ("tps=1/s,faster", "higher or lower"),
        ("TPS=1/s,higher", "not a name of a figure"),
        ("=1/s,higher", "not a name of a figure"),
        ("tps=1/s,higher,xml:a", "not by xml"),
        ("tps=1/s,higher,line:a", "not by line"),
        ("tps=1/s,higher,json:", "not a path in JSON"),
        ("tps=1/s,higher,json:a..b", "not a path in JSON"),
        ('tps=1/s,higher,json:a."b', "not a path in JSON"),
        ('tps=1/s,higher,json:"a"b', "not a path in JSON"),
        ("tps=1/s,higher,regex:(", "missing \\)"),
        ("tps=1/s,higher,regex:tps", "0 groups"),
        ("tps=1/s,higher,regex:(a)(b)", "2 groups"),
    ],
)
def test_what_describes_no_figure(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_figure(spec)


@pytest.mark.parametrize(
    ("spec", "output", "value"),
    [
        ("tps=1/s,higher", "ready\ntps=1500\ndone\n", 1500.0),
        ("tps=1/s,higher", "  tps = 1.5 k\r\n", 1500.0),
        ("tps=1/s,higher", "tps=1.5e3 1/s", 1500.0),
        ("mytps=1/s,higher", "tps=1\nmytps=2\nmytps2=3", 2.0),
        ("a.b=1/s,higher", "axb=1\na.b=2\n", 2.0),
        ("bw=MiB/s,higher", "bw=2", 2.0 * 2**20),
        ("bw=MiB/s,higher", "bw=2 kB/s", 2000.0),
        ("t=ms,lower", "t=2", 2e6),
        ("t=ms,lower", "t=2 s", 2e9),
        ("t=s,lower", "t=0", 0.0),
        ("t=s,lower", "t=5 us", 5e-6),
        ("n=count,lower", "n=5 count", 5.0),
        ("t=ms,lower,json:latency.p99", '{"latency": {"p99": 1.5}, "x": [1]}', 1.5e6),
        ("t=1/s,lower,json:0.tps", '[{"tps": 7}]', 7.0),
        ('t=ns,lower,json:clat."99.900000"', '{"clat": {"99.900000": 8}}', 8.0),
        ('n=count,lower,json:"a \\"b\\"".0."c.d".e', '{"a \\"b\\"": [{"c.d": {"e": 3}}]}', 3.0),
        ("t=1/s,higher,regex:tps = ([0-9.]+) \\(", "tps = 9 of\ntps = 12.5 (without\n", 12.5),
        ("t=1/s,higher,regex:took (\\S+ ?\\S*)$", "it took 5 k/s", 5000.0),
    ],
)
def test_figures_in_output(spec: str, output: str, value: float) -> None:
    assert read_figure(spec).value(output) == pytest.approx(value)


@pytest.mark.parametrize(
    ("spec", "output", "message"),
    [
        ("tps=1/s,higher", "", "it ended well and printed no figure tps"),
        ("tps=1/s,higher", "tpsx=1\nxtps=2\n# tps=3", "printed no figure tps"),
        ("tps=1/s,higher", "tps=1\ntps=2\n", r"printed the figure tps 2 times \(1, 2\)"),
        ("tps=1/s,higher", "tps=many", "the figure tps is 'many', which is not a number"),
        ("tps=1/s,higher", "tps=nan", "which is not a number"),
        ("tps=1/s,higher", "tps=1e999", "the figure tps is inf"),
        ("tps=1/s,higher", f"tps={'9' * 5000}", "which is not a number"),
        ("tps=1/s,higher", "tps=5 ms", "is printed in ms, and not in 1/s"),
        ("tps=1/s,higher", "tps=5 parsecs", "is printed in parsecs"),
        ("t=ms,lower,json:a.b", "", "printed no figure t"),
        ("t=ms,lower,json:a.b", "{}", "printed no figure t"),
        ("t=ms,lower,json:a.0", '{"a": []}', "printed no figure t"),
        (f"t=ms,lower,json:{'1' * 5000}", "[1]", "printed no figure t"),
        ("t=ms,lower,json:a", '{"a": "fast"}', 'the figure t is "fast", which is not a number'),
        ("t=ms,lower,json:a", '{"a": true}', "the figure t is true"),
        ("t=ms,lower,json:a", '{"a": NaN}', "the figure t is nan"),
        ("t=ms,lower,json:a", f'{{"a": {"9" * 400}}}', "too many digits"),
        ("t=ms,lower,json:a", "{", "what it printed is not JSON"),
        ("t=ms,lower,json:a", "[" * 100_000, "what it printed is not JSON"),
        ("t=1/s,higher,regex:tps = ([0-9.]*)", "tps = ", "the figure t is '', which is not a number"),
        ("t=1/s,higher,regex:(?:x|tps=([0-9]))", "x", "the figure t is ''"),
    ],
)
def test_output_that_has_no_figure(spec: str, output: str, message: str) -> None:
    with pytest.raises(Unusable, match=message):
        read_figure(spec).value(output)


def test_hint_shows_what_was_expected() -> None:
    with pytest.raises(Unusable) as caught:
        read_figure("bw=MiB/s,higher").value("")
    assert caught.value.hint == "expected one line such as 'bw=12.5 MiB/s' on standard output"


@given(st.text())
def test_no_output_is_a_bug(output: str) -> None:
    for spec in ("t=s,lower", "t=s,lower,json:t", "t=s,lower,regex:t=(.*)"):
        with suppress(Unusable):
            assert isinstance(read_figure(spec).value(output), float)


def test_setting_of_several_figures() -> None:
    found = FIGURES.read(["a=s,lower", "b=1/s,higher"], None)
    assert FIGURES.write(found) == ["a=s,lower", "b=1/s,higher"]
    own = Command("true", (), "", found, 1, GuestState.KEPT, 0)
    assert own.full_name("custom:b") == "custom:b:1/s:higher"
    with pytest.raises(UserError, match="has no figure custom:c"):
        own.full_name("custom:c")
    with pytest.raises(UserError, match="two figures are called a"):
        FIGURES.read(["a=s,lower", "a=1/s,higher"], None)


def test_an_expression_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matches = matched_apart(run_here, tmp_path)
    assert read_figure("tps=1/s,higher,regex:tps = ([0-9.]+)").value("tps = 12.5\r\nno\n", matches) == 12.5
    assert matches("(é?)x", "éx\nx") == ["é", ""]
    monkeypatch.setattr(process, "RUN_HERE_DEADLINE_S", 0.5)
    start = time.monotonic()
    with pytest.raises(UserError, match=r"the expression '\(a\+\)\+\$' takes too long on what the command printed"):
        read_figure("tps=1/s,higher,regex:(a+)+$").value("a" * 40 + "b", matches)
    assert time.monotonic() - start < 20
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_does_not_run_python_is_no_fault_of_the_kernel(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="python does not run here"):
        matched_apart(lambda command, variables: None, tmp_path)("(a)", "a")
