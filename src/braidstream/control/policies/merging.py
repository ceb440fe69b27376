"""Merging groups again that were split (the other way of `policies.splitting`).

When nobody is a supplier, buddies that together take less than `merge_below` of an epoch become one group again, down
to as many groups of each stage as it began with. A merge's halves are at least five times below what would split them
again (the settings insist on twice), so a constant load does not split and merge for ever.

Cost: O(groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from braidstream.control.load import View
from braidstream.control.policies import Suggestion
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.directory import Group
from braidstream.model.instructions import Merge

__all__ = ["Merging"]


@dataclass(frozen=True)
class Merging:
    """Merges small buddies again."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """The merges of this reorganization epoch, in the order of the hash space."""
        if view.suppliers(self.settings):
            return []
        n_groups = len(view.directory.groups) if memory.base_groups is None else memory.base_groups
        n_base = n_groups // max(len(view.directory.regions), 1)
        found: list[Suggestion] = []
        for region in view.directory.regions.values():
            small = (pair for pair in _buddies(region.groups) if self._is_small(view, *pair))
            found += [self._merge(view, *pair) for pair in islice(small, max(len(region.groups) - n_base, 0))]
        return found

    def _is_small(self, view: View, lower: Group, upper: Group) -> bool:
        demand = view.groups[lower.id].demand_s + view.groups[upper.id].demand_s
        return demand <= self.settings.merge_below * view.length_s and (lower.slot == upper.slot or view.is_absolute)

    def _merge(self, view: View, lower: Group, upper: Group) -> Suggestion:
        loads = [view.groups[lower.id], view.groups[upper.id]]
        keeper = max(loads, key=lambda load: load.stored_bytes)
        figures = {"demand_s": sum(load.demand_s for load in loads), "length_s": view.length_s}
        reason = f"groups {lower.id} and {upper.id} are buddies and small"
        return Suggestion("merging", "tidy", (Merge(keeper.group),), figures, reason)


def _buddies(groups: Sequence[Group]) -> list[tuple[Group, Group]]:
    neighbours = pairwise(groups)
    return [(a, b) for a, b in neighbours if a.depth == b.depth and a.depth > 0 and a.buddy_prefix == b.prefix]
