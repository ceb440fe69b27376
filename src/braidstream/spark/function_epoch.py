"""One epoch of a function's plan, in the driver: run the stages, deliver the results, write the manifest.

    stages -> results to the sink -> manifest (the commit) -> Spark commits its offsets

The manifest says which plan runs and what each node keeps: numbers in its memory, samples and windows in Arrow files
that are listed like segments, so that checking, sweeping and retiring them is the checkpoint's work. An epoch whose
user code failed writes no manifest, and runs again after a restart.

At a reorganization epoch the monitor may name a better plan. The switch is part of the manifest, made when no node
holds windows: the samples that are not yet windows belong to no plan. Nothing here grows with the stream.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from braidstream.control.estimate import Interval
from braidstream.epoch.lateness import Lateness, late_in_all, late_warnings
from braidstream.epoch.runner import RECENT, Running
from braidstream.errors import RunError
from braidstream.functions.arrays import result_schema
from braidstream.functions.node_reports import Done, Said, decoded, done_of
from braidstream.functions.nodes import NodeReport, Setup
from braidstream.functions.templates import FunctionPlan
from braidstream.functions.training import Monitor, Phases
from braidstream.model.directory import Directory
from braidstream.model.faults import reach
from braidstream.model.numbers import BEFORE_FIRST, EpochNumber
from braidstream.model.values import changed
from braidstream.spark.function_stages import ENVELOPE, FunctionTask, RowReader, first_stage, later_stage
from braidstream.spark.session import QUERY_SETTINGS
from braidstream.spark.sinks import Sink, deliver, staged_frame
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.notes import NodeNote, Notes

__all__ = ["FunctionProgress", "FunctionRunner", "first_manifest", "with_plan"]

FORMER = ("next_seq", "arrived", "skip", "newest", "watermark", "now")
"""The numbers of the first node that belong to the stream, not to a plan."""


@dataclass(frozen=True)
class FunctionProgress:
    """One epoch of a function."""

    epoch: int
    plan: str
    rows: Mapping[str, int]
    """Samples (or rows) read, by stream."""
    late: Mapping[str, int]
    null_rows: int
    windows: int
    results: int
    given_up: int
    """Windows without a result that the stream went on without."""
    lost: int
    deferred: int
    waiting: int
    """Windows at the last node that are neither results nor given up."""
    watermark: int | None
    state_bytes: int
    seconds: Mapping[str, float]
    """Time of the steps compute, deliver, commit, and in total."""
    nodes: tuple[NodeReport, ...]
    """What each node did, with times and bytes."""
    warnings: tuple[str, ...] = ()
    """More than 1% of the stream's samples were late, in this epoch or in all so far."""

    @property
    def step(self) -> int:
        """Always 0: functions push no state, so no step of a clean-up comes after their epochs."""
        return 0

    @property
    def untimed(self) -> Mapping[str, int]:
        """None: samples without a time are no samples (`null_rows`)."""
        return {}

    @property
    def late_by(self) -> Mapping[str, int]:
        """None: by how much samples were late is not measured."""
        return {}

    @property
    def state_rows(self) -> int | None:
        """None: state is windows, of any length."""
        return None

    @property
    def completeness_so_far(self) -> Mapping[str, Interval]:
        """None: functions shed nothing."""
        return {}

    @property
    def rows_per_s(self) -> float:
        """Rows through this epoch, per second."""
        return sum(self.rows.values()) / max(self.seconds["total"], 1e-9)


def first_manifest(plan: FunctionPlan) -> Manifest:
    """The manifest before the first epoch."""
    return Manifest(BEFORE_FIRST, Directory.of(1), plan.degree, notes=Notes(plan=plan.strategy))


def plan_of(manifest: Manifest) -> str:
    """The plan of the next epoch, by its short name."""
    if manifest.notes.plan is None:
        raise RunError("the checkpoint has no plan of a function", "a checkpoint of this function", "use a new folder")
    return manifest.notes.plan


def with_plan(manifest: Manifest, plan: FunctionPlan) -> Manifest | None:
    """The manifest with another plan; None while a node holds windows of the old one."""
    nodes = manifest.notes.nodes
    if any(note.holds_windows for note in nodes.values()):
        return None
    kept = {}
    if "0-0" in nodes:
        numbers = {name: value for name, value in nodes["0-0"].numbers.items() if name in FORMER}
        kept["0-0"] = changed(nodes["0-0"], numbers=numbers)
    return replace(manifest, notes=changed(manifest.notes, plan=plan.strategy, nodes=kept), n_slots=plan.degree)


@dataclass
class FunctionRunner:
    """Runs epochs one after the other, and remembers only the last manifest and recent progress."""

    checkpoint: Checkpoint
    name: str
    plans: Mapping[str, FunctionPlan]
    """The plans that may run, by strategy; the manifest names the one that does."""
    setup: Setup
    reader: RowReader
    sink: Sink
    time_type: pa.DataType
    manifest: Manifest
    monitor: Monitor | None = None
    progress: deque[FunctionProgress] = field(default_factory=lambda: deque(maxlen=RECENT))
    running: Running = field(default_factory=Running)

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Run one epoch."""
        with self.running.epoch(self.checkpoint.root):
            self.checkpoint.fence()
            if epoch > self.manifest.epoch:
                self._run(rows, epoch)

    def _run(self, rows: DataFrame, epoch: int) -> None:
        started = time.perf_counter()
        reach("epoch-start", epoch=epoch)
        if self.manifest.epoch != epoch - 1:
            self.manifest = Manifest.read(self.checkpoint.files, epoch - 1)
        task = self._task(epoch)
        done = done_of(self._compute(rows, task))
        reach("after-join", epoch=epoch)
        computed = time.perf_counter()
        self._deliver(rows, epoch, task, done)
        reach("after-results", epoch=epoch)
        delivered = time.perf_counter()
        nodes = tuple(one.report for one in done)
        after = self._reorganized(self._next(epoch, done, nodes), nodes)
        reach("before-manifest", epoch=epoch)
        self.checkpoint.commit(after)
        reach("after-manifest", epoch=epoch)
        self.manifest = after
        self.checkpoint.retire(epoch)
        seconds = {
            "compute": computed - started,
            "deliver": delivered - computed,
            "commit": time.perf_counter() - delivered,
            "total": time.perf_counter() - started,
        }
        self.progress.append(_progress(epoch, task.setup, after, nodes, seconds))

    def _task(self, epoch: int) -> FunctionTask:
        plan = self.plans[plan_of(self.manifest)]
        return FunctionTask(
            self.checkpoint.root,
            epoch,
            replace(self.setup, plan=plan),
            self.reader,
            self.manifest.notes.nodes,
            self.sink.staging(self.checkpoint.root, True),
            plan.gives,
            self.time_type,
        )

    def _compute(self, rows: DataFrame, task: FunctionTask) -> list[Said]:
        """Run all stages as one Spark job, and gather the nodes' reports."""
        for name, value in QUERY_SETTINGS.items():
            rows.sparkSession.conf.set(name, value)
        frame = rows.coalesce(1).mapInArrow(first_stage(task), ENVELOPE)
        for index, stage in enumerate(task.setup.plan.stages[1:], 1):
            frame = frame.repartitionById(stage.n_nodes, "slot").mapInArrow(later_stage(task, index), ENVELOPE)
        return [decoded(row.blob) for row in frame.collect()]

    def _deliver(self, rows: DataFrame, epoch: int, task: FunctionTask, done: Sequence[Done]) -> None:
        self.checkpoint.fence()
        staged = [file for one in done if one.result is not None and (file := one.result.file)]
        schema = result_schema(task.gives, task.reader.time, task.time_type)
        root = task.staging.root or self.checkpoint.root

        def frame() -> DataFrame:
            return staged_frame(rows.sparkSession, root, staged, schema)

        deliver(self.sink, self.name, epoch, staged=staged, frame=frame, finished=True)
        if task.staging.root is not None:
            self.sink.end(Files(task.staging.root), staged)

    def _next(self, epoch: int, done: Sequence[Done], nodes: Sequence[NodeReport]) -> Manifest:
        kept = {one.state.node: one.state for one in done if one.state is not None}
        segments = tuple(_segment(note, note.file, epoch) for note in kept.values() if note.file is not None)
        newest_us, watermark = (kept["0-0"].numbers[name] for name in ("newest", "watermark"))
        totals = Counter(self.manifest.totals)
        last = next(node for node in nodes if node.stage == max(n.stage for n in nodes))
        first = next(node for node in nodes if node.stage == 0)
        stream = self.setup.stream
        totals.update(
            {
                "epochs": 1,
                f"{stream}.rows": first.samples,
                f"{stream}.late": first.late_samples,
                f"{stream}.null": first.null_rows,
                f"{self.name}.windows": first.windows,
                f"{self.name}.results": last.results,
                f"{self.name}.given_up": last.given_up,
                f"{self.name}.lost": sum(node.lost for node in nodes),
                f"{self.name}.too_late": last.late,
            }
        )
        newest = {} if newest_us is None else {stream: newest_us}
        return replace(
            self.manifest,
            epoch=EpochNumber(epoch),
            segments=segments,
            newest=newest,
            watermark=watermark,
            totals=dict(totals),
            notes=changed(self.manifest.notes, nodes=kept),
        )

    def _reorganized(self, after: Manifest, nodes: Sequence[NodeReport]) -> Manifest:
        """The manifest with a better plan, if this is a reorganization epoch and the monitor knows one."""
        if self.monitor is None:
            return after
        current = plan_of(after)
        self.monitor.observe(current, Phases.observed(self.plans[current], nodes))
        if (after.epoch + 1) % self.monitor.every:
            return after
        better = self.monitor.better(current)
        changed = None if better is None else with_plan(after, self.plans[better])
        return after if changed is None else changed


def _segment(note: NodeNote, file: str, epoch: int) -> Segment:
    """A node's file as the manifest lists it: it belongs to no group, and is replaced in every epoch."""
    return Segment(
        name=file,
        store=f"node {note.node}",
        rows=note.rows,
        bytes=note.bytes,
        oldest=0,
        newest=0,
        deadline=0,
        first_epoch=epoch,
        epoch=epoch,
        parts=(),
    )


def _progress(
    epoch: int, setup: Setup, after: Manifest, nodes: tuple[NodeReport, ...], seconds: Mapping[str, float]
) -> FunctionProgress:
    first = next(node for node in nodes if node.stage == 0)
    last = max(nodes, key=lambda node: node.stage)
    return FunctionProgress(
        epoch=epoch,
        plan=setup.plan.strategy,
        rows={setup.stream: first.samples},
        late={setup.stream: first.late_samples},
        null_rows=first.null_rows,
        windows=first.windows,
        results=last.results,
        given_up=last.given_up,
        lost=sum(node.lost for node in nodes),
        deferred=sum(node.deferred for node in nodes),
        waiting=last.waiting,
        watermark=after.watermark,
        state_bytes=sum(segment.bytes for segment in after.segments),
        seconds=seconds,
        nodes=nodes,
        warnings=tuple(
            late_warnings(epoch, {setup.stream: Lateness(first.samples, first.late_samples)}, late_in_all(after))
        ),
    )
