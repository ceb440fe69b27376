"""Spark as the cluster of epochs: exchange, tasks of slots and of nodes, and what SQL computes between them.

The exchange is `repartitionById`: the slot is the Spark partition. Where there are many executors slots are pinned: the
exchanged rows are joined to a cached row for each slot (the anchor), and tasks follow the cached block.

Jobs run on the session that Spark cloned for the streaming query, with settings of ours; before its first epoch on a
copy of the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from braidstream.epoch.cluster import SlotFunction
from braidstream.functions.node_cluster import NodeStage
from braidstream.kernels.measures import AggregatePlan
from braidstream.model.envelopes import Content, Kind
from braidstream.query import Query
from braidstream.slot.handover import clear
from braidstream.spark.executors import Executors
from braidstream.spark.finishing import composite_rows, composite_rows_apart
from braidstream.spark.json_errors import without_json
from braidstream.spark.session import (
    QUERY_SETTINGS,
    forget_handed_over,
    handover_folder,
    is_single_executor,
    own_session,
    unweighed,
)
from braidstream.spark.sinks import staged_frame
from braidstream.spark.tasks import ENVELOPE, NODE_ENVELOPE, REPORTS, EpochTasks
from braidstream.spark.trying import SETTINGS
from braidstream.state.manifest import Manifest

__all__ = ["SparkCluster"]


class SparkCluster:
    """Spark, for one start of a flow."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        run: str = "",
        executors: Executors | None = None,
        apart: Collection[str] = (),
        *,
        width: int | None = None,
    ) -> None:
        self._unweighed = {} if width is None else unweighed(width)
        self._arrived: DataFrame | None = None
        self._spark, self._root = spark, root
        self._folder = handover_folder(spark, root, run)
        forget_handed_over(spark, root)  # of tasks that went on after their job had failed; nothing of the flow runs
        self._apart, self._settings = apart, {**QUERY_SETTINGS, **(SETTINGS if apart else {})}
        self._pinned, self._executors = not is_single_executor(spark), executors
        self._clone: SparkSession | None = None
        self._anchor: DataFrame | None = None
        self._anchored_on = 0
        self._tasks = EpochTasks()

    def batches(self, runner: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """What `foreachBatch` calls for each epoch."""

        def run(envelopes: DataFrame, epoch: int) -> None:
            session = envelopes.sparkSession
            if self._clone is None:
                for name, value in self._settings.items():
                    session.conf.set(name, value)
            self._clone, self._tasks.epoch, self._arrived = session, epoch, envelopes
            try:
                with without_json():
                    runner(envelopes, epoch)
            finally:
                self._tasks.epoch = self._arrived = None

        return run

    def run(self, envelopes: DataFrame, stages: Sequence[SlotFunction], before: Manifest) -> list[bytes]:
        """A Spark job with one exchange for each stage."""
        frame = envelopes
        for stage in stages[:-1]:
            frame = self._tasks.mapped(self._exchange(frame, before), stage, ENVELOPE)
        frame = self._tasks.mapped(self._exchange(frame, before), stages[-1], REPORTS)
        try:
            with self._routing(envelopes):
                return [bytes(row.report) for row in frame.collect()]
        finally:
            clear(self._folder)

    @contextmanager
    def _routing(self, envelopes: DataFrame) -> Iterator[None]:
        """While the job runs that routes: rows of a fixed width are counted, not weighed (`session.unweighed`)."""
        settings = self._unweighed if envelopes is self._arrived else {}
        try:
            for name, value in settings.items():
                self.session.conf.set(name, value)
            yield
        finally:
            for name in settings:
                self.session.conf.set(name, QUERY_SETTINGS[name])

    def run_nodes(self, rows: DataFrame, stages: Sequence[NodeStage]) -> list[bytes]:
        """A Spark job: the first stage is one task over all partitions, others have one task a node."""
        first, *later = stages
        frame = rows.coalesce(1).mapInArrow(first.run, NODE_ENVELOPE)
        for stage in later:
            frame = frame.repartitionById(stage.n_nodes, "slot").mapInArrow(stage.run, NODE_ENVELOPE)
        return [bytes(row.blob) for row in frame.collect()]

    def ticks(self, n_slots: int) -> DataFrame:
        """Envelopes that only wake every slot."""
        slots, tick = self.session.range(n_slots), Kind(Content.TICK).code
        return slots.select(F.col("id").cast("int").alias("slot"), F.lit(tick).alias("kind"), F.lit(b"").alias("blob"))

    def composites(
        self, query: Query, plan: AggregatePlan, files: Sequence[str], schema: pa.Schema, route: SlotFunction
    ) -> DataFrame:
        """Spark's SQL engine evaluates."""
        raw = staged_frame(self.session, self._root, files, schema)
        is_apart = query.name in self._apart
        rows = composite_rows_apart(query, plan, raw)[0] if is_apart else composite_rows(query, plan, raw)
        return rows.mapInArrow(route, ENVELOPE)

    def together(self, parts: Sequence[DataFrame]) -> DataFrame:
        """The union."""
        return reduce(DataFrame.unionByName, parts)

    @property
    def handover(self) -> str | None:
        """Below `spark.local.dir`, where all tasks run on this machine."""
        return self._folder

    @property
    def session(self) -> SparkSession:
        """Where jobs run."""
        return own_session(self._spark, self._root, self._settings) if self._clone is None else self._clone

    def _exchange(self, envelopes: DataFrame, before: Manifest) -> DataFrame:
        """Bring the envelopes to their slots; where there are many executors, pinned by a cached row for each slot."""
        exchanged = envelopes.repartitionById(before.n_slots, "slot")
        if not self._pinned:
            return exchanged
        return exchanged.join(self._anchored(before).hint("shuffle_hash"), "slot").select("slot", "kind", "blob")

    def _anchored(self, before: Manifest) -> DataFrame:
        """The cached row of each slot: made anew for other slots, and for executors that came while slots share one."""
        session, n_slots = self.session, before.n_slots
        n_executors = _n_executors(session)
        n_used = len(set(before.executors.values())) or n_executors
        has_room = n_executors > self._anchored_on and n_used < min(n_slots, n_executors)
        if self._anchor is None or self._anchor.rdd.getNumPartitions() != n_slots or has_room:
            if self._anchor is not None:
                self._anchor.unpersist()
            slots = session.range(n_slots).select(F.col("id").cast("int").alias("slot"))
            self._anchor = slots.repartitionById(n_slots, "slot").persist(StorageLevel.MEMORY_ONLY)
            self._anchor.count()
        self._anchored_on = n_executors
        if self._executors is not None:
            self._executors.follow(n_slots)
        return self._anchor


def _n_executors(spark: SparkSession) -> int:
    """How many executors there are now."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is in it too
