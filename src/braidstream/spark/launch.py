"""Starting the streaming query of a flow, and starting it again when its queries change: prepare, commit, run.

`prepare` checks and plans everything that can be wrong with the queries: their sinks and paths, their expressions (by
Spark's analyzer), the router, the streaming plan. It may refuse, and it changes nothing. `commit` writes the manifest;
from then on the queries are the flow's, also after a crash. `run` starts. A start, a submitted and a withdrawn query
all take this way.

Spark fixes the upstream part of a streaming plan when it starts. So when a query is submitted or withdrawn, the
streaming query is stopped between two epochs and started anew on the same checkpoint, with all declared streams as its
sources and the new queries' needs in their branches. Offsets and state go on where they were.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from braidstream.control.controller import Controller
from braidstream.epoch.decider import Decider
from braidstream.epoch.ending import is_ended
from braidstream.epoch.flow_run import FlowRun
from braidstream.epoch.idleness import Patience
from braidstream.epoch.progress import EpochProgress
from braidstream.epoch.recorder import Recorder
from braidstream.epoch.regions import with_regions
from braidstream.epoch.runner import RECENT, EpochRunner
from braidstream.epoch.shedder import spiller_of
from braidstream.epoch.single_grids import with_grids
from braidstream.errors import SinkError
from braidstream.model.columns import FAILED, user_name
from braidstream.model.stores import Branch
from braidstream.plan.catalogue import all_folders, delivered_folders, with_folders, with_plan
from braidstream.plan.planner import Plan
from braidstream.query import parse_duration
from braidstream.query.model import Enriched
from braidstream.spark.arrow_types import arrow_schema
from braidstream.spark.bad_rows import FAILED_ROWS, bare
from braidstream.spark.cluster import SparkCluster
from braidstream.spark.declared import ContinuousQuery, refuse_overlaps
from braidstream.spark.ended import Ended
from braidstream.spark.executors import Executors, check_release
from braidstream.spark.finishing import finish
from braidstream.spark.joined_tables import AllStreams, Tables
from braidstream.spark.late import late_sinks
from braidstream.spark.names import resolved
from braidstream.spark.outlets import SparkOutlets
from braidstream.spark.parquet import is_case_sensitive
from braidstream.spark.resolve import resolve
from braidstream.spark.session import (
    cores,
    handover_folder,
    in_session,
    is_single_executor,
    own_session,
    retention,
    warm_rows,
)
from braidstream.spark.sink import Sink
from braidstream.spark.sinks import OWNER, FileSink, staged_frame
from braidstream.spark.sources import DirectRouter, Router, direct_frame, fixed_width, sent_frame
from braidstream.spark.starting import forget_begun, own_seconds, record_start
from braidstream.spark.trying import SETTINGS
from braidstream.spark.variants import variants_frame
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.foreign_changes import foreign_changes
from braidstream.state.manifest import Manifest

if TYPE_CHECKING:
    from braidstream.spark.flow import Flow

__all__ = ["RECENT", "Launch", "Prepared", "gone_folders"]


def check_files(flow: Flow, plan: Plan) -> None:
    """Refuse, before anything is written, files that are there and are not what their streams declare."""
    for branch in plan.branches:
        stream = flow._all[branch.stream]
        if stream.files is not None and stream.name in plan.direct:
            router = Router("", "", branch, arrow_schema(stream.schema))
            sensitive = is_case_sensitive(flow.spark)
            DirectRouter(router, stream.time, plan.direct[stream.name], sensitive).check(stream.files)


@dataclass(frozen=True)
class Prepared:
    """Queries that were checked, and what runs for them. Nothing has been changed so far."""

    queries: Mapping[str, ContinuousQuery]
    plan: Plan
    late: Mapping[str, Sink]
    run: str
    frame: DataFrame
    width: int | None
    """The most bytes of a row that Spark hands to routing, where no row has more and large envelopes go another way."""

    @property
    def outputs(self) -> list[Sink]:
        """All that something is delivered to."""
        return [sink for query in self.queries.values() for sink in query.outputs]

    @property
    def outlets(self) -> Iterator[tuple[str, Sink]]:
        """The sinks by the names of what they are given."""
        yield from self.sinks.items()
        yield from ((f"late {stream}", sink) for stream, sink in self.late.items())
        yield from ((f"bad {name}", sink) for name, sink in self.bad.items())

    @property
    def sinks(self) -> dict[str, Sink]:
        """The sink of each query."""
        return {name: q.sink for name, q in self.queries.items() if q.sink is not None}

    @property
    def file_sinks(self) -> list[FileSink]:
        """All that write to folders."""
        return [sink for sink in map(bare, self.outputs) if isinstance(sink, FileSink)]

    @property
    def bad(self) -> dict[str, Sink]:
        """The sinks of joined rows of which an expression fails, by query."""
        found = {name: query.failed for name, query in self.queries.items()}
        return {name: one.whole for name, one in found.items() if one is not None and one.whole is not None}

    @property
    def apart(self) -> frozenset[str]:
        """The queries of which rows are told apart on which an expression fails."""
        return frozenset(name for name, query in self.queries.items() if query.failed is not None)


@dataclass(frozen=True)
class Launch:
    """What stays the same over the starts of one flow's streaming query."""

    flow: Flow
    checkpoint: Checkpoint
    trigger: Mapping[str, Any]
    owner: str
    progress: deque[EpochProgress]
    decider: Decider
    """Whose budget follows from the queries of each start."""
    interval_s: float | None = None
    """How long an epoch is meant to take."""
    streams: AllStreams = field(default_factory=lambda: AllStreams({}, Tables()))
    """The flow's streams, their files in order and their delays known."""
    is_final: bool = False
    """Whether the checkpoint is closed at the end."""

    @property
    def is_finite(self) -> bool:
        """Whether the flow ends by itself, with all that was there."""
        return bool(self.trigger.get("availableNow"))

    @cached_property
    def recorder(self) -> Recorder:
        """Who records the epochs of all starts."""
        return Recorder(self.checkpoint)

    def prepare(
        self, queries: Mapping[str, ContinuousQuery], manifest: Manifest, added: Collection[str] | None = None
    ) -> Prepared:
        """Check and plan queries after a manifest, or refuse them; `added` are new among them (None: all)."""
        flow = self.flow
        for name, query in queries.items():
            if query.sink is None:
                raise SinkError(
                    f"query {name!r} has no sink",
                    "a sink for each query",
                    ".to('parquet', path='...') or .to('memory')",
                )
        new = [q for name, q in queries.items() if added is None or name in added]
        self._check_sinks(queries, new)
        plan, unused = flow._plan(queries, manifest), {"a controller": flow.controller, "silence": flow.silence}
        flow.routing.check(plan.stores, plan.joins, unused)
        if _releases(flow.controller):
            check_release(flow.spark)
        check_files(flow, plan)
        resolve(flow.spark, flow._all, [q.query for q in new], plan)
        self._check_rows(new, plan)
        return self._framed(queries, plan, manifest)

    def planned(self, queries: Mapping[str, ContinuousQuery], manifest: Manifest) -> Prepared:
        """What runs for queries that were checked, after a later manifest."""
        return self._framed(queries, self.flow._plan(queries, manifest), manifest)

    def _framed(self, queries: Mapping[str, ContinuousQuery], plan: Plan, manifest: Manifest) -> Prepared:
        run = uuid.uuid4().hex
        enriched = list(dict.fromkeys(one for query in queries.values() for one in query.query.enriched))
        frame = self._union(plan, run, enriched, manifest, _settings(queries))
        return Prepared(dict(queries), plan, late_sinks(queries.values()), run, frame, self._width(plan, enriched))

    def warm(self, prepared: Prepared) -> None:
        """Let the JVM compile what it does for the rows of streams that are not read directly, before any are there."""
        plan = prepared.plan
        passing = [b for b in plan.branches if b.stores and b.stream not in plan.direct and not b.attempts]
        known = [b for b in passing if b.stream in self.flow._streams]  # with tables they are other rows
        warm_rows(
            self.flow.spark,
            prepared.width,
            [sent_frame(self.streams[b.stream], b, plan.plain[b.stream]).schema for b in known],
        )

    def _width(self, plan: Plan, enriched: Sequence[Enriched]) -> int | None:
        sent = [b for b in plan.branches if b.stores and b.stream not in plan.direct]
        if not is_single_executor(self.flow.spark) or {one.stream for one in enriched} & {b.stream for b in sent}:
            return None
        widths = [fixed_width(self.streams[b.stream], b, plan.plain[b.stream]) for b in sent]
        known = [width for width in widths if width is not None]
        return max(known, default=1) if len(known) == len(widths) else None

    def _check_sinks(self, queries: Mapping[str, ContinuousQuery], new: Sequence[ContinuousQuery]) -> None:
        """No two outputs in one folder, none in one that is read or in the checkpoint, each one that can be used."""
        flow, late = self.flow, late_sinks(queries.values())
        sources = [(s.name, s.files.path) for s in flow._streams.values() if s.files is not None]
        taken = [(f"the folder of stream {name!r}", path) for name, path in sources if not set(path) & set("*?[{")]
        taken += [(f"the folder of table {name!r}", path) for name, path in flow.tables.folders()]
        outputs = [(name, q.sink) for name, q in queries.items() if q.sink is not None]
        outputs += [(f"late {s}", one) for s, sink in late.items() for one in sink.parts]
        outputs += [(f"bad {q.query.name}", q.failed.whole) for q in queries.values() if q.failed and q.failed.whole]
        if new:
            refuse_overlaps(outputs, [*taken, ("the checkpoint", self.checkpoint.root)])
        for sink in (sink for query in new for sink in query.outputs):
            sink.find(flow.spark)
            sink.check(self.owner)

    def _check_rows(self, queries: Sequence[ContinuousQuery], plan: Plan) -> None:
        """Every sink can take the rows that it is going to be given."""
        for query in queries:
            name = query.query.name
            if query.sink is not None:
                raw = staged_frame(self.flow.spark, self.checkpoint.root, (), plan.schema_of(name))
                rows = raw if plan.finished[name] else finish(query.query, raw)
                query.sink.check_rows(rows.schema)
            if query.failed is not None and query.failed.whole is not None:
                query.failed.whole.check_rows(FAILED_ROWS)
            for stream, sinks in query.late_sinks().items():
                for sink in sinks:
                    sink.check_rows(self.flow._all[stream].schema)

    def claim(self, queries: Iterable[ContinuousQuery]) -> None:
        """Mark the outputs of queries as this flow's: what may still be refused, and the first that is written."""
        for sink in (sink for query in queries for sink in query.outputs):
            sink.claim(self.owner, self.checkpoint.owner)

    def commit(self, prepared: Prepared, manifest: Manifest, until_now: Collection[str] = ()) -> Manifest:
        """Write what runs from now on: the queries, and what rows are arranged by, with regions for all stages.

        Keys with a grid over stores that are not joined any more are light again. Folders `until_now` stay known.
        """
        stores, keeps_heavy = prepared.plan.stores, self.decider.regridder is not None
        n_groups, shares = self.flow.groups_over(manifest.n_slots), self.flow.options.placement
        planned = with_regions(with_plan(manifest, prepared.plan), stores, n_groups, shares)
        folders = (*until_now, *(resolved(sink.path) for sink in prepared.file_sinks))
        planned = with_folders(with_grids(planned, stores, keeps_heavy=keeps_heavy), folders)
        return self.checkpoint.commit(planned)

    def run(self, prepared: Prepared, manifest: Manifest) -> tuple[StreamingQuery | Ended, EpochRunner[DataFrame]]:
        """Start what was committed, after what a lost process had begun and what is owed."""
        runner, cluster = self._runner(prepared, manifest)
        runner.prepare()
        if is_ended(runner.manifest):  # a lost process had begun that; what else has arrived is not read
            return Ended(), runner
        record_start(self.recorder, self.checkpoint, manifest, {n: q.query.text for n, q in prepared.queries.items()})
        writer = prepared.frame.writeStream.foreachBatch(cluster.batches(runner))
        query = writer.option("checkpointLocation", self.checkpoint.offsets).trigger(**self.trigger).start()
        self.recorder.engine_s = partial(own_seconds, query)
        return query, runner

    def settled(self, held: Mapping[str, ContinuousQuery], manifest: Manifest, ends: Collection[str]) -> Manifest:
        """The manifest after what is owed to queries that end was delivered, under what was declared until now.

        It knows the folders of late and of unreadable rows too, which are owed to nobody: `forget` looks at them.
        """
        before = self.planned(held, manifest)
        for query in held.values():
            for sink in query.owed:
                sink.find(self.flow.spark)  # what a table asks of a writer may be something else by now
        self.claim(held.values())
        runner, _ = self._runner(before, self.commit(before, manifest, all_folders(manifest)))
        stay = {join.query for join in before.plan.joins if join.query.split(":")[0] not in ends}
        if runner.owes(stay):
            runner.settle()
        return runner.manifest

    def forget(self, prepared: Prepared, manifest: Manifest) -> None:
        """Delete what was delivered of an epoch that was begun and not committed, where nobody delivers it again."""
        forget_begun(self.checkpoint, manifest, self.owner, prepared.file_sinks, lambda: prepared.frame)

    def _runner(self, prepared: Prepared, manifest: Manifest) -> tuple[EpochRunner[DataFrame], SparkCluster]:
        flow, plan = self.flow, prepared.plan
        executors = Executors(flow.spark) if _releases(flow.controller) else None
        cluster = SparkCluster(
            flow.spark,
            self.checkpoint.root,
            prepared.run,
            executors,
            prepared.apart,
            width=prepared.width,
        )
        durable = self.checkpoint.durable
        outlets = SparkOutlets(
            lambda: cluster.session,
            self.checkpoint.root,
            prepared.sinks,
            prepared.late,
            durable=durable,
            bad=prepared.bad,
        )
        running = FlowRun(
            self.checkpoint,
            prepared.run,
            plan,
            {name: q.query for name, q in prepared.queries.items()},
            {b.stream: self.streams[b.stream].delay_us for b in plan.branches if b.stores},
            {b.stream: self._late_schema(b) for b in plan.branches if b.stream in prepared.late},
            cluster,
            outlets,
            None if flow.silence is None else parse_duration(flow.silence),
            replace(self.decider, spiller=spiller_of(flow.overflow, plan.stores, plan.joins, self.interval_s)),
            Patience({n: s.idle_us for n, s in self.streams.items() if s.idle_us is not None}),
            self.is_final,
            self.recorder,
        )
        return EpochRunner(running, manifest, self.progress), cluster

    def _late_schema(self, branch: Branch) -> pa.Schema:
        """What is staged of rows that are late, or of which an expression failed."""
        known = arrow_schema(self.streams[branch.stream].schema)
        schema = pa.schema([known.field(user_name(name)) for name in branch.late_columns if name != FAILED])
        return schema.append(pa.field(FAILED, pa.string())) if branch.attempts else schema

    def _union(
        self, plan: Plan, run: str, enriched: Sequence[Enriched], manifest: Manifest, settings: Mapping[str, str]
    ) -> DataFrame:
        """All streams, in the order of declaration, because Spark knows a query's sources by their order.

        On a session of our own with settings of ours.
        """
        root, streams = self.checkpoint.root, self.streams
        folder = handover_folder(self.flow.spark, root, run)
        schemas = {b.stream: arrow_schema(streams[b.stream].schema) for b in plan.branches}
        routers = {
            b.stream: Router(root, run, b, schemas[b.stream], folder, plan.plain.get(b.stream, {}))
            for b in plan.branches
        }
        own = {**settings, **retention(self.flow.spark, self.checkpoint.keep)}
        spark, n_tasks = own_session(self.flow.spark, root, own), cores(self.flow.spark)
        needed = list(dict.fromkeys(lookup.table for one in enriched for lookup in one.lookups))
        tables = self.flow.tables.frames(manifest.notes.tables, needed)
        frames: list[DataFrame] = []
        for is_direct, names in groupby(streams.declared, lambda name: name in plan.direct):
            if is_direct:
                readers = [(streams[name], self._direct(plan, routers[name])) for name in names]
                frames.append(direct_frame(spark, readers, n_tasks))
                continue
            for name in names:
                others = [(one.lookups, routers[one.name]) for one in enriched if one.stream == name]
                frame = variants_frame(streams[name], [((), routers[name]), *others], tables, n_tasks)
                frames.append(in_session(frame, spark))
        return reduce(DataFrame.unionByName, frames)

    def _direct(self, plan: Plan, router: Router) -> DirectRouter:
        name = router.branch.stream
        return DirectRouter(router, self.streams[name].time, plan.direct[name], is_case_sensitive(self.flow.spark))


def _settings(queries: Mapping[str, ContinuousQuery]) -> Mapping[str, str]:
    """What sessions have to be set to where rows of which an expression fails are told apart."""
    return SETTINGS if any(query.failed is not None for query in queries.values()) else {}


def _releases(controller: Controller | None) -> bool:
    return controller is not None and controller.settings.release


def gone_folders(prepared: Prepared, last: Manifest, store: Checkpoint) -> tuple[str, ...]:
    """What to say of folders that had results until the last epoch, and are not there any more, or not as they were."""
    delivered = delivered_folders(last)
    gone = (sink for sink in prepared.file_sinks if resolved(sink.path) in delivered and not sink.files.exists(OWNER))
    told = tuple(
        f"the results in {sink.path} are gone: the flow delivered there until epoch {last.epoch}; "
        "it goes on with the next epoch, and what was deleted does not come again"
        for sink in gone
    )
    told += foreign_changes(store.files)
    for one in told:
        logging.getLogger("braidstream").warning(one)
    return told
