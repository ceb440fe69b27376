"""The rivals of the throughput-oriented push (D-CAPE 4.4): random groups, or the most productive ones.

They push as much as `Spilling` does, at the same moments, and differ only in the choice. Cost: O(groups log groups).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from braidstream.control.load import View
from braidstream.control.policies import Suggestion
from braidstream.control.policies.disk import group_states
from braidstream.control.policies.spilling import GroupState, size_per_result
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.instructions import Spill
from braidstream.model.numbers import GroupId

__all__ = ["Choice", "RivalSpilling"]

Choice = Literal["random", "high output"]


@dataclass(frozen=True)
class RivalSpilling:
    """Pushes the groups of a slot above its budget in another order."""

    settings: Settings
    choice: Choice

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """One suggestion for each slot above its budget."""
        budget = self.settings.spill_above * (self.settings.memory_bytes or float("inf"))
        suggestions = []
        for slot in view.slots:
            groups = group_states(view, slot.slot)
            total = sum(one.bytes for one in groups)
            if total > budget:
                amount = max(self.settings.budget.spill_share * total, total - budget)
                spills = tuple(Spill(group) for group in self._chosen(groups, amount, rng))
                suggestions.append(Suggestion(f"push {self.choice}", "spill", spills, {"slot_bytes": total}, ""))
        return suggestions

    def _chosen(self, groups: list[GroupState], amount: float, rng: np.random.Generator) -> list[GroupId]:
        chosen = []
        for one in self._ordered([one for one in groups if one.bytes > 0], rng):
            if amount <= 0:
                break
            chosen.append(one.group)
            amount -= one.bytes
        return chosen

    def _ordered(self, groups: list[GroupState], rng: np.random.Generator) -> list[GroupState]:
        if self.choice == "random":
            return [groups[i] for i in rng.permutation(len(groups))]
        return sorted(groups, key=lambda one: (size_per_result(one.bytes, one.outputs), one.group))
