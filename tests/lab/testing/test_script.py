"""A script writes one file a stream for every epoch, and says where each run is to die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidstream.errors import InputError
from braidstream.lab.testing.script import Abort, Act, Pause, Rows, Script

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
SCHEMAS = {"R": SCHEMA, "S": SCHEMA}


def row(v: int) -> dict:
    return {"k": 1, "v": v, "ts": v}


STORY = [
    Rows(R=[row(0), row(1)], S=[row(2)]),
    Rows(),
    Pause(),
    Rows(S=[row(3)]),
    Abort("after-results"),
    Rows(R=[row(4)]),
]


def read(script: Script, stream: str) -> list[list[int]]:
    return [pq.read_table(file)["v"].to_pylist() for file in sorted(script.path(stream).glob("*.parquet"))]


def test_each_act_finds_its_files_and_no_later_ones(tmp_path: Path) -> None:
    script = Script(tmp_path, SCHEMAS, STORY)
    acts = script.acts()
    assert next(acts) == Act(0, 2)
    assert read(script, "R") == [[0, 1], []]
    assert read(script, "S") == [[2], []]
    act = next(acts)
    assert (act.first_epoch, act.end_epoch, act.environment) == (2, 3, {"BRAIDSTREAM_FAULT": "after-results:2:kill"})
    assert read(script, "S") == [[2], [], [3]]
    act = next(acts)
    assert (act.first_epoch, act.end_epoch, act.environment) == (3, 4, {})
    assert read(script, "R") == [[0, 1], [], [], [4]]
    assert next(acts, None) is None


def test_the_oracle_sees_all_rows(tmp_path: Path) -> None:
    script = Script(tmp_path, SCHEMAS, STORY)
    assert [r["v"] for r in script.rows("R")] == [0, 1, 4]
    assert [len(epoch.get("S", ())) for epoch in script.epochs] == [1, 0, 1, 0]


def test_after_a_last_abort_there_is_a_run_that_recovers(tmp_path: Path) -> None:
    acts = list(Script(tmp_path, SCHEMAS, [Rows(R=[row(1)]), Abort()]).acts())
    assert [(act.end_epoch, act.fault is None) for act in acts] == [(1, False), (1, True)]


def test_scripts_that_cannot_be_played_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rows of 'T'"):
        Script(tmp_path, SCHEMAS, [Rows(T=[])])
    with pytest.raises(InputError, match="begins with Abort"):
        Script(tmp_path, SCHEMAS, [Abort()])
    with pytest.raises(InputError, match="names no fault point: 'lunch'"):
        list(Script(tmp_path, SCHEMAS, [Rows(), Abort("lunch")]).acts())


@pytest.fixture
def session() -> Iterator:
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    session = running or SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    if running is None:
        session.stop()


@pytest.mark.spark
def test_a_file_stream_reads_one_step_an_epoch_over_two_runs(session, tmp_path: Path) -> None:
    script = Script(tmp_path / "streams", SCHEMAS, STORY)
    seen: dict[int, list[tuple[str, int]]] = {}

    def remember(batch, epoch: int) -> None:
        seen[epoch] = sorted((r["stream"], r["v"]) for r in batch.collect())

    for _act in script.acts():
        branches = [
            session.readStream.schema("k long, v long, ts timestamp")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(script.path(name)))
            .selectExpr(f"'{name}' as stream", "v")
            for name in SCHEMAS
        ]
        query = branches[0].unionAll(branches[1]).writeStream.foreachBatch(remember)
        query.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start().awaitTermination()
    assert seen == {0: [("R", 0), ("R", 1), ("S", 2)], 1: [], 2: [("S", 3)], 3: [("R", 4)]}
