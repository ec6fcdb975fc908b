"""Imports point down the layers, never sideways between rooms; one owner for each outside tool."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bisector"

# Lowest first; a module may import from its own room and from lower layers only.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "bisector.errors",
        "bisector.figures",
        "bisector.model",
        "bisector.events",
        "bisector.deadline",
        "bisector.process",
        "bisector.steps",
        "bisector.resources",
        "bisector.settings.kinds",
        "bisector.keeping",
        "bisector.settings.configfile",
        "bisector.findings",
        "bisector.packages",
        "bisector.bisection.compilers",
    ),
    (
        "bisector.history.graph",
        "bisector.history.likelihood",
        "bisector.history.posterior",
        "bisector.history.choice",
        "bisector.history.confirm",
        "bisector.history.search",
        "bisector.history.midpoint",
        "bisector.history.world",
        "bisector.history.simulation",
        "bisector.history.bounds",
        "bisector.analysis",
        "bisector.workload.fio",
        "bisector.workload.fiotext",
        "bisector.workload.fiojobs",
        "bisector.workload.fioblocks",
        "bisector.workload.fiolines",
        "bisector.workload.fiounits",
        "bisector.workload.jobfile",
        "bisector.workload.series",
        "bisector.machine.console",
        "bisector.report.table",
        "bisector.report.status",
        "bisector.report.units",
        "bisector.report.text",
        "bisector.report.summary",
        "bisector.report.course",
        "bisector.report.checkup",
        "bisector.report.forecast",
        "bisector.report.document",
        "bisector.report.blocks",
        "bisector.report.compare",
        "bisector.report.trials",
        "bisector.report.sections",
        "bisector.report.as_text",
        "bisector.report.as_markdown",
        "bisector.report.as_json",
        "bisector.report.addresses",
        "bisector.report.mail",
        "bisector.report.letter",
    ),
    ("bisector.settings",),
    (
        "bisector.history",
        "bisector.kernel",
        "bisector.machine",
        "bisector.storage",
        "bisector.workload",
        "bisector.report",
        "bisector.post",
    ),
    ("bisector.trial", "bisector.bisection.judging", "bisector.bisection.stopping", "bisector.bisection.kinship"),
    ("bisector.strategy",),
    (
        "bisector.record",
        "bisector.fleet",
        "bisector.bisection.loop",
        "bisector.imported",
        "bisector.bisection.attempts",
        "bisector.bisection.settling",
        "bisector.bisection.standing",
        "bisector.bisection.configurations",
        "bisector.preflight",
        "bisector.room",
        "bisector.planning.experience",
        "bisector.planning.plan",
        "bisector.publishing.recheck",
        "bisector.publishing.reproducing",
        "bisector.publishing.reporting",
        "bisector.publishing.posting",
        "bisector.publishing.tracing",
        "bisector.publishing.plotting",
        "bisector.publishing.paging",
        "bisector.publishing.replaying",
    ),
    ("bisector.bisection.running", "bisector.bisection.measuring"),
    ("bisector.nightly",),
    ("bisector.bisection.next_step",),
    ("bisector.cli", "bisector.commands", "bisector.__main__"),
)

# Neighbours of one layer that are one thing in two files.
TOGETHER = (
    {"bisector.errors", "bisector.figures", "bisector.model", "bisector.events"},
    {
        f"bisector.workload.{name}"
        for name in ("fio", "fiotext", "fiojobs", "fioblocks", "fiolines", "fiounits", "jobfile")
    },
    {"bisector.settings", "bisector.settings.options", "bisector.settings.option_table", "bisector.settings.checks"},
    {
        f"bisector.history.{name}"
        for name in (
            "graph",
            "likelihood",
            "posterior",
            "choice",
            "confirm",
            "search",
            "midpoint",
            "world",
            "simulation",
            "bounds",
        )
    },
    {name for name in LAYERS[1] if name.startswith("bisector.report.")},
    {
        "bisector.record",
        "bisector.fleet",
        "bisector.bisection.loop",
        "bisector.imported",
        "bisector.bisection.attempts",
        "bisector.bisection.settling",
        "bisector.bisection.standing",
        "bisector.bisection.configurations",
        "bisector.preflight",
        "bisector.planning.experience",
        "bisector.planning.plan",
        "bisector.publishing.recheck",
        "bisector.publishing.reproducing",
        "bisector.publishing.reporting",
        "bisector.publishing.posting",
        "bisector.publishing.tracing",
        "bisector.publishing.plotting",
        "bisector.publishing.paging",
        "bisector.publishing.replaying",
    },
    {"bisector.preflight", "bisector.room"},
    {"bisector.bisection.judging", "bisector.bisection.stopping"},
    {"bisector.cli", "bisector.commands", "bisector.__main__"},
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
        "bisector.report.table",
        "bisector.commands.show",
        "bisector.commands.doctor",
        "bisector.commands.plan",
    },
    "dask": {"bisector.fleet.cluster"},
    "jinja2": {"bisector.report.as_html"},
    "matplotlib": {"bisector.report.drawing"},
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


MODULES = tuple(
    (module_name(path), ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(PACKAGE.rglob("*.py"))
)


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def place(module: str) -> tuple[int, str]:
    """The layer of a module and the name it has there (the longest that matches)."""
    found = [
        (len(name), layer, name)
        for layer, names in enumerate(LAYERS)
        for name in names
        if module == name or module.startswith(name + ".")
    ]
    assert found, f"{module} has no place in LAYERS"
    _, layer, name = max(found)
    return layer, name


def may_import(importer: str, imported: str) -> bool:
    layer, name = place(importer)
    other_layer, other = place(imported)
    if other_layer != layer:
        return other_layer < layer
    return name == other or any({name, other} <= group for group in TOGETHER) or layer == 0


@pytest.mark.parametrize(("name", "tree"), [pytest.param(*module, id=module[0]) for module in MODULES])
def test_imports_point_down(name: str, tree: ast.Module) -> None:
    known = {module for module, _ in MODULES if not (PACKAGE.parent / module.replace(".", "/")).is_dir()}
    for imported in imports(tree):
        if imported in known:
            assert may_import(name, imported), f"{name} imports {imported}"


@pytest.mark.parametrize(("name", "tree"), [pytest.param(*module, id=module[0]) for module in MODULES])
def test_outside_tools_have_one_owner(name: str, tree: ast.Module) -> None:
    for imported in imports(tree):
        owners = OWNERS.get(imported.split(".")[0])
        assert owners is None or name in owners, f"{name} imports {imported}; its owner is {owners}"


def test_layering_rule_can_fail() -> None:
    assert not may_import("bisector.kernel.build", "bisector.machine.domain")
    assert not may_import("bisector.model", "bisector.trial")
    assert not may_import("bisector.analysis.classify", "bisector.settings")
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
