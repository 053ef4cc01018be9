"""
The graph of imports between modules of the project, read from the code without running it.

Every import counts: one under `if TYPE_CHECKING` and one inside a function as much as one at the top, since a reader of
the module needs the other module all the same.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from tests.packaging.sources import parse_module


@attrs.frozen
class Module:
    """
    One module, as its text shows it.

    Args:
        name: Dotted name; that of the package for an `__init__`.
        package: Name of the package that relative imports start from.
        tree: Its syntax tree.
        is_face: It is an `__init__` that defines nothing and only hands on names of other modules. Importing a name
            from it is importing the module that the name comes from.
    """

    name: str
    package: str
    tree: ast.Module
    is_face: bool


def read_modules(packages: list[Path]) -> dict[str, Module]:
    """Return the modules below these top-level packages by their dotted names."""
    found: dict[str, Module] = {}
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            is_init = parts[-1] == "__init__"
            name, parent = ".".join(parts[:-1] if is_init else parts), ".".join(parts[:-1])
            tree = parse_module(path)
            found[name] = Module(name, parent, tree, is_init and not _defines_anything(tree))
    return found


def import_graph(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return, for each module that is not a face, the modules that it imports."""
    return {
        name: {target for base, what in _imports(module) for target in _targets(modules, base, what)} - {name}
        for name, module in modules.items()
        if not module.is_face
    }


def find_circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules of which each one leads to all others of its group."""
    reached = {name: _reachable(graph, name) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def _defines_anything(tree: ast.Module) -> bool:
    # A module's `__getattr__` hands names on as well, when they are first asked for.
    return any(
        isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__getattr__"
        for node in tree.body
    )


def _imports(module: Module) -> Iterator[tuple[str, str | None]]:
    """Yield each import as the module that is named and the name taken from it; None stands for the module itself."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.package.split(".")[: len(module.package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((base, alias.name) for alias in node.names)


def _targets(modules: Mapping[str, Module], base: str, what: str | None) -> set[str]:
    """Return the modules in which what is imported is found, looking through faces."""
    if what is not None and f"{base}.{what}" in modules:
        base, what = f"{base}.{what}", None
    module = modules.get(base)
    if module is None:
        return set()
    if not module.is_face:
        return {base}
    # Any name may be used of a face that is imported as a whole.
    handed_on = [(source, name) for source, name in _imports(module) if what in (None, name)]
    return {target for source, name in handed_on for target in _targets(modules, source, name)}


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found
