"""Lazy-disk and active-disk (D-CAPE 6): disk and relocation together, when the memory of all slots is not enough.

*Lazy-disk* pushes as late as possible: the memory is balanced first, and a slot pushes only what does not fit
(`Spilling`), its least productive groups, a local decision. *Active-disk* adds a global one (`ForcedSpilling`): while
the memory is balanced but the groups of some slots give theta_f times fewer results on average than those of another
(Max_rate / Min_rate > theta_f), the least productive groups of all those slots are pushed although they fit. The next
balance fills the room with productive groups of other slots.

Pushing too much costs results too, so forced pushes never exceed M_q - M_c in sum: what the queries need beyond the
memory of the cluster, and so would have to be pushed anyway. And nothing is forced before a slot holds `memory_above`
of its budget. That is ours: without it pushes begin with the first tuples, when output rates are chance; tried on the
streams of figure 21, active-disk then gave less than half of lazy-disk's results.

Relocation and pushes are of different kinds, and the controller takes one kind an epoch, the first that is suggested:
so relocation comes before spilling, and never are both at work. Pushes do not wait for the minimal time-span between
adaptations. A group with inactive generations is not moved, unless the settings say that the engine may.

Cost: O(groups log groups).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from braidstream.control.load import GroupLoad, SlotLoad, View
from braidstream.control.policies import Policy, Suggestion
from braidstream.control.policies.balance import MemoryBalance
from braidstream.control.policies.spilling import GroupState, choose_spills, least_productive
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.instructions import Spill
from braidstream.model.numbers import GroupId, SlotId

__all__ = ["ForcedSpilling", "Spilling", "group_states", "memory_policies"]


def memory_policies(settings: Settings) -> tuple[Policy, ...]:
    """The policies of memory that the settings switch on, in the order in which they are asked."""
    if settings.disk == "none":
        return (MemoryBalance(settings),)
    if settings.disk == "lazy":
        return (MemoryBalance(settings), Spilling(settings))
    return (MemoryBalance(settings), Spilling(settings), ForcedSpilling(settings))


def group_states(view: View, slot: SlotId) -> list[GroupState]:
    """The active state of a slot's groups."""
    return [_state(view, load) for load in view.of_slot(slot)]


@dataclass(frozen=True)
class Spilling:
    """Pushes groups of every slot that holds more than it may: the local decision of lazy-disk."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """One suggestion for each slot above theta_m of its budget."""
        if self.settings.memory_bytes is None:
            return []
        budget = int(self.settings.spill_above * self.settings.memory_bytes)
        held = view.loads.by_slot(view.loads.stored_bytes, view.n_slots).tolist()
        suggestions, asked = [], self.settings.budget
        for slot in (slot for slot in view.slots if held[slot.slot] > budget):
            groups = group_states(view, slot.slot)
            share, idle, by = asked.spill_share, asked.idle_after, asked.push_by
            chosen = choose_spills(groups, budget, share=share, idle_after=idle, now=view.epoch, by=by)
            if chosen:
                suggestions.append(_overflow(slot, groups, chosen, budget))
        return suggestions


@dataclass(frozen=True)
class ForcedSpilling:
    """Pushes the least productive groups of all slots that give few results: the global decision of active-disk."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """At most one suggestion, for all poor slots together."""
        rates = {slot.slot: rate for slot in view.slots if (rate := _rate(view, slot)) is not None}
        highest = max(rates.values(), default=0.0)
        poor = [slot for slot, rate in rates.items() if highest > self.settings.rate_ratio * rate]
        if not poor or not self._is_pressing(view) or not self._is_balanced(view):
            return []
        groups = [state for slot in poor for state in group_states(view, slot)]
        asked = self.settings.budget
        amount = asked.spill_share * sum(one.bytes for one in groups)
        worst = least_productive(groups, amount, idle_after=asked.idle_after, now=view.epoch)
        room = self._room(view, memory)
        chosen = _within(worst, room)
        return [_forced(chosen, highest, min(rates.values()), room)] if chosen else []

    def _is_pressing(self, view: View) -> bool:
        most = max(slot.stored_bytes for slot in view.slots)
        return most > self.settings.memory_above * (self.settings.memory_bytes or 0)

    def _is_balanced(self, view: View) -> bool:
        held = [slot.stored_bytes for slot in view.slots]
        return min(held) >= self.settings.memory_ratio * max(held)

    def _room(self, view: View, memory: Memory) -> float:
        """What may still be forced: M_q - M_c, less what was forced already."""
        if self.settings.memory_bytes is None:
            return 0.0
        so_far = int(view.loads.stored_bytes.sum() + view.loads.inactive_bytes.sum())
        needed = so_far if self.settings.query_bytes is None else self.settings.query_bytes
        return needed - self.settings.memory_bytes * view.n_slots - memory.forced_bytes


def _state(view: View, load: GroupLoad) -> GroupState:
    last = view.measures.touched.get(load.group, view.epoch)
    results = view.measures.outputs.get(load.group, 0.0)
    return GroupState(load.group, load.slot, load.stored_bytes, results, last, load.inactive_bytes > 0)


def _rate(view: View, slot: SlotLoad) -> float | None:
    """The results of an epoch for each group of the slot (D-CAPE 6); None where it has no group."""
    n_groups = view.directory.count_of_slot(slot.slot)
    return slot.matches / n_groups if n_groups else None


def _within(groups: list[GroupState], room: float) -> list[GroupState]:
    """The first groups that fit into `room` together."""
    sizes = np.cumsum([one.bytes for one in groups])
    return groups[: int(np.searchsorted(sizes, room, side="right"))]


def _overflow(slot: SlotLoad, groups: list[GroupState], chosen: list[GroupId], budget: int) -> Suggestion:
    going = set(chosen)
    pushed = sum(one.bytes for one in groups if one.group in going)
    figures = {"slot_bytes": float(slot.stored_bytes), "budget_bytes": float(budget), "pushed_bytes": float(pushed)}
    reason = f"slot {slot.slot} holds more than it may"
    return Suggestion("spilling", "spill", tuple(Spill(group) for group in chosen), figures, reason)


def _forced(chosen: list[GroupState], highest: float, lowest: float, room: float) -> Suggestion:
    pushed = float(sum(one.bytes for one in chosen))
    figures = {"max_rate": highest, "min_rate": lowest, "pushed_bytes": pushed, "room_bytes": room}
    slots = ", ".join(str(slot) for slot in sorted({one.slot for one in chosen}))
    reason = f"memory is balanced, and the groups of slots {slots} give far fewer results than others"
    spills = tuple(Spill(one.group, forced=True) for one in chosen)
    return Suggestion("forced spilling", "spill", spills, figures, reason)
