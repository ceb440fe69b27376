"""The batch join over files and tables, and the comparison of multisets."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import InputError
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads import HotKey, write_stream
from tests.scale import examples

SECOND = 1_000_000
PAIRS = {"k": "R.k", "rv": "R.v", "sv": "S.v"}


def test_files_and_tables_give_the_same_join(tmp_path: Path) -> None:
    for seed, name in enumerate("RS"):
        write_stream(tmp_path / name, rate=1000, keys=HotKey(50, 0.2), rows_per_file=700, seed=seed, n_rows=3000)
    from_files = batch_join(
        [BatchStream(name, tmp_path / name, SECOND // 10) for name in "RS"], [("R.k", "S.k")], PAIRS
    )
    tables = {name: pq.read_table(tmp_path / name) for name in "RS"}
    from_tables = batch_join([BatchStream(name, tables[name], SECOND // 10) for name in "RS"], [("R.k", "S.k")], PAIRS)
    assert from_files.num_rows > 1000
    assert from_files.schema.names == ["k", "rv", "sv"]
    assert same_rows(from_files, from_tables)


def test_a_hot_key_with_a_long_history_is_not_expanded_over_all_of_it() -> None:
    # One key, one tuple a millisecond for 200 s in each stream: 4 * 10^10 pairs, of which 21 a tuple are in windows.
    n, window = 200_000, 10_000
    table = pa.table({"k": pa.array([1] * n), "ts": pa.array(range(0, n * 1000, 1000))})
    joined = batch_join([BatchStream(name, table, window) for name in "RS"], [("R.k", "S.k")], {"one": "1"})
    assert joined.num_rows == 21 * n - 2 * sum(range(1, 11))


def test_times_before_1970_and_times_without_a_zone() -> None:
    times = [datetime(1969, 12, 31, 23, 59, 59), datetime(1970, 1, 1, 0, 0, 1)]  # noqa: DTZ001  without a zone
    zoned = pa.table({"k": [1, 1], "v": [1, 2], "ts": pa.array(times, pa.timestamp("us", tz="UTC"))})
    plain = pa.table({"k": [1, 1], "v": [1, 2], "ts": pa.array(times, pa.timestamp("us"))})
    joined = batch_join(
        [BatchStream("R", zoned, 2 * SECOND), BatchStream("S", plain, SECOND)],
        [("R.k", "S.k")],
        {"r": "R.v", "s": "S.v"},
    )
    assert sorted(tuple(row.values()) for row in joined.to_pylist()) == [(1, 1), (1, 2), (2, 2)]


def test_unknown_streams_columns_and_paths_are_refused(tmp_path: Path) -> None:
    table = pa.table({"k": [1], "ts": [1]})
    streams = [BatchStream("R", table, 1), BatchStream("S", table, 1)]
    with pytest.raises(InputError, match=r"'Q\.k' names no stream of the join"):
        batch_join(streams, [("R.k", "Q.k")], {"k": "R.k"})
    with pytest.raises(InputError, match="stream 'S' has no column 'when'"):
        batch_join([streams[0], BatchStream("S", table, 1, time="when")], [("R.k", "S.k")], {"k": "R.k"})
    with pytest.raises(InputError, match="gone does not exist"):
        same_rows(tmp_path / "gone", table)


def test_a_folder_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2]})
    for place in ("epoch=0/part-0.parquet", "it's/part-1.parquet", "_temporary/part-2.parquet", "a/.part-3.parquet"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / place)
    (tmp_path / "_SUCCESS").touch()
    assert same_rows(tmp_path, pa.concat_tables([table, table]))
    assert same_rows(str(tmp_path / "epoch=0" / "part-0.parquet"), table)
    with pytest.raises(InputError, match="has no Parquet files"):
        same_rows(tmp_path / "a", table)


def test_a_difference_counts_and_shows_rows() -> None:
    left = pa.table({"k": [1, 1, 2, 3], "s": ["a", "a", "b", None]})
    right = pa.table({"s": ["a", "b", None, None, "z"], "k": [1, 2, 3, 3, 9]})
    difference = same_rows(left, right)
    assert not difference
    assert (difference.left_rows, difference.right_rows) == (4, 5)
    assert (difference.only_left, difference.only_right) == (1, 2)
    assert list(difference.left_examples) == [{"k": 1, "s": "a"}]
    assert {row["k"] for row in difference.right_examples} == {3, 9}
    assert "only in the right one: 2" in str(difference)


def test_nulls_nans_and_nested_values_compare_by_value() -> None:
    rows = [
        {"f": float("nan"), "l": [1, None], "s": {"a": 1, "b": "x"}, "b": b"\x00", "d": None},
        {"f": None, "l": None, "s": None, "b": None, "d": [{"q": 1.5}]},
        {"f": -1.0, "l": [], "s": {"a": None, "b": ""}, "b": b"", "d": []},
    ]
    left, right = pa.Table.from_pylist(rows), pa.Table.from_pylist(rows[::-1])
    assert same_rows(left, right)
    changed = pa.Table.from_pylist([rows[0], rows[1], {**rows[2], "l": [None]}])
    assert (same_rows(left, changed).only_left, same_rows(left, changed).only_right) == (1, 1)
    nulled = pa.Table.from_pylist([{**rows[0], "f": None}, *rows[1:]], schema=left.schema)
    assert (same_rows(left, nulled).only_left, same_rows(left, nulled).only_right) == (1, 1)


@settings(max_examples=examples(50), deadline=None)
@given(*[st.lists(st.tuples(st.sampled_from([1, 2, None]), st.sampled_from(["a", None])), max_size=12)] * 2)
def test_a_difference_is_that_of_multisets(left: list, right: list) -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    tables = [
        pa.Table.from_pylist([dict(zip("ks", row, strict=True)) for row in rows], schema) for rows in (left, right)
    ]
    difference = same_rows(*tables)
    assert difference.only_left == (Counter(left) - Counter(right)).total()
    assert difference.only_right == (Counter(right) - Counter(left)).total()
    assert difference.identical == (Counter(left) == Counter(right))


def test_millions_of_rows_are_compared_in_seconds() -> None:
    n = 3_000_000
    left = pa.table({"k": pa.array(range(n))})
    right = pa.concat_tables([left.slice(n // 2), left.slice(0, n // 2 - 1), pa.table({"k": [7]})])
    difference = same_rows(left, right)
    assert (difference.only_left, difference.only_right) == (1, 1)
    assert list(difference.left_examples) == [{"k": n // 2 - 1}]
    assert list(difference.right_examples) == [{"k": 7}]


def test_tables_with_other_columns_are_refused() -> None:
    with pytest.raises(InputError, match="different columns: k and j"):
        same_rows(pa.table({"k": [1]}), pa.table({"j": [1]}))


def test_a_missing_duckdb_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InputError, match=r"DuckDB is not installed(.|\n)*pip install 'braidstream\[dev\]'"):
        same_rows(pa.table({"k": [1]}), pa.table({"k": [1]}))
