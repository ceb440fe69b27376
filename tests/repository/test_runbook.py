"""The runbook has every message by which a flow refuses its checkpoint or a sink, ends, or warns, by the source.

What refuses a query, a job file or a declaration says itself what to write instead, and is not in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "braidstream"
PLANES = ("state", "slot", "epoch", "functions", "spark")
PLACE = {"DamagedState": 1, "RunError": 0, "CheckpointMismatch": 0, "SinkError": 0, "LeaseLost": 0, "SinkFailed": 2}
"""Which argument says what is wrong."""
KEEPING = {**PLACE, "InputError": 0}
"""In what keeps state: an option of a flow is refused elsewhere."""
WARNING = {"warning": 0, "warn": 0}
ENDS = ("LeaseLost", "SinkFailed", "CheckpointInUse")
"""Classes that say themselves what is wrong."""


def fragments(node: ast.AST) -> list[str]:
    """The fixed parts of a text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return [part.value for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return []


def messages(source: str, place_of: Mapping[str, int] = PLACE) -> Iterator[str]:
    """The longest fixed part of each message that is raised."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in place_of:
            yield from longest_of(node, place_of[node.func.id])


def warnings(source: str) -> Iterator[str]:
    """Of what is logged, or warned of."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WARNING:
            yield from longest_of(node, WARNING[node.func.attr])


def own_words(source: str) -> Iterator[str]:
    """Of classes that make their message of their arguments."""
    for made in ast.walk(ast.parse(source)):
        if isinstance(made, ast.ClassDef) and made.name in ENDS:
            for node in ast.walk(made):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
                    yield from longest_of(node, 0)


def longest_of(call: ast.Call, place: int) -> Iterator[str]:
    """The longest fixed part of an argument, between what `%` puts in."""
    told = call.args[place] if len(call.args) > place else None
    parts = [] if told is None else [part for one in ast.walk(told) for part in fragments(one)]
    pieces = [piece for part in parts for piece in re.split(r"%[sdr]", part)]
    if pieces and (longest := max(pieces, key=len).strip(" :,;({'\"")):
        yield longest


def words(text: str) -> str:
    return re.sub(r"[\s`>*]+", " ", text)


def said() -> dict[str, str]:
    found = dict.fromkeys(own_words((PACKAGE / "errors.py").read_text(encoding="utf-8")), "errors.py")
    files = [(path, PLACE) for plane in PLANES for path in sorted((PACKAGE / plane).rglob("*.py"))]
    keeping = [*(PACKAGE / "state").rglob("*.py"), PACKAGE / "cli" / "rollback.py"]
    for path, place_of in [*files, *((path, KEEPING) for path in keeping)]:
        source = path.read_text(encoding="utf-8")
        found |= dict.fromkeys([*messages(source, place_of), *warnings(source)], str(path.relative_to(PACKAGE)))
    return found


@pytest.mark.parametrize("message", sorted(said()))
def test_the_runbook_has_it(message: str) -> None:
    runbook = words((ROOT / "docs" / "runbook.md").read_text(encoding="utf-8"))
    assert words(message) in runbook, f"{said()[message]}: {message}"


def test_messages_are_found_in_the_source() -> None:
    """Not a property of the runbook: what is never found is never missed."""
    assert len(said()) > 60
    assert {one.partition("/")[0] for one in said().values()} >= {"state", "slot", "spark", "functions", "cli"}
    assert list(messages("InputError('x', 'y')")) == []
    assert list(messages("InputError('x', 'y')", KEEPING)) == ["x"]
    assert list(warnings("_log.warning('the flow %s is very slow', name)")) == ["is very slow"]
    assert list(
        own_words("class LeaseLost:\n  def __init__(self):\n    super().__init__(f'{a} went' + ('' if b else c))")
    ) == ["went"]
    assert list(messages("raise RunError(f'{a}: b is of format {n}', 'c')")) == ["b is of format"]
    assert list(messages("DamagedState(p, f'this {w} is damaged ({e})')")) == ["is damaged"]
