"""Training mode: measure the phases of candidate plans on a sample of the stream, and choose (GSDM 5).

The load of a phase is the time its most loaded node needs for a window: its own work, and packing and unpacking what it
receives and sends. Two models turn loads into throughput:

    pipeline   the paper's: every node has a machine, all work at once; throughput = 1 / the most loaded phase
    stages     this engine's epoch: the phases follow each other, each on at most `nodes` machines at a time;
               throughput = 1 / the sum over phases of (load of a node x rounds)

Heuristic (GSDM 5, "Optimal Data Flows"): for each strategy start with 2 partitions; grow while the compute phase is the
most loaded and nodes are left; choose the best of the best.

Invariant: candidates are run on the same windows, in one process with the engine's own node code. Cost: the sample runs
once for each candidate.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from braidstream.errors import InputError, nearest
from braidstream.functions.finding import find_function
from braidstream.functions.function import StreamFunction
from braidstream.functions.local import LocalRun
from braidstream.functions.nodes import NodeReport, Setup
from braidstream.functions.templates import PCC, Central, Distribute, FunctionPlan, Join, MergeWindows, Split, Template
from braidstream.functions.window_batch import WindowBatch
from braidstream.functions.windowing import WindowSpec
from braidstream.functions.wire import Wire

__all__ = [
    "MODELS",
    "Measured",
    "Monitor",
    "Phases",
    "Trained",
    "measure",
    "train",
    "window_distribute",
    "window_split",
]

MODELS = ("pipeline", "stages")


@dataclass(frozen=True)
class Load:
    """A phase: nodes, seconds a window at its most loaded node (work and exchange), bytes a window that it sends."""

    kind: str
    n_nodes: int
    work_s: float
    exchange_s: float
    bytes_out: float

    @property
    def total_s(self) -> float:
        """Work and exchange."""
        return self.work_s + self.exchange_s


@dataclass(frozen=True)
class Phases:
    """The loads of a plan's stages, in the order of the data flow."""

    loads: tuple[Load, ...]

    @classmethod
    def observed(cls, plan: FunctionPlan, nodes: Sequence[NodeReport]) -> Phases:
        """From what the nodes reported of one epoch."""
        return cls.typical(plan, [nodes])

    @classmethod
    def typical(cls, plan: FunctionPlan, epochs: Sequence[Sequence[NodeReport]]) -> Phases:
        """From several epochs: each node's median load, and of each stage its most loaded node."""
        seen: dict[tuple[int, int], list[Load]] = defaultdict(list)
        for reports in epochs:
            per = 1.0 / max(next(report.windows for report in reports if report.stage == 0), 1)
            for r in reports:
                kind = "compute" if r.kind == "central" else r.kind
                seen[r.stage, r.node].append(Load(kind, 1, r.work_s * per, r.exchange_s * per, r.bytes_out * per))
        loads = []
        for index, stage in enumerate(plan.stages):
            nodes = [_median(found) for (at, _), found in seen.items() if at == index]
            if nodes:
                worst = max(nodes, key=lambda load: load.total_s)
                loads.append(replace(worst, n_nodes=stage.n_nodes, bytes_out=sum(load.bytes_out for load in nodes)))
        return cls(tuple(loads))

    def load(self, kind: str) -> float:
        """The load of the most loaded stage of a kind."""
        return max((entry.total_s for entry in self.loads if entry.kind == kind), default=0.0)

    def bytes_out(self, kind: str) -> float:
        """What the stages of a kind send, in bytes a window."""
        return sum(entry.bytes_out for entry in self.loads if entry.kind == kind)

    @property
    def most_loaded(self) -> str:
        """The phase that limits the throughput of a pipeline."""
        return max(self.loads, key=lambda entry: entry.total_s).kind

    def throughput(self, model: str, nodes: int) -> float:
        """Windows a second."""
        if model == "pipeline":
            busiest = max(entry.total_s for entry in self.loads)
        else:
            busiest = sum(entry.total_s * math.ceil(entry.n_nodes / max(nodes, 1)) for entry in self.loads)
        return 1.0 / max(busiest, 1e-12)

    def scaled(self, ratios: Mapping[str, float]) -> Phases:
        """With the loads of each kind of phase multiplied."""
        return Phases(
            tuple(
                Load(
                    e.kind,
                    e.n_nodes,
                    e.work_s * ratios.get(e.kind, 1.0),
                    e.exchange_s * ratios.get(e.kind, 1.0),
                    e.bytes_out,
                )
                for e in self.loads
            )
        )


@dataclass(frozen=True)
class Measured:
    """A candidate and its phases."""

    plan: FunctionPlan
    phases: Phases
    n_windows: int

    def fits(self, nodes: int, model: str) -> bool:
        """Whether there are nodes enough; Central fits one, stages that follow each other share theirs."""
        return self.plan.n_nodes <= nodes if model == "pipeline" else self.plan.degree <= nodes

    def row(self, model: str, nodes: int) -> dict[str, Any]:
        """What the table says of it."""
        by_kind = {kind: self.phases.load(kind) * 1e6 for kind in ("partition", "compute", "combine")}
        return {
            "plan": self.plan.strategy,
            "nodes": self.plan.n_nodes,
            **{f"{kind}_us": value for kind, value in by_kind.items()},
            **{f"{kind}_bytes": self.phases.bytes_out(kind) for kind in by_kind},
            "most_loaded": self.phases.most_loaded,
            "windows_per_s": self.phases.throughput(model, nodes),
            "pipeline_per_s": self.phases.throughput("pipeline", nodes),
            "stages_per_s": self.phases.throughput("stages", nodes),
            "fits": self.fits(nodes, model),
        }


@dataclass(frozen=True)
class Trained:
    """What training found."""

    measured: tuple[Measured, ...]
    nodes: int
    model: str

    @property
    def best(self) -> Measured:
        """The plan with the best throughput among those that fit the nodes."""
        fitting = [m for m in self.measured if m.fits(self.nodes, self.model)] or [self.measured[0]]
        return max(fitting, key=lambda m: m.phases.throughput(self.model, self.nodes))

    def table(self) -> list[dict[str, Any]]:
        """One row a candidate."""
        return [m.row(self.model, self.nodes) for m in self.measured]

    def monitor(self, every: int = 5, gain: float = 1.2) -> Monitor:
        """What a running flow needs to go on choosing."""
        fitting = {m.plan.strategy: m.phases for m in self.measured if m.fits(self.nodes, self.model)}
        return Monitor(fitting, self.nodes, self.model, every, gain)


def window_distribute(function: str | StreamFunction, *degrees: int, timeout: str = "0 seconds") -> Template:
    """WD by round robin; several degrees make a tree, the outermost first."""
    made: Any = find_function(function)
    for n in reversed(degrees):
        made = PCC(n, Distribute("round_robin"), made, MergeWindows(timeout))
    return made if isinstance(made, PCC) else Central(made)


def window_split(
    function: str | StreamFunction, split: Callable[..., Any], combine: Callable[..., Any], *degrees: int
) -> Template:
    """WS; several degrees make a tree, the outermost first."""
    made: Any = find_function(function)
    for n in reversed(degrees):
        made = PCC(n, Split(split), made, Join(combine))
    return made if isinstance(made, PCC) else Central(made)


def measure(
    template: Template | FunctionPlan,
    sample: Sequence[Sequence[WindowBatch]],
    *,
    stream: str = "sample",
    spec: WindowSpec | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Run a plan over the epochs of a sample in one process and measure its phases.

    Messages go over a local socket. The first epoch warms up; of the others, each node's median counts.
    """
    plan = template if isinstance(template, FunctionPlan) else FunctionPlan.of(template)
    wire = Wire(clock)
    run = LocalRun(Setup(stream, spec or WindowSpec(), 0, plan), None, wire, clock)
    epochs: list[list[NodeReport]] = []
    for rows in sample:
        run.epoch(rows)
        epochs.append(run.reports)
    wire.close()
    counted = [reports for reports in epochs[1:] if reports[0].windows] or epochs
    return Measured(plan, Phases.typical(plan, counted), sum(reports[0].windows for reports in counted))


def train(
    function: str | StreamFunction,
    sample: Sequence[Sequence[WindowBatch]],
    *,
    nodes: int,
    split: Callable[..., Any] | None = None,
    combine: Callable[..., Any] | None = None,
    model: str = "stages",
    spec: WindowSpec | None = None,
    stream: str = "sample",
    clock: Callable[[], float] = time.perf_counter,
    tell: Callable[[str], None] = lambda _: None,
) -> Trained:
    """Follow the paper's heuristic over WD, and WS where split and combine are given, flat and as trees."""
    if model not in MODELS:
        raise InputError(f"there is no model {model!r}", " or ".join(MODELS), nearest(model, MODELS))
    if (split is None) != (combine is None):
        raise InputError("window split needs both functions", "split and combine, or neither")
    chosen = find_function(function)

    def run(template: Template) -> Measured:
        plan = FunctionPlan.of(template)
        tell(plan.strategy)
        return measure(plan, sample, stream=stream, spec=spec, clock=clock)

    measured = [run(Central(chosen))]
    strategies: list[Callable[..., Template]] = [lambda *degrees: window_distribute(chosen, *degrees)]
    if split is not None and combine is not None:
        strategies.append(lambda *degrees: window_split(chosen, split, combine, *degrees))
    for strategy in strategies:
        measured += _grow(strategy, run, nodes, model, is_tree=False)
        measured += _grow(strategy, run, nodes, model, is_tree=True)
    return Trained(tuple(measured), nodes, model)


def _grow(
    strategy: Callable[..., Template], run: Callable[[Template], Measured], nodes: int, model: str, *, is_tree: bool
) -> list[Measured]:
    """Start with 2 partitions (a tree with 2 x 2), double while compute is the most loaded and nodes are left."""
    found: list[Measured] = []
    n = 4 if is_tree else 2
    while True:
        template = strategy(2, n // 2) if is_tree else strategy(n)
        if not Measured(FunctionPlan.of(template), Phases(()), 0).fits(nodes, model):
            return found
        found.append(run(template))
        if found[-1].phases.most_loaded != "compute":
            return found
        n *= 2


@dataclass
class Monitor:
    """Watches the phases of the running plan, and names a plan that would be `gain` times better.

    Plans of `to_try` that were not trained are first run in turn: the flow is trained on its own stream, on the
    cluster that it runs on. What is known of other plans is what training measured, corrected by how far the running
    plan's phases are from their own training: a function that became slower is slower in every plan.
    """

    trained: Mapping[str, Phases]
    nodes: int
    model: str = "stages"
    every: int = 5
    """Epochs between reorganizations."""
    gain: float = 1.2
    recent: dict[str, list[Phases]] = field(default_factory=dict)
    to_try: tuple[str, ...] = ()
    tried: dict[str, Phases] = field(default_factory=dict)

    def observe(self, plan: str, phases: Phases) -> None:
        """Take in an epoch of the running plan; the last few count. Epochs without windows say nothing."""
        if any(load.total_s > 0 for load in phases.loads):
            self.recent.setdefault(plan, []).append(phases)
            del self.recent[plan][: -self.every]

    def better(self, current: str) -> str | None:
        """A plan whose throughput would be at least `gain` times that of the current one."""
        seen = self.recent.get(current)
        if not seen or (current not in self.trained and current not in self.to_try):
            return None
        now = Phases(tuple(_median(loads) for loads in zip(*(phases.loads for phases in seen), strict=True)))
        trained = {**self.tried, **self.trained}
        if current not in trained:
            self.tried[current] = trained[current] = now
        if untried := [name for name in self.to_try if name not in trained]:
            return untried[0]
        ratios = _ratios(now, trained[current])
        rates = {name: p.scaled(ratios).throughput(self.model, self.nodes) for name, p in trained.items()}
        rates[current] = now.throughput(self.model, self.nodes)
        best = max(rates, key=lambda name: rates[name])
        self.recent.clear()
        return best if best != current and rates[best] >= self.gain * rates[current] else None


def _median(loads: Sequence[Load]) -> Load:
    return sorted(loads, key=lambda load: load.total_s)[len(loads) // 2]


def _ratios(now: Phases, trained: Phases) -> dict[str, float]:
    kinds = {load.kind for load in now.loads}
    return {kind: now.load(kind) / max(trained.load(kind), 1e-12) for kind in kinds}
