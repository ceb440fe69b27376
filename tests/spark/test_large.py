"""Millions of rows: the output equals DuckDB's batch join, as multisets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream.spark.flow import Flow
from braidstream.testing.batch import BatchStream, batch_join, same_rows
from braidstream.workloads import BModelKeys, write_stream

pytestmark = [pytest.mark.spark, pytest.mark.slow]

N_ROWS = 3_000_000
WINDOWS = {"R": 10, "S": 4}


def test_three_million_rows_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """A minute of 50,000 tuples a second with skewed keys; each is joined with those of seconds before and after it."""
    keys = BModelKeys(domain=1_000_000, bias=0.6)
    flow = Flow(spark, slots=4, groups=64)
    for seed, name in enumerate(WINDOWS):
        write_stream(tmp_path / name, rate=50_000, keys=keys, rows_per_file=250_000, seed=seed, n_rows=N_ROWS)
        flow.files(
            name,
            tmp_path / name,
            schema="k long, v long, ts timestamp",
            time="ts",
            delay="100 milliseconds",
            options={"maxFilesPerTrigger": "1"},
        )
    ranges = ", ".join(f"{name} [RANGE {seconds} SECONDS]" for name, seconds in WINDOWS.items())
    text = f"SELECT R.k AS k, R.v AS rv, S.v AS sv FROM {ranges} WHERE R.k = S.k"
    flow.query(text, name="q").to("parquet", path=str(tmp_path / "out"))
    handle = flow.start(tmp_path / "ck")
    handle.await_termination()
    streams = [BatchStream(name, tmp_path / name, seconds * 1_000_000) for name, seconds in WINDOWS.items()]
    expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
    assert handle.totals["R.rows"] == handle.totals["S.rows"] == N_ROWS
    assert handle.totals["q.matches"] == expected.num_rows > 1_000_000
    difference = same_rows(tmp_path / "out", expected)
    assert difference, str(difference)
