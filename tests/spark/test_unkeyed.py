"""Joins without an equality on Spark: bands, any predicate and none, against DuckDB; direct and general sources."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import braidstream
from braidstream import jobs
from braidstream.errors import InputError, QueryError
from braidstream.jobs.checking import check_job
from braidstream.lab.testing.batch import same_rows
from braidstream.lab.workloads import append_files
from braidstream.spark.flow import Flow

pytestmark = pytest.mark.spark

DDL = "n int, x double, d decimal(12,3), s string, ts timestamp"
SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("d", pa.decimal128(12, 3)),
        ("s", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
FROM = "FROM R [RANGE 20 SECONDS], S [RANGE 30 SECONDS]"
BAND = f"SELECT R.n AS r, S.n AS s, R.x + S.x AS sum {FROM} WHERE ABS(R.x - S.x) < 0.5"


def write(folder: Path, n_epochs: int, rows: int, seed: int = 5) -> None:
    """An epoch of ten seconds a file; numbers with NULLs and NaN among them."""
    rng = np.random.default_rng(seed)
    before = len(list((folder / "R").glob("*.parquet")))
    for epoch in range(before, before + n_epochs):
        for name in "RS":
            times = np.sort(rng.integers(epoch * 10_000_000, (epoch + 1) * 10_000_000, rows))
            reals = rng.normal(0, 20, rows)
            reals[rng.random(rows) < 0.02] = np.nan
            cents = [Decimal(int(c)).scaleb(-3) for c in rng.integers(-9000, 9000, rows)]
            columns = [
                pa.array(rng.integers(0, 100, rows), pa.int32(), mask=rng.random(rows) < 0.05),
                pa.array(reals, pa.float64(), mask=rng.random(rows) < 0.05, from_pandas=False),
                pa.array(cents, pa.decimal128(12, 3)),
                pa.array([f"s{n}" for n in rng.integers(0, 40, rows)]),
                pa.array(times, pa.timestamp("us", "UTC")),
            ]
            append_files(folder / name, [pa.table(columns, schema=SCHEMA)])


def declared(flow: Flow, folder: Path, *, directly: bool = True) -> Flow:
    for name in "RS":
        if directly:
            options = {"maxFilesPerTrigger": "1"}
            flow.files(name, folder / name, schema=DDL, time="ts", options=options, order="name")
        else:
            frame = flow.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
            flow.stream(name, frame, time="ts")
    return flow


def batch(folder: Path, select: str, where: str) -> pa.Table:
    """DuckDB's join, within the windows of FROM."""
    times = "R.ts - S.ts <= INTERVAL 30 SECOND AND S.ts - R.ts <= INTERVAL 20 SECOND"
    r, s = (f"read_parquet('{folder}/{name}/*.parquet') {name}" for name in "RS")
    return duckdb.sql(f"SELECT {select} FROM {r}, {s} WHERE {times} AND ({where})").to_arrow_table()


def test_a_band_gives_what_duckdb_does_over_restarts_with_other_slots(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, n_epochs=2, rows=300)
    for slots in (4, 2):
        flow = declared(Flow(spark, slots=slots, groups=8), tmp_path)
        flow.query(BAND, "q", allow="no-equality").to("parquet", path=str(tmp_path / "out"))
        handle = flow.start(tmp_path / "ck", warm=False)
        handle.await_termination()
        write(tmp_path, n_epochs=1, rows=300)
    shown = handle.explain()
    assert "Parquet files read in the routing task" in shown
    assert "tactic: by sorting on the first band and two binary searches" in shown
    assert "join without an equality: all rows" in shown
    assert "over 2 slots" in shown
    found = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/out/*.parquet')").to_arrow_table()
    for name in "RS":  # what was written after the last run
        max((tmp_path / name).glob("*.parquet")).unlink()
    expected = batch(tmp_path, "R.n AS r, S.n AS s, R.x + S.x AS sum", "ABS(R.x - S.x) < 0.5")
    assert expected.num_rows > 1000
    assert found.num_rows == expected.num_rows
    assert same_rows(tmp_path / "out", expected)


PREDICATES = [
    "R.n < S.n AND R.d >= S.d",
    "R.d - S.d BETWEEN -0.125 AND 1",
    "R.n + S.n > 150",
    "R.s < S.s AND R.n <> S.n",
    "levenshtein(R.s, S.s) = 1",
    "NOT (R.x < S.x)",
    "true",
]


@pytest.mark.slow
@pytest.mark.parametrize("directly", [True, False])
@pytest.mark.parametrize("where", PREDICATES)
def test_any_predicate_gives_what_duckdb_does(spark: SparkSession, tmp_path: Path, where: str, directly: bool) -> None:
    write(tmp_path, n_epochs=3, rows=120, seed=len(where))
    flow = declared(Flow(spark, slots=3, groups=8), tmp_path, directly=directly)
    query = flow.query(f"SELECT R.n AS r, S.n AS s, R.s AS a {FROM} WHERE {where}", allow="no-equality")
    query.to("parquet", path=str(tmp_path / "out"))
    flow.start(tmp_path / "ck", warm=False).await_termination()
    expected = batch(tmp_path, "R.n AS r, S.n AS s, R.s AS a", where)
    assert expected.num_rows > 100
    assert same_rows(tmp_path / "out", expected)


def test_it_is_refused_unless_it_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, n_epochs=1, rows=3)
    flow = declared(Flow(spark), tmp_path)
    with pytest.raises(QueryError, match="no join predicate connects S with R") as refused:
        flow.query(BAND)
    assert 'allow = "no-equality"' in str(refused.value)
    assert "|R| x |S| / p pairs on p slots" in str(refused.value)
    with pytest.raises(InputError, match="allow is 'equality'"):
        flow.query(BAND, allow="equality")
    with pytest.raises(QueryError, match="aggregates over a join without an equality"):
        flow.query(f"SELECT COUNT(*) AS n {FROM}", allow="no-equality")
    r, s = (spark.readStream.schema(DDL).parquet(str(tmp_path / name)) for name in "RS")
    with pytest.raises(QueryError, match="no join predicate"):
        braidstream.join(r, s, on=None, where="left.n < right.n", within="20 seconds")
    joined = braidstream.join(r, s, on=None, where="left.n < right.n", within="20 seconds", allow="no-equality")
    assert "band left.`n` - right.`n` <= -1" in joined.explain()


def test_a_job_file_allows_it(tmp_path: Path) -> None:
    write(tmp_path, n_epochs=1, rows=3)
    job: Any = f"""
        [flow]
        checkpoint = "ck"
        [streams.R]
        format = "parquet"
        path = "R"
        schema = "{DDL}"
        time = "ts"
        [streams.S]
        format = "parquet"
        path = "S"
        schema = "{DDL}"
        time = "ts"
        [queries.q]
        cql = "{BAND}"
        sink = {{ format = "noop" }}
    """
    file = tmp_path / "job.toml"
    file.write_text(job)
    with pytest.raises(QueryError, match="no join predicate"):
        check_job(jobs.read(file))
    file.write_text(job.replace("[queries.q]", '[queries.q]\nallow = "no-equality"'))
    assert check_job(jobs.read(file)).queries["q"].is_unkeyed


@pytest.mark.slow
def test_a_query_without_an_equality_is_submitted_where_that_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, n_epochs=1, rows=40)
    flow = declared(Flow(spark, slots=2, groups=8), tmp_path, directly=False)
    flow.query("SELECT R.n AS r FROM R [RANGE 30 SECONDS], S [RANGE 20 SECONDS] WHERE R.n = S.n", "keyed").to("noop")
    handle = flow.start(tmp_path / "ck", epoch="50 milliseconds", warm=False)
    n_first = 40
    while min(handle.totals.get(f"{name}.rows", 0) for name in "RS") < n_first:
        assert not handle.await_termination(0.05)
    with pytest.raises(QueryError, match="no join predicate connects"):
        flow.submit(BAND, "band", to="parquet", path=str(tmp_path / "out"))
    flow.submit(BAND, "band", to="parquet", path=str(tmp_path / "out"), allow="no-equality")
    before = {name: set((tmp_path / name).glob("*.parquet")) for name in "RS"}
    write(tmp_path, n_epochs=1, rows=60)
    while min(handle.totals.get(f"{name}.rows", 0) for name in "RS") < n_first + 60:
        assert not handle.await_termination(0.05)
    handle.stop()
    for path in (path for paths in before.values() for path in paths):
        path.unlink()  # the query sees what arrives from then on
    expected = batch(tmp_path, "R.n AS r, S.n AS s, R.x + S.x AS sum", "ABS(R.x - S.x) < 0.5")
    assert expected.num_rows > 20
    assert same_rows(tmp_path / "out", expected)
