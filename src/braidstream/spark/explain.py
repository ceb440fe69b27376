"""The plan of a flow in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from braidstream.query import Query, describe_duration
from braidstream.spark.planner import Plan
from braidstream.spark.sinks import Sink
from braidstream.spark.sources import Stream

__all__ = ["explain"]


def explain(
    name: str, streams: Mapping[str, Stream], queries: Sequence[Query], plan: Plan, sinks: Mapping[str, Sink]
) -> str:
    """Streams, stores, joins and sinks, a line each."""
    lines = [f"flow {name}"]
    for branch in plan.branches:
        stream = streams[branch.stream]
        way = "Parquet files read in the routing task" if branch.stream in plan.direct else "rows from Spark"
        lines.append(f"  stream {stream.name}: time {stream.time}, delay {describe_duration(stream.delay_us)}; {way}")
        for store in branch.stores:
            kept = "unbounded" if store.window_us is None else describe_duration(store.window_us)
            columns = ", ".join(store.columns) or "no columns"
            compared = "keys compared where hashes agree" if store.verified else "hashes cannot collide"
            lines.append(f"    indexed on {', '.join(store.key)} for {kept}: {columns} ({compared})")
            lines += [f"      rows that pass {condition}" for condition in store.filters if not store.takes_all]
    for query in queries:
        lines.append(f"  query {query.name}: {len(query.inputs)}-way join on one key, partitioned over the slots")
        for entry in query.inputs:
            window = "unbounded" if entry.window_us is None else describe_duration(entry.window_us)
            condition = f", where {entry.filter}" if entry.filter else ""
            lines.append(f"    {entry.alias}: stream {entry.stream}, window {window}{condition}")
        lines += [f"    then, on candidate matches: {predicate}" for predicate in query.residual]
        if not plan.finished[query.name]:
            lines.append("    Spark evaluates the predicates and expressions on the matches")
        lines.append(f"    to {sinks[query.name].description}" if query.name in sinks else "    to no sink yet")
    return "\n".join(lines)
