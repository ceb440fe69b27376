"""docs/papers.md maps the papers' sections to modules and tests; every module and test that it names exists.

A name is a code span that looks like one of ours: `kernels/join.py` (in the package), `tests/kernels/test_join.py`,
`tests/kernels/test_join.py::test_name`, `braidstream.kernels.join`, `braidstream.kernels.join.name`, or a folder
`tests/kernels/`. Other code spans are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools.rules.tree import PACKAGE, Finding, Tree

__all__ = ["MAP", "the_papers_map_names_what_exists"]

MAP = "docs/papers.md"
_SPAN = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"(?P<path>[\w./-]+\.py)(?:::?(?P<name>\w+)(?:::\w+|\[.*\])*)?")
_FOLDER = re.compile(r"(?:[\w.-]+/)+")
_DOTTED = re.compile(r"braidstream(?:\.\w+)+")


def the_papers_map_names_what_exists(tree: Tree) -> Iterator[Finding]:
    """Every module, test and folder that the map names exists, and it names at least one."""
    if MAP not in tree.files:
        return
    n_names = 0
    for number, line in enumerate((tree.text(MAP) or "").splitlines(), 1):
        for span in _SPAN.findall(line):
            exists = _exists(tree.root, span.strip())
            n_names += exists is not None
            if exists is False:
                yield Finding(MAP, number, f"`{span}` does not exist")
    if not n_names:
        yield Finding(MAP, 1, "the map names no module and no test")


def _exists(root: Path, span: str) -> bool | None:
    """Whether the named thing exists; None if the span is no name of ours."""
    if match := _FILE.fullmatch(span):
        file = _find(root, match["path"])
        return file is not None and (match["name"] is None or match["name"] in _defined(file))
    if _FOLDER.fullmatch(span):
        return _find(root, span) is not None
    if _DOTTED.fullmatch(span):
        return _dotted_exists(root, span)
    return None


def _find(root: Path, path: str) -> Path | None:
    places = (root / path, root / PACKAGE / path)
    return next((place for place in places if place.exists()), None)


def _dotted_exists(root: Path, dotted: str) -> bool:
    place, *rest = root / PACKAGE, *dotted.split(".")[1:]
    while rest and (place / rest[0]).is_dir():
        place, rest = place / rest[0], rest[1:]
    if rest and (place / f"{rest[0]}.py").is_file():
        place, rest = place / f"{rest[0]}.py", rest[1:]
    if not rest:
        return True
    file = place if place.is_file() else place / "__init__.py"
    return file.is_file() and rest[0] in _defined(file)


def _defined(file: Path) -> set[str]:
    """The names that a module defines or imports, its classes' methods among them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return names
