"""Anti, as-of and interval joins of 3 million rows a stream on Spark, against DuckDB: the same multisets."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidstream.lab.testing.batch import BatchStream, batch_join_of_kind, same_rows
from braidstream.lab.workloads.key_values import UniformKeys
from braidstream.lab.workloads.stream_files import write_stream
from braidstream.spark.flow import Flow

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]

ROWS, PER_FILE, RATE, KEYS = 3_000_000, 250_000, 50_000, 700_000
SECOND = 1_000_000
FROM = "FROM R [RANGE 8 SECONDS] {} S [RANGE 5 SECONDS] ON R.k = S.k"
INTERVAL = "S.ts BETWEEN R.ts + INTERVAL 2 SECONDS AND R.ts + INTERVAL 9 SECONDS"
QUERIES = {
    "anti": f"SELECT R.k, R.v AS rv {FROM.format('LEFT ANTI JOIN')}",
    "asof": f"SELECT R.k, R.v AS rv, S.v AS sv {FROM.format('ASOF JOIN')}",
    "asof_left": f"SELECT R.k, R.v AS rv, S.v AS sv {FROM.format('ASOF LEFT JOIN')}",
    "interval": f"SELECT R.k, R.v AS rv, S.v AS sv FROM R JOIN S ON R.k = S.k AND {INTERVAL}",
    "interval_left": f"SELECT R.k, R.v AS rv, S.v AS sv FROM R LEFT JOIN S ON R.k = S.k AND {INTERVAL}",
    "interval_anti": f"SELECT R.k, R.v AS rv FROM R LEFT ANTI JOIN S ON R.k = S.k AND {INTERVAL}",
}


def test_millions_of_rows_are_joined_as_by_duckdb(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times are distinct within a stream, so that the newest partner is one."""
    flow = Flow(spark, slots=2)
    for seed, name in enumerate("RS"):
        made = {"rate": RATE, "keys": UniformKeys(KEYS), "rows_per_file": PER_FILE, "seed": seed, "n_rows": ROWS}
        write_stream(tmp_path / name, arrivals="constant", **made)  # type: ignore[arg-type]
        options = {"maxFilesPerTrigger": "1"}
        flow.files(name, tmp_path / name, schema="k long, v long, ts timestamp", time="ts", options=options)
    for name, text in QUERIES.items():
        flow.query(text, name=name).to("parquet", path=tmp_path / "out" / name)
    flow.start(tmp_path / "ck", final=True).await_termination()
    streams = BatchStream("R", tmp_path / "R", 8 * SECOND), BatchStream("S", tmp_path / "S", 5 * SECOND)
    both = {"k": "R.k", "rv": "R.v", "sv": "S.v"}
    for name in QUERIES:
        if "interval" in name:
            expected = by_interval(tmp_path, name)
        else:
            shown = {"k": "R.k", "rv": "R.v"} if name == "anti" else both
            expected = batch_join_of_kind(name, streams, [("R.k", "S.k")], shown)
        told = same_rows(tmp_path / "out" / name, expected)
        assert told, f"{name}: {told}"
        assert expected.num_rows > 100_000, name
        with capsys.disabled():
            print(f"{name}: {told}")


def by_interval(folder: Path, name: str) -> pa.Table:
    kind = {"interval": "JOIN", "interval_left": "LEFT JOIN", "interval_anti": "ANTI JOIN"}[name]
    columns = "R.k, R.v AS rv" + ("" if kind == "ANTI JOIN" else ", S.v AS sv")
    on = "R.k = S.k AND S.ts >= R.ts + INTERVAL 2 SECONDS AND S.ts <= R.ts + INTERVAL 9 SECONDS"
    sources = (f"read_parquet('{folder}/{stream}/*.parquet') AS {stream}" for stream in "RS")
    return duckdb.sql(f"SELECT {columns} FROM {f' {kind} '.join(sources)} ON {on}").to_arrow_table()
