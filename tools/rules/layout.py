"""Modules have one idea each: a name that says it, a docstring that explains it, and a length one can read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.rules.tree import PACKAGE, Finding, Tree

__all__ = ["LONGEST", "LONG_FILES", "files_stay_short", "modules_open_with_a_docstring", "no_utils_module"]

LONGEST = 500
LONG_FILES: dict[str, str] = {}
"""Files that may be longer, each with the reason why it has no seam."""


def no_utils_module(tree: Tree) -> Iterator[Finding]:
    """No module is named for having no idea of its own."""
    for path in tree.python():
        if path.rsplit("/", 1)[-1] in {"utils.py", "util.py"} or "/utils/" in path:
            yield Finding(path, 1, "name the module after what it does")


def modules_open_with_a_docstring(tree: Tree) -> Iterator[Finding]:
    """Every module of the package says what it is for."""
    for path in tree.python(f"{PACKAGE}/"):
        if not ast.get_docstring(tree.parsed(path)):
            yield Finding(path, 1, "open the module with a docstring: what it does, its invariant, its cost")


def files_stay_short(tree: Tree) -> Iterator[Finding]:
    """No Python file is longer than `LONGEST` lines, unless the table says why; the table names no other file."""
    for path in tree.python():
        length = len((tree.text(path) or "").splitlines())
        if length > LONGEST and path not in LONG_FILES:
            yield Finding(path, LONGEST, f"{length} lines: past {LONGEST} look for the seam")
        if length <= LONGEST and path in LONG_FILES:
            yield Finding(path, 1, "no longer long: take it off the table in tools/rules/layout.py")
