"""Options with a port that may be left out: `--dashboard` is `--dashboard 0`, any port that is free."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

__all__ = ["OptionalPorts"]

_OPTIONS = ("--dashboard",)


class OptionalPorts(TyperCommand):
    """A command that fills in a port that was not said."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put 0 after an option that is followed by no number."""
        filled: list[str] = []
        for at, one in enumerate(args):
            filled.append(one)
            if one in _OPTIONS and not (at + 1 < len(args) and args[at + 1].isdecimal()):
                filled.append("0")
        return list(super().parse_args(ctx, filled))
