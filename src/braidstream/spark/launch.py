"""Starting the streaming query of a flow, and starting it again when its queries change.

Spark fixes the upstream part of a streaming plan when it starts. So when a query is submitted or withdrawn, the streaming
query is stopped between two epochs and started anew on the same checkpoint, with all declared streams as its sources and
the new queries' needs in their branches. Offsets and state go on where they were; the change is in the manifest first.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from braidstream.query import parse_duration
from braidstream.spark.epoch import EpochRunner
from braidstream.spark.planner import Plan, arrow_schema
from braidstream.spark.progress import EpochProgress
from braidstream.spark.reorganize import Reorganizer
from braidstream.spark.session import cores, is_single_executor, own_session
from braidstream.spark.sources import DirectRouter, Router, Stream, direct_frame, general_frame
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

if TYPE_CHECKING:
    from braidstream.spark.flow import Flow

__all__ = ["RECENT", "Launch"]

RECENT = 200
"""How many epochs `progress` looks back."""


@dataclass(frozen=True)
class Launch:
    """What stays the same over the starts of one flow's streaming query."""

    flow: Flow
    checkpoint: Checkpoint
    trigger: Mapping[str, Any]
    owner: str
    progress: deque[EpochProgress]
    reorganizer: Reorganizer | None

    def start(self, manifest: Manifest) -> tuple[StreamingQuery, EpochRunner]:
        """Start from a manifest. The filters that its rows are marked with are remembered in it first."""
        flow = self.flow
        plan = flow._plan(manifest.memory.get("filters", {}))
        filters = {store.name: list(store.filters) for store in plan.stores if store.masked}
        if filters != manifest.memory.get("filters", {}):
            manifest = replace(manifest, memory={**manifest.memory, "filters": filters})
            manifest.write(self.checkpoint.files)
        runner = EpochRunner(
            self.checkpoint,
            uuid.uuid4().hex,
            plan,
            flow._streams,
            {name: q.query for name, q in flow._queries.items()},
            flow._sinks(),
            flow._late_sinks(),
            not is_single_executor(flow.spark),
            manifest,
            None if flow.silence is None else parse_duration(flow.silence),
            self.reorganizer,
            self.progress,
        )
        for sink in [*runner.sinks.values(), *runner.late.values()]:
            sink.claim(self.owner)
        writer = self._union(plan, runner.run).writeStream.foreachBatch(runner)
        query = writer.option("checkpointLocation", self.checkpoint.offsets).trigger(**self.trigger).start()
        return query, runner

    def _union(self, plan: Plan, run: str) -> DataFrame:
        """All branches. Where all streams are files read directly, on a session of our own with settings of ours."""
        root, streams = self.checkpoint.root, self.flow._streams
        direct: list[tuple[Stream, DirectRouter]] = []
        frames: list[DataFrame] = []
        for branch in plan.branches:
            stream = streams[branch.stream]
            router = Router(root, run, branch, arrow_schema(stream.schema))
            if branch.stream in plan.direct:
                direct.append((stream, DirectRouter(router, stream.time, plan.direct[branch.stream])))
            else:
                frames.append(general_frame(stream, router))
        if direct:
            spark = self.flow.spark if frames else own_session(self.flow.spark, root)
            frames.append(direct_frame(spark, direct, cores(self.flow.spark)))
        return reduce(DataFrame.unionByName, frames)
