"""Spark SQL expressions evaluated by DuckDB: what Spark computes around the engine, in tests that run without it.

Keys, filters and arguments are computed by Spark before the exchange, predicates between streams and expressions of the
SELECT list after the join. `evaluate` computes the same from the same texts, translated by sqlglot, in milliseconds.
`DuckTypes` says of which types they are, for plans that are made without Spark's analyzer.

Invariant: rows keep their order. Known limitation: only functions that mean the same in both dialects.
Cost: some milliseconds a call. DuckDB is a development extra and is imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from braidstream.plan.direct_keys import ARROW_TYPES
from braidstream.query.meaning import Typed

__all__ = ["DuckTypes", "connection", "evaluate", "spark_type"]


def evaluate(table: pa.Table, expressions: Mapping[str, str], where: Sequence[str] = ()) -> pa.Table:
    """A table of the named expressions over the rows that satisfy all predicates.

    A qualified column (`R`.`k`) is the table's column "R.k".
    """
    if not expressions:
        return table.select([])
    selected = ", ".join(f"{_translated(sql)} AS {_quoted(name)}" for name, sql in expressions.items())
    condition = " AND ".join(f"({_translated(predicate)})" for predicate in where) or "true"
    own = connection()
    own.register("given", table)
    try:
        return own.sql(f"SELECT {selected} FROM given WHERE {condition}").to_arrow_table()
    finally:
        own.unregister("given")


@dataclass(frozen=True)
class DuckTypes:
    """The types of expressions over streams with these schemas: DuckDB's, and of aggregates what Spark makes of it."""

    schemas: Mapping[str, pa.Schema]

    def type_of(self, inputs: Mapping[str, str], sql: str, *, aggregated: bool = False) -> Typed:
        """The type of an expression, or of one aggregate function of an expression."""
        function = sqlglot.parse_one(sql, read="spark") if aggregated else None
        argument = sql if function is None else function.this.sql("spark")
        fields = [(f"{alias}.{field.name}", field.type) for alias in inputs for field in self.schemas[inputs[alias]]]
        kind = evaluate(pa.schema(fields).empty_table(), {"c": argument}).schema.field(0).type
        found = kind if function is None else _aggregated(function, kind)
        return Typed(str(found), found)


def _aggregated(function: exp.Expr, kind: pa.DataType) -> pa.DataType:
    """The type of an aggregate in Spark."""
    if isinstance(function, exp.Count):
        return pa.int64()
    if not isinstance(function, (exp.Sum, exp.Avg)):
        return kind
    if pa.types.is_decimal(kind):
        more, scale = (10, 0) if isinstance(function, exp.Sum) else (4, 4)
        return pa.decimal128(min(kind.precision + more, 38), kind.scale + scale)
    return pa.int64() if isinstance(function, exp.Sum) and pa.types.is_integer(kind) else pa.float64()


def spark_type(kind: pa.DataType) -> str:
    """The name of a type in Spark SQL."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in kind)}>"
    return _NAMES[kind]


_NAMES = {kind: name for name, kind in ARROW_TYPES.items()} | {pa.binary(): "binary", pa.large_string(): "string"}


@lru_cache(maxsize=1)
def connection() -> Any:
    """DuckDB in this process, on one core: to connect takes longer than most of what is asked here."""
    import duckdb  # noqa: PLC0415  an extra: only tests need it

    made = duckdb.connect()
    made.execute("SET TimeZone = 'UTC'; SET threads = 1; SET arrow_large_buffer_size = false")
    return made


@lru_cache(maxsize=1024)
def _translated(sql: str) -> str:
    def unqualified(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and len(node.parts) > 1:
            return exp.column(exp.to_identifier(".".join(part.name for part in node.parts), quoted=True))
        return node

    return sqlglot.parse_one(sql, read="spark").transform(unqualified).sql("duckdb")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
