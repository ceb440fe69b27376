"""Every sink gets every result once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from braidstream.errors import SinkError, SinkFailed
from braidstream.spark.flow import Flow
from braidstream.spark.sinks import make_sink
from tests.spark.stage import DDL, declare, in_order, pairs, rows_of, some_epochs, write

pytestmark = pytest.mark.spark

EPOCHS = some_epochs(2)
QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
EXPECTED = in_order((r["k"], r["v"], s["v"]) for r, s in pairs(EPOCHS, (10, 10)))


def test_every_sink_gets_every_result_once_and_the_session_keeps_its_settings(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = {row.key: row.value for row in spark.sql("SET").collect()}
    flow = declare(Flow(spark, slots=3, groups=5), write(tmp_path, EPOCHS))
    formats = ("parquet", "json", "csv", "orc")
    for name in formats:
        flow.query(QUERY, name=name).to(name, path=str(tmp_path / name))
    flow.query(QUERY, name="zipped").to("parquet", path=str(tmp_path / "zipped"), compression="gzip")
    called: dict[int, list[Any]] = {}

    def receive(frame: DataFrame, epoch: int) -> None:
        called[epoch] = [tuple(row) for row in frame.collect()]

    flow.query(QUERY, name="function").to(receive)
    flow.query(QUERY, name="finished").to(receive_elsewhere := Collected())
    flow.query(QUERY.replace("R.v AS rv", "R.v + 0 AS rv"), name="computed").to(
        "parquet", path=str(tmp_path / "computed")
    )
    flow.query(QUERY, name="noop").to("noop")
    kept = flow.query(QUERY, name="memory").to("memory")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()

    assert EXPECTED
    for name in (*formats, "zipped", "computed"):
        frame = spark.read.schema("k long, rv long, sv long").format(
            "parquet" if name in ("zipped", "computed") else name
        )
        assert in_order(tuple(row) for row in frame.load(str(tmp_path / name)).collect()) == EXPECTED, name
        assert not list((tmp_path / name / "_staging").rglob("*.*")), name
    assert in_order(row for rows in called.values() for row in rows) == EXPECTED
    assert sorted(called) == sorted(receive_elsewhere.epochs) == [0, 1, 2]
    assert rows_of(kept.sink.table()) == EXPECTED  # type: ignore[union-attr]
    assert handle.totals["noop.matches"] == len(EXPECTED)
    assert {
        pq.ParquetFile(f).metadata.row_group(0).column(0).compression for f in (tmp_path / "zipped").glob("*.parquet")
    } == {"GZIP"}
    assert not list((tmp_path / "ck" / "staged").iterdir())
    assert {row.key: row.value for row in spark.sql("SET").collect()} == before


class Collected:
    """A sink that is an object with a method, not a function."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        self.epochs.append(epoch)


def test_a_sink_that_fails_is_named_and_gets_the_epoch_again(spark: SparkSession, tmp_path: Path) -> None:
    paths = write(tmp_path, EPOCHS)
    failures = [2]
    received: dict[int, list[Any]] = {}

    def receive(frame: DataFrame, epoch: int) -> None:
        if epoch in failures:
            failures.remove(epoch)
            raise OSError("the disk is full")
        assert epoch not in received
        received[epoch] = [tuple(row) for row in frame.collect()]

    def start() -> None:
        flow = declare(Flow(spark, slots=2, groups=5), paths)
        flow.query(QUERY, name="q").to(receive)
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(SinkFailed, match="sink of query 'q' failed at epoch 2: OSError: the disk is full"):
        start()
    start()
    assert in_order(row for rows in received.values() for row in rows) == EXPECTED


def test_a_start_that_died_before_the_checkpoint_was_made_can_be_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from braidstream.state.checkpoint import Checkpoint
    from braidstream.state.files import Files

    paths = write(tmp_path, EPOCHS[:1])

    def start() -> None:
        flow = declare(Flow(spark, slots=2, groups=5), paths)
        flow.query(QUERY, name="q").to("parquet", path=str(tmp_path / "out"))
        flow.start(tmp_path / "ck", warm=False).await_termination()

    for broken, method in ((Checkpoint, "create"), (Files, "replace"), (Checkpoint, "sweep")):
        with monkeypatch.context() as patch:
            patch.setattr(broken, method, _dies)
            with pytest.raises(KeyboardInterrupt):
                start()
    start()
    found = spark.read.parquet(str(tmp_path / "out")).count()
    assert found == sum(1 for _ in pairs(EPOCHS[:1], (10, 10))) > 0


def _dies(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("content", ["", "{", "[]", '{"flower": 1}', "null"])
def test_a_damaged_mark_of_a_folder_is_named_with_its_remedy(tmp_path: Path, content: str) -> None:
    mark = tmp_path / "_braidstream.json"
    mark.write_text(content)
    sink = make_sink("parquet", str(tmp_path), {})
    for act in (sink.check, sink.claim):
        with pytest.raises(SinkError, match="is damaged") as refused:
            act("flow")
        assert str(mark) in str(refused.value)
        assert "restore" in refused.value.fix
    assert mark.read_text() == content


def test_two_queries_cannot_share_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    flow = Flow(spark)
    declare(flow, write(tmp_path, EPOCHS[:1]), ddl=DDL)
    flow.query(QUERY, name="a").to("parquet", path=str(tmp_path / "out"))
    flow.query(QUERY, name="b").to("json", path=str(tmp_path / "out"))
    with pytest.raises(SinkError, match="'a' and 'b' have the same sink path"):
        flow.start(tmp_path / "ck")
    assert not (tmp_path / "ck").exists()
