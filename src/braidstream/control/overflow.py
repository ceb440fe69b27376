"""What happens when the state of a slot outgrows its memory: the budget, and what to push and clean up (D-CAPE 4).

What counts is *active* state, the bytes of it that a slot probes. A slot above its budget pushes groups
(`policies.spilling`). What it cannot push, such as cells of heavy keys, takes its room of the budget (`taken`), so that
groups are pushed the earlier. Groups with inactive generations are cleaned up

1. when one of the generations has expired: its rows may only go once nothing is missing;
2. when memory is free again: the group, whole, leaves its slot below `FREE` of the budget;
3. when time is to spare, as much as fits into half of it;
4. at the end of a finite flow, all of them.

Some generations of a group are cleaned up among themselves when they have become many (`policies.generation_tiers`).

Invariant: a slot that pushes in an epoch does not begin clean-ups of the second and third kind. The choice depends on
figures alone. Cost: O(groups log groups).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from braidstream.control.policies.generation_tiers import Generation, alike
from braidstream.control.policies.spilling import GroupState, choose_spills
from braidstream.model.instructions import CleanUp, Decision, Spill
from braidstream.model.numbers import EpochNumber, GroupId, SlotId
from braidstream.options import BudgetOptions, parse_size

__all__ = [
    "FREE",
    "GroupMemory",
    "Overflow",
    "clean_up_decisions",
    "fits_again",
    "parse_size",
    "push_decisions",
    "to_clean_up",
    "to_join",
    "to_spill",
]

FREE = 0.5
"""Memory is free again for a group if its slot then holds at most this share of the budget."""
SMALLEST_PIECE = 1 << 16
"""No piece of a clean-up is meant to be smaller than this: each has to open its segments."""
_SPARE = 0.5
_NOTHING: Mapping[SlotId, int] = MappingProxyType({})


@dataclass(frozen=True)
class Overflow:
    """The budget of a slot and what is done beyond it."""

    memory_bytes: int
    on_overflow: str = BudgetOptions.on_overflow
    spill_share: float = BudgetOptions.spill_share
    idle_after: int = BudgetOptions.idle_after
    shed_by: str = BudgetOptions.shed_by
    push_by: str = BudgetOptions.push_by

    def __post_init__(self) -> None:
        share, idle = self.spill_share, self.idle_after
        BudgetOptions(self.memory_bytes, self.on_overflow, share, idle, self.shed_by, self.push_by)

    @property
    def piece_bytes(self) -> int:
        """What one step of a merge or of a clean-up may hold: sorting and concatenating need copies of it."""
        return max(self.memory_bytes // 8, SMALLEST_PIECE)


@dataclass(frozen=True)
class GroupMemory:
    """What a group holds, and the measures by which it is chosen."""

    state: GroupState
    inactive_bytes: int
    generations: int
    """How many inactive generations it has."""
    is_expired: bool
    """Whether one of them is past its deadline."""
    inactive: tuple[Generation, ...] = ()
    """What each of them holds."""

    @property
    def bytes(self) -> int:
        """Active and inactive."""
        return self.state.bytes + self.inactive_bytes

    @property
    def is_incomplete(self) -> bool:
        """Whether results may be missing: there are two generations or more."""
        return self.generations + (self.state.bytes > 0) >= 2


def to_spill(
    groups: Sequence[GroupMemory],
    overflow: Overflow,
    now: EpochNumber,
    pinned: Collection[GroupId] = (),
    taken: Mapping[SlotId, int] = _NOTHING,
) -> list[GroupId]:
    """The groups to push, for every slot above its budget. Groups that are pinned stay, and take their room of it.

    So do the bytes that are `taken` at a slot by what is in no group.
    """
    chosen: list[GroupId] = []
    for slot, states in _by_slot(groups).items():
        own = [one.state for one in states if one.state.group not in pinned]
        kept = sum(one.state.bytes for one in states if one.state.group in pinned) + taken.get(slot, 0)
        budget, share, idle = max(overflow.memory_bytes - kept, 1), overflow.spill_share, overflow.idle_after
        chosen += choose_spills(own, budget, share=share, idle_after=idle, now=now, by=overflow.push_by)
    return chosen


def to_clean_up(
    groups: Sequence[GroupMemory],
    overflow: Overflow,
    spilled: Sequence[GroupId],
    spare_bytes: float,
    taken: Mapping[SlotId, int] = _NOTHING,
) -> list[GroupId]:
    """The groups to clean up in the next epoch; `spare_bytes` is what a slot could join in the time it has to spare."""
    chosen: list[GroupId] = []
    pushed = set(spilled)
    for slot, own in _by_slot(groups).items():
        held = [one for one in own if one.generations]
        chosen += [one.state.group for one in held if one.is_expired]
        if any(one.state.group in pushed for one in own):
            continue
        room = FREE * overflow.memory_bytes - taken.get(slot, 0) - sum(one.state.bytes for one in own)
        spare = _SPARE * spare_bytes
        for one in sorted((one for one in held if not one.is_expired), key=lambda one: (one.bytes, one.state.group)):
            if one.inactive_bytes <= room:
                room -= one.inactive_bytes
                chosen.append(one.state.group)
            elif one.is_incomplete and one.bytes <= spare:
                spare -= one.bytes
                chosen.append(one.state.group)
    return sorted(chosen)


def to_join(
    groups: Sequence[GroupMemory], overflow: Overflow, wanted: Collection[GroupId], watermark: int | None
) -> dict[GroupId, list[int]]:
    """By group, the generations to clean up among themselves, of groups that are not cleaned up altogether (`wanted`).

    A slot takes no more at once than its budget, or a single group.
    """
    chosen: dict[GroupId, list[int]] = {}
    room: dict[SlotId, float] = defaultdict(lambda: float(overflow.memory_bytes))
    others = [one for one in groups if one.inactive]
    whole = set(wanted)
    for one in sorted(others, key=lambda one: (-one.generations, one.state.group)):
        numbers = [] if one.state.group in whole else alike(one.inactive, watermark)
        if numbers and room[one.state.slot] > 0:
            room[one.state.slot] -= sum(own.bytes for own in one.inactive if own.number in numbers)
            chosen[one.state.group] = numbers
    return chosen


def push_decisions(
    groups: Sequence[GroupMemory],
    overflow: Overflow,
    epoch: EpochNumber,
    chosen: Sequence[GroupId],
    taken: Mapping[SlotId, int],
) -> list[Decision]:
    """The groups that were chosen to be pushed, as decisions: one for each slot."""
    found, wanted = [], set(chosen)
    for slot, own in _by_slot(groups).items():
        pushed = [one.state for one in own if one.state.group in wanted]
        if pushed:
            held = sum(one.state.bytes for one in own) + taken.get(slot, 0)
            figures = {"slot_bytes": float(held), "budget_bytes": float(overflow.memory_bytes)}
            figures["pushed_bytes"] = float(sum(one.bytes for one in pushed))
            spills = tuple(Spill(one.group) for one in pushed)
            found.append(Decision(epoch, "budget", figures, spills, f"slot {slot} holds more than it may"))
    return found


def clean_up_decisions(
    groups: Sequence[GroupMemory], epoch: EpochNumber, wanted: Sequence[GroupId], some: Mapping[GroupId, Sequence[int]]
) -> list[Decision]:
    """The groups that were chosen to be cleaned up, as one decision."""
    asked = (*(CleanUp(group) for group in wanted), *(CleanUp(group, tuple(n)) for group, n in some.items()))
    if not asked:
        return []
    named = {clean_up.group for clean_up in asked}
    own = [one for one in groups if one.state.group in named]
    figures = {"bytes": float(sum(one.bytes for one in own)), "expired": float(sum(one.is_expired for one in own))}
    return [Decision(epoch, "clean-up", figures, asked, "what is missing between generations is produced")]


def fits_again(
    groups: Sequence[GroupMemory],
    overflow: Overflow,
    cleaned: Sequence[GroupId],
    taken: Mapping[SlotId, int] = _NOTHING,
) -> set[GroupId]:
    """Those of the cleaned groups that are active from now on; the others stay one inactive generation."""
    fitting: set[GroupId] = set()
    whole = set(cleaned)
    for slot, own in _by_slot(groups).items():
        held = sum(one.state.bytes for one in own if one.state.group not in whole) + taken.get(slot, 0)
        for one in sorted((one for one in own if one.state.group in whole), key=lambda one: one.bytes):
            if held + one.bytes <= (1 - overflow.spill_share) * overflow.memory_bytes:
                held += one.bytes
                fitting.add(one.state.group)
    return fitting


def _by_slot(groups: Sequence[GroupMemory]) -> dict[SlotId, list[GroupMemory]]:
    found: dict[SlotId, list[GroupMemory]] = defaultdict(list)
    for one in groups:
        found[one.state.slot].append(one)
    return found
