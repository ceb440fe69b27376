"""Every dependency earns its place: docs/dependencies.md has a row for each one of pyproject.toml, and no other."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from tools.rules.tree import Finding, Tree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["PAGE", "every_dependency_is_explained"]

PAGE = "docs/dependencies.md"
_ROW = re.compile(r"^\| `(?P<name>[\w.-]+)` \|")


def every_dependency_is_explained(tree: Tree) -> Iterator[Finding]:
    """The page's table and the project's requirements name the same packages."""
    if "pyproject.toml" not in tree.files:
        return
    lines = (tree.text(PAGE) or "").splitlines() if PAGE in tree.files else []
    rows = {match["name"]: number for number, line in enumerate(lines, 1) if (match := _ROW.match(line))}
    required = _required(tomllib.loads(tree.text("pyproject.toml") or ""))
    for name in sorted(required - set(rows)):
        yield Finding(PAGE, 1, f"no row for `{name}`: what does it do for us, what would we have written instead?")
    for name in sorted(set(rows) - required):
        yield Finding(PAGE, rows[name], f"`{name}` is not required by pyproject.toml")


def _required(settings: dict[str, Any]) -> set[str]:
    project = settings.get("project", {})
    extras = project.get("optional-dependencies", {}).values()
    groups = [settings.get("build-system", {}).get("requires", []), project.get("dependencies", []), *extras]
    names = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for group in groups for requirement in group}
    return names - {project.get("name")}
