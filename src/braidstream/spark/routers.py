"""The routers of a flow: how rows of one key are spread over slots.

    hash        all rows of a key at the slot of its group (parallel hash join)
    auto        hash, until a key is heavy: then the grid that evens the slots' load (the default)
    grid        the same with a choice of rule; rule = "paper" is SHC 3.2 to the letter

Wrong names are refused before anything starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from braidstream.control.regrid import RULES, GridSettings
from braidstream.errors import InputError, nearest
from braidstream.spark.regrid import GridRouter

__all__ = ["ROUTERS", "Routing"]

ROUTERS = ("auto", "hash", "grid")


@dataclass(frozen=True)
class Routing:
    """Which router, and for grids by which rule."""

    router: str = "auto"
    rule: str = "even"

    def __post_init__(self) -> None:
        if self.router not in ROUTERS:
            raise InputError(
                f"the router is {self.router!r}", f"one of {', '.join(ROUTERS)}", nearest(str(self.router), ROUTERS)
            )
        if self.rule not in RULES:
            raise InputError(f"the rule is {self.rule!r}", f"one of {', '.join(RULES)}", nearest(str(self.rule), RULES))
        if self.rule != "even" and self.router != "grid":
            raise InputError(
                f"the rule {self.rule!r} with router {self.router!r}", "a rule for grids", 'router = "grid"'
            )

    def regridder(self) -> GridRouter | None:
        """What gives keys their grids; None where none gets one."""
        if self.router == "hash":
            return None
        return GridRouter(GridSettings(rule="paper" if self.rule == "paper" else "even"))
