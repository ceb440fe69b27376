"""What Spark's SQL engine computes of the composites that slots put out: predicates between streams, and expressions.

A row of the slots has a column for each column of each input, `alias.column`; here they are structs again, one for each
input, so that a text means what it meant when the query was declared (`spark/meaning.py`). Plain results skip this.

Cost: a projection and a filter of Spark's over the rows of an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from braidstream.kernels.measures import EPOCH, WATERMARK, AggregatePlan
from braidstream.kernels.rows import DEADLINE
from braidstream.plan.told import TOLD
from braidstream.query import Query
from braidstream.spark.names import column_of
from braidstream.spark.trying import Tries, fails_in, reason_of

__all__ = ["composite_rows", "composite_rows_apart", "finish", "finish_apart", "whole_name"]


def finish(query: Query, raw: DataFrame) -> DataFrame:
    """The result of a query from the columns that the slots put out: predicates and expressions by Spark."""
    if query.is_aggregate:
        return raw.select(*(F.expr(output.sql).alias(output.name) for output in query.outputs), EPOCH, WATERMARK)
    told = [column for column in TOLD if column in raw.columns]
    frame = _composites(query, raw, told, query.residual)
    outputs = (F.expr(output.sql).alias(output.name) for output in query.outputs)
    return frame.select(*outputs, *(F.col(_beside(column)).alias(column) for column in told))


def finish_apart(query: Query, raw: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The same, but without joined rows of which an expression fails; and what is known of these."""
    outputs = {one.name: one.sql for one in query.outputs}
    if query.is_aggregate:
        own = {name: column_of(name) for name in (EPOCH, WATERMARK)}
        return _apart(query.name, raw, raw.columns, (), outputs, own)
    told = [column for column in TOLD if column in raw.columns]
    own = {name: column_of(_beside(name)) for name in told}
    return _apart(query.name, _composites(query, raw, told, ()), _structs(query), query.residual, outputs, own)


def composite_rows_apart(query: Query, plan: AggregatePlan, raw: DataFrame) -> tuple[DataFrame, DataFrame]:
    """What is aggregated of composites of which no expression fails, and what is known of the others."""
    assert plan.enumeration is not None
    frame, own = _composites(query, raw, [DEADLINE], ()), {DEADLINE: column_of(_beside(DEADLINE))}
    columns = dict(plan.enumeration.columns)
    return _apart(query.name, frame, _structs(query), plan.enumeration.residual, columns, own)


def _structs(query: Query) -> list[str]:
    return [entry.alias for entry in query.inputs if entry.columns]


def _apart(
    query: str,
    frame: DataFrame,
    known: Sequence[str],
    residual: Sequence[str],
    outputs: Mapping[str, str],
    own: Mapping[str, Column],
) -> tuple[DataFrame, DataFrame]:
    """Rows that satisfy the predicates, as outputs, and those on which an expression fails, as `known` columns.

    One that a predicate rules out has not failed, whatever else would. Of others the outputs are computed.
    """
    conditions, computed = Tries(residual), Tries(list(dict.fromkeys(outputs.values())), after=True)
    frame = conditions.over(frame).where(~conditions.rules_out(residual))
    is_in = conditions.holds(residual)
    frame = computed.over(frame, is_in)
    failing = [*conditions.failing(residual, ()), *computed.failing((), list(outputs.values()), is_in)]
    fails, made = fails_in(failing), (computed.value(sql).alias(name) for name, sql in outputs.items())
    results = frame.where(~fails).select(*made, *(column.alias(name) for name, column in own.items()))
    row = F.to_json(F.struct(*(column_of(name) for name in known)), {"ignoreNullFields": "false"})
    told = F.lit(query).alias("query"), reason_of(failing).alias("reason"), row.alias("row")
    return results, frame.where(fails).select(*told)


def whole_name(query: Query) -> str:
    """What joined rows of a query are called, where rows are called by their streams; of one stream, its windows."""
    streams = [entry.stream for entry in query.inputs]
    return "+".join(streams if len(streams) > 1 else [*streams, "window"])


def composite_rows(query: Query, plan: AggregatePlan, raw: DataFrame) -> DataFrame:
    """What is aggregated of each composite that satisfies the predicates, and until when it is live."""
    assert plan.enumeration is not None
    frame = _composites(query, raw, [DEADLINE], plan.enumeration.residual)
    columns = (F.expr(sql).alias(name) for name, sql in plan.enumeration.columns)
    return frame.select(*columns, F.col(_beside(DEADLINE)).alias(DEADLINE))


def _composites(query: Query, raw: DataFrame, own: Sequence[str], residual: Sequence[str]) -> DataFrame:
    """The composites that satisfy the predicates: a struct for each input, and columns of the engine beside them."""
    structs = [
        F.struct(*(column_of(f"{entry.alias}.{name}").alias(name) for name in entry.columns)).alias(entry.alias)
        for entry in query.inputs
        if entry.columns
    ]
    frame = raw.select(*structs, *(F.col(name).alias(_beside(name)) for name in own)) if structs or own else raw
    for predicate in residual:
        frame = frame.where(predicate)
    return frame


def _beside(column: str) -> str:
    """What a column of the engine is called next to the structs of inputs, whose aliases may be its own name."""
    return f"\x1f{column}"
