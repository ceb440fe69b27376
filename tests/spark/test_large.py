"""Millions of rows, and rows of megabytes: the output equals the batch join, as multisets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads import BModelKeys, write_stream
from braidstream.spark.flow import Flow

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


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "general"])
def test_rows_of_30_mb_and_one_text_with_many_rows(spark: SparkSession, tmp_path: Path, is_direct: bool) -> None:
    """Three texts of 30 MB meet two rows, one of 64 KB meets 15,000: a gigabyte of results in one epoch."""
    huge, long, many = 30 << 20, 1 << 16, 15_000
    sides = {
        "R": pa.table({"k": [1, 1, 1, 2], "s": [*("abc"[i] * huge for i in range(3)), "x" * long]}),
        "S": pa.table({"k": [1, 1, *[2] * many], "v": list(range(2 + many))}),
    }
    flow = Flow(spark, slots=2, groups=8)
    for name, table in sides.items():
        (tmp_path / name).mkdir()
        times = pa.array([0] * table.num_rows, pa.timestamp("us", tz="UTC"))
        pq.write_table(table.append_column("ts", times), tmp_path / name / "0.parquet")
        schema = f"k long, {'s string' if name == 'R' else 'v long'}, ts timestamp"
        if is_direct:
            flow.files(name, tmp_path / name, schema=schema, time="ts")
        else:
            flow.stream(name, spark.readStream.schema(schema).parquet(str(tmp_path / name)), time="ts")
    text = "SELECT R.s AS s, S.v AS v FROM R [RANGE UNBOUNDED], S [RANGE UNBOUNDED] WHERE R.k = S.k"
    flow.query(text, name="q").to("parquet", path=str(tmp_path / "out"))
    flow.start(tmp_path / "ck").await_termination()
    found: Counter[tuple[str, int, int]] = Counter()
    for path in (tmp_path / "out").glob("*.parquet"):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            firsts = pc.utf8_slice_codeunits(rows["s"], 0, 1).to_pylist()
            found.update(zip(firsts, pc.binary_length(rows["s"]).to_pylist(), rows["v"].to_pylist(), strict=True))
    assert found == Counter([("abc"[i], huge, v) for i in range(3) for v in (0, 1)]) + Counter(
        ("x", long, 2 + v) for v in range(many)
    )
