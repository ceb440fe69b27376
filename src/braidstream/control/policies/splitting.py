"""Splitting groups (extendible hashing at the routing level; DHTJoin section 6's partners).

A supplier whose largest group takes more than `split_above` of an epoch (of its length, or of what an even spread takes
where that is longer: in a cluster that is overloaded as a whole, smaller groups help nobody) has that group split by
its next hash bit; the upper half goes to the least loaded consumer if that evens the two (the same condition as a
supplier's move), else it stays. A group that a split did not help (one key carries it) is remembered as solid and
left alone. `policies.merging` undoes it. Cost: O(groups).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from braidstream.control.load import GroupLoad, SlotLoad, View
from braidstream.control.policies import Suggestion
from braidstream.control.policies.suppliers import evens
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.instructions import Split

__all__ = ["Splitting"]


@dataclass(frozen=True)
class Splitting:
    """Splits the group that is too large for its supplier."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """One split for each supplier with a group too large to be placed well."""
        consumers = sorted(view.consumers(self.settings), key=lambda slot: (slot.demand_s, slot.slot))
        suggestions = []
        for supplier in sorted(view.suppliers(self.settings), key=lambda slot: (-slot.demand_s, slot.slot)):
            large = self._too_large(view, supplier, memory)
            if large is not None:
                suggestions.append(self._split(large, supplier, consumers, view))
        return suggestions

    def _too_large(self, view: View, supplier: SlotLoad, memory: Memory) -> GroupLoad | None:
        limit_s = self.settings.split_above * max(view.length_s, view.even_s)
        able = [
            load
            for load in view.of_slot(supplier.slot)
            if load.demand_s > limit_s
            and view.directory.by_id[load.group].depth < self.settings.max_depth
            and load.group not in memory.solid
        ]
        return max(able, key=lambda load: (load.demand_s, -load.group), default=None)

    def _split(self, large: GroupLoad, supplier: SlotLoad, consumers: list[SlotLoad], view: View) -> Suggestion:
        half_s = large.demand_s / 2
        fits = bool(consumers) and evens(half_s, supplier, consumers[0], self.settings.margin)
        target = consumers.pop(0).slot if fits else supplier.slot
        figures = {"group_s": large.demand_s, "even_s": view.even_s, "supplier_occupancy": supplier.occupancy}
        reason = f"group {large.group} of supplier slot {supplier.slot} is too large to be placed well"
        return Suggestion("splitting", "load", (Split(large.group, target),), figures, reason)
