"""Types say what is meant: a mapping of anything is a class nobody wrote, a default for an attribute is a guess.

`Mapping[str, Any]` is for rows of users' data; everything else that has known names is a class. Its number may fall.
A cast to Any switches the checker off. `getattr` with a default is for objects of others, listed here with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tools.rules.tree import PACKAGE, Finding, Tree

__all__ = ["GUESSED", "MOST_MAPPINGS", "few_mappings_of_anything", "no_cast_to_any", "no_guessed_attributes"]

MOST_MAPPINGS = 9
"""How many mappings of anything the package has, at most."""
_MAPPING = re.compile(r"Mapping\[str, Any\]")

GUESSED = {
    "spark/causes.py": "Spark's exceptions keep their text in a private attribute, which some lack",
    "spark/functions.py": "modules of others may have no file",
    "spark/sinks.py": "a user's callable may have no name",
    "functions/function.py": "a user's callable may have no name",
}
"""Files of the package with a `getattr` that has a default, and why there is no other way."""


def few_mappings_of_anything(tree: Tree) -> Iterator[Finding]:
    """There are at most so many, of all files together."""
    places = [
        (path, number)
        for path in tree.python(f"{PACKAGE}/")
        for number, line in enumerate((tree.text(path) or "").splitlines(), 1)
        for _ in _MAPPING.findall(line)
    ]
    if len(places) > MOST_MAPPINGS:
        others = ", ".join(f"{path}:{number}" for path, number in places[:-1])
        wrong = f"the last of {len(places)} mappings of anything, where {MOST_MAPPINGS} may be (others: {others})"
        yield Finding(*places[-1], wrong)


def no_cast_to_any(tree: Tree) -> Iterator[Finding]:
    """No value is cast to Any."""
    for path, call in _calls(tree, "cast"):
        target = call.args[0] if call.args else None
        name = target.value if isinstance(target, ast.Constant) else target.id if isinstance(target, ast.Name) else ""
        if name == "Any":
            yield Finding(path, call.lineno, "a cast to Any: say which type it is")


def no_guessed_attributes(tree: Tree) -> Iterator[Finding]:
    """`getattr` has no default, but where the table says why; the table names no other file."""
    found = set()
    for path, call in _calls(tree, "getattr"):
        inside = path.removeprefix(f"{PACKAGE}/")
        if len(call.args) == 3:
            found.add(inside)
            if inside not in GUESSED:
                yield Finding(path, call.lineno, "an attribute that may be missing: declare it (tools/rules/types.py)")
    for inside in GUESSED.keys() - found:
        if f"{PACKAGE}/{inside}" in tree.files:
            yield Finding(
                f"{PACKAGE}/{inside}", 1, "guesses no attribute: take it off the table in tools/rules/types.py"
            )


def _calls(tree: Tree, name: str) -> Iterator[tuple[str, ast.Call]]:
    for path in tree.python(f"{PACKAGE}/"):
        for node in ast.walk(tree.parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield path, node
