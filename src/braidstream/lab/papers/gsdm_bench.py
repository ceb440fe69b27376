"""How GSDM's plans are measured: phases on this machine, throughput by the paper's own argument.

Every plan runs in one process with the engine's own node code, 16 windows to a message, each message packed and carried
over a local socket; the time is the thread's CPU time, so that other work on the machine counts little, and each node's
median over several epochs is taken. The throughput is a model: every node has a machine, all work at once, so a plan is
as fast as its most loaded node. Elapsed times are for 2^21 samples a channel. Cost: milliseconds to a second a plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from braidstream.functions.fft import CHANNELS, fft3, fft3_combine, fft3_part, slow_fft3
from braidstream.functions.function import StreamFunction
from braidstream.functions.templates import Template
from braidstream.functions.training import Measured, measure, window_distribute, window_split
from braidstream.functions.window_batch import WindowBatch
from braidstream.lab.papers.registry import Run, Series

__all__ = ["Bench", "Contest", "Sweep", "elapsed_s", "label", "lines", "rate_of", "sample_of", "sizes_of", "sweep"]

SEGMENT = 1 << 21
WINDOWS_A_MESSAGE = 16
SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
QUICK_SIZES = (512, 2048, 8192)
PARAMETERS = {
    "channels": 3,
    "segment_samples": SEGMENT,
    "windows_a_message": WINDOWS_A_MESSAGE,
    "slow_ns_a_step": 30,
    "model": "throughput = 1 / most loaded phase",
}
FAST, SLOW = "fast", "slow"
PANELS = {FAST: "(a) fast implementation", SLOW: "(b) slow implementation"}
OBTAINED = (
    "Every node's work is measured in CPU time on this machine, with the engine's own node code and messages over a"
    " local socket. Elapsed times are the paper's argument: every node has a machine, and the most loaded one decides."
)
DELAYED = (
    "The slow FFT is our fast one with a delay of 30 ns a step, chosen so that at 8192 samples compute is about three"
    " times combine for WS4, as in table 1. Our samples are complex128, twice the paper's volume."
)


def sample_of(size: int, n_epochs: int, seed: int) -> list[list[WindowBatch]]:
    """Epochs of windows of complex noise; the cost of an FFT does not depend on the signal."""
    n, rng = WINDOWS_A_MESSAGE, np.random.default_rng(seed + size)
    epochs = []
    for epoch in range(n_epochs):
        fields = {name: rng.normal(size=(n, size, 2)) @ np.array([1, 1j]) for name in CHANNELS}
        times = np.arange(epoch * n, (epoch + 1) * n, dtype=np.int64)
        epochs.append([WindowBatch(times, times, fields)])
    return epochs


def elapsed_s(measured: Measured, size: int) -> float:
    """The time for the segment at the most loaded node."""
    return SEGMENT / size / measured.phases.throughput("pipeline", measured.plan.n_nodes)


@dataclass
class Bench:
    """Measures plans; the windows of a size are drawn once."""

    run: Run
    n_points: int
    n_epochs: int = 0
    """Epochs a plan is measured for; 0: 4 in a quick run, 7 in a full one."""
    done: int = 0
    samples: dict[int, list[list[WindowBatch]]] = field(default_factory=dict)

    def point(self, set_: str, strategy: str, size: int, *degrees: int) -> Measured:
        """The loads of one plan, fast or slow, at a window size."""
        if size not in self.samples:
            n_epochs = self.n_epochs or (4 if self.run.quick else 7)
            self.samples = {size: sample_of(size, n_epochs, self.run.seed)}
        function = fft3 if set_ == FAST else slow_fft3
        self.run.progress(self.done / self.n_points, f"{set_} {strategy} {size}")
        self.done += 1
        return measure(_template(strategy, function, degrees), self.samples[size], clock=time.thread_time)


def _template(strategy: str, function: StreamFunction, degrees: Sequence[int]) -> Template:
    if strategy == "WS":
        return window_split(function, fft3_part, fft3_combine, *degrees)
    return window_distribute(function, *degrees)


def label(strategy: str, degrees: Sequence[int]) -> str:
    """A plan as the paper names it."""
    return f"{strategy}{math.prod(degrees)}{'-Tree' if len(degrees) > 1 else ''}" if degrees else "Central"


def sizes_of(run: Run) -> tuple[int, ...]:
    """The window sizes of a run."""
    return QUICK_SIZES if run.quick else SIZES


Sweep = dict[tuple[str, str, tuple[int, ...]], list[Measured]]


def sweep(run: Run, plans: Sequence[tuple[str, tuple[int, ...]]]) -> Sweep:
    """Every plan at every size, fast and slow."""
    sizes = sizes_of(run)
    bench = Bench(run, 2 * len(sizes) * len(plans))
    found: Sweep = {(set_, strategy, degrees): [] for set_ in (FAST, SLOW) for strategy, degrees in plans}
    for size in sizes:
        for (set_, strategy, degrees), some in found.items():
            some.append(bench.point(set_, strategy, size, *degrees))
    return found


def lines(run: Run, found: Sweep) -> list[Series]:
    """Elapsed times against window sizes, a panel for each set."""
    sizes = sizes_of(run)
    return [
        Series(
            label(strategy, degrees),
            sizes,
            [elapsed_s(m, size) for m, size in zip(some, sizes, strict=True)],
            PANELS[set_],
        )
        for (set_, strategy, degrees), some in found.items()
    ]


@dataclass
class Contest:
    """Who was faster, where; a ratio above 1 is won by the first."""

    ratios: list[float] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def add(self, place: str, one: Measured, other: Measured) -> None:
        """Compare two plans."""
        self.places.append(place)
        self.ratios.append(rate_of(one) / rate_of(other))

    @property
    def mean(self) -> float:
        """The geometric mean; 1 when there was no contest."""
        return math.exp(sum(math.log(r) for r in self.ratios) / len(self.ratios)) if self.ratios else 1.0

    @property
    def is_won(self) -> bool:
        """Won everywhere."""
        return bool(self.ratios) and min(self.ratios) > 1.0

    def told(self, what: str) -> str:
        """The ratios with their places."""
        if not self.ratios:
            return f"{what}: nowhere"
        return f"{what}: {', '.join(f'{p} {r:.2f}' for p, r in zip(self.places, self.ratios, strict=True))}"


def rate_of(measured: Measured) -> float:
    """Windows a second, every node on a machine of its own."""
    return measured.phases.throughput("pipeline", measured.plan.n_nodes)
