"""Whatever is split, merged, moved or resized, the groups cover the hash space exactly once."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.directory import HASH_BITS, Directory, Group

TOP = (1 << HASH_BITS) - 1
SHAPES = st.tuples(st.integers(1, 300), st.integers(1, 17))


def covers_once(directory: Directory) -> bool:
    """Each group begins where the one before it ends."""
    ends = [-1, *(group.high for group in directory.groups)]
    begins = [*(group.low for group in directory.groups), TOP + 1]
    return all(end + 1 == begin for end, begin in zip(ends, begins, strict=True))


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    """A directory with a history."""
    n_groups, n_slots = draw(SHAPES)
    directory = Directory.of(n_groups, n_slots)
    for _ in range(draw(st.integers(0, 12))):
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


@settings(max_examples=100, deadline=None)
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
    assert list(directory.slots) == sorted(directory.slots)


@settings(max_examples=100, deadline=None)
@given(directories())
def test_any_history_leaves_the_space_covered_once_by_groups_of_their_own(directory: Directory) -> None:
    assert covers_once(directory)
    ids = [group.id for group in directory.groups]
    assert len(set(ids)) == len(ids)
    assert max(ids) < directory.next_id


@settings(max_examples=100, deadline=None)
@given(directories(), st.lists(st.integers(0, TOP), max_size=50))
def test_a_hash_is_found_in_the_group_that_holds_it(directory: Directory, hashes: list[int]) -> None:
    edges = [edge for group in directory.groups[:20] for edge in (group.low, group.high)]
    wanted = [*hashes, *edges]
    if directory.depth <= 20:  # the table has an entry for each value of the leading bits
        found = directory.locate(np.array(wanted, dtype=np.uint64))
        assert all(_holds(directory.groups[at], hash_) for at, hash_ in zip(found, wanted, strict=True))
    assert all(_holds(directory.at(hash_), hash_) for hash_ in wanted)


def _holds(group: Group, hash_: int) -> bool:
    return group.low <= hash_ <= group.high


@settings(max_examples=100, deadline=None)
@given(directories(), st.integers(1, 20))
def test_resizing_moves_no_more_than_it_must_and_balances(directory: Directory, n_slots: int) -> None:
    resized = directory.resized(n_slots)
    assert [(g.id, g.low, g.high) for g in resized.groups] == [(g.id, g.low, g.high) for g in directory.groups]
    held = [len(resized.of_slot(slot)) for slot in range(n_slots)]
    assert sum(held) == len(directory.groups)
    assert max(held) <= -(-len(directory.groups) // n_slots)
    most = -(-len(directory.groups) // n_slots)
    may_stay = sum(min(len(directory.of_slot(slot)), most) for slot in range(n_slots))
    stayed = sum(a.slot == b.slot for a, b in zip(directory.groups, resized.groups, strict=True))
    assert stayed >= may_stay


@settings(max_examples=60, deadline=None)
@given(directories())
def test_the_plain_form_reads_back(directory: Directory) -> None:
    assert Directory.from_json(json.loads(json.dumps(directory.as_json()))) == directory


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
