"""What must hold whatever the load is: groups are never lost or doubled, and a constant load comes to rest."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from braidstream.control.controller import Controller
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.errors import InputError
from braidstream.model.directory import HASH_BITS, Directory
from braidstream.model.instructions import (
    AddSlot,
    IllegalInstruction,
    Instruction,
    Merge,
    Move,
    RemoveSlot,
    Split,
    apply,
)
from tests.control.cluster import ConstantLoad, instructions_of, placed, report
from tests.scale import examples

LEAVES = 64
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking lists of 64 floats takes minutes and shows little


def covers_once(directory: Directory, n_slots: int) -> bool:
    """Whether the groups, in order, tile the hash space, with identities and slots in order."""
    ends = [(group.low, group.high) for group in directory.groups]
    tiles = ends[0][0] == 0 and ends[-1][1] == (1 << HASH_BITS) - 1
    joined = all(high + 1 == low for (_, high), (low, _) in itertools.pairwise(ends))
    ids = [group.id for group in directory.groups]
    known = len(set(ids)) == len(ids) and max(ids) < directory.next_id
    return tiles and joined and known and all(0 <= group.slot < n_slots for group in directory.groups)


def legal(directory: Directory, n_slots: int) -> list[Instruction]:
    """Every instruction that may be given now."""
    ids = [group.id for group in directory.groups]
    found: list[Instruction] = [AddSlot()]
    found += [kind(group, slot) for group in ids for slot in range(n_slots) for kind in (Move, Split)]
    found += [Merge(group) for group in ids if directory.buddy(group)]
    if n_slots > 1 and not directory.of_slot(n_slots - 1):
        found.append(RemoveSlot(n_slots - 1))
    return found


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_no_instruction_loses_or_doubles_a_group(data: st.DataObject) -> None:
    n_slots = data.draw(st.integers(1, 4))
    directory = Directory.of(data.draw(st.integers(1, 9)), n_slots)
    for _ in range(data.draw(st.integers(1, 12))):
        one = data.draw(st.sampled_from(legal(directory, n_slots)))
        directory, n_slots = apply(directory, n_slots, [one])
        assert covers_once(directory, n_slots)


@pytest.mark.parametrize(
    ("instruction", "wrong"),
    [
        pytest.param(Move(9, 0), "no group 9", id="an unknown group cannot move"),
        pytest.param(Move(0, 2), "no slot 2", id="a group cannot move to a slot that is not there"),
        pytest.param(Split(0, -1), "no slot -1", id="half a group cannot go to a negative slot"),
        pytest.param(Merge(2), "no buddy", id="a group without a buddy of its depth cannot merge"),
        pytest.param(RemoveSlot(0), "not the last", id="only the last slot can go"),
        pytest.param(RemoveSlot(1), "still holds groups", id="a slot with groups cannot go"),
    ],
)
def test_illegal_instructions_are_refused(instruction: Instruction, wrong: str) -> None:
    directory = placed([[0, 1, 2], [3, 4]], 5)
    directory = directory.split(3) if isinstance(instruction, Merge) else directory
    if isinstance(instruction, Merge):
        instruction = Merge(next(g.id for g in directory.groups if directory.buddy(g.id) is None))
    with pytest.raises(IllegalInstruction, match=wrong) as refused:
        apply(directory, 2, [instruction])
    assert refused.value.expected
    assert refused.value.fix


loads = st.lists(st.floats(0, 5, allow_nan=False), min_size=LEAVES, max_size=LEAVES)
heavy_loads = st.tuples(loads, st.integers(0, LEAVES - 1), st.floats(0, 300)).map(
    lambda drawn: [s + (drawn[2] if i == drawn[1] else 0.0) for i, s in enumerate(drawn[0])]
)


@given(
    seconds=heavy_loads,
    rows=st.lists(st.integers(0, 1000), min_size=LEAVES, max_size=LEAVES),
    sizes=st.lists(st.integers(0, 1000), min_size=LEAVES, max_size=LEAVES),
    paces=st.lists(st.floats(0.3, 4.0), min_size=1, max_size=6),
    n_groups=st.integers(1, 24),
    choice=st.sampled_from(["even", "random"]),
    memory_bytes=st.sampled_from([None, 1000, 20_000]),
    epoch_s=st.sampled_from([None, 1.0, 20.0]),
    declustering=st.booleans(),
)
@settings(max_examples=examples(150), deadline=None, phases=PHASES)
def test_a_constant_load_comes_to_rest(
    seconds: list[float],
    rows: list[int],
    sizes: list[int],
    paces: list[float],
    n_groups: int,
    choice: Any,
    memory_bytes: int | None,
    epoch_s: float | None,
    declustering: bool,
) -> None:
    n_slots = len(paces)
    chosen = Settings(
        choice=choice, memory_bytes=memory_bytes, epoch_s=epoch_s, declustering=declustering, max_slots=12, patience=1
    )
    controller = Controller(chosen)
    load = ConstantLoad(Directory.of(n_groups, n_slots), n_slots, seconds, rows, sizes, paces)
    quiet = n_moves = 0
    while quiet < 12:  # a random choice may find nothing to yield several times in a row
        at_slots = {group.id: group.slot for group in load.directory.groups}
        decisions = load.reorganize(controller, seed=3)
        load_moves = [one for d in decisions if d.rule == "suppliers" for one in d.instructions]
        senders = [at_slots[move.group] for move in load_moves if isinstance(move, Move)]
        assert len(set(senders)) == len(senders), "at most one move a supplier"
        assert covers_once(load.directory, load.n_slots)
        n_moves += len(instructions_of(decisions))
        quiet = 0 if instructions_of(decisions) else quiet + 1
        assert n_moves < 1000, "the controller does not come to rest"


@given(seconds=loads, paces=st.lists(st.sampled_from([1.0, 1.0, 2.0, 3.0]), min_size=2, max_size=6))
@settings(max_examples=examples(60), deadline=None, phases=PHASES)
def test_where_it_rests_the_load_is_even(seconds: list[float], paces: list[float]) -> None:
    """No slot ends more than a group and the supplier's threshold above what an even spread would take."""
    assume(sum(seconds) > 1)
    load = ConstantLoad(Directory.of(LEAVES, len(paces)), len(paces), seconds, [1000] * LEAVES, [1] * LEAVES, paces)
    load.rows = [int(1000 * s) for s in seconds]
    for _ in range(100):
        load.reorganize(Controller(Settings()))
    even = sum(seconds) / sum(1 / pace for pace in paces)
    largest = max(seconds) * max(paces)
    assert max(load.busy()) <= 1.3 * even + largest


def test_one_slow_executor_is_relieved_within_five_reorganizations() -> None:
    """Four slots of eight groups, one of them three times as slow: the makespan comes within 1.3 of the optimum."""
    load = ConstantLoad(Directory.of(32, 4), 4, [1.0] * 32, [1000] * 32, [1] * 32, [3.0, 1.0, 1.0, 1.0])
    best = 32 / (1 / 3 + 3)
    assert max(load.busy()) > 2 * best
    for _ in range(5):
        load.reorganize(Controller(Settings()))
    assert max(load.busy()) <= 1.3 * best


def test_a_group_that_one_key_carries_is_split_once_and_then_left_alone() -> None:
    seconds = [0.0] * LEAVES
    seconds[5] = 100.0  # cannot be spread: one leaf holds it, and its halves are told apart only below the leaf
    seconds[40] = 1.0
    load = ConstantLoad(Directory.of(2, 2), 2, seconds, [10] * LEAVES, [1] * LEAVES, [1.0, 1.0])
    splits = [
        one
        for _ in range(12)
        for one in instructions_of(load.reorganize(Controller(Settings())))
        if isinstance(one, Split)
    ]
    assert len(splits) == 1
    assert load.memory.solid


def test_slots_follow_a_load_that_rises_and_falls() -> None:
    controller = Controller(Settings(declustering=True, epoch_s=10.0, max_slots=8))
    load = ConstantLoad(Directory.of(32, 1), 1, [0.2] * LEAVES, [100] * LEAVES, [1] * LEAVES, [1.0])
    counts = []
    for factor in (1, 4, 1):
        load.seconds, load.rows = [0.2 * factor] * LEAVES, [100 * factor] * LEAVES
        for _ in range(30):
            load.reorganize(controller)
        counts.append(load.n_slots)
    assert counts[0] < counts[1] > counts[2]
    assert counts[2] <= counts[0] + 1
    assert covers_once(load.directory, load.n_slots)


def test_a_minimal_time_span_separates_adaptations() -> None:
    controller = Controller(Settings(min_span_s=3.0))  # the cluster's clock ticks one second an epoch
    load = ConstantLoad(Directory.of(32, 4), 4, [1.0] * 32, [1000] * 32, [1] * 32, [4.0, 1.0, 1.0, 1.0])
    moved = [bool(instructions_of(load.reorganize(controller))) for _ in range(10)]
    assert moved == [True, False, False] * 3 + [True]
    refused = [d for d in load.reorganize(controller) if not d.is_accepted]
    assert refused
    assert "since the last adaptation" in refused[0].explain()


def test_one_adaptation_at_a_time() -> None:
    """Load and memory are both uneven: only load is adapted, and the refusal says so."""
    controller = Controller(Settings(memory_bytes=1000, epoch_s=2.0))
    directory = placed([[0, 1], [2], [3]], 4)
    sizes = {0: 100, 1: 100, 2: 900, 3: 50}
    reports = [report(i, groups, sizes=sizes) for i, groups in enumerate([{0: 2, 1: 2}, {2: 1}, {3: 0.5}])]
    reports[1] = report(1, {2: 1.0}, sizes={2: 900})
    decisions, _ = controller.decide(reports, directory, 3, Memory(), 0.0)
    assert {d.rule for d in decisions if d.is_accepted} == {"suppliers"}


def test_a_slot_added_now_is_a_consumer_now() -> None:
    controller = Controller(Settings(declustering=True, epoch_s=1.0, patience=1))
    directory = placed([[0, 1]], 2)
    decisions, memory = controller.decide([report(0, {0: 2, 1: 2})], directory, 1, Memory(), 0.0)
    assert instructions_of(decisions) == [AddSlot(), Move(0, 1)]
    assert memory.too_few == {1: 4000.0}, "one slot proved too few for the 4,000 rows of this epoch"
    assert memory.wish == (0, 0)


def test_decisions_are_json_and_the_memory_comes_back_from_it() -> None:
    directory = placed([[0, 1, 2], [3]], 4)
    reports = [report(0, {0: 2, 1: 2, 2: 1}, matches={0: 3}), report(1, {3: 0.1})]
    decisions, memory = Controller().decide(reports, directory, 2, Memory(), 5.0)
    assert [json.loads(json.dumps(d.as_json()))["rule"] for d in decisions] == [d.rule for d in decisions]
    assert msgspec.json.decode(msgspec.json.encode(memory), type=Memory) == memory
    assert Controller().decide(reports, directory, 2, Memory(), 5.0) == (decisions, memory)


def test_every_decision_is_explained() -> None:
    reports = [report(0, {0: 2, 1: 2, 2: 1}), report(1, {3: 0.1})]
    decisions, _ = Controller().decide(reports, placed([[0, 1, 2], [3]], 4), 2, Memory(), 5.0)
    line = decisions[0].explain()
    assert "slot 0 is a supplier" in line
    assert "supplier_occupancy=1" in line
    assert "Move(group=0, slot=1)" in line


def test_no_reports_no_decisions() -> None:
    assert Controller().decide([], Directory.of(4, 2), 2, Memory(), 0.0)[0] == []


def test_times_that_are_not_told_apart_are_shared_by_work() -> None:
    """A kernel that joins all groups of a slot in one go reports no time for each group."""
    whole = report(0, {0: 3, 1: 1, 2: 1})
    blank = report(0, {0: 3, 1: 1, 2: 1}, pace=0.0)
    blank = type(blank)(**{**vars(blank), "busy_s": whole.busy_s})
    directory = placed([[0, 1, 2], [3]], 4)
    told, _ = Controller().decide([whole, report(1, {3: 0.1})], directory, 2, Memory(), 0.0)
    shared, _ = Controller().decide([blank, report(1, {3: 0.1})], directory, 2, Memory(), 0.0)
    assert instructions_of(shared) == instructions_of(told) != []


@pytest.mark.parametrize(
    ("plain", "wrong"),
    [
        pytest.param({"suplier_above": 0.4}, "supplier_above", id="an unknown name is answered with the nearest"),
        pytest.param({"consumer_below": 0.9}, "supplier_above", id="thresholds out of order"),
        pytest.param({"merge_below": 0.4}, "split and merge", id="thresholds that would oscillate"),
        pytest.param({"beta": 1.5}, "a number above 0, below 1", id="a beta outside its range"),
        pytest.param({"choice": "best"}, "one of even, random", id="an unknown choice"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(plain: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        Settings(**plain)


def test_a_memory_of_0_1_0_is_taken_as_it_was() -> None:
    reports, directory = [report(0, {0: 2, 1: 2, 2: 1}), report(1, {3: 0.1})], placed([[0, 1, 2], [3]], 4)
    kept = {"outputs": {"0": 5.0}, "touched": {"0": 3}, "last_s": -100.0, "too_few": {"1": 2.5}}
    assert Controller().decide(reports, directory, n_slots=2, memory={}, clock_s=5.0) == Controller().decide(
        reports, directory, 2, Memory(), 5.0
    )
    assert Controller().decide(reports, directory, n_slots=2, memory=kept, clock_s=5.0)[1].too_few == {1: 2.5}
