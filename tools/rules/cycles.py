"""No module of the package needs itself, by whatever detour: each can be read, loaded and moved without its users.

Imports inside functions count as those at the top do, for they only put off the circle. Three things do not count: the
imports inside functions of `cli/`, which keep the command quick; those under `TYPE_CHECKING` within one folder, by
which a part knows the type of its whole; and that a module brings its packages along. Names that are computed at run
time are not seen, as in `tools.rules.imports`.

Cost: one walk over the graph of imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tools.rules.imports import imports
from tools.rules.tree import PACKAGE, Finding, Tree

__all__ = ["no_import_cycles"]

_LAZY = f"{PACKAGE}/cli/"
Graph = Mapping[str, Mapping[str, int]]
"""For each module's path the paths that it imports, with the line of the first such import."""


def no_import_cycles(tree: Tree) -> Iterator[Finding]:
    """Following imports from any module never leads back to it."""
    graph, done = _graph(tree), set[str]()
    for start in graph:
        yield from _circles(graph, start, [], done)


def _circles(graph: Graph, at: str, way: list[str], done: set[str]) -> Iterator[Finding]:
    """The imports that close a circle, on the way from `way` through `at` to all that was not visited yet."""
    if at in done:
        return
    way.append(at)
    for other, line in graph[at].items():
        if other in way:
            circle = [*way[way.index(other) :], other]
            yield Finding(at, line, f"closes a circle of imports: {' -> '.join(_inside(path) for path in circle)}")
        else:
            yield from _circles(graph, other, way, done)
    way.pop()
    done.add(at)


def _graph(tree: Tree) -> Graph:
    paths = {_module(path): path for path in tree.python(f"{PACKAGE}/")}
    graph: dict[str, dict[str, int]] = {}
    for path in paths.values():
        module, found = tree.parsed(path), graph.setdefault(path, {})
        typed, lazy = set(_typed(module, path)), set(_in_functions(module, path)) if path.startswith(_LAZY) else set()
        for line, name in imports(module, path):
            other = _imported(name, paths)
            is_typed = (line, name) in typed and other is not None and _folder(other) == _folder(path)
            if other is not None and other != path and not is_typed and (line, name) not in lazy:
                found.setdefault(other, line)
    return graph


def _imported(name: str, paths: Mapping[str, str]) -> str | None:
    """The file that an imported name is in: its own, or that of the module that has it."""
    while name and name not in paths:
        name = name.rpartition(".")[0]
    return paths.get(name)


def _typed(module: ast.Module, path: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                yield from imports(statement, path)


def _in_functions(module: ast.Module, path: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports(node, path)


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _inside(path: str) -> str:
    return path.removeprefix(f"{PACKAGE}/")
