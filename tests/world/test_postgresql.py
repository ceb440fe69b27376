"""What a table of PostgreSQL's may be like, and what of its server's settings a delivery meets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from braidstream.errors import SinkError
from braidstream.model.faults import armed
from braidstream.spark import postgresql_sink
from braidstream.spark.sink import Mark
from braidstream.spark.sinks import make_sink
from tests.spark.test_bad_rows import TEXT, bad, declared, row, write
from tests.world.servers import Postgresql, new_name

pytestmark = pytest.mark.world

SCHEMA = StructType([StructField(name, LongType()) for name in ("k", "v")])


def delivered(url: str, table: str, *epochs: Sequence[tuple[int | None, int]], key: str = "", first: int = 0) -> None:
    """Epochs of rows, as a start has them that is not refused, by the task that Spark would run."""
    sink: Any = make_sink("postgresql", None, {"url": url, "table": table, **({"key": key} if key else {})})
    sink.check("flow")
    sink.check_rows(SCHEMA)
    sink.claim("flow")
    names, schema = tuple(filter(None, key.split(","))), pa.schema([(name, pa.int64()) for name in SCHEMA.names])
    for number, rows in enumerate(epochs, first):
        batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema)
        mark = Mark("flow", f"q in {table}", number)
        put = postgresql_sink._Put(url, table, names, "braidstream_marks", schema, mark, 10)
        assert put(iter([batch])) == len(rows)
        assert put(iter([batch])) == 0


def test_with_a_key_a_column_that_the_table_fills_in_by_itself_is_no_hindrance(postgresql: Postgresql) -> None:
    table = new_name("t")
    own = "id bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT now()"
    postgresql.psql(f"CREATE TABLE {table} (k bigint UNIQUE, v bigint, {own})")
    delivered(postgresql.url, table, [(1, 10), (2, 20)], [(2, 21)], key="k")
    assert postgresql.psql(f"SELECT k, v FROM {table} ORDER BY k") == ["1|10", "2|21"]
    assert postgresql.psql(f"SELECT count(*) FROM {table} WHERE id IS NULL OR at IS NULL") == ["0"]


@pytest.mark.parametrize("key", ["", "k"])
def test_a_table_is_found_where_the_search_path_has_it(postgresql: Postgresql, key: str) -> None:
    user, table = new_name("user"), new_name("t")
    postgresql.psql(f"CREATE USER {user} SUPERUSER; CREATE SCHEMA {user} AUTHORIZATION {user}")
    postgresql.psql(f"CREATE TABLE public.{table} (k bigint UNIQUE, v bigint)")
    url = postgresql.url.replace("postgres@", f"{user}@")
    delivered(url, table, [(1, 10)], key=key)
    assert postgresql.psql(f"SELECT k, v FROM public.{table}") == ["1|10"]


def test_rows_without_a_key_are_all_added_where_the_server_tells_nulls_apart(postgresql: Postgresql) -> None:
    table = new_name("t")
    postgresql.psql(f"CREATE TABLE {table} (k bigint UNIQUE, v bigint)")
    delivered(postgresql.url, table, [(None, 1), (None, 2), (3, 3)], [(None, 4), (3, 5)], key="k")
    assert postgresql.psql(f"SELECT v FROM {table} ORDER BY v") == ["1", "2", "4", "5"]


@pytest.mark.parametrize(
    ("index", "key"),
    [("(k, v)", "k"), ("(k) INCLUDE (v)", "k,v"), ("(k, abs(v))", "k"), ("(k) WHERE v > 0", "k")],
)
def test_an_index_by_which_no_row_can_replace_another_is_refused(postgresql: Postgresql, index: str, key: str) -> None:
    table = new_name("t")
    postgresql.psql(f"CREATE TABLE {table} (k bigint, v bigint); CREATE UNIQUE INDEX ON {table} {index}")
    with pytest.raises(SinkError, match="no unique index on the key"):
        delivered(postgresql.url, table, [(1, 1)], key=key)


def test_an_index_whose_check_may_be_put_off_is_refused(postgresql: Postgresql) -> None:
    table = new_name("t")
    postgresql.psql(f"CREATE TABLE {table} (k bigint, v bigint, UNIQUE (k) DEFERRABLE)")
    with pytest.raises(SinkError, match="no unique index on the key"):
        delivered(postgresql.url, table, [(1, 1)], key="k")


def test_an_index_that_includes_other_columns_is_one_on_the_key(postgresql: Postgresql) -> None:
    table = new_name("t")
    postgresql.psql(f"CREATE TABLE {table} (k bigint, v bigint); CREATE UNIQUE INDEX ON {table} (k) INCLUDE (v)")
    delivered(postgresql.url, table, [(1, 10), (2, 20)], [(2, 21)], key="k")
    assert postgresql.psql(f"SELECT k, v FROM {table} ORDER BY k") == ["1|10", "2|21"]


@pytest.mark.parametrize("password", ["a?b", "a#b", "a[b"])
def test_a_password_may_have_characters_that_other_addresses_may_not(postgresql: Postgresql, password: str) -> None:
    """As PostgreSQL's own clients take them."""
    table = new_name("t")
    delivered(postgresql.url.replace("postgres@", f"postgres:{password}@"), table, [(1, 10)])
    assert postgresql.psql(f"SELECT k, v FROM {table}") == ["1|10"]


@pytest.mark.spark
def test_bad_rows_and_late_tuples_of_one_epoch_in_one_table_are_all_there_once(
    spark: SparkSession, tmp_path: Path, postgresql: Postgresql
) -> None:
    """In a table that has the columns of both."""
    write(tmp_path / "R", 0, [row(1, 1, 50)])
    write(tmp_path / "R", 1, [row(1, 2, 51), row(1, 3, 0), bad("x"), bad("y")])
    write(tmp_path / "S", 0, [row(1, 10, 50)])
    write(tmp_path / "S", 1, [row(1, 11, 51)])
    table = new_name("dead")
    known = 'reason text, message text, topic text, partition integer, "offset" bigint'
    postgresql.psql(f"CREATE TABLE {table} (k bigint, v bigint, ts timestamptz, {known})")

    def start(slots: int) -> None:
        to = {"url": postgresql.url, "table": table}
        flow = declared(spark, tmp_path).bad("R", "postgresql", **to).bad("S", "noop")
        flow.slots = slots
        flow.query(TEXT, name="q").to("noop").late("postgresql", **to)
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed("after-results:1:raise"):
        start(2)
    start(3)
    assert postgresql.psql(f"SELECT coalesce(message, v::text) FROM {table} ORDER BY 1") == ["3", "x", "y"]


def test_the_mark_that_an_earlier_version_left_of_bad_rows_is_found(postgresql: Postgresql) -> None:
    table = new_name("bad")
    delivered(postgresql.url, table, [(1, 10)], first=5)
    outlet, batch = f"q bad in {table}", pa.RecordBatch.from_pydict({"k": [1], "v": [10]})
    for number, n_rows in ((5, 0), (6, 1), (6, 0)):
        mark, former = Mark("flow", outlet, number), f"q in {table}"
        put = postgresql_sink._Put(postgresql.url, table, (), "braidstream_marks", batch.schema, mark, 10, former)
        assert put(iter([batch])) == n_rows
