"""Imports point down the layers, never sideways between rooms; each outside tool has its owners."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bisector"


def within(room: str, names: str) -> frozenset[str]:
    """Modules of a room that are one thing in several files."""
    return frozenset(f"{room}.{name}" for name in names.split())


# Lowest first. A layer is made of groups; a module may import from its own group and from lower layers only. A room's
# name stands for all of its modules that have no place of their own further down or up.
FOUNDATION = frozenset(
    {
        *within(
            "bisector",
            "errors figures model events deadline process steps resources keeping findings packages hostfiles"
            " hostlock inside printable builduser unshared",
        ),
        *within("bisector.settings", "kinds configfile jobfile"),
        "bisector.bisection.compilers",
        "bisector.sandbox",
        "bisector.scratch",
    }
)
LAYERS: tuple[tuple[frozenset[str], ...], ...] = (
    (FOUNDATION,),
    (
        within(
            "bisector.history",
            "graph likelihood posterior choice confirm search midpoint world simulation bounds",
        ),
        frozenset({"bisector.analysis"}),
        within("bisector.workload", "fio fiotext fiojobs fioblocks fiolines fiounits series"),
        frozenset({"bisector.machine.console"}),
        within(
            "bisector.report",
            "table status units text summary course checkup forecast document blocks baselines compare trials sections"
            " as_text as_markdown as_json addresses mail letter",
        ),
    ),
    (frozenset({"bisector.settings"}),),
    tuple(
        frozenset({f"bisector.{room}"})
        for room in ("history", "kernel", "machine", "storage", "workload", "report", "post")
    ),
    (
        frozenset({"bisector.trial"}),
        within("bisector.bisection", "judging stopping"),
        within("bisector.bisection", "kinship"),
    ),
    (frozenset({"bisector.strategy"}),),
    (frozenset({"bisector.record"}),),
    (frozenset({"bisector.fleet"}), frozenset({"bisector.imported"})),
    (within("bisector", "preflight room"),),
    (frozenset({"bisector.bisection"}),),
    (frozenset({"bisector.planning"}), frozenset({"bisector.publishing"})),
    (within("bisector.bisection", "running measuring next_step"),),
    (frozenset({"bisector.nightly"}),),
    (within("bisector", "cli commands __main__"),),
)

OWNERS = {
    "subprocess": {"bisector.process"},
    "git": {"bisector.history.door"},
    # Its objects are of several kinds that refer to each other, and each is watched in its own way: how the library is
    # loaded and reached, the connection, the domain, the volume.
    "libvirt": {
        "bisector.machine.connection",
        "bisector.machine.domain",
        "bisector.machine.hypervisor",
        "bisector.machine.volume",
    },
    "fabric": {"bisector.machine.guest"},
    "paramiko": {"bisector.machine.guest"},
    "sqlite3": {"bisector.record.database"},
    "rich": {
        "bisector.report.progress",
        "bisector.commands.show",
        "bisector.commands.doctor",
        "bisector.commands.plan",
    },
    "jinja2": {"bisector.report.as_html"},
    # The door, what all pictures have in common, and the pictures that the door has no room for.
    "matplotlib": {"bisector.report.drawing", "bisector.report.drawn_nights", "bisector.report.strokes"},
    "smtplib": {"bisector.post.smtp"},
    "email": {
        "bisector.report.addresses",
        "bisector.report.letter",
        "bisector.publishing.posting",
        "bisector.nightly.postman",
        "bisector.post.smtp",
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


def place(module: str) -> tuple[int, frozenset[str]]:
    """The layer of a module and its group there, by the longest name that matches."""
    found = [
        (len(name), layer, group)
        for layer, groups in enumerate(LAYERS)
        for group in groups
        for name in group
        if module == name or module.startswith(name + ".")
    ]
    assert found, f"{module} has no place in LAYERS"
    _, layer, group = max(found, key=lambda one: one[0])
    return layer, group


def may_import(importer: str, imported: str) -> bool:
    layer, group = place(importer)
    other_layer, other = place(imported)
    return other_layer < layer or other == group


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down(name: str) -> None:
    for imported in imports(name):
        if imported in MODULES:
            assert may_import(name, imported), f"{name} imports {imported}"


def test_the_contents_of_a_package_are_an_import_too() -> None:
    """``bisector.settings`` holds the settings' records in its ``__init__``."""
    assert "bisector.settings" in imports("bisector.workload.runner")
    assert "bisector.settings" not in imports("bisector.settings.jobfile")
    tree = ast.parse("from bisector.settings import Settings, checks\nimport bisector.model")
    assert list(_imports(tree)) == ["bisector.settings", "bisector.settings.checks", "bisector.model"]


# Rooms that import each other, which no two should. This list gets shorter, never longer.
TWO_WAY = {
    ("bisection", "imported"),
    ("bisection", "kernel"),
    ("bisection", "publishing"),
    ("bisection", "record"),
    ("bisection", "strategy"),
    ("history", "report"),
}


def room(module: str) -> str:
    """The directory that a module is in, or its own name."""
    return module.split(".")[1]


def test_no_more_rooms_import_each_other() -> None:
    pairs = {
        (room(name), room(imported))
        for name in MODULES
        for imported in imports(name)
        if imported in MODULES and "bisector" not in (name, imported) and room(name) != room(imported)
    }
    both_ways = {(one, other) for one, other in pairs if one < other and (other, one) in pairs}
    assert both_ways == TWO_WAY


@pytest.mark.parametrize("tool", OWNERS)
def test_outside_tools_are_imported_by_their_owners_alone(tool: str) -> None:
    assert {name for name in MODULES if tool in {one.split(".")[0] for one in imports(name)}} == OWNERS[tool]


def test_every_name_in_the_tables_is_a_module() -> None:
    there = set(MODULES) | {"bisector.__main__"}
    placed = {name for groups in LAYERS for group in groups for name in group}
    assert placed <= there


def test_layering_rule_can_fail() -> None:
    assert not may_import("bisector.kernel.build", "bisector.machine.domain")
    assert not may_import("bisector.model", "bisector.trial")
    assert not may_import("bisector.analysis.classify", "bisector.settings")
    assert not may_import("bisector.planning.plan", "bisector.publishing.posting")
    assert not may_import("bisector.bisection.loop", "bisector.bisection.running")
    assert may_import("bisector.trial", "bisector.kernel.build")


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
