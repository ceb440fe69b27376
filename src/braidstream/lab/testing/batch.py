"""The same join by DuckDB for large inputs, and the comparison of two tables as multisets.

`batch_join` states DESIGN's condition in SQL over whole streams (Parquet folders or Arrow tables), with nothing of the
engine in it. When every window is bounded the join is also told in which stretch of time to look: two tuples of one
composite lie at most the longest window apart, so their times fall into the same stretch of that length or into
neighbouring ones. Without it a hot key would be expanded over its whole history before the windows are looked at.

`same_rows` counts each distinct row, plus on one side and minus on the other; what is not zero differs: EXCEPT ALL both
ways in one pass. NULLs equal each other here and so do NaNs; nested columns compare by value. Column types may differ
as far as DuckDB compares them (int with bigint).

Cost: DuckDB's own; three million rows a stream and as many matches take a few seconds. DuckDB is a development extra
and is imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from braidstream.errors import InputError, nearest

__all__ = ["BatchStream", "Data", "Difference", "batch_join", "batch_join_of_kind", "batch_left_joins", "same_rows"]

Data: TypeAlias = pa.Table | str | Path
"""An Arrow table, or the path of a Parquet file or of a folder of Parquet files (at any depth)."""


@dataclass(frozen=True)
class BatchStream:
    """All tuples of a stream, and its window. The time column is a timestamp, or an integer of microseconds."""

    name: str
    data: Data
    window_us: int | None
    time: str = "ts"


@dataclass(frozen=True)
class Difference:
    """How two tables differ as multisets. It is true when they do not: `assert same_rows(a, b)` means what it says."""

    left_rows: int
    right_rows: int
    only_left: int
    only_right: int
    left_examples: Sequence[Mapping[str, object]] = ()
    right_examples: Sequence[Mapping[str, object]] = ()

    @property
    def identical(self) -> bool:
        """Whether no row differs."""
        return self.only_left == self.only_right == 0

    def __bool__(self) -> bool:
        return self.identical

    def __str__(self) -> str:
        if self.identical:
            return f"identical: {self.left_rows} rows"
        lines = [f"different: {self.left_rows} and {self.right_rows} rows"]
        for side, count, examples in (
            ("left", self.only_left, self.left_examples),
            ("right", self.only_right, self.right_examples),
        ):
            lines.append(f"  only in the {side} one: {count}")
            lines.extend(f"    {dict(example)}" for example in examples)
        return "\n".join(lines)


def batch_join(
    streams: Sequence[BatchStream],
    equalities: Sequence[tuple[str, str]],
    select: Mapping[str, str],
    where: Sequence[str] = (),
) -> pa.Table:
    """The batch join of whole streams: `select` maps output columns to SQL over the streams ({"rv": "R.v"}).

    `equalities` are pairs like ("R.k", "S.k"); `where` are further predicates in SQL.
    """
    names = [stream.name for stream in streams]
    for column in (column for pair in equalities for column in pair):
        if column.split(".", 1)[0] not in names:
            raise InputError(f"{column!r} names no stream of the join", "", nearest(column.split(".", 1)[0], names))
    connection = _connect()
    try:
        for stream in streams:
            _show(connection, f"data of {stream.name}", stream.data)
        query = _join_sql(connection, streams, equalities, select, where)
        return connection.sql(query).to_arrow_table()
    finally:
        connection.close()


def batch_join_of_kind(
    kind: str,
    streams: tuple[BatchStream, BatchStream],
    equalities: Sequence[tuple[str, str]],
    select: Mapping[str, str],
    on: Sequence[str] = (),
) -> pa.Table:
    """The same for a left, right, full, semi, anti, asof or asof_left join of two whole streams.

    `on` are further predicates that decide a match. As-of joins have none, and no two rows of one key and time.
    """
    connection = _connect()
    try:
        for stream in streams:
            _show(connection, f"data of {stream.name}", stream.data)
        return connection.sql(_kind_sql(connection, kind, streams, equalities, select, on)).to_arrow_table()
    finally:
        connection.close()


def batch_left_joins(
    streams: Sequence[BatchStream],
    equalities: Sequence[tuple[str, str]],
    select: Mapping[str, str],
    on: Sequence[Sequence[str]],
) -> pa.Table:
    """The same for LEFT JOINs of the last streams with an inner join of the first.

    `on` has the predicates of each LEFT JOIN, `equalities` are those of the inner join.
    """
    connection = _connect()
    try:
        for stream in streams:
            _show(connection, f"data of {stream.name}", stream.data)
        n_whole = len(streams) - len(on)
        equal = [f"{_column(left)} = {_column(right)}" for left, right in equalities]
        text = _source_sql(connection, streams[0], None, is_first=True)
        for place, stream in enumerate(streams[1:], 1):
            near = [_near(other, stream) for other in streams[:place]]
            own = on[place - n_whole] if place >= n_whole else equal if place == n_whole - 1 else []
            words = "LEFT JOIN" if place >= n_whole else "JOIN"
            text += f" {words} {_source_sql(connection, stream, None, is_first=True)} ON {' AND '.join([*own, *near])}"
        outputs = ", ".join(f"{expression} AS {_quoted(name)}" for name, expression in select.items())
        return connection.sql(f"SELECT {outputs} FROM {text}").to_arrow_table()
    finally:
        connection.close()


def _near(one: BatchStream, other: BatchStream) -> str:
    """That two streams' windows reach each other, or that a LEFT JOIN has found nothing of the first."""
    left, right = _moment(one), _moment(other)
    near = [f"{right} - {left} <= {w}" for w in [one.window_us] if w is not None]
    near += [f"{left} - {right} <= {w}" for w in [other.window_us] if w is not None]
    return f"({left} IS NULL OR ({' AND '.join(near) or 'true'}))"


def _kind_sql(
    connection: Any,
    kind: str,
    streams: tuple[BatchStream, BatchStream],
    equalities: Sequence[tuple[str, str]],
    select: Mapping[str, str],
    on: Sequence[str],
) -> str:
    first, second = (_source_sql(connection, stream, None, is_first=True) for stream in streams)
    own, other = (_moment(stream) for stream in streams)
    equal = [f"{_column(left)} = {_column(right)}" for left, right in equalities]
    outputs = ", ".join(f"{expression} AS {_quoted(name)}" for name, expression in select.items())
    if kind in ("asof", "asof_left"):
        # DuckDB looks for the newest of all: where that is too old there is none.
        chosen = " AND ".join([*equal, f"{own} >= {other}"])
        window = streams[1].window_us
        is_near = "true" if window is None else f"{own} - {other} <= {window}"
        pairs = f"SELECT {outputs} FROM {first} ASOF JOIN {second} ON {chosen} WHERE {is_near}"
        if kind == "asof":
            return pairs
        alone = ", ".join(
            f"{'NULL' if expression.startswith(f'{streams[1].name}.') else expression} AS {_quoted(name)}"
            for name, expression in select.items()
        )
        found = f"{first} ASOF LEFT JOIN {second} ON {chosen}"
        return f"{pairs} UNION ALL SELECT {alone} FROM {found} WHERE {other} IS NULL OR NOT ({is_near})"
    words = {"left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "semi": "SEMI JOIN", "anti": "ANTI JOIN"}
    near = [f"{other} - {own} <= {w}" for w in [streams[0].window_us] if w is not None]
    near += [f"{own} - {other} <= {w}" for w in [streams[1].window_us] if w is not None]
    conditions = " AND ".join([*equal, *near, *(f"({predicate})" for predicate in on)])
    return f"SELECT {outputs} FROM {first} {words[kind]} {second} ON {conditions}"


def same_rows(left: Data, right: Data, n_examples: int = 5) -> Difference:
    """Compare two tables with the same columns (in any order) as multisets of rows."""
    connection = _connect()
    try:
        _show(connection, "left", left)
        _show(connection, "right", right)
        columns = _shared_columns(connection)
        connection.execute(_difference_sql(columns))
        return _difference(connection, columns, n_examples)
    finally:
        connection.close()


def _join_sql(
    connection: Any,
    streams: Sequence[BatchStream],
    equalities: Sequence[tuple[str, str]],
    select: Mapping[str, str],
    where: Sequence[str],
) -> str:
    windows = [stream.window_us for stream in streams]
    stretch_us = max(1, *(w for w in windows if w is not None)) if None not in windows else None
    sources = [_source_sql(connection, stream, stretch_us, is_first=i == 0) for i, stream in enumerate(streams)]
    first, *others = (_quoted(stream.name) for stream in streams)
    conditions = [f"{_column(left)} = {_column(right)}" for left, right in equalities]
    if stretch_us is not None:
        conditions += [f'{first}."stretch of time" = {other}."stretch of time"' for other in others]
    newest = f"greatest({', '.join(_moment(stream) for stream in streams)})"
    conditions += [f"{newest} - {_moment(s)} <= {s.window_us}" for s in streams if s.window_us is not None]
    conditions += [f"({predicate})" for predicate in where]
    outputs = ", ".join(f"{expression} AS {_quoted(name)}" for name, expression in select.items())
    return f"SELECT {outputs} FROM {', '.join(sources)} WHERE {' AND '.join(conditions or ['true'])}"


def _source_sql(connection: Any, stream: BatchStream, stretch_us: int | None, *, is_first: bool) -> str:
    """The stream with its moment in microseconds and its stretch; all but the first look one stretch to each side."""
    table = _quoted(f"data of {stream.name}")
    types = dict(connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {table})").fetchall())
    if stream.time not in types:
        raise InputError(f"stream {stream.name!r} has no column {stream.time!r}", "", nearest(stream.time, types))
    time = _quoted(stream.time)
    moment = f"epoch_us({time})" if types[stream.time].startswith("TIMESTAMP") else time
    stretch = ""
    if stretch_us is not None:
        own = f"{moment} // {stretch_us}"
        stretch = f', {own if is_first else f"unnest([{own} - 1, {own}, {own} + 1])"} AS "stretch of time"'
    return f'(SELECT *, {moment} AS "moment in us"{stretch} FROM {table}) AS {_quoted(stream.name)}'


def _moment(stream: BatchStream) -> str:
    return f'{_quoted(stream.name)}."moment in us"'


def _difference_sql(columns: Sequence[str]) -> str:
    listed = ", ".join(_quoted(column) for column in columns)
    return f"""
        CREATE TEMP TABLE difference AS
        SELECT {listed}, sum(side)::BIGINT AS "surplus of the left"
        FROM (SELECT {listed}, 1 AS side FROM "left" UNION ALL SELECT {listed}, -1 AS side FROM "right")
        GROUP BY {listed} HAVING sum(side) <> 0
    """


def _difference(connection: Any, columns: Sequence[str], n_examples: int) -> Difference:
    def count(query: str) -> int:
        return int(connection.execute(query).fetchall()[0][0])

    def examples(sign: str) -> list[dict[str, object]]:
        listed = ", ".join(_quoted(column) for column in columns)
        query = f'SELECT {listed} FROM difference WHERE "surplus of the left" {sign} 0 LIMIT {n_examples}'
        rows: list[dict[str, object]] = connection.sql(query).to_arrow_table().to_pylist()
        return rows

    surplus = '"surplus of the left"'
    return Difference(
        left_rows=count('SELECT count(*) FROM "left"'),
        right_rows=count('SELECT count(*) FROM "right"'),
        only_left=count(f"SELECT coalesce(sum(greatest({surplus}, 0)), 0) FROM difference"),
        only_right=count(f"SELECT coalesce(sum(greatest(-{surplus}, 0)), 0) FROM difference"),
        left_examples=examples(">"),
        right_examples=examples("<"),
    )


def _shared_columns(connection: Any) -> list[str]:
    left, right = (connection.sql(f'FROM "{side}" LIMIT 0').columns for side in ("left", "right"))
    if set(left) != set(right) or not left:
        raise InputError(
            f"the tables have different columns: {', '.join(left)} and {', '.join(right)}",
            "the same columns, in any order",
            "select and rename columns before comparing",
        )
    return list(left)


def _show(connection: Any, name: str, data: Data) -> None:
    """Make `data` known to DuckDB as a table or a view; nothing is copied."""
    if not isinstance(data, str | Path):
        connection.register(name, data)
        return
    listed = ", ".join("'" + str(file).replace("'", "''") + "'" for file in _files(Path(data)))
    connection.execute(f"CREATE TEMP VIEW {_quoted(name)} AS FROM read_parquet([{listed}], hive_partitioning = false)")


def _files(path: Path) -> list[Path]:
    """The Parquet files at a path, as Spark sees them: without what lies under a name that begins with `_` or `.`."""
    if not path.exists():
        raise InputError(f"{path} does not exist", "a Parquet file or a folder of them", "check the path")
    if path.is_file():
        return [path]
    files = [
        file
        for file in sorted(path.rglob("*.parquet"))
        if not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts)
    ]
    if not files:
        raise InputError(f"{path} has no Parquet files", "at least one, for the columns", "compare with an empty table")
    return files


def _connect() -> Any:
    try:
        import duckdb  # noqa: PLC0415  an extra: only who compares large results needs it
    except ImportError as missing:
        raise InputError(
            "DuckDB is not installed",
            "duckdb 1.1 or later, which checks large results",
            "pip install 'braidstream[dev]'",
        ) from missing
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column(text: str) -> str:
    stream, column = text.split(".", 1)
    return f"{_quoted(stream)}.{_quoted(column)}"
