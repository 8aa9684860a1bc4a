"""A package's modules as syntax trees, and who imports whom. Reads files, imports nothing."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FACE = "__init__"  # the unit that stands for the package's own __init__


@dataclass(frozen=True)
class Violation:
    """One broken rule. `key` names it in the waiver list and survives a change of line numbers."""

    rule: str
    where: str
    text: str

    @property
    def key(self) -> str:
        return f"{self.rule} {self.where}"

    def __str__(self) -> str:
        return f"{self.where}: {self.text} [{self.rule}]"


@dataclass(frozen=True)
class Module:
    """One source file: dotted name, path shown to people, text."""

    name: str
    path: str
    text: str
    is_face: bool  # an __init__.py

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def unit(self) -> str:
        """The part of the package this module belongs to: `core`, `errors`, or FACE."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else FACE

    def absolute(self, node: ast.ImportFrom) -> str:
        """Dotted name behind `from X import ...`, relative forms resolved."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".") if self.is_face else self.name.split(".")[:-1]
        base = parts[: len(parts) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])


@dataclass(frozen=True)
class Package:
    """All modules of a package, read from its folder."""

    name: str
    modules: dict[str, Module]

    @classmethod
    def read(cls, root: Path) -> Package:
        modules = {}
        for path in sorted(root.rglob("*.py")):
            relative = path.relative_to(root.parent)
            is_face = path.name == "__init__.py"
            name = ".".join(relative.parent.parts if is_face else relative.with_suffix("").parts)
            modules[name] = Module(name, relative.as_posix(), path.read_text(encoding="utf-8"), is_face)
        return cls(root.name, modules)

    def imports(self, module: Module) -> Iterator[str]:
        """Dotted names a module imports, wherever the statement stands; own names end at the module, not the object."""
        yield from self._imports[module.name]

    @cached_property
    def _imports(self) -> dict[str, list[str]]:
        return {
            module.name: [self._module_part(name) for node in module.nodes for name in _named_by(node, module)]
            for module in self.modules.values()
        }

    def own_imports(self, module: Module) -> set[str]:
        return {name for name in self.imports(module) if self.owns(name)}

    def owns(self, name: str) -> bool:
        return name == self.name or name.startswith(self.name + ".")

    def _module_part(self, name: str) -> str:
        """`pkg.core.Request` becomes `pkg.core`, `pkg._native.run` the compiled `pkg._native`; other packages' stay."""
        if not self.owns(name):
            return name
        parts = name.split(".")
        if len(parts) > 1 and parts[1].startswith("_") and not parts[1].startswith("__"):
            return ".".join(parts[:2])
        while name and name not in self.modules:
            parent = name.rpartition(".")[0]
            if parent == self.name and len(parts) > 2:
                return name  # a part that does not exist yet, or has no __init__: not a name of the face
            name = parent
        return name


def _named_by(node: ast.AST, module: Module) -> list[str]:
    """Full dotted names a statement asks for. A constant given to `import_module` counts: hiding it changes nothing."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = module.absolute(node)
        return [base if alias.name == "*" else f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def rings(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other, each sorted. Plain path search: the graph is small."""
    reach = {name: _reachable(graph, name) for name in graph}
    found = {
        tuple(sorted(other for other in reach[name] if name in reach.get(other, ())))
        for name in graph
        if name in reach[name]
    }
    return [list(ring) for ring in sorted(found)]


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = list(graph.get(start, ()))
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(graph.get(name, ()))
    return seen
