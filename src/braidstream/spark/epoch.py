"""One epoch on Spark, from envelopes to the commit. Called by `foreachBatch` in the driver.

    exchange -> slots join, store, report -> results to the sinks -> manifest (the commit) -> Spark commits its offsets

The manifest of the epoch before defines everything, now and on replay. When an epoch's manifest is already there, the
process died between our commit and Spark's: there is nothing left to do. Nothing here grows with the stream.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import repeat
from typing import Any, Protocol

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from braidstream.control.probing import learned
from braidstream.control.rates import paced
from braidstream.control.suspension import suspend
from braidstream.epoch.lateness import late_in_epoch, remembered
from braidstream.epoch.progress import EpochProgress, tallies_of
from braidstream.epoch.reorganizer import Reorganizer
from braidstream.epoch.spiller import CLEANING, Spiller
from braidstream.errors import BraidstreamError
from braidstream.kernels.measures import AggregatePlan
from braidstream.kernels.routing import ENVELOPE, TICK
from braidstream.model.faults import reach
from braidstream.model.stores import COMPOSITES, Store
from braidstream.plan.aggregate_plan import composites_of
from braidstream.plan.planner import Plan
from braidstream.query import Query
from braidstream.slot.aggregation import reached_watermark, route_composites
from braidstream.slot.task import REPORTS, EpochTask, routes_of, slot_task
from braidstream.spark.clean_ups import CleanUps, SlotFunction, raise_damage
from braidstream.spark.deliveries import Deliveries
from braidstream.spark.finishing import composite_rows
from braidstream.spark.session import QUERY_SETTINGS
from braidstream.spark.sinks import Sink, staged_frame
from braidstream.spark.sources import Stream
from braidstream.state import adoption, compaction, pushed
from braidstream.state.cells import pruned
from braidstream.state.checkpoint import STAGED, Checkpoint
from braidstream.state.files import unwritable
from braidstream.state.generations import unexpired
from braidstream.state.manifest import Manifest, Part, Segment
from braidstream.state.staging import Staging

__all__ = ["EpochRunner", "Regridder", "Stopped"]

_RECENT = 200


class Regridder(Protocol):
    """Gives heavy keys their grids."""

    def regridded(self, manifest: Manifest, stores: Sequence[Store], reports: Sequence[Mapping[str, Any]]) -> Manifest:
        """The manifest to commit, after the reports of its epoch."""
        ...


class Stopped(Exception):
    """Raised in the stream's thread when an epoch would begin after the flow was told to stop."""


@dataclass
class EpochRunner(Deliveries, CleanUps):
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
    silence_us: int | None = None
    """How long a stream may be silent, in event time, before work that waits for it is suspended."""
    reorganizer: Reorganizer | None = None
    """None: groups stay where they are."""
    regridder: Regridder | None = None
    """None: no key is given a grid."""
    progress: deque[EpochProgress] = field(default_factory=lambda: deque(maxlen=_RECENT))
    failure: BaseException | None = None
    stopping: bool = False
    running: threading.Lock = field(default_factory=threading.Lock)
    thread: int | None = None
    """The thread in which an epoch runs now."""
    spiller: Spiller | None = None
    """None: all state is active, however much there is."""
    _anchor: DataFrame | None = None
    _anchored_on: int = 0
    _settled: bool = False

    def __call__(self, envelopes: DataFrame, epoch: int) -> None:
        """Run one epoch."""
        while not self.running.acquire(timeout=0.05):
            if self.stopping:
                raise Stopped
        try:
            if self.stopping:
                raise Stopped
            self.checkpoint.fence()
            self.thread = threading.get_ident()
            if epoch > self.manifest.epoch:
                self._run(envelopes, epoch)
        except OSError as error:
            self.failure = unwritable(error, self.checkpoint.root) or error
            raise self.failure from error
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.thread = None
            self.running.release()

    def _run(self, envelopes: DataFrame, epoch: int) -> None:
        started = time.perf_counter()
        reach("epoch-start", epoch=epoch)
        if self.manifest.epoch != epoch - 1:
            self.manifest = Manifest.read(self.checkpoint.files, epoch - 1)
        spark = envelopes.sparkSession
        task = self._task(epoch)
        reports = self._join(spark, envelopes, task)
        raise_damage(reports)
        reports += self._enumerated(spark, task, reports)
        raise_damage(reports)
        if self._silent(reports):
            reports += self._join(spark, self._ticks(spark), replace(task, merges={}, adoptions=()))
        after, resumed = self._next(self.manifest, epoch, reports)
        if resumed:
            reached, _ = self._next(self.manifest, epoch, reports, expires=False)
            reached.write(self.checkpoint.files, pending=True)
            more = self._join(
                spark,
                self._ticks(spark),
                replace(task, merges={}, adoptions=(), suspended=frozenset(), deferred=resumed),
            )
            raise_damage(more)
            reports += more
            after, _ = self._next(self.manifest, epoch, reports)
        if cleaning := self.manifest.memory.get(CLEANING):
            reports += self._clean(spark, after, cleaning)
            after = self._after_clean_up(self._next(self.manifest, epoch, reports)[0], cleaning)
        reach("after-join", epoch=epoch)
        joined = time.perf_counter()
        self._deliver(spark, epoch, reports)
        reach("after-results", epoch=epoch)
        delivered = time.perf_counter()
        spare_s = 0.0 if self.spiller is None else self.spiller.spare_s(delivered - started)
        after = self._decided(after, reports, spare_s)
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
        self.progress.append(EpochProgress.of(before, after, reports, seconds, spare_s))

    def _resumed(self, spark: SparkSession, reached: Manifest, joins: Mapping[str, int]) -> list[dict[str, Any]]:
        """What suspended joins have not produced until a manifest, in a job between two epochs."""
        reached.write(self.checkpoint.files, pending=True)
        run = f"{self.run}:{uuid.uuid4().hex}"
        task = replace(self._task(reached.epoch), run=run, merges={}, adoptions=())
        reports = self._join(spark, self._ticks(spark), replace(task, suspended=frozenset(), deferred=joins))
        raise_damage(reports)
        return reports

    def _woken(self, spark: SparkSession, run: SlotFunction) -> list[dict[str, Any]]:
        """Wake every slot to run a function, and gather the reports."""
        frame = self._exchange(spark, self._ticks(spark)).mapInArrow(run, REPORTS)
        return [json.loads(bytes(row.report)) for row in frame.collect()]

    def _decided(self, after: Manifest, reports: Sequence[Mapping[str, Any]], spare_s: float) -> Manifest:
        """The manifest with what the controller and the budget ask for."""
        before = after.directory
        if self.spiller is not None:
            after = self.spiller.remembered(after, reports)
        joined = [report for report in reports if "cleaned_bytes" not in report]
        if self.reorganizer is not None:
            after = self.reorganizer.reorganized(after, joined)
        if self.regridder is not None:
            after = self.regridder.regridded(after, self.plan.stores, joined)
        if self.spiller is not None:
            asked = [] if self.reorganizer is None else self.reorganizer.spills
            after = self.spiller.decided(after, before, spare_s, asked)
            reach("spill", epoch=after.epoch)
        return after

    def _join(self, spark: SparkSession, envelopes: DataFrame, task: EpochTask) -> list[dict[str, Any]]:
        """Run the slots' tasks and gather their reports: all that an epoch needs a cluster for."""
        if not self._settled:
            _settle(spark)
            self._settled = True
        frame = envelopes
        for stage in range(last := self.plan.n_stages - 1):
            frame = self._exchange(spark, frame).mapInArrow(slot_task(task, stage, is_last=False), ENVELOPE)
        frame = self._exchange(spark, frame).mapInArrow(slot_task(task, last), REPORTS)
        return [json.loads(bytes(row.report)) for row in frame.collect()]

    def _silent(self, reports: Sequence[Mapping[str, Any]]) -> bool:
        """Whether no slot ran, so that an aggregate which has a row in every epoch has none in this one."""
        given = {query for report in reports for query in report["results"]}
        return any(plan.emits_always and plan.query not in given for plan in self.plan.aggregates)

    def _enumerated(
        self, spark: SparkSession, task: EpochTask, reports: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Aggregate the composites that slots staged, in a job of its own, since Spark computes their expressions."""
        plans = [plan for plan in self.plan.aggregates if plan.enumeration is not None]
        if not plans:
            return []
        root, frames = self.checkpoint.root, [self._ticks(spark)]
        staged = {plan.query: self._composites(plan, reports) for plan in plans}
        for plan in plans:
            if staged[plan.query]:
                raw = staged_frame(spark, root, staged[plan.query], self.plan.schema_of(composites_of(plan)))
                rows = composite_rows(self.queries[plan.query], plan, raw)
                frames.append(rows.mapInArrow(route_composites(plan, task.manifest, routes_of), ENVELOPE))
        seen, before = tallies_of(reports).values(), self.manifest.watermark
        reached = reached_watermark(self.manifest.newest, seen, task.delays_us, before)
        last = slot_task(replace(task, reached=reached), COMPOSITES)
        frame = self._exchange(spark, reduce(DataFrame.unionByName, frames)).mapInArrow(last, REPORTS)
        made = [json.loads(bytes(row.report)) for row in frame.collect()]
        for name in (name for names in staged.values() for name in names):
            self.checkpoint.files.delete(name)
        return made

    def _composites(self, plan: AggregatePlan, reports: Sequence[Mapping[str, Any]]) -> list[str]:
        results = (report["results"].get(composites_of(plan), {}) for report in reports)
        return [result["file"] for result in results if result.get("file")]

    def _ticks(self, spark: SparkSession) -> DataFrame:
        """Envelopes that only wake every slot."""
        slots = spark.range(self.manifest.n_slots)
        return slots.select(F.col("id").cast("int").alias("slot"), F.lit(TICK).alias("kind"), F.lit(b"").alias("blob"))

    def _task(self, epoch: int) -> EpochTask:
        root = self.checkpoint.root
        windows = {store.name: store.merge_span_us for store in self.plan.stores}
        staging = {query: self._staging(query) for query in self.sinks}
        staging |= {composites_of(p): Staging(root, STAGED) for p in self.plan.aggregates if p.enumeration is not None}
        late = {stream: sink.staging(root, True) for stream, sink in self.late.items()}
        adoptions = self._adoptions(epoch, windows)
        return EpochTask(
            root,
            self.run,
            epoch,
            self.plan.stores,
            self.plan.branches,
            self.plan.joins,
            staging,
            late,
            self._merges(windows, adoptions),
            suspended=frozenset(self._suspended()),
            aggregates=self.plan.aggregates,
            delays_us=self._delays(),
            adoptions=adoptions,
            tracks=self.regridder is not None and self.manifest.n_slots > 1,
            shed=frozenset() if self.spiller is None else self.spiller.shed_stores,
            piece_bytes=self._most_merged(),
        )

    def _merges(
        self, windows: Mapping[str, int | None], adoptions: Sequence[adoption.Adoption]
    ) -> Mapping[int, Sequence[compaction.SegmentMerge]]:
        busy = adoption.sources(adoptions)
        planned = compaction.plan(self.manifest, windows, self._barriers(), busy, self._most_merged())
        if self.spiller is None:
            return planned
        merges = {slot: list(own) for slot, own in self.spiller.merges(self.manifest, planned).items()}
        most = self.spiller.overflow.piece_bytes
        for slot, more in pushed.plan(self.manifest, windows, most, self._barriers(), busy).items():
            merges.setdefault(slot, []).extend(more)
        return merges

    def _adoptions(self, epoch: int, windows: Mapping[str, int | None]) -> tuple[adoption.Adoption, ...]:
        return adoption.plan(self.manifest, windows, epoch, self._barriers())

    def _most_merged(self) -> int | None:
        return None if self.spiller is None else self.spiller.overflow.piece_bytes

    def _suspended(self) -> dict[str, int]:
        """The suspended joins, each with the last epoch whose tuples it has joined."""
        return dict(self.manifest.memory.get("suspended", {}))

    def _barriers(self) -> set[int]:
        """Epochs that somebody still tells apart: see `compaction.plan`."""
        submitted = {join.since for join in self.plan.joins if join.since >= 0}
        return submitted | set(self._suspended().values())

    def _exchange(self, spark: SparkSession, envelopes: DataFrame) -> DataFrame:
        """Bring the envelopes to their slots; where there are many executors, pinned by a cached row for each slot."""
        n_slots = self.manifest.n_slots
        exchanged = envelopes.repartitionById(n_slots, "slot")
        if not self.pinned:
            return exchanged
        anchor = self._anchored(spark, n_slots)
        return exchanged.join(anchor.hint("shuffle_hash"), "slot").select("slot", "kind", "blob")

    def _anchored(self, spark: SparkSession, n_slots: int) -> DataFrame:
        """The cached row of each slot: made anew for other slots, and for executors that came while slots share one."""
        n_executors = _n_executors(spark)
        n_used = len(set(self.manifest.executors.values())) or n_executors
        has_room = n_executors > self._anchored_on and n_used < min(n_slots, n_executors)
        if self._anchor is None or self._anchor.rdd.getNumPartitions() != n_slots or has_room:
            if self._anchor is not None:
                self._anchor.unpersist()
            anchor = spark.range(n_slots).select(F.col("id").cast("int").alias("slot")).repartitionById(n_slots, "slot")
            self._anchor = anchor.persist(StorageLevel.MEMORY_ONLY)
            self._anchor.count()
        self._anchored_on = n_executors
        return self._anchor

    def _next(
        self, before: Manifest, epoch: int, reports: Sequence[Mapping[str, Any]], *, expires: bool = True
    ) -> tuple[Manifest, Mapping[str, int]]:
        """The manifest after the reports of this epoch, and the joins that are to produce what they left out.

        What these still need must not expire before: until they are done the watermark stays where it was.
        """
        tallies = tallies_of(reports)
        newest = dict(before.newest)
        for stream, tally in tallies.items():
            if tally.newest is not None:
                newest[stream] = max(newest.get(stream, tally.newest), tally.newest)
        watermark = self._watermark(newest) if expires else before.watermark
        totals = Counter(before.totals)
        totals["epochs"] += before.epoch < epoch
        for stream, tally in tallies.items():
            totals.update(
                {f"{stream}.rows": tally.rows, f"{stream}.late": tally.late, f"{stream}.keyless": tally.keyless}
            )
        for report in reports:
            totals.update({f"{query}.matches": result["rows"] for query, result in report["results"].items()})
            totals.update({f"{join}.produced": rows for join, rows in report["produced"].items()})
        spoke = {stream for stream, tally in tallies.items() if tally.rows}
        memory = remembered(before.memory, late_in_epoch(tallies, before.newest))
        decided = suspend(
            self.plan.siblings, self.plan.parents, newest, spoke, self.silence_us, memory.get("suspended", {}), epoch
        )
        memory["suspended"] = dict(decided.suspended)
        rows = {stream: tally.rows for stream, tally in tallies.items()}
        memory["rates"] = paced(memory.get("rates", {}), before.newest, newest, rows)
        memory["fanouts"] = learned(memory.get("fanouts", {}), [report["probes"] for report in reports])
        after = replace(
            before,
            epoch=epoch,
            segments=self._segments(before, reports, watermark),
            newest=newest,
            watermark=watermark,
            executors={**before.executors, **{report["slot"]: report["executor"] for report in reports}},
            totals=dict(totals),
            memory=memory,
        )
        return pruned(after), decided.resumed

    def _watermark(self, newest: Mapping[str, int]) -> int | None:
        """The minimum over streams of (largest event time seen - delay); none until every stream has spoken."""
        return reached_watermark(newest, (), self._delays(), self.manifest.watermark)

    def _delays(self) -> dict[str, int]:
        return {b.stream: self.streams[b.stream].delay_us for b in self.plan.branches if b.stores}

    def _segments(
        self, before: Manifest, reports: Sequence[Mapping[str, Any]], watermark: int | None
    ) -> tuple[Segment, ...]:
        live = {segment.name: segment for segment in before.segments}
        for report in reports:
            groups = before.directory.of_slot(report["slot"])
            ranges = [(group.low, group.high) for group in groups]
            for merged in report["merged"]:
                for name, parts in zip(merged["inputs"], merged.get("parts") or repeat(None)):  # noqa: B905  endless
                    live[name] = _without(live[name], merged.get("codes"), parts, ranges)
                if merged["segment"] is not None:
                    made = Segment.from_plain(merged["segment"])
                    live[made.name] = made
            for plain in report["segments"]:
                live[plain["name"]] = Segment.from_plain(plain)
        windows = {store.name: store.merge_span_us for store in self.plan.stores}
        live = adoption.adopted(live, self._adoptions(before.epoch + 1, windows), reports)
        kept = {store.name for store in self.plan.stores}
        return unexpired((s for s in live.values() if s.store in kept), before.directory, watermark)


def _without(
    segment: Segment, codes: Sequence[int] | None, parts: Sequence[Any] | None, ranges: Sequence[tuple[int, int]]
) -> Segment:
    """What a merge has left of one of its inputs: it took cells, some pushed parts, or a slot's active parts."""
    if codes:
        return segment.without_cells(codes)
    return segment.without(ranges) if parts is None else segment.without_parts(Part(*part) for part in parts)


def _n_executors(spark: SparkSession) -> int:
    """How many executors there are now."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is in it too


def _settle(spark: SparkSession) -> None:
    """Settings of ours, on the session that Spark cloned for this streaming query: the user's keeps its own."""
    for name, value in QUERY_SETTINGS.items():
        spark.conf.set(name, value)


def is_ours(error: BaseException | None) -> bool:
    """Whether an error is one whose message is meant for the user."""
    return isinstance(error, BraidstreamError)
