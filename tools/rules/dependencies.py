"""Every dependency is declared and earns its place.

What the code imports stands in pyproject.toml, so that it works on a machine where nothing was installed by hand; and
docs/dependencies.md has a row for each package of pyproject.toml, and no other. Most packages are imported by the name
under which they are installed; a small table has the others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from tools.rules.imports import imports
from tools.rules.tree import Finding, Tree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["PAGE", "every_dependency_is_explained", "every_import_is_declared"]

PAGE = "docs/dependencies.md"
_OURS = {"braidstream", "examples", "tests", "tools"}
_BROUGHT_ALONG = {"py4j", "jinja2", "tornado"}  # by PySpark, of which it is a part; the others by Bokeh
_INSTALLED_AS = {
    "adbc_driver_postgresql": "adbc-driver-postgresql",
    "IPython": "ipykernel",
    "confluent_kafka": "confluent-kafka",
    "prometheus_client": "prometheus-client",
    "sklearn": "scikit-learn",
}
_ELSEWHERE = "src/braidstream/lab/bench/peers/run_"
"""Scripts that run in environments of their own, which tools/peers.sh makes; what they import is no part of ours."""
_ROW = re.compile(r"^\| `(?P<name>[\w.-]+)` \|")


def every_dependency_is_explained(tree: Tree) -> Iterator[Finding]:
    """The page's table and the project's requirements name the same packages."""
    if "pyproject.toml" not in tree.files:
        return
    lines = (tree.text(PAGE) or "").splitlines() if PAGE in tree.files else []
    rows = {match["name"]: number for number, line in enumerate(lines, 1) if (match := _ROW.match(line))}
    required = _required(tree)
    for name in sorted(required - set(rows)):
        yield Finding(PAGE, 1, f"no row for `{name}`: what does it do for us, what would we have written instead?")
    for name in sorted(set(rows) - required):
        yield Finding(PAGE, rows[name], f"`{name}` is not required by pyproject.toml")


def every_import_is_declared(tree: Tree) -> Iterator[Finding]:
    """Every imported package is Python's, ours, or required by pyproject.toml."""
    if "pyproject.toml" not in tree.files:
        return
    known = sys.stdlib_module_names | _required(tree) | _OURS | _BROUGHT_ALONG
    for path in tree.python():
        if path.startswith(_ELSEWHERE):
            continue
        for line, name in imports(tree.parsed(path), path):
            package = name.split(".", maxsplit=1)[0]
            if _INSTALLED_AS.get(package, package) not in known:
                yield Finding(path, line, f"imports {package}, which pyproject.toml does not require")


def _required(tree: Tree) -> set[str]:
    settings: dict[str, Any] = tomllib.loads(tree.text("pyproject.toml") or "")
    project = settings.get("project", {})
    extras = project.get("optional-dependencies", {}).values()
    groups = [settings.get("build-system", {}).get("requires", []), project.get("dependencies", []), *extras]
    names = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for group in groups for requirement in group}
    return names - {project.get("name")}
