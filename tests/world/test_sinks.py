"""Every sink with transactions of its own gets every result once, and refuses what it cannot take."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from braidstream.errors import CheckpointMismatch, RunError, SinkError
from braidstream.model.faults import armed
from braidstream.spark.extras import extra
from braidstream.spark.flow import Flow
from braidstream.spark.sinks import make_sink
from braidstream.state.objects import _s3_store
from tests.spark import test_bad_rows as bad_rows
from tests.spark.stage import declare, in_order, pairs, some_epochs, write
from tests.spark.test_functions import ONE_FILE, RADIO, numbers_files, radio_files, signal, total
from tests.world import readers
from tests.world.servers import Kafka, Postgresql, free_port, new_name
from tests.world.servers import kafka as kafka_server

pytestmark = [pytest.mark.spark, pytest.mark.world]

EPOCHS = some_epochs(7)
QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
COMPUTED = QUERY.replace("R.v AS rv", "R.v + 0 AS rv")
REST = {"catalog": "prod", "type": "rest", "table": "results.pairs"}
EXPECTED = in_order((r["k"], r["v"], s["v"]) for r, s in pairs(EPOCHS, (10, 10)))


class Place:
    """A sink and how it is read back."""

    def __init__(self, kind: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self.kind, self.folder, name = kind, folder, new_name("pairs")
        self.name = name
        if kind == "delta":
            self.declared: dict[str, Any] = {"target": "delta", "path": str(folder / name)}
        elif kind == "iceberg":
            self.declared = {"target": "iceberg", "path": str(folder / "lake"), "table": f"results.{name}"}
        elif kind == "postgresql":
            self.server: Postgresql = request.getfixturevalue("postgresql")
            self.declared = {"target": "postgresql", "url": self.server.url, "table": name}
        else:
            self.broker: Kafka = request.getfixturevalue("kafka")
            self.declared = {"target": "kafka", "servers": self.broker.servers, "topic": self.broker.create(name)}

    def rows(self, columns: tuple[str, ...] = ("k", "rv", "sv")) -> list[Any]:
        if self.kind == "delta":
            return readers.delta_rows(self.declared["path"], columns)
        if self.kind == "iceberg":
            return readers.iceberg_rows(self.declared["path"], self.declared["table"], columns)
        if self.kind == "postgresql":
            return readers.postgresql_rows(self.server, self.name, columns)
        return readers.kafka_rows(self.broker, self.name, columns)


@pytest.fixture(params=["delta", "iceberg", "postgresql", "kafka"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path, request)


def started(spark: SparkSession, folder: Path, place: Place, text: str = QUERY, slots: int = 3) -> Any:
    flow = declare(Flow(spark, slots=slots, groups=5), {name: folder / name for name in "RS"})
    flow.query(text, name="q").to(**place.declared)
    handle = flow.start(folder / "ck", warm=False)
    handle.await_termination()
    return flow


@pytest.mark.parametrize("text", [QUERY, COMPUTED], ids=["as slots stage them", "finished by Spark"])
def test_every_result_is_there_once(spark: SparkSession, tmp_path: Path, place: Place, text: str) -> None:
    write(tmp_path, EPOCHS)
    flow = started(spark, tmp_path, place, text)
    assert EXPECTED
    assert place.rows() == EXPECTED
    assert "each epoch once" in flow.explain()
    assert not list((tmp_path / "ck" / "staged").iterdir())


@pytest.mark.parametrize("point", ["delivery-put", "delivery-done"])
def test_an_epoch_that_is_delivered_again_with_other_slots_is_there_once(
    spark: SparkSession, tmp_path: Path, place: Place, point: str
) -> None:
    write(tmp_path, EPOCHS)
    if point == "delivery-put" and place.kind in ("postgresql", "kafka"):
        pytest.skip("reached in a task: tests of deaths")
    with pytest.raises(Exception, match="injected fault"), armed(f"{point}:1:raise"):
        started(spark, tmp_path, place)
    started(spark, tmp_path, place, slots=2)
    assert place.rows() == EXPECTED


def test_two_queries_of_one_flow_are_told_apart(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = Place("postgresql", tmp_path, request)
    write(tmp_path, EPOCHS)
    flow = declare(Flow(spark, slots=2, groups=5), {name: tmp_path / name for name in "RS"})
    for name in ("a", "b"):
        flow.query(QUERY, name=name).to(**place.declared)
    flow.start(tmp_path / "ck", warm=False).await_termination()
    assert place.rows() == in_order(EXPECTED * 2)


def test_a_table_of_another_schema_is_refused_before_anything_starts(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    write(tmp_path, EPOCHS[:1])
    for kind in ("delta", "iceberg", "postgresql"):
        place = Place(kind, tmp_path, request)
        flow = declare(Flow(spark), {name: tmp_path / name for name in "RS"})
        flow.query(QUERY, name="q").to(**place.declared)
        flow.start(tmp_path / f"ck-{kind}", warm=False).await_termination()
        flow = declare(Flow(spark), {name: tmp_path / name for name in "RS"})
        flow.query(QUERY.replace("R.v AS rv", "R.name AS rv, R.v AS more"), name="q").to(**place.declared)
        with pytest.raises(SinkError, match="has another schema") as refused:
            flow.start(tmp_path / "ck-other", warm=False)
        assert "rv is" in refused.value.wrong
        assert "more" in refused.value.wrong
        assert not (tmp_path / "ck-other").exists()


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"target": "postgresql", "url": "postgresql://127.0.0.1:{port}/x", "table": "t"}, "PostgreSQL at 127.0.0.1"),
        ({"target": "kafka", "servers": "127.0.0.1:{port}", "topic": "t"}, "does not answer"),
        ({"target": "kafka", "servers": "10.255.255.1:9092", "topic": "t"}, "does not answer"),
        ({"target": "postgresql", "url": "postgresql://10.255.255.1/x", "table": "t"}, "PostgreSQL at 10.255.255.1"),
        ({"target": "postgresql", "url": "postgresql://127.0.0.1:{silent}/x", "table": "t"}, "timeout expired"),
        ({"target": "kafka", "servers": "127.0.0.1:{silent}", "topic": "t"}, "does not answer"),
        ({"target": "iceberg", **REST, "uri": "http://127.0.0.1:{silent}"}, "does not answer within"),
        ({"target": "iceberg", **REST, "uri": "http://127.0.0.1:{port}"}, "Connection refused"),
        ({"target": "parquet", "path": "s3://bucket/out"}, "S3 at .* does not answer within"),
        ({"target": "delta", "path": "s3://bucket/out"}, "S3 at .* does not answer within"),
    ],
)
def test_a_wrong_address_is_found_within_ten_seconds(
    declared: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra("iceberg", "catalog.rest")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        ports = {"port": free_port(), "silent": silent.getsockname()[1]}
        own = {"ENDPOINT_URL": f"http://127.0.0.1:{ports['silent']}", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
        for name, value in own.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        _s3_store.cache_clear()
        given = {name: value.format(**ports) for name, value in declared.items()}
        began = time.monotonic()
        with pytest.raises(SinkError, match=told):
            make_sink(given.pop("target"), given.pop("path", None), given).check("flow")
        assert time.monotonic() - began < 10
    _s3_store.cache_clear()


def test_brokers_that_go_by_names_where_nobody_is_are_told_from_silent_ones() -> None:
    """As in a container whose `advertised.listeners` nobody outside knows: the first answer comes, and no other."""
    nowhere = free_port()
    with kafka_server(advertised=f"127.0.0.1:{nowhere}") as broker:
        began = time.monotonic()
        with pytest.raises(SinkError, match=f"its brokers say that they are at 127.0.0.1:{nowhere}") as refused:
            make_sink("kafka", None, {"servers": broker.servers, "topic": "t"}).check("flow")
        assert time.monotonic() - began < 10
    assert "advertised.listeners" in refused.value.fix


def test_an_iceberg_table_with_partitions_is_refused(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    where = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = load_catalog("braidstream", **where)
    catalog.create_namespace("results")
    table = catalog.create_table("results.pairs", pa.schema([(name, pa.int64()) for name in ("k", "rv", "sv")]))
    with table.update_spec() as spec:
        spec.add_identity("k")
    sink = make_sink("iceberg", str(tmp_path), {"table": "results.pairs"})
    with pytest.raises(SinkError, match=r"results\.pairs is partitioned"):
        sink.check_rows(StructType([StructField(name, LongType()) for name in ("k", "rv", "sv")]))


def test_marks_are_in_the_table_that_is_named_for_them(
    spark: SparkSession, tmp_path: Path, postgresql: Postgresql
) -> None:
    write(tmp_path, EPOCHS)
    table, marks = new_name("t"), new_name("marks")

    def run() -> None:
        flow = declare(Flow(spark, slots=2, groups=5), {name: tmp_path / name for name in "RS"})
        flow.query(QUERY, name=table).to("postgresql", url=postgresql.url, table=table, marks=marks)
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed("before-manifest:1:raise"):
        run()
    run()
    assert readers.postgresql_rows(postgresql, table) == EXPECTED
    assert postgresql.psql(f"SELECT DISTINCT outlet FROM {marks}") == [f"{table} in {table}"]


def test_other_marks_are_refused_while_an_epoch_may_be_in_the_table(
    spark: SparkSession, tmp_path: Path, postgresql: Postgresql
) -> None:
    write(tmp_path, EPOCHS)
    table, marks = new_name("t"), new_name("marks")

    def run(**options: str) -> None:
        flow = declare(Flow(spark, slots=2, groups=5), {name: tmp_path / name for name in "RS"})
        flow.query(QUERY, name="q").to("postgresql", url=postgresql.url, table=table, **options)
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed("before-manifest:1:raise"):
        run()
    with pytest.raises(CheckpointMismatch, match="its results may be in the table of query 'q' already"):
        run(marks=marks)
    run()
    run(marks=marks)
    assert readers.postgresql_rows(postgresql, table) == EXPECTED


def test_other_marks_of_rows_that_fail_are_refused_while_an_epoch_may_be_in_the_table(
    spark: SparkSession, tmp_path: Path, postgresql: Postgresql
) -> None:
    write(tmp_path, EPOCHS)
    table, marks = new_name("failed"), new_name("marks")
    text = QUERY.replace("R.v AS rv", "CAST(R.name AS INT) AS rv")

    def run(**options: str) -> None:
        flow = declare(Flow(spark, slots=2, groups=5), {name: tmp_path / name for name in "RS"})
        flow.query(text, name="q").to("noop").bad("postgresql", url=postgresql.url, table=table, **options)
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed("before-manifest:1:raise"):
        run()
    with pytest.raises(CheckpointMismatch, match="its results may be in the table of query 'q' already"):
        run(marks=marks)
    run()
    run(marks=marks)
    assert postgresql.psql(f"SELECT count(*) FROM {table}") == [str(len(EXPECTED))]


def test_other_marks_of_bad_rows_are_refused_while_an_epoch_may_be_in_the_table(
    spark: SparkSession, tmp_path: Path, postgresql: Postgresql
) -> None:
    bad_rows.write(tmp_path / "R", 0, [bad_rows.row(1, 1, 50), bad_rows.bad("x")])
    bad_rows.write(tmp_path / "S", 0, [bad_rows.row(1, 10, 50)])
    table, marks = new_name("bad"), new_name("marks")

    def run(**options: str) -> None:
        flow = bad_rows.declared(spark, tmp_path).bad("R", "postgresql", url=postgresql.url, table=table, **options)
        flow.query(bad_rows.TEXT, name="q").to("noop")
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed("before-manifest:0:raise"):
        run()
    bad_rows.write(tmp_path / "R", 1, [bad_rows.row(1, 1, 51), bad_rows.bad("y")])
    run()
    bad_rows.write(tmp_path / "R", 2, [bad_rows.row(1, 1, 52), bad_rows.bad("z")])
    with pytest.raises(Exception, match="injected fault"), armed("before-manifest:2:raise"):
        run()
    with pytest.raises(CheckpointMismatch, match="may be in the table of stream 'R', bad rows already"):
        run(marks=marks)
    run()
    run(marks=marks)
    assert postgresql.psql(f"SELECT message FROM {table} ORDER BY 1") == ["x", "y", "z"]


OWED = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE UNBOUNDED], S [RANGE 60 SECONDS] WHERE R.k = S.k"
LEFT = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 1 HOUR] LEFT JOIN S [RANGE 1 HOUR] ON R.k = S.k"


def test_what_is_owed_is_not_added_to_a_delta_table_that_asks_more_of_a_writer_by_now(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The sink of what was declared until now is made of the checkpoint, and has to look at the table as well."""
    write(tmp_path, some_epochs(1, n_epochs=4))

    def run(path: str) -> None:
        flow = declare(Flow(spark, slots=2, groups=8, memory="6 KB"), {name: tmp_path / name for name in "RS"})
        flow.query(OWED, name="q").to("delta", path=str(tmp_path / path))
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed("clean-up-start:3:raise"):
        run("lake")
    table = DeltaTable(tmp_path / "lake")
    table.alter.add_constraint({"positive": "k > 0"})
    files = table.file_uris()
    with pytest.raises(SinkError, match=r"lake': it has delta.constraints.positive = k > 0"):
        run("other")
    assert DeltaTable(tmp_path / "lake").file_uris() == files


@pytest.mark.parametrize(
    ("text", "point", "final"),
    [(OWED, "clean-up-results:3:raise", False), (LEFT, "after-results:4:raise", True)],
    ids=["a step", "the end"],
)
def test_another_name_is_refused_while_what_a_query_was_owed_may_be_in_the_table(
    spark: SparkSession, tmp_path: Path, text: str, point: str, final: bool
) -> None:
    """Outside of epochs: Spark has logged nothing, and the table knows it by the name that the query had."""
    epochs = some_epochs(1, n_epochs=4)
    write(tmp_path, epochs)

    def run(name: str) -> None:
        flow = declare(Flow(spark, slots=2, groups=8, memory="6 KB"), {name: tmp_path / name for name in "RS"})
        flow.query(text, name=name).to("delta", path=str(tmp_path / "lake"))
        flow.start(tmp_path / "ck", warm=False, final=final).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed(point):
        run("q")
    before = readers.delta_rows(str(tmp_path / "lake"))
    with pytest.raises(CheckpointMismatch, match="its results may be in the table of query 'p' already"):
        run("p")
    run("q")
    after = readers.delta_rows(str(tmp_path / "lake"))
    if final:
        assert any(sv is None for _, _, sv in before)
        assert after == before
        return
    expected = in_order((r["k"], r["v"], s["v"]) for r, s in pairs(epochs, (None, 60)))
    assert after == expected
    run("p")
    assert readers.delta_rows(str(tmp_path / "lake")) == expected


def test_a_topic_that_is_missing_is_refused_with_the_command_that_makes_it(kafka: Kafka) -> None:
    with pytest.raises(SinkError, match="no Kafka topic 'nowhere'") as refused:
        make_sink("kafka", None, {"servers": kafka.servers, "topic": "nowhere"}).check("flow")
    assert "kafka-topics.sh --create --topic nowhere" in refused.value.fix


def test_with_a_key_a_row_replaces_the_one_before(spark: SparkSession, tmp_path: Path, postgresql: Postgresql) -> None:
    write(tmp_path, EPOCHS)
    table, text = (
        new_name("counts"),
        "SELECT R.k AS k, COUNT(*) AS n FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE R.k = S.k GROUP BY R.k",
    )
    flow = declare(Flow(spark, slots=2, groups=5), {name: tmp_path / name for name in "RS"})
    flow.query(text, name="q").to("postgresql", url=postgresql.url, table=table, key=["k"])
    flow.start(tmp_path / "ck", warm=False).await_termination()
    counts: dict[int, int] = {}
    for r, _ in pairs(EPOCHS, (3600, 3600)):
        counts[r["k"]] = counts.get(r["k"], 0) + 1
    assert readers.postgresql_rows(postgresql, table, ("k", "n")) == in_order(counts.items())


def test_a_key_without_a_unique_index_is_refused(spark: SparkSession, tmp_path: Path, postgresql: Postgresql) -> None:
    write(tmp_path, EPOCHS[:1])
    table = new_name("t")
    postgresql.psql(f"CREATE TABLE {table} (k bigint, rv bigint, sv bigint, at timestamptz DEFAULT now())")
    flow = declare(Flow(spark), {name: tmp_path / name for name in "RS"})
    flow.query(QUERY, name="q").to("postgresql", url=postgresql.url, table=table, key=["k", "rv"])
    with pytest.raises(SinkError, match="no unique index on the key") as refused:
        flow.start(tmp_path / "ck", warm=False)
    postgresql.psql(refused.value.fix)
    flow.start(tmp_path / "ck", warm=False).await_termination()


def test_a_user_who_may_not_write_is_refused_with_what_to_grant(postgresql: Postgresql) -> None:
    """Before anything starts, and not by the first epoch; what is said to grant is enough."""
    user, schema, table, marks = (new_name(name) for name in ("user", "schema", "t", "marks"))
    postgresql.psql(f"CREATE USER {user}; CREATE SCHEMA {schema}")
    url = postgresql.url.replace("postgres@", f"{user}@")
    rows = StructType([StructField("k", LongType())])

    def granted(declared: dict[str, str]) -> list[str]:
        told = []
        while True:
            sink = make_sink("postgresql", None, {"url": url, **declared})
            try:
                sink.check("flow")
                sink.check_rows(rows)
            except SinkError as refused:
                told.append(refused.wrong)
                assert len(told) < 5, told
                for statement in refused.fix.split(";"):
                    postgresql.psql(statement)
                continue
            sink.claim("flow")
            return told

    made = {"table": f"{schema}.{table}", "marks": f"{schema}.{marks}", "key": "k"}
    told = granted(made)
    assert told.pop(0).endswith(f"USAGE not granted in schema {schema}")
    assert told == [
        f"the user {user} may not write the PostgreSQL table {schema}.{table} at "
        f"{postgresql.host}:{postgresql.port}/postgres: it is not there, and CREATE not granted in schema {schema}"
    ]
    for name in (table, marks):
        postgresql.psql(f"ALTER TABLE {schema}.{name} OWNER TO postgres")
    told = granted(made)
    assert [one.rpartition(": ")[2] for one in told] == [
        "INSERT, SELECT, UPDATE not granted",
        "SELECT, INSERT, UPDATE not granted",
    ]
    postgresql.psql(f"REVOKE CREATE ON SCHEMA {schema} FROM {user}")
    assert granted(made) == []  # both are there: nothing is made
    told = granted({"table": f"{schema}_2.t", "marks": f"{schema}.{marks}"})
    assert told[0].endswith(f"there is no schema {schema}_2")


def test_messages_carry_key_headers_nulls_and_all_digits_of_times(
    spark: SparkSession, tmp_path: Path, kafka: Kafka
) -> None:
    import json

    write(tmp_path, EPOCHS)
    topic = kafka.create(new_name("topic"))
    flow = declare(Flow(spark, slots=2, groups=5), {name: tmp_path / name for name in "RS"})
    text = QUERY.replace("R.v AS rv", "R.v AS rv, R.ts AS at, NULLIF(R.v, R.v) AS nothing")
    flow.query(text, name="q").to("kafka", servers=kafka.servers, topic=topic, key="k")
    flow.start(tmp_path / "ck", warm=False).await_termination()
    messages = readers.kafka_messages(kafka, topic)
    assert len(messages) == len(EXPECTED)
    for message in messages:
        value = json.loads(message.value())
        assert message.key() == str(value["k"]).encode()
        assert value["nothing"] is None
        assert len(value["at"]) >= len("1970-01-01T00:00:00.000000Z")
        headers = dict(message.headers())
        assert headers["query"] == b"q"
        assert int(headers["epoch"]) >= 0


def test_types_survive_the_way_into_tables(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    write(tmp_path, EPOCHS)
    text = (
        "SELECT R.k AS k, R.name AS name, R.ts AS at, CAST(R.v AS INT) AS i, CAST(R.v AS DECIMAL(20, 3)) AS d, "
        "R.v / 3 AS f, R.v > 3 AS b, CAST(R.ts AS DATE) AS day, ARRAY(R.v, S.v) AS both "
        "FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
    )
    places = [Place(kind, tmp_path, request) for kind in ("delta", "iceberg", "postgresql")]
    flow = declare(Flow(spark, slots=2, groups=5), {name: tmp_path / name for name in "RS"})
    for place in places:
        flow.query(text, name=place.kind).to(**place.declared)
    flow.query(text, name="plain").to("parquet", path=str(tmp_path / "plain"))
    flow.start(tmp_path / "ck", warm=False).await_termination()
    plain = spark.read.parquet(str(tmp_path / "plain"))
    expected = sorted(str(row.asDict()) for row in plain.collect())
    delta = spark.createDataFrame(_delta(places[0].declared["path"]).to_pandas(), plain.schema).count()
    assert delta == len(expected) > 0
    line = places[2].server.psql(f'SELECT name, d, f, b, day, "both" FROM {places[2].name} ORDER BY d, "both" LIMIT 1')[
        0
    ]
    first = plain.orderBy("d", "both").first()
    assert line.split("|")[:2] == [first.name, str(first.d)]


def _delta(path: str) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table()


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "kafka"])
def test_a_stream_functions_windows_are_there_once_after_a_failure(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    place = Place(kind, tmp_path, request)
    name = "fft3" if kind != "postgresql" else "total"
    radio_files(tmp_path / "radio", signal(1200), [500, 800])
    numbers_files(tmp_path / "numbers", [(range(0, 500, 10), range(50)), (range(500, 1000, 10), range(50))])

    def run() -> int:
        flow = Flow(spark)
        if name == "fft3":
            flow.files("radio", tmp_path / "radio", schema=RADIO, time="ts", options=ONE_FILE)
            flow.windows(size=256, step=100).apply("fft3").to(**place.declared)
        else:
            flow.files("numbers", tmp_path / "numbers", schema="ts timestamp, v double", time="ts", options=ONE_FILE)
            flow.windows(size=10, step=5).apply(total).to(**place.declared)
        handle = flow.start(tmp_path / "ck", warm=False)
        handle.await_termination()
        return int(handle.totals[f"{name}.results"])

    with armed("after-results:1:raise"), pytest.raises(RunError, match="injected fault"):
        run()
    n = run()
    assert n > 5
    assert sorted(row[0] for row in place.rows(("seq",))) == list(range(n))
