"""Degree of declustering (WSJ V-A): one slot more when N_sup > beta N_con, one slot fewer when no supplier is left.

The paper gives a slot up whenever nobody is a supplier, and so keeps the system just overloaded; a constant load then
makes it shrink and grow in turn. Ours gives a slot up only if the others would still be busy for less than
`shrink_below` of an epoch, and only after `patience` reorganization epochs in a row agree; a large `shrink_below` and a
patience of 1 are the paper's rule. The last slot is the one to go (slots are numbered densely); its groups are dealt to
the least loaded of the others, the largest first.

It needs a given epoch length: without one, load is only relative, and nothing says that all slots are too many.
Cost: O(slots + groups of the last slot).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from braidstream.control.instructions import AddSlot, Move, RemoveSlot
from braidstream.control.load import View
from braidstream.control.memory import Memory
from braidstream.control.policies import Suggestion
from braidstream.control.settings import Settings

__all__ = ["Declustering", "wish"]


@dataclass(frozen=True)
class Declustering:
    """Adds a slot or gives one up."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """At most one change of the number of slots."""
        direction, n_times = memory.get("wish", [0, 0])
        if n_times < self.settings.patience:
            return []
        if direction > 0:
            return [self._grow(view)]
        return [self._shrink(view)] if direction < 0 else []

    def _grow(self, view: View) -> Suggestion:
        return Suggestion("declustering", "grow", (AddSlot(),), _counts(view, self.settings), "N_sup > beta N_con")

    def _shrink(self, view: View) -> Suggestion:
        last = view.n_slots - 1
        loads = {slot.slot: slot.demand_s for slot in view.slots[:last]}
        moves = []
        for load in sorted(view.of_slot(last), key=lambda load: (-load.demand_s, load.group)):
            target = min(loads, key=lambda slot: (loads[slot], slot))
            loads[target] += load.demand_s
            moves.append(Move(load.group, target))
        figures = {**_counts(view, self.settings), "expected_s": max(loads.values()), "length_s": view.length_s}
        reason = f"no supplier is left and the other slots can take slot {last}'s groups"
        return Suggestion("declustering", "shrink", (*moves, RemoveSlot(last)), figures, reason)


def wish(view: View, memory: Memory, settings: Settings) -> list[int]:
    """More slots (1), fewer (-1) or as many (0), and for how many reorganization epochs in a row that was so."""
    direction = _direction(view, settings) if settings.declustering and view.is_absolute else 0
    before, n_times = memory.get("wish", [0, 0])
    return [direction, n_times + 1 if direction == before else 1]


def _direction(view: View, settings: Settings) -> int:
    n_suppliers, n_consumers = len(view.suppliers(settings)), len(view.consumers(settings))
    if n_suppliers > settings.beta * n_consumers:
        return 1 if view.n_slots < settings.max_slots else 0
    total_s = sum(slot.demand_s for slot in view.slots)
    others = view.n_slots - 1
    can_shrink = others >= settings.min_slots and total_s <= settings.shrink_below * view.length_s * others
    return -1 if n_suppliers == 0 and can_shrink else 0


def _counts(view: View, settings: Settings) -> dict[str, float]:
    return {
        "n_suppliers": float(len(view.suppliers(settings))),
        "n_consumers": float(len(view.consumers(settings))),
        "n_slots": float(view.n_slots),
        "beta": settings.beta,
    }
