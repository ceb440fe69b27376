"""The controller's memory: what it must know from one reorganization epoch to the next; the manifest keeps it.

A memory is never changed: every function returns another one. It stays as large as the directory: what is said of
groups and slots that no longer exist is dropped. Cost: O(groups)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from braidstream.control.load import View
from braidstream.model.directory import Directory
from braidstream.model.instructions import Instruction, Merge, Spill, Split
from braidstream.model.values import Value, changed

__all__ = ["Memory", "after", "outputs", "remember", "touched"]


class Memory(Value, frozen=True):
    """What the controller remembers."""

    outputs: Mapping[int, float] = msgspec.field(default_factory=dict)
    """By group: the results of its active generation so far (D-CAPE's P_o)."""
    touched: Mapping[int, int] = msgspec.field(default_factory=dict)
    """By group: the epoch of its last new tuple (T_u)."""
    base_groups: int | None = None
    """As many groups there were at first: merges go no further."""
    solid: Mapping[int, float] = msgspec.field(default_factory=dict)
    """By group that a split did not help: its demand then."""
    split: Mapping[int, tuple[int, float]] = msgspec.field(default_factory=dict)
    """By group that was split: the other half, and the demand of both, to see whether it helped."""
    yielded: Mapping[int, float] = msgspec.field(default_factory=dict)
    """By slot that had to yield load: its pace then."""
    forced_bytes: int = 0
    """Of forced spills."""
    last_s: float | None = None
    """The time of the last adaptation."""
    wish: tuple[int, int] = (0, 0)
    """More slots (1), fewer (-1) or as many, and for how many reorganization epochs in a row."""
    too_few: Mapping[int, float] = msgspec.field(default_factory=dict)
    """By number of slots that proved too few: the work that arrived then."""


def remember(memory: Memory, view: View) -> Memory:
    """The memory with the view's results added and what no longer exists dropped."""
    last, groups = memory.touched, view.groups
    return changed(
        memory,
        outputs={g: memory.outputs.get(g, 0.0) + load.matches for g, load in groups.items()},
        touched={g: view.epoch if load.rows > 0 else last.get(g, view.epoch) for g, load in groups.items()},
        base_groups=len(view.directory.groups) if memory.base_groups is None else memory.base_groups,
        solid=_solid(memory, view),
        split={},
        yielded={slot: pace for slot, pace in memory.yielded.items() if slot < view.n_slots},
    )


def after(memory: Memory, view: View, instructions: Sequence[Instruction]) -> Memory:
    """The memory after the accepted instructions: halves share what their whole produced, a merged group has both.

    A pushed group begins anew: what its next generation produces is its own (D-CAPE 4.2).
    """
    results, splits, forced_bytes = dict(memory.outputs), dict(memory.split), memory.forced_bytes
    directory = view.directory
    for one in instructions:
        if isinstance(one, Split):
            if one.group in view.groups:  # not a half that was split off just now: nothing is known of its load
                splits[one.group] = (directory.next_id, view.groups[one.group].demand_s)
            results[one.group] = results[directory.next_id] = results.get(one.group, 0.0) / 2
            directory = directory.split(one.group, one.slot)
        elif isinstance(one, Merge):
            directory = _merged(directory, one, results)
        elif isinstance(one, Spill):
            results[one.group] = 0.0
            forced_bytes += view.groups[one.group].stored_bytes if one.forced and one.group in view.groups else 0
    last_s = memory.last_s if _only_spills(instructions) else view.clock_s
    return changed(memory, outputs=results, split=splits, forced_bytes=forced_bytes, last_s=last_s)


def outputs(memory: Memory, group: int) -> float:
    """How many results the group's active generation has produced so far (P_o)."""
    return memory.outputs.get(group, 0.0)


def touched(memory: Memory, group: int, default: int) -> int:
    """The epoch of the group's last new tuple (T_u), as far as the reorganization epochs tell."""
    return memory.touched.get(group, default)


def _only_spills(instructions: Iterable[Instruction]) -> bool:
    """Whether nothing but pushes was accepted: the minimal time-span between adaptations does not count those."""
    return all(isinstance(one, Spill) for one in instructions)


def _merged(directory: Directory, one: Merge, results: dict[int, float]) -> Directory:
    buddy = directory.buddy(one.group)
    if buddy is None:
        return directory
    both = results.pop(one.group, 0.0) + results.pop(buddy.id, 0.0)
    results[min(directory.by_id[one.group], buddy).id] = both
    return directory.merge(one.group)


def _solid(memory: Memory, view: View) -> dict[int, float]:
    """The groups that a split did not help, one key carrying most of them, with their demand.

    Such a group is left alone until its demand has halved; spreading one key is the grid router's work.
    """
    solid = {
        group: demand
        for group, demand in memory.solid.items()
        if group in view.groups and view.groups[group].demand_s > demand / 2
    }
    for lower, (upper, whole_s) in memory.split.items():
        halves = [view.groups[g] for g in (lower, upper) if g in view.groups]
        heavy = max(halves, key=lambda load: load.demand_s, default=None)
        if heavy is not None and heavy.demand_s > 0.9 * sum(load.demand_s for load in halves) and whole_s > 0:
            solid[heavy.group] = heavy.demand_s
    return solid
