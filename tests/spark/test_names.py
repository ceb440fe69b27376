"""Streams, columns and folders of any name: what Spark takes for syntax, and what the engine calls its own columns."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from braidstream.errors import StreamError
from braidstream.lab.workloads import append_files
from braidstream.spark.flow import Flow
from braidstream.spark.oneliner import join
from tests.kernels.test_names import NAMES, quoted
from tests.spark.stage import SECOND, in_order, rows_of

pytestmark = pytest.mark.spark

FROM = "FROM R [RANGE 9 SECONDS] AS {r}, S [RANGE 9 SECONDS] AS {s} WHERE {r}.{k} = {s}.{k}"
QUERIES = {
    "plain": "SELECT {r}.{v} AS {v}, {s}.{w} AS {w} " + FROM,
    "predicate": "SELECT {r}.{v} + {s}.{v} AS {k}, concat({r}.{w}, {s}.{w}) AS {w} " + FROM + " AND {r}.{v} < {s}.{v}",
    "filtered": "SELECT {r}.{w} AS {w}, {s}.{v} AS {v} " + FROM + " AND {r}.{w} = 'a'",
    "sums": "SELECT {r}.{w} AS {w}, SUM({r}.{v}) AS {v}, MAX({s}.{v}) AS {k} " + FROM + " GROUP BY {r}.{w}",
    "many": "SELECT SUM({r}.{v} * {s}.{v}) AS {v} " + FROM + " AND {r}.{v} < {s}.{v}",
}


def write(folder: Path, names: dict[str, str]) -> StructType:
    random = Random(5)
    for stream in "RS":
        rows: dict[str, Any] = {
            names["k"]: pa.array([random.choice([1, 2, None]) for _ in range(30)], pa.int64()),
            names["v"]: pa.array([random.randrange(20) for _ in range(30)], pa.int64()),
            names["w"]: pa.array([random.choice("ab") for _ in range(30)], pa.string()),
        }
        times = pa.array([i * SECOND for i in range(30)]).cast(pa.timestamp("us", "UTC"))
        append_files(folder / stream, [pa.table({**rows, names["t"]: times})])
    kinds = {"k": LongType(), "v": LongType(), "w": StringType(), "t": TimestampType()}
    return StructType([StructField(names[place], kind) for place, kind in kinds.items()])


def results(spark: SparkSession, folder: Path, names: dict[str, str], *, directly: bool) -> dict[str, Any]:
    schema = write(folder, names)
    flow = Flow(spark, slots=2, groups=4)
    for stream in "RS":
        if directly:
            flow.files(stream, folder / stream, schema=schema, time=names["t"])
        else:
            flow.stream(stream, spark.readStream.schema(schema).parquet(str(folder / stream)), time=names["t"])
    spelled = {place: quoted(name) for place, name in names.items()}
    made = {name: flow.query(text.format(**spelled), name).to("memory") for name, text in QUERIES.items()}
    told = flow.query(QUERIES["predicate"].format(**spelled), "told", recovered=True).to("memory")
    flow.start(folder / "ck", warm=False).await_termination()
    found = {name: in_order(values(query.sink.table())) for name, query in made.items()}  # type: ignore[union-attr]
    return found | {"told": rows_of(told.sink.table())}  # type: ignore[union-attr]


def values(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


PLAIN = {"k": "k", "v": "v", "w": "w", "t": "ts", "r": "a", "s": "b"}


def test_results_do_not_depend_on_names_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Whoever reads the files, and whoever finishes the query."""
    random = Random(7)
    expected = results(spark, tmp_path / "plain", PLAIN, directly=True)
    assert all(expected.values())
    always = ["__e", "a`b", "a.b", "__d"]
    for place, directly in enumerate((True, False)):
        fitting = [name for name in NAMES if name not in ("epoch", "watermark", "recovered", *always)]
        own = random.sample(always, 2) + random.sample(fitting, 2)
        random.shuffle(own)
        names = dict(zip("kvwt", own, strict=True)) | {"r": "epoch", "s": random.choice(["__e", "x`y", "recovered"])}
        assert results(spark, tmp_path / f"odd {place}", names, directly=directly) == expected, names


def test_names_that_differ_in_case_only_are_refused(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS k", "value AS K")
    with pytest.raises(StreamError, match="two columns named 'k', but for the case of letters"):
        Flow(spark).stream("R", frame, time="ts")


def test_the_names_that_join_makes_differ_from_those_that_are_there(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS k", "value AS v")
    other = frame.selectExpr("*", "v AS left_v", "v AS `right_v`", "v AS `a``b.c`")
    made = join(frame, other, on="k", within="5 seconds", time="ts")
    names = [output.name for output in made._query.query.outputs]
    assert len({name.lower() for name in names}) == len(names) == 8
    assert {"left_v", "right_v", "a`b.c"} <= set(names)


@pytest.mark.parametrize("name", ["a[b]", "{x,y}", "st*r ?", "a\\b"])
def test_folders_whose_names_look_like_patterns_are_taken_literally(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Of streams, of results that Spark finishes, of the checkpoint."""
    folder = tmp_path / name
    schema = write(folder, PLAIN)
    found = []
    for directly in (True, False):
        flow = Flow(spark, slots=1, groups=2)
        for stream in "RS":
            options = {} if directly else {"mergeSchema": "false"}
            flow.files(stream, folder / stream, schema=schema, time="ts", options=options)
        out = folder / f"out {directly}"
        flow.query(QUERIES["predicate"].format(**PLAIN), "q").to("parquet", path=str(out))
        flow.start(folder / f"ck {directly}", warm=False).await_termination()
        found.append(rows_of(pq.ParquetDataset(sorted(str(p) for p in out.glob("*.parquet"))).read()))
    assert found[0] == found[1]
    assert found[0]
