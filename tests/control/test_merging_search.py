"""Merges are found in arrays: those that looking at every two neighbours finds, in the order of the hash space."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.group_loads import GroupLoad
from braidstream.control.load import View
from braidstream.control.policies.merging import Merging
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.directory import Directory
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.instructions import Merge
from tests.control.test_directory import directories
from tests.scale import examples


def plainly_merged(view: View, memory: Memory, chosen: Settings) -> list[tuple[int, dict[str, float], str]]:
    n_groups = len(view.directory.groups) if memory.base_groups is None else memory.base_groups
    found = []
    for region in view.directory.regions.values():
        small: list[tuple[set[int], tuple[int, dict[str, float], str]]] = []
        for lower, upper in pairwise(region.groups):
            loads = [view.groups[lower.id], view.groups[upper.id]]
            demand = loads[0].demand_s + loads[1].demand_s
            are_buddies = lower.depth == upper.depth > 0 and lower.buddy_prefix == upper.prefix
            may_meet = lower.slot == upper.slot or view.is_absolute
            if are_buddies and demand <= chosen.merge_below * view.length_s and may_meet:
                keeper = max(loads, key=lambda load: load.stored_bytes)
                reason = f"groups {lower.id} and {upper.id} are buddies and small"
                figures = {"demand_s": demand, "length_s": view.length_s}
                small.append(({lower.slot, upper.slot}, (keeper.group, figures, reason)))
        touched: set[int] = set()
        for slots, merge in islice(small, max(len(region.groups) - n_groups // len(view.directory.regions), 0)):
            if touched.isdisjoint(slots):
                touched |= slots
                found.append(merge)
    return found


@settings(max_examples=examples(60), deadline=None)
@given(directories(), st.integers(0, 1 << 30), st.booleans())
def test_merges_are_those_of_neighbours_that_share_no_slot(directory: Directory, seed: int, is_absolute: bool) -> None:
    rng, chosen = np.random.default_rng(seed), Settings(splitting=True)
    sizes = rng.integers(0, 3, len(directory)).tolist()
    demands = (rng.integers(0, 3, len(directory)) * chosen.merge_below / 2).tolist()
    loads = {
        group.id: GroupLoad(group.id, group.slot, 0.0, 0.0, demand, size)
        for group, demand, size in zip(directory.groups, demands, sizes, strict=True)
    }
    view = View(3, 0.0, directory, (), loads, 1.0, 1.0, is_absolute, GroupMeasures())
    for memory in (Memory(), Memory(base_groups=int(rng.integers(len(directory) + 1)))):
        made = Merging(chosen).suggest(view, memory, rng)
        expected = plainly_merged(view, memory, chosen)
        assert [(one.instructions, one.figures, one.reason) for one in made] == [
            ((Merge(group),), figures, reason) for group, figures, reason in expected
        ]
