"""The controller's memory: what it must know from one reorganization epoch to the next, as plain JSON for the manifest.

It holds the time of the last adaptation, how often the wish for more or fewer slots repeated, the results of each
group's active generation so far (D-CAPE's P_o) and the epoch of its last new tuple (T_u), the bytes of forced spills,
the loads of groups before they were split (to see whether the split helped), and the slots that had to yield load,
with their pace then. Keys are strings, because JSON's are.

A memory is never changed: every function returns another one. It stays as large as the directory: what is said of
groups and slots that no longer exist is dropped. Cost: O(groups)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from braidstream.control.load import View
from braidstream.model.directory import Directory
from braidstream.model.instructions import Instruction, Merge, Spill, Split

__all__ = ["Memory", "after", "outputs", "remember", "touched"]

Memory = Mapping[str, Any]


def remember(memory: Memory, view: View) -> dict[str, Any]:
    """The memory with the view's results added and what no longer exists dropped."""
    seen = memory.get("outputs", {})
    grown = {str(g): seen.get(str(g), 0.0) + load.matches for g, load in view.groups.items()}
    last = memory.get("touched", {})
    return {
        **memory,
        "outputs": grown,
        "touched": {
            str(g): view.epoch if load.rows > 0 else last.get(str(g), view.epoch) for g, load in view.groups.items()
        },
        "base_groups": memory.get("base_groups", len(view.directory.groups)),
        "solid": _solid(memory, view),
        "split": {},
        "yielded": {slot: pace for slot, pace in memory.get("yielded", {}).items() if int(slot) < view.n_slots},
    }


def after(memory: Memory, view: View, instructions: Sequence[Instruction]) -> dict[str, Any]:
    """The memory after the accepted instructions: halves share what their whole produced, a merged group has both.

    A pushed group begins anew: what its next generation produces is its own (D-CAPE 4.2).
    """
    results = dict(memory["outputs"])
    forced_bytes = memory.get("forced_bytes", 0)
    splits = dict(memory["split"])
    directory = view.directory
    for one in instructions:
        if isinstance(one, Split):
            if one.group in view.groups:  # not a half that was split off just now: nothing is known of its load
                splits[str(one.group)] = [directory.next_id, view.groups[one.group].demand_s]
            results[str(one.group)] = results[str(directory.next_id)] = results.get(str(one.group), 0.0) / 2
            directory = directory.split(one.group, one.slot)
        elif isinstance(one, Merge):
            directory = _merged(directory, one, results)
        elif isinstance(one, Spill):
            results[str(one.group)] = 0.0
            forced_bytes += view.groups[one.group].stored_bytes if one.forced and one.group in view.groups else 0
    changed = {**memory, "outputs": results, "split": splits, "forced_bytes": forced_bytes}
    return changed if _only_spills(instructions) else {**changed, "last_s": view.clock_s}


def outputs(memory: Memory, group: int) -> float:
    """How many results the group's active generation has produced so far (P_o)."""
    return float(memory.get("outputs", {}).get(str(group), 0.0))


def touched(memory: Memory, group: int, default: int) -> int:
    """The epoch of the group's last new tuple (T_u), as far as the reorganization epochs tell."""
    return int(memory.get("touched", {}).get(str(group), default))


def _only_spills(instructions: Iterable[Instruction]) -> bool:
    """Whether nothing but pushes was accepted: the minimal time-span between adaptations does not count those."""
    return all(isinstance(one, Spill) for one in instructions)


def _merged(directory: Directory, one: Merge, results: dict[str, float]) -> Directory:
    buddy = directory.buddy(one.group)
    if buddy is None:
        return directory
    both = results.pop(str(one.group), 0.0) + results.pop(str(buddy.id), 0.0)
    results[str(min(directory.by_id[one.group], buddy).id)] = both
    return directory.merge(one.group)


def _solid(memory: Memory, view: View) -> dict[str, float]:
    """The groups that a split did not help, one key carrying most of them, with their demand.

    Such a group is left alone until its demand has halved; spreading one key is the grid router's work.
    """
    solid = {
        group: demand
        for group, demand in memory.get("solid", {}).items()
        if int(group) in view.groups and view.groups[int(group)].demand_s > demand / 2
    }
    for lower, (upper, whole_s) in memory.get("split", {}).items():
        halves = [view.groups[g] for g in (int(lower), int(upper)) if g in view.groups]
        heavy = max(halves, key=lambda load: load.demand_s, default=None)
        if heavy is not None and heavy.demand_s > 0.9 * sum(load.demand_s for load in halves) and whole_s > 0:
            solid[str(heavy.group)] = heavy.demand_s
    return solid
