"""The grid of a join without an equality: which dimensions, and when it is laid out anew."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.control.single_grid import MARGIN, PAIR, dims_for, relaid
from braidstream.model.grids import Grid
from braidstream.model.numbers import SlotId, slot_ids

CASES = {
    "equal streams on a square": ((1e5, 1e5), 16, {(4, 4)}),
    "equal streams on twice a square": ((1e5, 1e5), 8, {(2, 4), (4, 2)}),
    "a small stream is not cut": ((10, 1e6), 8, {(1, 8)}),
    "one slot": ((1e5, 1e5), 1, {(1, 1)}),
    "nothing is known yet": ((0, 0), 4, {(2, 2)}),
    "a prime number of slots": ((1e6, 1e6), 7, {(1, 7), (7, 1)}),
    "a stream with itself and another": ((1e4, 1e4, 1e4), 8, {(2, 2, 2)}),
}


@pytest.mark.parametrize("case", CASES)
def test_dimensions(case: str) -> None:
    counts, slots, expected = CASES[case]
    assert dims_for(counts, slots) in expected


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=2), st.integers(1, 40))
def test_no_other_grid_has_less_load(counts: list[float], slots: int) -> None:
    def load(dims: tuple[int, ...]) -> float:
        return sum(n / d for n, d in zip(counts, dims, strict=True)) + PAIR * prod(counts) / prod(dims)

    found = dims_for(counts, slots)
    assert prod(found) <= slots
    least = min(load((a, b)) for a in range(1, slots + 1) for b in range(1, slots // a + 1))
    assert load(found) == pytest.approx(least)


def test_it_stays_while_nothing_is_much_better_and_follows_slots_and_sizes() -> None:
    first = relaid("f", 7, (0, 0), 4, None, 1)
    assert first is not None
    grid = first.regrid.grid
    assert grid is not None
    assert relaid("f", 7, (1e5, 1.2e5), 4, grid, 2) is None
    for counts, slots in (((1e5, 1e5), 8), ((1e5, 1e5), 2), ((10, 1e6), 4)):
        settled = replace(grid, slots=tuple(SlotId(slot % slots) for slot in grid.slots))
        other = relaid("f", 7, counts, slots, settled, 2)
        assert other is not None
        assert other.regrid.grid is not None
        assert other.regrid.grid.id == 2
        assert max(other.regrid.grid.slots) < slots
        assert other.figures["rows"] < (1 - MARGIN) * other.figures["rows_before"]
        assert other.figures["load"] <= other.figures["load_before"]


def test_cells_that_share_slots_count_as_the_load_of_these() -> None:
    crowded = Grid(1, "f", 7, (2, 2), (*slot_ids(2), *slot_ids(2)))
    assert relaid("f", 7, (1e5, 1e5), 4, crowded, 2) is not None
