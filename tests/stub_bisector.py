"""In place of bisector: ``python stub_bisector.py WORDS…`` does what files in its directory say, and imports nothing.

``documents.json`` has what is printed of each run, ``statuses.json`` the exit statuses of the next attempts at each,
``hold.RUN`` makes an attempt wait to be killed. ``log`` gets a line for each command, and ``words`` all of it.
"""

import json
import sys
import time
from pathlib import Path

DATABASE = "record.sqlite"


def in_place(*words: str | Path) -> list[str]:
    """The command line of this, as that of bisector is made."""
    return [sys.executable, "-S", "-E", __file__, *map(str, words)]


def main() -> int:
    words, here = sys.argv[1:], Path.cwd()
    run_dir = Path(words[words.index("--run-dir") + 1])
    run, _, _ = run_dir.name.rpartition("-")
    for name, line in (("log", f"{words[0]} {run or words[2]}"), ("words", " ".join(words))):
        with (here / name).open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")
    if words[0] == "kernel":
        return 0
    if words[0] == "status":
        document = json.loads((here / "documents.json").read_text(encoding="utf-8"))[run]
        sys.stdout.write(json.dumps(document))
        return 0
    if words[0] != "resume":
        run_dir.mkdir()
        (run_dir / DATABASE).touch()
    assert (run_dir / DATABASE).exists()
    if (here / f"hold.{run}").exists():
        (here / "held").touch()
        time.sleep(60)
    statuses = json.loads((here / "statuses.json").read_text(encoding="utf-8"))
    status = statuses[run].pop(0) if statuses.get(run) else 0
    (here / "statuses.json").write_text(json.dumps(statuses), encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
