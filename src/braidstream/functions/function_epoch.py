"""One epoch of a flow's functions, from rows to the commit, in an ordered tuple of steps; `epoch.steps` is of joins.

    compute    all stages of their plans; nodes report what they did
    deliver    staged results to the sinks
    commit     which nodes are too slow, another plan if a better one is known, the manifest; what only older manifests
               refer to is deleted

The manifest before says which plans run, what each node keeps and which are waited for, now and on replay. An epoch
whose user code failed writes no manifest, and runs again after a restart. At a reorganization epoch the monitor may
name a better plan; the switch is part of the manifest. Nothing here grows with the stream.
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
from braidstream.functions.chains import Chain
from braidstream.functions.function_plans import after_nodes, plans_of, with_plans
from braidstream.functions.function_progress import FunctionProgress
from braidstream.functions.node_cluster import NodeCluster, NodeStage, RowsT
from braidstream.functions.node_reports import Done, decoded, done_of
from braidstream.functions.node_tasks import FunctionTask, RowReader, first_stage, later_stage
from braidstream.functions.nodes import NodeReport, Setup
from braidstream.functions.slow_nodes import slow_children, slow_nodes
from braidstream.functions.templates import FunctionPlan
from braidstream.functions.training import Monitor, Phases
from braidstream.model.faults import reach
from braidstream.model.snapshots import Placed
from braidstream.model.values import changed
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

__all__ = ["PHASES", "Applied", "FunctionEpoch", "FunctionRun", "run_function_epoch"]


@dataclass(frozen=True)
class Applied:
    """A function of a flow."""

    name: str
    setup: Setup
    """Its stream is that of the flow, or the name of the function before."""
    plans: Mapping[str, FunctionPlan]
    """The plans that may run, by strategy; the manifest names the one that does."""
    monitor: Monitor | None = None
    has_sink: bool = True


@dataclass(frozen=True)
class FunctionRun(Generic[RowsT]):
    """One start of the functions of a flow."""

    checkpoint: Checkpoint
    functions: tuple[Applied, ...]
    """Each feeds the next."""
    reader: RowReader
    time_type: pa.DataType
    cluster: NodeCluster[RowsT]
    outlets: Outlets
    recorder: Recorder = NO_RECORDER

    @property
    def stream(self) -> Setup:
        """What is known of the stream that is read."""
        return self.functions[0].setup

    def outlet(self, function: Applied) -> Outlet:
        """Of a function's results; all its plans give the same fields."""
        gives = function.setup.plan.gives
        return Outlet(function.name, result_schema(gives, self.reader.time, self.time_type))

    def plans(self, manifest: Manifest) -> tuple[FunctionPlan, ...]:
        """What the manifest says that runs next, of each function."""
        return tuple(one.plans[name] for one, name in zip(self.functions, plans_of(manifest), strict=True))

    def task(self, before: Manifest, epoch: int) -> FunctionTask:
        """What the tasks of an epoch are given."""
        slow = before.notes.slow
        both = enumerate(zip(self.functions, self.plans(before), strict=True))
        setups = (replace(one.setup, plan=plan, slow=slow_children(slow, i, plan, epoch)) for i, (one, plan) in both)
        return FunctionTask(
            self.checkpoint.root,
            epoch,
            Chain(tuple(setups)),
            self.reader,
            before.notes.nodes,
            tuple(self.outlets.staging(self.outlet(one)) if one.has_sink else None for one in self.functions),
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
    progress = FunctionProgress.of(epoch.task.chain, before, epoch.after, epoch.nodes, epoch.seconds)
    run.recorder.entry(progress.entry(epoch.after.newest, {run.stream.stream: run.stream.delay_us}))
    return epoch.after, progress


def compute(run: FunctionRun[RowsT], epoch: FunctionEpoch[RowsT]) -> None:
    """Nodes form windows, compute and combine; a failure of one of them is raised."""
    task = epoch.task
    stages = [NodeStage(first_stage(task), 1)]
    later = enumerate(task.chain.stages[1:], 1)
    stages += [NodeStage(later_stage(task, index), stage.n_nodes) for index, stage in later]
    epoch.done = done_of(decoded(blob) for blob in run.cluster.run_nodes(epoch.rows, stages))


def deliver(run: FunctionRun[RowsT], epoch: FunctionEpoch[RowsT]) -> None:
    """Results to the sinks."""
    reach("after-join", epoch=epoch.number)
    run.checkpoint.fence()
    for number, function in enumerate(run.functions):
        if function.has_sink:
            own = [one.result for one in epoch.done if one.report.function == number and one.result is not None]
            staged = [result.file for result in own if result.file]
            placed = run.outlets.deliver(run.outlet(function), epoch.number, staged)
            epoch.delivered = {**epoch.delivered, **placed}
    reach("after-results", epoch=epoch.number)


def fold(run: FunctionRun[RowsT], epoch: FunctionEpoch[RowsT]) -> None:
    """The manifest after the reports."""
    names = [function.name for function in run.functions]
    after = after_nodes(epoch.before, epoch.number, epoch.done, names, run.stream.stream)
    epoch.after = replace(after, delivered=epoch.delivered)


def judge(run: FunctionRun[RowsT], epoch: FunctionEpoch[RowsT]) -> None:
    """Which nodes are waited for no longer, by what their clocks say of this epoch."""
    del run
    slow = slow_nodes(epoch.task.chain, epoch.before.notes.slow, epoch.nodes, epoch.number)
    epoch.after = replace(epoch.after, notes=changed(epoch.after.notes, slow=slow))


def decide(run: FunctionRun[RowsT], epoch: FunctionEpoch[RowsT]) -> None:
    """Better plans, if this is a reorganization epoch and a function's monitor knows one that may take over now."""
    for number, function in enumerate(run.functions):
        better = _better(function, plans_of(epoch.after)[number], epoch, number)
        if better is not None:
            plans = list(run.plans(epoch.after))
            plans[number] = function.plans[better]
            epoch.after = with_plans(epoch.after, *plans) or epoch.after


def _better(function: Applied, current: str, epoch: FunctionEpoch[RowsT], number: int) -> str | None:
    """The plan that the function's monitor would switch to after this epoch."""
    monitor = function.monitor
    if monitor is None:
        return None
    own = [node for node in epoch.nodes if node.function == number]
    monitor.observe(current, Phases.observed(function.plans[current], own))
    return None if (epoch.number + 1) % monitor.every else monitor.better(current)


PHASES: Steps[FunctionRun[Any], FunctionEpoch[Any]] = {
    "compute": (compute,),
    "deliver": (deliver,),
    "commit": (fold, judge, decide, commit, retire),
}
"""All that an epoch does, in order; progress says how long each phase took."""
