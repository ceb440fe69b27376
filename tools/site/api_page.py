"""The reference of the public names, from the sources: nothing is imported.

Invariant: every name of `braidstream.__all__` and `braidstream.functions.__all__` has an entry, and of its public
methods each that has a docstring. Cost: the files that define them are parsed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["api_page"]

_HEAD = """# Python

The public names, with what their source says of them. `import braidstream` needs neither Spark nor Arrow; a name is
imported when it is first used. [Options](../options.md) has what each argument of a flow may be.
"""
_PACKAGES = {"braidstream": "__init__.py", "braidstream.functions": "functions/__init__.py"}
_GIVEN = {
    "ContinuousQuery": ("braidstream.spark.declared", ("to", "late", "table")),
    "MetricsListener": ("braidstream.spark.listening", ()),
}
"""What is used without being imported from a package above: the class, where it is, and which methods are for users."""


def api_page(package: Path) -> str:
    """The page, for the package in a folder."""
    lines = [_HEAD]
    for name, file in _PACKAGES.items():
        lines.append(f"## {name}\n")
        module = _parsed(package / file)
        homes = _homes(module, name)
        for one in sorted(_public(module) - {"__version__"}, key=str.lower):
            lines += _entry(package, one, *_found(package, homes.get(one, name), one))
    lines.append("## What these give, and listeners\n")
    for one, (home, methods) in _GIVEN.items():
        lines += _entry(package, one, *_found(package, home, one), only=methods)
    return "\n".join(lines)


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _public(module: ast.Module) -> set[str]:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return set(ast.literal_eval(node.value))
    return set()


def _homes(module: ast.Module, package: str) -> dict[str, str]:
    """The module of each imported name."""
    imports = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or package for node in imports for alias in node.names}


def _found(package: Path, home: str, name: str) -> tuple[ast.stmt | None, str]:
    """The definition of a name, through packages that only pass it on, and the module that has it."""
    place = package / "/".join(home.split(".")[1:])
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    module = _parsed(file)
    for node in module.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return node, home
    further = _homes(module, home).get(name)
    return _found(package, further, name) if further and further != home else (None, home)


def _entry(
    package: Path, name: str, node: ast.stmt | None, home: str, only: tuple[str, ...] | None = None
) -> Iterator[str]:
    yield f"### {name}\n"
    if isinstance(node, ast.FunctionDef):
        yield f"```text\n{_signature(name, node)}\n```\n"
    if isinstance(node, ast.ClassDef):
        made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        yield (
            f"```text\n{_signature(name, made)}\n```\n"
            if made
            else f"A class{f', a kind of {bases}' if bases else ''}.\n"
        )
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        yield f"{_told(node)}\n\nIn `{home}`.\n"
    if isinstance(node, ast.ClassDef):
        yield from _members([one for one in _methods(package, node, home) if only is None or one.name in only])


def _methods(package: Path, node: ast.ClassDef, home: str) -> list[ast.FunctionDef]:
    """The public methods of a class, those of its bases in the package first."""
    found: list[ast.FunctionDef] = []
    imported = _homes(_parsed(package / ("/".join(home.split(".")[1:]) + ".py")), home) if node.bases else {}
    for base in node.bases:
        place = imported.get(ast.unparse(base), "")
        own, further = _found(package, place, ast.unparse(base)) if place.startswith("braidstream.") else (None, "")
        if isinstance(own, ast.ClassDef):
            found += _methods(package, own, further)
    return [*found, *(one for one in node.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"))]


def _members(methods: list[ast.FunctionDef]) -> Iterator[str]:
    for one in methods:
        if ast.get_docstring(one):
            is_property = any("property" in ast.unparse(mark) for mark in one.decorator_list)
            shown = one.name if is_property else _signature(one.name, one, longest=10_000)
            yield f"- `.{shown}`: {' '.join(_told(one).split())}"
    if methods:
        yield ""


def _signature(name: str, node: ast.FunctionDef, longest: int = 100) -> str:
    """The call, without `self`; a line for each argument where it is longer than `longest`."""
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    own = arguments.args
    if own.args and own.args[0].arg in ("self", "cls"):
        own.args.pop(0)
    given = ast.unparse(own)
    back = f" -> {ast.unparse(node.returns)}" if node.returns and name != "__init__" and node.name != "__init__" else ""
    line = f"{name}({given}){back}"
    if len(line) <= longest:
        return line
    parts = ",\n".join(f"    {part}" for part in _split(given))
    return f"{name}(\n{parts},\n){back}"


def _split(arguments: str) -> Iterator[str]:
    """At commas that are outside all brackets."""
    depth, begin = 0, 0
    for at, sign in enumerate(arguments):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            yield arguments[begin:at].strip()
            begin = at + 1
    yield arguments[begin:].strip()


def _told(node: ast.ClassDef | ast.FunctionDef) -> str:
    return ast.get_docstring(node) or ""
