"""The oracle on cases small enough to check by eye, and against SQL on random ones."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest
from hypothesis import given, settings

from braidstream.errors import InputError
from braidstream.lab.testing.batch import BatchStream, batch_join
from braidstream.lab.testing.oracle import Aggregate, Stream, aggregate, join, project, split_late
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from tests.scale import examples

ON_K = [("R.k", "S.k")]


def at(*times: int, k: object = 1) -> list[dict]:
    return [{"k": k, "v": time, "ts": time} for time in times]


def pairs(r: Stream, s: Stream) -> list[tuple]:
    return sorted(project(join([r, s], ON_K), ["R.v", "S.v"]))


def test_bounds_are_inclusive_and_each_stream_has_its_own_window() -> None:
    #  R (window 2)          10
    #  S (window 5)   4  5       12  13
    #                    |---5---|          10 - 5 <= 5: a match, 10 - 4 is not
    #                       |-2--|          12 - 10 <= 2: a match, 13 - 10 is not
    assert pairs(Stream("R", at(10), 2), Stream("S", at(4, 5, 12, 13), 5)) == [(10, 5), (10, 12)]


def test_an_unbounded_window_never_ends_and_a_window_of_zero_is_one_moment() -> None:
    assert pairs(Stream("R", at(0), None), Stream("S", at(0, 10**15), 0)) == [(0, 0), (0, 10**15)]
    assert pairs(Stream("R", at(0, 7), 0), Stream("S", at(0, 7), 0)) == [(0, 0), (7, 7)]


def test_null_equals_nothing_not_even_null_and_nan_equals_nan() -> None:
    assert pairs(Stream("R", at(1, k=None), None), Stream("S", at(1, k=None), None)) == []
    assert pairs(Stream("R", at(1, k=float("nan")), None), Stream("S", at(2, k=float("nan")), None)) == [(1, 2)]


def test_duplicates_count_as_often_as_they_come() -> None:
    assert pairs(Stream("R", at(1, 1), 5), Stream("S", at(2, 2, 2), 5)) == [(1, 2)] * 6


def test_the_window_is_checked_against_the_newest_of_all_components() -> None:
    #  A (10) 0
    #  B (10)      8
    #  C (10)           16      B - A <= 10 and C - B <= 10, but C - A is not
    streams = [Stream("A", at(0), 10), Stream("B", at(8), 10), Stream("C", at(16), 10)]
    equalities = [("A.k", "B.k"), ("B.k", "C.k")]
    assert join(streams, equalities) == []
    assert len(join([Stream("A", at(0), 16), *streams[1:]], equalities)) == 1


def test_residual_predicates_see_the_whole_composite_and_unknown_does_not_hold() -> None:
    streams = [Stream("R", at(1, 2), None), Stream("S", at(1, 2), None)]
    smaller = join(streams, ON_K, [lambda c: c["R"]["v"] < c["S"]["v"]])
    assert project(smaller, ["R.v", "S.v"]) == [(1, 2)]
    assert join(streams, ON_K, [lambda _: None]) == []


def test_a_join_without_equalities_is_the_product_within_the_windows() -> None:
    assert len(join([Stream("R", at(1, 2), 0), Stream("S", at(1, 2, 3), 0)], [])) == 2


def test_unknown_and_repeated_streams_are_refused() -> None:
    with pytest.raises(InputError, match="names no stream of the query: 'T'"):
        join([Stream("R", [], 1), Stream("S", [], 1)], [("R.k", "T.k")])
    with pytest.raises(InputError, match="a name for each"):
        join([Stream("R", [], 1), Stream("R", [], 1)], [])


def test_aggregates_are_over_live_components_only() -> None:
    #  R (window 5)   1   4          live at 9: those from 4 on
    #  S (window 2)          7   12  live at 9: those from 7 on; 12 is newer than the watermark and counts
    streams = [Stream("R", at(1, 4), 5), Stream("S", at(6, 7, 12), 2)]
    wanted = [Aggregate("COUNT"), Aggregate("SUM", "S.v"), Aggregate("AVG", "S.v"), Aggregate("MIN", "R.v")]
    assert aggregate(streams, ON_K, wanted, watermark_us=9) == [(2, 19, 9.5, 4)]


def test_aggregates_of_nothing() -> None:
    wanted = [Aggregate("COUNT"), Aggregate("COUNT", "R.v"), Aggregate("SUM", "R.v"), Aggregate("MAX", "R.v")]
    empty = [Stream("R", [], 1), Stream("S", [], 1)]
    assert aggregate(empty, ON_K, wanted, watermark_us=0) == [(0, 0, None, None)]
    assert aggregate(empty, ON_K, wanted, watermark_us=0, group_by=["R.k"]) == []


def test_aggregates_leave_nulls_out_and_group_them_together() -> None:
    rows = [{"k": 1, "g": None, "v": None, "ts": 0}, {"k": 1, "g": None, "v": 4, "ts": 0}]
    streams = [Stream("R", rows, None), Stream("S", at(0), None)]
    wanted = [Aggregate("COUNT"), Aggregate("COUNT", "R.v"), Aggregate("AVG", "R.v")]
    assert aggregate(streams, ON_K, wanted, watermark_us=0, group_by=["R.g"]) == [(None, 2, 1, 4.0)]


def test_an_unknown_aggregate_is_refused() -> None:
    streams = [Stream("R", at(1), None), Stream("S", at(1), None)]
    with pytest.raises(InputError, match="the aggregate is 'MEAN'"):
        aggregate(streams, ON_K, [Aggregate("MEAN", "R.v")], watermark_us=0)


def test_rows_older_than_the_watermark_of_the_epoch_before_are_late() -> None:
    #  epoch      0         1           2
    #  R      10  3        4, 20      11, 15
    #  S      (silent)     16          14, 30
    #  watermark  none     none -> min(20, 16 - 4) = 12
    epochs = [{"R": at(10, 3)}, {"R": at(4, 20), "S": at(16)}, {"R": at(11, 15), "S": at(12, 11, 30)}]
    on_time, late = split_late(epochs, {"R": 0, "S": 4})
    assert [row["ts"] for row in on_time["R"]] == [10, 3, 4, 20, 15]
    assert [row["ts"] for row in on_time["S"]] == [16, 12, 30]
    assert {name: [row["ts"] for row in rows] for name, rows in late.items()} == {"R": [11], "S": [11]}


def as_batch(case: Case) -> list[BatchStream]:
    return [BatchStream(stream.name, case.table(stream.name), stream.window_us) for stream in case.streams]


def columns_of(case: Case) -> dict[str, str]:
    return {f"{stream.name}_{column}": f"{stream.name}.{column}" for stream in case.streams for column in ("k", "v")}


@settings(max_examples=examples(80), deadline=None)
@given(two_streams() | many_streams())
def test_the_oracle_and_duckdb_agree_on_random_streams(case: Case) -> None:
    columns = columns_of(case)
    batch = batch_join(as_batch(case), case.equalities, columns)
    composites = join(case.streams, case.equalities)
    assert Counter(tuple(row.values()) for row in batch.to_pylist()) == Counter(
        project(composites, list(columns.values()))
    )


@settings(max_examples=examples(40), deadline=None)
@given(two_streams())
def test_the_oracle_and_duckdb_agree_on_residual_predicates(case: Case) -> None:
    batch = batch_join(as_batch(case), case.equalities, {"r": "R.v", "s": "S.v"}, ["R.v < S.v", "R.ts <> S.ts"])
    residuals = [lambda c: c["R"]["v"] < c["S"]["v"], lambda c: c["R"]["ts"] != c["S"]["ts"]]
    composites = join(case.streams, case.equalities, residuals)
    assert Counter(tuple(row.values()) for row in batch.to_pylist()) == Counter(project(composites, ["R.v", "S.v"]))


@settings(max_examples=examples(60), deadline=None)
@given(many_streams(max_streams=3, max_rows=12))
def test_the_oracle_and_duckdb_agree_on_aggregates(case: Case) -> None:
    watermark = max((row["ts"] for stream in case.streams for row in stream.rows), default=0) * 2 // 3
    live = [
        f"epoch_us({stream.name}.ts) + {stream.window_us} >= {watermark}"
        for stream in case.streams
        if stream.window_us is not None
    ]
    unbounded = [BatchStream(stream.name, case.table(stream.name), None) for stream in case.streams]
    composites = batch_join(unbounded, case.equalities, {"g": "A.k", "a": "A.v", "b": "B.v"}, live)  # noqa: F841
    wanted = [Aggregate("COUNT"), Aggregate("SUM", "A.v"), Aggregate("AVG", "B.v")]
    wanted += [Aggregate("MIN", "A.v"), Aggregate("MAX", "B.v")]
    for group_by, by in (((), ""), (("A.k",), "g, ")):
        query = f"select {by}count(*), sum(a)::bigint, avg(b), min(a), max(b) from composites"
        expected = duckdb.sql(query + (" group by g" if by else "")).fetchall()
        found = aggregate(case.streams, case.equalities, wanted, watermark_us=watermark, group_by=group_by)
        assert Counter(map(rounded, found)) == Counter(map(rounded, expected))


def rounded(row: tuple) -> tuple:
    return tuple(round(value, 9) if isinstance(value, float) else value for value in row)
