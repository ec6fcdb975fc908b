"""A bench with one compiler for all tests."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.kernel import toolchain
from tests.kernel.bench import Bench


@pytest.fixture(scope="module")
def gcc() -> toolchain.Toolchain:
    return replace(toolchain.detect(""), cc="gcc", host_cc="gcc")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gcc: toolchain.Toolchain) -> Bench:
    """The compiler is looked for once, not by each of some fifty builders, and never behind ccache."""
    monkeypatch.setattr(toolchain, "detect", lambda compiler: replace(gcc, cc=compiler or "gcc"))
    return Bench(tmp_path)
