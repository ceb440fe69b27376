"""Files of a stream and files of results: what is read means the same whoever reads it, and so does what is written."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream.errors import RunError, StreamError
from braidstream.lab.workloads import append_files
from braidstream.spark.flow import Flow
from tests.spark.stage import SECOND, in_order

pytestmark = pytest.mark.spark


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc,arg-type]


DDL = (
    "k bigint, b tinyint, h smallint, f float, x double, g boolean, y binary, n string, day date, ts timestamp, "
    "local timestamp_ntz, small decimal(5,2), mid decimal(15,2), large decimal(30,4), "
    "s struct<a: timestamp, d: decimal(7,1)>, l array<timestamp>, m map<string, smallint>"
)
NESTED = pa.struct([("A", pa.timestamp("us", "UTC")), ("D", pa.decimal128(5, 1))])
COLUMNS = [c.split()[0] for c in DDL.split(", ") if " " in c and not c.startswith("d:")]


def rows(n: int) -> pa.Table:
    moments = pa.array([utc(2024, 1, 1, 0, 0, i, i) for i in range(n)], pa.timestamp("us"))
    zoned = moments.cast(pa.timestamp("us", "UTC"))
    numbers = [Decimal(i).scaleb(-1) for i in range(n)]
    return pa.table(
        {
            "K": pa.array([i % 3 for i in range(n)], pa.int32()),
            "b": pa.array(range(n), pa.int8()),
            "h": pa.array(range(n), pa.int32()),
            "f": pa.array(range(n), pa.float32()),
            "x": pa.array(range(n), pa.int16()),
            "g": pa.array([i % 2 == 0 for i in range(n)]),
            "y": pa.array([bytes([i]) for i in range(n)]),
            "n": pa.array([str(i) for i in range(n)]).dictionary_encode(),
            "day": pa.array([utc(1600, 1, 1)] * n).cast(pa.date32()),
            "ts": zoned,
            "local": moments.cast(pa.timestamp("ms"), safe=False),
            "small": pa.array(numbers, pa.decimal128(4, 1)),
            "mid": pa.array(range(n), pa.int32()),
            "large": pa.array(numbers, pa.decimal128(20, 2)),
            "s": pa.array([None if i % 4 == 0 else {"D": Decimal(i), "A": zoned[i].as_py()} for i in range(n)], NESTED),
            "l": pa.array([[zoned[i].as_py(), None] for i in range(n)], pa.list_(pa.timestamp("us", "UTC"))),
            "m": pa.array([[("a", i)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
        }
    )


def write(folder: Path) -> None:
    for stream in "RS":
        (folder / stream).mkdir(parents=True)
        pq.write_table(rows(12), folder / stream / "1.parquet", use_deprecated_int96_timestamps=stream == "S")


def declare(spark: SparkSession, folder: Path, *, directly: bool, ddl: str = DDL) -> Flow:
    flow = Flow(spark, slots=1, groups=2)
    for stream in "RS":
        if directly:
            flow.files(stream, folder / stream, schema=ddl, time="ts", options={"maxFilesPerTrigger": "1"})
        else:
            flow.stream(stream, spark.readStream.schema(ddl).parquet(str(folder / stream)), time="ts")
    return flow


SELECT = ", ".join(f"{alias}.{c} AS {alias}_{c}" for alias in "RS" for c in COLUMNS)
QUERY = f"SELECT {SELECT} FROM R [RANGE 99 SECONDS], S [RANGE 99 SECONDS] WHERE R.k = S.k"


def leaves(path: Path) -> list[tuple[Any, ...]]:
    (file,) = path.glob("*.parquet")
    schema, groups = pq.ParquetFile(file).schema, pq.ParquetFile(file).metadata.row_group(0)
    columns = [schema.column(i) for i in range(len(schema))]
    shown = [(c.path, c.physical_type, str(c.logical_type), c.max_definition_level) for c in columns]
    return [(*told, groups.column(i).compression) for i, told in enumerate(shown)]


def contents(path: Path) -> list[str]:
    (file,) = path.glob("*.parquet")
    return in_order(tuple(row.values()) for row in pq.read_table(file).to_pylist())  # type: ignore[return-value]


@pytest.mark.slow
def test_results_are_encoded_alike_whoever_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    """Plain results are written by slots, those with a predicate by Spark; files are read directly, or by Spark."""
    write(tmp_path)
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    for directly in (True, False):
        flow = declare(spark, tmp_path, directly=directly)
        flow.query(QUERY, "plain").to("parquet", path=str(tmp_path / f"plain {directly}"))
        flow.query(f"{QUERY} AND R.x <= S.x + 99", "more").to("parquet", path=str(tmp_path / f"more {directly}"))
        assert ("read in the routing task" in flow.explain()) is directly
        flow.start(tmp_path / f"ck {directly}", warm=False).await_termination()
    outs = [tmp_path / f"{name} {directly}" for name in ("plain", "more") for directly in (True, False)]
    for out in outs[1:]:
        assert leaves(out) == leaves(outs[0])
        assert contents(out) == contents(outs[0])
    assert len(contents(outs[0])) == 48
    assert "INT96" not in {told[1] for told in leaves(outs[0])}
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before


@pytest.mark.parametrize(
    ("ddl", "told"),
    [("k bigint, x decimal(5,2), ts timestamp", "column 'x' is DOUBLE"),
     ("k string, x double, ts timestamp", "column 'k' is INT64")],
)  # fmt: skip
def test_files_of_other_types_are_refused_at_the_start(
    spark: SparkSession, tmp_path: Path, ddl: str, told: str
) -> None:
    for stream in "RS":
        append_files(tmp_path / stream, [plain_rows()])
    flow = declare(spark, tmp_path, directly=True, ddl=ddl)
    flow.query("SELECT R.x, R.k FROM R [RANGE 9 SECONDS], S [RANGE 9 SECONDS] WHERE R.k = S.k").to("noop")
    with pytest.raises(StreamError, match=rf"stream 'R': .*\.parquet: {told}"):
        flow.start(tmp_path / "ck", warm=False)
    assert not (tmp_path / "ck").exists()


def plain_rows(kind: pa.DataType | None = None) -> pa.Table:
    times = pa.array([i * SECOND for i in range(5)]).cast(pa.timestamp("us", "UTC"))
    return pa.table({"k": [1] * 5, "x": pa.array(range(5), kind or pa.float64()), "ts": times})


@pytest.mark.slow
def test_a_file_of_another_type_that_comes_later_is_named(spark: SparkSession, tmp_path: Path) -> None:
    for stream in "RS":
        append_files(tmp_path / stream, [plain_rows()] * 8)
    append_files(tmp_path / "R", [plain_rows(pa.int64())])
    last = max((tmp_path / "R").glob("*.parquet"))
    flow = declare(spark, tmp_path, directly=True, ddl="k bigint, x double, ts timestamp")
    flow.query("SELECT R.x, R.k FROM R [RANGE 9 SECONDS], S [RANGE 9 SECONDS] WHERE R.k = S.k").to("noop")
    with pytest.raises(RunError, match=rf"{last}: column 'x' is INT64"):
        flow.start(tmp_path / "ck", warm=False).await_termination()
