"""Deciding about grids: frequent keys and slot loads in, regrids out.

`decide` is pure: the same arguments give the same plan, so an epoch that is replayed is decided the same way. A plan
names all grids from now on and, for each that changes, the instruction, the figures and the reason.

Cost: see the rules; independent of the stream's length and of its number of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from braidstream.control import grid_even, grid_paper
from braidstream.control.grid_even import EvenSettings, others_load
from braidstream.model.grids import Family, Grid, GridPlan
from braidstream.options import RouterOptions

__all__ = ["GridSettings", "Rule", "decide", "imbalance", "light_loads"]

Rule = Literal["even", "paper"]


@dataclass(frozen=True)
class GridSettings:
    """Which rule, and its parameters."""

    rule: Rule = "even"
    """Ours, or "paper": SHC 3.2 to the letter."""
    epsilon: float | None = None
    """The paper's: a heavy key is light again below (1/p - epsilon) N. At most 1/(2p); None: that."""
    even: EvenSettings = field(default_factory=EvenSettings)

    def __post_init__(self) -> None:
        RouterOptions("grid", self.rule, epsilon=self.epsilon)

    def fineness(self, n_slots: int) -> int:
        """For how many slots frequent keys are counted, so that no count is further off than epsilon."""
        return n_slots if self.epsilon is None else max(n_slots, ceil(1 / (2 * self.epsilon)))


def decide(
    families: Sequence[Family],
    light: Sequence[float] | None,
    n_slots: int,
    grids: Sequence[Grid],
    next_id: int,
    settings: GridSettings | None = None,
) -> GridPlan:
    """The grids from now on.

    `light` is each slot's load by groups (tuples received plus matches, over the span of the counts), candidates that
    are light now included; None where it was not measured. `grids` are those of now, `next_id` the next free id.
    """
    chosen = settings or GridSettings()
    if chosen.rule == "paper":
        widest = 1 / (2 * n_slots)
        epsilon = widest if chosen.epsilon is None else min(chosen.epsilon, widest)
        return grid_paper.plan(families, n_slots, grids, next_id, epsilon)
    return grid_even.plan(families, light, n_slots, grids, next_id, chosen.even)


def light_loads(families: Sequence[Family], others: Sequence[float], grids: Sequence[Grid]) -> list[float] | None:
    """The light load of each slot for `decide`; `others` are the rows of keys that are no candidates, by slot.

    What candidates weigh is known, and how much all other keys do together, which is spread as their rows are. None
    where there are no such rows.
    """
    whole = sum(others)
    if not whole:
        return None
    weight = sum(others_load(family) for family in families)
    loads, held = [weight * rows / whole for rows in others], {grid.key for grid in grids}
    for family in families:
        for one in family.candidates:
            if (family.name, one.hash) not in held and one.slot < len(loads):
                loads[one.slot] += one.weight
    return loads


def imbalance(loads: Sequence[float]) -> float:
    """Largest over mean load of the slots; 1 is even."""
    mean = sum(loads) / len(loads) if loads else 0.0
    return max(loads) / mean if mean > 0 else 1.0
