"""Modules have one idea each: a name that says it, a docstring that explains it, and a length one can read."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tools.rules.tree import PACKAGE, Finding, Tree

__all__ = [
    "LONGEST",
    "LONG_FILES",
    "SAME_PROTOCOL",
    "a_file_name_means_one_thing",
    "files_stay_short",
    "modules_open_with_a_docstring",
    "no_utils_module",
]

LONGEST = 500
LONG_FILES: dict[str, str] = {}
"""Files that may be longer, each with the reason why it has no seam."""
SAME_PROTOCOL = {
    "__init__.py": "the names of a package",
    "__main__.py": "what `python -m` runs",
    "cluster.py": "epoch/ has the port to an engine, spark/ the engine behind it",
    "outlets.py": "epoch/ has the port to sinks, spark/ what is behind it",
    "meaning.py": "query/ has the protocol of what expressions mean, spark/ the one that asks Spark's analyzer",
}
"""Names of files that may occur more than once in the package, each with what is the same in all places."""


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


def a_file_name_means_one_thing(tree: Tree) -> Iterator[Finding]:
    """No two files of the package have one name, unless the table says what is the same in them; it names no other."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in tree.python(f"{PACKAGE}/"):
        places[path.rpartition("/")[2]].append(path)
    for name, (first, *others) in places.items():
        if name not in SAME_PROTOCOL:
            yield from (Finding(path, 1, f"has the name of {first}: name each after what it does") for path in others)
        elif not others and not name.startswith("__"):
            yield Finding(first, 1, "occurs once: take it off the table in tools/rules/layout.py")
