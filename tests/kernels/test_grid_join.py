"""Keys that turn heavy and light again while data flows: the output equals the oracle, each result once.

The engine in this process, with a regridder that gives random keys random grids after every epoch. Moves, splits, slots
that come and go, compaction and crashes are mixed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.grid_even import EvenSettings
from braidstream.control.regridding import GridSettings
from braidstream.epoch.regridder import GridRouter
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.stripes import split_code
from braidstream.lab.testing import oracle
from braidstream.lab.testing.harness import Harness, HashKeys, Indexed
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from braidstream.model.faults import POINTS
from braidstream.model.grids import Grid, Regrid
from braidstream.options import RULES
from braidstream.state.cells import regridded
from tests.backends import expected, indexed, multiset, tables
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_streams_join import (
    MANY,
    SLOTS,
    composites_of,
    crowded,
    harness_of,
    leftovers,
    micro,
    often_compacted,
    on_one_key,
    with_a_fault,
)
from tests.scale import examples

GROUPS, SEEDS = st.integers(1, 16), st.integers(0, 999)


def heavy_hashes(case: Case, hash_keys: HashKeys = hash_columns, inputs: Sequence[Indexed] = ()) -> list[int]:
    """The hashes of all keys of a case: any of them may turn heavy."""
    found: set[int] = set()
    for entry in inputs or indexed(case):
        table = case.table(entry.stream)
        hashes, valid = hash_keys([table.column(name).combine_chunks() for name in entry.key])
        found |= set(hashes[valid].tolist())
    return sorted(found)


def regridder(case: Case, seed: int, hash_keys: HashKeys = hash_columns) -> RestlessGrids:
    return RestlessGrids(heavy_hashes(case, hash_keys), seed)


@settings(MANY, max_examples=examples(60))
@given(two_streams(max_epochs=8), SLOTS, GROUPS, SEEDS)
def test_keys_that_turn_heavy_and_light_change_nothing(case: Case, slots: int, groups: int, seed: int) -> None:
    with harness_of(case, slots, groups, regridder=regridder(case, seed)) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))
        assert {slot for grid in harness.manifest.grids for slot in grid.slots} <= set(range(slots))


@settings(MANY, max_examples=examples(60))
@given(two_streams(max_epochs=8), SLOTS, GROUPS, SEEDS, st.data())
def test_nor_do_moves_and_crashes_in_between(
    case: Case, slots: int, groups: int, seed: int, data: st.DataObject
) -> None:
    changing = {"controller": restless(seed), "regridder": regridder(case, seed)}
    with harness_of(case, slots, groups, **changing) as harness, often_compacted():
        for i, epoch in enumerate(case.epochs):
            for _ in range(data.draw(st.integers(0, 2), label="failures")):
                if harness.manifest.epoch < i:
                    with_a_fault(harness, data.draw(st.sampled_from(POINTS)), i, tables(case, epoch))
                    harness.restart(data.draw(st.none() | SLOTS, label="slots"))
            if harness.manifest.epoch < i:
                harness.epoch(tables(case, epoch))
            manifest = harness.manifest
            assert all(slot < manifest.n_slots for grid in manifest.grids for slot in grid.slots)
        assert multiset(harness.results("q")) == multiset(expected(case))
        assert leftovers(harness) == []


@settings(MANY, max_examples=examples(40))
@given(many_streams(min_streams=3, max_streams=4, max_rows=8).filter(on_one_key), SLOTS, GROUPS, SEEDS)
def test_nor_with_three_and_four_streams(case: Case, slots: int, groups: int, seed: int) -> None:
    with harness_of(case, slots, groups, regridder=regridder(case, seed)) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(40))
@given(many_streams(min_streams=3, max_streams=3, max_rows=8).filter(on_one_key), SLOTS, GROUPS, SEEDS)
def test_queries_over_some_of_a_familys_streams(case: Case, slots: int, groups: int, seed: int) -> None:
    """A-B, B-C and A-B-C share their stores, and so the grids: each produces its composites once."""
    inputs = indexed(case)
    joins = {"q": inputs, "ab": inputs[:2], "bc": inputs[1:]}
    with harness_of(case, slots, groups, joins=joins, regridder=regridder(case, seed)) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        streams = case.streams
        assert multiset(harness.results("q")) == multiset(expected(case))
        assert multiset(harness.results("ab")) == composites_of(streams[:2], [("A.k", "B.k")])
        assert multiset(harness.results("bc")) == composites_of(streams[1:], [("B.k", "C.k")])


@settings(MANY, max_examples=examples(40))
@given(two_streams(max_epochs=8), SLOTS, GROUPS, SEEDS, st.none() | st.integers(0, 25), st.none() | st.integers(0, 25))
def test_a_stream_joined_with_itself(
    case: Case, slots: int, groups: int, seed: int, first: int | None, second: int | None
) -> None:
    """The stream has two dimensions; beside it a join with another stream, which has a third."""
    own = [Indexed(alias, "R", ("k",), micro(w)) for alias, w in zip("ab", (first, second), strict=True)]
    both = [Indexed("R", "R", ("k",), micro(first)), Indexed("S", "S", ("j",), micro(second))]
    comparable = case.schema.field("k").type == case.schema.field("j").type
    joins = {"own": own, **({"both": both} if comparable else {})}
    grids = RestlessGrids(heavy_hashes(case, inputs=own), seed, max_dim=3)
    with harness_of(case, slots, groups, joins=joins, regridder=grids) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        twice = [oracle.Stream(a, case.streams[0].rows, micro(w)) for a, w in zip("ab", (first, second), strict=True)]
        assert multiset(harness.results("own")) == composites_of(twice, [("a.k", "b.k")])
        if comparable:
            windows = zip(case.streams, (first, second), strict=True)
            pair = [oracle.Stream(s.name, s.rows, micro(w)) for s, w in windows]
            assert multiset(harness.results("both")) == composites_of(pair, [("R.k", "S.j")])


@settings(MANY, max_examples=examples(40))
@given(two_streams(max_epochs=8), SLOTS, GROUPS, SEEDS, st.integers(1, 4))
def test_keys_whose_hashes_collide_share_a_grid_and_are_told_apart(
    case: Case, slots: int, groups: int, seed: int, n_hashes: int
) -> None:
    keys = crowded(n_hashes)
    grids = regridder(case, seed, keys)
    with harness_of(case, slots, groups, hash_keys=keys, regridder=grids) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(40))
@given(two_streams(max_epochs=8), SLOTS, GROUPS, st.sampled_from(RULES), st.data())
def test_the_router_that_finds_heavy_keys_itself(
    case: Case, slots: int, groups: int, rule: str, data: st.DataObject
) -> None:
    """Grids for whatever is frequent in a handful of rows, with moves and crashes in between."""
    tracker = GridRouter(GridSettings(rule=rule, even=EvenSettings(least=1.0)))  # type: ignore[arg-type]
    with harness_of(case, slots, groups, controller=restless(groups), regridder=tracker) as harness, often_compacted():
        for i, epoch in enumerate(case.epochs):
            if data.draw(st.booleans(), label="fails"):
                with_a_fault(harness, data.draw(st.sampled_from(POINTS)), i, tables(case, epoch))
                harness.restart(data.draw(st.none() | SLOTS, label="slots"))
            if harness.manifest.epoch < i:
                harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(40))
@given(two_streams(max_epochs=8), SLOTS, st.integers(1, 3), st.data())
def test_a_biclique_gives_what_the_oracle_says(case: Case, slots: int, subgroups: int, data: st.DataObject) -> None:
    """Each row is stored in one unit, and probes the units of the other side; with crashes in between."""
    with harness_of(case, slots, 1, biclique=subgroups) as harness, often_compacted():
        for i, epoch in enumerate(case.epochs):
            if data.draw(st.booleans(), label="fails"):
                with_a_fault(harness, data.draw(st.sampled_from(POINTS)), i, tables(case, epoch))
                harness.restart()
            if harness.manifest.epoch < i:
                harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))
        assert leftovers(harness) == []


def test_the_regridder_of_these_tests_does_everything() -> None:
    """Not a property of the engine: keys turn heavy and light, grids change, and most results come from cells."""
    asked: Counter[str] = Counter()

    @settings(MANY, max_examples=25, derandomize=True)
    @given(two_streams(max_epochs=10), SLOTS, GROUPS, SEEDS)
    def count(case: Case, slots: int, groups: int, seed: int) -> None:
        grids = regridder(case, seed)
        with harness_of(case, slots, groups, regridder=grids) as harness, often_compacted():
            for epoch in case.epochs:
                harness.epoch(tables(case, epoch))
            asked.update(grids.asked)
            asked["cells stored"] += sum(bool(segment.cells) for segment in harness.manifest.segments)
            asked["retired"] += len(harness.manifest.retired)
            asked["results"] += len(harness.results("q"))

    count()
    kinds = ("heavy", "light", "other", "moved", "cells stored", "retired", "results")
    assert min(asked[kind] for kind in kinds) >= 10, asked


def test_one_key_for_all_tuples_is_spread_over_all_slots(tmp_path: Path) -> None:
    """A grid of 2 x 3 on six slots: every slot stores a stripe of each stream, and produces a share of the matches."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    inputs = [Indexed("R", "R", ("k",), None), Indexed("S", "S", ("k",), None)]
    harness = Harness(tmp_path, {"R": schema, "S": schema}, {"q": inputs}, slots=6)
    n = 300

    def rows(first: int) -> pa.Table:
        return pa.table([[7] * n, range(first, first + n), range(first, first + n)], schema=schema)

    harness.epoch({"R": rows(0), "S": rows(0)})
    family = harness.runner.flow.plan.stores[0].family
    hash_ = int(hash_columns([pa.array([7])])[0][0])
    manifest = regridded(harness.manifest, [Regrid(family, hash_, Grid(1, family, hash_, (2, 3), tuple(range(6))))])
    manifest.write(harness.runner.checkpoint.files)
    harness.restart()
    harness.epoch({"R": rows(n), "S": rows(n)})
    assert len(harness.results("q")) == (2 * n) ** 2
    stored = [segment for segment in harness.manifest.segments if segment.cells]
    by_store = Counter({segment.store: 0 for segment in stored})
    for segment in stored:
        by_store[segment.store] += segment.live_rows
    assert by_store == {"R[k]": 3 * n, "S[k]": 2 * n}
    assert np.unique([code for segment in stored for code, _ in segment.cells]).size == 6


def test_a_regrid_is_made_physical_and_taken_back(tmp_path: Path) -> None:
    """Light, 2 x 3, 3 x 1, light: each time nothing is left where it was before, and every pair comes once."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    inputs = [Indexed("R", "R", ("k",), None), Indexed("S", "S", ("k",), None)]
    harness = Harness(tmp_path, {"R": schema, "S": schema}, {"q": inputs}, slots=3)
    hash_ = int(hash_columns([pa.array([7])])[0][0])
    family, n = harness.runner.flow.plan.stores[0].family, 40

    def epochs() -> None:
        for _ in range(3):
            first = n * (harness.manifest.epoch + 1)
            rows = pa.table([[7] * n, range(first, first + n), range(first, first + n)], schema=schema)
            harness.epoch({"R": rows, "S": rows})

    def regrid(grid: Grid | None) -> None:
        regridded(harness.manifest, [Regrid(family, hash_, grid)]).write(harness.runner.checkpoint.files)
        harness.restart()
        epochs()

    def live() -> dict[str, set[int]]:
        """The grids in which rows of each store are live; 0 stands for the key's group."""
        found: dict[str, set[int]] = {"R[k]": set(), "S[k]": set()}
        for segment in harness.manifest.segments:
            found[segment.store] |= {split_code(code)[0] for code, _ in segment.cells}
            found[segment.store] |= {0} if segment.parts and hash_ not in segment.given else set()
        return found

    epochs()
    regrid(Grid(1, family, hash_, (2, 3), (0, 1, 2, 0, 1, 2)))
    assert live() == {"R[k]": {1}, "S[k]": {1}}
    regrid(Grid(2, family, hash_, (3, 1), (2, 1, 0)))
    assert live() == {"R[k]": {2}, "S[k]": {2}}
    assert harness.manifest.retired == ()
    regrid(None)
    assert live() == {"R[k]": {0}, "S[k]": {0}}
    regrid(Grid(3, family, hash_, (1, 2), (0, 1)))
    assert len(harness.results("q")) == (15 * n) ** 2


def test_what_is_repeated_through_the_exchange(tmp_path: Path) -> None:
    """Rows of a key with half of the tuples go to at most 2 sqrt(p) cells each; others once, and none without skew."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    inputs = [Indexed("R", "R", ("k",), None), Indexed("S", "S", ("k",), None)]
    slots, n, rng = 16, 1000, np.random.default_rng(1)

    def exchanged(folder: str, share: float, router: GridRouter | None) -> tuple[int, int, float]:
        harness = Harness(
            tmp_path / folder, {"R": schema, "S": schema}, {"q": inputs}, slots=slots, groups=64, regridder=router
        )
        for epoch in range(3):
            tables = {}
            for name in "RS":
                keys = np.append(np.full(int(share * n), 7), rng.integers(1000, 10**9, n - int(share * n)))
                times = np.arange(epoch * n, epoch * n + n)
                tables[name] = pa.table([keys, rng.integers(0, 10**9, n), times], schema=schema)
            harness.epoch(tables)
        last = harness.runner.progress[-1]
        return last.indexed, last.exchanged_bytes, last.balance["matches"]

    assert exchanged("even", 0.0, GridRouter())[0] == 2 * n
    rows, size, balance = exchanged("hashed", 0.5, None)
    assert rows == 2 * n
    assert balance > 0.9 * slots
    spread, spread_size, spread_balance = exchanged("spread", 0.5, GridRouter())
    light, heavy = n, n
    assert 1 < (spread - light) / heavy <= 2 * slots**0.5
    assert spread_size / size <= 0.5 + 0.5 * 2 * slots**0.5
    assert spread_balance < 1.5
