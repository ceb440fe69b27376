"""Fine tuning by size (WSJ IV-D): every group between theta and 2 theta, by splits and buddies, whatever its load.

With `theta` in the settings this takes the place of splitting and merging by load. A group that holds more than 2 theta
of state is halved by its next hash bit, at the slot where it is, once each reorganization epoch until its halves are
small enough. A group below theta is merged with its buddy where the two together hold less than 2 theta, down to as
many groups of each stage as it began with. Two halves of a split hold more than that, so a constant state comes to
rest. A group that a split did not help (one key carries it) is left alone, as by `policies.splitting`.

State is what slots report of a group: rows in memory, of all stores. Cost: O(groups).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braidstream.control.load import GroupLoad, View
from braidstream.control.policies import Suggestion
from braidstream.control.policies.merging import are_buddies, merges_of
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.instructions import Split
from braidstream.model.numbers import SlotId, slot_ids
from braidstream.options import parse_size

__all__ = ["Tuning"]


@dataclass(frozen=True)
class Tuning:
    """Keeps groups between theta and 2 theta."""

    settings: Settings

    @property
    def theta(self) -> int:
        """In bytes."""
        return parse_size(self.settings.theta or 0)

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """The splits of each slot, then the merges, in the order of the hash space."""
        large = {slot: self._large(view, slot, memory) for slot in slot_ids(view.n_slots)}
        splits = [self._splits(own, slot) for slot, own in large.items() if own]
        return [*splits, *merges_of(view, memory, self._small(view))]

    def _large(self, view: View, slot: SlotId, memory: Memory) -> list[GroupLoad]:
        return [
            load
            for load in view.of_slot(slot)
            if load.stored_bytes > 2 * self.theta
            and view.directory.by_id[load.group].depth < self.settings.max_depth
            and load.group not in memory.solid
        ]

    def _splits(self, large: list[GroupLoad], slot: SlotId) -> Suggestion:
        figures = {"bytes": float(max(load.stored_bytes for load in large)), "theta": float(self.theta)}
        named = ", ".join(str(load.group) for load in large[:5]) + (", ..." if len(large) > 5 else "")
        reason = f"groups {named} of slot {slot} hold more than 2 theta"
        return Suggestion("tuning", "tidy", tuple(Split(load.group, slot) for load in large), figures, reason)

    def _small(self, view: View) -> npt.NDArray[np.intp]:
        """The positions of groups of which one, or its buddy, is below theta and both together are below 2 theta."""
        held = view.loads.stored_bytes
        is_small = (np.minimum(held[:-1], held[1:]) < self.theta) & (held[:-1] + held[1:] < 2 * self.theta)
        return np.flatnonzero(are_buddies(view.directory.columns()) & is_small)
