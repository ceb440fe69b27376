"""GSDM's figures 12, 13, 15 and table 1 on Spark: the slow FFT of three channels by WD and WS.

A template's nodes are Spark's tasks, a thread each; the phases of an epoch are stages, one after the other. The slow
FFT is the fast one, which then sleeps for its n log2(n) steps, so that as many nodes as threads compute at once
although there are two cores; distributing, sending, merging and combining are what they are. So it is built in how much
less a part of a window costs than its share of the whole; what is checked is that parts and windows come to the nodes,
and that nothing else takes the gain. Two times are told: what an epoch took, elapsed; and the load of the most loaded
node, by which the paper explains its elapsed times, since its phases overlap. Cost: half a minute to a minute for a
figure.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.functions.fft import CHANNELS, RADIOSIGNAL, fft3_combine, fft3_part
from braidstream.functions.function import StreamFunction, register
from braidstream.functions.templates import FunctionPlan, Template
from braidstream.functions.training import Phases, window_distribute, window_split
from braidstream.functions.window_batch import WindowBatch
from braidstream.lab.papers.gsdm_bench import label
from braidstream.lab.papers.on_spark import ON_SPARK, session
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, built_in, experiment, judged, near
from braidstream.lab.workloads import append_files
from braidstream.spark.flow import Flow

__all__: list[str] = []

WINDOWS, EPOCHS = 8, 4
"""In an epoch, and epochs: the first one warms up."""
NS_A_STEP = 1000.0
THREADS = 8
_DDL = "ts timestamp, " + ", ".join(f"{name} struct<re: double, im: double>" for name in CHANNELS)
_DECLARED: dict[str, Any] = {
    "how": "spark",
    "obtained": ON_SPARK + " Nodes are tasks; the slow FFT sleeps 1 us a step; loads are what nodes report.",
    "differs": (
        "Only the slow FFT: two cores cannot show how fast four machines make a fast one. Stages of an epoch follow"
        " each other, so that elapsed times add up what overlaps in the paper: compared is the most loaded node."
    ),
}
PARAMETERS = {"channels": 3, "windows_an_epoch": WINDOWS, "epochs": EPOCHS, "slow_ns_a_step": NS_A_STEP}


def _slow(windows: WindowBatch) -> dict[str, Any]:
    found = {name: np.fft.fft(windows[name]) for name in CHANNELS}
    size = windows[CHANNELS[0]].shape[-1]
    time.sleep(len(windows) * len(CHANNELS) * size * max(np.log2(size), 1.0) * NS_A_STEP * 1e-9)
    return found


slept_fft3 = register(StreamFunction("slept_fft3", _slow, RADIOSIGNAL, RADIOSIGNAL))


@dataclass(frozen=True)
class _Timed:
    """One plan at one window size, for a window."""

    plan: FunctionPlan
    phases: Phases
    elapsed_s: float
    combining_s: float
    """What the outermost combine node worked in the best of the epochs: it does not sleep, and others disturb it."""

    @property
    def most_s(self) -> float:
        """The load of the most loaded node."""
        return 1.0 / self.phases.throughput("pipeline", self.plan.n_nodes)


class _Nodes:
    """Runs plans over windows of complex noise; the streams of a size are written once."""

    def __init__(self, run: Run, folder: Path, spark: Any, n_points: int) -> None:
        self._run, self._folder, self._spark, self._n_points = run, folder, spark, n_points
        self._n_done = 0

    def point(self, strategy: str, size: int, *degrees: int) -> _Timed:
        """One plan, timed."""
        self._run.progress(self._n_done / self._n_points, f"{label(strategy, degrees)} {size}")
        self._n_done += 1
        template = _template(strategy, degrees)
        flow = Flow(self._spark, f"plan-{self._n_done}")
        flow.files(
            "radio", self._stream(size), schema=_DDL, time="ts", delay="0 seconds", order="modified",
            options={"maxFilesPerTrigger": "1"},
        )  # fmt: skip
        flow.windows(size).apply(template).to("noop")
        handle = flow.start(self._folder / f"ck-{self._n_done}", durability="process", warm=self._n_done == 1)
        handle.await_termination()
        epochs = list(handle.progress)[1:]
        plan = FunctionPlan.of(template)
        phases = Phases.typical(plan, [entry.nodes for entry in epochs])
        last = len(plan.stages) - 1
        combining_s = [sum(node.work_s for node in entry.nodes if node.stage == last) for entry in epochs]
        elapsed_s = median(entry.seconds["compute"] for entry in epochs)
        return _Timed(plan, phases, elapsed_s / WINDOWS, min(combining_s) / WINDOWS)

    def _stream(self, size: int) -> Path:
        folder = self._folder / f"radio-{size}"
        if not folder.exists():
            rng, n = np.random.default_rng([self._run.seed, size]), WINDOWS * size
            append_files(folder, (_samples(rng, epoch * n, n) for epoch in range(EPOCHS)))
        return folder


def _samples(rng: np.random.Generator, first: int, n: int) -> pa.Table:
    times = pa.array(np.arange(first, first + n, dtype=np.int64)).cast(pa.timestamp("us", "UTC"))
    channels = {
        name: pa.StructArray.from_arrays([pa.array(rng.normal(size=n)) for _ in range(2)], names=["re", "im"])
        for name in CHANNELS
    }
    return pa.table({"ts": times, **channels})


def _template(strategy: str, degrees: Sequence[int]) -> Template:
    if strategy == "WS":
        return window_split(slept_fft3, fft3_part, fft3_combine, *degrees)
    return window_distribute(slept_fft3, *degrees)


_Plan = tuple[str, tuple[int, ...]]
CENTRAL: _Plan = ("WD", ())


def _measured(run: Run, plans: Sequence[_Plan], sizes: Sequence[int]) -> dict[_Plan, list[_Timed]]:
    """Every plan at every size."""
    found: dict[_Plan, list[_Timed]] = {plan: [] for plan in plans}
    with session(THREADS) as spark, TemporaryDirectory(prefix="papers-") as folder:
        nodes = _Nodes(run, Path(folder), spark, len(plans) * len(sizes))
        for size in sizes:
            for (strategy, degrees), some in found.items():
                some.append(nodes.point(strategy, size, *degrees))
    return found


def _lines(found: Mapping[_Plan, Sequence[_Timed]], sizes: Sequence[int]) -> list[Series]:
    series = []
    for (strategy, degrees), some in found.items():
        name, x = label(strategy, degrees), list(sizes)
        series.append(Series(name, x, [1e3 * one.most_s for one in some], "load of the most loaded node"))
        series.append(Series(name, x, [1e3 * one.elapsed_s for one in some], "elapsed, stages one after the other"))
    return series


def _faster(what: str, one: Sequence[_Timed], other: Sequence[_Timed], sizes: Sequence[int], paper: str) -> Check:
    """By the load of the most loaded node."""
    ratios = [b.most_s / a.most_s for a, b in zip(one, other, strict=True)]
    told = ", ".join(f"{size} {ratio:.2f} times" for size, ratio in zip(sizes, ratios, strict=True))
    why = "5% at every size, by the most loaded node; that there is more to gain is built in, by the sleep"
    return Check(what, min(ratios) > 1.05, told, paper, why)


def _limited_by(kind: str, what: str, some: Sequence[_Timed], paper: str) -> Check:
    limits = [one.phases.most_loaded for one in some]
    return Check(what, set(limits) == {kind}, ", ".join(limits), paper, "at every size")


@experiment(
    "gsdm",
    "fig12-spark",
    title="central and parallel in 2, slow FFT, on Spark",
    claim="With the slow FFT the compute phase is the most loaded; WS2 is faster than WD2, and both than Central.",
    x_label="samples in a window",
    y_label="time for a window (ms)",
    check="At every size compute limits WS2 and WD2, WS2 is faster than WD2, and WD2 than Central, elapsed as well.",
    parameters=PARAMETERS,
    log_x=True,
    log_y=True,
    **_DECLARED,
)
def fig12(run: Run) -> Outcome:
    """Times against the window size."""
    sizes = (2048, 8192) if run.quick else (1024, 2048, 4096, 8192)
    found = _measured(run, [CENTRAL, ("WD", (2,)), ("WS", (2,))], sizes)
    central, wd, ws = found.values()
    gains = [central[-1].elapsed_s / one[-1].elapsed_s for one in (wd, ws)]
    checks = [
        _limited_by("compute", "compute is the most loaded phase", [*wd, *ws], "so"),
        _faster("WS2 is faster than WD2", ws, wd, sizes, "so"),
        _faster("WD2 is faster than Central", wd, central, sizes, "so"),
        Check(
            "both are faster than Central, elapsed",
            min(gains) > 1.3,
            f"WD2 {gains[0]:.2f} times, WS2 {gains[1]:.2f} times at {sizes[-1]} samples",
            "nearly twice",
            "1.3 times: an epoch has stages of tasks to start, and Central one of them",
        ),
    ]
    return judged(_lines(found, sizes), checks)


@experiment(
    "gsdm",
    "fig13-spark",
    title="parallel in 4, flat and tree, slow FFT, on Spark",
    claim="Where compute limits, WS4 is faster than WD4; the tree takes load off WS4's combine node.",
    x_label="samples in a window",
    y_label="time for a window (ms)",
    check="At every size compute limits WS4, WS4 is faster than WD4; the tree's last combine node has less to do.",
    parameters=PARAMETERS,
    log_x=True,
    log_y=True,
    **_DECLARED,
)
def fig13(run: Run) -> Outcome:
    """Times against the window size."""
    sizes = (8192,) if run.quick else (1024, 2048, 4096, 8192)
    found = _measured(run, [("WD", (4,)), ("WS", (4,)), ("WS", (2, 2))], sizes)
    wd, ws, tree = found.values()
    last = [(b.combining_s, a.combining_s) for a, b in zip(ws, tree, strict=True)]
    checks = [
        _limited_by("compute", "compute limits WS4", ws, "bigger than 512 samples"),
        _faster("WS4 is faster than WD4", ws, wd, sizes, "so"),
        Check(
            "the tree takes load off the combine node",
            all(a < 0.9 * b for a, b in last),
            ", ".join(f"{1e3 * a:.3f} ms instead of {1e3 * b:.3f} ms" for a, b in last),
            "so, in bars without numbers (figure 14)",
            "a tenth of its own work in the best epoch, at every size: it has one of two steps of combining left",
        ),
    ]
    return judged(_lines(found, sizes), checks)


@experiment(
    "gsdm",
    "fig15-spark",
    title="speed-up of the slow FFT, window 8192, on Spark",
    claim="With 6 nodes compute limits both strategies, and WS has the better speed-up.",
    x_label="nodes",
    y_label="speed-up over Central",
    check=(
        "At 6 nodes compute limits both, no node has more than its share of the work, and both are twice as fast as"
        " Central, elapsed. The speed-ups by the most loaded node decide nothing: they follow from the sleep."
    ),
    parameters={**PARAMETERS, "size": 8192},
    stated={"speed-up of WS at 6 nodes": 4.72, "speed-up of WD at 6 nodes": 4.0},
    **_DECLARED,
)
def fig15(run: Run) -> Outcome:
    """Speed-up against nodes: partition, compute and combine are counted, as in the paper."""
    degrees = (2, 4) if run.quick else (2, 4, 8)
    plans = [CENTRAL, *(("WS", (n,)) for n in degrees), *(("WD", (n,)) for n in degrees)]
    found = {plan: some[0] for plan, some in _measured(run, plans, (8192,)).items()}
    central = found[CENTRAL]
    ws, wd = found["WS", (4,)], found["WD", (4,)]
    ours = {f"speed-up of {s} at 6 nodes": central.most_s / found[s, (4,)].most_s for s in ("WS", "WD")}
    why = "it follows from the sleep, n log2(n) for a window and its parts, where nothing else counts"
    limits = [one.phases.most_loaded for one in (ws, wd)]
    elapsed = {s: central.elapsed_s / found[s, (4,)].elapsed_s for s in ("WS", "WD")}
    checks = [
        Check("at 6 nodes compute limits both", set(limits) == {"compute"}, ", ".join(limits), "so", "exactly"),
        *(
            built_in(near(f"{name}, most loaded node", ours[name], paper, 0.1, ""), why)
            for name, paper in {"speed-up of WS at 6 nodes": 4.72, "speed-up of WD at 6 nodes": 4.0}.items()
        ),
        Check(
            "no node has more than its share",
            all(abs(own - share) < 0.1 * share for own, share in zip(ours.values(), _SHARES, strict=True)),
            ", ".join(f"{name} {own:.2f}" for name, own in ours.items()),
            "4.72 and 4.00",
            f"10% of what the sleep alone gives, {_SHARES[0]:.2f} and {_SHARES[1]:.2f}: all else is overhead",
        ),
        Check(
            "both are faster than Central, elapsed",
            min(elapsed.values()) > 2,
            ", ".join(f"{name} {one:.2f} times" for name, one in elapsed.items()),
            "4.72 and 4.00",
            "twice: stages follow each other, and have tasks to start, which on a busy machine takes half the time",
        ),
    ]
    nodes = [1, *(n + 2 for n in degrees)]
    series = []
    for s in ("WS", "WD"):
        some = [found[s, (n,)] for n in degrees]
        series.append(Series(f"{s}, most loaded node", nodes, [1.0, *(central.most_s / one.most_s for one in some)]))
        series.append(Series(f"{s}, elapsed", nodes, [1.0, *(central.elapsed_s / one.elapsed_s for one in some)]))
    return judged(series, checks, ours=ours)


_SHARES = (4 * 13 / 11, 4.0)
"""What WS and WD gain at degree 4 by the sleep: a part of 2048 samples has 11 steps a sample, a window 13."""

_TABLE_1 = {
    "WS: communication in partition (%)": 95.0,
    "WS: communication in combine (%)": 26.7,
    "WD: communication in partition (%)": 93.9,
    "WD: communication in combine (%)": 91.2,
}


@experiment(
    "gsdm",
    "table1-spark",
    title="communication and computation in the phases, on Spark",
    claim=(
        "Partitioning is nearly all communication, computing nearly all processing; WS's combine phase has a larger"
        " share of processing than WD's."
    ),
    x_label="phase",
    y_label="time for a window (ms)",
    check="Shares of communication in partition and combine within 10 points of the paper's; in compute below 10%.",
    form="table",
    parameters={**PARAMETERS, "size": 8192, "degree": 4},
    stated=_TABLE_1,
    **_DECLARED,
)
def table1(run: Run) -> Outcome:
    """Processing and communication at window 8192, degree 4."""
    found = _measured(run, [("WS", (4,)), ("WD", (4,))], (8192,))
    phases, names, series = ["Part", "Comp", "Comb"], ("partition", "compute", "combine"), []
    share: dict[str, float] = {}
    for (strategy, _), (one,) in found.items():
        work, sent = ([1e3 * getattr(load, name) for load in one.phases.loads] for name in ("work_s", "exchange_s"))
        shares = [100 * s / (w + s) for w, s in zip(work, sent, strict=True)]
        share |= {f"{strategy}: communication in {name} (%)": s for name, s in zip(names, shares, strict=True)}
        series += [Series(f"{strategy} Proc", phases, work), Series(f"{strategy} Comm", phases, sent)]
        series.append(Series(f"{strategy} Comm %", phases, shares))
    wd, ws = (share[f"{s}: communication in combine (%)"] for s in ("WD", "WS"))
    computing = [share[f"{s}: communication in compute (%)"] for s in ("WS", "WD")]
    checks = [
        Check("computing is processing", max(computing) < 10, f"{max(computing):.1f}%", "4.6%, 4.1%", "below 10%"),
        Check("WS's combine phase computes more", ws < wd, f"WS {ws:.0f}%, WD {wd:.0f}%", "26.7%, 91.2%", "less"),
        *(
            Check(name, abs(share[name] - paper) <= 10, f"{share[name]:.1f}%", f"{paper:g}%", "10 points")
            for name, paper in _TABLE_1.items()
        ),
    ]
    differs = [
        "The partition node also forms the windows from single samples, which is processing; and all that a stage"
        " of Spark sends and reads is communication of the nodes around it."
    ]
    return judged(series, checks, ours={name: share[name] for name in _TABLE_1}, differs=differs)
