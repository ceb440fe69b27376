"""Whatever is split, merged, moved or resized, the groups cover the hash space of each stage exactly once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.model.directory import HASH_BITS, Directory, Group, address_of
from tests.scale import examples

TOP = (1 << HASH_BITS) - 1
SHAPES = st.tuples(st.integers(1, 300), st.integers(1, 17))
N_STAGES = st.integers(1, 4)


def covers_once(directory: Directory) -> bool:
    """In each region a group begins where the one before it ends; together they are all groups, in their order."""
    for stage, region in directory.regions.items():
        ends = [address_of(stage, 0) - 1, *(group.high for group in region.groups)]
        begins = [*(group.low for group in region.groups), address_of(stage + 1, 0)]
        if not all(end + 1 == begin for end, begin in zip(ends, begins, strict=True)):
            return False
    regions = [directory.regions[stage].groups for stage in sorted(directory.regions)]
    return directory.groups == tuple(group for groups in regions for group in groups)


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    """A directory with a history. Some stage came later, and is far from the others."""
    n_groups, n_slots = draw(SHAPES)
    directory = Directory.of(n_groups, n_slots, draw(N_STAGES))
    later = draw(st.integers(0, 12))
    for i in range(draw(st.integers(0, 12))):
        directory = directory.with_stages([1000], 1 + n_groups // 2, n_slots) if i == later else directory
        group = draw(st.sampled_from(directory.groups))
        slot = draw(st.integers(0, n_slots - 1))
        change = draw(st.sampled_from(["split", "merge", "move"]))
        if change == "split" and group.depth < HASH_BITS:
            directory = directory.split(group.id, slot)
        elif change == "merge" and directory.buddy(group.id) is not None:
            directory = directory.merge(group.id)
        elif change == "move":
            directory = directory.move(group.id, slot)
    return directory


@settings(max_examples=examples(100), deadline=None)
@given(SHAPES)
def test_a_new_directory_has_equal_groups_in_contiguous_runs(shape: tuple[int, int]) -> None:
    n_groups, n_slots = shape
    directory = Directory.of(n_groups, n_slots)
    assert len(directory.groups) == n_groups
    assert covers_once(directory)
    assert len({group.depth for group in directory.groups}) <= 2
    held = [len(directory.of_slot(slot)) for slot in range(n_slots)]
    assert sum(held) == n_groups
    assert max(held) - min(held) <= 1
    slots = directory.region(0).slots
    assert list(slots) == sorted(slots)


@settings(max_examples=examples(100), deadline=None)
@given(directories())
def test_any_history_leaves_the_space_covered_once_by_groups_of_their_own(directory: Directory) -> None:
    assert covers_once(directory)
    ids = [group.id for group in directory.groups]
    assert len(set(ids)) == len(ids)
    assert max(ids) < directory.next_id


@settings(max_examples=examples(100), deadline=None)
@given(directories(), st.lists(st.integers(0, TOP), max_size=50))
def test_a_hash_is_found_in_the_group_of_its_stage_that_holds_it(directory: Directory, hashes: list[int]) -> None:
    for stage, region in directory.regions.items():
        edges = [edge for group in region.groups[:20] for edge in (group.first, group.last)]
        wanted = [*hashes, *edges]
        if region.depth <= 20:  # the table has an entry for each value of the leading bits
            found = region.locate(np.array(wanted, dtype=np.uint64))
            assert all(_holds(region.groups[at], stage, hash_) for at, hash_ in zip(found, wanted, strict=True))
        assert all(_holds(directory.at(address_of(stage, hash_)), stage, hash_) for hash_ in wanted)
        assert region.lows.tolist() == [group.first for group in region.groups]


def _holds(group: Group, stage: int, hash_: int) -> bool:
    return group.stage == stage and group.first <= hash_ <= group.last


@settings(max_examples=examples(100), deadline=None)
@given(directories(), st.integers(1, 20))
def test_resizing_moves_no_more_than_it_must_and_balances(directory: Directory, n_slots: int) -> None:
    resized = directory.resized(n_slots)
    assert [(g.id, g.low, g.high) for g in resized.groups] == [(g.id, g.low, g.high) for g in directory.groups]
    for stage, region in directory.regions.items():
        held = [len(resized.of_slot(slot, stage)) for slot in range(n_slots)]
        most = -(-len(region.groups) // n_slots)
        assert sum(held) == len(region.groups)
        assert max(held) <= most
        may_stay = sum(min(len(directory.of_slot(slot, stage)), most) for slot in range(n_slots))
        after = resized.regions[stage].groups
        assert sum(a.slot == b.slot for a, b in zip(region.groups, after, strict=True)) >= may_stay


def test_a_split_is_undone_by_a_merge() -> None:
    directory = Directory.of(4, 2)
    split = directory.split(2, slot=0)
    lower, upper = split.by_id[2], split.by_id[4]
    assert (lower.low, upper.high) == (directory.by_id[2].low, directory.by_id[2].high)
    assert lower.high + 1 == upper.low
    assert split.buddy(2) == upper
    assert split.merge(2).groups == directory.groups
    assert split.merge(4).by_id[2].slot == 0  # the slot of the group that asked remains


@pytest.mark.parametrize(
    ("n_groups", "group"),
    [
        pytest.param(1, 0, id="the only group has no buddy"),
        pytest.param(3, 0, id="a wide group beside two narrow ones has no buddy of its depth"),
    ],
)
def test_what_cannot_be_merged(n_groups: int, group: int) -> None:
    directory = Directory.of(n_groups)
    assert directory.buddy(group) is None
    with pytest.raises(ValueError, match="no buddy"):
        directory.merge(group)


def test_a_single_hash_cannot_be_split() -> None:
    directory = Directory.of(1)
    for _ in range(HASH_BITS):
        directory = directory.split(0)
    assert covers_once(directory)
    assert directory.by_id[0].low == directory.by_id[0].high == 0
    with pytest.raises(ValueError, match="single hash"):
        directory.split(0)


@settings(max_examples=examples(100), deadline=None)
@given(directories(), st.data())
def test_a_change_of_one_stage_leaves_the_others_alone(directory: Directory, data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(directory.groups))
    changed = [directory.move(group.id, 0)]
    changed += [directory.split(group.id, 0)] if group.depth < HASH_BITS else []
    changed += [directory.merge(group.id)] if directory.buddy(group.id) else []
    for after in changed:
        others = directory.regions.keys() - {group.stage}
        assert after.regions.keys() == directory.regions.keys()
        assert all(after.region(stage) == directory.region(stage) for stage in others)


@settings(max_examples=examples(60), deadline=None)
@given(directories(), st.integers(1, 9), st.integers(1, 5))
def test_a_new_stage_gets_groups_of_its_own_over_all_slots(directory: Directory, n_groups: int, n_slots: int) -> None:
    for made in (directory.with_stages([0, 7, 7], n_groups, n_slots), directory.with_copy(7)):
        assert covers_once(made)
        assert made.regions.keys() == {*directory.regions, 7}
        assert all(made.region(stage) == directory.region(stage) for stage in directory.regions)
        ids = [group.id for group in made.groups]
        assert len(set(ids)) == len(ids)
        assert max(ids) < made.next_id
    equal, copy = directory.with_stages([7], n_groups, n_slots), directory.with_copy(7)
    held = [len(equal.of_slot(slot, 7)) for slot in range(n_slots)]
    assert sum(held) == n_groups
    assert max(held) - min(held) <= 1
    shapes = [(group.first, group.last, group.slot) for group in directory.region(0).groups]
    assert [(group.first, group.last, group.slot) for group in copy.region(7).groups] == shapes


def test_the_only_groups_of_two_neighbouring_stages_are_no_buddies() -> None:
    directory = Directory.of(1, 1, n_stages=2)
    assert [(group.stage, group.first, group.last) for group in directory.groups] == [(0, 0, TOP), (1, 0, TOP)]
    assert [directory.buddy(group.id) for group in directory.groups] == [None, None]
    halves = directory.split(1)
    assert halves.merge(1).groups == directory.groups
