"""The join with generations against the oracle: normal and recovered results are the batch join, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.kernels.join import Composites, Pool, column
from braidstream.lab.sim.dcape.pushed_state import GenerationJoin
from braidstream.lab.sim.dcape.streams import ROW, Streams, mixed
from tests.scale import examples

Result = tuple[int, ...]


def oracle(streams: Streams) -> Counter[Result]:
    """Every combination of tuples, one of each stream, with equal keys: a nested loop."""
    tuples = [
        [pair for tick in range(streams.n_ticks) for pair in _pairs(streams, stream, tick)]
        for stream in range(streams.n_streams)
    ]
    return Counter(tuple(row for _, row in some) for some in product(*tuples) if len({key for key, _ in some}) == 1)


def _pairs(streams: Streams, stream: int, tick: int) -> list[tuple[int, int]]:
    rows = streams.of_tick(tick)[stream]
    return list(zip(rows.hashes.tolist(), rows.table.column(ROW).to_pylist(), strict=True))


class Collected:
    """Gathers results as tuples of row numbers."""

    def __init__(self) -> None:
        self.results: Counter[Result] = Counter()

    def take(self, pools: Sequence[Pool], some: Composites) -> None:
        columns = [column(pool, ROW, index) for pool, index in zip(pools, some.index, strict=True)]
        self.results.update(zip(*(rows.to_pylist() for rows in columns), strict=True))


def few(seed: int, n_streams: int) -> Streams:
    """About a dozen tuples a stream over four groups of one or two keys."""
    ratios = mixed([(2, 2.0), (2, 1.0)])
    return Streams(ratios, gap_s=1.0, tuple_range=8, duration_s=12.0, tick_s=2.0, n_streams=n_streams, seed=seed)


@given(
    seed=st.integers(0, 10_000),
    n_streams=st.sampled_from([2, 3, 4]),
    pushes=st.lists(st.tuples(st.integers(0, 4), st.sets(st.integers(0, 3))), max_size=6),
)
@settings(max_examples=examples(60), deadline=None)
def test_normal_and_recovered_results_are_the_batch_join(
    seed: int, n_streams: int, pushes: list[tuple[int, set[int]]]
) -> None:
    streams, seen = few(seed, n_streams), Collected()
    join = GenerationJoin(streams.lows, n_streams, seen.take)
    n_normal = 0
    for tick in range(streams.n_ticks):
        n_normal += int(join.push(streams.of_tick(tick)).sum())
        for at, groups in pushes:
            if at == tick:
                join.spill(groups, tick)
    assert sum(seen.results.values()) == n_normal
    recovered = join.clean_up()
    expected = oracle(streams)
    assert seen.results == expected
    assert n_normal + int(recovered.results.sum()) == sum(expected.values())


def test_a_group_that_is_never_pushed_misses_nothing_and_is_not_read() -> None:
    streams = few(3, 3)
    join = GenerationJoin(streams.lows)
    for tick in range(streams.n_ticks):
        join.push(streams.of_tick(tick))
        join.spill([0], tick)
    recovered = join.clean_up()
    assert recovered.results[1:].tolist() == [0, 0, 0]
    assert recovered.from_disk[0] > 0
    assert recovered.from_disk[1:].tolist() == [0, 0, 0]


def test_clean_up_forms_the_results_within_later_generations_again_and_removes_them() -> None:
    """D-CAPE 4.2: equation 1 gives all results with a tuple of P_2, and V_2 is taken away."""
    streams = few(3, 3)
    join = GenerationJoin(streams.lows)
    after = np.zeros(4, dtype=np.int64)
    for tick in range(streams.n_ticks):
        found = join.push(streams.of_tick(tick))
        if tick == 2:
            join.spill([0, 1], tick)
        elif tick > 2:
            after += found
    recovered = join.clean_up()
    assert recovered.removed.tolist() == [*after[:2].tolist(), 0, 0]
    assert after[:2].sum() > 0


def test_results_of_a_tuple_follow_the_join_ratio() -> None:
    """The paper's example: ratio 2 means about 4 results for a tuple at the end of the first range, then 16."""
    streams = Streams((2.0,) * 20, gap_s=0.05, tuple_range=4_000, duration_s=400.0, tick_s=5.0)
    join = GenerationJoin(streams.lows)
    found = [int(join.push(streams.of_tick(tick)).sum()) / 300 for tick in range(streams.n_ticks)]
    assert np.mean(found[36:40]) == pytest.approx(4, rel=0.2)
    assert np.mean(found[76:80]) == pytest.approx(16, rel=0.2)
