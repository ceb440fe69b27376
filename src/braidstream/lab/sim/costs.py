"""What things cost on a virtual machine: joining, and sending.

Joining follows the block tactic of `kernels.blocks`: a new tuple is compared with the opposite mini-group, so an epoch
costs comparisons, tuples (placing, expiring) and matches (writing results), each at a price. The *ratios* of the three
prices are those of our kernel, measured by `measured_machine`. The *speed* is one number, seconds for a comparison:

- `PAPER_MACHINE`: chosen so that ONE point of WSJ fits: figure 8, 4 slaves, 4,000 tuples/s a stream, no tuning, a delay
  of about 48 s (found by bisection). It comes out at 12.9 ns, some 12 cycles of the paper's 930
  MHz Pentium III for a comparison in Java, which is plausible. Every other figure follows from the model.
- `measured_machine()`: this machine's, from the kernel.

Sending costs a fixed time (the rendezvous of two blocking partners) and a time for each byte. The paper gives
neither, so both are assumptions: 8 MB/s for mpiJava's marshalling (the Gigabit switch is not what limits it) and 1
ms. The latter was 10 ms at first; figure 11, where a slave's communication still falls at 5 slaves, bounds it below 2
ms (serving n slaves in turn blocks each for r (n + 1) / 2 + D (n + 1) / (2 n), which falls at n only if r < D / n^2,
with D = 48 ms of data). So that one property of figure 11 is an input of the model, not a prediction."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from braidstream.kernels.blocks import BlockJoin
from braidstream.lab.workloads.key_values import UniformKeys
from braidstream.model.directory import Directory

__all__ = ["PAPER_MACHINE", "PAPER_NETWORK", "Machine", "Network", "measured_machine"]

TUPLE_COMPARISONS = 15.0
"""A tuple's own cost, in comparisons: as the kernel has it on the machine we calibrated on."""
MATCH_COMPARISONS = 88.0
"""A match's own cost, in comparisons."""


@dataclass(frozen=True)
class Machine:
    """The prices of joining, in seconds."""

    compare_s: float
    tuple_s: float
    match_s: float

    @classmethod
    def of_speed(cls, compare_s: float) -> Machine:
        """A machine with our kernel's ratios at a given speed."""
        return cls(compare_s, TUPLE_COMPARISONS * compare_s, MATCH_COMPARISONS * compare_s)


@dataclass(frozen=True)
class Network:
    """The prices of sending."""

    rendezvous_s: float = 0.001
    bytes_per_s: float = 8e6

    def transfer_s(self, n_bytes: float) -> float:
        """How long two partners are blocked by one message."""
        return self.rendezvous_s + n_bytes / self.bytes_per_s


PAPER_MACHINE = Machine.of_speed(12.9e-9)
PAPER_NETWORK = Network()


def measured_machine(seed: int = 1) -> Machine:
    """This machine's prices, from runs of the block tactic that differ in window and in matches."""
    none, small, large, dense = (
        min((_epoch_s(window, domain, seed) for _ in range(3)), key=lambda one: one[1])
        for window, domain in ((0, 1 << 30), (8_000, 1 << 30), (64_000, 1 << 30), (8_000, 100))
    )
    match_s = max(0.0, dense[1] - small[1]) / dense[0]
    return Machine(max(0.0, large[1] - small[1]) / 56_000, none[1], match_s)


def _epoch_s(window_rows: int, domain: int, seed: int) -> tuple[float, float]:
    """Matches and CPU seconds for one new tuple against a window of `window_rows`."""
    rng = np.random.default_rng(seed)
    keys = UniformKeys(domain)
    join = BlockJoin((None, None), Directory.of(1))
    mixed = [keys.draw(n, rng).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) for n in (window_rows, 4_000)]
    window, new = ({"hash": h, "time": np.zeros(len(h), np.int64), "row": np.arange(len(h))} for h in mixed)
    if window_rows:
        join.install(1, window)
    began = time.process_time()
    n_matches = len(join.push(0, new)) + len(join.flush())
    return n_matches / 4_000, (time.process_time() - began) / 4_000
