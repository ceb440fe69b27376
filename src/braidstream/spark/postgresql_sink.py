"""PostgreSQL tables by `adbc-driver-postgresql`: Arrow batches go into COPY, inside one transaction with their mark.

    INSERT INTO braidstream_marks ... ON CONFLICT DO UPDATE ... WHERE the number there is lower -- else it is done
    COPY results (...) FROM STDIN                            -- or into a temporary table, and from there by key
    COMMIT

The mark is written first, so its row is locked: a second process that delivers the same epoch waits for the first, and
then finds the number taken. It does not wait for ever: the server drops a session whose machine is gone after a minute
(keepalives of its own), and where the first one is alive and does not go on, the second gives up and names it. With
`key` a row replaces the one of the same key (an upsert), as aggregates want it.

Cost: one connection and one task an epoch with results; a row of marks for each flow and outlet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from braidstream.errors import SinkError, nearest
from braidstream.model.declarations import Target
from braidstream.model.faults import reach
from braidstream.spark.arrow_rows import names_of, refuse_other_columns, result_schema
from braidstream.spark.causes import one_line
from braidstream.spark.extras import extra
from braidstream.spark.postgresql_addresses import refuse_scheme, shown, timely
from braidstream.spark.sink import Delivery, Mark, Sink
from braidstream.spark.task_delivery import in_one_task

__all__ = ["PostgresqlSink"]

_OPTIONS = ("url", "table", "key", "marks")
_MARKS = "braidstream_marks"
_MARKING = ("SELECT", "INSERT", "UPDATE")
_LOCK_S = 120
"""For a lock: longer than a server needs to find that the machine of who has it is gone."""
_SESSION = {
    "idle_in_transaction_session_timeout": "5min",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
_LOCKED = "55P03"
"""What the server says of a lock that was not to be had."""
_PLAIN = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp without time zone",
    pa.timestamp("us", "UTC"): "timestamp with time zone",
}


class PostgresqlSink(Sink):
    """A table in PostgreSQL."""

    recognizes = True

    def __init__(self, options: Mapping[str, str]) -> None:
        extra("postgresql", "dbapi")
        self.options = dict(options)
        for name in options:
            if name not in _OPTIONS:
                wrong, expected = f"the postgresql sink has no option {name!r}", f"some of {', '.join(_OPTIONS)}"
                raise SinkError(wrong, expected, nearest(name, _OPTIONS))
        for name, example in (("url", 'url = "postgresql://host/database"'), ("table", 'table = "results"')):
            if not options.get(name):
                raise SinkError(f"the postgresql sink has no option {name}", "what it needs", f"add {example}")
        refuse_scheme(options["url"])
        self._url, self._table, self._key = options["url"], options["table"], names_of(options.get("key", ""))
        self._marks = options.get("marks", _MARKS)
        self._schema: pa.Schema | None = None
        self.flow = ""
        self.description = self._described("")

    def _described(self, nulls: str) -> str:
        way = f"a row replaces the one of the same {', '.join(self._key)}{nulls}" if self._key else "appended"
        return (
            f"PostgreSQL table {self._table} at {shown(self._url)} "
            f"(each epoch once: rows, {way}, and their mark in one transaction)"
        )

    @property
    def target(self) -> Target:
        """The table."""
        return Target("postgresql", None, self.options)

    def check(self, flow: str) -> None:
        """Refuse a server that does not answer."""
        del flow
        with self._connected():
            pass

    def check_rows(self, schema: StructType) -> None:
        """Refuse types that have no form there, a table of other columns, and a key that is none."""
        self._schema = result_schema(schema, "PostgreSQL")
        mine = _kinds(self._schema)
        for name in self._key:
            if name not in mine:
                wrong = f"the results have no column {name!r}, which is the key"
                raise SinkError(wrong, f"columns among {', '.join(mine)}", nearest(name, mine))
        with self._connected() as session:
            self._refuse_unpermitted(session)
            theirs = session.columns(self._table)
            if self._key and session.tells_nulls_apart(self._table, self._key):
                self.description = self._described(", but where that is NULL it is added")
            if not theirs:
                return
            needed = {
                name: _alike(one, mine.get(name)) for name, one in theirs.items() if name in mine or one.is_needed
            }
            refuse_other_columns(f"the PostgreSQL table {self._table}", needed, mine)
            if self._key and not session.has_unique(self._table, self._key):
                raise SinkError(
                    f"the PostgreSQL table {self._table} has no unique index on the key ({', '.join(self._key)})",
                    "one, so that a row can replace another",
                    f"ALTER TABLE {_quoted(self._table)} ADD UNIQUE ({_listed(self._key)})",
                )

    def _refuse_unpermitted(self, session: _Session) -> None:
        """Refuse tables that this user may not write, and those that are not there and that he may not make."""
        acts = ("INSERT", *(("SELECT", "UPDATE") if self._key else ()))
        for table, own in ((self._table, acts), (self._marks, _MARKING)):
            lacks = session.lacks(table, own)
            if lacks is not None:
                reason, grants = lacks
                what = f"the PostgreSQL table {table} at {shown(self._url)}"
                wrong = f"the user {session.user} may not write {what}: {reason}"
                raise SinkError(wrong, "a user who may, or who may make it", grants)

    def claim(self, flow: str, owner: str = "") -> None:
        """Make the table of results and that of marks, where they are not there."""
        del owner
        self.flow = flow
        with self._connected() as session, _told(f"the tables of results and marks at {shown(self._url)}"):
            kinds = "flow text, outlet text, kind text, number bigint NOT NULL, PRIMARY KEY (flow, outlet, kind)"
            if not session.columns(self._marks):  # else CREATE would be asked for all the same
                session.run(f"CREATE TABLE IF NOT EXISTS {_quoted(self._marks)} ({kinds})")
            if self._schema is not None and not session.columns(self._table):
                columns = [f"{_quoted_name(name)} {kind}" for name, kind in _kinds(self._schema).items()]
                if self._key:
                    nulls = "NULLS NOT DISTINCT " if session.version >= 150000 else ""
                    columns.append(f"UNIQUE {nulls}({_listed(self._key)})")
                session.run(f"CREATE TABLE {_quoted(self._table)} ({', '.join(columns)})")
            session.commit()

    def deliver(self, delivery: Delivery) -> None:
        """One task, one transaction."""
        if not delivery.staged:
            return
        frame = delivery.frame()
        schema = result_schema(frame.schema, "PostgreSQL")
        outlet = f"{delivery.outlet} in {self._table}"  # late tuples may have two tables
        former = outlet if delivery.part and not self.is_shared else ""
        if delivery.part:
            outlet = f"{delivery.outlet} {delivery.part} in {self._table}"
        mark = Mark(self.flow, outlet, delivery.number)
        in_one_task(frame, _Put(self._url, self._table, tuple(self._key), self._marks, schema, mark, _LOCK_S, former))
        delivery.reach("delivery-done")

    def _connected(self) -> _Session:
        return _Session.of(self._url)


@dataclass(frozen=True)
class _Column:
    kind: str
    is_needed: bool
    """Whether a row cannot do without it."""


@dataclass(frozen=True)
class _Put:
    """What the task does."""

    url: str
    table: str
    key: tuple[str, ...]
    marks: str
    schema: pa.Schema
    mark: Mark
    lock_s: float = 0
    """How long it waits for a lock; 0: for ever."""
    former: str = ""
    """The outlet by which an earlier version may have marked it."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> int:
        name = _application(self.mark)
        with _Session.of(self.url, name, self.lock_s) as session, self._unless_locked(name):
            if self.former:
                session.take_over(self.marks, self.mark, self.former)
            if not session.has_marked(self.marks, self.mark):
                return 0
            rows = pa.RecordBatchReader.from_batches(self.schema, self._cast(batches))
            n_rows = session.upsert(self.table, self.key, rows) if self.key else session.append(self.table, rows)
            reach("delivery-put", epoch=self.mark.number)
            session.commit()
            return n_rows

    @contextmanager
    def _unless_locked(self, name: str) -> Iterator[None]:
        """A lock that somebody keeps is told with who that is."""
        try:
            yield
        except extra("postgresql", "dbapi").Error as error:
            if error.sqlstate != _LOCKED:
                raise
        else:
            return
        with _Session.of(self.url) as session:
            pid, who = session.keeper((self.marks, self.table), name)
        raise SinkError(
            f"PostgreSQL table {self.table} at {shown(self.url)} was locked for {self.lock_s:g} s by {who}",
            "a delivery of this epoch that ends, or none",
            f"end the process there if it is stopped, or that session: SELECT pg_terminate_backend({pid}); start again",
        )

    def _cast(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Times in UTC, whatever the session's zone is."""
        for batch in batches:
            yield from pa.Table.from_batches([batch]).cast(self.schema).to_batches()


class _Session:
    """A connection with a transaction, which is rolled back unless it is committed."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    def of(cls, url: str, name: str = "braidstream", lock_s: float = _LOCK_S) -> _Session:
        """Connect, or say why not."""
        try:
            made = cls(extra("postgresql", "dbapi").connect(timely(url)))
            wanted = {**_SESSION, "lock_timeout": f"{lock_s:g}s", "application_name": name}
            made.run(f"SELECT {', '.join(f'set_config({_text(one)}, {_text(wanted[one])}, false)' for one in wanted)}")
            made.commit()
        except Exception as error:
            raise SinkError(
                f"PostgreSQL at {shown(url)} cannot be used: {one_line(error)}",
                "a server that answers, and a user that may connect",
                "check the url: host, port, database, user; a password belongs into ~/.pgpass or PGPASSWORD",
            ) from None
        return made

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute, and give the rows if there are some."""
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def commit(self) -> None:
        """Commit."""
        self._connection.commit()

    @property
    def version(self) -> int:
        """Of the server: 150004 for 15.4."""
        return int(self.run("SELECT current_setting('server_version_num')::int")[0][0])

    def columns(self, table: str) -> dict[str, _Column]:
        """The columns of a table; none where it does not exist."""
        found = self.run(
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)::text, a.attnotnull, a.atthasdef, "
            f"a.attidentity::text FROM pg_attribute a WHERE a.attrelid = to_regclass({_text(_quoted(table))}) "
            "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        return {
            name: _Column(kind, not_null and not default and not own) for name, kind, not_null, default, own in found
        }

    @property
    def user(self) -> str:
        """Who is connected."""
        return str(self.run("SELECT current_user::text")[0][0])

    def lacks(self, table: str, acts: Sequence[str]) -> tuple[str, str] | None:
        """What the user lacks to do this with a table, or to make it if it is not there; and what would grant it."""
        schema = table.rpartition(".")[0] or str(self.run("SELECT coalesce(current_schema(), 'public')::text")[0][0])
        who, named = _quoted_name(self.user), _quoted_name(schema)
        rights = "has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE')"
        found = self.run(f"SELECT {rights} FROM pg_namespace WHERE nspname = {_text(schema)}")
        if not found:
            return (
                f"there is no schema {schema}",
                f"CREATE SCHEMA {named}; GRANT USAGE, CREATE ON SCHEMA {named} TO {who}",
            )
        may_use, may_make = found[0]
        if not may_use:
            return f"USAGE not granted in schema {schema}", f"GRANT USAGE ON SCHEMA {named} TO {who}"
        if not self.columns(table):
            lacks = f"it is not there, and CREATE not granted in schema {schema}"
            return None if may_make else (lacks, f"GRANT CREATE ON SCHEMA {named} TO {who}")
        asked = (f"has_table_privilege(to_regclass({_text(_quoted(table))})::oid, {_text(act)})" for act in acts)
        missing = [act for act, has in zip(acts, self.run(f"SELECT {', '.join(asked)}")[0], strict=True) if not has]
        grants = f"GRANT {', '.join(missing)} ON {_quoted(table)} TO {who}"
        return (f"{', '.join(missing)} not granted", grants) if missing else None

    def has_unique(self, table: str, key: Sequence[str]) -> bool:
        """Whether a unique index is on exactly these columns, by which a row can replace another."""
        return bool(self._uniques(table, key))

    def tells_nulls_apart(self, table: str, key: Sequence[str]) -> bool:
        """Whether rows whose key is NULL are not taken for the same one: below version 15, and by ordinary indexes."""
        if self.version < 150000:
            return True
        found = self._uniques(table, key)
        return bool(found) and all(found)

    def _uniques(self, table: str, key: Sequence[str]) -> list[bool]:
        """Of each unique index on these columns whether NULL is unlike NULL there; a primary key has none.

        What an index includes beside its columns is none of them. One on expressions, on some rows, or whose check may
        be put off, is none that a row can replace another by.
        """
        said = "to_jsonb(i)"  # earlier versions do not have all columns of this
        found = self.run(
            "SELECT string_agg(a.attname::text, chr(31) ORDER BY a.attname::text), "
            f"NOT i.indisprimary AND NOT coalesce(({said} ->> 'indnullsnotdistinct')::boolean, false) FROM pg_index i "
            "JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS c (number, place) "
            f"ON c.place <= coalesce(({said} ->> 'indnkeyatts')::int, i.indnatts) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = c.number "
            "WHERE i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL "
            f"AND i.indrelid = to_regclass({_text(_quoted(table))}) GROUP BY i.indexrelid, 2"
        )
        return [is_apart for columns, is_apart in found if columns == "\x1f".join(sorted(key))]

    def keeper(self, tables: Sequence[str], name: str) -> tuple[int, str]:
        """The session that keeps a lock on one of these: another one of this name, else that which has it longest."""
        listed = ", ".join(f"to_regclass({_text(_quoted(table))})" for table in tables)
        found = self.run(
            "SELECT a.pid, concat_ws(' ', a.application_name, 'from', coalesce(host(a.client_addr), 'this machine'), "
            "'since', a.xact_start::timestamp(0))::text FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
            f"WHERE l.granted AND l.relation IN ({listed}) AND a.pid <> pg_backend_pid() "
            f"ORDER BY a.application_name <> {_text(name)}, a.xact_start LIMIT 1"
        )
        pid, who = found[0] if found else (0, "a session that is gone now")
        return int(pid), f"session {pid} ({who})" if pid else str(who)

    def has_marked(self, marks: str, mark: Mark) -> bool:
        """Whether the mark is new: its row is locked then. Not where the same or a later one was committed."""
        values = ", ".join([_text(mark.flow), _text(mark.outlet), _text(mark.kind), str(mark.version)])
        return bool(
            self.run(
                f"INSERT INTO {_quoted(marks)} AS m (flow, outlet, kind, number) VALUES ({values}) "
                "ON CONFLICT (flow, outlet, kind) DO UPDATE SET number = EXCLUDED.number "
                "WHERE m.number < EXCLUDED.number RETURNING number"
            )
        )

    def take_over(self, marks: str, mark: Mark, former: str) -> None:
        """Where there is no mark, let that of another outlet be it."""
        self.run(
            f"INSERT INTO {_quoted(marks)} (flow, outlet, kind, number) "
            f"SELECT flow, {_text(mark.outlet)}, kind, number FROM {_quoted(marks)} WHERE (flow, outlet, kind) = "
            f"({_text(mark.flow)}, {_text(former)}, {_text(mark.kind)}) ON CONFLICT DO NOTHING"
        )

    def append(self, table: str, rows: pa.RecordBatchReader) -> int:
        """COPY into the table that the name stands for: the driver by itself looks into the first schema only."""
        found = self.run(
            "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE c.oid = to_regclass({_text(_quoted(table))})"
        )
        schema, name = found[0] if found else (table.rpartition(".")[0], table.rpartition(".")[2])
        with closing(self._connection.cursor()) as cursor:
            return int(cursor.adbc_ingest(name, rows, "append", db_schema_name=schema or None))

    def upsert(self, table: str, key: Sequence[str], rows: pa.RecordBatchReader) -> int:
        """COPY into a temporary table, which asks for nothing, and from there by key.

        Of an epoch's rows with the same key one is taken; those without a key are all added where NULLs are unlike.
        """
        names = rows.schema.names
        listed, own = _listed(names), _listed(key)
        new = f"CREATE TEMPORARY TABLE braidstream_new ON COMMIT DROP AS SELECT {listed}"
        self.run(f"{new} FROM {_quoted(table)} WITH NO DATA")
        with closing(self._connection.cursor()) as cursor:
            n_rows = int(cursor.adbc_ingest("braidstream_new", rows, "append", temporary=True))
        others = [f"{_quoted_name(name)} = EXCLUDED.{_quoted_name(name)}" for name in names if name not in key]
        act = f"UPDATE SET {', '.join(others)}" if others else "NOTHING"
        taken = f"SELECT DISTINCT ON ({own}) {listed} FROM pg_temp.braidstream_new"
        if self.tells_nulls_apart(table, key):
            lacks = " OR ".join(f"{_quoted_name(name)} IS NULL" for name in key)
            rest = f"SELECT {listed} FROM pg_temp.braidstream_new WHERE {lacks}"
            taken = f"({taken} WHERE NOT ({lacks})) UNION ALL {rest}"
        self.run(f"INSERT INTO {_quoted(table)} ({listed}) {taken} ON CONFLICT ({own}) DO {act}")
        return n_rows


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What the server refuses, said as of a sink."""
    try:
        yield
    except Exception as error:
        raise SinkError(f"{what} cannot be made: {one_line(error)}", "a user who may make them") from None


def _kinds(schema: pa.Schema) -> dict[str, str]:
    return {field.name: _kind(field) for field in schema}


def _kind(field: pa.Field) -> str:
    """The type of a column in PostgreSQL."""
    if field.type in _PLAIN:
        return _PLAIN[field.type]
    if pa.types.is_decimal(field.type):
        return f"numeric({field.type.precision},{field.type.scale})"
    if pa.types.is_list(field.type) and field.type.value_type in _PLAIN:
        return f"{_PLAIN[field.type.value_type]}[]"
    raise SinkError(
        f"the PostgreSQL sink has no form for column {field.name!r} of type {field.type}",
        "numbers, texts, bytes, dates, times, and lists of them",
        f"to_json({field.name}) AS {field.name} makes a text of it",
    )


def _application(mark: Mark) -> str:
    """What the server's sessions are known by; it takes 63 bytes of ASCII."""
    return re.sub(r"[^ -~]", "?", f"braidstream {mark.flow[:12]} {mark.outlet}")[:63]


def _alike(column: _Column, mine: str | None) -> str:
    """A column's type, in the word of ours where it takes what we send."""
    if mine == "text" and column.kind.startswith(("character varying", "text")):
        return mine
    if mine is not None and mine.startswith("numeric") and column.kind == "numeric":
        return mine
    return column.kind


def _quoted(table: str) -> str:
    return ".".join(map(_quoted_name, table.split(".")))


def _quoted_name(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted_name, names))


def _text(value: str) -> str:
    return "'{}'".format(value.replace("'", "''"))
