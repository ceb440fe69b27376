"""The runbook has every message by which a flow refuses its checkpoint, or ends: they are looked up in the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "braidstream"
PLANES = ("state", "slot", "epoch", "functions", "spark")
PLACE = {"DamagedState": 1, "RunError": 0, "CheckpointMismatch": 0}
"""Which argument says what is wrong."""


def fragments(node: ast.AST) -> list[str]:
    """The fixed parts of a text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return [part.value for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return []


def messages(source: str) -> Iterator[str]:
    """The longest fixed part of each message that is raised."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PLACE:
            place = PLACE[node.func.id]
            parts = fragments(node.args[place]) if len(node.args) > place else []
            if parts and (longest := max(parts, key=len).strip(" :,({'\"")):
                yield longest


def words(text: str) -> str:
    return re.sub(r"[\s`>*]+", " ", text)


def said() -> dict[str, str]:
    files = (path for plane in PLANES for path in sorted((PACKAGE / plane).rglob("*.py")))
    return {one: str(path.relative_to(PACKAGE)) for path in files for one in messages(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("message", sorted(said()))
def test_the_runbook_has_it(message: str) -> None:
    runbook = words((ROOT / "docs" / "runbook.md").read_text(encoding="utf-8"))
    assert words(message) in runbook, f"{said()[message]}: {message}"


def test_messages_are_found_in_the_source() -> None:
    """Not a property of the runbook: what is never found is never missed."""
    assert len(said()) > 25
    assert list(messages("raise RunError(f'{a}: b is of format {n}', 'c')")) == ["b is of format"]
    assert list(messages("DamagedState(p, f'this {w} is damaged ({e})')")) == ["is damaged"]
