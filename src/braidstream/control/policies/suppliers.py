"""Suppliers and consumers (WSJ IV-C): each overloaded slot yields one group to a slot of its own with time to spare.

Pairs are found in one scan. The paper takes a random group; our default takes the one after whose move the busier of
the two is least busy, with the consumer's seconds estimated from the two slots' paces.

Either way the move is suggested only if the consumer has less to do than the supplier would have left *without* the
group:

    demand(consumer) < demand(supplier) - demand(group) - margin * demand(supplier)

and only if chance does not explain it: the supplier's demand is taken less its noise, the consumer's with its own on
top (`control.load`). Under a load that stays the same that makes a move rarer still, so the argument holds with it.

Why this stops: let group g cost x_g on a slot of pace p_s (so p_s * x_g seconds there). Moving g by that rule lowers
the sum over slots of p_s times the sum of x_g * x_h over pairs of groups on the slot, by x_g times the gap between
the two sides. The sum cannot fall for ever, so under a constant load moves end, whatever the paces are and however
wrongly we estimate them. Where they end, no overloaded slot exceeds a consumer by more than its smallest group and
the margin.

With `groups_at_once` above 1 a supplier may yield several groups to its consumer; each must pass the rule after those
before it, with the consumer's load then an estimate, so that the argument is as good as the estimate.

Cost: O(slots log slots + groups of the suppliers).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from braidstream.control.load import GroupLoad, SlotLoad, View
from braidstream.control.policies import Suggestion
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.instructions import Move

__all__ = ["Suppliers", "evens", "relative_pace"]

_PACES = (0.25, 4.0)  # beyond these a ratio of paces says more about the groups' contents than about the slots


@dataclass(frozen=True)
class Suppliers:
    """Moves one group from each supplier to its consumer."""

    settings: Settings

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """One move for each pair, where one helps."""
        found = [self._yielded(view, *pair, rng) for pair in self._pairs(view)]
        return [one for one in found if one is not None]

    def _pairs(self, view: View) -> list[tuple[SlotLoad, SlotLoad]]:
        suppliers, consumers = view.suppliers(self.settings), view.consumers(self.settings)
        if self.settings.choice == "even":  # the most loaded with the least loaded
            suppliers = sorted(suppliers, key=lambda slot: (-slot.demand_s, slot.slot))
            consumers = sorted(consumers, key=lambda slot: (slot.demand_s, slot.slot))
        return list(zip(suppliers, consumers, strict=False))

    def _yielded(
        self, view: View, supplier: SlotLoad, consumer: SlotLoad, rng: np.random.Generator
    ) -> Suggestion | None:
        """The groups that the supplier yields, one after the other, each judged by what those before leave."""
        groups, ratio = view.of_slot(supplier.slot), relative_pace(supplier, consumer)
        after, chosen = (supplier, consumer), list[GroupLoad]()
        while groups and len(chosen) < self.settings.groups_at_once:
            best = self._best(groups, *after, ratio, rng)
            if best is None:
                break
            groups.remove(best)
            chosen.append(best)
            after = _moved(best, *after, ratio)
        return _suggestion(chosen, supplier, consumer, after) if chosen else None

    def _best(
        self, groups: list[GroupLoad], supplier: SlotLoad, consumer: SlotLoad, ratio: float, rng: np.random.Generator
    ) -> GroupLoad | None:
        if self.settings.choice == "random":
            groups = [groups[int(rng.integers(len(groups)))]]
        helpful = [g for g in groups if g.demand_s > 0 and evens(g.demand_s, supplier, consumer, self.settings.margin)]
        left_s, taken_s = supplier.demand_s, consumer.demand_s  # as `_moved` has them after the move
        busier = {g.group: max(left_s - g.demand_s, taken_s + ratio * g.demand_s) for g in helpful}
        return min(helpful, key=lambda g: (busier[g.group], g.stored_bytes, g.group), default=None)


def evens(moved_s: float, supplier: SlotLoad, consumer: SlotLoad, margin: float) -> bool:
    """Whether moving `moved_s` of the supplier's demand is sure not to be undone (see the module's docstring)."""
    sure_s = supplier.demand_s - supplier.noise_s - margin * supplier.demand_s
    return consumer.demand_s + consumer.noise_s < sure_s - moved_s


def relative_pace(supplier: SlotLoad, consumer: SlotLoad) -> float:
    """How many of the consumer's seconds one of the supplier's is worth, as far as their work tells."""
    if supplier.pace is None or consumer.pace is None:
        return 1.0
    return min(max(consumer.pace / supplier.pace, _PACES[0]), _PACES[1])


def _moved(group: GroupLoad, supplier: SlotLoad, consumer: SlotLoad, ratio: float) -> tuple[SlotLoad, SlotLoad]:
    """The two slots after the move, as far as their paces tell."""
    return (
        replace(supplier, demand_s=supplier.demand_s - group.demand_s),
        replace(consumer, demand_s=consumer.demand_s + ratio * group.demand_s),
    )


def _suggestion(
    chosen: list[GroupLoad], supplier: SlotLoad, consumer: SlotLoad, after: tuple[SlotLoad, SlotLoad]
) -> Suggestion:
    figures = {
        "supplier_occupancy": supplier.occupancy,
        "consumer_occupancy": consumer.occupancy,
        "supplier_s": supplier.demand_s,
        "consumer_s": consumer.demand_s,
        "group_s": sum(group.demand_s for group in chosen),
        "expected_s": max(slot.demand_s for slot in after),
    }
    names = ", ".join(f"group {group.group}" for group in chosen)
    reason = f"slot {supplier.slot} is a supplier and yields {names} to consumer slot {consumer.slot}"
    return Suggestion("suppliers", "load", tuple(Move(g.group, consumer.slot) for g in chosen), figures, reason)
