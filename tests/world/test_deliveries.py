"""Deliveries to tables and folders over a long life: what they cost later on, who blocks them, tables that change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from braidstream.errors import SinkError
from braidstream.spark import delta_sink, postgresql_sink
from braidstream.spark.sink import Delivery, Mark
from braidstream.spark.sinks import make_sink
from braidstream.state import staging
from braidstream.state.files import Files
from braidstream.state.whole_epochs import result_files
from tests.spark.stage import in_order
from tests.state import object_stories as stories
from tests.world import readers, test_zombies
from tests.world.servers import S3, Postgresql, new_name, until
from tests.world.test_zombies import EXPECTED, SCHEMA, Process

pytestmark = [pytest.mark.spark, pytest.mark.world]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> Iterator[list[tuple[Any, ...]]]:
    """The calls of a function, by their arguments; they are done as always."""
    calls, act = list[tuple[Any, ...]](), getattr(place, name)

    def called(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return act(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(place, name, called)
        yield calls


def iceberg(folder: Path, **options: str) -> dict[str, str]:
    return {"target": "iceberg", "path": str(folder), "table": "results.pairs", **options}


def iceberg_table(folder: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    where = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    return load_catalog("braidstream", **where).load_table("results.pairs")


def test_an_iceberg_table_is_loaded_as_often_for_eight_files_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, loads = Process(iceberg(tmp_path), "now"), []
    for epoch, n_files in enumerate((1, 8)):
        delivery = process.delivery(epoch, n_files)
        with counted(monkeypatch, type(process.sink._catalog()), "load_table") as calls:
            process.sink.deliver(delivery)
        loads.append(len(calls))
    assert loads[0] == loads[1] <= 2
    assert readers.iceberg_rows(str(tmp_path), "results.pairs") == in_order(EXPECTED * 9)


def test_an_iceberg_tables_metadata_does_not_grow_with_the_number_of_epochs(tmp_path: Path) -> None:
    """With limits that a test reaches; the rows stay, and the mark of the last epoch, whatever expires."""
    process = Process(iceberg(tmp_path, snapshots="5"), "now")
    few = {"write.metadata.previous-versions-max": "3", "commit.manifest.min-count-to-merge": "4"}
    with iceberg_table(tmp_path).transaction() as transaction:
        transaction.set_properties(few)
    for epoch in range(14):
        process.sink.deliver(process.delivery(epoch))
    table = iceberg_table(tmp_path)
    assert len(table.snapshots()) <= 6
    assert len(table.current_snapshot().manifests(table.io)) <= 5
    assert len(list(tmp_path.rglob("*.metadata.json"))) <= 5
    again = Process(iceberg(tmp_path, snapshots="5"), "again")
    again.sink.deliver(again.delivery(13))
    assert readers.iceberg_rows(str(tmp_path), "results.pairs") == in_order(EXPECTED * 14)


def test_an_iceberg_table_that_somebody_drops_meanwhile_is_named(tmp_path: Path) -> None:
    process = Process(iceberg(tmp_path), "now")
    process.sink.deliver(process.delivery(0))
    delivery = process.delivery(1)
    process.sink._catalog().drop_table("results.pairs")
    with pytest.raises(SinkError, match=r"there is no Iceberg table results\.pairs"):
        process.sink.deliver(delivery)


@pytest.mark.parametrize("given", ["0", "-1", "all"])
def test_a_number_of_snapshots_that_is_none_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(SinkError, match=f"snapshots = '{given}'"):
        Process(iceberg(tmp_path, snapshots=given), "now")


def test_a_delta_tables_log_is_read_once_for_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process({"target": "delta", "path": str(tmp_path / "lake")}, "now")
    process.sink.deliver(process.delivery(0))
    with counted(monkeypatch, deltalake.DeltaTable, "__init__") as calls:
        for epoch in range(1, 4):
            process.sink.deliver(process.delivery(epoch))
    assert not calls
    assert readers.delta_rows(str(tmp_path / "lake")) == in_order(EXPECTED * 4)


@pytest.mark.parametrize("place", ["a folder", "S3"])
def test_a_folder_of_results_is_listed_once_for_a_start(
    tmp_path: Path, place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3: S3 | None = request.getfixturevalue("s3") if place == "S3" else None
    path = str(tmp_path / "out") if s3 is None else f"{stories.new_root(s3.bucket)}/out"
    names = (f"{uuid4().int >> 64:020d}" for _ in iter(int, 1))
    for _ in range(2):  # the second takes over, and delivers the last epoch of the first again
        process = Process({"target": "parquet", "path": path}, next(names) if s3 is None else "0" * 20)
        process.sink.deliver(process.delivery(0, 3))
        with counted(monkeypatch, Files, "names") as named, counted(monkeypatch, Files, "stamps") as stamped:
            for epoch in range(1, 4):
                process.sink.deliver(process.delivery(epoch))
        assert not [given for given in (*named, *stamped) if given[1:] == ("",)]
    shown = [name.removeprefix("s3a://") for name in result_files(path)]
    found = readers.s3_rows(shown) if s3 else readers.parquet_rows(shown)
    assert found == in_order(EXPECTED * 6)


NEEDED = pa.schema([pa.field(name, pa.int64(), nullable=name != "k") for name in ("k", "rv", "sv")])


@pytest.mark.parametrize("is_by_footer", [True, False])
def test_null_is_not_put_into_a_delta_tables_column_that_may_not_have_it(
    tmp_path: Path, is_by_footer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "lake")
    deltalake.DeltaTable.create(path, NEEDED)
    if not is_by_footer:
        monkeypatch.setattr(staging.pq, "ParquetWriter", partial(staging.pq.ParquetWriter, write_statistics=False))
    process = Process({"target": "delta", "path": path}, "now")
    process.sink.deliver(process.delivery(0))
    monkeypatch.setattr(test_zombies, "ROWS", pa.table({"k": [1, None], "rv": [2, 3], "sv": [4, 5]}))
    with pytest.raises(SinkError, match=r"NULL in column 'k', which may not be NULL in the Delta table '.*lake'"):
        process.sink.deliver(process.delivery(1))
    assert readers.delta_rows(path) == in_order(EXPECTED)
    monkeypatch.setattr(test_zombies, "ROWS", pa.table({"k": [1], "rv": pa.array([None], pa.int64()), "sv": [4]}))
    process.sink.deliver(process.delivery(1))
    assert readers.delta_rows(path) == in_order([*EXPECTED, (1, None, 4)])


def test_an_iceberg_table_with_columns_that_may_not_be_null_is_refused(tmp_path: Path) -> None:
    Process(iceberg(tmp_path), "now").sink._catalog().create_table("results.needed", NEEDED)
    sink = make_sink("iceberg", str(tmp_path), {"table": "results.needed"})
    with pytest.raises(SinkError, match=r"results\.needed has columns that may not be NULL: k"):
        sink.check_rows(SCHEMA)


def raw_delta(folder: Path, features: Sequence[str], metadata: dict[str, str]) -> str:
    """The log of an empty table."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("k", "rv", "sv")]
    fields[1]["metadata"] = metadata
    schema = json.dumps({"type": "struct", "fields": fields})
    told = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema, "partitionColumns": []}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": list(features)}
    lines = [{"protocol": protocol}, {"metaData": {**told, "configuration": {}, "createdTime": 0}}]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    return str(folder)


@pytest.mark.parametrize(
    ("features", "metadata", "reason"),
    [
        (["generatedColumns"], {"delta.generationExpression": "k + 1"}, "column rv has delta.generationExpression"),
        (["invariants"], {"delta.invariants": '{"expression": {"expression": "rv > 3"}}'}, "rv has delta.invariants"),
        (["appendOnly", "rowTracking", "domainMetadata"], {}, "a writer has to know rowTracking"),
        (["inCommitTimestamp"], {}, "a writer has to know inCommitTimestamp"),
    ],
)
def test_a_delta_table_that_asks_more_of_a_writer_is_refused_before_anything_starts(
    spark: SparkSession, tmp_path: Path, features: list[str], metadata: dict[str, str], reason: str
) -> None:
    sink = make_sink("delta", raw_delta(tmp_path / "lake", features, metadata), {})
    with pytest.raises(SinkError, match=reason):
        sink.find(spark)


def test_a_delta_table_whose_features_ask_for_nothing_is_added_to(spark: SparkSession, tmp_path: Path) -> None:
    path = raw_delta(tmp_path / "lake", ["appendOnly", "invariants", "checkConstraints", "generatedColumns"], {})
    make_sink("delta", path, {}).find(spark)
    process = Process({"target": "delta", "path": path}, "now")
    process.sink.deliver(process.delivery(0))
    assert readers.delta_rows(path) == in_order(EXPECTED)


def test_a_delta_table_that_gains_a_constraint_after_a_crash_is_not_given_the_epoch_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on Spark's Delta writes it, which no package that is published has for this Spark: here it is told."""
    declared = {"target": "delta", "path": str(tmp_path / "lake")}
    before = Process(declared, "before")
    before.sink.deliver(before.delivery(4))
    deltalake.DeltaTable(declared["path"]).alter.add_constraint({"positive": "k > 0"})
    after, given = make_sink("delta", declared["path"], {}), list[int]()
    monkeypatch.setattr(delta_sink, "find_sink", lambda *_: None)
    after.find(None)  # type: ignore[arg-type]
    after.claim("flow", "after")
    monkeypatch.setattr(after._by_spark, "deliver", lambda delivery: given.append(delivery.number))  # type: ignore[attr-defined]
    for number in (4, 5):
        after.deliver(Delivery("q", number, ["staged"], lambda: None, finished=False))  # type: ignore[arg-type,return-value]
    assert given == [5]


def test_a_delivery_that_a_stopped_process_blocks_ends_and_names_it(
    spark: SparkSession, postgresql: Postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is frozen in its COPY: its transaction is open, and its machine answers."""
    table = new_name("t")
    sink: Any = make_sink("postgresql", None, {"url": postgresql.url, "table": table})
    sink.check_rows(SCHEMA)
    sink.claim("flow")
    monkeypatch.setattr(postgresql_sink, "_LOCK_S", 1)

    def frame() -> Any:
        return spark.createDataFrame(EXPECTED, SCHEMA)

    delivery, mark = Delivery("q", 0, ["staged"], frame, finished=False), Mark("flow", f"q in {table}", 0)
    with postgresql_sink._Session.of(postgresql.url, postgresql_sink._application(mark)) as stopped:
        (pid,) = stopped.run("SELECT pg_backend_pid()")[0]
        assert stopped.has_marked("braidstream_marks", mark)
        with pytest.raises(
            Exception, match=rf"was locked for 1 s by session {pid} \(braidstream flow q in {table} from"
        ):
            sink.deliver(delivery)
        postgresql.psql(f"SELECT pg_terminate_backend({pid})")
        until(lambda: not postgresql.psql(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"), "it is gone")
        sink.deliver(delivery)
        sink.deliver(delivery)
    assert readers.postgresql_rows(postgresql, table) == in_order(EXPECTED)


def test_the_server_finds_that_a_machine_is_gone_before_others_stop_waiting(postgresql: Postgresql) -> None:
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "lock_timeout")
    with postgresql_sink._Session.of(postgresql.url) as session:
        session._connection.rollback()
        told = {
            name: session.run(f"SELECT setting::int FROM pg_settings WHERE name = '{name}'")[0][0] for name in names
        }
    idle, interval, count, lock_ms = told.values()
    assert idle > 0
    assert interval > 0
    assert count > 0
    assert idle + interval * count < lock_ms / 1000


def test_a_key_that_may_be_null_is_told_where_the_server_tells_nulls_apart(postgresql: Postgresql) -> None:
    def described(table: str, schema: StructType = SCHEMA) -> str:
        sink = make_sink("postgresql", None, {"url": postgresql.url, "table": table, "key": "k"})
        sink.check_rows(schema)
        sink.claim("flow")
        sink.check_rows(schema)
        return sink.description

    ours, theirs, told = new_name("ours"), new_name("theirs"), "but where that is NULL it is added"
    postgresql.psql(f"CREATE TABLE {theirs} (k bigint UNIQUE, rv bigint, sv bigint)")
    assert told in described(theirs)
    (version,) = postgresql.psql("SELECT current_setting('server_version_num')::int")
    assert (told in described(ours)) == (int(version) < 150000)
