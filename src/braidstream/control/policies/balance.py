"""Memory balance (D-CAPE 5.1): when M_l / M_m < theta_d, move (M_m - M_l) / 2 of state, the most productive groups
first.

M_m and M_l are the most and the least state held by a slot. Productivity of a group is its size over its results so
far, P_s / P_o: smaller is better, and the best go first, because they will be probed where there is room.

It balances only under pressure (the fullest slot above `memory_above` of the budget), never gives to a slot that is a
supplier, or that had to yield load since its pace was what it is, and never moves more than the amount, so the fullest
slot only gets emptier: under a constant load it ends.

Nor does it give to a slot that has more in all, in memory and on disk, than the sender. That is ours: a slot that has
just pushed looks empty, but its groups will fill it again as fast as before. Without this rule such slots got more and
more groups, which were pushed there and stayed; over six hours one slot of three ended with nearly all of the disk.

Groups with inactive generations on disk stay where they are (D-CAPE 6, second restriction), unless `move_spilled` says
that the engine may move them: where state is files under a manifest, a move copies nothing.
Cost: O(groups), and those of the fullest slot sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from braidstream.control.load import GroupLoad, SlotLoad, View
from braidstream.control.policies import Suggestion
from braidstream.control.policies.spilling import size_per_result
from braidstream.control.policies.suppliers import relative_pace
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.instructions import Move

__all__ = ["MemoryBalance"]


@dataclass(frozen=True)
class MemoryBalance:
    """Moves state from the fullest slot to the emptiest."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """The groups to move, together, or nothing."""
        if self.settings.memory_bytes is None or not view.slots:
            return []
        sender = max(view.slots, key=lambda slot: (slot.stored_bytes, -slot.slot))
        held = view.whole_bytes.tolist()
        most = held[sender.slot]
        receivers = [slot for slot in view.slots if self._may_receive(slot, memory) and held[slot.slot] < most]
        if not receivers:
            return []
        receiver = min(receivers, key=lambda slot: (slot.stored_bytes, slot.slot))
        if not self._is_uneven(sender, receiver):
            return []
        moved = self._chosen(view, sender, receiver)
        return [_suggestion(moved, sender, receiver)] if moved else []

    def _may_receive(self, slot: SlotLoad, memory: Memory) -> bool:
        yielded = memory.yielded.get(slot.slot)
        slow = yielded is not None and slot.pace is not None and slot.pace > 2 / 3 * yielded
        return slot.occupancy <= self.settings.supplier_above and not slow

    def _is_uneven(self, sender: SlotLoad, receiver: SlotLoad) -> bool:
        pressing = sender.stored_bytes > self.settings.memory_above * (self.settings.memory_bytes or 0)
        return pressing and receiver.stored_bytes < self.settings.memory_ratio * sender.stored_bytes

    def _chosen(self, view: View, sender: SlotLoad, receiver: SlotLoad) -> list[GroupLoad]:
        amount = (sender.stored_bytes - receiver.stored_bytes) / 2
        limit_s = view.length_s * (1 + self.settings.supplier_above * self.settings.buffer_epochs)
        room_s = limit_s - receiver.demand_s if view.length_s > 0 else float("inf")
        ratio = relative_pace(sender, receiver)
        chosen = []
        for load in sorted(view.of_slot(sender.slot), key=lambda load: (_size_per_result(view, load), load.group)):
            fits = 0 < load.stored_bytes <= amount and load.demand_s * ratio <= room_s
            if fits and (self.settings.move_spilled or not load.inactive_bytes):
                chosen.append(load)
                amount -= load.stored_bytes
                room_s -= load.demand_s * ratio
        return chosen


def _size_per_result(view: View, load: GroupLoad) -> float:
    return size_per_result(load.stored_bytes, view.measures.outputs.get(load.group, 0.0))


def _suggestion(moved: list[GroupLoad], sender: SlotLoad, receiver: SlotLoad) -> Suggestion:
    figures = {
        "sender_bytes": float(sender.stored_bytes),
        "receiver_bytes": float(receiver.stored_bytes),
        "moved_bytes": float(sum(load.stored_bytes for load in moved)),
    }
    reason = f"slot {sender.slot} holds the most state, slot {receiver.slot} the least"
    moves = tuple(Move(load.group, receiver.slot) for load in moved)
    return Suggestion("memory balance", "memory", moves, figures, reason)
