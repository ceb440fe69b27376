"""The reference of messages: every error that the package raises, from its sources.

A message is found where an exception of the package's tree is made with texts. What a message names is shown in braces.
Invariant: nothing is imported. Cost: the package is parsed once, a second.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Message", "messages", "messages_page"]

_HEAD = """# Messages

Errors have three parts: what was wrong with which value, what was expected, and the likely fix. What is wrong with the
input is raised before anything starts (exit code 2); what fails while a flow runs leaves a checkpoint that restarts
(exit code 3). Texts in braces are filled in. The list is made from the sources.
"""
_ABOUT = {
    "InputError": "Wrong input; nothing was started.",
    "QueryError": "A query that cannot be parsed or does not fit its streams.",
    "StreamError": "A stream whose declaration does not fit its DataFrame.",
    "JobError": "A job file.",
    "SinkError": "A sink or its path.",
    "CheckpointMismatch": "A checkpoint that belongs to something else.",
    "RunError": "Failed while running; the checkpoint restarts.",
    "DamagedState": "A file of the checkpoint is missing or unreadable.",
}
_FEWEST_WORDS = 2


@dataclass(frozen=True)
class Message:
    """One place that makes an error, with its three parts as far as they are written there."""

    kind: str
    wrong: str
    expected: str
    fix: str


def messages(package: Path) -> list[Message]:
    """All of the package, each once."""
    found = dict[Message, None]()
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ABOUT:
                found[_message(node, node.func.id)] = None
    return [one for one in found if len(re.findall(r"\w{2,}", re.sub(r"{[^}]*}", "", one.wrong))) >= _FEWEST_WORDS]


def messages_page(package: Path) -> str:
    """The page."""
    kinds = defaultdict(list)
    for one in messages(package):
        kinds[one.kind].append(one)
    lines = [_HEAD]
    for kind, about in _ABOUT.items():
        if kinds[kind]:
            lines += [f"## {kind}\n\n{about}\n", *_entries(sorted(kinds[kind], key=lambda one: one.wrong)), ""]
    return "\n".join(lines)


def _entries(found: list[Message]) -> Iterator[str]:
    for one in found:
        rest = [
            f"expected: {_code(one.expected)}" if one.expected else "",
            f"hint: {_code(one.fix)}" if one.fix else "",
        ]
        yield "- " + "  \n  ".join([_code(one.wrong), *filter(None, rest)])


def _message(node: ast.Call, kind: str) -> Message:
    texts = [_text(one) for one in node.args]
    named = {one.arg: _text(one.value) for one in node.keywords}
    if kind == "DamagedState":  # its first argument is the path
        texts = [f"{{path}}: {texts[1]}" if len(texts) > 1 else "", "", *texts[2:]]
    parts = dict(zip(("wrong", "expected", "fix"), texts, strict=False))
    return Message(kind, *(named.get(name, parts.get(name, "")) for name in ("wrong", "expected", "fix")))


def _text(node: ast.expr) -> str:
    """What is written there; what is computed is in braces, where it is short enough to say something."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) for one in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{_named(node.value)}}}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return ""


def _named(node: ast.expr) -> str:
    names = [
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in ast.walk(node)
        if isinstance(one, (ast.Attribute, ast.Name))
    ]
    return names[0].strip("_") if names else "..."


def _code(text: str) -> str:
    shown = " ".join(text.split())
    ticks = "``" if "`" in shown else "`"
    return f"{ticks}{' ' if ticks == '``' else ''}{shown}{' ' if ticks == '``' else ''}{ticks}"
