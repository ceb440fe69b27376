"""A directory of columns is in everything what a plain list of groups is, to the last bit of a hash."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.model.directory import HASH_BITS, Directory, Group, GroupColumns, address_of
from braidstream.model.group_columns import first_hashes
from braidstream.model.instructions import (
    AddSlot,
    Draft,
    IllegalInstruction,
    Instruction,
    Merge,
    Move,
    RemoveSlot,
    Spill,
    Split,
    apply,
)
from tests.model.plain_directory import PlainDirectory, plainly_applied
from tests.scale import examples

TOP = (1 << HASH_BITS) - 1
SETTINGS = settings(max_examples=examples(100), deadline=None)
Pair = tuple[Directory, PlainDirectory]


def same(made: Directory, plain: PlainDirectory) -> bool:
    return (made.groups, made.next_id) == (plain.groups, plain.next_id)


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Both, after the same history; some groups are split down to a single hash."""
    n_groups, n_slots = draw(st.integers(1, 40)), draw(st.integers(1, 7))
    stages = draw(st.sets(st.sampled_from([0, 1, 2, 5, 1000]), min_size=1, max_size=4))
    made = Directory((), 0).with_stages(stages, n_groups, n_slots)
    plain = PlainDirectory().with_stages(stages, n_groups, n_slots)
    for _ in range(draw(st.integers(0, 8))):
        group, slot = draw(st.sampled_from(plain.groups)), draw(st.integers(0, n_slots - 1))
        change = draw(st.sampled_from(["split", "dig", "merge", "move"]))
        if change in ("split", "dig"):
            for _ in range(HASH_BITS - group.depth if change == "dig" else min(1, HASH_BITS - group.depth)):
                target = plain.next_id - 1 if change == "dig" and draw(st.booleans()) else group.id
                if target not in plain.by_id or plain.by_id[target].depth == HASH_BITS:
                    target = group.id
                if plain.by_id[target].depth < HASH_BITS:
                    made, plain = made.split(target, slot), plain.split(target, slot)
        elif change == "merge" and plain.buddy(group.id) is not None:
            made, plain = made.merge(group.id), plain.merge(group.id)
        elif change == "move":
            made, plain = made.move(group.id, slot), plain.move(group.id, slot)
    return made, plain


@SETTINGS
@given(pairs())
def test_any_history_gives_the_same_groups(pair: Pair) -> None:
    made, plain = pair
    assert same(made, plain)
    assert Directory(plain.groups, plain.next_id) == made
    assert Directory(reversed(plain.groups), plain.next_id) == made
    assert hash(Directory(plain.groups, plain.next_id)) == hash(made)
    assert Directory(plain.groups, plain.next_id + 1) != made
    assert {stage: region.groups for stage, region in made.regions.items()} == {
        stage: tuple(groups) for stage, groups in plain.regions.items()
    }


@SETTINGS
@given(pairs(), st.lists(st.integers(0, TOP), max_size=20))
def test_an_address_is_found_where_the_list_finds_it(pair: Pair, hashes: list[int]) -> None:
    made, plain = pair
    fresh = Directory.from_columns(made.columns(), made.next_id)
    edges = [edge for group in plain.groups[:30] for edge in (group.first, group.last)]
    for stage, region in fresh.regions.items():
        wanted = [*hashes, *edges]
        expected = [plain.at(address_of(stage, one)) for one in wanted]
        assert [fresh.at(address_of(stage, one)) for one in wanted] == expected
        found = region.locate(np.array(wanted, dtype=np.uint64))
        assert [region.groups[at] for at in found] == expected
        stages = np.full(len(wanted), stage)
        assert fresh.groups_at(fresh.columns().located(stages, np.array(wanted, dtype=np.uint64))) == tuple(expected)


@SETTINGS
@given(pairs(), st.integers(0, 8))
def test_slots_ids_and_buddies_are_those_of_the_list(pair: Pair, slot: int) -> None:
    made, plain = pair
    assert made.of_slot(slot) == plain.of_slot(slot)
    assert [made.of_slot(slot, stage) for stage in (0, 1, 7)] == [plain.of_slot(slot, stage) for stage in (0, 1, 7)]
    assert made.count_of_slot(slot) == len(plain.of_slot(slot))
    assert dict(made.by_id) == plain.by_id
    assert list(made.by_id) == [group.id for group in plain.groups]
    fresh = Directory.from_columns(made.columns(), made.next_id)
    assert [fresh.buddy(group.id) for group in plain.groups] == [plain.buddy(group.id) for group in plain.groups]


@SETTINGS
@given(pairs(), st.integers(1, 12))
def test_resizing_and_new_stages_give_the_same(pair: Pair, n: int) -> None:
    made, plain = pair
    assert same(made.resized(n), plain.resized(n))
    assert same(made.with_stages([0, 3, 4], n, 2), plain.with_stages([0, 3, 4], n, 2))
    if 0 in plain.regions:
        assert same(made.with_copy(7), plain.with_copy(7))


@SETTINGS
@given(pairs())
def test_columns_come_back_and_first_hashes_follow_from_the_depths(pair: Pair) -> None:
    made, _ = pair
    columns = made.columns()
    assert first_hashes(columns.depths).tolist() == columns.firsts.tolist()
    again = Directory.from_columns(GroupColumns(*(one.copy() for one in columns.arrays())), made.next_id)
    assert again == made
    assert pickle.loads(pickle.dumps(made)) == made


INSTRUCTIONS = st.one_of(
    st.builds(Move, st.integers(0, 60), st.integers(0, 7)),
    st.builds(Split, st.integers(0, 60), st.integers(0, 7)),
    st.builds(Merge, st.integers(0, 60)),
    st.builds(Spill, st.integers(0, 60)),
    st.just(AddSlot()),
    st.builds(RemoveSlot, st.integers(0, 7)),
)


@SETTINGS
@given(pairs(), st.lists(st.lists(INSTRUCTIONS, max_size=3), max_size=12))
def test_instructions_taken_together_do_what_they_do_one_by_one_or_nothing(
    pair: Pair, asked: list[list[Instruction]]
) -> None:
    (made, plain), n_slots = pair, 7
    draft, expected = Draft(made, n_slots), (plain, n_slots)
    for some in asked:
        now = (draft.directory(), draft.n_slots)
        assert same(now[0], expected[0])
        try:
            expected = plainly_applied(*expected, some)
        except IllegalInstruction:
            with pytest.raises(IllegalInstruction):
                apply(*now, some)
            with pytest.raises(IllegalInstruction):
                draft.take(some)
        else:
            assert apply(*now, some) == (Directory(expected[0].groups, expected[0].next_id), expected[1])
            draft.take(some)
    assert same(draft.directory(), expected[0])
    assert draft.n_slots == expected[1]


def test_a_deferred_directory_is_read_when_it_is_needed_and_once() -> None:
    known, asked = Directory.of(5, 2, 2), []

    def load() -> Directory:
        asked.append(1)
        return known

    made = Directory.deferred(load)
    assert made == made  # noqa: PLR0124 (not even to compare it with itself)
    assert repr(made) == "Directory.deferred(...)"
    assert not made.is_loaded
    assert not asked
    assert made.at(address_of(1, 0)) == known.at(address_of(1, 0))
    assert made == known
    assert (made.next_id, len(made), asked, made.is_loaded) == (10, 10, [1], True)


def test_nobody_writes_to_the_columns() -> None:
    own = Directory.of(4).columns()
    with pytest.raises(ValueError, match="read-only"):
        own.slots[0] = 3


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="depths"):
        GroupColumns(np.zeros(2), np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2))


def test_of_one_stage_the_lows_are_hashes_and_of_several_there_are_none() -> None:
    assert Directory.of(2).lows.tolist() == [0, 1 << 63]
    with pytest.raises(ValueError, match="several stages"):
        _ = Directory.of(2, n_stages=2).lows


def test_a_group_is_the_same_value_whether_all_are_made_or_one() -> None:
    directory = Directory.of(4, 2)
    single = directory.by_id[3]
    assert single == Group(3, 2, 3, 1) == directory.groups[3]
    assert type(single.low) is type(single.id) is type(single.slot) is int
