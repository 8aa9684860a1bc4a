"""Rules on size and on words that must not stand in the code: a package in, its violations out."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.source import Module, Package, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
WIRE_BASES = {"BaseModel", "Struct", "TypedDict", "NamedTuple"}
BROAD = {"Exception", "BaseException"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
SILENCER = re.compile(
    r"#\s*(?:type:\s*ignore|noqa)(?P<codes>\[[^\]]+\]|:\s*[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)?(?P<why>.*)"
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Most lines, parameters and members a file, function or class may have."""

    file_lines: int
    policy_lines: int
    function_lines: int
    parameters: int
    public_methods: int
    attributes: int
    record_fields: int  # of what is frozen or comes over the wire: it is read, not kept up to date


def check_sizes(package: Package, limits: Limits) -> Iterator[Violation]:
    """Files, functions, parameter lists and classes stay within `limits`."""
    wire = _wire_names(package)
    for module in package.modules.values():
        num_lines = len(module.text.splitlines())
        is_policy = module.name.startswith(f"{package.name}.sched.policies.")
        limit = limits.policy_lines if is_policy else limits.file_lines
        if num_lines > limit:
            yield Violation("file-lines", module.path, f"{num_lines} lines; limit {limit}")
        for name, node in _definitions(module.tree.body):
            where = f"{module.path}:{name}"
            if isinstance(node, ast.ClassDef):
                yield from _check_class(node, where, limits, wire)
            else:
                yield from _check_function(node, where, limits)


def _definitions(body: Iterable[ast.AST], prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for node in body:
        if isinstance(node, Function | ast.ClassDef):
            name = f"{prefix}{node.name}"
            yield name, node
            yield from _definitions(node.body, f"{name}.")
        elif not isinstance(node, ast.expr):  # an expression defines nothing that has a body of statements
            yield from _definitions(ast.iter_child_nodes(node), prefix)


def _check_function(node: Function, where: str, limits: Limits) -> Iterator[Violation]:
    num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if num_lines > limits.function_lines:
        yield Violation("function-lines", where, f"{num_lines} lines; limit {limits.function_lines}")
    names = [arg.arg for arg in node.args.posonlyargs + node.args.args]
    num_parameters = len(names) - (names[:1] in (["self"], ["cls"]))
    if num_parameters > limits.parameters:
        yield Violation("parameters", where, f"{num_parameters} positional parameters; limit {limits.parameters}")


def _check_class(node: ast.ClassDef, where: str, limits: Limits, wire: set[str]) -> Iterator[Violation]:
    methods = {
        part.name
        for part in node.body
        if isinstance(part, Function) and not part.name.startswith("_") and not _is_property(part)
    }
    if len(methods) > limits.public_methods:
        yield Violation("public-methods", where, f"{len(methods)} public methods; limit {limits.public_methods}")
    limit = limits.record_fields if _is_record(node, wire) else limits.attributes
    num_attributes = len(_attributes(node))
    if num_attributes > limit:
        yield Violation("attributes", where, f"{num_attributes} attributes; limit {limit}")


def _is_property(node: Function) -> bool:
    """Derived values are no methods: phases and sums are derived rather than stored."""
    words = {word for deco in node.decorator_list for word in ast.unparse(deco).split(".")}
    return bool(words & {"property", "cached_property", "setter"})


def _is_record(node: ast.ClassDef, wire: set[str]) -> bool:
    return any("frozen=True" in ast.unparse(deco) for deco in node.decorator_list) or bool(_base_names(node) & wire)


def _base_names(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def _wire_names(package: Package) -> set[str]:
    """Names of classes that hold what comes over the wire: WIRE_BASES and all that inherit from them, at any depth."""
    classes = [node for module in package.modules.values() for node in module.nodes if isinstance(node, ast.ClassDef)]
    wire = set(WIRE_BASES)
    while new := {node.name for node in classes if _base_names(node) & wire} - wire:
        wire |= new
    return wire


def _attributes(node: ast.ClassDef) -> set[str]:
    """Fields of the class body and everything a method assigns on `self`."""
    fields = {
        part.target.id
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and "ClassVar" not in ast.unparse(part)
    }
    assigned = {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    }
    return fields | assigned


def check_words(package: Package) -> Iterator[Violation]:
    """No error is swallowed whole, nothing is left for later, and a silenced checker is told why."""
    for module in package.modules.values():
        for node in module.nodes:
            if _swallows(node):
                yield Violation("swallowed", module.path, f"line {node.lineno} drops every exception in silence")
        yield from _check_comments(module)


def _swallows(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        broad = node.type is None or bool(
            {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)} & BROAD
        )
        return broad and all(isinstance(part, ast.Pass | ast.Continue) or _is_ellipsis(part) for part in node.body)
    if isinstance(node, ast.Call) and _last_name(node.func) == "suppress":
        return any(ast.unparse(arg) in BROAD for arg in node.args)
    return False


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _check_comments(module: Module) -> Iterator[Violation]:
    if not (UNFINISHED.search(module.text) or SILENCER.search(module.text)):
        return  # most have neither, and taking a file apart is slow
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in {tokenize.COMMENT, tokenize.STRING}:
            continue
        if UNFINISHED.search(token.string):
            yield Violation(
                "unfinished", module.path, f"line {token.start[0]}: a known limit is a sentence, not a TODO"
            )
        silencer = SILENCER.search(token.string) if token.type == tokenize.COMMENT else None
        if silencer and not (silencer["codes"] and re.search(r"\w{3}", silencer["why"])):
            yield Violation("silenced", module.path, f"line {token.start[0]}: name the code and the reason")
