"""Partners (DHTJoin 6): a slot that holds more than delta of what it may, s_n / c_n > delta, hands over half a group.

The paper's node divides the domain of its attribute with a partner that has room, by halves, and again with another
partner while it is overloaded. Here a slot above `delta` of its memory has the group with the most state split by its
next hash bit, and the upper half goes to the slot that holds least, if that stays below delta. Load does not matter,
only state; with `delta` groups are not merged again, as partners in the paper stay partners. Where half of the largest
does not fit, a smaller group is tried. A group that a split did not help (one key carries it) is left alone, as by
`policies.splitting`.

Invariant: nobody is overloaded by what it takes, so under a constant state it ends. Cost: O(groups).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from braidstream.control.load import GroupLoad, SlotLoad, View
from braidstream.control.policies import Suggestion
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.instructions import Split

__all__ = ["Partners"]


@dataclass(frozen=True)
class Partners:
    """Splits the largest group of an overloaded slot, and gives the upper half to a partner."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """One split for each overloaded slot that finds a partner, the fullest first."""
        if self.settings.delta is None or self.settings.memory_bytes is None:
            return []
        limit = self.settings.delta * self.settings.memory_bytes
        overloaded = sorted((slot for slot in view.slots if slot.stored_bytes > limit), key=_fullest_first)
        partners = sorted((slot for slot in view.slots if slot.stored_bytes <= limit), key=_emptiest_first)
        suggestions = []
        for slot in overloaded:
            room = limit - partners[0].stored_bytes if partners else 0.0
            large = self._largest(view, slot, memory, room)
            if large is not None:
                suggestions.append(_split(large, slot, partners.pop(0), limit))
        return suggestions

    def _largest(self, view: View, slot: SlotLoad, memory: Memory, room: float) -> GroupLoad | None:
        """The group with the most state of which a partner has room for a half."""
        able = [
            load
            for load in view.of_slot(slot.slot)
            if 0 < load.stored_bytes <= 2 * room
            and view.directory.by_id[load.group].depth < self.settings.max_depth
            and load.group not in memory.solid
        ]
        return max(able, key=lambda load: (load.stored_bytes, -load.group), default=None)


def _fullest_first(slot: SlotLoad) -> tuple[int, int]:
    return -slot.stored_bytes, slot.slot


def _emptiest_first(slot: SlotLoad) -> tuple[int, int]:
    return slot.stored_bytes, slot.slot


def _split(large: GroupLoad, slot: SlotLoad, partner: SlotLoad, limit: float) -> Suggestion:
    figures = {"slot_bytes": float(slot.stored_bytes), "limit_bytes": limit, "group_bytes": float(large.stored_bytes)}
    reason = f"slot {slot.slot} holds more than delta of its memory, and slot {partner.slot} has room"
    return Suggestion("partners", "memory", (Split(large.group, partner.slot),), figures, reason)
