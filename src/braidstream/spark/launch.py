"""Starting the streaming query of a flow, and starting it again when its queries change.

Spark fixes the upstream part of a streaming plan when it starts. So when a query is submitted or withdrawn, the
streaming query is stopped between two epochs and started anew on the same checkpoint, with all declared streams as its
sources and the new queries' needs in their branches. Offsets and state go on where they were; the change is in the
manifest first.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from braidstream.query import parse_duration
from braidstream.spark.catalogue import with_plan
from braidstream.spark.epoch import EpochRunner
from braidstream.spark.parquet import is_case_sensitive
from braidstream.spark.planner import Plan, arrow_schema
from braidstream.spark.progress import EpochProgress
from braidstream.spark.regions import with_regions
from braidstream.spark.regrid import GridRouter
from braidstream.spark.reorganize import Reorganizer
from braidstream.spark.session import cores, is_single_executor, own_session
from braidstream.spark.shedding import spiller_of
from braidstream.spark.sources import DirectRouter, Router, direct_frame, general_frame
from braidstream.state.cells import without_families
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

if TYPE_CHECKING:
    from braidstream.spark.flow import Flow

__all__ = ["RECENT", "Launch", "check_files"]

RECENT = 200
"""How many epochs `progress` looks back."""


def check_files(flow: Flow, plan: Plan) -> None:
    """Refuse, before anything is written, files that are there and are not what their streams declare."""
    for branch in plan.branches:
        stream = flow._streams[branch.stream]
        if stream.files is not None and stream.name in plan.direct:
            router = Router("", "", branch, arrow_schema(stream.schema))
            sensitive = is_case_sensitive(flow.spark)
            DirectRouter(router, stream.time, plan.direct[stream.name], sensitive).check(stream.files)


@dataclass(frozen=True)
class Launch:
    """What stays the same over the starts of one flow's streaming query."""

    flow: Flow
    checkpoint: Checkpoint
    trigger: Mapping[str, Any]
    owner: str
    progress: deque[EpochProgress]
    reorganizer: Reorganizer | None
    regridder: GridRouter | None = None
    interval_s: float | None = None
    """How long an epoch is meant to take."""

    @property
    def is_finite(self) -> bool:
        """Whether the flow ends by itself, with all that was there."""
        return bool(self.trigger.get("availableNow"))

    def start(self, manifest: Manifest) -> tuple[StreamingQuery, EpochRunner]:
        """Start from a manifest. What its rows are arranged by is remembered in it first, with regions for all stages.

        Keys with a grid over stores that are not joined any more are light again.
        """
        flow = self.flow
        plan = flow._plan(manifest)
        families = {store.family for store in plan.stores if store.family and self.regridder is not None}
        planned = without_families(with_regions(with_plan(manifest, plan), plan.stores, flow.groups), families)
        if planned != manifest:
            planned.write(self.checkpoint.files)
        manifest = planned
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
            self.regridder,
            self.progress,
            spiller=spiller_of(flow.overflow, plan.stores, plan.joins, self.interval_s),
        )
        for sink in [*runner.sinks.values(), *runner.late.values()]:
            sink.claim(self.owner)
        if runner.is_in_step:
            runner.complete(self.session)
        writer = self._union(plan, runner.run).writeStream.foreachBatch(runner)
        query = writer.option("checkpointLocation", self.checkpoint.offsets).trigger(**self.trigger).start()
        return query, runner

    @cached_property
    def session(self) -> SparkSession:
        """For jobs outside of epochs."""
        return own_session(self.flow.spark, self.checkpoint.root)

    def _union(self, plan: Plan, run: str) -> DataFrame:
        """All branches, in the order of declaration, because Spark knows a query's sources by their order.

        Where all streams are files read directly, on a session of our own with settings of ours.
        """
        root, streams = self.checkpoint.root, self.flow._streams
        is_direct = {branch.stream: branch.stream in plan.direct for branch in plan.branches}
        spark = own_session(self.flow.spark, root) if all(is_direct.values()) else self.flow.spark
        frames: list[DataFrame] = []
        for direct, branches in groupby(plan.branches, lambda branch: is_direct[branch.stream]):
            routed = [
                (streams[b.stream], Router(root, run, b, arrow_schema(streams[b.stream].schema))) for b in branches
            ]
            if direct:
                sensitive = is_case_sensitive(spark)
                readers = [(s, DirectRouter(router, s.time, plan.direct[s.name], sensitive)) for s, router in routed]
                frames.append(direct_frame(spark, readers, cores(self.flow.spark)))
            else:
                frames += [general_frame(stream, router) for stream, router in routed]
        return reduce(DataFrame.unionByName, frames)
