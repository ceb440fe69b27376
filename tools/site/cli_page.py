"""The reference of the command line, from the commands themselves: what `braid COMMAND --help` says, as a page.

Cost: Typer's tree of commands is made; no Spark is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from braidstream.cli import app, commands

assert commands, "registers the commands"

__all__ = ["cli_page"]

_HEAD = """# Command line

`braid --help` lists the commands, `braid COMMAND --help` the options of one. `braid --install-completion` makes your
shell complete both; `braid --show-completion` prints what it would install.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | a check did not hold |
| 2 | wrong input; nothing was started |
| 3 | failed while running; the checkpoint restarts |
| 130 | interrupted |
"""


def cli_page() -> str:
    """The page."""
    lines = [_HEAD]
    for path, command in _all(typer.main.get_command(app)):
        lines += _section(path, command)
    return "\n".join(lines)


def _all(command: Any, path: tuple[str, ...] = ("braid",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _all(one, (*path, name))


def _section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    if len(path) > 1:
        yield f"## {' '.join(path)}\n"
        yield f"{_paragraphs(command.help or '')}\n"
    rows = [_row(one) for one in command.params if not getattr(one, "hidden", False)]
    if rows:
        yield "| option | what | default |\n| --- | --- | --- |"
        yield from rows
        yield ""


def _paragraphs(text: str) -> str:
    """The help, with the lines of its examples as code."""
    lines = [line.replace("\b", "") for line in inspect.cleandoc(text).splitlines()]
    return "\n".join(f"    {line.strip()}" if line.startswith("  ") else line for line in lines)


def _row(one: Any) -> str:
    is_option = bool(getattr(one, "opts", None)) and one.opts[0].startswith("-")
    names = (
        ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts]) if is_option else f"`{one.name.upper()}`"
    )
    default = "" if one.default in (None, (), []) or callable(one.default) else f"`{one.default}`"
    said = (getattr(one, "help", None) or "").replace("\\[", "[").replace("|", "\\|")
    return f"| {names} | {' '.join(said.split())} | {'must be given' if one.required else default} |"
