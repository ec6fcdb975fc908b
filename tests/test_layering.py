"""Rooms import from rooms below them, no two from each other; each outside tool has its owners."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from bisector.commands import catalogue

PACKAGE = Path(__file__).parent.parent / "bisector"


# Lowest first; the rooms of one row do not import each other. A room imports from the rows above it and from itself.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(row.split())
    for row in (
        "core",
        "storage search",
        "workload",
        "config",
        "analysis host",
        "git kernel vm",
        "store trial",
        "executor imported",
        "fleet",
        "status",
        "report",
        "mail plan",
        "doctor",
        "campaign",
        "bisect",
        "compare",
        "nightly",
        "commands",
        "cli",
        "__main__",
    )
)

OWNERS = {
    "subprocess": {"bisector.host.process"},
    "git": {"bisector.git.repository"},
    "libvirt": {"bisector.vm.driver"},
    "dask": {"bisector.fleet.cluster"},
    # The scheduler and its workers, what they are told to do, and who tells them.
    "distributed": {
        "bisector.fleet.cluster",
        "bisector.fleet.executor",
        "bisector.fleet.job",
    },
    "fabric": {"bisector.vm.guest"},
    "paramiko": {"bisector.vm.guest"},
    "tenacity": {"bisector.core.deadline"},
    "sqlite3": {"bisector.store.log"},
    "rich": {
        "bisector.report.display",
        "bisector.report.terminal",
    },
    "msgspec": {
        "bisector.core.json_document",
        "bisector.core.setting",
        "bisector.fleet.hosts",
        "bisector.kernel.cache",
        "bisector.store.log",
    },
    "jinja2": {"bisector.nightly.timer", "bisector.report.page", "bisector.vm.definition"},
    # The door with what all pictures have in common, and the pictures.
    "matplotlib": {
        "bisector.nightly.trend",
        "bisector.report.comparison_plots",
        "bisector.report.plots",
        "bisector.report.drawing",
    },
    "smtplib": {"bisector.mail.smtp"},
    "email": {
        "bisector.mail.compose",
        "bisector.mail.outbox",
        "bisector.mail.smtp",
        "bisector.nightly.night",
    },
}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def imports(name: str) -> tuple[str, ...]:
    """What a module imports; read when a test asks, not by each worker for all modules beforehand."""
    return tuple(_imports(ast.parse(MODULES[name].read_text(encoding="utf-8"))))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Each imported module; what is taken from a package that is not a module of it, is the package's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module or ""


def room(module: str) -> str:
    """The directory that a module is in, or its own name."""
    return module.split(".")[1]


def layer(module: str) -> int:
    """The row of a module's room."""
    found = [row for row, rooms in enumerate(LAYERS) if room(module) in rooms]
    assert len(found) == 1, f"{room(module)} has {len(found)} places in LAYERS"
    return found[0]


def may_import(importer: str, imported: str) -> bool:
    return room(importer) == room(imported) or layer(imported) < layer(importer)


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down(name: str) -> None:
    for imported in imports(name):
        if imported in MODULES and "bisector" not in (name, imported):
            assert may_import(name, imported), f"{name} imports {imported}"


def test_the_contents_of_a_package_are_an_import_too() -> None:
    """``bisector.config`` holds the settings' records in its ``__init__``."""
    assert "bisector.config" in imports("bisector.trial.runner")
    assert "bisector.config" not in imports("bisector.config.forms")
    tree = ast.parse("from bisector.config import Settings, checks\nimport bisector.core.trial")
    assert list(_imports(tree)) == ["bisector.config", "bisector.config.checks", "bisector.core.trial"]


def test_modules_do_not_import_each_other() -> None:
    """Inside of a room, too, there is a first and a last."""
    TopologicalSorter({name: set(imports(name)) & set(MODULES) - {name} for name in MODULES}).prepare()


def test_commands_do_not_import_each_other() -> None:
    """What several of them need has a place of its own."""
    commands = {f"bisector.commands.{entry.module}" for entry in catalogue.entries()}
    assert commands <= set(MODULES)
    assert not {(name, one) for name in commands for one in imports(name) if one in commands}


@pytest.mark.parametrize("tool", OWNERS)
def test_outside_tools_are_imported_by_their_owners_alone(tool: str) -> None:
    assert {name for name in MODULES if tool in {one.split(".")[0] for one in imports(name)}} == OWNERS[tool]


def test_every_room_has_a_place_and_no_other_has() -> None:
    assert set().union(*LAYERS) == {room(name) for name in MODULES if name != "bisector"}


def test_layering_rule_can_fail() -> None:
    assert not may_import("bisector.kernel.build", "bisector.vm.driver")
    assert not may_import("bisector.core.trial", "bisector.trial.runner")
    assert not may_import("bisector.workload.base", "bisector.analysis.judgement")
    assert not may_import("bisector.status.view", "bisector.bisect.step")
    assert may_import("bisector.trial.runner", "bisector.kernel.build")
    with pytest.raises(CycleError):
        TopologicalSorter({"one": {"other"}, "other": {"one"}}).prepare()


_MOST_LINES = 600


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_one_thought(name: str) -> None:
    """A thought may be long; a limit that is lower cuts one thought into several files."""
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= _MOST_LINES


def test_every_room_is_in_the_package() -> None:
    """An editable installation finds what a wheel would lack."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    rooms = {".".join(path.parent.relative_to(PACKAGE.parent).parts) for path in PACKAGE.rglob("__init__.py")}
    packaged = set(project["tool"]["setuptools"]["packages"])
    assert {name for name in packaged if not name.startswith("bisector._")} == rooms


def test_every_data_file_is_in_the_package() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    globs = project["tool"]["setuptools"]["package-data"]
    carried = {
        path
        for package, patterns in globs.items()
        for pattern in patterns
        for path in (PACKAGE.parent / package.replace(".", "/")).glob(pattern)
    }
    data = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert {path.name for path in data} >= {"page.html", "page.css", "page.js"}
    assert data <= carried
