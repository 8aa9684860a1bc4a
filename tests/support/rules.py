"""Rules on who may import whom: a package in, its violations out. The tables are arguments."""

from __future__ import annotations

import ast
import sys
from itertools import product
from typing import TYPE_CHECKING

from tests.support.source import FACE, Module, Package, Violation, rings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet


def check_layers(package: Package, layers: Sequence[AbstractSet[str]]) -> Iterator[Violation]:
    """A part imports itself and lower rows only: never sideways, never up. `layers`: bottom row first."""
    rank = {unit: row for row, units in enumerate(layers) for unit in units}
    for module in package.modules.values():
        if module.unit not in rank:
            yield Violation("layer-unknown", module.path, f"{module.unit!r} has no row in LAYERS")
            continue
        for target in sorted(package.own_imports(module)):
            unit = target.split(".")[1] if target != package.name else FACE
            if unit != module.unit and unit in rank and rank[unit] >= rank[module.unit]:
                yield Violation("layer", f"{module.path} -> {target}", "imports sideways or up")


def check_rings(package: Package) -> Iterator[Violation]:
    """No module reaches itself, whether the import stands at the top, in a function or under TYPE_CHECKING."""
    graph = {name: package.own_imports(module) - {name} for name, module in package.modules.items()}
    for ring in rings(graph):
        yield Violation("ring", " ".join(ring), "these modules import each other")


def check_third_party(
    package: Package, allowed: Mapping[str, AbstractSet[str]], compiled: Mapping[str, AbstractSet[str]]
) -> Iterator[Violation]:
    """A library is imported only by the parts that `allowed` names; a compiled module only by those in `compiled`."""
    for module in package.modules.values():
        for name in sorted(set(package.imports(module))):
            top = name.partition(".")[0]
            if top == package.name:
                native = name.removeprefix(f"{top}.") if name not in package.modules else ""
                if native.startswith("_") and module.unit not in compiled.get(native, frozenset()):
                    yield Violation("compiled", f"{module.path} -> {name}", f"not for {module.unit}")
            elif top not in sys.stdlib_module_names and top not in allowed.get(module.unit, frozenset()):
                yield Violation("third-party", f"{module.path} -> {top}", f"{module.unit} may not import it")


def check_num_imports(package: Package, limit: int) -> Iterator[Violation]:
    """A module leans on at most `limit` others of the package. Faces only re-export and are free."""
    for module in package.modules.values():
        num_imports = len(package.own_imports(module) - {module.name})
        if num_imports > limit and not module.is_face:
            yield Violation("num-imports", module.path, f"imports {num_imports} own modules; limit {limit}")


_TIMES_OF_DAY = {("time", "time"), ("time", "time_ns"), *product(("datetime", "date"), ("now", "utcnow", "today"))}


def check_wall_clock(package: Package, allowed: Mapping[str, str]) -> Iterator[Violation]:
    """The time of day may jump: only the modules in `allowed`, with reasons, ask for it, and none needlessly."""
    asking = {module.path for module in package.modules.values() if any(map(_asks_time_of_day, module.nodes))}
    for path in sorted(asking - allowed.keys()):
        yield Violation("wall-clock", path, "asks for the time of day, which may jump; measure with a Clock")
    for path in sorted(allowed.keys() - asking):
        yield Violation("wall-clock", path, "may ask for the time of day and does not")


def _asks_time_of_day(node: ast.AST) -> bool:
    match node:
        case (
            ast.Attribute(value=ast.Name(id=owner), attr=name)
            | ast.Attribute(value=ast.Attribute(attr=owner), attr=name)
        ):
            return (owner, name) in _TIMES_OF_DAY
        case ast.ImportFrom(module="time", names=names):
            return any(("time", alias.name) in _TIMES_OF_DAY for alias in names)
    return False


def check_faces(package: Package) -> Iterator[Violation]:
    """An `__init__` has a docstring, defines nothing of its own, and its `__all__` lists exactly what it brings."""
    for module in package.modules.values():
        if not module.is_face:
            continue
        if not ast.get_docstring(module.tree):
            yield Violation("face-docstring", module.path, "the package does not say what it is for")
        for node in module.tree.body:
            is_hook = module.unit == FACE and getattr(node, "name", "") in {"__getattr__", "__dir__"}
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not is_hook:
                yield Violation("face-defines", f"{module.path}:{node.name}", "an __init__ only re-exports")
        yield from _check_all(package, module)


def _check_all(package: Package, module: Module) -> Iterator[Violation]:
    bound, brought, listed = _names_of(package, module)
    for name in sorted(listed - bound):
        yield Violation("face-all", f"{module.path}:{name}", "in __all__ but not defined here")
    for name in sorted(brought - listed):
        yield Violation("face-all", f"{module.path}:{name}", "re-exported but not in __all__")


def _names_of(package: Package, module: Module) -> tuple[set[str], set[str], set[str]]:
    """Names a face binds, the public ones among them that come from the package, and its `__all__`."""
    bound: set[str] = set()
    brought: set[str] = set()
    listed: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom):
            names = {alias.asname or alias.name for alias in node.names}
            bound |= names
            if package.owns(module.absolute(node)):
                brought |= {name for name in names if not name.startswith("_")}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            bound |= names
            if "__all__" in names and node.value is not None:
                listed = set(ast.literal_eval(node.value))
    return bound, brought, listed
