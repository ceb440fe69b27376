"""One epoch on Spark, from envelopes to the commit. Called by `foreachBatch` in the driver.

    exchange -> slots join, store, report -> results to the sinks -> manifest (the commit) -> Spark commits its offsets

The manifest of the epoch before defines everything, now and on replay. When an epoch's manifest is already there, the
process died between our commit and Spark's: there is nothing left to do. Nothing here grows with the stream.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from braidstream.errors import BraidstreamError, DamagedState
from braidstream.kernels.routing import Tally
from braidstream.query import Query
from braidstream.spark.planner import Plan, arrow_schema, finish
from braidstream.spark.progress import EpochProgress
from braidstream.spark.sinks import Sink, deliver, staged_frame
from braidstream.spark.session import QUERY_SETTINGS
from braidstream.spark.slot import REPORT, EpochTask, slot_task
from braidstream.spark.sources import Stream
from braidstream.state import compaction
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.results import Staging
from braidstream.testing.faults import reach

__all__ = ["EpochRunner", "Stopped"]

_RECENT = 200


class Stopped(Exception):  # noqa: N818  (a signal, not an error)
    """Raised in the stream's thread when an epoch would begin after the flow was told to stop."""


@dataclass
class EpochRunner:
    """Runs epochs one after the other, and remembers only the last manifest and recent progress."""

    checkpoint: Checkpoint
    run: str
    plan: Plan
    streams: Mapping[str, Stream]
    queries: Mapping[str, Query]
    sinks: Mapping[str, Sink]
    late: Mapping[str, Sink]
    """The sink of late tuples, by stream."""
    pinned: bool
    manifest: Manifest
    progress: deque[EpochProgress] = field(default_factory=lambda: deque(maxlen=_RECENT))
    failure: BaseException | None = None
    stopping: bool = False
    running: threading.Lock = field(default_factory=threading.Lock)
    _anchor: DataFrame | None = None
    _settled: bool = False

    def __call__(self, envelopes: DataFrame, epoch: int) -> None:
        """Run one epoch."""
        while not self.running.acquire(timeout=0.05):
            if self.stopping:
                raise Stopped
        try:
            if self.stopping:
                raise Stopped
            if epoch > self.manifest.epoch:
                self._run(envelopes, epoch)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.running.release()

    def _run(self, envelopes: DataFrame, epoch: int) -> None:
        started = time.perf_counter()
        reach("epoch-start", epoch=epoch)
        if self.manifest.epoch != epoch - 1:
            self.manifest = Manifest.read(self.checkpoint.files, epoch - 1)
        spark = envelopes.sparkSession
        task = self._task(epoch)
        reports = self._join(spark, envelopes, task)
        _raise_damage(reports)
        reach("after-join", epoch=epoch)
        joined = time.perf_counter()
        self._deliver(spark, epoch, task, reports)
        reach("after-results", epoch=epoch)
        delivered = time.perf_counter()
        after = self._next(epoch, reports)
        reach("before-manifest", epoch=epoch)
        self.checkpoint.commit(after)
        reach("after-manifest", epoch=epoch)
        before, self.manifest = self.manifest, after
        self.checkpoint.retire(epoch)
        seconds = {
            "join": joined - started,
            "deliver": delivered - joined,
            "commit": time.perf_counter() - delivered,
            "total": time.perf_counter() - started,
        }
        self.progress.append(EpochProgress.of(before, after, reports, seconds))

    def _join(self, spark: SparkSession, envelopes: DataFrame, task: EpochTask) -> list[dict[str, Any]]:
        """Run the slots' tasks and gather their reports: all that an epoch needs a cluster for."""
        if not self._settled:
            _settle(spark)
            self._settled = True
        frame = self._exchange(spark, envelopes).mapInArrow(slot_task(task), REPORT)
        return [json.loads(bytes(row.report)) for row in frame.collect()]

    def _task(self, epoch: int) -> EpochTask:
        root = self.checkpoint.root
        windows = {store.name: store.window_us for store in self.plan.stores}
        staging = {q: sink.staging(root, self.plan.finished[q]) for q, sink in self.sinks.items()}
        late = {stream: sink.staging(root, True) for stream, sink in self.late.items()}
        return EpochTask(
            root,
            self.run,
            epoch,
            self.plan.stores,
            self.plan.branches,
            self.plan.joins,
            staging,
            late,
            compaction.plan(self.manifest, windows),
        )

    def _exchange(self, spark: SparkSession, envelopes: DataFrame) -> DataFrame:
        """Bring the envelopes to their slots; pinned to executors by a cached row for each slot, where there are many."""
        n_slots = self.manifest.n_slots
        exchanged = envelopes.repartitionById(n_slots, "slot")
        if not self.pinned:
            return exchanged
        if self._anchor is None or self._anchor.rdd.getNumPartitions() != n_slots:
            anchor = spark.range(n_slots).select(F.col("id").cast("int").alias("slot")).repartitionById(n_slots, "slot")
            self._anchor = anchor.persist(StorageLevel.MEMORY_ONLY)
            self._anchor.count()
        return exchanged.join(self._anchor.hint("shuffle_hash"), "slot").select("slot", "kind", "blob")

    def _deliver(self, spark: SparkSession, epoch: int, task: EpochTask, reports: Sequence[Mapping[str, Any]]) -> None:
        for name, sink in self.sinks.items():
            staged = [file for r in reports if (file := r["results"][name]["file"])]
            join = next(join for join in self.plan.joins if join.query == name)
            self._hand_over(spark, epoch, sink, name, task.staging[name], staged, join.schema, self.queries[name])
        for stream, sink in self.late.items():
            staged = [file for r in reports if (file := r["late"].get(stream))]
            schema = arrow_schema(self.streams[stream].schema)
            self._hand_over(spark, epoch, sink, f"late {stream}", task.late[stream], staged, schema, None)

    def _hand_over(
        self,
        spark: SparkSession,
        epoch: int,
        sink: Sink,
        name: str,
        staging: Staging,
        staged: list[str],
        schema: pa.Schema,
        query: Query | None,
    ) -> None:
        finished = query is None or self.plan.finished[query.name]

        def frame() -> DataFrame:
            raw = staged_frame(spark, staging.root or self.checkpoint.root, staged, schema)
            return raw if finished or query is None else finish(query, raw)

        deliver(sink, name, epoch, staged=staged, frame=frame, finished=finished)
        if staging.root is not None:
            sink.end(Files(staging.root), staged)

    def _next(self, epoch: int, reports: Sequence[Mapping[str, Any]]) -> Manifest:
        """The manifest after this epoch."""
        tallies = _tallies(reports)
        newest = dict(self.manifest.newest)
        for stream, tally in tallies.items():
            if tally.newest is not None:
                newest[stream] = max(newest.get(stream, tally.newest), tally.newest)
        watermark = self._watermark(newest)
        segments = self._segments(reports, watermark)
        totals = Counter(self.manifest.totals)
        totals["epochs"] += 1
        for stream, tally in tallies.items():
            totals.update({f"{stream}.rows": tally.rows, f"{stream}.late": tally.late, f"{stream}.keyless": tally.keyless})
        for report in reports:
            totals.update({f"{query}.matches": result["rows"] for query, result in report["results"].items()})
        executors = {**self.manifest.executors, **{report["slot"]: report["executor"] for report in reports}}
        return replace(
            self.manifest,
            epoch=epoch,
            segments=segments,
            newest=newest,
            watermark=watermark,
            executors=executors,
            totals=dict(totals),
        )

    def _watermark(self, newest: Mapping[str, int]) -> int | None:
        """The minimum over streams of (largest event time seen - delay); none until every stream has spoken."""
        named = [branch.stream for branch in self.plan.branches]
        if any(name not in newest for name in named):
            return self.manifest.watermark
        reached = min(newest[name] - self.streams[name].delay_us for name in named)
        return reached if self.manifest.watermark is None else max(self.manifest.watermark, reached)

    def _segments(self, reports: Sequence[Mapping[str, Any]], watermark: int | None) -> tuple[Segment, ...]:
        live = {segment.name: segment for segment in self.manifest.segments}
        for report in reports:
            groups = self.manifest.directory.of_slot(report["slot"])
            ranges = [(group.low, group.high) for group in groups]
            for merged in report["merged"]:
                for name in merged["inputs"]:
                    live[name] = live[name].without(ranges)
                if merged["segment"] is not None:
                    made = Segment.from_plain(merged["segment"])
                    live[made.name] = made
            for plain in report["segments"]:
                live[plain["name"]] = Segment.from_plain(plain)
        windows = {store.name: store.window_us for store in self.plan.stores}
        return tuple(
            segment
            for segment in live.values()
            if segment.parts and segment.newest >= compaction.alive_from(watermark, windows[segment.store])
        )


def _settle(spark: SparkSession) -> None:
    """Settings of ours, on the session that Spark cloned for this streaming query: the user's keeps its own."""
    for name, value in QUERY_SETTINGS.items():
        spark.conf.set(name, value)


def _tallies(reports: Sequence[Mapping[str, Any]]) -> dict[str, Tally]:
    total: dict[str, Tally] = {}
    for report in reports:
        for plain in report["tallies"]:
            tally = Tally(**plain)
            total[tally.stream] = total[tally.stream].plus(tally) if tally.stream in total else tally
    return total


def _raise_damage(reports: Sequence[Mapping[str, Any]]) -> None:
    for report in reports:
        if "damaged" in report:
            raise DamagedState(report["damaged"]["path"], report["damaged"]["wrong"])


def is_ours(error: BaseException | None) -> bool:
    """Whether an error is one whose message is meant for the user."""
    return isinstance(error, BraidstreamError)
