"""Spark SQL expressions evaluated by DuckDB: what Spark computes around the engine, in tests that run without it.

Keys, filters and arguments are computed by Spark before the exchange, predicates between streams and expressions of the
SELECT list after the join. `evaluate` computes the same from the same texts, translated by sqlglot, in milliseconds.

Invariant: rows keep their order. Known limitation: only functions that mean the same in both dialects.
Cost: some milliseconds a call. DuckDB is a development extra and is imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

__all__ = ["evaluate"]


def evaluate(table: pa.Table, expressions: Mapping[str, str], where: Sequence[str] = ()) -> pa.Table:
    """A table of the named expressions over the rows that satisfy all predicates.

    A qualified column (`R`.`k`) is the table's column "R.k".
    """
    if not expressions:
        return table.select([])
    selected = ", ".join(f"{_translated(sql)} AS {_quoted(name)}" for name, sql in expressions.items())
    condition = " AND ".join(f"({_translated(predicate)})" for predicate in where) or "true"
    connection = _connection()
    connection.register("given", table)
    try:
        return connection.sql(f"SELECT {selected} FROM given WHERE {condition}").to_arrow_table()
    finally:
        connection.unregister("given")


@lru_cache(maxsize=1)
def _connection() -> Any:
    import duckdb  # noqa: PLC0415  an extra: only tests need it

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET threads = 1; SET arrow_large_buffer_size = false")
    return connection


@lru_cache(maxsize=1024)
def _translated(sql: str) -> str:
    def unqualified(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and len(node.parts) > 1:
            return exp.column(exp.to_identifier(".".join(part.name for part in node.parts), quoted=True))
        return node

    return sqlglot.parse_one(sql, read="spark").transform(unqualified).sql("duckdb")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
