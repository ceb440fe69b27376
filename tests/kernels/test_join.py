"""The join kernel alone: every composite once, in the epoch of its last tuple, and never many at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.join import Pool, column, composites, expand, probe
from braidstream.kernels.rows import HASH, KEY, MASK, TIME, Rows, sort_rows
from braidstream.lab.testing import oracle
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from tests.backends import key_columns
from tests.scale import examples

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
MANY = settings(max_examples=examples(100), deadline=None, suppress_health_check=QUIET)


def on_one_key(case: Case) -> bool:
    return all(column.endswith(".k") for pair in case.equalities for column in pair)


CASES = two_streams() | many_streams(min_streams=3, max_streams=4, max_rows=8).filter(on_one_key)


@MANY
@given(CASES, st.integers(1, 20), st.booleans(), st.data())
def test_composites_are_the_oracles_and_no_batch_exceeds_the_limit(
    case: Case, limit: int, collides: bool, data: st.DataObject
) -> None:
    names = [stream.name for stream in case.streams]
    order = [data.draw(st.permutations([j for j in range(len(names)) if j != i])) for i in range(len(names))]
    found: list[tuple[int, ...]] = []
    for pools in epochs_of(case, n_hashes=2 if collides else None):
        for batch in composites(pools, [s.window_us for s in case.streams], order, limit=limit):
            assert 0 < len(batch) <= limit
            own = batch.index[batch.source] - batch.offset
            assert (own >= 0).all()
            assert (np.diff(own) >= 0).all()
            columns = [column(pools[i], "row", index) for i, index in enumerate(batch.index)]
            found += zip(*(rows.to_pylist() for rows in columns), strict=True)
    assert sorted(found) == expected(case)


@MANY
@given(CASES, st.integers(1, 20), st.booleans(), st.data())
def test_what_is_missing_between_generations_is_found_once(
    case: Case, limit: int, collides: bool, data: st.DataObject
) -> None:
    """D-CAPE 4.2 for m = 2 to 4: epochs are generations here, each joined with those before it, not with itself."""
    names = [stream.name for stream in case.streams]
    order = [data.draw(st.permutations([j for j in range(len(names)) if j != i])) for i in range(len(names))]
    found: list[tuple[int, ...]] = []
    for pools in epochs_of(case, n_hashes=2 if collides else None):
        for batch in composites(pools, [s.window_us for s in case.streams], order, limit=limit, across=True):
            assert 0 < len(batch) <= limit
            columns = [column(pools[i], "row", index) for i, index in enumerate(batch.index)]
            found += zip(*(rows.to_pylist() for rows in columns), strict=True)
    came_in = [epoch_of_rows(case, name) for name in names]
    mixed = [rows for rows in expected(case) if len({came_in[i][row] for i, row in enumerate(rows)}) > 1]
    assert sorted(found) == mixed


@MANY
@given(two_streams(), st.integers(1, 20))
def test_a_row_that_does_not_pass_its_filter_joins_nothing(case: Case, limit: int) -> None:
    """Bit 0 is even rows, bit 1 is all: R is filtered by the one, S by the other."""
    found: list[tuple[int, ...]] = []
    for pools in epochs_of(case, masks=True):
        for batch in composites(pools, [s.window_us for s in case.streams], bits=[0, 1], limit=limit):
            columns = [column(pools[i], "row", index) for i, index in enumerate(batch.index)]
            found += zip(*(rows.to_pylist() for rows in columns), strict=True)
    assert sorted(found) == [pair for pair in expected(case) if pair[0] % 2 == 0]


@MANY
@given(st.lists(st.integers(0, 30), max_size=40), st.sets(st.integers(0, 30)))
def test_probing_finds_the_run_of_each_hash(build: list[int], hashes: set[int]) -> None:
    rows = np.array(sorted(build), dtype=np.uint64)
    needles = np.array(sorted(hashes), dtype=np.uint64)
    start, stop = probe(rows, needles)
    pairs = {(int(needles[n]), int(r)) for n, r in zip(*expand(start, stop), strict=True)}
    assert pairs == {(h, r) for h in hashes for r, other in enumerate(rows.tolist()) if other == h}


@MANY
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-10, 10)), max_size=60))
def test_rows_are_sorted_by_hash_and_then_by_time(values: list[tuple[int, int]]) -> None:
    top = 2**64 - 1
    hashes = np.array([top - h for h, _ in values], dtype=np.uint64)
    table = pa.table({HASH: hashes.view(np.int64), TIME: [t for _, t in values], "row": np.arange(len(values))})
    rows = sort_rows(table)
    keyed = [(top - h, t) for h, t in values]
    assert list(zip(rows.hashes.tolist(), rows.times.tolist(), strict=True)) == sorted(keyed)
    assert [keyed[i] for i in rows.table["row"].to_pylist()] == sorted(keyed)
    assert rows.distinct_hashes().tolist() == sorted({h for h, _ in keyed})


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 2**32), st.none() | st.integers(0, 60), st.none() | st.integers(0, 60), st.integers(1, 300))
def test_long_runs_of_a_key_are_narrowed_to_the_window(
    seed: int, own: int | None, other: int | None, limit: int
) -> None:
    random = np.random.default_rng(seed)
    sides = [
        [{"k": int(k), "ts": int(t), "row": i} for i, (k, t) in enumerate(random.integers(0, (3, 200), (150, 2)))]
        for _ in range(3)
    ]
    stored, new, partner = (rows_of(rows, "k") for rows in sides)
    pools = [Pool(rows_of([], "k"), partner), Pool(stored, new)]
    found = []
    for batch in composites(pools, [own, other], limit=limit):
        left, right = (column(pools[i], "row", batch.index[i]).to_numpy() for i in (0, 1))
        # A row of the second side is stored when its place is before the new ones.
        found += zip(left.tolist(), (right + 1000 * (batch.index[1] >= len(stored))).tolist(), strict=True)
    numbered = [*sides[0], *({**row, "row": row["row"] + 1000} for row in sides[1])]
    streams = [oracle.Stream("R", sides[2], own), oracle.Stream("S", numbered, other)]
    assert sorted(found) == sorted(oracle.project(oracle.join(streams, [("R.k", "S.k")]), ["R.row", "S.row"]))


def test_times_at_the_ends_of_the_calendar_do_not_overflow() -> None:
    """Spark's timestamps reach from the year 1 to 9999; an unbounded window spans them all."""
    first, last = -62_135_596_800_000_000, 253_402_300_799_999_999
    early, late = ([{"k": 1, "ts": t}] for t in (first, last))
    pools = [Pool(rows_of([], "k"), rows_of(early, "k")), Pool(rows_of([], "k"), rows_of(late, "k"))]
    assert sum(len(batch) for batch in composites(pools, [None, None])) == 1
    assert sum(len(batch) for batch in composites(pools, [last - first, 0])) == 1
    assert sum(len(batch) for batch in composites(pools, [last - first - 1, None])) == 0


HOT = """
import resource, sys
import numpy as np, pyarrow as pa
from braidstream.kernels.join import Pool, column, composites
from braidstream.kernels.rows import HASH, TIME, sort_rows
from braidstream.state.staging import Discard

def rows(n):
    return sort_rows(pa.table({HASH: np.zeros(n, np.int64), TIME: np.arange(n), "v": np.arange(n), "w": np.arange(n)}))

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

n = int(sys.argv[1])
stored, new, none = rows(n), rows(n), rows(0)
for pools in ([Pool(none, new), Pool(stored, none)], [Pool(none, new), Pool(none, new)]):
    sum(1 for _ in composites([Pool(none, rows(600)), Pool(rows(600), none)], [None, None]))
    before, sink = peak_mb(), Discard()
    for found in composites(pools, [None, None]):
        sink.write([column(pools[i], name, found.index[i]) for i in (0, 1) for name in ("v", "w")])
    print(sink.rows, round(peak_mb() - before))
"""


def test_a_hot_key_is_joined_in_bounded_memory() -> None:
    """10^4 tuples on each side are 10^8 pairs: 1.6 GB of index pairs alone, if they were there at once."""
    n = 10_000
    run = subprocess.run([sys.executable, "-c", HOT, str(n)], capture_output=True, text=True, check=True)
    for line in run.stdout.splitlines():
        pairs, grown_mb = map(int, line.split())
        assert pairs == n * n
        assert grown_mb < 150
    assert len(run.stdout.splitlines()) == 2


# What the tests are made of: rows are numbered within their stream, and a result is the numbers of its rows.


def rows_of(rows: Sequence[oracle.Row], *key: str, n_hashes: int | None = None, masks: bool = False) -> Rows:
    kinds = {str: pa.string(), int: pa.int64()}
    keys = [pa.array([r[name] for r in rows], kinds[type(rows[0][name])] if rows else pa.int64()) for name in key]
    hashes, _ = hash_columns(keys)
    columns: dict[str, Any] = {HASH: (hashes if n_hashes is None else hashes % np.uint64(n_hashes)).view(np.int64)}
    columns[TIME] = pa.array([r["ts"] for r in rows], pa.int64())
    columns |= {f"{KEY}{i}": values for i, values in enumerate(keys)}
    if masks:
        columns[MASK] = pa.array([2 + (r["row"] % 2 == 0) for r in rows], pa.int64())
    columns["row"] = pa.array([r.get("row", 0) for r in rows], pa.int64())
    return sort_rows(pa.table(columns))


def epochs_of(case: Case, **options: Any) -> list[list[Pool]]:
    """For each epoch the pools: all rows before it are stored, its own are new. Rows without a key are left out."""
    keys = key_columns(case)
    number = {s.name: 0 for s in case.streams}
    seen: dict[str, list[Any]] = {s.name: [] for s in case.streams}
    made = []
    for epoch in case.epochs:
        pools = []
        for stream in case.streams:
            first = number[stream.name]
            fresh = [{**row, "row": first + i} for i, row in enumerate(epoch[stream.name])]
            number[stream.name] += len(fresh)
            new = [row for row in fresh if all(row[name] is not None for name in keys[stream.name])]
            parts = [rows_of(some, *keys[stream.name], **options) for some in (seen[stream.name], new)]
            seen[stream.name] += new
            empty = next((part.table.schema for part in parts if len(part)), parts[0].table.schema)
            pools.append(Pool(*(part if len(part) else Rows(empty.empty_table()) for part in parts)))
        made.append(pools)
    return made


def epoch_of_rows(case: Case, stream: str) -> list[int]:
    return [i for i, epoch in enumerate(case.epochs) for _ in epoch[stream]]


def expected(case: Case) -> list[tuple[int, ...]]:
    numbered = [
        oracle.Stream(s.name, [{**row, "row": i} for i, row in enumerate(s.rows)], s.window_us) for s in case.streams
    ]
    found = oracle.join(numbered, case.equalities)
    return sorted(oracle.project(found, [f"{s.name}.row" for s in case.streams]))
