"""Input files are kept with the run."""

from pathlib import Path

from bisector.config import options
from bisector.store import inputs


def test_a_later_edit_of_an_input_changes_nothing(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    mine = {name: tmp_path / name for name in ("my.fio", "mine.config", "base")}
    for name, path in mine.items():
        path.write_text(
            "[mine]\nnumjobs=2\n" if name == "my.fio" else f"# CONFIG_{name.upper()} is not set\nCONFIG_X86_64=y\n"
        )
    flags = {
        "workload.job": str(mine["my.fio"]),
        "kernel.base_config": str(mine["base"]),
        "kernel.fragments": ("vm", str(mine["mine.config"])),
    }
    asked = options.load(flags, directory=tmp_path).settings
    kept = inputs.keep(asked, run_dir)
    for path in mine.values():
        path.write_text("edited\n")
    assert kept.workload.inputs["job"].read_text() == "[mine]\nnumjobs=2\n"
    assert kept.kernel.base_config is not None
    assert "CONFIG_X86_64=y" in kept.kernel.base_config.read_text()
    texts = [Path(name).read_text() for name in kept.kernel.fragments]
    assert texts[0].startswith("# vm:")
    assert "MINE.CONFIG" in texts[1]
    assert options.from_json(options.to_json(kept)) == kept
