"""Spark's offset log on a local disk is written by our class, or by Spark's where that cannot be made; alike."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession

from braidstream.spark import log_files, session
from braidstream.state.files import Files
from braidstream.state.offsetlog import OffsetLog

pytestmark = pytest.mark.spark


def ran(spark: SparkSession, folder: Path, checkpoint: Path) -> tuple[list[int], set[str]]:
    """What a streaming query read that began on a checkpoint, and the files of its log."""
    seen: list[int] = []

    def take(frame: DataFrame, _: int) -> None:
        seen.extend(row.id for row in frame.collect())

    own = session.own_session(spark, str(checkpoint))
    stream = own.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(folder))
    writer = stream.writeStream.foreachBatch(take).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return sorted(seen), {str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file()}


def test_the_log_is_plain_files_and_goes_on_whoever_wrote_it(spark: SparkSession, tmp_path: Path) -> None:
    data, checkpoint = tmp_path / "data", tmp_path / "ck"
    assert log_files.local_file_manager(spark) == "io.braidstream.PlainLocalFiles"
    spark.range(0, 4, 1, 2).write.parquet(str(data))
    first, files = ran(spark, data, checkpoint)
    assert first == [0, 1, 2, 3]
    assert {"offsets/0", "offsets/1", "commits/0", "commits/1", "sources/0/0", "sources/0/1"} <= files
    assert not [name for name in files if name.endswith((".tmp", ".tmp.crc"))]
    assert {"offsets/.0.crc", "commits/.1.crc", "sources/0/.0.crc"} <= files
    spark.range(4, 6, 1, 1).write.mode("append").parquet(str(data))
    with mock.patch.object(log_files, "_NAME", "NotJava!"):  # which does not compile
        assert log_files.local_file_manager(spark).endswith(".FileSystemBasedCheckpointFileManager")  # type: ignore[union-attr]
        assert ran(spark, data, checkpoint)[0] == [4, 5]
    spark.range(6, 7, 1, 1).write.mode("append").parquet(str(data))
    assert ran(spark, data, checkpoint)[0] == [6]


def test_sources_that_another_session_declared_write_their_log_as_ours(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(0, 4, 1, 2).write.parquet(str(tmp_path / "data"))
    theirs = spark.newSession()
    reader = theirs.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    both = reader.parquet(str(tmp_path / "data")).where("id > 0").union(reader.parquet(str(tmp_path / "data")))
    own = session.own_session(theirs, str(tmp_path / "ck"))
    frame = session.in_session(both, own)
    theirs.conf.set("spark.sql.streaming.checkpointFileManagerClass", "no.such.Manager")
    assert sorted(rows_of(frame, tmp_path / "ck")) == [(i,) for i in (0, 1, 1, 2, 2, 3, 3)]
    with mock.patch.object(log_files, "_with_sources_in", side_effect=AttributeError):  # another Spark's internals
        assert log_files.sources_in(both._jdf.queryExecution().analyzed(), own) is not None


def test_a_source_declared_anew_has_the_columns_that_it_had(spark: SparkSession, tmp_path: Path) -> None:
    """Without a schema, Spark took them from the files that were there."""
    (tmp_path / "0.json").write_text('{"k": 1, "v": 2}\n')
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.streaming.schemaInference", "true")
    frame = theirs.readStream.json(str(tmp_path / "*.json"))
    (tmp_path / "1.json").write_text('{"a": 1, "k": 3, "v": 4}\n')
    moved = session.in_session(frame, session.own_session(theirs, str(tmp_path / "ck")))
    assert sorted(rows_of(moved, tmp_path / "ck")) == [(1, 2), (3, 4)]


def test_a_source_of_a_session_with_other_settings_is_read_as_that_says(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text('{"at": "2026-01-01 00:00:00"}\n')
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = theirs.readStream.schema("at timestamp").json(str(tmp_path / "*.json")).selectExpr("CAST(at AS long)")
    moved = session.in_session(frame, session.own_session(spark, str(tmp_path / "ck")))
    midnight = datetime(2026, 1, 1, tzinfo=ZoneInfo("America/New_York"))
    assert rows_of(moved, tmp_path / "ck") == [(int(midnight.timestamp()),)]


def rows_of(frame: DataFrame, checkpoint: Path) -> list[tuple[Any, ...]]:
    """What a streaming query of a frame reads."""
    seen: list[tuple[Any, ...]] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: seen.extend(map(tuple, batch.collect())))
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return seen


def test_the_checksums_are_hadoops(spark: SparkSession, tmp_path: Path) -> None:
    for i in range(12):
        spark.range(i, i + 1).coalesce(1).write.parquet(str(tmp_path / "data" / f"{i:0120d}"))
    seen, _ = ran(spark, tmp_path / "data" / "*", tmp_path / "ck")
    assert seen == list(range(12))
    log = OffsetLog(Files(str(tmp_path)), "ck")
    entries = [path for path in (tmp_path / "ck").rglob("[0-9]*") if path.is_file()]
    assert any(path.stat().st_size > 512 for path in entries)  # of several pieces
    assert list(log.all_damage()) == []
    for path in entries[:3]:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert [one.path for one in log.all_damage()] == [str(path)]
        path.write_bytes(content)


def test_a_frame_of_another_session_means_what_it_meant(spark: SparkSession) -> None:
    spark.range(3).createOrReplaceTempView("of_log_files")
    frame = spark.sql("SELECT id * 2 AS x FROM of_log_files WHERE id > 0")
    other = session.own_session(spark, "ck")
    other.catalog.dropTempView("of_log_files")
    moved = session.in_session(frame, other)
    assert sorted(row.x for row in moved.collect()) == [2, 4]
    assert moved.sparkSession.conf.get("spark.sql.adaptive.enabled") == "false"
    spark.catalog.dropTempView("of_log_files")
