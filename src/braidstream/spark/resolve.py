"""Whether Spark can resolve what a query says, asked before anything starts.

Every predicate and key is analyzed over its stream, every output over empty rows of what the slots will put out, by
the session that is going to run it: so its functions, its time zone and its other settings count. No job is run. What
Spark's analyzer refuses is refused as an error of the query, with the function that was probably meant. Without a
session at hand (`braid check`), function names are compared with those of the installed pyspark.

Cost: some milliseconds an expression.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import sqlglot
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from sqlglot import exp

from braidstream.errors import QueryError, nearest
from braidstream.plan.aggregate_plan import composites_of
from braidstream.plan.keys import cast
from braidstream.plan.planner import Plan
from braidstream.query import Query
from braidstream.spark.finishing import composite_rows, finish
from braidstream.spark.json_errors import without_json
from braidstream.spark.sinks import staged_frame
from braidstream.spark.sources import Stream

__all__ = ["called_functions", "refuse_unknown_functions", "refused", "resolve"]

_CLOSE = 0.75
_ONLY_SQL = frozenset({
    "approx_top_k", "bigint", "binary", "boolean", "case", "collations", "date", "decimal", "div", "double", "float",
    "from_avro", "from_protobuf", "if", "int", "len", "localtime", "luhn_check", "map", "mod", "percentile_cont",
    "percentile_disc", "range", "smallint", "space", "string", "time", "timestamp", "timestamp_ltz", "timestamp_ntz",
    "tinyint", "to_avro", "to_protobuf",
})  # fmt: skip
"""Functions of Spark's SQL that `pyspark.sql.functions` does not have."""
_UNKNOWN = ("UNRESOLVED_ROUTINE", "UNRESOLVABLE_TABLE_VALUED_FUNCTION")


def resolve(spark: SparkSession, streams: Mapping[str, Stream], queries: Iterable[Query], plan: Plan) -> None:
    """Raise what Spark's analyzer has to say against queries of a plan."""
    for query in queries:
        for entry in query.inputs:
            frame = streams[entry.stream].frame
            if entry.filter is not None:
                refused(spark, query, _of(frame.where, entry.filter))
            for edge in query.join_edges:
                if entry.alias in edge.aliases:
                    refused(spark, query, _of(frame.select, cast(edge, entry.alias)))
        refused(spark, query, lambda query=query: _results(spark, query, plan))  # type: ignore[misc]


def refuse_unknown_functions(query: Query, *, others: bool = False) -> list[str]:
    """Without Spark: refuse a function that is nearly one of Spark's; gives those that only Spark can tell.

    With `others` the session may bring functions of its own, so none is refused.
    """
    left = []
    for said in called_functions(query):
        if said.lower() in _known():
            continue
        if others or not difflib.get_close_matches(said.lower(), _known(), n=1, cutoff=_CLOSE):
            left.append(said.lower())
            continue
        name, line, column = _place(query.text, said)
        wrong, expected = f"there is no function {name!r}", "a function that Spark knows"
        fix = nearest(name.lower(), _known())
        raise QueryError(wrong, expected, fix, text=query.text, line=line, column=column)
    return left


def called_functions(query: Query) -> list[str]:
    """The functions that a query calls and that are none of SQL's own, as they are written."""
    return list(dict.fromkeys(name for sql in _texts(query) for name in _called(sql)))


def _texts(query: Query) -> list[str]:
    keys = [text for edge in query.join_edges for _, text in edge.members]
    keys += [text for match in query.on for text in (match.left, match.right)]
    keys += [text for band in query.bands for text in (band.left, band.right)]
    filters = [entry.filter for entry in query.inputs if entry.filter is not None]
    arguments = [entry.argument for entry in query.aggregates if entry.argument is not None]
    return [*keys, *filters, *arguments, *query.residual, *(o.sql for o in (*query.outputs, *query.group_by))]


def _called(sql: str) -> list[str]:
    """The functions in an expression that are none of SQL's own."""
    return [node.name for node in sqlglot.parse_one(sql, dialect="spark").find_all(exp.Anonymous)]


@cache
def _known() -> frozenset[str]:
    return frozenset({name.lower() for name in dir(F) if not name.startswith("_")} | _ONLY_SQL)


def _of(method: Callable[[Any], DataFrame], expression: str) -> Callable[[], DataFrame]:
    return lambda: method(F.expr(expression))


def _results(spark: SparkSession, query: Query, plan: Plan) -> None:
    """What Spark is to make of the slots' output."""
    for aggregate in plan.aggregates:
        if aggregate.query == query.name and aggregate.enumeration is not None:
            raw = staged_frame(spark, "", (), plan.schema_of(composites_of(aggregate)))
            composite_rows(query, aggregate, raw)
    if not plan.finished[query.name]:
        finish(query, staged_frame(spark, "", (), plan.schema_of(query.name)))


def refused(spark: SparkSession, query: Query, analyze: Callable[[], Any]) -> Any:
    """What `analyze` gives; what Spark's analyzer refuses there, as an error of the query."""
    try:
        with without_json():
            return analyze()
    except (AnalysisException, ParseException) as error:
        raise _as_query_error(spark, query, error) from None


def _as_query_error(spark: SparkSession, query: Query, error: AnalysisException) -> QueryError:
    condition = error.getCondition() or ""
    if condition.startswith(_UNKNOWN):
        given = dict(error.getMessageParameters() or {})
        said = str(given.get("routineName") or given.get("name") or "").replace("`", "").split(".")[-1]
        name, line, column = _place(query.text, said)
        known = [row.function for row in spark.sql("SHOW FUNCTIONS").collect()]
        wrong, expected, fix = f"there is no function {name!r}", "a function that Spark knows", nearest(name, known)
        return QueryError(f"query {query.name!r}: {wrong}", expected, fix, text=query.text, line=line, column=column)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = re.sub(r"^\[[\w.]+\]\s*", "", lines[0]) if lines else type(error).__name__
    said = re.sub(r"\s*SQLSTATE: \w+;?.*$", "", said)
    return QueryError(f"query {query.name!r}: Spark cannot resolve it: {said}", "an expression that Spark can resolve")


def _place(text: str, name: str) -> tuple[str, int, int]:
    """A function as a query's text spells it, and where, from 1; zeros where it cannot be told."""
    found = re.search(rf"(?<![\w.`]){re.escape(name)}(?=\s*\()", text, re.IGNORECASE) if name else None
    if found is None:
        return name, 0, 0
    before = text[: found.start()]
    return found.group(), before.count("\n") + 1, len(before) - before.rfind("\n")
