"""Which generations of a group are made one: tiers by size, deadlines close together."""

from __future__ import annotations

import pytest

from braidstream.control.overflow import GroupMemory, Overflow, to_join
from braidstream.control.policies.generation_tiers import FAN, Generation, alike
from braidstream.control.policies.spilling import GroupState

NEVER = 1 << 62


def sized(*sizes: int, deadline: int = NEVER) -> list[Generation]:
    return [Generation(number, size, deadline) for number, size in enumerate(sizes, 1)]


def lasting(*deadlines: int) -> list[Generation]:
    return [Generation(number, 100, deadline) for number, deadline in enumerate(deadlines, 1)]


@pytest.mark.parametrize(
    ("generations", "watermark", "chosen"),
    [
        pytest.param(sized(*[100] * (FAN - 1)), None, [], id="a few are left alone"),
        pytest.param(sized(*[100] * FAN), None, list(range(1, FAN + 1)), id="many of one size are made one"),
        pytest.param(sized(*[100] * (FAN + 2)), 7, list(range(1, FAN + 3)), id="all of them that there are"),
        pytest.param(sized(9000, *[100] * FAN), None, list(range(2, FAN + 2)), id="but not a much larger one"),
        pytest.param(
            sized(*[9000] * FAN, *[100] * FAN), None, list(range(FAN + 1, 2 * FAN + 1)), id="the small ones go first"
        ),
        pytest.param(sized(*[1, 9, 70, 600, 5000, 40_000, 300_000] * 7), None, [], id="seven of each tier are few"),
        pytest.param(lasting(*range(100, 100 + FAN)), 60, list(range(1, FAN + 1)), id="deadlines close together"),
        pytest.param(lasting(*range(100, 100 + FAN)), 99, [], id="they are not, when little time is left"),
        pytest.param(
            lasting(1, *range(100, 100 + FAN)), 0, list(range(2, FAN + 2)), id="what ends much earlier stays out"
        ),
    ],
)
def test_which_generations_are_made_one(
    generations: list[Generation], watermark: int | None, chosen: list[int]
) -> None:
    assert alike(generations, watermark) == chosen


def group(number: int, size: int, slot: int = 0) -> GroupMemory:
    state = GroupState(number, slot, 10, 1.0, 0, True)
    return GroupMemory(state, size * FAN, FAN, False, tuple(sized(*[size] * FAN)))


def test_a_slot_takes_its_budget_at_once_and_no_group_that_is_cleaned_up_anyway() -> None:
    numbers = list(range(1, FAN + 1))
    groups = [group(0, 100), group(1, 100), group(2, 100), group(3, 100, slot=1)]
    assert to_join(groups, Overflow(10_000), (), None) == {0: numbers, 1: numbers, 2: numbers, 3: numbers}
    assert to_join(groups, Overflow(FAN * 100 + 1), (), None) == {0: numbers, 1: numbers, 3: numbers}
    assert to_join(groups, Overflow(1), [0, 3], None) == {1: numbers}


def test_the_number_of_generations_is_logarithmic() -> None:
    """A group that is pushed ten thousand times, with parts of all sizes, never has more than a few tiers of them."""
    held: list[Generation] = []
    for push in range(10_000):
        held.append(Generation(push + 1, 1000 + 37 * (push % 50), NEVER))
        if chosen := alike(held, None):
            some = [one for one in held if one.number in chosen]
            held = [one for one in held if one.number not in chosen]
            held.append(Generation(max(chosen), sum(one.bytes for one in some), NEVER))
        assert len(held) <= 6 * (FAN - 1)
