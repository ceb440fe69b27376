"""The planes keep apart: what is computed, decided and kept knows nothing of where it runs.

Two tables say what is forbidden to a folder, and where pyspark is allowed. Imports are read from the syntax tree, so
those inside functions and under `TYPE_CHECKING` count too, and so does `importlib.import_module("name")`. Not seen: a
name that is computed at run time, and what an import brings along; tests/repository loads the planes for the latter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.rules.tree import PACKAGE, Finding, Tree

__all__ = [
    "FORBIDDEN",
    "PYSPARK_ALLOWED",
    "imports",
    "nothing_is_unpickled",
    "planes_keep_to_their_imports",
    "pyspark_stays_where_it_is_allowed",
]

_DRIVES = ("pyspark", "braidstream.spark", "braidstream.jobs", "braidstream.cli", "braidstream.lab")
"""What nothing below the engine knows of."""

FORBIDDEN = {
    "options": (
        *_DRIVES,
        *(f"braidstream.{plane}" for plane in ("model", "kernels", "control", "state", "slot", "epoch", "functions")),
    ),
    "model": (
        *_DRIVES,
        *(f"braidstream.{plane}" for plane in ("kernels", "control", "state", "slot", "epoch")),
        *(f"braidstream.{plane}" for plane in ("functions", "query", "plan")),
    ),
    "kernels": (
        *_DRIVES, "braidstream.control", "braidstream.state", "braidstream.slot", "braidstream.epoch",
        "braidstream.plan",
    ),
    "control": (
        *_DRIVES, "pyarrow", "braidstream.state", "braidstream.kernels", "braidstream.slot", "braidstream.epoch",
        "braidstream.plan",
    ),
    "state": (*_DRIVES, "braidstream.slot", "braidstream.epoch", "braidstream.functions", "braidstream.plan"),
    "slot": (*_DRIVES, "braidstream.epoch", "braidstream.functions", "braidstream.plan"),
    "epoch": (*_DRIVES, "braidstream.functions"),
    "query": (*_DRIVES, "braidstream.plan"),
    "plan": (*_DRIVES, "braidstream.slot", "braidstream.epoch"),
    "functions": (*_DRIVES, "braidstream.plan"),
    "watch": (*_DRIVES, "braidstream.slot", "braidstream.epoch", "braidstream.functions", "braidstream.plan"),
    "spark": ("braidstream.jobs", "braidstream.cli", "braidstream.lab"),
    "lab/sim": ("braidstream.spark",),
    "lab/overlay": ("braidstream.spark",),
}  # fmt: skip
"""For each plane, the modules that it and everything below it must not import."""

PYSPARK_ALLOWED = {
    "spark/": "the plane that runs on Spark",
    "__init__.py": "the public names; only when one of them is asked for",
    "lab/bench/": "measures Spark's own join beside ours",
    "bench.py": "measures Spark's own join beside ours",
    "cli/": "commands start a session",
    "lab/papers/": "experiments of kind 'spark'",
    "lab/workloads/": "writes streams as DataFrames",
    "lab/overlay/sweep.py": "spreads independent simulations over a cluster",
}
"""Where in the package pyspark may be imported (a folder ends in a slash), and why. Nowhere else."""


def planes_keep_to_their_imports(tree: Tree) -> Iterator[Finding]:
    """No plane imports what the table forbids it."""
    for plane, forbidden in FORBIDDEN.items():
        for path in tree.python(f"{PACKAGE}/{plane}/"):
            for line, name in imports(tree.parsed(path), path):
                if any(_is_within(name, module) for module in forbidden):
                    yield Finding(path, line, f"{plane}/ must not import {name}")


def pyspark_stays_where_it_is_allowed(tree: Tree) -> Iterator[Finding]:
    """Only the named files import pyspark."""
    for path in tree.python(f"{PACKAGE}/"):
        inside = path.removeprefix(f"{PACKAGE}/")
        if any(inside == place or (place.endswith("/") and inside.startswith(place)) for place in PYSPARK_ALLOWED):
            continue
        for line, name in imports(tree.parsed(path), path):
            if _is_within(name, "pyspark"):
                yield Finding(path, line, f"imports {name}: pyspark belongs into spark/ (tools/rules/imports.py)")


_RUNS_CODE = (
    "pickle",
    "cloudpickle",
    "pyspark.cloudpickle",
    "pyspark.serializers",
    "dill",
    "marshal",
    "shelve",
    "joblib",
)
"""What runs code when it reads."""
PICKLES_ALLOWED = {"spark/functions.py": "modules beside a job file are sent to workers; nothing is read from a file"}


def nothing_is_unpickled(tree: Tree) -> Iterator[Finding]:
    """Reading a checkpoint runs nobody's code: nothing that could is imported, and nothing is evaluated."""
    for path in tree.python(f"{PACKAGE}/"):
        if path.removeprefix(f"{PACKAGE}/") in PICKLES_ALLOWED:
            continue
        for line, name in imports(tree.parsed(path), path):
            if any(_is_within(name, module) for module in _RUNS_CODE):
                yield Finding(path, line, f"imports {name}, which runs code when it reads")
        for node in ast.walk(tree.parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
                yield Finding(path, node.lineno, f"calls {node.func.id}")
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                yield Finding(path, node.value.lineno, "reads pickles of NumPy")


def imports(module: ast.AST, path: str) -> Iterator[tuple[int, str]]:
    """Each imported name with its line; `from a import b` gives `a.b`, for b may be a module."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, path)
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            names = (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))
            yield from ((node.lineno, name) for name in names if isinstance(name, str))


def _is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _absolute(node: ast.ImportFrom, path: str) -> str:
    if not node.level:
        return node.module or ""
    folders = path.removeprefix("src/").split("/")[: -node.level]
    return ".".join([*folders, *filter(None, [node.module])])


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
