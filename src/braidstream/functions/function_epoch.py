"""One epoch of a function, from rows to the commit, as an ordered tuple of steps; `epoch.steps` is that of joins.

    compute    all stages of the plan; nodes report what they did
    deliver    staged results to the sink
    commit     another plan if a better one is known, the manifest, and what only older manifests refer to is deleted

The manifest before says which plan runs and what each node keeps, now and on replay. An epoch whose user code failed
writes no manifest, and runs again after a restart. At a reorganization epoch the monitor may name a better plan; the
switch is part of the manifest. Nothing here grows with the stream.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import pyarrow as pa

from braidstream.epoch.outlets import Outlet, Outlets
from braidstream.epoch.phases import Steps, commit, retire, run_phases
from braidstream.epoch.recorder import NO_RECORDER, Recorder
from braidstream.functions.arrays import result_schema
from braidstream.functions.function_plans import after_nodes, plan_of, with_plan
from braidstream.functions.function_progress import FunctionProgress
from braidstream.functions.node_cluster import NodeCluster, NodeStage, RowsT
from braidstream.functions.node_reports import Done, decoded, done_of
from braidstream.functions.node_tasks import FunctionTask, RowReader, first_stage, later_stage
from braidstream.functions.nodes import NodeReport, Setup
from braidstream.functions.templates import FunctionPlan
from braidstream.functions.training import Monitor, Phases
from braidstream.model.faults import reach
from braidstream.model.snapshots import Placed
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

__all__ = ["PHASES", "FunctionEpoch", "FunctionRun", "run_function_epoch"]


@dataclass(frozen=True)
class FunctionRun(Generic[RowsT]):
    """One start of a function."""

    checkpoint: Checkpoint
    name: str
    plans: Mapping[str, FunctionPlan]
    """The plans that may run, by strategy; the manifest names the one that does."""
    setup: Setup
    reader: RowReader
    time_type: pa.DataType
    cluster: NodeCluster[RowsT]
    outlets: Outlets
    monitor: Monitor | None = None
    recorder: Recorder = NO_RECORDER

    @property
    def outlet(self) -> Outlet:
        """Of the results; all plans give the same fields."""
        return Outlet(self.name, result_schema(self.setup.plan.gives, self.reader.time, self.time_type))

    def task(self, before: Manifest, epoch: int) -> FunctionTask:
        """What the tasks of an epoch are given."""
        plan = self.plans[plan_of(before)]
        return FunctionTask(
            self.checkpoint.root,
            epoch,
            replace(self.setup, plan=plan),
            self.reader,
            before.notes.nodes,
            self.outlets.staging(self.outlet),
            plan.gives,
            self.time_type,
            self.checkpoint.durable,
        )


@dataclass
class FunctionEpoch(Generic[RowsT]):
    """An epoch on its way."""

    number: int
    rows: RowsT
    before: Manifest
    task: FunctionTask
    after: Manifest
    started: float
    done: Sequence[Done] = ()
    delivered: Mapping[str, tuple[Placed, ...]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[NodeReport, ...]:
        """What nodes said."""
        return tuple(one.report for one in self.done)


def run_function_epoch(
    run: FunctionRun[RowsT], rows: RowsT, before: Manifest, number: int
) -> tuple[Manifest, FunctionProgress]:
    """Run all steps; the manifest that was committed, and what there is to say of the epoch."""
    started = time.perf_counter()
    reach("epoch-start", epoch=number)
    epoch = FunctionEpoch(number, rows, before, run.task(before, number), before, started)
    run_phases(PHASES, run, epoch)
    progress = FunctionProgress.of(epoch.task.setup, epoch.after, epoch.nodes, epoch.seconds)
    run.recorder.entry(progress.entry(epoch.after.newest, {run.setup.stream: run.setup.delay_us}))
    return epoch.after, progress


def compute(run: FunctionRun[RowsT], epoch: FunctionEpoch[RowsT]) -> None:
    """Nodes form windows, compute and combine; a failure of one of them is raised."""
    task = epoch.task
    stages = [NodeStage(first_stage(task), 1)]
    later = enumerate(task.setup.plan.stages[1:], 1)
    stages += [NodeStage(later_stage(task, index), stage.n_nodes) for index, stage in later]
    epoch.done = done_of(decoded(blob) for blob in run.cluster.run_nodes(epoch.rows, stages))


def deliver(run: FunctionRun[RowsT], epoch: FunctionEpoch[RowsT]) -> None:
    """Results to the sink."""
    reach("after-join", epoch=epoch.number)
    run.checkpoint.fence()
    staged = [one.result.file for one in epoch.done if one.result is not None and one.result.file]
    epoch.delivered = run.outlets.deliver(run.outlet, epoch.number, staged)
    reach("after-results", epoch=epoch.number)


def fold(run: FunctionRun[RowsT], epoch: FunctionEpoch[RowsT]) -> None:
    """The manifest after the reports."""
    after = after_nodes(epoch.before, epoch.number, epoch.done, run.name, run.setup.stream)
    epoch.after = replace(after, delivered=epoch.delivered)


def decide(run: FunctionRun[RowsT], epoch: FunctionEpoch[RowsT]) -> None:
    """A better plan, if this is a reorganization epoch and the monitor knows one that may take over now."""
    monitor = run.monitor
    if monitor is None:
        return
    current = plan_of(epoch.after)
    monitor.observe(current, Phases.observed(run.plans[current], epoch.nodes))
    if (epoch.number + 1) % monitor.every:
        return
    better = monitor.better(current)
    switched = None if better is None else with_plan(epoch.after, run.plans[better])
    epoch.after = epoch.after if switched is None else switched


PHASES: Steps[FunctionRun[Any], FunctionEpoch[Any]] = {
    "compute": (compute,),
    "deliver": (deliver,),
    "commit": (fold, decide, commit, retire),
}
"""All that an epoch does, in order; progress says how long each phase took."""
