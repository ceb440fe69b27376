"""What equation 1 takes, against a nested loop over its terms as they are written."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.kernels.join import Pool, composites
from braidstream.kernels.rows import HASH, TIME, Rows, distinct, sort_rows
from braidstream.lab.sim.dcape.pushed_state import GenerationJoin
from braidstream.lab.sim.dcape.streams import Streams, mixed
from braidstream.lab.sim.dcape.terms import terms_of
from tests.scale import examples

Keys = list[int]
some_keys = st.lists(st.integers(0, 3), max_size=4)


def rows(keys: Keys) -> Rows:
    return sort_rows(pa.table({HASH: pa.array(keys, pa.int64()), TIME: pa.array([0] * len(keys), pa.int64())}))


def n_joined(operands: list[Keys]) -> int:
    return sum(len(set(some)) == 1 for some in product(*operands))


def operands_of(term: int, before: list[Keys], after: list[Keys]) -> list[Keys]:
    """(A1 u A2), B2, C1 for the second term."""
    whole = [p + k for p, k in zip(before, after, strict=True)]
    return [*whole[:term], after[term], *before[term + 1 :]]


@given(st.lists(st.tuples(some_keys, some_keys), min_size=2, max_size=4))
@settings(max_examples=examples(200), deadline=None)
def test_the_terms_are_those_of_equation_1_from_left_to_right(streams: list[tuple[Keys, Keys]]) -> None:
    before, after = [p for p, _ in streams], [k for _, k in streams]
    terms = [operands_of(term, before, after) for term in range(len(streams))]
    pools = [Pool(rows(p), rows(k)) for p, k in streams]
    keys = distinct([side.hashes for pool in pools for side in (pool.stored, pool.new)])
    found = terms_of(pools, keys, np.ones(len(keys), dtype=np.bool_))
    assert found.probing.sum() == sum(len(term[0]) for term in terms)
    assert found.partial.sum() == sum(n_joined(term[:n]) for term in terms for n in range(2, len(term)))
    assert found.formed.sum() == sum(n_joined(term) for term in terms)
    assert found.formed.sum() == sum(len(some) for some in composites(pools, [None] * len(pools)))


def test_the_merged_group_probes_again_for_every_generation() -> None:
    """The same tuples in more generations: as many results in the end, more and more work on the way."""
    streams = Streams(mixed([(2, 2.0), (2, 1.0)]), gap_s=0.1, tuple_range=80, duration_s=24.0, tick_s=1.0)
    works = []
    for every in (12, 6, 3):
        join = GenerationJoin(streams.lows)
        n_normal = 0
        for tick in range(streams.n_ticks):
            n_normal += int(join.push(streams.of_tick(tick)).sum())
            if (tick + 1) % every == 0 and tick + 1 < streams.n_ticks:
                join.spill([0, 1, 2, 3], tick)
        found = join.clean_up()
        works.append((n_normal + found.results.sum(), found.probing.sum(), found.partial.sum()))
    assert len({total for total, _, _ in works}) == 1
    for count in (1, 2):
        two, four, eight = (int(work[count]) for work in works)
        assert 1.3 * two < four < eight / 1.3


def test_groups_without_another_generation_take_no_part() -> None:
    streams = Streams((1.0,) * 4, gap_s=0.1, tuple_range=80, duration_s=8.0, tick_s=1.0)
    join = GenerationJoin(streams.lows)
    for tick in range(streams.n_ticks):
        join.push(streams.of_tick(tick))
        join.spill([0] if tick < streams.n_ticks - 1 else [0, 1], tick)
    found = join.clean_up()
    assert found.probing[0] > 0
    assert found.probing[1:].tolist() == [0, 0, 0]
    assert found.partial[1:].tolist() == [0, 0, 0]
