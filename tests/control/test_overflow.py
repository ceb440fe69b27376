"""What is pushed and what is cleaned up, by figures: placements before, and the groups chosen."""

from __future__ import annotations

from typing import Any

import pytest

from braidstream.control.overflow import GroupMemory, Overflow, fits_again, parse_size, to_clean_up, to_spill
from braidstream.control.policies.spilling import GroupState
from braidstream.errors import InputError

TEN = Overflow(1000, spill_share=0.3, idle_after=5)


def group(
    number: int, active: int = 0, inactive: int = 0, *, slot: int = 0, generations: int = -1, expired: bool = False,
    outputs: float = 1.0, touched: int = 9,
) -> GroupMemory:  # fmt: skip
    state = GroupState(number, slot, active, outputs, touched, inactive > 0)
    return GroupMemory(state, inactive, int(inactive > 0) if generations < 0 else generations, expired)


@pytest.mark.parametrize(
    ("groups", "chosen"),
    [
        pytest.param([group(0, 1000)], [], id="a slot at its budget pushes nothing"),
        pytest.param([group(0, 600), group(1, 401)], [0], id="a slot above it pushes the larger of two equal groups"),
        pytest.param([group(0, 600, slot=0), group(1, 600, slot=1)], [], id="slots are looked at one by one"),
        pytest.param([group(0, 400, 900), group(1, 400)], [], id="what was pushed does not count"),
        pytest.param([group(0, 600), group(1, 500, touched=1)], [1], id="idle groups go first"),
        pytest.param([group(0, 600, outputs=50), group(1, 500, outputs=0)], [1], id="then those that give little"),
    ],
)
def test_pushes(groups: list[GroupMemory], chosen: list[int]) -> None:
    assert to_spill(groups, TEN, now=9) == chosen


@pytest.mark.parametrize(
    ("groups", "spilled", "spare", "chosen"),
    [
        pytest.param([group(0, 400), group(1, 0, 200)], [], 0, [], id="memory is not free above half of the budget"),
        pytest.param([group(0, 200), group(1, 50, 200)], [], 0, [1], id="it is free below"),
        pytest.param([group(0, 10, 240), group(1, 10, 240)], [], 0, [0, 1], id="for as many groups as fit"),
        pytest.param([group(0, 10, 240), group(1, 10, 250)], [], 0, [0], id="and not for more"),
        pytest.param([group(0, 10, 900, expired=True)], [], 0, [0], id="a generation that has expired cannot wait"),
        pytest.param([group(0, 10, 100), group(1, 900)], [1], 99999, [], id="a slot that pushes cleans nothing up"),
        pytest.param([group(0, 1, 9, expired=True), group(1, 9)], [1], 0, [0], id="but what has expired"),
        pytest.param([group(0, 100, 900)], [], 1999, [], id="half of the spare time is not enough"),
        pytest.param([group(0, 100, 900)], [], 2000, [0], id="half of the spare time is enough"),
        pytest.param([group(0, 0, 900)], [], 9999, [], id="a single generation misses nothing"),
        pytest.param([group(0, 0, 900, generations=2)], [], 9999, [0], id="two inactive ones do"),
    ],
)
def test_clean_ups(groups: list[GroupMemory], spilled: list[int], spare: float, chosen: list[int]) -> None:
    assert to_clean_up(groups, TEN, spilled, spare) == chosen


def test_a_group_is_active_again_where_it_leaves_room_for_a_push() -> None:
    groups = [group(0, 300), group(1, 100, 200), group(2, 50, 60), group(3, 0, 700, slot=1), group(4, 1, 700, slot=2)]
    assert fits_again(groups, TEN, [1, 2, 3, 4]) == {2, 3}


@pytest.mark.parametrize(
    ("text", "size"),
    [("512 MB", 512 << 20), ("1.5g", 3 << 29), ("10 KiB", 10 << 10), ("7 B", 7), (9, 9), ("2 GB", 2 << 30)],
)
def test_sizes(text: Any, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1 MB", "1 XB", "1 MB 2", True, None, 1.5])
def test_what_is_no_size(text: Any) -> None:
    with pytest.raises(InputError, match="the size is"):
        parse_size(text)
