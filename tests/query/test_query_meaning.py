"""The parts of a Query, put together again, give what the text gives: both sides are executed by DuckDB.

The right side is built from the model alone, as the engine does it: each input is filtered and cut down to its columns
and keys first, then joined on its key classes, then the residual, then outputs or aggregates. A predicate that was
lost, doubled, put on the wrong side or weakened by a cast shows as another multiset of rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest
import sqlglot
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from braidstream.errors import QueryError
from braidstream.query import Query, Schema, parse
from tests.scale import examples

TABLES = {
    "A": Schema.from_ddl("k long, v int, name string, x double"),
    "B": Schema.from_ddl("k long, w int, name string, y double"),
    "C": Schema.from_ddl("k int, u decimal(6,1), label string, z float"),
}
# Neighbours that are equal as doubles, so that an equality weakened by a cast is seen.
LARGE = [2**53, 2**53 + 1]
VALUES = {
    "bigint": [None, 1, 2, 3, *LARGE],
    "int": [None, 1, 2, 3],
    "string": [None, "a", "A", "b"],
    "double": [None, 1.0, 2.0, 2.5, float(2**53)],
    "float": [None, 1.0, 2.0, 2.5],
    "decimal(6,1)": [None, 1.0, 2.0, 2.5],
}


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(config={"threads": 1})
    chooser = random.Random(20)
    for name, schema in TABLES.items():
        columns = ", ".join(f"{column.name} {duck_type(column.type)}" for column in schema)
        connection.execute(f"CREATE TABLE {name} ({columns})")
        rows = [[chooser.choice(VALUES[column.type]) for column in schema] for _ in range(25)]
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(schema))})", rows)
    yield connection
    connection.close()


def duck_type(type_: str) -> str:
    return {"string": "varchar", "float": "real"}.get(type_, type_)


def rows_of(database: duckdb.DuckDBPyConnection, spark_sql: str) -> Counter[tuple[str, ...]]:
    (sql,) = sqlglot.transpile(spark_sql, read="spark", write="duckdb")
    return Counter(tuple(str(value) for value in row) for row in database.execute(sql).fetchall())


def rebuilt(query: Query) -> str:
    """Spark SQL that does what an engine does with the Query."""
    classes = query.key_classes or query.join_edges
    inputs = []
    for one in query.inputs:
        keys = [
            f"CAST({each.expression(one.alias)} AS {each.type}) AS __key{n}"
            for n, each in enumerate(classes)
            if one.alias in each.aliases
        ]
        columns = ", ".join([*(f"`{column}`" for column in one.columns), *keys])
        inputs.append(f"(SELECT {columns} FROM `{one.stream}` WHERE {one.filter or 'TRUE'}) AS `{one.alias}`")
    equal = [
        f"`{each.aliases[0]}`.__key{n} = `{alias}`.__key{n}"
        for n, each in enumerate(classes)
        for alias in each.aliases[1:]
    ]
    where = " AND ".join(f"({condition})" for condition in (*equal, *query.residual))
    outputs = ", ".join(f"{one.sql} AS `{one.name}`" for one in query.outputs)
    if not query.is_aggregate:
        return f"SELECT {outputs} FROM {', '.join(inputs)} WHERE {where}"
    calls = [f"{one.function}({one.argument or '*'}) AS `{one.name}`" for one in query.aggregates]
    groups = [f"{one.sql} AS `{one.name}`" for one in query.group_by]
    by = f"GROUP BY {', '.join(one.sql for one in query.group_by)}" if query.group_by else ""
    aggregated = f"SELECT {', '.join([*groups, *calls])} FROM {', '.join(inputs)} WHERE {where} {by}"
    return f"SELECT {outputs} FROM ({aggregated}) AS aggregated"


def check(database: duckdb.DuckDBPyConnection, select: str, entries: str, where: str, group: str = "") -> int:
    """Compare the text with what is rebuilt from its Query; how many rows both gave."""
    windowed = ", ".join(f"{entry} [RANGE UNBOUNDED]" for entry in entries.split(", "))
    query = parse(f"SELECT {select} FROM {windowed} WHERE {where} {group}", TABLES)
    expected = rows_of(database, f"SELECT {select} FROM {entries} WHERE {where} {group}")
    assert rows_of(database, rebuilt(query)) == expected
    return expected.total()


FIXED = [
    ("filters, key and residual", "A.v, B.w", "A, B", "A.k = B.k AND A.v > 1 AND B.w <> 3 AND A.x < B.y", ""),
    ("a key expression", "A.k AS ak, B.k AS bk", "A, B", "lower(A.name) = lower(B.name) AND A.v = B.w", ""),
    ("type 1 with a partial class", "A.v", "A, B, C", "A.v = B.w AND B.w = C.k AND A.name = B.name", ""),
    ("type 2, a chain", "A.v, C.u", "A, B, C", "A.k = B.k AND B.name = C.label", ""),
    ("two members of one stream", "B.k", "A, B", "A.k = B.k AND A.v = B.k", ""),
    ("exact numbers next to doubles", "A.k AS ak, B.k AS bk", "A, B", "A.k = B.k AND A.k = B.y", ""),
    (
        "a double between whole numbers",
        "A.k AS ak, B.k AS bk, B.y",
        "A, B, C",
        "A.k = B.y AND B.k = B.y AND C.z = A.v",
        "",
    ),
    ("a self join", "l.v AS a, r.v AS b", "A l, A r", "l.k = r.k AND l.v < r.v", ""),
    ("all columns of one stream", "B.*, A.v", "A, B", "A.k = B.k", ""),
    ("sums and counts", "SUM(A.v) AS s, COUNT(*) AS n, COUNT(B.w) AS m, AVG(A.x) AS a", "A, B", "A.k = B.k", ""),
    ("no rows", "SUM(A.v) AS s, COUNT(*) AS n", "A, B", "A.k = B.k AND A.v > 99", ""),
    ("groups", "A.k, MIN(B.name) AS l, MAX(A.v * B.w) AS h", "A, B", "A.k = B.k", "GROUP BY A.k"),
    ("over aggregates", "A.v + 1 AS g, SUM(B.w) / COUNT(*) AS q", "A, B", "A.k = B.k", "GROUP BY A.v + 1, A.name"),
    ("NULL is no key", "COUNT(*) AS n", "A, B", "A.name = B.name AND A.k IS NULL", ""),
]


@pytest.mark.parametrize(
    ("select", "entries", "where", "group"), [row[1:] for row in FIXED], ids=[row[0] for row in FIXED]
)
def test_the_model_gives_what_the_text_gives(
    select: str, entries: str, where: str, group: str, database: duckdb.DuckDBPyConnection
) -> None:
    assert check(database, select, entries, where, group) > 0


EQUALITIES = [
    "A.k = B.k",
    "A.v = B.w",
    "A.name = B.name",
    "B.k = C.k",
    "B.w = C.k",
    "A.k = C.u",
    "C.z = B.y",
    "A.x = C.z",
]
EXPRESSIONS = ["A.k = B.y", "lower(A.name) = B.name", "B.name = C.label", "A.v + 1 = B.w", "A.k = C.k", "A.v = A.k"]
OTHERS = [
    "A.v > 1",
    "B.y < 2.5",
    "A.x < B.y",
    "A.name <> C.label",
    "B.w IS NULL",
    "A.k = B.k OR A.v = C.k",
    "C.u <= A.x",
]


@settings(deadline=None, max_examples=examples(150))
@given(
    conjuncts=st.lists(st.sampled_from([*EQUALITIES, *EXPRESSIONS, *OTHERS]), min_size=2, max_size=6, unique=True),
    aggregate=st.booleans(),
)
def test_any_conjunction_keeps_its_meaning(
    conjuncts: list[str], aggregate: bool, database: duckdb.DuckDBPyConnection
) -> None:
    select = "COUNT(*) AS n, SUM(A.v) AS s, MAX(C.u) AS m" if aggregate else "A.*, B.w, C.z, B.k + C.k AS t"
    where = " AND ".join(f"({one})" if " OR " in one else one for one in conjuncts)
    try:
        check(database, select, "A, B, C", where)
    except QueryError as error:
        assume("no join predicate" not in error.wrong)
        raise
