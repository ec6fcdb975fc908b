"""What goes through ccache's depend mode, and that what it cannot see is compiled anew."""

import os
from pathlib import Path

import pytest

from bisector.host import process
from bisector.kernel import toolchain
from tests.programs import program

WRAPPER = Path(toolchain.__file__).with_name("behind-ccache.sh")
INCBIN = '.section .rodata\\n.incbin \\"data\\"'
SOURCES = {
    "a.c": "int a;\n",
    "a.S": '#include "macros elsewhere.h"\n',
    "config.c": f'asm("{INCBIN}");\n',
    "piggy.S": INCBIN.replace("\\n", "\n").replace("\\", "") + "\n",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "data").write_text("one")
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    return tmp_path


def compiled(tree: Path, source: str) -> bytes:
    """As Kbuild compiles (scripts/Makefile.build)."""
    argv: list[str | Path] = ["sh", WRAPPER, "gcc", "-Wp,-MMD,.out.d", "-c", "-o", "out.o", source]
    process.run(argv, deadline_s=30, cwd=tree)
    return (tree / "out.o").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "through"),
    [
        pytest.param(["-c", "-o", "a.o", "a.c"], True, id="C"),
        pytest.param(["-c", "-o", "a.o", "config.c"], False, id="C with .incbin"),
        pytest.param(["-c", "-o", "a.o", "a.S"], False, id="assembler"),
        pytest.param(["-c", "-o", "a.o", "no such.c"], False, id="no source"),
        pytest.param(["--version"], False, id="a question"),
        pytest.param(["-E", "-"], False, id="standard input"),
    ],
)
def test_c_that_is_all_in_its_dependency_file_goes_through_ccache(
    tree: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], through: bool
) -> None:
    for name, says in (("ccache", "through $CCACHE_DEPEND $*"), ("gcc", "itself $CCACHE_DEPEND $*")):
        program(tree / name, f'echo "{says}"')
    monkeypatch.setenv("PATH", f"{tree}:{os.environ['PATH']}")
    said = process.run(["sh", WRAPPER, "gcc", *arguments], deadline_s=10, cwd=tree).stdout
    assert said == (f"through 1 gcc {' '.join(arguments)}\n" if through else f"itself  {' '.join(arguments)}\n")


@pytest.mark.parametrize("source", ["config.c", "piggy.S"])
def test_what_the_assembler_reads_is_never_another_builds(tree: Path, source: str) -> None:
    """The whole compressed kernel is such a file."""
    assert b"one" in compiled(tree, source)
    (tree / "data").write_text("two")
    assert b"two" in compiled(tree, source)


def test_a_changed_header_is_seen(tree: Path) -> None:
    (tree / "a.c").write_text('#include "a.h"\nint a = A;\n')
    seen = []
    for value in ("1", "2", "1"):
        (tree / "a.h").write_text(f"#define A {value}\n")
        os.utime(tree / "a.h", (1e9, 1e9))  # a header as new as the compilation is not trusted by ccache
        seen.append(compiled(tree, "a.c"))
    assert seen[0] == seen[2] != seen[1]
