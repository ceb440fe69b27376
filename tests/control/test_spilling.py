"""Which groups are pushed to disk: a table of sentences, and what holds for any state."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.control.policies.spilling import GroupState, choose_spills, size_per_result


@dataclass(frozen=True)
class Case:
    """(bytes, outputs, touched) of groups 0, 1, ... at epoch 10, and which are pushed."""

    says: str
    groups: list[tuple[int, float, int]]
    pushed: list[int]
    budget: int = 100
    share: float = 0.3
    idle_after: int = 5
    by: str = "unproductive"


CASES = [
    Case("nothing is pushed while the state fits the budget", [(50, 1, 9), (50, 9, 9)], []),
    Case("the least productive group goes first", [(50, 90, 9), (45, 5, 9), (50, 80, 9)], [1], budget=139),
    Case("size counts: a larger group with the same results is less productive", [(40, 9, 9), (80, 9, 9)], [1]),
    Case("a group without results is the least productive", [(60, 1, 9), (60, 0, 9)], [1]),
    Case("of groups without results the largest goes first", [(30, 0, 9), (60, 0, 9), (30, 8, 9)], [1]),
    Case("an idle group goes before a less productive one", [(50, 0, 9), (60, 99, 4)], [1]),
    Case("a group is not idle at the threshold itself", [(50, 0, 9), (60, 99, 5)], [0]),
    Case("of idle groups the longest idle goes first", [(60, 0, 3), (60, 99, 1)], [1]),
    Case("groups are pushed until the share is reached", [(30, 1, 9), (30, 2, 9), (30, 3, 9), (30, 4, 9)], [0, 1]),
    Case("more than the share is pushed where the rest would not fit", [(200, 1, 9), (200, 2, 9)], [0, 1]),
    Case("a group without state is not pushed", [(0, 0, 0), (120, 5, 9)], [1]),
    Case("no budget at all pushes everything", [(1, 1, 9), (2, 1, 9)], [1, 0], budget=0),
    Case("asked for, the most productive group goes first", [(60, 90, 9), (60, 5, 9)], [0], by="productive"),
    Case("then idle groups wait for their turn", [(60, 90, 9), (60, 5, 1)], [0], by="productive"),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in CASES])
def test_which_groups_are_pushed(case: Case) -> None:
    groups = [GroupState(g, 0, size, outputs, touched, False) for g, (size, outputs, touched) in enumerate(case.groups)]
    found = choose_spills(groups, case.budget, share=case.share, idle_after=case.idle_after, now=10, by=case.by)
    assert found == case.pushed


def test_random_groups_are_others_in_another_epoch_and_the_same_when_it_is_replayed() -> None:
    groups = [GroupState(g, 0, 10, float(g), 9, False) for g in range(100)]
    first, again, later = (choose_spills(groups, 800, idle_after=5, now=now, by="random") for now in (10, 10, 11))
    assert first == again != later
    assert len(first) == len(later) == 30
    assert sum(first) / 30 == pytest.approx(49.5, abs=20)  # neither the poor nor the productive ones


states = st.builds(
    GroupState,
    group=st.integers(0, 10_000),
    slot=st.just(0),
    bytes=st.integers(0, 1_000),
    outputs=st.floats(0, 1e6),
    touched=st.integers(0, 50),
    has_inactive=st.booleans(),
)


@given(
    groups=st.lists(states, max_size=30, unique_by=lambda one: one.group),
    budget=st.integers(0, 8_000),
    share=st.floats(0.01, 1.0),
    idle_after=st.integers(0, 60),
)
def test_enough_is_pushed_and_no_group_too_many(
    groups: list[GroupState], budget: int, share: float, idle_after: int
) -> None:
    by_id = {one.group: one for one in groups}
    total = sum(one.bytes for one in groups)
    chosen = choose_spills(groups, budget, share=share, idle_after=idle_after, now=50)
    pushed = [by_id[group] for group in chosen]
    if total <= budget:
        assert chosen == []
        return
    enough = max(share * total, total - budget)
    assert sum(one.bytes for one in pushed) >= min(enough, total) - 1e-6
    assert sum(one.bytes for one in pushed[:-1]) < enough
    assert chosen == choose_spills(groups[::-1], budget, share=share, idle_after=idle_after, now=50)
    kept = [one for one in groups if one.group not in chosen and one.bytes > 0]
    for poor in pushed:
        for good in kept:
            assert _goes_before(poor, good, idle_after)


def _goes_before(poor: GroupState, good: GroupState, idle_after: int) -> bool:
    idle = [max(50 - one.touched - idle_after, 0) for one in (poor, good)]
    ratio = [size_per_result(one.bytes, one.outputs) for one in (poor, good)]
    return idle[0] > idle[1] or (idle[0] == idle[1] and ratio[0] >= ratio[1])
