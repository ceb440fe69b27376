"""Degree of declustering (WSJ V-A): one slot more when N_sup > beta N_con, one slot fewer when no supplier is left.

The paper gives a slot up whenever nobody is a supplier, and so keeps the system just overloaded; a constant load then
makes it shrink and grow in turn. Ours gives a slot up only if the others would still be busy for less than
`shrink_below` of an epoch on average and none for longer than an epoch, only after `patience` reorganization epochs
in a row agree, and never to a number of slots that proved too few, until the load has fallen by a fifth since then.
So a constant load comes to rest; `declustering_rule = "paper"` is the paper's rule to the letter. The last slot is the
one to go (slots are numbered densely); its groups are dealt to the least loaded of the others, the largest first.

It needs a given epoch length: without one, load is only relative, and nothing says that all slots are too many.
Cost: O(slots + groups of the last slot).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from braidstream.control.load import View
from braidstream.control.policies import Suggestion
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.instructions import AddSlot, Move, RemoveSlot
from braidstream.model.numbers import SlotId

__all__ = ["Declustering", "arriving_work", "wish"]


@dataclass(frozen=True)
class Declustering:
    """Adds a slot or gives one up."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """At most one change of the number of slots."""
        direction, n_times = memory.wish
        if n_times < (1 if self.settings.declustering_rule == "paper" else self.settings.patience):
            return []
        if direction > 0:
            return [self._grow(view)]
        return [self._shrink(view)] if direction < 0 else []

    def _grow(self, view: View) -> Suggestion:
        return Suggestion("declustering", "grow", (AddSlot(),), _counts(view, self.settings), "N_sup > beta N_con")

    def _shrink(self, view: View) -> Suggestion:
        last = SlotId(view.n_slots - 1)
        moves, expected_s = _dealt(view)
        figures = {**_counts(view, self.settings), "expected_s": expected_s, "length_s": view.length_s}
        reason = f"no supplier is left and the other slots can take slot {last}'s groups"
        return Suggestion("declustering", "shrink", (*moves, RemoveSlot(last)), figures, reason)


def wish(view: View, memory: Memory, settings: Settings) -> tuple[int, int]:
    """More slots (1), fewer (-1) or as many (0), and for how many reorganization epochs in a row that was so."""
    direction = _direction(view, memory, settings) if settings.declustering and view.is_absolute else 0
    before, n_times = memory.wish
    return direction, n_times + 1 if direction == before else 1


def arriving_work(view: View) -> float:
    """The rows and matches that arrive in an epoch: the load, whatever the speed of the slots that bear it."""
    return sum(slot.work * (slot.demand_s / slot.busy_s if slot.busy_s > 0 else 1.0) for slot in view.slots)


def _direction(view: View, memory: Memory, settings: Settings) -> int:
    n_suppliers, n_consumers = len(view.suppliers(settings)), len(view.consumers(settings))
    if n_suppliers > settings.beta * n_consumers:
        return 1 if view.n_slots < settings.max_slots else 0
    return -1 if n_suppliers == 0 and _can_shrink(view, memory, settings) else 0


def _can_shrink(view: View, memory: Memory, settings: Settings) -> bool:
    others = view.n_slots - 1
    proved = memory.too_few.get(others)
    if settings.declustering_rule == "paper":
        return others >= max(settings.min_slots, 1)
    if others < max(settings.min_slots, 1) or (proved is not None and arriving_work(view) > 0.8 * proved):
        return False
    mean_s = sum(slot.demand_s for slot in view.slots) / others
    is_fitting = settings.shrink_below > 1 or _dealt(view)[1] <= view.length_s
    return mean_s <= settings.shrink_below * view.length_s and is_fitting


def _dealt(view: View) -> tuple[list[Move], float]:
    """Where the last slot's groups would go, and how long the busiest slot would then be busy."""
    last = SlotId(view.n_slots - 1)
    loads = [(slot.demand_s, slot.slot) for slot in view.slots[:last]]
    heapq.heapify(loads)
    moves = []
    for load in sorted(view.of_slot(last), key=lambda load: (-load.demand_s, load.group)):
        demand_s, target = loads[0]
        heapq.heapreplace(loads, (demand_s + load.demand_s, target))
        moves.append(Move(load.group, target))
    return moves, max(loads)[0]


def _counts(view: View, settings: Settings) -> dict[str, float]:
    return {
        "n_suppliers": float(len(view.suppliers(settings))),
        "n_consumers": float(len(view.consumers(settings))),
        "n_slots": float(view.n_slots),
        "beta": settings.beta,
    }
