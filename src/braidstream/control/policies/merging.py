"""Merging groups again that were split (the other way of `policies.splitting`).

When nobody is a supplier, buddies that together take less than `merge_below` of an epoch become one group again, down
to as many groups of each stage as it began with. A merge's halves are at least five times below what would split them
again (the settings insist on twice), so a constant load does not split and merge for ever.

Cost: O(groups).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braidstream.control.load import View
from braidstream.control.policies import Suggestion
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.directory import HASH_BITS, GroupColumns
from braidstream.model.instructions import Merge
from braidstream.model.numbers import GroupId

__all__ = ["Merging", "are_buddies", "merges_of"]


@dataclass(frozen=True)
class Merging:
    """Merges small buddies again."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """The merges of this reorganization epoch, in the order of the hash space."""
        return [] if view.suppliers(self.settings) else merges_of(view, memory, self._small(view))

    def _small(self, view: View) -> npt.NDArray[np.intp]:
        """The positions of groups that are small together with their buddies, the next ones."""
        slots, demand = view.directory.columns().slots, view.loads.demand_s
        is_small = demand[:-1] + demand[1:] <= self.settings.merge_below * view.length_s
        may_meet = np.True_ if view.is_absolute else slots[:-1] == slots[1:]
        return np.flatnonzero(are_buddies(view.directory.columns()) & is_small & may_meet)


def merges_of(view: View, memory: Memory, lower: npt.NDArray[np.intp]) -> list[Suggestion]:
    """Merges of groups at these positions with the next ones, down to as many as each stage began with."""
    n_groups = len(view.directory) if memory.base_groups is None else memory.base_groups
    n_base = n_groups // max(len(view.directory.regions), 1)
    found: list[Suggestion] = []
    for begin, end in view.directory.columns().bounds.values():
        own = lower[np.searchsorted(lower, begin) : np.searchsorted(lower, end)]
        found += _merges(view, _apart(view, own[: max(end - begin - n_base, 0)]))
    return found


def _apart(view: View, lower: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Those of which no two touch the same slot: a reorganization epoch changes a slot once."""
    slots, touched, found = view.directory.columns().slots, set[int](), []
    for at, one, other in zip(lower.tolist(), slots[lower].tolist(), slots[lower + 1].tolist(), strict=True):
        if one not in touched and other not in touched:
            touched |= {one, other}
            found.append(at)
    return np.array(found, dtype=np.intp)


def _merges(view: View, lower: npt.NDArray[np.intp]) -> list[Suggestion]:
    """Groups at these positions with the next ones, at the slot of the larger."""
    ids, held = view.directory.columns().ids, view.loads.stored_bytes
    keepers = np.where(held[lower + 1] > held[lower], ids[lower + 1], ids[lower])
    demands = view.loads.demand_s[lower] + view.loads.demand_s[lower + 1]
    columns = (one.tolist() for one in (keepers, demands, ids[lower], ids[lower + 1]))
    return [
        Suggestion(
            "merging",
            "tidy",
            (Merge(GroupId(keeper)),),
            {"demand_s": demand_s, "length_s": view.length_s},
            f"groups {one} and {other} are buddies and small",
        )
        for keeper, demand_s, one, other in zip(*columns, strict=True)
    ]


def are_buddies(columns: GroupColumns) -> npt.NDArray[np.bool_]:
    """Of each group but the last: whether the next one is its buddy, of the same depth."""
    same = (columns.stages[:-1] == columns.stages[1:]) & (columns.depths[:-1] == columns.depths[1:])
    bits = np.uint64(1) << (np.uint64(HASH_BITS) - np.maximum(columns.depths[:-1], 1).astype(np.uint64))
    found: npt.NDArray[np.bool_] = same & (columns.depths[:-1] > 0) & (columns.firsts[:-1] ^ bits == columns.firsts[1:])
    return found
