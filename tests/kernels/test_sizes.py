"""Large values: every cut by bytes and every widened array, reached with limits of a few bytes.

What is random here is compared with what it was before it was cut, or with the oracle; `test_large_values.py` has real
sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.kernels import sizes
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.join import Pool, column, composites
from braidstream.kernels.routing import Routes, SlotTable, route, unpack
from braidstream.kernels.rows import HASH, TIME, Rows, sort_rows, take
from braidstream.kernels.stripes import stripes
from braidstream.kernels.summaries import summarize
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from braidstream.model.directory import Directory, Group
from braidstream.model.snapshots import UNSEALED
from braidstream.model.stores import Branch, Store
from braidstream.spark import sources
from braidstream.state import compaction
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Part, Segment
from braidstream.state.segments import Place, open_segment
from tests.backends import expected, multiset, tables
from tests.kernels.test_aggregates import aggregate_cases, aggregation_of, key_type
from tests.kernels.test_aggregates_engine import AggregateHarness, check, epochs
from tests.kernels.test_grid_join import regridder
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_spilled_join import SPILLS
from tests.kernels.test_streams_join import GROUPS, MANY, SLOTS, harness_of, often_compacted, on_one_key
from tests.scale import examples

SEEDS = st.integers(0, 999)
TEXTS = st.none() | st.text("aßc", max_size=40)
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.none() | st.integers(0, 9)),
    (pa.bool_(), st.none() | st.booleans()),
    (pa.string(), TEXTS),
    (pa.binary(), st.none() | st.binary(max_size=40)),
    (pa.list_(pa.bool_()), st.none() | st.lists(st.booleans(), max_size=9)),
    (pa.list_(pa.string()), st.none() | st.lists(TEXTS, max_size=4)),
    (pa.list_(pa.float32(), 3), st.none() | st.lists(st.just(1.5), min_size=3, max_size=3)),
    (pa.list_(pa.string(), 2), st.none() | st.lists(TEXTS, min_size=2, max_size=2)),
    (pa.struct([("a", pa.string()), ("b", pa.list_(pa.int32()))]),
     st.none() | st.fixed_dictionaries({"a": TEXTS, "b": st.none() | st.lists(st.integers(0, 3), max_size=5)})),
    (pa.map_(pa.string(), pa.list_(pa.string())),
     st.none() | st.lists(st.tuples(st.text("xy", max_size=9), st.none() | st.lists(TEXTS, max_size=2)), max_size=3)),
]  # fmt: skip


@contextmanager
def tiny_limits(array: int = 60, batch: int = 200, envelope: int = 150) -> Iterator[None]:
    """Arrays, batches and envelopes of a few rows; files read a few rows at a time."""
    small = {"ARRAY_BYTES": array, "BATCH_BYTES": batch, "ENVELOPE_BYTES": envelope}
    with mock.patch.multiple(sizes, **small), mock.patch.object(sources, "_BYTES_AT_ONCE", batch):
        yield


@st.composite
def tables_of_anything(draw: Any, max_rows: int = 20) -> pa.Table:
    """A table of a few columns of random types, in random chunks."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    n = draw(st.integers(0, max_rows))
    columns = [pa.array(draw(st.lists(values, min_size=n, max_size=n)), kind) for kind, values in kinds]
    table = pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])
    at = draw(st.lists(st.integers(0, n), max_size=3).map(sorted))
    pieces = [table.slice(begin, end - begin) for begin, end in zip([0, *at], [*at, n], strict=True)]
    return pa.concat_tables(pieces)


def is_above(column: pa.ChunkedArray, limit: int) -> bool:
    """Whether a column has more bytes; of parts of nested values Arrow's own count is too large."""
    is_nested = pa.types.is_nested(column.type)
    return column.nbytes > limit and (not is_nested or sizes.row_bytes(column).sum() > limit)


@settings(MANY, max_examples=examples(40))
@given(tables_of_anything(), st.integers(1, 400))
def test_a_table_is_one_chunk_of_the_type_that_its_size_needs(table: pa.Table, limit: int) -> None:
    with mock.patch.object(sizes, "ARRAY_BYTES", limit):
        for made in (sizes.whole(table), sizes.whole(sizes.whole(table)), sizes.joined([table])):
            assert made.to_pylist() == table.to_pylist()
            for name in table.column_names:
                own = made.column(name)
                own.validate(full=True)
                assert own.num_chunks == 1
                is_large = table.nbytes > limit and is_above(table.column(name), limit)
                assert own.type == (sizes.wide if is_large else sizes.narrow)(table.schema.field(name).type)


@settings(MANY, max_examples=examples(40))
@given(tables_of_anything(), st.integers(1, 400), st.integers(1, 400), st.data())
def test_tables_widened_or_not_go_together_and_come_apart(
    table: pa.Table, limit: int, most: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, table.num_rows))
    with mock.patch.object(sizes, "ARRAY_BYTES", limit):
        parts = [sizes.whole(table), table, sizes.whole(table.slice(at))]
        both = sizes.joined(parts)
        assert both.to_pylist() == [row for part in parts for row in part.to_pylist()]
        index = np.random.default_rng(at).permutation(both.num_rows)
        assert take(both, index).to_pylist() == [both.to_pylist()[i] for i in index]
        pieces = list(sizes.cut(both, most))
        assert [row for piece in pieces for row in piece.to_pylist()] == both.to_pylist()
        assert all(p.num_rows == 1 or sizes.table_bytes(p).sum() <= most for p in pieces) or both.nbytes <= most


@settings(MANY, max_examples=examples(40))
@given(tables_of_anything())
def test_what_a_row_takes_is_about_what_arrow_says(table: pa.Table) -> None:
    for own in table.columns:
        each = sizes.row_bytes(own)
        assert len(each) == len(own)
        alone = [pa.concat_arrays([own.combine_chunks().slice(i, 1)]) for i in range(len(own))]
        for size, value in zip(each.tolist(), alone, strict=True):
            assert abs(size - value.nbytes) <= 16 + size  # offsets and bitmaps aside
    assert sizes.widest(table) >= (sizes.table_bytes(table).max() if table.num_rows else 0)


@settings(MANY, max_examples=examples(12))
@given(st.lists(TEXTS, min_size=1, max_size=20), st.data())
def test_values_taken_again_and_again_are_widened_where_that_is_much(texts: list[Any], data: st.DataObject) -> None:
    index = data.draw(st.lists(st.none() | st.integers(0, len(texts) - 1), max_size=40))
    with tiny_limits():
        found = sizes.taken(pa.array(texts, pa.string()), pa.array(index, pa.int64()))
    assert found.to_pylist() == [None if i is None else texts[i] for i in index]
    assert pa.types.is_large_string(found.type) or found.nbytes <= 60 + 5 * len(index)


@settings(MANY, max_examples=examples(12))
@given(st.lists(st.none() | st.binary(max_size=70), max_size=20), st.integers(0, 5))
def test_hashes_do_not_depend_on_the_width_of_the_type(values: list[bytes | None], at: int) -> None:
    narrow, wide = pa.array(values, pa.binary()), pa.array(values, pa.large_binary())
    hashes, valid = hash_columns([narrow])
    for other in (wide, pa.concat_arrays([narrow])):
        assert (hash_columns([other])[0] == hashes).all()
        assert (hash_columns([other.slice(at)])[0] == hashes[at:]).all()
    assert valid.tolist() == [value is not None for value in values]


@settings(MANY, max_examples=examples(25))
@given(st.integers(1, 60), st.integers(1, 400), SEEDS)
def test_composites_are_cut_so_that_what_is_taken_of_them_fits(limit: int, most: int, seed: int) -> None:
    draw = np.random.default_rng(seed)

    def rows_of(n: int) -> Rows:
        texts = ["x" * int(draw.choice([0, 3, 30, 300])) + str(i) for i in range(n)]
        keys = draw.integers(0, 3, n)
        return sort_rows(pa.table({HASH: keys, TIME: draw.integers(0, 9, n), "text": texts, "__k0": keys.astype(str)}))

    pools = [Pool(rows_of(int(draw.integers(0, 7))), rows_of(int(draw.integers(0, 5)))) for _ in range(3)]

    def found(**bounds: int) -> list[tuple[Any, ...]]:
        rows = []
        for batch in composites(pools, [None, 5, 3], taken=[{"text"}] * 3, **bounds):
            texts = [column(pool, "text", index) for pool, index in zip(pools, batch.index, strict=True)]
            times, deadlines = (side.tolist() for side in batch.times_and_deadlines())
            assert len(batch) == 1 or sum(sizes.row_bytes(each).sum() for each in texts) <= bounds.get(
                "most_bytes", 1e9
            )
            rows += zip(*(each.to_pylist() for each in texts), times, deadlines, strict=True)
        return sorted(rows)

    with tiny_limits():  # keys are compared in pieces, too
        assert found(limit=limit, most_bytes=most) == found()


@settings(MANY, max_examples=examples(25))
@given(tables_of_anything(max_rows=40), st.integers(1, 4), SEEDS)
def test_envelopes_are_cut_by_bytes(table: pa.Table, slots: int, seed: int) -> None:
    draw, n, names = np.random.default_rng(seed), table.num_rows, tuple(table.column_names)
    store = Store(0, "s", "S", ("k",), ("k",), False, (), takes_all=True, columns=names, window_us=9)
    hashes = pa.array(draw.integers(0, 1 << 62, n) * 4)
    whole = table.append_column(TIME, pa.array(draw.integers(0, 9, n))).append_column(store.branch_column(HASH), hashes)
    branch = Branch(0, "S", (store,), names)
    routes = Routes({0: SlotTable(2, np.arange(4, dtype=np.int32) % slots)}, slots, 4)

    def received() -> dict[tuple[int, int], list[pa.Table]]:
        found: dict[tuple[int, int], list[pa.Table]] = {}
        for envelope in route(whole, branch, routes)[0]:
            found.setdefault((envelope.slot, envelope.kind), []).append(unpack(envelope.blob))
        return found

    usual = {at: [row for part in parts for row in part.to_pylist()] for at, parts in received().items()}
    with tiny_limits(array=200):
        cut = received()
        assert {at: [row for part in parts for row in part.to_pylist()] for at, parts in cut.items()} == usual
        for piece in (piece for parts in cut.values() for piece in parts):
            assert piece.num_rows == 1 or sizes.table_bytes(piece).sum() <= 150 or piece.nbytes <= 150
            assert all(f.type == sizes.narrow(f.type) for f in piece.schema) or sizes.table_bytes(piece).sum() > 200


def place_in(folder: Path) -> Place:
    return Place(Files(str(folder)), 0, 0, Directory.of(1, 1).groups)


def test_a_segment_of_several_batches_is_read_as_one(tmp_path: Path) -> None:
    """0.1.0 wrote one for each 2 GB of text."""
    (tmp_path / "segments").mkdir()
    rows = sort_rows(pa.table({HASH: list(range(20)), TIME: [0] * 20, "s": [str(i) * i for i in range(20)]}))
    segment = place_in(tmp_path).write(rows, "s", None)
    with pa.ipc.new_file(Files(str(tmp_path)).path(segment.name), rows.table.schema) as writer:
        for batch in rows.table.to_batches(max_chunksize=7):
            writer.write_batch(batch)
    size = (tmp_path / segment.name).stat().st_size
    segment = replace(segment, bytes=size, checksum=UNSEALED)  # which 0.1.0 did not have
    for limit in (1 << 28, 60):
        with mock.patch.object(sizes, "ARRAY_BYTES", limit):
            found = open_segment(Files(str(tmp_path)), segment)
            assert found.table.to_pylist() == rows.table.to_pylist()
            assert all(own.num_chunks == 1 for own in found.table.columns)


def test_no_merge_takes_more_than_memory_has_room_for() -> None:
    group = Group(0, 0, 0, 0)

    def segment(i: int, size: int) -> Segment:
        part = (Part(group.prefix, group.depth, 9),)
        return Segment(f"s{i}", "s", 9, size, 0, 0, 1 << 62, i, i, part)

    for size, is_merged in ((1000, True), (compaction.MOST_BYTES // 2, False)):
        segments = tuple(segment(i, size) for i in range(compaction.FAN))
        section = Manifest(9, Directory.of(1, 1), 1, segments).section((0, 0))
        assert bool(compaction.plan(section, None, compaction.Rules({"s": None}))) == is_merged


def test_long_texts_count_for_stripes_by_how_they_begin() -> None:
    """Hashing a text of 30 MB takes a million steps, and does not spread rows better."""
    short, long = "a" * 40, "b" * 5000
    usual = stripes(pa.table({TIME: [1], "s": [short]}))
    both = stripes(pa.table({TIME: [1, 1, 1], "s": [short, long, long + "c"]}))
    assert both[0] == usual[0]
    assert both[1] == both[2] != both[0]


def test_the_largest_text_of_a_key_may_be_that_of_each_of_its_rows() -> None:
    texts = ["b" * 50, *("a" * (i % 3) for i in range(60))]
    table = pa.table({HASH: [7] * 61, TIME: list(range(61))[::-1], "+n": [1] * 61, ">s": texts})
    with tiny_limits():
        made = summarize(table)
    assert made.table.column(">s").to_pylist() == ["b" * 50] * 61
    assert pa.types.is_large_string(made.table.schema.field(">s").type)


@settings(MANY, max_examples=examples(12))
@given(two_streams(max_epochs=8), SLOTS, GROUPS, SPILLS, SEEDS)
def test_streams_in_small_pieces_pushed_and_cleaned_up(
    case: Case, slots: int, groups: int, spills: dict[str, Any], seed: int
) -> None:
    with (
        tiny_limits(),
        harness_of(case, slots, groups, controller=restless(seed), **spills) as harness,
        often_compacted(),
    ):
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        harness.finish()
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(12))
@given(
    two_streams(max_epochs=8) | many_streams(min_streams=3, max_streams=4, max_rows=8).filter(on_one_key),
    SLOTS,
    st.integers(1, 16),
    SEEDS,
    st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_heavy_keys_in_small_pieces_and_some_epochs_in_large_ones(
    case: Case, slots: int, groups: int, seed: int, is_tiny: list[bool]
) -> None:
    """What was stored under one limit is read under another."""
    with harness_of(case, slots, groups, regridder=regridder(case, seed)) as harness, often_compacted():
        for tiny, epoch in zip(is_tiny, case.epochs, strict=False):
            with tiny_limits(*(() if tiny else (1 << 28, 1 << 26, 1 << 25))):
                harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(12))
@given(aggregate_cases([(), ("s",), ("k",), ("c", "s")]), SLOTS, SEEDS)
def test_aggregates_of_texts_in_small_pieces(made: Any, slots: int, seed: int) -> None:
    case, wanted, grouped, group_by = made
    if group_by:
        wanted = [("count", None, None), *(w for w in wanted if w != ("count", None, None))]
    kinds = {**key_type(case), "s": pa.string()}
    aggregation = aggregation_of([s.window_us for s in case.streams], wanted, grouped, group_by, kinds)
    with TemporaryDirectory() as folder, tiny_limits(30, 60, 60), often_compacted():
        harness = AggregateHarness(Path(folder), case, aggregation, slots=slots, groups=4, controller=restless(seed))
        for rows in epochs(case):
            harness.epoch(rows)
        check(case, wanted, grouped, group_by, harness.results("q"))
