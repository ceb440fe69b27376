"""The search for grids looks at fewer shapes and slots than there are, and finds what looking at all of them finds."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control import grid_paper
from braidstream.control.grid_even import EvenSettings, plan
from braidstream.model.grids import Candidate, Family
from tests.control.plain_grid_even import plainly_planned
from tests.scale import examples


def families(seed: int, n_stores: int, n_keys: int, skew: float) -> list[Family]:
    """One or two families; some keys are in one store only, some as frequent as others."""
    rng, found = np.random.default_rng(seed), []
    for name in ("f", "g")[: 1 + seed % 2]:
        sizes = (2000 / np.arange(1, n_keys + 1) ** skew).round()
        counts = np.stack([rng.permutation(sizes) if rng.random() < 0.3 else sizes for _ in range(n_stores)], axis=1)
        counts *= rng.random(counts.shape) > 0.2
        own = [
            Candidate(int(rng.integers(1 << 62)), tuple(row), int(rng.integers(20)), "ab"[i % 2] * (i % 3))
            for i, row in enumerate(counts.tolist())
        ]
        totals = tuple(float(total) for total in counts.sum(axis=0) * rng.uniform(1, 3, n_stores))
        found.append(Family(name, totals, tuple(own)))
    return found


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 20), st.integers(1, 30), st.floats(0, 1.5), st.booleans()
)
def test_the_plan_is_that_of_the_whole_search(
    seed: int, n_stores: int, n_slots: int, n_keys: int, skew: float, is_measured: bool
) -> None:
    chosen = EvenSettings(least=1.0, heavy_above=(0.05, 0.3)[seed % 2])
    light = np.random.default_rng(seed).uniform(0, 1e4, n_slots).tolist() if is_measured else None
    grids, next_id = (), 1
    for step in range(3):  # the second and third time there are grids, of other keys, and slots may be gone
        told, slots = families(seed + step // 2, n_stores, n_keys, skew), max(n_slots - step, 1)
        made = plan(told, light, slots, grids, next_id, chosen)
        assert made == plainly_planned(told, light, slots, grids, next_id, chosen)
        grids, next_id = made.grids, made.next_id


@pytest.mark.parametrize("n_stores", [2, 3])
def test_many_slots_and_heavy_keys_give_that_plan_too(n_stores: int) -> None:
    told = families(2, n_stores, 30, 0.7)
    chosen = EvenSettings(least=1.0)
    made = plan(told, None, 60, (), 1, chosen)
    assert made == plainly_planned(told, None, 60, (), 1, chosen)
    assert len(made.grids) > 2
    assert max(len(grid.slots) for grid in made.grids) > 4


class _Plain(grid_paper._Session):
    """Looks at all slots for the one with the fewest tasks."""

    def _fewest(self) -> int:
        slot = min(range(self.n_slots), key=lambda one: (self.tasks[one], one))
        self.tasks[slot] += 1
        return slot


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 3), st.integers(1, 20), st.integers(1, 30), st.floats(0, 1.5))
def test_the_papers_rule_finds_the_slots_with_the_fewest_tasks(
    seed: int, n_stores: int, n_slots: int, n_keys: int, skew: float
) -> None:
    grids, next_id = (), 1
    for step in range(4):  # keys turn light again, others heavy, and slots may be gone
        arguments = (families(seed + step, n_stores, n_keys, skew), max(n_slots - step % 2, 1), grids, next_id, 0.0)
        made = grid_paper.plan(*arguments)
        with mock.patch.object(grid_paper, "_Session", _Plain):
            assert made == grid_paper.plan(*arguments)
        grids, next_id = made.grids, made.next_id
