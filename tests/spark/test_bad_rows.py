"""Rows that could not be read go to an output of their own, each once; late tuples go to theirs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from braidstream import InputError, StreamError
from braidstream.errors import SinkFailed
from braidstream.functions import WindowBatch, stream_function
from braidstream.model.faults import armed
from braidstream.spark.bad_rows import BAD, BAD_TYPE
from braidstream.spark.flow import Flow
from braidstream.spark.flow_handle import FlowHandle
from braidstream.spark.late import late_sinks
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.generations import pushed_stores

pytestmark = pytest.mark.spark

TEXT = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE R.k = S.k"
DDL = f"k long, v long, ts timestamp, {BAD} {BAD_TYPE}"


@stream_function(gives={"total": "int"}, takes={"v": "vector of int"})
def total(windows: WindowBatch) -> dict[str, Any]:
    return {"total": windows["v"].sum(axis=1)}


def write(folder: Path, number: int, rows: list[dict[str, object]]) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / f"{number}.json"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads files in this order


def row(k: int, v: int, minute: int) -> dict[str, object]:
    return {"k": k, "v": v, "ts": f"2026-01-01T00:{minute:02d}:00Z"}


def bad(text: str) -> dict[str, object]:
    return {BAD: {"reason": "no JSON", "message": text, "topic": "t", "partition": 0, "offset": 1}}


def lines(folder: Path) -> list[Any]:
    files = (file for file in folder.rglob("part-*") if "_staging" not in file.parts)
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def messages(folder: Path) -> list[str]:
    return sorted(one["message"] for one in lines(folder))


def declared(spark: SparkSession, folder: Path, **options: Any) -> Flow:
    flow = Flow(spark, slots=2, groups=4, **options)
    for name in "RS":
        source = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(folder / name))
        flow.stream(name, source, time="ts")
    return flow


def test_bad_rows_and_late_tuples_part_and_come_once_also_after_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "R", 0, [row(1, 1, 50), bad("{")])
    write(tmp_path / "R", 1, [row(1, 2, 51), row(1, 3, 0), bad("x"), bad("y")])
    write(tmp_path / "S", 0, [row(1, 10, 50)])
    write(tmp_path / "S", 1, [row(1, 11, 51)])

    def start(slots: int) -> None:
        flow = declared(spark, tmp_path).bad("R", "json", path=str(tmp_path / "bad"))
        flow.slots = slots
        for name in ("a", "b"):
            query = flow.query(TEXT, name=name).to("parquet", path=str(tmp_path / name))
            query.late("json", path=str(tmp_path / "late"))
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed("after-results:1:raise"):
        start(2)
    start(3)
    found = [json.loads(line) for file in (tmp_path / "bad").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(one["message"] for one in found) == ["x", "y", "{"]
    assert {one["reason"] for one in found} == {"no JSON"}
    late = [json.loads(line) for file in (tmp_path / "late").rglob("part-*") for line in file.read_text().splitlines()]
    assert [(one["k"], one["v"]) for one in late] == [(1, 3)]
    for name in ("a", "b"):
        results = spark.read.parquet(str(tmp_path / name)).collect()
        assert sorted((one.rv, one.sv) for one in results) == [(1, 10), (1, 11), (2, 10), (2, 11)]


def test_an_output_that_three_queries_name_is_given_a_bad_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """In a table that would have it thrice: by JDBC, where nothing is recognized."""
    write(tmp_path / "R", 0, [row(1, 1, 50), bad("{")])
    write(tmp_path / "S", 0, [row(1, 10, 50)])
    to = {"url": f"jdbc:derby:{tmp_path}/db;create=true", "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    flow = declared(spark, tmp_path).bad("R", "jdbc", dbtable="bad", **to)
    kept = [flow.query(TEXT, name=name).to("noop").late("memory") for name in "abc"]
    flow.start(tmp_path / "ck", warm=False).await_termination()
    found = spark.read.format("jdbc").options(dbtable="bad", **to).load()
    assert [one.message for one in found.collect()] == ["{"]
    assert len(late_sinks(kept)["R"].parts) == 4, "what is kept in memory is each query's own"


@pytest.mark.slow
def test_an_epoch_that_is_done_again_into_another_output_leaves_no_bad_row_in_the_old_one_where_results_are_owed(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(5):
        rows = [row(i % 3, 20 * number + i, number) for i in range(20)]
        write(tmp_path / "R", number, [*rows, bad(f"no {number}")])
        write(tmp_path / "S", number, rows)

    def start(select: str, unread: str, **options: Any) -> FlowHandle:
        flow = declared(spark, tmp_path, memory=1500, spill_share=1.0, **options)
        flow.bad("R", "json", path=str(tmp_path / unread))
        query = flow.query(TEXT.replace("R.v AS rv", select), name="q").to("parquet", path=str(tmp_path / "q"))
        query.late("json", path=str(tmp_path / f"late-{unread}"))
        return flow.start(tmp_path / "ck", warm=False)

    with pytest.raises(Exception, match="injected fault"), armed("after-results:3:raise"):
        start("R.v AS rv", "old").await_termination()
    assert pushed_stores(Checkpoint(str(tmp_path / "ck")).latest())
    handle = start("-R.v AS rv", "new")
    handle.await_termination()
    assert len(handle.changes) == 2
    assert messages(tmp_path / "old") == ["no 0", "no 1", "no 2"]
    assert messages(tmp_path / "new") == ["no 3", "no 4"]
    found = spark.read.parquet(str(tmp_path / "q")).collect()
    assert len(found) == len({(abs(one.rv), one.sv) for one in found}) == 35**2 + 35**2 + 30**2


@pytest.mark.slow
def test_a_bad_row_comes_once_where_queries_read_its_stream_with_and_without_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "R", 0, [row(1, 1, 50), bad("{")])
    write(tmp_path / "R", 1, [row(1, 2, 51), bad("x")])
    write(tmp_path / "S", 0, [row(1, 10, 50)])
    joined = TEXT.replace("SELECT", "SELECT names.n AS n,").replace(" WHERE", " JOIN names ON names.k = R.k WHERE")
    for number, names in enumerate(("b", "ab", "abc")):
        flow = declared(spark, tmp_path).bad("R", "json", path=str(tmp_path / f"bad{number}"))
        flow.table("names", spark.createDataFrame([(1, "one")], "k long, n string"))
        for name, text in zip(names, (joined, TEXT, joined.replace("names.n", "upper(names.n)")), strict=False):
            flow.query(text, name=name).to("parquet", path=str(tmp_path / f"{name}{number}"))
        flow.start(tmp_path / f"ck{number}", warm=False).await_termination()
        assert messages(tmp_path / f"bad{number}") == ["x", "{"]
        for name in names:
            results = spark.read.parquet(str(tmp_path / f"{name}{number}")).collect()
            assert sorted((one.rv, one.sv) for one in results) == [(1, 10), (2, 10)]


def test_unreadable_rows_without_an_output_of_their_own_are_late_also_beside_one_for_failing_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "R", 0, [row(1, 1, 50), row(1, 0, 50), bad("{")])
    write(tmp_path / "S", 0, [row(1, 10, 50)])
    flow = declared(spark, tmp_path)
    query = flow.query(f"{TEXT} AND 10 div R.v > 1", name="q")
    query.to("parquet", path=str(tmp_path / "q")).late("json", path=str(tmp_path / "late"))
    query.bad("json", path=str(tmp_path / "failed"))
    flow.start(tmp_path / "ck", warm=False).await_termination()
    late = lines(tmp_path / "late")
    assert [one[BAD]["message"] for one in late] == ["{"]
    assert [json.loads(one["row"])["v"] for one in lines(tmp_path / "failed")] == [0]


def test_a_function_is_given_the_bad_rows_of_a_stream_once_however_many_queries_read_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "R", 0, [row(1, 1, 50), bad("{")])
    write(tmp_path / "S", 0, [row(1, 10, 50)])
    seen: list[tuple[int, list[str]]] = []
    flow = declared(spark, tmp_path)
    flow.bad("R", lambda frame, epoch: seen.append((epoch, [one.message for one in frame.collect()])))
    for name in "ab":
        flow.query(TEXT, name=name).to("noop")
    flow.start(tmp_path / "ck", warm=False).await_termination()
    assert seen == [(0, ["{"])]


def test_a_stream_that_cannot_say_which_rows_are_bad_is_refused(spark: SparkSession) -> None:
    flow = Flow(spark).stream("R", spark.readStream.format("rate").load(), time="timestamp")
    for name in ("R", "S"):
        with pytest.raises(StreamError, match=f"stream '{name}' has no column '_bad'"):
            flow.bad(name, "noop")


def test_an_output_for_bad_rows_in_a_flow_with_a_function_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The function would leave the rows out, which are NULLs, and they would go nowhere."""
    for name in "RS":
        write(tmp_path / name, 0, [row(1, 1, 50), bad("{")])
    flow = declared(spark, tmp_path).bad("R", "json", path=str(tmp_path / "bad"))
    flow.windows(2, stream="R").apply(total).to("parquet", path=str(tmp_path / "out"))
    for go in (flow.check, flow.start):
        with pytest.raises(InputError, match="bad for stream 'R' in a flow with a function"):
            go(tmp_path / "ck")
    assert not (tmp_path / "ck" / "manifests").exists()


def test_an_output_for_bad_rows_that_fails_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "R", 0, [row(1, 1, 50), bad("{")])
    write(tmp_path / "S", 0, [row(1, 10, 50)])

    def fails(*_: object) -> None:
        raise OSError("no room")

    flow = declared(spark, tmp_path).bad("R", fails)
    flow.query(TEXT, name="q").to("noop")
    with pytest.raises(SinkFailed, match="late R"):
        flow.start(tmp_path / "ck", warm=False).await_termination()
