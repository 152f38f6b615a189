"""The packages follow the data flow: imports point one way."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "nsys2prv"

# A module imports from its own package and from earlier lines; packages of one line do not import each other.
ORDER = (
    ("errors",),
    ("vocabulary",),
    ("execution",),
    ("exports",),
    ("sources",),
    ("timeline",),
    ("clocks",),
    ("run",),
    ("trace", "paraver", "efficiency"),
    ("demo",),
    ("api",),
    ("nsys2prv",),
    ("cli",),
    ("__main__",),
)
LEVEL = {package: level for level, group in enumerate(ORDER) for package in group}

# Lines and modules that a package has at most. A change that needs more takes something away: CONTRIBUTING.md.
CEILINGS = {
    "errors.py": (361, 1),
    "vocabulary": (1_657, 12),
    "execution": (1_488, 8),
    "exports": (2_696, 12),
    "sources": (6_148, 40),
    "timeline": (2_662, 10),
    "clocks": (2_156, 9),
    "run": (2_294, 9),
    "trace": (975, 6),
    "paraver": (3_768, 17),
    "efficiency": (17_059, 69),
    "demo": (1_708, 9),
    "cli": (753, 5),
    "api": (339, 2),
    "../tests": (32_000, 173),
}

# The places where one of `trace`, `paraver` and `efficiency` may know another.
BRIDGES = {("nsys2prv.trace.translate", "paraver"), ("nsys2prv.trace.path_records", "efficiency")}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def trees() -> dict[str, ast.Module]:
    """All modules, parsed: a test does it, and not each process that collects tests."""
    return {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def package_of(module: str) -> str:
    """The package of a module, or its own name where it lies beside the packages."""
    return [*module.split("."), "nsys2prv"][1]


def imports_of(module: str) -> Iterator[str]:
    """Modules of nsys2prv that a module imports, wherever in its text."""
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (member if member in trees() else node.module for member in members)


@cache
def imports() -> set[tuple[str, str]]:
    """Modules of nsys2prv with others that they import."""
    modules = trees()
    return {
        (module, imported)
        for module in modules
        for imported in imports_of(module)
        if imported in modules and imported != module
    }


def test_every_package_has_its_place_in_the_data_flow() -> None:
    assert {package_of(module) for module in trees()} <= set(LEVEL)


def test_only_the_errors_lie_beside_the_packages() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", "__main__", "errors"}


def test_imports_point_one_way() -> None:
    upward = {
        (module, imported)
        for module, imported in imports()
        if package_of(module) != package_of(imported)
        and LEVEL[package_of(module)] <= LEVEL[package_of(imported)]
        and (module, package_of(imported)) not in BRIDGES
    }
    assert upward == set()


def test_modules_do_not_import_each_other_in_circles() -> None:
    """A package's `__init__` gathers its modules, so a module that imports its own package closes a circle."""
    graph = {module: {imported for importer, imported in imports() if importer == module} for module in trees()}
    # Where there is a circle, this raises an error that names it.
    TopologicalSorter(graph).prepare()


def test_no_package_is_larger_than_its_ceiling() -> None:
    sizes = {}
    for package in CEILINGS:
        paths = list((PACKAGE / package).rglob("*.py")) or [PACKAGE / package]
        sizes[package] = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths), len(paths)
    assert {name: size for name, size in sizes.items() if size[0] > CEILINGS[name][0] or size[1] > CEILINGS[name][1]} == {}
