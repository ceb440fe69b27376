"""The driver's part of delivery: an epoch's staged results and late tuples are handed to their sinks.

A mixin of `EpochRunner`, beside `CleanUps`. Slots stage results as files and report their names; a sink that can takes
the files as they are, others are given a DataFrame of them, which Spark finishes where a query has expressions left.

Invariant: what is delivered under an epoch's number replaces what a lost attempt delivered under it. Cost: O(files).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from braidstream.plan.planner import Plan
from braidstream.query import Query
from braidstream.spark.arrow_types import arrow_schema
from braidstream.spark.finishing import finish
from braidstream.spark.sinks import Sink, deliver, staged_frame
from braidstream.spark.sources import Stream
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.staging import Staging

__all__ = ["Deliveries", "Staged"]


@dataclass(frozen=True)
class Staged:
    """What slots have staged of one output: the results of a query, or, without one, late tuples of a stream."""

    name: str
    sink: Sink
    staging: Staging
    files: list[str]
    schema: pa.Schema
    query: Query | None = None


class Deliveries:
    """How an `EpochRunner` hands over what slots have staged."""

    checkpoint: Checkpoint
    plan: Plan
    streams: Mapping[str, Stream]
    queries: Mapping[str, Query]
    sinks: Mapping[str, Sink]
    late: Mapping[str, Sink]

    def _staging(self, query: str) -> Staging:
        return self.sinks[query].staging(self.checkpoint.root, self.plan.finished[query])

    def _deliver(
        self, spark: SparkSession, epoch: int, reports: Sequence[Mapping[str, Any]], *, is_step: bool = False
    ) -> None:
        """Hand results and late tuples to their sinks; a step of the last clean-up has results of joins only."""
        self.checkpoint.fence()
        joined = {join.query for join in self.plan.cleaned_joins}
        for name, sink in self.sinks.items():
            if is_step and name not in joined:
                continue
            files = [file for r in reports if (file := r["results"].get(name, {}).get("file"))]
            schema = self.plan.schema_of(name)
            self._hand_over(spark, epoch, Staged(name, sink, self._staging(name), files, schema, self.queries[name]))
        for stream, sink in self.late.items() if not is_step else ():
            files = [file for r in reports if (file := r["late"].get(stream))]
            schema = arrow_schema(self.streams[stream].schema)
            staging = sink.staging(self.checkpoint.root, True)
            self._hand_over(spark, epoch, Staged(f"late {stream}", sink, staging, files, schema))

    def _hand_over(self, spark: SparkSession, epoch: int, staged: Staged) -> None:
        query, staging = staged.query, staged.staging
        finished = query is None or self.plan.finished[query.name]

        def frame() -> DataFrame:
            raw = staged_frame(spark, staging.root or self.checkpoint.root, staged.files, staged.schema)
            return raw if finished or query is None else finish(query, raw)

        deliver(staged.sink, staged.name, epoch, staged=staged.files, frame=frame, finished=finished)
        if staging.root is not None:
            staged.sink.end(Files(staging.root), staged.files)
