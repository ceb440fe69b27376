"""The rules of grids: SHC's running example, tables of cases, and no change without a reason."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.grid_even import EvenSettings
from braidstream.control.grid_paper import desired_dims, stepped
from braidstream.control.heavy import Frequent, Tracker, candidates
from braidstream.control.regridding import GridSettings, decide, imbalance
from braidstream.errors import InputError
from braidstream.lab.workloads.key_values import ZipfKeys
from braidstream.model.grids import Candidate, Family, Grid, GridPlan, Regrid, cell_load, slot_loads
from tests.scale import examples

PAPER = GridSettings(rule="paper")
EVEN = GridSettings(even=EvenSettings(least=0))


def family(*keys: tuple[float, ...], others: float = 0.0, slots: tuple[int, ...] = ()) -> Family:
    """Keys numbered from 1, and `others` tuples of each store that belong to no candidate."""
    made = tuple(Candidate(i, counts, slots[i - 1] if slots else 0, f"b{i}") for i, counts in enumerate(keys, 1))
    m = len(keys[0]) if keys else 2
    return Family("rs", tuple(sum(one.counts[i] for one in made) + others for i in range(m)), made)


def dims_of(plan: GridPlan) -> dict[int, tuple[int, ...]]:
    return {grid.hash: grid.dims for grid in plan.grids}


class TestRunningExample:
    """SHC 3.3: p = 8, 500 tuples, 200 with b1 (100 and 100), 250 with b2 (50 and 200), 50 light ones."""

    before = family((100, 100), (50, 200), others=25)

    def test_the_stated_grids(self) -> None:
        plan = decide([self.before], None, 8, (), 1, PAPER)
        assert dims_of(plan) == {1: (2, 2), 2: (1, 4)}
        assert sorted(slot for grid in plan.grids for slot in grid.slots) == list(range(8))
        assert desired_dims(self.before.candidates[0], 20_000, 8) == pytest.approx((2, 2))
        assert desired_dims(self.before.candidates[1], 20_000, 8) == pytest.approx((1, 4))

    @pytest.mark.parametrize("s_b1", [300, 400], ids=["as in the paper's arithmetic", "as in the paper's text"])
    def test_after_300_more_tuples_one_dimension_doubles_and_nothing_else_changes(self, s_b1: int) -> None:
        first = decide([self.before], None, 8, (), 1, PAPER)
        later = family((100, s_b1), (50, 200), others=25)
        plan = decide([later], None, 8, first.grids, first.next_id, PAPER)
        assert dims_of(plan) == {1: (2, 4), 2: (1, 4)}
        assert [regrid.hash for regrid in plan.regrids] == [1]
        old, new = first.grids[0], plan.grids[0]
        assert new.id not in {grid.id for grid in first.grids}
        assert (new.slots[:2], new.slots[4:6]) == (old.slots[:2], old.slots[2:])  # kept cells stay
        assert plan.grids[1] == first.grids[1]

    def test_the_figures_of_the_paper(self) -> None:
        first, second = family((100, 300), (50, 200), others=25).candidates
        assert desired_dims(first, 40_000, 8) == pytest.approx((1.414, 4.243), abs=1e-3)
        assert desired_dims(second, 40_000, 8) == pytest.approx((0.707, 2.828), abs=1e-3)


PAPER_CASES = {
    "a key with exactly N/p tuples is not heavy": (family((5, 5), others=35), (), {}),
    "a key above N/p is heavy": (family((6, 6), others=34), (), {1: (2, 2)}),
    "a key of one side only gets a single cell": (family((50, 0), others=25), (), {1: (1, 1)}),
    "a primary key is sent to a row of cells": (family((1, 1000), others=10), (), {1: (1, 8)}),
    "two primary keys share the slots by their work": (
        family((1, 1000), (1, 1000), others=9),
        (),
        {1: (1, 4), 2: (1, 4)},
    ),
    "three stores get a grid of three dimensions": (family((100, 100, 100), others=10), (), {1: (2, 2, 2)}),
    "a heavy key stays heavy above (1/p - epsilon) N": (family((4, 4), others=46), ((1, (2, 2)),), {1: (2, 2)}),
    "a heavy key below (1/p - epsilon) N is light again": (family((3, 3), others=50), ((1, (2, 2)),), {}),
    "a heavy key that is not seen any more is light again": (family(others=50), ((1, (2, 2)),), {}),
    "a dimension above twice the desired is halved": (family((100, 100), others=10), ((1, (8, 2)),), {1: (4, 2)}),
    "a dimension below half of the desired is doubled": (family((100, 100), others=10), ((1, (1, 2)),), {1: (2, 2)}),
}


@pytest.mark.parametrize(("known", "held", "expected"), PAPER_CASES.values(), ids=PAPER_CASES.keys())
def test_the_papers_rule(
    known: Family, held: tuple[tuple[int, tuple[int, ...]], ...], expected: dict[int, tuple[int, ...]]
) -> None:
    grids = [Grid(i, "rs", key, dims, (0,) * prod(dims)) for i, (key, dims) in enumerate(held)]
    assert dims_of(decide([known], None, 8, grids, 10, PAPER)) == expected


def test_halving_releases_the_upper_cells_and_doubling_takes_the_slots_with_fewest_tasks() -> None:
    known = family((100, 100), others=10)
    wide = Grid(0, "rs", 1, (8, 2), tuple(range(8)) * 2)
    halved = decide([known], None, 8, [wide], 1, PAPER)
    assert halved.grids[0].slots == wide.slots[:8]
    narrow = Grid(0, "rs", 1, (1, 2), (3, 4))
    doubled = decide([known], None, 8, [narrow], 1, PAPER)
    assert doubled.grids[0].slots == (3, 4, 0, 1)


def test_a_dimension_steps_until_it_is_within_a_factor_of_two() -> None:
    assert stepped((1, 64, 3), (16, 2, 3)) == (8, 4, 3)


KEYS = st.lists(st.tuples(*[st.integers(0, 10**5)] * 2), min_size=1, max_size=20)


@given(KEYS, st.integers(0, 10**6), st.sampled_from([1, 2, 5, 8, 48]), st.sampled_from(["even", "paper"]))
@settings(max_examples=examples(60), deadline=None)
def test_a_constant_distribution_causes_no_second_change(
    keys: list[tuple[int, int]], others: int, n_slots: int, rule: str
) -> None:
    known = family(*keys, others=others, slots=tuple(key % n_slots for key in range(len(keys))))
    chosen = replace(EVEN, rule=rule)  # type: ignore[arg-type]
    light = [others / n_slots] * n_slots
    for one in known.candidates:
        light[one.slot] += one.weight
    plan = decide([known], light, n_slots, (), 1, chosen)
    for grid in plan.grids:  # what has a grid is not in the light load any more
        one = known.candidates[grid.hash - 1]
        light[one.slot] -= one.weight
        assert max(grid.slots) < n_slots
    again = decide([known], light, n_slots, plan.grids, plan.next_id, chosen)
    assert again.changes == ()
    assert (again.grids, again.next_id) == (plan.grids, plan.next_id)


@given(KEYS, st.integers(0, 10**4), st.sampled_from([2, 8, 48]))
@settings(max_examples=examples(40), deadline=None)
def test_the_largest_load_never_gets_worse(keys: list[tuple[int, int]], others: int, n_slots: int) -> None:
    known = family(*keys, others=others, slots=tuple(key * 7 % n_slots for key in range(len(keys))))
    hashed = slot_loads([2 * others / n_slots] * n_slots, [])
    for one in known.candidates:
        hashed[one.slot] += one.weight
    plan = decide([known], hashed, n_slots, (), 1, EVEN)
    heavy = {grid.hash: grid for grid in plan.grids}
    floor = list(hashed)
    for one in known.candidates:
        floor[one.slot] -= one.weight if one.hash in heavy else 0.0
    loads = slot_loads(floor, [(one, heavy[one.hash]) for one in known.candidates if one.hash in heavy])
    assert max(loads) <= max(hashed) * (1 + 1e-9)


EVEN_CASES = {
    "no key heavier than the others leaves everything to the hash": (family(*[(1, 1)] * 10, others=10**5), {}),
    "one key with all tuples is spread over all slots": (family((10**5, 10**5)), {1: 8}),
    "a primary key with many foreign ones is a row": (family((1, 10**6), others=10), {1: 8}),
    "a key of one side only is spread too": (family((10**6, 0), others=10**4), {1: 8}),
    "three stores": (family((1000, 1000, 1000), others=100), {1: 8}),
}


@pytest.mark.parametrize(("known", "least_cells"), EVEN_CASES.values(), ids=EVEN_CASES.keys())
def test_our_rule_evens_the_slots(known: Family, least_cells: dict[int, int]) -> None:
    plan = decide([known], None, 8, (), 1)
    assert set(dims_of(plan)) == set(least_cells)
    for grid in plan.grids:
        assert prod(grid.dims) >= least_cells[grid.hash]
        loads = slot_loads([0.0] * 8, [(known.candidates[grid.hash - 1], grid)])
        assert imbalance(loads) < 1.25


def test_a_row_of_a_primary_key_does_not_repeat_the_foreign_rows() -> None:
    (grid,) = decide([family((1, 10**6), others=10)], None, 8, (), 1).grids
    assert grid.dims[0] == 1


def test_cells_are_placed_on_top_of_the_light_load() -> None:
    known = family((1000, 1000), others=0)
    light = [500_000.0 + known.candidates[0].weight] + [0.0] * 7
    plan = decide([known], light, 8, (), 1)
    loads = slot_loads([500_000.0] + [0.0] * 7, [(known.candidates[0], plan.grids[0])])
    assert imbalance(loads) == pytest.approx(500_000 * 8 / sum(loads))  # the loaded slot got no cell
    assert 0 not in plan.grids[0].slots


def test_two_keys_that_fell_on_one_slot_are_placed_apart_in_single_cells() -> None:
    known = family(*[(40, 40)] * 16, slots=(0,) * 16)
    light = [sum(one.weight for one in known.candidates)] + [0.0] * 7
    plan = decide([known], light, 8, (), 1, EVEN)
    loads = slot_loads([0.0] * 8, [(known.candidates[g.hash - 1], g) for g in plan.grids])
    assert imbalance(loads) < 1.25
    assert all(grid.dims == (1, 1) for grid in plan.grids)


def test_keys_with_few_tuples_are_left_alone() -> None:
    assert decide([family((10, 10), others=1)], None, 8, (), 1).grids == ()


@pytest.mark.parametrize("rule", ["even", "paper"])
def test_cells_leave_slots_that_are_gone(rule: str) -> None:
    known = family((10**4, 10**4), (10**4, 10**4), others=10**3)
    chosen = replace(EVEN, rule=rule)  # type: ignore[arg-type]
    first = decide([known], None, 8, (), 1, chosen)
    fewer = decide([known], None, 5, first.grids, first.next_id, chosen)
    assert max(slot for grid in fewer.grids for slot in grid.slots) < 5
    assert fewer.changes


def test_a_key_that_fades_is_light_again_under_our_rule() -> None:
    first = decide([family((10**4, 10**4), others=10**4)], None, 8, (), 1, EVEN)
    faded = decide([family((10, 10), others=10**6)], None, 8, first.grids, first.next_id, EVEN)
    assert faded.grids == ()
    assert faded.regrids == (Regrid("rs", 1, None),)


def test_grids_of_a_family_that_was_not_looked_at_stay() -> None:
    other = Grid(7, "tu", 1, (1, 2), (0, 1))
    for rule in ("even", "paper"):
        plan = decide([family((10**4, 10**4))], None, 4, [other], 8, replace(EVEN, rule=rule))  # type: ignore[arg-type]
        assert other in plan.grids


def test_moved_cells_keep_the_id_and_other_dimensions_get_a_new_one() -> None:
    known = family((10**4, 10**4), others=10**3)
    crowded = Grid(3, "rs", 1, (2, 4), (0,) * 8, "b1")
    (moved,) = decide([known], None, 8, [crowded], 4, EVEN).grids
    assert (moved.id == 3) == (moved.dims == (2, 4))
    assert set(moved.slots) == set(range(8))


def test_a_reason_names_the_key_and_carries_figures() -> None:
    (change,) = decide([family((10**4, 10**4))], None, 8, (), 1).changes
    assert change.reason.startswith("key b1: heavy, grid ")
    assert change.figures["largest"] < change.figures["largest_before"]


def test_a_grid_needs_a_slot_for_each_cell() -> None:
    with pytest.raises(InputError, match="2, 2"):
        Grid(1, "rs", 1, (2, 2), (0, 1))


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'paper'"):
        GridSettings(rule="papper")  # type: ignore[arg-type]


def test_the_load_of_a_cell_is_a_stripe_of_each_store_and_a_share_of_the_matches() -> None:
    assert cell_load(Candidate(1, (100, 60)), (2, 3)) == 50 + 20 + 1000
    assert cell_load(Candidate(1, (100, 60), matches=12), (2, 3)) == 50 + 20 + 2


@pytest.mark.parametrize(("n_slots", "alpha"), [(8, 0.25), (8, 1.0), (8, 2.0), (48, 0.75)])
def test_a_stable_distribution_seen_through_samples_and_panes_settles(n_slots: int, alpha: float) -> None:
    """Windows of 8 epochs with 5,000 rows of each store; the counts of keys vary as samples do."""
    rng = np.random.default_rng(5)
    keys = ZipfKeys(2000, alpha)
    slots = rng.integers(n_slots, size=keys.domain)
    trackers, grids, next_id, changes = [Tracker.of(n_slots, window=8)] * 2, (), 1, []
    for epoch in range(30):
        trackers = [one.seen([sampled(keys, rng)], epoch) for one in trackers]
        held = [grid.hash for grid in grids]
        found = candidates(trackers, 8 * n_slots, lambda key: int(slots[key]), held)
        known = Family("rs", tuple(float(one.rows) for one in trackers), tuple(found))
        plan = decide([known], None, n_slots, grids, next_id)
        grids, next_id = plan.grids, plan.next_id
        changes.append(len(plan.changes))
    assert sum(changes[15:]) == 0, changes  # the window is full after 10 epochs
    assert bool(grids) == (alpha > 0.5)


def sampled(keys: ZipfKeys, rng: np.random.Generator) -> Frequent:
    counts = np.bincount(keys.draw(5000, rng), minlength=keys.domain)
    order = np.argsort(-counts, kind="stable")
    return Frequent.of(5000, tuple((int(k), int(counts[k])) for k in order[:512] if counts[k]), int(counts[order[512]]))
