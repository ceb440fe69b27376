"""The cost model against the kernel: the same streams, counted and joined."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

from braidstream.kernels.blocks import BlockJoin
from braidstream.lab.sim.costs import MATCH_COMPARISONS, TUPLE_COMPARISONS, measured_machine
from braidstream.lab.sim.demand import Demand, shares_of
from braidstream.lab.sim.tactics import draw_tuples
from braidstream.lab.workloads.key_values import BModelKeys, UniformKeys
from braidstream.model.directory import Directory

RATE, WINDOW_S, TICK_S, N_TICKS = 250.0, 40.0, 2.0, 50
THETA_BLOCKS, BLOCK_ROWS = 16, 64
KEYS = BModelKeys(domain=20_000)


def demand(theta_rows: int | None, keys: object = KEYS, rate: float = RATE) -> Demand:
    return Demand(
        shares_of(keys, bits=8),  # type: ignore[arg-type]
        lambda _time: rate,
        n_ticks=N_TICKS,
        tick_s=TICK_S,
        window_s=WINDOW_S,
        theta_rows=theta_rows,
        seed=5,
    )


def joined(theta_blocks: int | None) -> tuple[list[int], list[int], BlockJoin]:
    """Comparisons and matches of each tick, from real tuples through the kernel."""
    window_us, tick_us = int(WINDOW_S * 1e6), int(TICK_S * 1e6)
    join = BlockJoin((window_us, window_us), Directory.of(1), theta_blocks, BLOCK_ROWS)
    rng = np.random.default_rng(6)
    comparisons, matches = [], []
    for tick in range(N_TICKS):
        before = join.comparisons
        n_matches = 0
        for side in (0, 1):
            tuples = draw_tuples(int(RATE * TICK_S), tick * tick_us, (tick + 1) * tick_us, KEYS, rng)
            n_matches += len(join.push(side, tuples))
        n_matches += len(join.flush())
        n_matches += sum(len(join.expire(side, (tick + 1) * tick_us - window_us)) for side in (0, 1))
        comparisons.append(join.comparisons - before)
        matches.append(n_matches)
    return comparisons, matches, join


@pytest.mark.parametrize("theta_blocks", [None, THETA_BLOCKS])
def test_comparisons_and_matches_are_what_the_kernel_counts(theta_blocks: int | None) -> None:
    model = demand(None if theta_blocks is None else theta_blocks * BLOCK_ROWS)
    row = np.array([model.row_of(0, 0)])
    comparisons, matches, join = joined(theta_blocks)
    steady = slice(25, N_TICKS)
    _, expected_comparisons, expected_matches = model.between(row, 25, N_TICKS)[:, 0]
    assert sum(comparisons[steady]) == pytest.approx(expected_comparisons, rel=0.1)
    assert sum(matches[steady]) == pytest.approx(expected_matches, rel=0.1)
    if theta_blocks is not None:
        mini_groups = model.mini_groups(0, 0, N_TICKS - 1)
        assert len(join.sizes()) == pytest.approx(len(mini_groups), rel=0.25)
        assert max(mini_groups) <= 2 * theta_blocks * BLOCK_ROWS


def test_tuning_makes_a_tuples_cost_independent_of_the_rate() -> None:
    costs = []
    for theta_rows in (None, 512):
        per_tuple = []
        for rate in (200.0, 800.0):
            model = demand(theta_rows, UniformKeys(100_000), rate)
            tuples, comparisons, _ = model.between(np.array([model.row_of(0, 0)]), 25, N_TICKS)[:, 0]
            per_tuple.append(comparisons / tuples)
        costs.append(per_tuple[1] / per_tuple[0])
    assert costs[0] == pytest.approx(4, rel=0.05)
    assert costs[1] < 1.3


def test_halves_add_up_to_their_whole() -> None:
    model = demand(512)
    whole, lower, upper = (np.array([model.row_of(*shape)]) for shape in ((1, 2), (2, 3), (3, 3)))
    parts = model.between(lower, 3, 40) + model.between(upper, 3, 40)
    assert np.allclose(model.between(whole, 3, 40)[[0, 2]], parts[[0, 2]])
    assert np.allclose(model.stored(whole, 30), model.stored(lower, 30) + model.stored(upper, 30))


def test_prices_have_the_kernels_ratios() -> None:
    """Timings wander, so only the order of magnitude is checked: a match costs many comparisons, a tuple a few."""
    machines = [measured_machine() for _ in range(3)]
    match, each = (median(m.match_s / m.compare_s for m in machines), median(m.tuple_s / m.compare_s for m in machines))
    assert MATCH_COMPARISONS / 6 < match < MATCH_COMPARISONS * 6
    assert each < TUPLE_COMPARISONS * 20
