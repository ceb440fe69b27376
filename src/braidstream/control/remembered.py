"""The controller's memory: what it must know from one reorganization epoch to the next; the manifest keeps it.

What is measured of each group is not in it: budget and controller share that (`model.group_measures`).

A memory is never changed: every function returns another one. It stays as large as the directory: what is said of
groups and slots that no longer exist is dropped. Cost: O(groups)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from braidstream.control.load import View
from braidstream.model.instructions import Instruction, Spill, Split
from braidstream.model.numbers import EpochNumber, GroupId, SlotId
from braidstream.model.values import Value, changed

__all__ = ["Memory", "after", "remember"]


class Memory(Value, frozen=True):
    """What the controller remembers."""

    base_groups: int | None = None
    """As many groups there were at first: merges go no further."""
    solid: Mapping[GroupId, float] = msgspec.field(default_factory=dict)
    """By group that a split did not help: its demand then."""
    split: Mapping[GroupId, tuple[GroupId, float]] = msgspec.field(default_factory=dict)
    """By group that was split: the other half, and the demand of both, to see whether it helped."""
    yielded: Mapping[SlotId, float] = msgspec.field(default_factory=dict)
    """By slot that had to yield load: its pace then."""
    forced_bytes: int = 0
    """Of forced spills."""
    last_s: float | None = None
    """The time of the last adaptation."""
    wish: tuple[int, int] = (0, 0)
    """More slots (1), fewer (-1) or as many, and for how many reorganization epochs in a row."""
    too_few: Mapping[int, float] = msgspec.field(default_factory=dict)
    """By number of slots that proved too few: the work that arrived then."""
    outputs: Mapping[GroupId, float] = msgspec.field(default_factory=dict)
    """In manifests of 0.1.0: P_o, which `state.notes` takes over. Empty now."""
    touched: Mapping[GroupId, EpochNumber] = msgspec.field(default_factory=dict)
    """Likewise T_u."""


def remember(memory: Memory, view: View) -> Memory:
    """The memory with what the view says of earlier decisions, and what no longer exists dropped."""
    return changed(
        memory,
        base_groups=len(view.directory) if memory.base_groups is None else memory.base_groups,
        solid=_solid(memory, view),
        split={},
        yielded={slot: pace for slot, pace in memory.yielded.items() if slot < view.n_slots},
    )


def after(memory: Memory, view: View, instructions: Sequence[Instruction]) -> Memory:
    """The memory after the accepted instructions."""
    splits, forced_bytes, next_id = dict(memory.split), memory.forced_bytes, view.directory.next_id
    for one in instructions:
        if isinstance(one, Split):
            if one.group in view.groups:  # not a half that was split off just now: nothing is known of its load
                splits[one.group] = (next_id, view.groups[one.group].demand_s)
            next_id = GroupId(next_id + 1)
        elif isinstance(one, Spill) and one.forced and one.group in view.groups:
            forced_bytes += view.groups[one.group].stored_bytes
    last_s = memory.last_s if _only_spills(instructions) else view.clock_s
    return changed(memory, split=splits, forced_bytes=forced_bytes, last_s=last_s)


def _only_spills(instructions: Iterable[Instruction]) -> bool:
    """Whether nothing but pushes was accepted: the minimal time-span between adaptations does not count those."""
    return all(isinstance(one, Spill) for one in instructions)


def _solid(memory: Memory, view: View) -> dict[GroupId, float]:
    """The groups that a split did not help, one key carrying most of them, with their demand.

    Such a group is left alone until its demand has halved; spreading one key is the grid router's work. Where there was
    no demand, old state was split, and its bytes tell.
    """
    solid = {
        group: demand
        for group, demand in memory.solid.items()
        if group in view.groups
        and (view.groups[group].demand_s > demand / 2 or demand == view.groups[group].demand_s == 0)
    }
    for lower, (upper, whole_s) in memory.split.items():
        halves = [view.groups[g] for g in (lower, upper) if g in view.groups]
        sizes = [load.demand_s if whole_s > 0 else float(load.stored_bytes) for load in halves]
        if halves and max(sizes) > 0.9 * sum(sizes):
            heavy = halves[sizes.index(max(sizes))]
            solid[heavy.group] = heavy.demand_s
    return solid
