"""Which run directories there are, so that ``status`` and ``resume`` find the last one by itself."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bisector.core.errors import InfraError
from bisector.store.database import DATABASE
from bisector.store.rundir import state_home


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A run: its directory, the repository, the ends as typed, ISO 8601 time of its start."""

    run_dir: str
    repository: str
    old: str
    new: str
    started_at: str


class Index:
    """A list of runs in a JSON file that is replaced as a whole, under a lock."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_home() / "index.json"

    def add(self, entry: IndexEntry) -> None:
        """Append a run, whose database exists; the vanished ones go. Raises :class:`InfraError`."""
        try:
            with self._locked():
                others = [one for one in self.entries() if one.run_dir != entry.run_dir]
                new = self.path.with_suffix(".new")
                with new.open("w", encoding="utf-8") as file:
                    json.dump([asdict(one) for one in (*others, entry)], file, indent=1)
                    file.flush()
                    os.fsync(file.fileno())
                new.replace(self.path)
        except OSError as error:
            raise InfraError(f"cannot write {self.path}: {error.strerror}", f"ls -ld {self.path.parent}") from error

    def entries(self) -> tuple[IndexEntry, ...]:
        """The runs whose directories still hold a database, in order of their start.

        Raises :class:`InfraError` when the file is damaged.
        """
        try:
            found = [IndexEntry(**one) for one in json.loads(self.path.read_text(encoding="utf-8"))]
        except FileNotFoundError:
            return ()
        except (ValueError, TypeError) as error:
            hint = f"rm {self.path}; each run is still there for --run-dir DIRECTORY"
            raise InfraError(f"{self.path} is damaged: {error}", hint) from error
        except OSError as error:
            raise InfraError(f"cannot read {self.path}: {error.strerror}", f"ls -l {self.path}") from error
        return tuple(one for one in found if (Path(one.run_dir) / DATABASE).is_file())

    def latest(self, repository: Path | None = None) -> Path | None:
        """The run directory started last, of one repository or of all; None when there is none."""
        wanted = None if repository is None else str(repository.resolve())
        runs = [one.run_dir for one in self.entries() if wanted in (None, str(Path(one.repository).resolve()))]
        return Path(runs[-1]) if runs else None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Two bisections may start at one moment; readers need no lock, the file is replaced."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
