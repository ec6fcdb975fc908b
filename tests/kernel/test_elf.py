from pathlib import Path

import pytest

from bisector import process
from bisector.errors import InfraError
from bisector.kernel import elf


def linked(directory: Path, build_id: str, value: int = 1) -> Path:
    """A small executable with a given build-id note."""
    source, image = directory / "x.c", directory / f"vmlinux-{build_id}-{value}"
    source.write_text(f"int value = {value};\nvoid _start(void) {{ value++; }}\n")
    argv = ["gcc", "-ffreestanding", "-fno-pic", "-no-pie", "-nostdlib", "-static", f"-Wl,--build-id={build_id}"]
    process.run([*argv, "-o", image, source], deadline_s=30)
    return image


def test_build_id_is_read(tmp_path: Path) -> None:
    assert elf.build_id(linked(tmp_path, "0xabcdef01")) == "abcdef01"
    assert elf.build_id(linked(tmp_path, "none")) == ""


def test_content_is_what_is_loaded_and_not_the_build_id(tmp_path: Path) -> None:
    one, other = linked(tmp_path, "0xaaaaaaaa"), linked(tmp_path, "0xbbbbbbbb")
    assert elf.content_sha256(one) == elf.content_sha256(other)
    assert elf.content_sha256(one) != elf.content_sha256(linked(tmp_path, "0xaaaaaaaa", value=2))
    assert not list(tmp_path.glob("content-*"))


def test_a_tool_that_fails_is_the_hosts_fault(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="readelf"):
        elf.build_id(tmp_path / "none")
